//! Authorization by tokens, each with a name, an expiry and grants.
//!
//! A token is a secret of the caller; the server keeps only its SHA-256. A grant permits a set of verbs on the queues
//! whose names match a pattern. This module uses neither HTTP nor files: token entries and the current time are
//! passed in as arguments.
//!
//! It does not authenticate people: any client that has the token counts as the caller.

mod glob;
mod rate;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

pub use self::glob::Glob;
pub use self::rate::{Bucket, Rate};
use crate::config::access::{GrantEntry, TokenEntry, Verb};

/// Maximum number of tokens. Each request is compared with all of them.
pub const TOKENS_MAX: usize = 1_000;
/// Maximum length of a token in a request, in bytes.
pub const TOKEN_BYTES_MAX: usize = 512;

/// Why the entries of a token file are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There are too many tokens.
    #[error("there are {have} tokens, and at most {TOKENS_MAX} are allowed")]
    TooMany {
        /// The number of tokens.
        have: usize,
    },
    /// Two tokens have the same name.
    #[error("two tokens have the name {name:?}")]
    Name {
        /// The name.
        name: String,
    },
    /// Two tokens are the same secret.
    #[error("the tokens {left:?} and {right:?} are the same secret")]
    Secret {
        /// The name of the first.
        left: String,
        /// The name of the second.
        right: String,
    },
    /// An entry has an invalid value.
    #[error("token {token}: invalid {field}: {value}; expected {allowed}")]
    Value {
        /// The token's name, or its number if the name is invalid.
        token: String,
        /// The field.
        field: &'static str,
        /// The value. For text only its length, because the text may be a misplaced token.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
}

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No entry has this token.
    Unknown,
    /// The token has expired.
    Expired {
        /// The expiry, in microseconds since the Unix epoch.
        at_us: u64,
        /// The name of the token, for the log and the audit log; the client does not see it.
        name: Arc<str>,
    },
}

/// The tokens of a server, shared by all requests. A reload replaces them.
#[derive(Debug, Default)]
pub struct Access {
    /// Whether there are tokens, readable without the lock. Written under the lock of `tokens`.
    has_tokens: AtomicBool,
    tokens: RwLock<Arc<Tokens>>,
}

/// A set of tokens.
///
/// Invariant: names of `callers` and all digests are unique.
#[derive(Debug, Default)]
pub struct Tokens {
    callers: Vec<Arc<Caller>>,
    /// The callers by the tokens that were replaced and are still accepted.
    replaced: Vec<Arc<Caller>>,
}

/// The holder of a token.
#[derive(Debug)]
pub struct Caller {
    name: Arc<str>,
    digest: [u8; 32],
    expires_us: Option<u64>,
    grants: Vec<Grant>,
    rate: Option<Rate>,
    usage: Arc<Usage>,
}

/// The resources that a caller uses. A reload keeps them.
#[derive(Debug, Default)]
struct Usage {
    bucket: Bucket,
    in_flight: InFlight,
}

/// The requests of one caller that are in flight, by class, and their bytes.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Reads.
    pub reads: AtomicUsize,
    /// Writes.
    pub writes: AtomicUsize,
    /// Requests that settle leases.
    pub settles: AtomicUsize,
    /// Replaces and seeds.
    pub lists: AtomicUsize,
    /// Waiting requests.
    pub waits: AtomicUsize,
    /// Watches.
    pub watches: AtomicUsize,
    /// Scrapes of the metrics.
    pub scrapes: AtomicUsize,
    /// Bytes of request bodies.
    pub body_bytes: AtomicUsize,
    /// Bytes of replies that are not written yet.
    pub reply_bytes: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq)]
struct Grant {
    verbs: Vec<Verb>,
    queues: Vec<Glob>,
    /// The sources in whose name the grant permits produce calls; `None` for any source and none.
    sources: Option<Vec<Glob>>,
}

/// The names of the tokens that a reload has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenChanges {
    /// New tokens.
    pub added: Vec<String>,
    /// Tokens whose secret, expiry, rate or grants have changed.
    pub changed: Vec<String>,
    /// Tokens that are refused from now on.
    pub removed: Vec<String>,
}

impl Access {
    /// Authorizes callers that have one of `tokens`, or every caller if there are none.
    #[must_use]
    pub fn new(tokens: Tokens) -> Self {
        Self { has_tokens: AtomicBool::new(!tokens.is_empty()), tokens: RwLock::new(Arc::new(tokens)) }
    }

