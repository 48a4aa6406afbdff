//! `deltaq token`: creates a token, adds its entry to a token file, and prints the token. The token itself is not stored.
//!
//! The file is replaced as a whole. A reader sees either the old or the new file, and an interrupted run leaves the
//! old file.

pub mod entries;
mod file;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use deltaq_runtime::clock::Clock;
use serde::Serialize;

use self::file::LockedFile;
use crate::access::{self, Denied, digest_text};
use crate::config::access::{self as token_file, GrantEntry, TokenEntry, Verb};

/// Number of random bytes in a token. A random token can't be guessed, so an unsalted hash is enough.
const RANDOM_BYTES: usize = 32;

/// `deltaq token`: creates a token, or manages the entries of the file.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct Tokens {
    /// A command on existing entries.
    #[command(subcommand)]
    pub command: Option<Entries>,
    /// The new token.
    #[command(flatten)]
    pub create: Option<Token>,
}

const EXAMPLES: &str = "\
Examples:
  deltaq token shop-worker --verbs consume,read --queues 'erp-*' --file tokens.toml
  deltaq token rotate shop-worker --keep-old 1d --file tokens.toml
  deltaq token list --file tokens.toml";

/// A command on existing entries.
#[derive(Debug, Clone, Subcommand)]
pub enum Entries {
    /// List the tokens with their grants.
    #[command(after_help = "Example:\n  deltaq token list --file tokens.toml")]
    List(entries::List),
    /// Remove a token.
    #[command(after_help = "Example:\n  deltaq token revoke shop-worker --file tokens.toml")]
    Revoke(entries::Revoke),
    /// Replace a token with a new one that has the same name and grants, and print it.
    #[command(after_help = "Example:\n  deltaq token rotate shop-worker --keep-old 1d --file tokens.toml")]
    Rotate(entries::Rotate),
}

/// A new token.
#[derive(Debug, Clone, Args)]
pub struct Token {
    /// Name of the token in logs.
    pub name: String,
    /// Permitted verbs.
    #[arg(long, value_delimiter = ',', required = true)]
    pub verbs: Vec<Verb>,
    /// Queues that the verbs apply to; * matches any text.
    #[arg(long, value_delimiter = ',', required = true)]
    pub queues: Vec<String>,
    /// Sources in whose name the token may produce; * matches any text [default: any source and none].
    #[arg(long, value_delimiter = ',')]
    pub sources: Vec<String>,
    /// Expiry, such as 2027-01-31T00:00:00Z [default: never].
    #[arg(long)]
    pub expires: Option<String>,
    /// Maximum requests per second [default: no limit].
    #[arg(long)]
    pub rate: Option<u32>,
    /// Maximum requests in a burst [default: the requests of one second].
    #[arg(long, requires = "rate")]
    pub burst: Option<u32>,
    /// The token file, access.tokens_file of the server; it is created if it does not exist.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
}

/// Why no token was created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not a token file.
    #[error(transparent)]
    File(token_file::Error),
    /// The entry is invalid or conflicts with another entry.
    #[error(transparent)]
    Entry(access::Error),
    /// The operating system has no random bytes.
    #[error("can't get random bytes from the operating system: {0}")]
    Random(getrandom::Error),
    /// The entry can't be written as TOML.
    #[error("the entry can't be written")]
    Write {
        /// Why.
        source: toml::ser::Error,
    },
    /// The token would expire immediately.
    #[error("--expires {expires} is in the past")]
    Past {
        /// The given time.
        expires: String,
    },
    /// No entry has this name.
    #[error("the file has no token named {name}; deltaq token list shows all")]
    Unknown {
        /// The given name.
        name: String,
    },
    /// An entry has this name.
    #[error(
        "the file has a token named {name}; deltaq token rotate {name} gives it a new token, and revoke removes it"
    )]
    Exists {
        /// The given name.
        name: String,
    },
    /// The entry can't be changed as text.
    #[error("can't change the entry in {}: only entries of the form [[tokens]] can be changed; edit the file by hand", path.display())]
    Edit {
        /// The file.
        path: PathBuf,
    },
    /// Neither a command nor a name is given.
    #[error("give the name of a new token, or one of the commands list, revoke, rotate")]
    Nothing,
    /// An appended entry would make the file invalid.
    #[error(
        "can't add to {}: its tokens are one list (tokens = [...]), and TOML allows no [[tokens]] beside that. Write each \
         token as [[tokens]]",
        path.display()
    )]
    List {
        /// The file.
        path: PathBuf,
    },
    /// The file can't be read or replaced.
    #[error(transparent)]
    Replace(file::Error),
}

/// The text that is appended to the file.
#[derive(Serialize)]
struct Addition {
    tokens: [TokenEntry; 1],
}

impl Tokens {
    /// Runs the command, and returns the text to print.
    ///
    /// # Errors
    /// [`Error`]. After an error, the file is unchanged.
    pub fn run(&self) -> Result<String, Error> {
        match (&self.command, &self.create) {
            (Some(Entries::List(list)), _) => list.run(),
            (Some(Entries::Revoke(revoke)), _) => revoke.run(),
            (Some(Entries::Rotate(rotate)), _) => rotate.run(),
            (None, Some(create)) => create.run(),
            (None, None) => Err(Error::Nothing),
        }
    }
}

