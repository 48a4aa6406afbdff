//! `deltaq token`: makes a token, adds its entry to a file of tokens, and prints the token itself, which is
//! kept nowhere.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::access::{self, Tokens, digest_text};
use crate::config::Access;
use crate::config::access::{self as words, GrantEntry, TokenEntry, Verb};

/// Random bytes of a token: nobody guesses them, so a plain hash hides them.
const RANDOM_BYTES: usize = 32;

/// `deltaq token`.
#[derive(Debug, Clone, Args)]
pub struct Token {
    /// What logs call whoever has it.
    pub name: String,
    /// What it may do.
    #[arg(long, value_delimiter = ',', required = true)]
    pub verbs: Vec<Verb>,
    /// To which queues; * stands for any text.
    #[arg(long, value_delimiter = ',', required = true)]
    pub queues: Vec<String>,
    /// Until when it is good, such as 2027-01-31T00:00:00Z [default: for good].
    #[arg(long)]
    pub expires: Option<String>,
    /// Requests a second that it may send [default: no bound].
    #[arg(long)]
    pub rate: Option<u32>,
    /// Requests that it may send at once [default: as many as in a second].
    #[arg(long, requires = "rate")]
    pub burst: Option<u32>,
    /// The file of tokens, access.tokens_file of the server; it is made if it is not there.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
}

/// Why there is no new token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is there, and not a file of tokens.
    #[error(transparent)]
    File(words::Error),
    /// The entry is not allowed, or does not go with the others.
    #[error(transparent)]
    Entry(access::Error),
    /// There is nothing random.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
    /// The entry can't be written as TOML.
    #[error("the entry can't be written")]
    Write {
        /// Why.
        source: toml::ser::Error,
    },
    /// The file can't be written.
    #[error("can't add to {}", path.display())]
    Append {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The file, as far as it is written here.
#[derive(Serialize)]
struct Addition {
    tokens: [TokenEntry; 1],
}

impl Token {
    /// Adds the entry, and answers the token.
    ///
    /// # Errors
    /// [`Error`]; then the file is as it was.
    pub fn run(&self) -> Result<String, Error> {
        let token = random()?;
        let entry = TokenEntry {
            name: self.name.clone(),
            sha256: digest_text(&token),
            expires: self.expires.clone(),
            rate: self.rate,
            burst: self.burst,
            grants: vec![GrantEntry { verbs: self.verbs.clone(), queues: self.queues.clone() }],
        };
        let there = self.file.exists().then(|| self.file.clone());
        let mut all = Access { tokens_file: there, ..Access::default() }.entries().map_err(Error::File)?;
        let is_first = all.is_empty();
        all.push(entry.clone());
        Tokens::new(&all, &Tokens::default()).map_err(Error::Entry)?;
        let text =
            toml::to_string(&Addition { tokens: [entry] }).map_err(|source| Error::Write { source })?;
        let text = if is_first { text } else { format!("\n{text}") };
        let append = |source| Error::Append { path: self.file.clone(), source };
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).mode(0o600).open(&self.file).map_err(append)?;
        file.write_all(text.as_bytes()).map_err(append)?;
        Ok(token)
    }
}

/// A new token.
fn random() -> Result<String, Error> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(bytes.iter().fold("dq_".to_owned(), |mut token, byte| {
        let _infallible = write!(token, "{byte:02x}");
        token
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn tokens_are_added_and_let_in() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        let make = |name: &str, verbs: &[Verb]| {
            let (verbs, queues) = (verbs.to_vec(), vec!["erp-*".to_owned()]);
            let name = name.to_owned();
            Token { name, verbs, queues, expires: None, rate: Some(9), burst: None, file: file.clone() }.run()
        };
        let first = make("erp", &[Verb::Produce]).unwrap();
        let second = make("worker", &[Verb::Consume, Verb::Read]).unwrap();
        assert_ne!(first, second);
        let before = std::fs::read_to_string(&file).unwrap();
        assert!(!before.contains(&first) && !before.contains(&second), "{before}");
        make("erp", &[Verb::Read]).unwrap_err();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), before, "a refused token leaves no trace");

        let settings = Access { tokens_file: Some(file.clone()), ..Access::default() };
        let tokens = Tokens::new(&settings.entries().unwrap(), &Tokens::default()).unwrap();
        assert!(tokens.caller(&first, 0).unwrap().may(Verb::Produce, "erp-prices"));
        assert!(!tokens.caller(&second, 0).unwrap().may(Verb::Produce, "erp-prices"));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
