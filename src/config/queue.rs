//! What a queue is configured with unless it says otherwise, as plain serde values.
//!
//! These are the words of the file and of the API ("Config" in the HTTP contract), not the engine's types: durations
//! are still text. The ranges stand in `schema`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema::{self, Kind};

/// What a setting of a queue may be, for the description of the API.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bounds {
    /// A whole number from the first to the second.
    Whole(i64, i64),
    /// A number up to `max` and above `min`, or at it.
    Number {
        /// The least.
        min: f64,
        /// Whether the least itself is allowed.
        min_allowed: bool,
        /// The most.
        max: f64,
    },
    /// A duration from the first to the second.
    Duration(&'static str, &'static str),
    /// A list with so many entries.
    Length(usize, usize),
}

/// The bounds of a setting, by its path below `queue_defaults`, if it has any.
#[must_use]
pub fn bounds(path: &str) -> Option<Bounds> {
    match schema::find(&format!("queue_defaults.{path}"))?.kind {
        Kind::Integer(min, max) => Some(Bounds::Whole(min, max)),
        Kind::Number { min, min_allowed, max } => Some(Bounds::Number { min, min_allowed, max }),
        Kind::Duration(min, max) => Some(Bounds::Duration(min, max)),
        Kind::Pointers => Some(Bounds::Length(1, schema::KEY_PARTS_MAX)),
        _ => None,
    }
}

/// The settings of a queue: the section `[queue_defaults]`, and `config` of the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QueueConfig)]
pub struct QueueDefaults {
    /// What a pop hands out.
    pub mode: Mode,
    /// Where an object carries its key.
    pub key: Vec<KeyPart>,
    /// Whether acknowledged objects are kept.
    pub known_objects: bool,
    /// Whether Replace queues `Replaced`; else `Sync`.
    pub emit_replaced: bool,
    /// How long a lease lasts when the pop does not say; a duration.
    pub lease: String,
    /// Failures after which a key is parked; 0 is never.
    pub max_failures: u32,
    /// How long a failed key waits.
    pub rate_limiter: RateLimiter,
    /// How often all known objects are handed out again, a duration; unset is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_period: Option<String>,
    /// Most keys in a queue, known ones included.
    pub max_keys: usize,
    /// Longest object, in bytes of JSON.
    pub max_object_bytes: usize,
    /// Most deltas that wait for one key before the oldest are merged.
    pub max_deltas_per_key: usize,
    /// Most bytes of objects that wait for one key before the oldest are merged.
    pub max_bytes_per_key: usize,
    /// Replace refuses to delete more than this percentage of a source's keys; unset is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delete_percent: Option<f64>,
    /// Replace refuses to delete more than this many keys; unset is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_deletes: Option<u64>,
    /// How long events are kept.
    #[serde(default)]
    pub retention: Retention,
}

/// What a pop hands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All deltas since the last acknowledgement (DeltaFIFO).
    Delta,
    /// One delta, the newest (FIFO).
    Latest,
    /// The key alone (workqueue).
    Keys,
}

/// One part of a key: `"/name"`, or `{ pointer = "/namespace", optional = true }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum KeyPart {
    /// A pointer (RFC 6901) that must lead to a value.
    Required(String),
    /// A pointer that says whether it must.
    Detailed(DetailedKeyPart),
}

/// The long form of a [`KeyPart`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedKeyPart {
    /// Where in the object the part stands (RFC 6901).
    pub pointer: String,
    /// Whether a part that is absent or empty is skipped.
    #[serde(default)]
    pub optional: bool,
}

/// How long a failed key waits: the longest of the limiters that are set, capped by `max_wait`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimiter {
    /// The wait doubles with every failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_exponential: Option<ItemExponential>,
    /// A short wait for the first failures, a long one after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_fast_slow: Option<ItemFastSlow>,
    /// One token bucket for all keys of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// No wait is longer; a duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<String>,
    /// Up to this part of the wait is added, so that keys that failed together do not return together.
    pub jitter: f64,
}

/// `base` after the first failure, then twice as long each time, up to `max`; both are durations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemExponential {
    /// The first wait.
    pub base: String,
    /// The longest wait.
    pub max: String,
}

/// `fast` for the first `max_fast` failures, then `slow`; both are durations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemFastSlow {
    /// The wait after one of the first failures.
    pub fast: String,
    /// The wait after any later failure.
    pub slow: String,
    /// How many failures are the first.
    pub max_fast: u32,
}

/// A token bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Tokens that come back each second.
    pub qps: f64,
    /// Tokens it holds at most.
    pub burst: u32,
}

/// How long events are kept after they are no longer needed to restore a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Oldest event kept, a duration; unset leaves it to `bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<String>,
    /// Most bytes of events kept; unset is as many as the queue's state takes, and 64 MiB at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Default for QueueDefaults {
    fn default() -> Self {
        Self {
            mode: Mode::Delta,
            key: vec![KeyPart::Required("/key".to_owned())],
            known_objects: true,
            emit_replaced: true,
            lease: "30s".to_owned(),
            max_failures: 20,
            rate_limiter: RateLimiter::default(),
            resync_period: None,
            max_keys: 10_000_000,
            max_object_bytes: 1 << 20,
            max_deltas_per_key: 1_000,
            max_bytes_per_key: 16 << 20,
            max_delete_percent: None,
            max_deletes: None,
            retention: Retention::default(),
        }
    }
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self {
            item_exponential: Some(ItemExponential { base: "5ms".to_owned(), max: "1000s".to_owned() }),
            item_fast_slow: None,
            bucket: None,
            max_wait: None,
            jitter: 0.1,
        }
    }
}
