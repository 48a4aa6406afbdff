//! The settings of a queue: the section `[queue_defaults]`, and `config` of the HTTP API.
//!
//! These are plain serde values, not the engine's types; `http::wire::config` converts them. Replies of the API have the type
//! `deltaq_types::QueueConfig` of the same form.

use deltaq_engine::limits::KEY_POINTERS_MAX;
use deltaq_types::duration::DurationText;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::range::{self, CENTURY, HOURS_12, SEC, U32_MAX, US, WHOLE_MAX};
use super::{Fault, QUEUE_SECTION};

/// Part of a wait that is added at random, unless a setting says otherwise.
const JITTER: f64 = 0.1;

/// The settings of a queue: the section `[queue_defaults]`, and `config` of the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueDefaults {
    /// What a pop delivers.
    pub mode: Mode,
    /// Pointers to the values that make up the key of an object, joined by `/`.
    #[serde(deserialize_with = "key_parts")]
    pub key: Vec<KeyPart>,
    /// Pointer to the version of an object, which only grows per key; unset if objects have no version.
    #[serde(default, deserialize_with = "optional_pointer", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether the queue keeps the objects that consumers have acknowledged.
    pub known_objects: bool,
    /// Whether Replace queues deltas of type `Replaced`; otherwise `Sync`.
    pub emit_replaced: bool,
    /// Length of a lease unless the pop sets one; a duration from 1s to 12h.
    #[serde(deserialize_with = "range::span::<SEC, HOURS_12, _>")]
    pub lease: DurationText,
    /// Failures after which a key is parked; 0 never parks.
    #[serde(deserialize_with = "range::whole::<0, U32_MAX, _, _>")]
    pub max_failures: u32,
    /// The backoff of a failed key.
    #[serde(deserialize_with = "range::table")]
    pub rate_limiter: RateLimiter,
    /// Period after which all known objects are delivered again, a duration; unset never resyncs.
    #[serde(
        default,
        deserialize_with = "range::optional_span::<SEC, CENTURY, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub resync_period: Option<DurationText>,
    /// Most keys of the queue, known keys included.
    #[serde(deserialize_with = "range::whole::<1, 1_000_000_000, _, _>")]
    pub max_keys: usize,
    /// Longest object, in bytes of JSON.
    #[serde(deserialize_with = "range::whole::<2, { 1 << 30 }, _, _>")]
    pub max_object_bytes: usize,
    /// Most waiting deltas of a key; past it the oldest are merged, or in mode events more are refused.
    #[serde(deserialize_with = "range::whole::<2, 1_000_000_000, _, _>")]
    pub max_deltas_per_key: usize,
    /// Most bytes of waiting objects of a key; past it the oldest are merged.
    #[serde(deserialize_with = "range::whole::<1, { 1 << 40 }, _, _>")]
    pub max_bytes_per_key: usize,
    /// Replace refuses to delete more than this percentage of a source's keys; unset is no limit.
    #[serde(
        default,
        deserialize_with = "range::optional_number::<100, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_delete_percent: Option<f64>,
    /// Replace refuses to delete more keys than this; unset is no limit.
    #[serde(
        default,
        deserialize_with = "range::optional_whole::<0, WHOLE_MAX, _, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_deletes: Option<u64>,
    /// How long events are kept.
    #[serde(default, deserialize_with = "range::table")]
    pub retention: Retention,
}

/// What a pop delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All deltas since the last acknowledgement (DeltaFIFO).
    Delta,
    /// One delta, the newest (FIFO).
    Latest,
    /// The key alone (workqueue).
    Keys,
    /// One delta, the oldest. No delta is merged (RealFIFO).
    Events,
}

/// One part of a key: `"/name"`, or `{ pointer = "/namespace", optional = true }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeyPart {
    /// A JSON pointer (RFC 6901) to a required value.
    Required(String),
    /// A JSON pointer and whether its value is optional.
    Detailed(#[serde(deserialize_with = "range::table")] DetailedKeyPart),
}

/// The long form of a [`KeyPart`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetailedKeyPart {
    /// The JSON pointer (RFC 6901) to the value.
    pub pointer: String,
    /// Whether an absent or empty value is skipped; otherwise the object is refused.
    #[serde(default)]
    pub optional: bool,
}

/// The backoff of a failed key: the longest wait of the configured limiters, capped by `max_wait`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimiter {
    /// The wait doubles with every failure.
    #[serde(default, deserialize_with = "range::optional_table", skip_serializing_if = "Option::is_none")]
    pub item_exponential: Option<ItemExponential>,
    /// A short wait after the first failures, a long wait after later failures.
    #[serde(default, deserialize_with = "range::optional_table", skip_serializing_if = "Option::is_none")]
    pub item_fast_slow: Option<ItemFastSlow>,
    /// One token bucket for all keys of the queue.
    #[serde(default, deserialize_with = "range::optional_table", skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// Longest wait, a duration; unset is no limit.
    #[serde(
        default,
        deserialize_with = "range::optional_span::<0, CENTURY, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_wait: Option<DurationText>,
    /// Largest part of the wait that is added at random, so that keys that failed together do not return together.
    #[serde(default = "jitter", deserialize_with = "jitter_or_default")]
    pub jitter: f64,
}

