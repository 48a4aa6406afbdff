//! The settings of a queue: one document on the wire, in `[queue_defaults]`, in the journal and on the command line. The engine
//! compiles it.
//!
//! A range is written once, at its field. Unknown members are ignored, so that a client can read the reply of a newer server. Where
//! people write the document, [`QueueSettings::unknown_name`] finds a wrong name.

mod names;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;
use utoipa::ToSchema;

use super::RawObject;
use super::cloud_events::CloudEvents;
use super::duration::DurationText;
use super::groups::Groups;
use super::hook::Hook;
use super::kubernetes::Kubernetes;
use super::name::Name;
use super::order::Order;
use super::push::Push;
use super::range::{self, CENTURY, DAYS_366, HOURS_12, SEC, U32_MAX, US, WHOLE_MAX};
use super::strict::flag;
use super::terms::{JsonPointer, KEY_BYTES_MAX, KEY_POINTERS_MAX, Span};

/// What a PUT of settings would make of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SettingsPlan {
    /// The present settings; null if there is no queue of this name.
    #[schema(required = true)]
    pub current: Option<QueueSettings>,
    /// The entity tag of the present settings, for `if-match`; null if there is no queue of this name.
    #[schema(required = true)]
    pub etag: Option<String>,
    /// The settings after the PUT.
    pub planned: QueueSettings,
}

