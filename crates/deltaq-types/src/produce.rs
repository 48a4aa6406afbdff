//! Requests and replies of produce calls.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::duration::DurationText;
use super::{RawObject, ReplaceCounts, Timestamp, range, strict, terms};

/// The shortest threshold of a source, in microseconds.
const STALE_AFTER_US_MIN: u64 = 1_000_000;
/// The longest threshold of a source, in microseconds: 366 days.
const STALE_AFTER_US_MAX: u64 = 366 * 24 * 60 * 60 * 1_000_000;

/// The reply to a produce call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Produced {
    /// The number of the queue's newest event after the call.
    pub resource_version: u64,
    /// Deltas that were queued.
    pub queued: u64,
    /// Mode keys: adds that changed nothing, because their key was already ready and not leased.
    pub merged: u64,
    /// Deletes that had nothing to delete, and updates that changed ignored members at most.
    pub ignored: u64,
    /// Objects that were not newer than the newest state of their key, by the setting `version`.
    pub stale: u64,
    /// Whether the call's sequence number had already been applied, so that this call changed nothing.
    pub duplicate: bool,
    /// With a sequence number: the last number of the source that the queue has applied.
    #[schema(required = true)]
    pub sequence: Option<u64>,
    /// The id of the queue. If it has changed since an earlier reply, the queue was deleted and created again, and lacks everything that was sent
    /// before. Null in a dry run without a queue.
    #[schema(required = true)]
    pub incarnation: Option<String>,
    /// The life of the queue to which `resource_version` belongs. If it has changed since an earlier reply, a server has loaded the queue again, possibly
    /// from an older state: `synced?resource_version=` with the version of the earlier reply shows whether the queue still has that version.
    #[schema(required = true)]
    pub life: Option<String>,
    /// With `rate_limited`: the keys of the call, in the same order.
    #[schema(required = true)]
    pub keys: Option<Vec<FailedKey>>,
    /// With `skip_invalid`: the number of invalid objects that were left out.
    pub invalid: u64,
    /// The first 10 of the objects that were left out.
    pub invalid_objects: Vec<InvalidObject>,
}

/// An invalid object that a call with `skip_invalid` has left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvalidObject {
    /// The index of the object in the call, from 0.
    pub index: u64,
    /// The key; null if it can't be read. A text that can't be a key is named, too, and cut off after 1,024 bytes.
    #[schema(required = true)]
    pub key: Option<String>,
    /// The code of the problem that the call would get without `skip_invalid`.
    pub code: String,
    /// What is wrong.
    pub detail: String,
}

/// The failures of a key, and when the key is delivered again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailedKey {
    /// The key.
    pub key: String,
    /// Failures since the last ack.
    pub failures: u32,
    /// When the delay or backoff of the key ends.
    #[schema(required = true)]
    pub due_at: Option<Timestamp>,
    /// Whether the key is parked.
    pub parked: bool,
}

/// The reply to a Replace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replaced {
    /// The number of the queue's newest event after the Replace.
    pub resource_version: u64,
    /// Deltas that were queued: `replaced` and `deleted` together.
    pub queued: u64,
    /// Always 0: only adds in mode keys are merged.
    pub merged: u64,
    /// Always 0: objects that a Replace does not queue are `unchanged`, `skipped` or `stale`.
    pub ignored: u64,
    /// The counts.
    #[serde(flatten)]
    pub counts: ReplaceCounts,
    /// Whether the call's sequence number had already been applied, so that this call changed nothing.
    pub duplicate: bool,
    /// With a sequence number: the last number of the source that the queue has applied.
    #[schema(required = true)]
    pub sequence: Option<u64>,
    /// The id of the queue. If it has changed since an earlier reply, the queue was deleted and created again, and lacks everything that was sent
    /// before. Null in a dry run without a queue.
    #[schema(required = true)]
    pub incarnation: Option<String>,
    /// The life of the queue to which `resource_version` belongs. If it has changed since an earlier reply, a server has loaded the queue again, possibly
    /// from an older state: `synced?resource_version=` with the version of the earlier reply shows whether the queue still has that version.
    #[schema(required = true)]
    pub life: Option<String>,
    /// With `skip_invalid`: the number of invalid objects that were left out. Their keys are neither changed nor deleted.
    pub invalid: u64,
    /// The first 10 of the objects that were left out.
    pub invalid_objects: Vec<InvalidObject>,
}

