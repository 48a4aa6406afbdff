//! The secrets of the server's settings, which sign pushed requests and the deliveries of webhooks: the files, who may use which, and
//! the signatures of Standard Webhooks 1.0.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use sha2::Sha256;

use crate::access::Glob;
use crate::config;
use crate::private_file::report_readable;

/// The prefix of a secret of Standard Webhooks, before its key in base64.
const PREFIX: &str = "whsec_";
/// The prefix of a private key of Standard Webhooks, which signs with Ed25519.
const PRIVATE_PREFIX: &str = "whsk_";
/// The prefix of its public key.
const PUBLIC_PREFIX: &str = "whpk_";
/// The lengths of the key of a secret with the prefix, in bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The lengths of a secret without the prefix, in bytes.
const TEXT_BYTES: std::ops::RangeInclusive<usize> = 16..=2_048;
/// The length of the seed of a private key, and of a public key, in bytes.
const CURVE_BYTES: usize = 32;
/// Maximum number of lines: the secret, and one that it replaces or that replaces it.
const LINES_MAX: usize = 2;
/// Maximum size of a file in bytes.
const FILE_MAX: u64 = 5_000;
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

/// What a section uses its secrets for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// They sign the requests of queues that push.
    Push,
    /// They verify the deliveries of webhooks.
    Hooks,
}

/// The key of a secret.
#[derive(Debug)]
pub enum Key {
    /// Both sides have it: it makes an HMAC.
    Shared(Vec<u8>),
    /// The private key of Ed25519.
    Private(Box<Ed25519KeyPair>),
    /// The public key of Ed25519.
    Public(Vec<u8>),
}

/// The secrets of a section of the settings, by name.
#[derive(Debug, Default)]
pub struct Secrets(BTreeMap<String, Guarded>);

/// A secret, and the queues that may use it.
#[derive(Debug)]
struct Guarded {
    secret: Secret,
    queues: Vec<Glob>,
    /// Whether it may be sent in a header.
    headers: bool,
}

/// Why the secrets of a section can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// A pattern of queues is none.
    #[error("{setting}.queues has {text:?}, which is not {}", Glob::ALLOWED)]
    Queues {
        /// The setting.
        setting: String,
        /// The text.
        text: String,
    },
    /// A name of a secret has another form.
    #[error("{setting} has a wrong name: it may have up to 64 characters of a-z, 0-9, \"_\" and \"-\"")]
    Name {
        /// The setting.
        setting: String,
    },
    /// A secret would be sent in a header, which its section does not do or its form does not permit.
    #[error(
        "{setting}.headers is true, and only a secret of push that is neither whsec_ nor whsk_ may be sent in a header"
    )]
    Headers {
        /// The setting.
        setting: String,
    },
    /// A secret can't be used.
    #[error("can't use {setting}.file")]
    Secret {
        /// The setting.
        setting: String,
        /// The cause.
        source: Error,
    },
}

impl Secrets {
    /// Reads the files of the secrets of a section.
    ///
    /// # Errors
    /// [`Unusable`] names the setting.
    pub fn read(usage: Use, settings: &BTreeMap<String, config::SecretFile>) -> Result<Self, Unusable> {
        let section = match usage {
            Use::Push => "push",
            Use::Hooks => "hooks",
        };
        let mut secrets = BTreeMap::new();
        for (name, file) in settings {
            let setting = format!("{section}.secrets.{name}");
            if !deltaq_types::is_secret_name(name) {
                return Err(Unusable::Name { setting });
            }
            let glob = |text: &String| {
                Glob::parse(text)
                    .ok_or_else(|| Unusable::Queues { setting: setting.clone(), text: text.clone() })
            };
            let queues = file.queues.iter().map(glob).collect::<Result<_, _>>()?;
            let secret = Secret::read(usage, &format!("{setting}.file"), &file.file);
            let secret = secret.map_err(|source| Unusable::Secret { setting: setting.clone(), source })?;
            if file.headers && (usage != Use::Push || !secret.is_text()) {
                return Err(Unusable::Headers { setting });
            }
            secrets.insert(name.clone(), Guarded { secret, queues, headers: file.headers });
        }
        Ok(Self(secrets))
    }

    /// The secret of this name, if the queue may send it in a header.
    #[must_use]
    pub fn of_header(&self, queue: &str, name: &str) -> Option<&Secret> {
        self.of(queue, name).filter(|_| self.0.get(name).is_some_and(|of| of.headers))
    }