    /// The current tokens.
    #[must_use]
    pub fn tokens(&self) -> Arc<Tokens> {
        self.tokens.read().clone()
    }

    /// Whether there are no tokens, so that every caller may do everything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.has_tokens.load(Ordering::Acquire)
    }

    /// Replaces the tokens.
    pub fn replace(&self, tokens: Tokens) {
        let mut present = self.tokens.write();
        self.has_tokens.store(!tokens.is_empty(), Ordering::Release);
        *present = Arc::new(tokens);
    }
}

impl Tokens {
    /// Builds tokens from entries. A token keeps the resource usage of the token with the same name in `previous`, so
    /// a reload does not reset its limits.
    ///
    /// # Errors
    /// [`Error`] names the entry.
    pub fn new(entries: &[TokenEntry], previous: &Self) -> Result<Self, Error> {
        if entries.len() > TOKENS_MAX {
            return Err(Error::TooMany { have: entries.len() });
        }
        let usages: HashMap<&str, &Arc<Usage>> =
            previous.callers.iter().map(|caller| (caller.name(), &caller.usage)).collect();
        let mut callers: Vec<Arc<Caller>> = Vec::with_capacity(entries.len());
        let mut replaced: Vec<Arc<Caller>> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let usage = usages.get(entry.name.as_str()).map(|usage| Arc::clone(usage));
            let caller = Caller::new(index + 1, entry, usage.unwrap_or_default())?;
            if callers.iter().any(|other| other.name == caller.name) {
                return Err(Error::Name { name: entry.name.clone() });
            }
            let former = caller.replaced(entry)?;
            for digest in std::iter::once(&caller).chain(&former).map(|caller| caller.digest) {
                if let Some(other) = callers.iter().chain(&replaced).find(|other| other.digest == digest) {
                    let (left, right) = (other.name().to_owned(), entry.name.clone());
                    return Err(Error::Secret { left, right });
                }
            }
            callers.push(Arc::new(caller));
            replaced.extend(former.map(Arc::new));
        }
        Ok(Self { callers, replaced })
    }

    /// The names of the tokens that differ from `previous`.
    #[must_use]
    pub fn changes(&self, previous: &Self) -> TokenChanges {
        let in_both = |caller: &&Arc<Caller>| previous.named(caller.name()).is_some();
        let (kept, added): (Vec<_>, Vec<_>) = self.callers.iter().partition(in_both);
        let is_same = |caller: &Caller| {
            let former = |tokens: &Self| {
                let former = tokens.replaced.iter().find(|former| former.name() == caller.name());
                former.map(|former| (former.digest, former.expires_us))
            };
            former(self) == former(previous)
                && previous.named(caller.name()).is_some_and(|earlier| earlier.is_same(caller))
        };
        let changed = kept.into_iter().filter(|caller| !is_same(caller));
        let removed = previous.callers.iter().filter(|caller| self.named(caller.name()).is_none());
        let names = |caller: &Arc<Caller>| caller.name().to_owned();
        TokenChanges {
            added: added.into_iter().map(names).collect(),
            changed: changed.map(names).collect(),
            removed: removed.map(names).collect(),
        }
    }

    /// The callers by all tokens that are accepted.
    fn all(&self) -> impl Iterator<Item = &Arc<Caller>> {
        self.callers.iter().chain(&self.replaced)
    }

    fn named(&self, name: &str) -> Option<&Arc<Caller>> {
        self.callers.iter().find(|caller| caller.name() == name)
    }

    /// The names of the tokens that expire, with their expiry in microseconds since the Unix epoch.
    pub fn expiries(&self) -> impl Iterator<Item = (&str, u64)> {
        self.callers.iter().filter_map(|caller| Some((caller.name(), caller.expires_us?)))
    }

    /// Whether there are no tokens, so that every caller may do everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    /// The number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.callers.len()
    }

    /// The caller with this token at this wall time. The comparison takes the same time for every token.
    ///
    /// # Errors
    /// [`Denied`] for an unknown or expired token.
    pub fn caller(&self, token: &str, now_us: u64) -> Result<Arc<Caller>, Denied> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for caller in self.all() {
            if bool::from(caller.digest.ct_eq(&digest)) {
                found = Some(caller);
            }
        }
        valid(found, now_us)
    }

    /// The caller with the token of this name.
    ///
    /// # Errors
    /// Same as [`caller`](Self::caller).
    pub fn by_name(&self, name: &str, now_us: u64) -> Result<Arc<Caller>, Denied> {
        valid(self.named(name), now_us)
    }

    /// The current entry for the token of `earlier`. Its grants and expiry may have changed since then.
    ///
    /// # Errors
    /// Same as [`caller`](Self::caller).
    pub fn recheck(&self, earlier: &Caller, now_us: u64) -> Result<Arc<Caller>, Denied> {
        valid(self.all().find(|caller| caller.digest == earlier.digest), now_us)
    }
}