/// The settings of a queue. A reply has all members, null where a setting is not set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueSettings {
    /// What a pop delivers.
    pub mode: Mode,
    /// Pointers to the values that make up the key of an object, joined by `/`. With several pointers, `%` and `/` inside
    /// a value become `%25` and `%2F`.
    #[serde(deserialize_with = "key_parts")]
    #[schema(min_items = 1, max_items = 8)]
    pub key: Vec<KeyPart>,
    /// The pointer to the version of an object, a number or a string that only increases for each key: an object that is not newer
    /// than the newest state of its key is ignored. Null if objects have no version.
    #[serde(default, deserialize_with = "optional_pointer")]
    #[schema(required = true, value_type = Option<JsonPointer>)]
    pub version: Option<String>,
    /// What becomes of an object whose version is equal to that of the newest state of its key; null for `apply` in a queue with a
    /// `hook`, otherwise `stale`.
    #[serde(default)]
    #[schema(required = true)]
    pub version_ties: Option<VersionTies>,
    /// Whether the queue stores the objects that consumers have acknowledged.
    pub known_objects: bool,
    /// Whether Replace queues deltas of type `Replaced`; otherwise `Sync`.
    pub emit_replaced: bool,
    /// The length of a lease, unless the pop sets one; from 1s to 12h.
    #[serde(deserialize_with = "range::span::<SEC, HOURS_12, _>")]
    #[schema(value_type = Span, examples("30s"))]
    pub lease: DurationText,
    /// Failures after which a key is parked; 0 means never.
    #[serde(deserialize_with = "range::whole::<0, U32_MAX, _, _>")]
    #[schema(value_type = u64, minimum = 0, maximum = 4_294_967_295_i64)]
    pub max_failures: u32,
    /// The wait of a key after a failure.
    #[serde(deserialize_with = "range::table")]
    pub rate_limiter: RateLimiter,
    /// Changed keys wait until they are quiet; null for no such wait.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub debounce: Option<Debounce>,
    /// The order of ready keys; null for the order in which they became ready.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub order: Option<Order>,
    /// The groups of keys that take turns; null if all keys are in one order.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub groups: Option<Groups>,
    /// Maximum number of keys that workers hold at once; null for no limit.
    #[serde(default, deserialize_with = "range::optional_whole::<1, 1_000_000_000, _, _>")]
    #[schema(required = true, minimum = 1, maximum = 1_000_000_000)]
    pub max_leased: Option<u64>,
    /// How many keys are delivered per second; null for no limit.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub rate: Option<DeliveryRate>,
    /// The interval at which all known objects are delivered again, at least 1s; null for never.
    #[serde(default, deserialize_with = "range::optional_span::<SEC, CENTURY, _>")]
    #[schema(required = true, value_type = Option<Span>)]
    pub resync_period: Option<DurationText>,
    /// Maximum number of keys in the queue, including known keys.
    #[serde(deserialize_with = "range::whole::<1, 1_000_000_000, _, _>")]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub max_keys: u64,
    /// Maximum size of an object, in bytes of JSON.
    #[serde(deserialize_with = "range::whole::<2, { 1 << 30 }, _, _>")]
    #[schema(minimum = 2, maximum = 1_073_741_824)]
    pub max_object_bytes: u64,
    /// Maximum number of waiting deltas of a key. Above it, the oldest deltas are merged; in mode events, further deltas are refused.
    #[serde(deserialize_with = "range::whole::<2, 1_000_000_000, _, _>")]
    #[schema(minimum = 2, maximum = 1_000_000_000)]
    pub max_deltas_per_key: u64,
    /// Maximum bytes of waiting objects of a key. Above it, the oldest deltas are merged; in mode events, further deltas are
    /// refused.
    #[serde(deserialize_with = "range::whole::<1, { 1 << 40 }, _, _>")]
    #[schema(minimum = 1, maximum = 1_099_511_627_776_i64)]
    pub max_bytes_per_key: u64,
    /// A Replace is refused if it would delete more than this percentage of its source's keys, and more than `max_deletes` keys. If only
    /// one of the two is set, the other is 0; if both are null, the default limit applies.
    #[serde(
        default,
        serialize_with = "range::write_optional_number",
        deserialize_with = "range::optional_number::<100, _>"
    )]
    #[schema(required = true, minimum = 0, maximum = 100)]
    pub max_delete_percent: Option<f64>,
    /// A Replace is refused if it would delete more keys than this, and more than `max_delete_percent` of its source's keys. If only one
    /// of the two is set, the other is 0; if both are null, the default limit applies.
    #[serde(default, deserialize_with = "range::optional_whole::<0, WHOLE_MAX, _, _>")]
    #[schema(required = true, minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub max_deletes: Option<u64>,
    /// How long events are kept.
    #[serde(default, deserialize_with = "range::table")]
    #[schema(required = true)]
    pub retention: Retention,
    /// The queue that this queue follows; null for a queue with its own producers.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub follow: Option<Follow>,
    /// The endpoint that gets the keys as requests; null for a queue that workers pop from.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub push: Option<Push>,
    /// The webhooks that the queue takes as changes; null for none.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub hook: Option<Hook>,
    /// How CloudEvents become changes; null for the default.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub cloudevents: Option<CloudEvents>,
    /// The resource of the Kubernetes API that the queue is; null for none.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub kubernetes: Option<Kubernetes>,
    /// The `owner` of the file with which `deltaq apply` created the queue; null for none. A PUT that leaves it out keeps it. The queue
    /// does not depend on it.
    #[serde(default, deserialize_with = "owner")]
    #[schema(required = true, pattern = "^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$", examples("shop"))]
    pub owner: Option<String>,
    /// A JSON Schema that objects must satisfy, and whose defaults fill absent members; null for none.
    #[serde(default)]
    #[schema(required = true)]
    pub schema: Option<RawObject>,
    /// Pointers to the members that are removed from objects.
    #[serde(default, deserialize_with = "pointers")]
    #[schema(required = true, value_type = Vec<JsonPointer>, max_items = 100)]
    pub prune: Vec<String>,
    /// Pointers to the members of objects whose change alone queues nothing.
    #[serde(default, deserialize_with = "pointers")]
    #[schema(required = true, value_type = Vec<JsonPointer>, max_items = 100)]
    pub ignore: Vec<String>,
    /// The indexes of the known objects: for each name, the pointer to its values.
    #[serde(default, deserialize_with = "indexes")]
    #[schema(required = true, value_type = BTreeMap<String, JsonPointer>)]
    pub indexes: BTreeMap<String, String>,
    /// How differences are computed.
    #[serde(default, deserialize_with = "range::table")]
    #[schema(required = true)]
    pub diff: DiffSettings,
}

/// How the difference of two objects is computed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffSettings {
    /// Arrays whose elements are compared one by one: for the pointer to each array, the pointer within an element to the string
    /// or number that identifies it.
    #[serde(default, deserialize_with = "array_keys")]
    #[schema(required = true, value_type = BTreeMap<String, JsonPointer>)]
    pub array_keys: BTreeMap<String, String>,
}

/// What becomes of an object whose version is equal to that of the newest state of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VersionTies {
    /// It is stale.
    Stale,
    /// It is applied if its text differs, and a Delete is always applied: vendors stamp their objects with whole seconds.
    Apply,
}

/// What a pop delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All deltas since the last ack (DeltaFIFO).
    Delta,
    /// Only the newest delta (FIFO).
    Latest,
    /// Only the key (workqueue).
    Keys,
    /// Only the oldest delta. Deltas are never merged (RealFIFO).
    Events,
}

