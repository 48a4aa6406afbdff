//! The section `[access]`, and the token file. These are plain values; `access` checks them.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use deltaq_types::GrantVerb;
use serde::{Deserialize, Serialize};
use toml::de::DeTable;
use toml::{Table, Value};

use super::{layers, range};

/// The section `[access]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// The token file.
    #[serde(default, deserialize_with = "range::path")]
    pub tokens_file: Option<PathBuf>,
    /// Tokens in addition to those in the file.
    #[serde(default)]
    pub tokens: Vec<TokenEntry>,
    /// Whether the server may listen without tokens on an address other than loopback.
    pub insecure: bool,
    /// The settings file, if it has the tokens in `tokens`. It is not a setting.
    #[serde(skip)]
    pub settings_file: Option<PathBuf>,
}

/// A token, as an entry of the token file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// The name of the token in the log and the audit log.
    pub name: String,
    /// The SHA-256 of the token, in hexadecimal digits.
    pub sha256: String,
    /// The SHA-256 of the token that this one has replaced. It is accepted until `old_expires`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<String>,
    /// When the replaced token expires, in RFC 3339 format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_expires: Option<String>,
    /// When the token expires, in RFC 3339 format. By default the token never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Requests per second. By default there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Maximum burst of requests. The default is the number of requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// What the token permits.
    pub grants: Vec<GrantEntry>,
}

/// Verbs that are permitted on some queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantEntry {
    /// The permitted verbs.
    pub verbs: Vec<Verb>,
    /// Names of queues, in which `*` matches any text.
    pub queues: Vec<String>,
    /// Names of sources, in which `*` matches any text: the grant permits produce calls only in the name of these sources.
    /// By default calls may name any source or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<String>>,
}

/// What a grant permits on its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Read the state of the queues.
    Read,
    /// Send objects to the queues.
    Produce,
    /// Pop from the queues, and settle leases.
    Consume,
    /// Configure, pause, purge, seed and delete the queues; redrive and discard parked keys.
    Admin,
}

impl From<Verb> for GrantVerb {
    fn from(verb: Verb) -> Self {
        match verb {
            Verb::Read => Self::Read,
            Verb::Produce => Self::Produce,
            Verb::Consume => Self::Consume,
            Verb::Admin => Self::Admin,
        }
    }
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 4] = [Self::Read, Self::Produce, Self::Consume, Self::Admin];

    /// The name in files, logs and responses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Admin => "admin",
        }
    }
}

/// The token file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tokens: Vec<TokenEntry>,
}

/// Why a token file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is missing or unreadable.
    #[error("can't read the token file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Every user of the machine can change the file.
    #[error("all users of this machine can write the token file {}; remove that permission (chmod o-rwx)", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a list of tokens. The error does not show the line, which may contain a token.
    #[error("invalid token file {} at line {line}: {why}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong, without any text of the file.
        why: String,
    },
}

impl Access {
    /// The entries from the settings and from the current content of the file.
    ///
    /// # Errors
    /// The file can't be read or is not a list of tokens.
    pub fn entries(&self) -> Result<Vec<TokenEntry>, Error> {
        let mut entries = match &self.settings_file {
            Some(path) => in_settings(path)?,
            None => self.tokens.clone(),
        };
        if let Some(path) = &self.tokens_file {
            entries.extend(parse(path, &read(path)?)?);
        }
        Ok(entries)
    }
}

/// The tokens in the section `[access]` of a settings file. The other settings are read only at the start.
fn in_settings(path: &Path) -> Result<Vec<TokenEntry>, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let invalid = |line, why| Error::Parse { path: path.to_owned(), line, why };
    let mut settings = table(&text).map_err(|(line, why)| invalid(line, why))?;
    let access = settings.remove("access").and_then(|access| match access {
        Value::Table(mut access) => access.remove("tokens"),
        _ => None,
    });
    let Some(tokens) = access else { return Ok(Vec::new()) };
    tokens.try_into().map_err(|error: toml::de::Error| invalid(1, layers::without_value(error.message())))
}

/// The text of a token file. The file grants access, so a file that other users can write is refused. A file that
/// they can only read is reported, but accepted: it has names, grants and hashes, but no secrets.
fn read(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let mut file = fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let for_others = if metadata.is_file() { metadata.mode() & 0o007 } else { 0 };
    if for_others & 0o002 != 0 {
        return Err(Error::Writable { path: path.to_owned() });
    }
    if for_others & 0o004 != 0 {
        let path = path.display();
        tracing::warn!(%path, "all users of this machine can read the token file; remove that permission (chmod o-rwx)");
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// The entries of a token file with this text.
///
/// # Errors
/// [`Error::Parse`].
pub fn parse(path: &Path, text: &str) -> Result<Vec<TokenEntry>, Error> {
    let invalid = |line, why| Error::Parse { path: path.to_owned(), line, why };
    table(text).map_err(|(line, why)| invalid(line, why))?;
    let file: Result<File, _> = toml::from_str(text);
    let file =
        file.map_err(|error| invalid(line_of(text, &error), layers::without_value(error.message())))?;
    Ok(file.tokens)
}

/// Parses TOML. The error contains the line number and a message, but not the text of the line, which may contain a
/// secret.
pub(super) fn table(text: &str) -> Result<Table, (usize, String)> {
    // The messages of the parser are fixed. Errors of the conversion to values may repeat a value.
    DeTable::parse(text).map_err(|error| (line_of(text, &error), error.message().to_owned()))?;
    text.parse().map_err(|error| (line_of(text, &error), "a number is too large".to_owned()))
}

/// The line of an error, from 1.
pub(super) fn line_of(text: &str, error: &toml::de::Error) -> usize {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    before.matches('\n').count() + 1
}
