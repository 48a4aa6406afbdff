//! Replies of calls that read a queue.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::duration::DurationText;
use super::terms::{JsonPointer, Span};
use super::{
    DeltaDocument, DiffOmission, DiffOperation, Difference, HoldReason, IndexState, ItemState,
    LastReplaceDocument, LeaseDocument, RawObject, Timestamp,
};

/// Whether a queue has synced. The fields after `remaining` are null in the reply to a call without a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncedDocument {
    /// Whether the initial list is processed.
    pub synced: bool,
    /// Keys of the initial list that are not processed.
    pub remaining: u64,
    /// Whether every change up to `resource_version` is acknowledged, or belongs to a parked key.
    #[schema(required = true)]
    pub reached: Option<bool>,
    /// The version that the call asked for; with `now`, the newest version when the call arrived.
    #[schema(required = true)]
    pub resource_version: Option<u64>,
    /// The number of parked keys with a change up to `resource_version`. `reached` ignores these keys.
    #[schema(required = true)]
    pub parked: Option<u64>,
}

/// An object of a view of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectDocument {
    /// The key.
    pub key: String,
    /// The source that owns the key.
    #[schema(required = true)]
    pub source: Option<String>,
    /// The version of the key in the view: the number of the event that last changed the key in the view. For a known object,
    /// that event is an ack or a seed.
    pub resource_version: u64,
    /// The object as it was sent.
    pub object: RawObject,
}

/// A source: the number of its keys, and its calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceDocument {
    /// The name of the source.
    pub source: String,
    /// Keys that the source owns.
    pub keys: u64,
    /// The time of the last call that queued a change or had a sequence number, or the start of the last Replace; null if the queue does not remember it.
    #[schema(required = true)]
    pub last_call_at: Option<Timestamp>,
    /// When the source was last in contact: a complete list, a single call, also one that queued nothing, or a report that it was reached and has no
    /// change. After a crash of the server, the time may be up to two minutes too old. Null if the queue does not remember any contact.
    #[serde(default)]
    #[schema(required = true)]
    pub last_contact_at: Option<Timestamp>,
    /// When the last complete Replace of the source ended.
    #[schema(required = true)]
    pub last_replaced_at: Option<Timestamp>,
    /// The latest Replace of the source.
    #[schema(required = true)]
    pub last_replace: Option<LastReplaceDocument>,
    /// The last sequence number of the source; null if it has none.
    #[schema(required = true)]
    pub sequence: Option<u64>,
    /// How long the source may be silent before it counts as stale; null if it has no threshold.
    #[serde(default)]
    #[schema(required = true, value_type = Option<Span>)]
    pub stale_after: Option<DurationText>,
    /// Whether the source is silent for longer than `stale_after`.
    #[serde(default)]
    #[schema(required = true)]
    pub is_stale: bool,
    /// The problem that the source has reported last; null if it has none.
    #[schema(required = true)]
    pub problem: Option<SourceProblem>,
}

/// A source with the name of its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueSourceDocument {
    /// The name of the queue.
    pub queue: String,
    /// The source.
    #[serde(flatten)]
    pub source: SourceDocument,
}

/// A problem that a source has reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceProblem {
    /// The problem.
    pub detail: String,
    /// When the source reported it last.
    pub reported_at: Timestamp,
}

/// An index of the known objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IndexDocument {
    /// The name.
    pub name: String,
    /// The pointer to the values in an object.
    #[schema(value_type = JsonPointer)]
    pub pointer: String,
    /// `building` until the index has all known objects.
    pub state: IndexState,
    /// Number of different values.
    pub values: u64,
    /// Keys with at least one value.
    pub keys: u64,
    /// Values that are in no index, because they have more than 256 bytes or are beyond the first 100 of an array.
    pub omitted_values: u64,
}

/// A value of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IndexValueDocument {
    /// The value, as text.
    pub value: String,
    /// Keys with the value.
    pub keys: u64,
}

/// A worker: the leases that it holds, and its pops that wait for keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerDocument {
    /// The name of the worker; null for all pops without a name.
    #[schema(required = true)]
    pub worker: Option<String>,
    /// Leases that the worker holds.
    pub leased: u64,
    /// When the oldest of these leases was created.
    #[schema(required = true)]
    pub oldest_leased_at: Option<Timestamp>,
    /// When the first of these leases expires.
    #[schema(required = true)]
    pub next_expires_at: Option<Timestamp>,
    /// Milliseconds until the first of these leases expires.
    #[schema(required = true)]
    pub next_expires_in_ms: Option<u64>,
    /// Pops of the worker that wait for keys.
    pub waiting: u64,
    /// When the first of these pops arrived.
    #[schema(required = true)]
    pub oldest_waiting_at: Option<Timestamp>,
    /// Leases of the worker that ended with an ack or a done in the last ten minutes.
    pub recent_acks: u64,
    /// Leases of the worker that ended with a nack or a reject, or that expired, in the last ten minutes.
    pub recent_failures: u64,
}

