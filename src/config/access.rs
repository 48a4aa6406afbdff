//! Who may do what: the section `[access]`, and the file of tokens. Plain values; `access` checks them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Value;

use super::document;

/// The section `[access]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// The file of the tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_file: Option<PathBuf>,
    /// Tokens, besides those of the file.
    #[serde(default)]
    pub tokens: Vec<TokenEntry>,
    /// Whether everybody may be let in, also over the network.
    pub insecure: bool,
}

/// A token, as the file of tokens has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// What the log calls whoever has it.
    pub name: String,
    /// The SHA-256 of the token, in hexadecimal digits.
    pub sha256: String,
    /// Until when it is good, in RFC 3339; absent is for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Requests a second; absent is without bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Requests at once; absent is as many as in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// What it may do.
    pub grants: Vec<GrantEntry>,
}

/// Verbs, on queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantEntry {
    /// What may be done.
    pub verbs: Vec<Verb>,
    /// Names of queues, in which `*` stands for any text.
    pub queues: Vec<String>,
}

/// What can be done to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Look at it.
    Read,
    /// Send objects to it.
    Produce,
    /// Pop from it, and settle.
    Consume,
    /// Configure, pause, purge, seed, delete it; redrive and discard what is parked.
    Admin,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 4] = [Self::Read, Self::Produce, Self::Consume, Self::Admin];

    /// The name in files, logs and answers.
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

/// The file of tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tokens: Vec<TokenEntry>,
}

/// Why a file of tokens can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not there or can't be read.
    #[error("can't read the file of tokens {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a list of tokens. What stands there is not told: it may be a token.
    #[error("the file of tokens {} is wrong at line {line}: {why}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where.
        line: usize,
        /// What is wrong there, in words that are the same whatever stands there.
        why: String,
    },
}

impl Access {
    /// The entries of the file as it is now, and those of the settings.
    ///
    /// # Errors
    /// A file that can't be read, or is no list of tokens.
    pub fn entries(&self) -> Result<Vec<TokenEntry>, Error> {
        let mut entries = self.tokens.clone();
        if let Some(path) = &self.tokens_file {
            let text =
                std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.clone(), source })?;
            entries.extend(parse(path, &text)?);
        }
        Ok(entries)
    }
}

/// The entries of a file of tokens with this text.
///
/// # Errors
/// [`Error::Parse`].
pub fn parse(path: &Path, text: &str) -> Result<Vec<TokenEntry>, Error> {
    let wrong = |line, why| Error::Parse { path: path.to_owned(), line, why };
    document::check(text).map_err(|fault| wrong(fault.line, fault.why))?;
    let file: Result<File, _> = toml::from_str(text);
    let file = file.map_err(|error| wrong(document::line_of(text, &error), kind(error.message())))?;
    Ok(file.tokens)
}

/// Whether a value is a token of the settings.
pub(super) fn is_token(value: &Value) -> bool {
    TokenEntry::deserialize(value.clone()).is_ok()
}

/// What is wrong with a value that should be a list of tokens.
pub(super) fn fault(value: &Value) -> String {
    let Value::Array(entries) = value else { return document::shape(value) };
    let faults = entries.iter().enumerate().filter_map(|(index, entry)| {
        let error = TokenEntry::deserialize(entry.clone()).err()?;
        let why = if entry.is_table() { kind(error.message()) } else { document::shape(entry) };
        Some(format!("a list whose entry {} is wrong ({why})", index + 1))
    });
    faults.into_iter().next().unwrap_or_else(|| document::shape(value))
}

/// What kind of error the library tells of: its own words may quote what stands there.
fn kind(message: &str) -> String {
    const FIELDS: [&str; 5] = ["name", "sha256", "grants", "verbs", "queues"];
    let missing = FIELDS.iter().find(|field| message == format!("missing field `{field}`"));
    if let Some(field) = missing {
        return format!("{field} is not there");
    }
    let kinds = [
        ("unknown field", "a name that no token and no grant has"),
        ("unknown variant", "a verb that is none of read, produce, consume, admin"),
        ("invalid type", "a value of the wrong type"),
        ("invalid value", "a number that is out of range"),
    ];
    let kind = kinds.iter().find(|(begin, _)| message.starts_with(begin));
    kind.map_or("it is no list of tokens", |(_, kind)| kind).to_owned()
}