/// One part of a key: `"/name"`, or `{"pointer":"/namespace","optional":true}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum KeyPart {
    /// A pointer to a required value.
    Required(String),
    /// A pointer to a value that may be absent.
    Detailed(#[serde(deserialize_with = "range::table")] DetailedKeyPart),
}

/// The long form of a part of the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DetailedKeyPart {
    /// The pointer to the value.
    #[schema(value_type = JsonPointer)]
    pub pointer: String,
    /// Whether an absent or empty value is skipped; otherwise the object is refused.
    #[serde(default, deserialize_with = "flag")]
    pub optional: bool,
}

/// The wait of a key after a failure: the longest wait of the limiters that are not null, at most `max_wait`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RateLimiter {
    /// A wait that doubles with every failure.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub item_exponential: Option<ItemExponential>,
    /// A short wait after the first failures, a long wait after later failures.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub item_fast_slow: Option<ItemFastSlow>,
    /// One token bucket for all keys of the queue.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub bucket: Option<Bucket>,
    /// Maximum wait; null for no limit.
    #[serde(default, deserialize_with = "range::optional_span::<0, CENTURY, _>")]
    #[schema(required = true, value_type = Option<Span>)]
    pub max_wait: Option<DurationText>,
    /// Maximum random addition, as a fraction of the wait, so that keys that failed together do not return together.
    #[serde(
        default = "jitter",
        serialize_with = "range::write_number",
        deserialize_with = "range::number::<1, _>"
    )]
    #[schema(required = true, minimum = 0, maximum = 1)]
    pub jitter: f64,
}

/// `base` after the first failure, then twice as long each time, up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemExponential {
    /// The first wait.
    #[serde(deserialize_with = "range::span::<US, CENTURY, _>")]
    #[schema(value_type = Span)]
    pub base: DurationText,
    /// The longest wait.
    #[serde(deserialize_with = "range::span::<US, CENTURY, _>")]
    #[schema(value_type = Span)]
    pub max: DurationText,
}

/// `fast` for the first `max_fast` failures, then `slow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemFastSlow {
    /// The wait after each of the first failures.
    #[serde(deserialize_with = "range::span::<0, CENTURY, _>")]
    #[schema(value_type = Span)]
    pub fast: DurationText,
    /// The wait after each later failure.
    #[serde(deserialize_with = "range::span::<0, CENTURY, _>")]
    #[schema(value_type = Span)]
    pub slow: DurationText,
    /// The number of failures that get the wait `fast`.
    #[serde(deserialize_with = "range::whole::<0, U32_MAX, _, _>")]
    #[schema(value_type = u64, minimum = 0, maximum = 4_294_967_295_i64)]
    pub max_fast: u32,
}

/// How long a changed key waits for further changes before it is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Debounce {
    /// The time without a change after which a key is delivered; 0s for no wait.
    #[serde(deserialize_with = "range::span::<0, DAYS_366, _>")]
    #[schema(value_type = Span, examples("2s"))]
    pub quiet: DurationText,
    /// The longest wait of a change, at least `quiet`; null for 10 times `quiet`, at most 366d.
    #[serde(default, deserialize_with = "range::optional_span::<0, DAYS_366, _>")]
    #[schema(required = true, value_type = Option<Span>)]
    pub max_wait: Option<DurationText>,
    /// Whether a Delete waits.
    #[serde(default)]
    #[schema(required = true)]
    pub deletes: DebouncedDeletes,
    /// Whether the changes of a Replace wait.
    #[serde(default, deserialize_with = "flag")]
    #[schema(required = true)]
    pub lists: bool,
}

/// Whether a Delete waits until its key is quiet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DebouncedDeletes {
    /// Like every other change.
    #[default]
    Debounced,
    /// It ends the wait of its key.
    Now,
}

/// How many keys are delivered per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeliveryRate {
    /// Keys per second, from 0.001 to 1,000,000 with at most 3 decimal places.
    #[serde(serialize_with = "range::write_number", deserialize_with = "range::thousandths::<1_000_000, _>")]
    #[schema(minimum = 0.001, maximum = 1_000_000, examples(50))]
    pub per_second: f64,
    /// Keys that are delivered at once after a pause.
    #[serde(deserialize_with = "range::whole::<1, 1_000_000, _, _>")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub burst: u64,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// Tokens that are added per second.
    #[serde(
        serialize_with = "range::write_number",
        deserialize_with = "range::positive::<1_000_000_000, _>"
    )]
    #[schema(exclusive_minimum = 0, maximum = 1_000_000_000)]
    pub qps: f64,
    /// Maximum number of tokens in the bucket.
    #[serde(deserialize_with = "range::whole::<1, U32_MAX, _, _>")]
    #[schema(value_type = u64, minimum = 1, maximum = 4_294_967_295_i64)]
    pub burst: u32,
}

