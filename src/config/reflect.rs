//! The settings of `deltaq reflect`: one TOML file with many sources, or the flags of one source.
//!
//! Flags are converted to the same document as the file, so both have the same names, ranges and defaults.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use deltaq_reflect::settings::Reflect;
use toml::{Table, Value};

use super::{Fault, access, layers, range};

/// Why the sources can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is missing or unreadable.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A setting of the file is unknown, missing or wrong, or the file is not TOML.
    #[error("{}, line {line}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A flag is missing or wrong.
    #[error("{why}")]
    Flags {
        /// What is wrong.
        why: String,
    },
}

/// Reads the sources of a file.
///
/// # Errors
/// The file can't be read, or a setting is unknown, missing or out of range.
pub fn load(path: &Path) -> Result<Reflect, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    read(&text).map_err(|(line, why)| Error::File { path: path.to_owned(), line, why })
}

/// The settings of one source, from the document that its flags were converted to.
///
/// # Errors
/// A setting is missing or out of range. `flag_of` gives the flag of a setting.
pub fn from_flags(
    name: &str,
    source: Table,
    metrics_listen: Option<&str>,
    flag_of: impl Fn(&str) -> Option<String>,
) -> Result<Reflect, Error> {
    let mut sources = Table::new();
    sources.insert(name.to_owned(), Value::Table(source));
    let mut document = Table::new();
    document.insert("sources".to_owned(), Value::Table(sources));
    if let Some(address) = metrics_listen {
        document.insert("metrics_listen".to_owned(), Value::String(address.to_owned()));
    }
    let read = super::from_document(layers::json(Value::Table(document)));
    let checked = read.and_then(|reflect: Reflect| reflect.check().map(|()| reflect).map_err(of_rule));
    checked.map_err(|Fault { setting, is_unknown, why }| {
        let setting = setting.strip_prefix(&format!("sources.{name}.")).unwrap_or(&setting).to_owned();
        let flag = flag_of(&setting).unwrap_or(setting);
        let why = if is_unknown { "this kind of source does not have it".to_owned() } else { why };
        Error::Flags { why: format!("{flag}: {why}") }
    })
}

/// Reads the settings of a document. The error is a line and what is wrong there.
fn read(text: &str) -> Result<Reflect, (usize, String)> {
    access::table(text)?;
    let document = toml::Deserializer::parse(text)
        .map_err(|error| (access::line_of(text, &error), error.message().to_owned()))?;
    let reflect: Reflect = serde_path_to_error::deserialize(document).map_err(|error| {
        let fault = Fault::new(error.path(), error.inner().message());
        (access::line_of(text, error.inner()), explained(&fault))
    })?;
    let checked = reflect.check().map_err(of_rule);
    checked.map_err(|fault| (line_of_setting(text, &fault.setting), explained(&fault)))?;
    Ok(reflect)
}

/// The address in a flag that is used together with a file.
///
/// # Errors
/// It is not an address.
pub fn listen_address(text: &str) -> Result<Option<SocketAddr>, Error> {
    let read = range::optional_address(Value::String(text.to_owned()));
    read.map_err(|error: toml::de::Error| Error::Flags {
        why: format!("--metrics-listen: {}", error.message()),
    })
}

/// Describes what is wrong with a setting. For an unknown name, suggests the most similar name in its table.
fn explained(fault: &Fault) -> String {
    let Fault { setting, is_unknown, why } = fault;
    if !is_unknown {
        return format!("invalid setting `{setting}`: {why}");
    }
    let known: Vec<&str> = why
        .rsplit_once("expected ")
        .map(|(_, names)| names.split('`').skip(1).step_by(2).collect())
        .unwrap_or_default();
    let own = setting.rsplit('.').next().unwrap_or(setting);
    match layers::nearest(own, known.iter().copied()) {
        Some(nearest) => format!("unknown setting `{setting}`; did you mean `{nearest}`?"),
        None => format!("unknown setting `{setting}`; its table has {}", known.join(", ")),
    }
}

/// The line of the table of a source, for a rule between several of its settings.
fn line_of_setting(text: &str, setting: &str) -> usize {
    let table = setting.split('.').take(2).collect::<Vec<_>>().join(".");
    let is_table = |line: &str| {
        let line = line.trim().trim_start_matches('[').replace(['"', '\''], "");
        line.strip_prefix(&table).is_some_and(|rest| rest.starts_with([']', '.']))
    };
    text.lines().position(is_table).map_or(1, |line| line + 1)
}

/// A rule between settings that is broken.
fn of_rule(fault: deltaq_reflect::settings::Fault) -> Fault {
    Fault { setting: fault.setting, is_unknown: false, why: fault.why }
}