fn valid(found: Option<&Arc<Caller>>, now_us: u64) -> Result<Arc<Caller>, Denied> {
    let caller = found.ok_or(Denied::Unknown)?;
    match caller.expires_us {
        Some(at_us) if at_us <= now_us => Err(Denied::Expired { at_us, name: caller.name.clone() }),
        _ => Ok(Arc::clone(caller)),
    }
}

impl Caller {
    /// Whether a token of the same name has the same secret and the same rights.
    fn is_same(&self, other: &Self) -> bool {
        let rights = |caller: &Self| (caller.digest, caller.expires_us, caller.rate);
        rights(self) == rights(other) && self.grants == other.grants
    }

    fn new(number: usize, entry: &TokenEntry, usage: Arc<Usage>) -> Result<Self, Error> {
        let is_named = is_name(&entry.name);
        let wrong = |field, value: &str, allowed| Error::Value {
            token: if is_named { format!("{:?}", entry.name) } else { format!("number {number}") },
            field,
            value: value.to_owned(),
            allowed,
        };
        let shape = |text: &str| format!("a text of {} bytes", text.len());
        if !is_named {
            return Err(wrong("name", &shape(&entry.name), "1 to 64 letters, digits, '.', '_', '-'"));
        }
        let digest = digest_of(&entry.sha256).ok_or_else(|| {
            wrong("sha256", &shape(&entry.sha256), "64 hexadecimal digits, the SHA-256 of the token")
        })?;
        let expires_us = match &entry.expires {
            Some(text) => Some(instant_of(text).ok_or_else(|| {
                wrong("expires", &shape(text), "a time in UTC, such as \"2027-01-31T00:00:00Z\"")
            })?),
            None => None,
        };
        if entry.grants.is_empty() {
            return Err(wrong("grants", "[]", "at least one grant"));
        }
        if entry.grants.iter().any(|grant| grant.verbs.is_empty()) {
            return Err(wrong("verbs", "[]", "at least one verb in each grant"));
        }
        if entry.grants.iter().any(|grant| grant.queues.is_empty()) {
            return Err(wrong("queues", "[]", "at least one queue in each grant, or \"*\" for all"));
        }
        for grant in &entry.grants {
            let Some(sources) = &grant.sources else { continue };
            let unusable = |text: &&String| Glob::parse_of_source(text).is_none();
            if sources.is_empty() || sources.iter().any(|text| unusable(&text)) {
                return Err(wrong("sources", &format!("{} names", sources.len()), Glob::ALLOWED_OF_SOURCES));
            }
            if !grant.verbs.contains(&Verb::Produce) {
                return Err(wrong(
                    "sources",
                    "sources without produce",
                    "the verb produce, which alone names sources",
                ));
            }
        }
        let grants = entry.grants.iter().map(|grant| {
            Grant::new(grant).map_err(|(number, text)| {
                wrong("queues", &format!("{} (number {number})", shape(text)), Glob::ALLOWED)
            })
        });
        let rate = match (entry.rate, entry.burst) {
            (None, None) => None,
            (Some(0), _) => return Err(wrong("rate", "0", "a whole number from 1")),
            (_, Some(0)) => return Err(wrong("burst", "0", "a whole number from 1")),
            (None, Some(burst)) => {
                return Err(wrong("burst", &burst.to_string(), "a burst only together with a rate"));
            }
            (Some(rate), burst) => Some(Rate { each_second: rate, burst: burst.unwrap_or(rate) }),
        };
        let name = entry.name.as_str().into();
        Ok(Self { name, digest, expires_us, grants: grants.collect::<Result<_, _>>()?, rate, usage })
    }