/// The parked keys of a queue by their errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParkedErrors {
    /// The errors, those with the most keys first.
    pub items: Vec<ParkedError>,
    /// The `continue` parameter of the next page; null on the last page.
    #[serde(rename = "continue")]
    #[schema(required = true)]
    pub next: Option<String>,
    /// The number of parked keys whose errors are not on any page, because there are too many different errors.
    pub other_keys: u64,
    /// The number of the queue's newest event when the keys were read.
    pub resource_version: u64,
}

/// An error, and the number of parked keys with this error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParkedError {
    /// The error of their last failure; empty for keys without an error.
    pub error: String,
    /// The number of the keys.
    pub keys: u64,
    /// The first of the keys, in their order.
    pub first_key: String,
}

/// A key with its deltas, its lease and its failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemDocument {
    /// The key.
    pub key: String,
    /// The state; null for a key that has only failures.
    #[schema(required = true)]
    pub state: Option<ItemState>,
    /// Deltas that wait.
    pub deltas: Vec<DeltaDocument>,
    /// Deltas that a worker holds.
    pub leased_deltas: Vec<DeltaDocument>,
    /// The lease; null unless the key is leased.
    #[schema(required = true)]
    pub lease: Option<LeaseDocument>,
    /// Since when the worker holds the key; null unless the key is leased.
    #[serde(default)]
    #[schema(required = true)]
    pub leased_at: Option<Timestamp>,
    /// Deliveries since the last ack.
    pub attempt: u32,
    /// Failures since the last ack.
    pub failures: u32,
    /// The error of the last failure.
    #[schema(required = true)]
    pub last_error: Option<String>,
    /// When the delay, the backoff or the debounce window of the key ends.
    #[schema(required = true)]
    pub due_at: Option<Timestamp>,
    /// The source that owns the key.
    #[schema(required = true)]
    pub source: Option<String>,
    /// With `with=diff`: the operations that turn the object that was acknowledged last into the newest
    /// one. It is null if there is no acknowledged object or no change, if the newest change is a deletion, and if the
    /// difference is too large.
    #[serde(default, skip_serializing_if = "Difference::is_absent")]
    #[schema(value_type = Option<Vec<DiffOperation>>)]
    pub diff: Difference,
    /// With `with=diff`: why a difference is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_omitted: Option<DiffOmission>,
}

/// Why a key is not delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainDocument {
    /// The key.
    pub key: String,
    /// The reason.
    pub reason: HoldReason,
    /// The reason as a sentence.
    pub explanation: String,
    /// The lease; null unless the key is leased.
    #[schema(required = true)]
    pub lease: Option<LeaseDocument>,
    /// Since when the worker holds the key; null unless the key is leased.
    #[serde(default)]
    #[schema(required = true)]
    pub leased_at: Option<Timestamp>,
    /// When the delay, the backoff or the debounce window of the key ends, or when the rate of the queue delivers it at the earliest.
    #[schema(required = true)]
    pub due_at: Option<Timestamp>,
    /// The time at which a key with a debounce window becomes ready at the latest, whatever debounced changes arrive; null without a window.
    #[schema(required = true)]
    pub latest_at: Option<Timestamp>,
    /// The end of the floor that a nack has set: until then, no change delivers the key.
    #[schema(required = true)]
    pub floor_at: Option<Timestamp>,
    /// Failures since the last ack.
    pub failures: u32,
    /// The error of the last failure.
    #[schema(required = true)]
    pub last_error: Option<String>,
    /// How much earlier than it did the key counts as arrived, in milliseconds; null without a head start. Inside its class, if it has one.
    #[schema(required = true)]
    pub head_start_ms: Option<i64>,
    /// The strict class of the key: its priority, if the setting `order.priority.step` is null.
    #[schema(required = true)]
    pub priority: Option<i64>,
    /// For a ready key: the number of keys that are delivered before it, at most 5,000.
    #[schema(required = true)]
    pub ahead: Option<u64>,
    /// Whether more keys than `ahead` are delivered before it.
    pub has_more_ahead: bool,
    /// The group of the key; null for the group without a name, and in a queue without groups.
    #[schema(required = true)]
    pub group: Option<String>,
    /// The share of the key's group in the workers' time, from 0 to 1; null in a queue without groups.
    #[schema(required = true)]
    pub group_share: Option<f64>,
}