impl Token {
    /// Adds the entry, and returns the token.
    ///
    /// # Errors
    /// [`Error`]. After an error, the file is unchanged.
    pub fn run(&self) -> Result<String, Error> {
        let token = random()?;
        let entry = TokenEntry {
            name: self.name.clone(),
            sha256: digest_text(&token),
            old_sha256: None,
            old_expires: None,
            expires: self.expires.clone(),
            rate: self.rate,
            burst: self.burst,
            grants: vec![GrantEntry {
                verbs: self.verbs.clone(),
                queues: self.queues.clone(),
                sources: (!self.sources.is_empty()).then(|| self.sources.clone()),
            }],
        };
        let file = LockedFile::open(&self.file).map_err(Error::Replace)?;
        let before = token_file::parse(file.path(), file.text()).map_err(Error::File)?;
        if before.iter().any(|entry| entry.name == self.name) {
            return Err(Error::Exists { name: self.name.clone() });
        }
        let mut all = before;
        all.push(entry.clone());
        let tokens = access::Tokens::new(&all, &access::Tokens::default()).map_err(Error::Entry)?;
        if let (Err(Denied::Expired { .. }), Some(expires)) =
            (tokens.caller(&token, Clock::system().wall_us()), &self.expires)
        {
            return Err(Error::Past { expires: expires.clone() });
        }
        let addition =
            toml::to_string(&Addition { tokens: [entry] }).map_err(|source| Error::Write { source })?;
        let gap = if file.text().is_empty() { "" } else { "\n" };
        let text = format!("{}{gap}{addition}", file.text());
        if token_file::parse(file.path(), &text).ok() != Some(all) {
            return Err(Error::List { path: self.file.clone() });
        }
        file.replace(&text).map_err(Error::Replace)?;
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
    use std::path::Path;

    use super::*;
    use crate::config::Access;

    #[test]
    fn added_tokens_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        let make = |name: &str, verbs: &[Verb]| {
            let (verbs, queues) = (verbs.to_vec(), vec!["erp-*".to_owned()]);
            let name = name.to_owned();
            let sources = Vec::new();
            Token {
                name,
                verbs,
                queues,
                sources,
                expires: None,
                rate: Some(9),
                burst: None,
                file: file.clone(),
            }
            .run()
        };
        let first = make("erp", &[Verb::Produce]).unwrap();
        let second = make("worker", &[Verb::Consume, Verb::Read]).unwrap();
        assert_ne!(first, second);
        let before = std::fs::read_to_string(&file).unwrap();
        assert!(!before.contains(&first) && !before.contains(&second), "{before}");
        make("erp", &[Verb::Read]).unwrap_err();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), before, "a refused token leaves no trace");

        let settings = Access { tokens_file: Some(file.clone()), ..Access::default() };
        let tokens = access::Tokens::new(&settings.entries().unwrap(), &access::Tokens::default()).unwrap();
        assert!(tokens.caller(&first, 0).unwrap().may(Verb::Produce, "erp-prices"));
        assert!(!tokens.caller(&second, 0).unwrap().may(Verb::Produce, "erp-prices"));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    fn token(name: &str, file: &Path) -> Token {
        Token {
            name: name.to_owned(),
            verbs: vec![Verb::Read],
            queues: vec!["*".to_owned()],
            sources: Vec::new(),
            expires: None,
            rate: None,
            burst: None,
            file: file.to_owned(),
        }
    }

    fn names(file: &Path) -> Vec<String> {
        let settings = Access { tokens_file: Some(file.to_owned()), ..Access::default() };
        settings.entries().unwrap().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn a_file_that_an_entry_would_make_invalid_is_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        let digest = digest_text("secret");
        let text = format!(
            "tokens = [{{ name = \"a\", sha256 = \"{digest}\", grants = [{{ verbs = [\"read\"], queues = [\"*\"] }}] }}]\n"
        );
        std::fs::write(&file, &text).unwrap();
        let error = token("b", &file).run().unwrap_err().to_string();
        assert!(error.contains("[[tokens]]"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn an_expiry_in_the_past_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        let expires = Some("2020-01-01T00:00:00Z".to_owned());
        let error = Token { expires, ..token("a", &file) }.run().unwrap_err().to_string();
        assert!(error.contains("2020-01-01T00:00:00Z") && error.contains("past"), "{error}");
        assert!(!file.exists());
    }

    #[test]
    fn mode_and_links_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("tokens.toml"), folder.path().join("link"));
        std::os::unix::fs::symlink("tokens.toml", &link).unwrap();
        token("a", &link).run().unwrap();
        assert_eq!(names(&file), ["a"]);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        token("b", &link).run().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(&file), ["a", "b"]);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn concurrent_runs_lose_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = &file;
                scope.spawn(move || token(&format!("t{number}"), file).run().unwrap());
            }
        });
        let mut names = names(&file);
        names.sort_unstable();
        assert_eq!(names, (0..8).map(|number| format!("t{number}")).collect::<Vec<_>>());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }
}