/// How long events are kept once the queue no longer needs them to recover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retention {
    /// Maximum age of a kept event, at least 1s; null if only `bytes` limits retention.
    #[serde(default, deserialize_with = "range::optional_span::<SEC, CENTURY, _>")]
    #[schema(required = true, value_type = Option<Span>)]
    pub age: Option<DurationText>,
    /// Maximum bytes of kept events; null for the size of the queue's state, but at least 64 MiB.
    #[serde(default, deserialize_with = "range::optional_whole::<0, WHOLE_MAX, _, _>")]
    #[schema(required = true, minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub bytes: Option<u64>,
}

/// The queue to follow, and the part of it that the follower takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Follow {
    /// The name of the followed queue.
    #[serde(deserialize_with = "queue_name")]
    pub queue: String,
    /// The followed view: `latest` (the default) has the newest objects, `known` those that consumers acknowledged.
    #[serde(default)]
    #[schema(required = true)]
    pub view: FollowedView,
    /// Only keys that begin with this text.
    #[serde(default, deserialize_with = "prefix")]
    #[schema(required = true)]
    pub prefix: String,
    /// While this many keys of the follower are ready or delayed, it takes no further changes.
    #[serde(default = "max_waiting", deserialize_with = "range::whole::<1, 1_000_000_000, _, _>")]
    #[schema(required = true, minimum = 1, maximum = 1_000_000_000)]
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

impl Mode {
    /// The mode in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::Latest => "latest",
            Self::Keys => "keys",
            Self::Events => "events",
        }
    }
}

const fn max_waiting() -> u64 {
    100_000
}

const fn jitter() -> f64 {
    0.1
}

/// The pointers of a key.
fn key_parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<KeyPart>, D::Error> {
    let expected = format!(
        r#"a list of 1 to {KEY_POINTERS_MAX} JSON pointers, each as "/name" or as a table of pointer and optional; a single "/name" needs no list"#
    );
    let is_part = |part: &KeyPart| {
        let (KeyPart::Required(pointer) | KeyPart::Detailed(DetailedKeyPart { pointer, .. })) = part;
        range::is_pointer(pointer)
    };
    range::whole_value(deserializer, &expected, |value| {
        let parts = match value {
            Value::String(pointer) => vec![KeyPart::Required(pointer)],
            list => serde_json::from_value(list).ok()?,
        };
        ((1..=KEY_POINTERS_MAX).contains(&parts.len()) && parts.iter().all(is_part)).then_some(parts)
    })
}

/// A pointer, or null.
fn optional_pointer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    range::whole_value(deserializer, r#"a JSON pointer such as "/updated_at""#, |value| match value {
        Value::Null => Some(None),
        Value::String(text) => range::is_pointer(&text).then_some(Some(text)),
        _ => None,
    })
}

fn pointers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected = r#"a list of JSON pointers such as ["/debug"]"#;
    range::whole_value(deserializer, expected, |value| serde_json::from_value(value).ok())
}

fn indexes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let expected = r#"names and JSON pointers such as {"by_city":"/city"}"#;
    range::whole_value(deserializer, expected, |value| serde_json::from_value(value).ok())
}

fn array_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let expected = r#"pointers to arrays, each with the pointer to what identifies an element, such as {"/items":"/sku"}"#;
    range::whole_value(deserializer, expected, |value| serde_json::from_value(value).ok())
}

fn queue_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    Name::new(&name).map_err(de::Error::custom)?;
    Ok(name)
}

fn owner<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let expected = "a name such as \"shop\", by the rules of the name of a queue";
    range::whole_value(deserializer, expected, |value| match value {
        Value::Null => Some(None),
        Value::String(text) => Name::new(&text).is_ok().then_some(Some(text)),
        _ => None,
    })
}

fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let expected = format!("the start of a key, at most {KEY_BYTES_MAX} bytes long");
    range::text(deserializer, &expected, |text| (text.len() <= KEY_BYTES_MAX).then(|| text.to_owned()))
}