    /// The secret of this name, if the queue may use it. Whether another queue may use it is nothing for the caller.
    #[must_use]
    pub fn of(&self, queue: &str, name: &str) -> Option<&Secret> {
        let found = self.0.get(name).filter(|of| of.queues.iter().any(|glob| glob.matches(queue)));
        found.map(|of| &of.secret)
    }
}

/// A secret: one, or two while one replaces the other. The debug text does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    lines: Vec<String>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads a file. `setting` names it in the log.
    ///
    /// # Errors
    /// [`Error`] names the file.
    pub fn read(usage: Use, setting: &str, path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Read { path: path.to_owned(), source };
        // Opening a pipe would wait for its other end.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Error::Form { path: path.to_owned(), why: "it is not a regular file" });
        }
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.mode() & WRITABLE_BY_ALL != 0 {
            return Err(Error::Writable { path: path.to_owned() });
        }
        report_readable(setting, path, &metadata);
        let mut text = String::new();
        file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        Self::parse(usage, &text).map_err(|why| Error::Form { path: path.to_owned(), why })
    }

    /// Parses the text of a file: one or two lines, each a secret, with a line end at most behind the last one.
    fn parse(usage: Use, text: &str) -> Result<Self, &'static str> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        for line in &lines {
            match (key(line)?, usage) {
                (Key::Public(_), Use::Push) => {
                    return Err("it has a public key (whpk_), and a private one (whsk_) signs requests");
                }
                (Key::Private(_), Use::Hooks) => {
                    return Err(
                        "it has a private key (whsk_), and the public one (whpk_) verifies deliveries",
                    );
                }
                _ => {}
            }
        }
        if lines.len() > LINES_MAX {
            return Err(
                "it has more than two lines; each is a secret, and a second one is for the time of a rotation",
            );
        }
        Ok(Self { lines })
    }

    /// The lines of the file.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// The keys: what is behind a prefix in base64, or the text itself.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.lines.iter().filter_map(|line| key(line).ok())
    }

    /// Whether it has a public key, which only the scheme `standard` verifies with.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.lines.iter().any(|line| line.starts_with(PUBLIC_PREFIX))
    }

    /// Whether it is a text, and no key in base64.
    fn is_text(&self) -> bool {
        !self
            .lines
            .iter()
            .any(|line| [PREFIX, PRIVATE_PREFIX, PUBLIC_PREFIX].iter().any(|prefix| line.starts_with(prefix)))
    }

    /// The signatures of a request, one for each key, separated by spaces.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let head = format!("{id}.{timestamp}.");
        let sign = |key: Key| match key {
            Key::Shared(key) => {
                let mut mac = keyed(&key)?;
                mac.update(head.as_bytes());
                mac.update(body);
                Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
            }
            Key::Private(pair) => {
                let signature = pair.sign(&[head.as_bytes(), body].concat());
                Some(format!("v1a,{}", STANDARD.encode(signature)))
            }
            Key::Public(_) => None,
        };
        self.keys().filter_map(sign).collect::<Vec<_>>().join(" ")
    }
}

/// Whether the private key of this public key has signed the message.
#[must_use]
pub fn has_signed(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public_key).verify(message, signature).is_ok()
}

/// An HMAC with this key, which may have any length.
#[must_use]
pub fn keyed(key: &[u8]) -> Option<Hmac<Sha256>> {
    Hmac::new_from_slice(key).ok()
}

