//! `deltaq token`: makes a token, adds its entry to a file of tokens, and prints the token itself, which is
//! kept nowhere.
//!
//! The file is exchanged whole, so that whoever reads it sees it before or after, and a run that is ended half-way leaves it as
//! it was.

mod file;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use self::file::Held;
use crate::access::{self, Denied, Tokens, digest_text};
use crate::clock::Clock;
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
    /// It would never be good.
    #[error("--expires {expires} is in the past")]
    Past {
        /// What was given.
        expires: String,
    },
    /// What can be appended would spoil the file.
    #[error(
        "{} can't be added to: it has its tokens in one list (tokens = [...]), and an entry of its own can't stand beside that. \
         Write each of them as [[tokens]]",
        path.display()
    )]
    List {
        /// The file.
        path: PathBuf,
    },
    /// The file can't be read or exchanged.
    #[error(transparent)]
    Exchange(file::Error),
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
        let held = Held::open(&self.file).map_err(Error::Exchange)?;
        let before = words::parse(held.path(), held.text()).map_err(Error::File)?;
        let mut all = before;
        all.push(entry.clone());
        let tokens = Tokens::new(&all, &Tokens::default()).map_err(Error::Entry)?;
        if let (Err(Denied::Expired { .. }), Some(expires)) =
            (tokens.caller(&token, Clock::system().wall_us()), &self.expires)
        {
            return Err(Error::Past { expires: expires.clone() });
        }
        let addition =
            toml::to_string(&Addition { tokens: [entry] }).map_err(|source| Error::Write { source })?;
        let gap = if held.text().is_empty() { "" } else { "\n" };
        let text = format!("{}{gap}{addition}", held.text());
        if words::parse(held.path(), &text).ok() != Some(all) {
            return Err(Error::List { path: self.file.clone() });
        }
        held.exchange(&text).map_err(Error::Exchange)?;
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

    fn token(name: &str, file: &Path) -> Token {
        Token {
            name: name.to_owned(),
            verbs: vec![Verb::Read],
            queues: vec!["*".to_owned()],
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
    fn a_file_that_an_entry_would_spoil_stays_as_it_is() {
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
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_token_that_has_expired_already_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        let expires = Some("2020-01-01T00:00:00Z".to_owned());
        let error = Token { expires, ..token("a", &file) }.run().unwrap_err().to_string();
        assert!(error.contains("2020-01-01T00:00:00Z") && error.contains("past"), "{error}");
        assert!(!file.exists());
    }

    #[test]
    fn mode_and_links_stay_as_they_are() {
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
    fn many_at_once_lose_nothing() {
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