/// An entry of a mixed batch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeltaCall<'a> {
    /// The type of the delta.
    #[serde(rename = "type", deserialize_with = "strict::word")]
    pub kind: DeltaCallType,
    /// The key. It must equal the key in the object, if the object carries one.
    #[serde(default, deserialize_with = "strict::optional_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Key>)]
    pub key: Option<String>,
    /// The object. A `Deleted` with a key needs no object.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RawObject>)]
    pub object: Option<&'a RawValue>,
    /// The producer, which becomes the owner of the key.
    #[serde(default, deserialize_with = "strict::optional_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Label>)]
    pub source: Option<String>,
    /// Time until the delta may be delivered.
    #[serde(default, deserialize_with = "strict::duration_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Delay>)]
    pub delay: Option<String>,
    /// The time that the key must be quiet before it is delivered, instead of the setting `debounce.quiet`; 0s for none.
    #[serde(default, deserialize_with = "strict::duration_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Delay>)]
    pub debounce: Option<String>,
    /// How much earlier than it did the delta counts as arrived, from -7d to 7d, instead of the setting `order`.
    #[serde(default, deserialize_with = "strict::optional_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::HeadStart>)]
    pub head_start: Option<String>,
    /// Only with `debounce`: the longest wait of the delta, at least `debounce`; default 10 times `debounce`, at most 366d.
    #[serde(default, deserialize_with = "strict::duration_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Delay>)]
    pub max_wait: Option<String>,
    /// Only with `Deleted`: the deletion was inferred, and the object may be older than the last state.
    #[serde(default, deserialize_with = "strict::flag", skip_serializing_if = "std::ops::Not::not")]
    pub final_state_unknown: bool,
    /// The `resource_version` that the newest object of the key must have, or 0 if there must be none. Otherwise the whole
    /// batch is refused with 412 `precondition-failed`.
    #[serde(default, deserialize_with = "strict::whole", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Count>)]
    pub expected_version: Option<u64>,
}

/// The types of delta that a producer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum DeltaCallType {
    /// The object was added.
    Added,
    /// The object was changed.
    Updated,
    /// The object was deleted.
    Deleted,
}

/// A known object of a seed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeedCall<'a> {
    /// The key. It must equal the key in the object, if the object carries one.
    #[serde(default, deserialize_with = "strict::optional_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Key>)]
    pub key: Option<String>,
    /// The owner of the key.
    #[serde(default, deserialize_with = "strict::optional_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Label>)]
    pub source: Option<String>,
    /// Ignored, so that the lines of `GET .../known` can be sent unchanged.
    #[serde(default, deserialize_with = "strict::whole", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Count>)]
    pub resource_version: Option<u64>,
    /// The object.
    #[serde(borrow)]
    #[schema(value_type = RawObject)]
    pub object: &'a RawValue,
}

/// The state of a source, as its reader reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceReport {
    /// The name of the source.
    #[schema(value_type = terms::Label)]
    pub source: String,
    /// Why the queue is not in step with the source; null if it is.
    #[serde(default, deserialize_with = "strict::optional_text")]
    #[schema(value_type = Option<terms::ErrorText>)]
    pub problem: Option<String>,
}

/// A change of what a queue remembers of a source. A member that is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceChange {
    /// The last sequence number of the source: a call is applied if its number is larger. Null forgets the number, so that
    /// the next call is applied whatever its number is. This member needs the grant `admin`.
    #[serde(default, deserialize_with = "given_whole", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Count>)]
    pub sequence: Option<Option<u64>>,
    /// How long the source may be silent before it counts as stale, from 1s to 8784h; null for no threshold.
    #[serde(default, deserialize_with = "given_span", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Span>)]
    pub stale_after: Option<Option<DurationText>>,
    /// Whether `stale_after` is only proposed, by the reader of the source: then it does not replace a threshold that was set otherwise.
    #[serde(default, deserialize_with = "strict::flag", skip_serializing_if = "std::ops::Not::not")]
    #[schema(value_type = Option<bool>)]
    pub proposed: bool,
}

/// Thresholds of several sources of a queue, which are set at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourcesChange {
    /// The threshold of each source by its name. Sources that are not named stay as they are.
    pub sources: BTreeMap<String, SourceThreshold>,
}

/// The threshold of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object with stale_after")]
pub struct SourceThreshold {
    /// How long the source may be silent before it counts as stale, from 1s to 8784h; null for no threshold.
    #[serde(deserialize_with = "range::optional_span::<STALE_AFTER_US_MIN, STALE_AFTER_US_MAX, _>")]
    #[schema(value_type = Option<terms::Span>, required = true)]
    pub stale_after: Option<DurationText>,
}

/// Reads a whole number or null, where absence has another meaning than null.
#[expect(clippy::option_option, reason = "null and an absent member mean different things")]
fn given_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    strict::whole(deserializer).map(Some)
}

/// Reads a threshold or null.
#[expect(clippy::option_option, reason = "null and an absent member mean different things")]
fn given_span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<DurationText>>, D::Error> {
    range::optional_span::<STALE_AFTER_US_MIN, STALE_AFTER_US_MAX, D>(deserializer).map(Some)
}

/// The keys whose failures are reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetBody {
    /// The keys.
    #[serde(deserialize_with = "strict::texts")]
    #[schema(value_type = Option<Vec<terms::Key>>, required = true)]
    pub keys: Vec<String>,
}

/// The number of keys that a call changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeysCount {
    /// Keys.
    pub keys: u64,
}