/// The key of a secret.
fn key(line: &str) -> Result<Key, &'static str> {
    let decoded = |encoded: &str| STANDARD.decode(encoded).unwrap_or_default();
    if let Some(encoded) = line.strip_prefix(PREFIX) {
        let key = Some(decoded(encoded)).filter(|key| KEY_BYTES.contains(&key.len()));
        return key.map(Key::Shared).ok_or("behind whsec_ a secret has 24 to 64 bytes in base64");
    }
    if let Some(encoded) = line.strip_prefix(PRIVATE_PREFIX) {
        // The public key may follow the seed.
        let bytes = decoded(encoded);
        let pair = match bytes.split_at_checked(CURVE_BYTES) {
            Some((seed, [])) => Ed25519KeyPair::from_seed_unchecked(seed).ok(),
            Some((seed, public)) => Ed25519KeyPair::from_seed_and_public_key(seed, public).ok(),
            None => None,
        };
        let pair = pair.ok_or("behind whsk_ a private key has the 32 bytes of a seed for Ed25519, or the seed and its public key, in base64")?;
        return Ok(Key::Private(Box::new(pair)));
    }
    if let Some(encoded) = line.strip_prefix(PUBLIC_PREFIX) {
        let key = Some(decoded(encoded)).filter(|key| key.len() == CURVE_BYTES);
        return key.map(Key::Public).ok_or("behind whpk_ a public key has 32 bytes in base64");
    }
    let is_visible = line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let is_text = TEXT_BYTES.contains(&line.len()) && is_visible && line.trim() == line;
    is_text.then(|| Key::Shared(line.as_bytes().to_vec())).ok_or(
        "a secret is whsec_ and 24 to 64 bytes in base64, or 16 to 2048 visible ASCII characters, with spaces only between them; \
         echo whsec_$(openssl rand -base64 32) makes one",
    )
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The example of the specification of Standard Webhooks.
    const SPECIFIED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// The first test of RFC 8032, section 7.1: a seed, and its public key.
    const PRIVATE: &str = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
    const PUBLIC: &str = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

    #[test]
    fn a_private_key_signs_and_its_public_key_verifies() {
        let public = STANDARD.decode(PUBLIC.trim_start_matches(PUBLIC_PREFIX)).unwrap();
        let seed = STANDARD.decode(PRIVATE.trim_start_matches(PRIVATE_PREFIX)).unwrap();
        let both = format!("whsk_{}", STANDARD.encode([seed.as_slice(), &public].concat()));
        for text in [PRIVATE, &both] {
            let signed = Secret::parse(Use::Push, text).unwrap().sign("a-1", 7, b"{}");
            let signature = STANDARD.decode(signed.strip_prefix("v1a,").unwrap()).unwrap();
            assert!(has_signed(&public, b"a-1.7.{}", &signature));
            assert!(!has_signed(&public, b"a-1.8.{}", &signature));
        }
        let wrong = format!("whsk_{}", STANDARD.encode([seed.as_slice(), &seed].concat()));
        assert!(Secret::parse(Use::Push, &wrong).is_err(), "the public key is another");
        let rolling = Secret::parse(Use::Push, &format!("{SPECIFIED}\n{PRIVATE}")).unwrap();
        let signed = rolling.sign("a-1", 7, b"{}");
        assert!(signed.starts_with("v1,") && signed.contains(" v1a,"), "{signed}");

        assert!(Secret::parse(Use::Hooks, PUBLIC).unwrap().is_public());
        assert!(Secret::parse(Use::Hooks, PRIVATE).unwrap_err().contains("whpk_"));
        assert!(Secret::parse(Use::Push, PUBLIC).unwrap_err().contains("whsk_"));
        assert!(Secret::parse(Use::Hooks, "whpk_AAAA").is_err());
    }

    #[test]
    fn the_signature_is_that_of_the_specification() {
        let secret = Secret::parse(Use::Push, SPECIFIED).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn the_official_verifier_accepts_each_of_two_signatures_and_no_other_body() {
        let other = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
        let secret = Secret::parse(Use::Push, &format!("{SPECIFIED}\n{other}\n")).unwrap();
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
        for good in [
            "0123456789abcdef",
            "a secret with spaces",
            PRIVATE,
            SPECIFIED,
            "0123456789abcdef\n",
            "0123456789abcdef\nfedcba9876543210",
        ] {
            assert!(Secret::parse(Use::Push, good).is_ok(), "{good}");
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
            PUBLIC,
            "0123456789abcde\tf",
            "0123456789abcde\u{e9}",
            "0123456789abcdef\n0123456789abcdef\n0123456789abcdef",
        ] {
            let why = Secret::parse(Use::Push, bad).unwrap_err();
            assert!(!why.contains("0123"), "{why}");
        }
        let longest = format!("whsec_{}", STANDARD.encode([7; 64]));
        assert!(Secret::parse(Use::Push, &longest).is_ok());
        assert!(Secret::parse(Use::Push, &format!("whsec_{}", STANDARD.encode([7; 65]))).is_err());
    }

    #[test]
    fn a_file_is_read_strictly_and_shown_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(matches!(Secret::read(Use::Push, "s", &path), Err(Error::Read { .. })));
        fs::write(&path, "0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let secret = Secret::read(Use::Push, "s", &path).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        fs::set_permissions(&path, Permissions::from_mode(0o606)).unwrap();
        assert!(matches!(Secret::read(Use::Push, "s", &path), Err(Error::Writable { .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "x".repeat(9_000)).unwrap();
        let error = Secret::read(Use::Push, "s", &path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && !error.contains("xxx"), "{error}");
    }
}
