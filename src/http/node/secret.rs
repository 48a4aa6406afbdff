//! The secret that the nodes of a cluster share.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use axum::http::HeaderValue;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Fewest characters of a secret.
const LENGTH_MIN: usize = 32;
/// Most characters of a secret.
const LENGTH_MAX: usize = 256;
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
    /// The secret has a wrong length or wrong characters.
    #[error(
        "the secret of cluster.secret_file is not {LENGTH_MIN} to {LENGTH_MAX} visible ASCII characters; `openssl rand -hex 32` makes one"
    )]
    Form,
}

/// The secret that the nodes of a cluster share. Its debug text does not show it.
#[derive(Clone)]
pub(in crate::http) struct Secret {
    /// The secret as a header. It is marked as sensitive.
    value: HeaderValue,
    digest: [u8; 32],
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// A secret. White space around it is ignored.
    pub(in crate::http) fn new(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let is_long = (LENGTH_MIN..=LENGTH_MAX).contains(&text.len());
        if !is_long || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Form);
        }
        let mut value = HeaderValue::from_str(text).map_err(|_| Error::Form)?;
        value.set_sensitive(true);
        Ok(Self { value, digest: Sha256::digest(text).into() })
    }

    /// The secret in a file.
    pub(in crate::http) fn read(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & WRITABLE_BY_ALL != 0 {
            return Err(Error::Writable { path: path.to_owned() });
        }
        let mut text = String::new();
        // One byte more than the longest secret with a line end shows that the file is too long.
        file.take(LENGTH_MAX as u64 + 3).read_to_string(&mut text).map_err(failed)?;
        Self::new(&text)
    }

    /// The header that proves that a call comes from a node.
    pub(in crate::http) fn header(&self) -> HeaderValue {
        self.value.clone()
    }

    /// Whether `given` is the secret. The comparison takes the same time for every text.
    pub(in crate::http) fn is(&self, given: &HeaderValue) -> bool {
        let digest: [u8; 32] = Sha256::digest(given.as_bytes()).into();
        self.digest.ct_eq(&digest).into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const TEXT: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_secret_is_equal_to_its_own_text_only() {
        let secret = Secret::new(&format!(" {TEXT}\n")).unwrap();
        assert!(secret.is(&HeaderValue::from_static(TEXT)));
        for other in ["", "0123456789abcdef0123456789abcdee", "0123456789abcdef0123456789abcdef0"] {
            assert!(!secret.is(&HeaderValue::from_str(other).unwrap()), "{other}");
        }
        for text in ["", "short", &format!("{TEXT} {TEXT}"), &format!("{TEXT}\u{e9}"), &"a".repeat(257)] {
            assert!(matches!(Secret::new(text), Err(Error::Form)), "{text}");
        }
    }

    #[test]
    fn no_debug_text_shows_the_secret() {
        let secret = Secret::new(TEXT).unwrap();
        let shown = format!("{secret:?} {:?}", secret.header());
        assert!(!shown.contains("0123"), "{shown}");
    }

    #[test]
    fn a_file_that_all_users_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(matches!(Secret::read(&path), Err(Error::Read { .. })));
        fs::write(&path, format!("{TEXT}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(Secret::read(&path).unwrap().is(&HeaderValue::from_static(TEXT)));
        fs::set_permissions(&path, Permissions::from_mode(0o606)).unwrap();
        assert!(matches!(Secret::read(&path), Err(Error::Writable { .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, format!("{}{TEXT}", " ".repeat(300))).unwrap();
        assert!(matches!(Secret::read(&path), Err(Error::Form)));
    }
}
