//! The secrets that sign requests, and the signatures of Standard Webhooks 1.0.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::private_file::report_readable;

/// The prefix of a secret of Standard Webhooks, before its key in base64.
const PREFIX: &str = "whsec_";
/// The prefix of a key that signs with Ed25519, which this server does not do.
const ASYMMETRIC_PREFIX: &str = "whsk_";
/// The lengths of the key of a secret with the prefix, in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The lengths of a secret without the prefix, in bytes.
const TEXT_BYTES: std::ops::RangeInclusive<usize> = 16..=256;
/// Maximum number of lines: the secret, and one that it replaces or that replaces it.
const LINES_MAX: usize = 2;
/// Maximum size of a file in bytes.
const FILE_MAX: u64 = 1_024;
/// The permission bit that lets all users of the machine write a file.
const WRITABLE_BY_ALL: u32 = 0o002;

/// Why a secret can't be used. No error shows the secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is missing or unreadable.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Every user of the machine can change the file.
    #[error("all users of this machine can write {}; remove that permission (chmod o-rwx)", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
    },
    /// The file has another form.
    #[error("{}: {why}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
}

/// The keys of a secret: one, or two while one replaces the other. The debug text does not show them.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret {
    keys: Vec<Vec<u8>>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads a file. `setting` names it in the log.
    pub(super) fn read(setting: &str, path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.mode() & WRITABLE_BY_ALL != 0 {
            return Err(Error::Writable { path: path.to_owned() });
        }
        report_readable(setting, path, &metadata);
        let mut text = String::new();
        file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text).map_err(|why| Error::Form { path: path.to_owned(), why })
    }

    /// Parses the text of a file: one or two lines, each a secret, with a line end at most behind the last one.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let keys = text.split('\n').map(key).collect::<Result<Vec<_>, _>>()?;
        if keys.len() > LINES_MAX {
            return Err(
                "it has more than two lines; each is a secret, and a second one is for the time of a rotation",
            );
        }
        Ok(Self { keys })
    }

    /// The signatures of a request, one for each key, separated by spaces.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let sign = |key: &Vec<u8>| {
            // HMAC takes keys of any length.
            let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
        };
        self.keys.iter().filter_map(sign).collect::<Vec<_>>().join(" ")
    }
}

/// The key of a secret.
fn key(line: &str) -> Result<Vec<u8>, &'static str> {
    if line.starts_with(ASYMMETRIC_PREFIX) {
        return Err(
            "it has a key for Ed25519 (whsk_), and requests are signed with a shared secret (whsec_)",
        );
    }
    if let Some(encoded) = line.strip_prefix(PREFIX) {
        let key = STANDARD.decode(encoded).ok().filter(|key| KEY_BYTES.contains(&key.len()));
        return key.ok_or("behind whsec_ a secret has 24 to 64 bytes in base64");
    }
    let is_text = TEXT_BYTES.contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_graphic());
    is_text.then(|| line.as_bytes().to_vec()).ok_or(
        "a secret is whsec_ and 24 to 64 bytes in base64, or 16 to 256 visible ASCII characters; \
         echo whsec_$(openssl rand -base64 32) makes one",
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The example of the specification of Standard Webhooks.
    const SPECIFIED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn the_signature_is_that_of_the_specification() {
        let secret = Secret::parse(SPECIFIED).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn the_official_verifier_accepts_each_of_two_signatures_and_no_other_body() {
        let other = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
        let secret = Secret::parse(&format!("{SPECIFIED}\n{other}\n")).unwrap();
        let timestamp = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let signed = secret.sign("a-1", timestamp, b"{\"a\":1}");
        let mut headers = axum::http::HeaderMap::new();
        headers.insert("webhook-id", "a-1".parse().unwrap());
        headers.insert("webhook-timestamp", timestamp.to_string().parse().unwrap());
        headers.insert("webhook-signature", signed.parse().unwrap());
        for text in [SPECIFIED, other] {
            let verifier = standardwebhooks::Webhook::new(text).unwrap();
            assert!(verifier.verify(b"{\"a\":1}", &headers).is_ok(), "{text}");
            assert!(verifier.verify(b"{\"a\":2}", &headers).is_err(), "{text}");
        }
        headers.insert("webhook-id", "a-2".parse().unwrap());
        assert!(standardwebhooks::Webhook::new(other).unwrap().verify(b"{\"a\":1}", &headers).is_err());
    }

    #[test]
    fn a_secret_has_one_form() {
        for good in
            ["0123456789abcdef", SPECIFIED, "0123456789abcdef\n", "0123456789abcdef\nfedcba9876543210"]
        {
            assert!(Secret::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "\n",
            "short",
            " 0123456789abcdef",
            "0123456789abcdef ",
            "0123456789abcdef\r\n",
            "0123456789abcdef\n\n",
            "0123456789abcdef\n\nfedcba9876543210",
            "whsec_",
            "whsec_AAAA",
            "whsec_!!!!",
            "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "0123456789abcde\u{e9}",
            "0123456789abcdef\n0123456789abcdef\n0123456789abcdef",
        ] {
            let why = Secret::parse(bad).unwrap_err();
            assert!(!why.contains("0123"), "{why}");
        }
        let longest = format!("whsec_{}", STANDARD.encode([7; 64]));
        assert!(Secret::parse(&longest).is_ok());
        assert!(Secret::parse(&format!("whsec_{}", STANDARD.encode([7; 65]))).is_err());
    }

    #[test]
    fn a_file_is_read_strictly_and_shown_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(matches!(Secret::read("s", &path), Err(Error::Read { .. })));
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let secret = Secret::read("s", &path).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        fs::set_permissions(&path, Permissions::from_mode(0o606)).unwrap();
        assert!(matches!(Secret::read("s", &path), Err(Error::Writable { .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "x".repeat(5_000)).unwrap();
        let error = Secret::read("s", &path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && !error.contains("xxx"), "{error}");
    }
}
