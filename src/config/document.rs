//! What is wrong with a TOML text, told without what stands in it: that may be a secret in the wrong place.

use std::fmt;

use toml::de::{DeTable, Error};
use toml::{Table, Value};

use super::schema;

/// Where a text is no TOML, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The setting that the line sets, if it is one.
    pub setting: Option<&'static str>,
    /// What is wrong, in words that are the same whatever stands there.
    pub why: String,
}

/// The document that a text is.
pub(super) fn parse(text: &str) -> Result<Table, Fault> {
    check(text)?;
    text.parse().map_err(|error| Fault::new(text, &error, "a number that is too large".to_owned()))
}

/// Fails if the text is no TOML. The parser's own words are fixed; those of what builds values of it are not.
pub(super) fn check(text: &str) -> Result<(), Fault> {
    match DeTable::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(Fault::new(text, &error, error.message().to_owned())),
    }
}

/// The line that an error is about.
pub(super) fn line_of(text: &str, error: &Error) -> usize {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    before.matches('\n').count() + 1
}

/// What a value is, without what it says.
pub(super) fn shape(value: &Value) -> String {
    match value {
        Value::String(text) => format!("a text of {} bytes", text.len()),
        Value::Integer(_) | Value::Float(_) => "a number".to_owned(),
        Value::Boolean(_) => "true or false".to_owned(),
        Value::Datetime(_) => "a time".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

impl Fault {
    fn new(text: &str, error: &Error, why: String) -> Self {
        let line = line_of(text, error);
        Self { line, setting: setting_at(text, line), why }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(setting) = self.setting {
            write!(f, " ({setting})")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// The setting that this line sets. A name that is none is not told.
fn setting_at(text: &str, line: usize) -> Option<&'static str> {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let (last, before) = lines.split_last()?;
    let (name, _) = last.split_once('=')?;
    let mut headers = before.iter().rev().filter_map(|line| line.trim_start().strip_prefix('['));
    let section = headers.find_map(|rest| rest.split(']').next());
    let path = section.map_or_else(|| name.trim().to_owned(), |section| format!("{section}.{}", name.trim()));
    schema::find(&path).map(|setting| setting.path)
}
