//! The secrets that the nodes of a cluster share: one secret, or two while one replaces the other.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use axum::http::HeaderValue;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::private_file::report_readable;

/// Minimum number of characters of a secret.
const LENGTH_MIN: usize = 32;
/// Maximum number of characters of a secret.
const LENGTH_MAX: usize = 256;
/// Maximum number of secrets of a node.
const COUNT_MAX: usize = 2;
/// Maximum size of the file in bytes: each secret with a line end of two characters.
const FILE_MAX: u64 = (COUNT_MAX * (LENGTH_MAX + 2)) as u64;
/// The permission bit that lets all users of the machine write a file.
const WRITABLE_BY_ALL: u32 = 0o002;

/// Why a secret can't be used. No error shows the secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is missing or unreadable.
    #[error("can't read the file of cluster.secret_file, {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Every user of the machine can change the file.
    #[error("all users of this machine can write {} (cluster.secret_file); remove that permission (chmod o-rwx)", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
    },
    /// The file has no secret, too many secrets, or a secret with a wrong length or wrong characters.
    #[error(
        "cluster.secret_file must have one secret, or two lines while one secret replaces another; a secret is {LENGTH_MIN} to {LENGTH_MAX} \
         visible ASCII characters, and `openssl rand -hex 32` makes one"
    )]
    Form,
}

/// The secrets that the nodes of a cluster share. Their debug text does not show them.
#[derive(Clone)]
pub(super) struct Secrets {
    /// The first secret, as the header of calls to other nodes. It is marked as sensitive.
    sent: HeaderValue,
    /// The digests of the secrets that are accepted in calls from other nodes.
    accepted: Vec<[u8; 32]>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Parses secrets from a text, one per line. Surrounding whitespace and empty lines are ignored.
    pub(super) fn new(text: &str) -> Result<Self, Error> {
        let secrets: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let is_secret = |text: &&str| {
            (LENGTH_MIN..=LENGTH_MAX).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let first = secrets.first().filter(|_| secrets.len() <= COUNT_MAX && secrets.iter().all(is_secret));
        let mut sent = HeaderValue::from_str(first.ok_or(Error::Form)?).map_err(|_| Error::Form)?;
        sent.set_sensitive(true);
        let accepted = secrets.iter().map(|secret| Sha256::digest(secret).into()).collect();
        Ok(Self { sent, accepted })
    }

    /// The secrets in a file.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.mode() & WRITABLE_BY_ALL != 0 {
            return Err(Error::Writable { path: path.to_owned() });
        }
        report_readable("cluster.secret_file", path, &metadata);
        let mut text = String::new();
        // One additional byte shows that the file is too long.
        let read = file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if read as u64 > FILE_MAX { Err(Error::Form) } else { Self::new(&text) }
    }

    /// The header that proves that a call comes from a node.
    pub(super) fn header(&self) -> HeaderValue {
        self.sent.clone()
    }

    /// The digests of the secrets with a salt. The first one is of the secret that is sent.
    pub(super) fn salted(&self, salt: &str) -> Vec<String> {
        let digest = |accepted: &[u8; 32]| {
            let digest = Sha256::new().chain_update(accepted).chain_update(salt).finalize();
            digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
        };
        self.accepted.iter().map(digest).collect()
    }

    /// Whether `given` is one of the secrets. The comparison takes the same time for every text.
    pub(super) fn have(&self, given: &HeaderValue) -> bool {
        let digest: [u8; 32] = Sha256::digest(given.as_bytes()).into();
        let is_equal = |found: Choice, accepted: &[u8; 32]| found | accepted.ct_eq(&digest);
        self.accepted.iter().fold(Choice::from(0), is_equal).into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const TEXT: &str = "0123456789abcdef0123456789abcdef";
    const NEXT: &str = "fedcba9876543210fedcba9876543210";

    fn have(secrets: &Secrets, text: &str) -> bool {
        secrets.have(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn a_secret_is_equal_to_its_own_text_only() {
        let secrets = Secrets::new(&format!(" {TEXT}\n")).unwrap();
        assert!(have(&secrets, TEXT));
        for other in ["", NEXT, "0123456789abcdef0123456789abcdee", "0123456789abcdef0123456789abcdef0"] {
            assert!(!have(&secrets, other), "{other}");
        }
        for text in ["", "short", &format!("{TEXT} {TEXT}"), &format!("{TEXT}\u{e9}"), &"a".repeat(257)] {
            assert!(matches!(Secrets::new(text), Err(Error::Form)), "{text}");
        }
    }

    #[test]
    fn the_first_of_two_secrets_is_sent_and_both_are_accepted() {
        let secrets = Secrets::new(&format!("{NEXT}\r\n\n{TEXT}\n")).unwrap();
        assert_eq!(secrets.header(), NEXT);
        assert!(have(&secrets, NEXT) && have(&secrets, TEXT) && !have(&secrets, &"x".repeat(32)));
        for text in [format!("{TEXT}\nshort"), format!("{TEXT}\n{NEXT}\n{TEXT}")] {
            assert!(matches!(Secrets::new(&text), Err(Error::Form)), "{text}");
        }
    }

    #[test]
    fn salted_digests_show_which_secrets_are_equal() {
        let both = Secrets::new(&format!("{NEXT}\n{TEXT}")).unwrap();
        let [next, text] = [NEXT, TEXT].map(|text| Secrets::new(text).unwrap().salted("a 1"));
        assert_eq!(both.salted("a 1"), [next, text].concat());
        let other = both.salted("a 2");
        assert!(both.salted("a 1").iter().all(|digest| !other.contains(digest)), "the salt counts");
        assert!(other.iter().all(|digest| digest.len() == 64 && !digest.contains(TEXT)));
    }

    #[test]
    fn no_debug_text_shows_the_secret() {
        let secrets = Secrets::new(TEXT).unwrap();
        let shown = format!("{secrets:?} {:?}", secrets.header());
        assert!(!shown.contains("0123"), "{shown}");
    }

    #[test]
    fn a_file_that_all_users_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(matches!(Secrets::read(&path), Err(Error::Read { .. })));
        fs::write(&path, format!("{TEXT}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(have(&Secrets::read(&path).unwrap(), TEXT));
        fs::set_permissions(&path, Permissions::from_mode(0o606)).unwrap();
        assert!(matches!(Secrets::read(&path), Err(Error::Writable { .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let [longest, too_long] =
            [0, 1].map(|more| format!("{}\n{}\n{}", "a".repeat(256), "b".repeat(256), " ".repeat(2 + more)));
        fs::write(&path, longest).unwrap();
        assert!(have(&Secrets::read(&path).unwrap(), &"b".repeat(256)));
        fs::write(&path, too_long).unwrap();
        assert!(matches!(Secrets::read(&path), Err(Error::Form)));
    }
}