/// `base` after the first failure, then twice as long each time, up to `max`; both are durations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemExponential {
    /// The first wait.
    #[serde(deserialize_with = "range::span::<US, CENTURY, _>")]
    pub base: DurationText,
    /// The longest wait.
    #[serde(deserialize_with = "range::span::<US, CENTURY, _>")]
    pub max: DurationText,
}

/// `fast` for the first `max_fast` failures, then `slow`; both are durations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemFastSlow {
    /// The wait after each of the first failures.
    #[serde(deserialize_with = "range::span::<0, CENTURY, _>")]
    pub fast: DurationText,
    /// The wait after each later failure.
    #[serde(deserialize_with = "range::span::<0, CENTURY, _>")]
    pub slow: DurationText,
    /// Number of failures that count as the first.
    #[serde(deserialize_with = "range::whole::<0, U32_MAX, _, _>")]
    pub max_fast: u32,
}

/// A token bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Tokens added per second.
    #[serde(deserialize_with = "range::positive::<1_000_000_000, _>")]
    pub qps: f64,
    /// Most tokens in the bucket.
    #[serde(deserialize_with = "range::whole::<1, U32_MAX, _, _>")]
    pub burst: u32,
}

/// How long events are kept once the queue no longer needs them to recover.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Age of the oldest event kept, a duration; unset leaves the limit to `bytes`.
    #[serde(
        default,
        deserialize_with = "range::optional_span::<SEC, CENTURY, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub age: Option<DurationText>,
    /// Most bytes of events kept; unset keeps as many as the queue's state takes, at least 64 MiB.
    #[serde(
        default,
        deserialize_with = "range::optional_whole::<0, WHOLE_MAX, _, _>",
        skip_serializing_if = "Option::is_none"
    )]
    pub bytes: Option<u64>,
}

impl QueueDefaults {
    /// The settings of a JSON document that has all required members.
    ///
    /// # Errors
    /// The first member that is unknown, missing or has a value out of range.
    pub fn from_json(document: serde_json::Value) -> Result<Self, Fault> {
        let settings: Self = serde_path_to_error::deserialize(document)
            .map_err(|error| Fault::new(error.path(), &error.inner().to_string()))?;
        settings.check()?;
        Ok(settings)
    }

    /// The rules between settings.
    pub(super) fn check(&self) -> Result<(), Fault> {
        match &self.rate_limiter.item_exponential {
            Some(limiter) if limiter.base > limiter.max => Err(Fault {
                setting: "rate_limiter.item_exponential.base".to_owned(),
                is_unknown: false,
                why: format!("{} is longer than item_exponential.max ({})", limiter.base, limiter.max),
            }),
            _ => Ok(()),
        }
    }
}

/// The setting of a queue whose name is nearest to `name`, such as `rate_limiter.jitter`.
#[must_use]
pub fn nearest_setting(name: &str) -> Option<String> {
    let prefix = format!("{QUEUE_SECTION}.");
    let known = super::layers::all_settings(QUEUE_SECTION);
    super::layers::nearest(name, known.iter().filter_map(|path| path.strip_prefix(&prefix)))
}

fn jitter() -> f64 {
    JITTER
}

/// A request may send null for a default.
fn jitter_or_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(range::optional_number::<1, _>(deserializer)?.unwrap_or(JITTER))
}

/// The pointers of a key.
fn key_parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<KeyPart>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Parts {
        One(String),
        Many(Vec<KeyPart>),
    }

    let expected = format!(
        r#"a list of 1 to {KEY_POINTERS_MAX} JSON pointers, each as "/name" or as a table of pointer and optional; a single "/name" needs no list"#
    );
    let read = |part: KeyPart| {
        let (KeyPart::Required(pointer) | KeyPart::Detailed(DetailedKeyPart { pointer, .. })) = &part;
        is_pointer(pointer).then_some(part)
    };
    let parts = match Parts::deserialize(deserializer) {
        Ok(Parts::One(pointer)) => Some(vec![KeyPart::Required(pointer)]),
        Ok(Parts::Many(parts)) => Some(parts),
        Err(_) => None,
    };
    parts
        .and_then(|parts| parts.into_iter().map(read).collect::<Option<Vec<_>>>())
        .filter(|parts| (1..=KEY_POINTERS_MAX).contains(&parts.len()))
        .ok_or_else(|| de::Error::custom(format!("invalid value, expected {expected}")))
}

/// A pointer, or nothing.
fn optional_pointer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let expected = || de::Error::custom(r#"invalid value, expected a JSON pointer such as "/updated_at""#);
    let text = Option::<String>::deserialize(deserializer).map_err(|_| expected())?;
    if text.as_deref().is_some_and(|text| !is_pointer(text)) { Err(expected()) } else { Ok(text) }
}

/// RFC 6901. The empty pointer is refused: a whole object is no key.
fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}
