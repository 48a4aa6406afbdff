//! The settings of a queue.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RawObject;
use super::duration::DurationText;
use super::terms::{JsonPointer, Span};

/// The settings of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueConfig {
    /// What a pop delivers.
    pub mode: Mode,
    /// Pointers to the values that make up the key of an object, joined by `/`.
    #[schema(min_items = 1, max_items = 8)]
    pub key: Vec<KeyPart>,
    /// The pointer to the version of an object, a number or a string that only grows per key: an object that is not newer than
    /// the newest state of its key is ignored. Absent if objects have no version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<JsonPointer>)]
    pub version: Option<String>,
    /// Whether the queue stores the objects that consumers have acknowledged.
    pub known_objects: bool,
    /// Whether Replace queues deltas of type `Replaced`; otherwise `Sync`.
    pub emit_replaced: bool,
    /// The length of a lease, unless the pop sets one; from 1s to 12h.
    #[schema(value_type = Span, examples("30s"))]
    pub lease: DurationText,
    /// Failures after which a key is parked; 0 means never.
    #[schema(minimum = 0, maximum = 4_294_967_295_i64)]
    pub max_failures: u64,
    /// The wait of a key after a failure.
    pub rate_limiter: RateLimiter,
    /// The period after which all known objects are delivered again, at least 1s; absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub resync_period: Option<DurationText>,
    /// Most keys of the queue, known keys included.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub max_keys: u64,
    /// Longest object, in bytes of JSON.
    #[schema(minimum = 2, maximum = 1_073_741_824)]
    pub max_object_bytes: u64,
    /// Most waiting deltas of a key; beyond it the oldest are merged, or in mode events more are refused.
    #[schema(minimum = 2, maximum = 1_000_000_000)]
    pub max_deltas_per_key: u64,
    /// Most bytes of waiting objects of a key; beyond it the oldest deltas are merged, or in mode events more are
    /// refused.
    #[schema(minimum = 1, maximum = 1_099_511_627_776_i64)]
    pub max_bytes_per_key: u64,
    /// Replace refuses to delete more than this percentage of a source's keys; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub max_delete_percent: Option<f64>,
    /// Replace refuses to delete more keys than this; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 9_223_372_036_854_775_807_i64)]
    pub max_deletes: Option<u64>,
    /// How long events are kept.
    pub retention: Retention,
    /// The queue that this queue follows; absent for a queue with producers of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<Follow>,
    /// A JSON Schema that objects must satisfy, and whose defaults fill absent members; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<RawObject>,
    /// Pointers to the members that are removed from objects.
    #[schema(value_type = Vec<JsonPointer>, max_items = 100)]
    pub prune: Vec<String>,
    /// The indexes of the known objects: for each name, the pointer to its values; absent for none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, JsonPointer>)]
    pub indexes: BTreeMap<String, String>,
}

/// What a pop delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All deltas since the last ack (DeltaFIFO).
    Delta,
    /// One delta, the newest (FIFO).
    Latest,
    /// The key alone (workqueue).
    Keys,
    /// One delta, the oldest. No delta is merged (RealFIFO).
    Events,
}

/// One part of a key: `"/name"`, or `{"pointer":"/namespace","optional":true}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum KeyPart {
    /// A pointer to a required value.
    Required(String),
    /// A pointer to a value that may be absent.
    Detailed(DetailedKeyPart),
}

/// The long form of a [`KeyPart`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DetailedKeyPart {
    /// The pointer to the value.
    #[schema(value_type = JsonPointer)]
    pub pointer: String,
    /// Whether an absent or empty value is skipped; otherwise the object is refused.
    #[serde(default)]
    pub optional: bool,
}

/// The wait of a key after a failure: the longest wait of the configured limiters, at most `max_wait`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RateLimiter {
    /// A wait that doubles with every failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_exponential: Option<ItemExponential>,
    /// A short wait after the first failures, a long wait after later failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_fast_slow: Option<ItemFastSlow>,
    /// One token bucket for all keys of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// Longest wait; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub max_wait: Option<DurationText>,
    /// The largest part of the wait that is added at random, so that keys that failed together do not return together.
    #[serde(default = "jitter")]
    #[schema(minimum = 0, maximum = 1)]
    pub jitter: f64,
}

/// `base` after the first failure, then twice as long each time, up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemExponential {
    /// The first wait.
    #[schema(value_type = Span)]
    pub base: DurationText,
    /// The longest wait.
    #[schema(value_type = Span)]
    pub max: DurationText,
}

/// `fast` for the first `max_fast` failures, then `slow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemFastSlow {
    /// The wait after each of the first failures.
    #[schema(value_type = Span)]
    pub fast: DurationText,
    /// The wait after each later failure.
    #[schema(value_type = Span)]
    pub slow: DurationText,
    /// The number of failures that count as the first.
    #[schema(minimum = 0, maximum = 4_294_967_295_i64)]
    pub max_fast: u64,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Tokens that are added per second.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000_000)]
    pub qps: f64,
    /// Most tokens in the bucket.
    #[schema(minimum = 1, maximum = 4_294_967_295_i64)]
    pub burst: u64,
}

/// How long events are kept once the queue no longer needs them to recover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retention {
    /// The age of the oldest event kept, at least 1s; absent leaves the limit to `bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub age: Option<DurationText>,
    /// Most bytes of events kept; absent keeps as many as the queue's state takes, at least 64 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 9_223_372_036_854_775_807_i64)]
    pub bytes: Option<u64>,
}

/// What a queue takes from another queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// The name of the followed queue.
    pub queue: String,
    /// The followed view: `latest` (the default) has the newest objects, `known` those that consumers acknowledged.
    #[serde(default)]
    pub view: FollowedView,
    /// Only keys that begin with this text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// While this many keys are ready or delayed, the follower takes nothing more.
    #[serde(default = "max_waiting")]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub max_waiting: u64,
}

/// A view of a queue that can be followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FollowedView {
    /// The newest objects.
    #[default]
    Latest,
    /// The objects that consumers acknowledged.
    Known,
}

const fn max_waiting() -> u64 {
    100_000
}

fn jitter() -> f64 {
    0.1
}
