//! Who may do what: the section `[access]`, and the file of tokens. Plain values; `access` checks them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::Value;

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
        /// What is wrong there.
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
            let file: File = toml::from_str(&text).map_err(|error| {
                let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
                let line = before.matches('\n').count() + 1;
                Error::Parse { path: path.clone(), line, why: error.message().to_owned() }
            })?;
            entries.extend(file.tokens);
        }
        Ok(entries)
    }
}

/// Whether a value is a token of the settings.
pub(super) fn is_token(value: &Value) -> bool {
    TokenEntry::deserialize(value.clone()).is_ok()
}