    /// The same caller by the token that its present one has replaced, if there is one.
    fn replaced(&self, entry: &TokenEntry) -> Result<Option<Self>, Error> {
        let wrong = |field, allowed| Error::Value {
            token: format!("{:?}", entry.name),
            field,
            value: "another text".to_owned(),
            allowed,
        };
        let (sha256, expires) = match (&entry.old_sha256, &entry.old_expires) {
            (None, None) => return Ok(None),
            (Some(sha256), Some(expires)) => (sha256, expires),
            (None, Some(_)) => return Err(wrong("old_sha256", "old_sha256 together with old_expires")),
            (Some(_), None) => return Err(wrong("old_expires", "old_expires together with old_sha256")),
        };
        let digest = digest_of(sha256).ok_or_else(|| wrong("old_sha256", "64 hexadecimal digits"))?;
        let expires_us = instant_of(expires)
            .ok_or_else(|| wrong("old_expires", "a time in UTC, such as \"2027-01-31T00:00:00Z\""))?;
        let expires_us = Some(self.expires_us.map_or(expires_us, |own| own.min(expires_us)));
        let (name, grants) = (self.name.clone(), self.grants.clone());
        Ok(Some(Self { name, digest, expires_us, grants, rate: self.rate, usage: self.usage.clone() }))
    }

    /// The name of the token.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the token, shared.
    #[must_use]
    pub const fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether the token permits this verb on this queue.
    #[must_use]
    pub fn may(&self, verb: Verb, queue: &str) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.verbs.contains(&verb) && grant.queues.iter().any(|glob| glob.matches(queue)))
    }

    /// Whether the token permits a produce call on this queue in the name of this source, or without a source.
    #[must_use]
    pub fn may_produce(&self, queue: &str, source: Option<&str>) -> bool {
        self.grants.iter().filter(|grant| grant.verbs.contains(&Verb::Produce)).any(|grant| {
            let names_source = match (&grant.sources, source) {
                (None, _) => true,
                (Some(sources), Some(source)) => sources.iter().any(|glob| glob.matches(source)),
                (Some(_), None) => false,
            };
            names_source && grant.queues.iter().any(|glob| glob.matches(queue))
        })
    }

    /// Whether the token permits this verb on the queues of any pattern, even if no such queues exist.
    #[must_use]
    pub fn may_somewhere(&self, verb: Verb) -> bool {
        self.grants.iter().any(|grant| grant.verbs.contains(&verb) && !grant.queues.is_empty())
    }

    /// Whether the token permits this verb on every queue.
    #[must_use]
    pub fn may_everywhere(&self, verb: Verb) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.verbs.contains(&verb) && grant.queues.iter().any(Glob::matches_all))
    }

    /// When the token expires, in microseconds since the Unix epoch.
    #[must_use]
    pub fn expires_us(&self) -> Option<u64> {
        self.expires_us
    }

    /// What the token permits.
    pub fn grants(&self) -> impl Iterator<Item = GrantEntry> {
        let texts = |globs: &Vec<Glob>| globs.iter().map(ToString::to_string).collect();
        self.grants.iter().map(move |grant| GrantEntry {
            verbs: grant.verbs.clone(),
            queues: texts(&grant.queues),
            sources: grant.sources.as_ref().map(texts),
        })
    }

    /// Counts a request at this monotonic time. The error is the time until the next request is permitted.
    ///
    /// # Errors
    /// The rate of the token is exceeded.
    pub fn count(&self, now_us: u64) -> Result<(), Duration> {
        self.rate.map_or(Ok(()), |rate| self.usage.bucket.take(rate, now_us))
    }

    /// The limit on requests per second, if there is one.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// The requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> &InFlight {
        &self.usage.in_flight
    }
}

impl Grant {
    /// The error is the first invalid pattern and its number.
    fn new<'a>(entry: &'a GrantEntry) -> Result<Self, (usize, &'a str)> {
        let parse = |(number, text): (usize, &'a String)| Glob::parse(text).ok_or((number, text.as_str()));
        let queues = (1..).zip(&entry.queues).map(parse);
        let sources = entry
            .sources
            .as_ref()
            .map(|sources| sources.iter().filter_map(|text| Glob::parse_of_source(text)));
        Ok(Self {
            verbs: entry.verbs.clone(),
            queues: queues.collect::<Result<_, _>>()?,
            sources: sources.map(Iterator::collect),
        })
    }
}

/// The SHA-256 of a token in the form of an entry.
#[must_use]
pub fn digest_text(token: &str) -> String {
    hex(&Sha256::digest(token))
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

fn digest_of(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// A time in UTC, in microseconds since the Unix epoch.
fn instant_of(text: &str) -> Option<u64> {
    let instant = humantime::parse_rfc3339(text).ok()?;
    let since = instant.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok()
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}
