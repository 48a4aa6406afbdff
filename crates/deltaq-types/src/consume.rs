//! Requests and replies of workers.

use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DeltaType, LeaseOutcome, RawObject, SettleResult, Timestamp, strict, terms};

/// A delta. In the reply to a pop, a delta leaves out the last four members where they say nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeltaDocument {
    /// The type.
    #[serde(rename = "type")]
    pub kind: DeltaType,
    /// The number of the event that queued the delta.
    pub resource_version: u64,
    /// When the delta was queued.
    pub queued_at: Timestamp,
    /// The object as it was sent.
    pub object: RawObject,
    /// A tombstone: the deletion was inferred, and the object may be older than the last state.
    #[serde(default)]
    pub final_state_unknown: bool,
    /// The producer, if the call named one.
    #[serde(default)]
    pub source: Option<String>,
    /// The number of older deltas that the cap of the key merged into this one.
    #[serde(default)]
    pub coalesced: u32,
    /// The trace of the call that queued the delta, if the call named one (W3C Trace Context).
    #[serde(default)]
    pub traceparent: Option<String>,
}

/// A delta in the reply to a pop.
struct PoppedDelta<'d>(&'d DeltaDocument);

impl Serialize for PoppedDelta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(delta) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &delta.kind)?;
        map.serialize_entry("resource_version", &delta.resource_version)?;
        map.serialize_entry("queued_at", &delta.queued_at)?;
        map.serialize_entry("object", &delta.object)?;
        if delta.final_state_unknown {
            map.serialize_entry("final_state_unknown", &true)?;
        }
        if let Some(source) = &delta.source {
            map.serialize_entry("source", source)?;
        }
        if delta.coalesced > 0 {
            map.serialize_entry("coalesced", &delta.coalesced)?;
        }
        if let Some(trace) = &delta.traceparent {
            map.serialize_entry("traceparent", trace)?;
        }
        map.end()
    }
}

fn popped_deltas<S: Serializer>(deltas: &[DeltaDocument], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(deltas.iter().map(PoppedDelta))
}

/// A lease of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseDocument {
    /// The id with which the lease is settled: the `lease_id` of other documents.
    pub id: String,
    /// The fencing token: it grows with every lease of the queue.
    pub token: u64,
    /// The worker, if the pop named one.
    #[schema(required = true)]
    pub worker: Option<String>,
    /// When the lease expires.
    pub expires_at: Timestamp,
    /// Milliseconds until the lease expires, computed when the reply is written.
    pub expires_in_ms: u64,
}

/// A delivered key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoppedItem {
    /// The key.
    pub key: String,
    /// The lease on the key.
    pub lease: LeaseDocument,
    /// Deliveries since the last ack, this one included.
    pub attempt: u32,
    /// Failures since the last ack.
    pub failures: u32,
    /// Whether the key belongs to the initial list.
    pub is_in_initial_list: bool,
    /// Every change since the last ack, oldest first; the oldest alone in mode events; empty in mode keys.
    #[serde(serialize_with = "popped_deltas")]
    pub deltas: Vec<DeltaDocument>,
    /// With `with=known`: the object that was acknowledged last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<RawObject>,
}

/// The reply to a pop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Popped {
    /// The delivered keys; empty when `wait` has passed.
    pub items: Vec<PoppedItem>,
    /// The results of the settles in the request.
    pub settled: Vec<SettledDocument>,
    /// The queue is closed: pops drain it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// The queue is paused: nothing is delivered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// The body of a pop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PopBody {
    /// Leases that are settled before the pop, each on its own.
    #[serde(default, deserialize_with = "strict::objects", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<SettleCall>>)]
    pub settle: Vec<SettleCall>,
}

/// The leases of a settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    /// Leases that are settled, each on its own. A lease may appear once.
    #[serde(deserialize_with = "strict::objects")]
    #[schema(value_type = Option<Vec<SettleCall>>, required = true)]
    pub settle: Vec<SettleCall>,
}

/// One lease to settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleCall {
    /// The id of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = terms::LeaseId, required = true)]
    pub lease_id: Option<String>,
    /// The former name of `lease_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub lease: Option<String>,
    /// How the lease is settled.
    #[serde(rename = "as", deserialize_with = "strict::word")]
    pub how: SettleAs,
    /// Only with nack and done. With nack: how long the key waits, instead of its backoff. With done: the time after which the
    /// key is added again. A [duration](crate::duration).
    #[serde(default, deserialize_with = "strict::duration_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Delay>)]
    pub delay: Option<String>,
    /// Only with nack and reject: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Failure>)]
    pub error: Option<String>,
}

/// The ways to settle a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleAs {
    /// Done: the deltas of the lease are applied to the known objects.
    Ack,
    /// Mode keys: done, and the failures of the key stay, as after client-go's Done without Forget.
    Done,
    /// Failed: the key is delivered again later.
    Nack,
    /// Returned to the tail of the ready queue, without a failure.
    Release,
    /// Parked at once.
    Reject,
}

impl SettleAs {
    /// The word in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Done => "done",
            Self::Nack => "nack",
            Self::Release => "release",
            Self::Reject => "reject",
        }
    }
}

/// Leases that are all settled in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeasesBody {
    /// The ids of the leases. A lease may appear once.
    #[serde(default, deserialize_with = "strict::present_texts", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<terms::LeaseId>>, required = true, max_items = 10_000)]
    pub lease_ids: Option<Vec<String>>,
    /// The former name of `lease_ids`.
    #[serde(default, deserialize_with = "strict::present_texts", skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub leases: Option<Vec<String>>,
    /// Only with nack and done: how long the keys wait; a [duration](crate::duration).
    #[serde(default, deserialize_with = "strict::duration_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Delay>)]
    pub delay: Option<String>,
    /// Only with nack and reject: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Failure>)]
    pub error: Option<String>,
}

/// The result of one settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettledDocument {
    /// The id of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = true)]
    pub lease_id: Option<String>,
    /// The id of the lease, in the reply to a request that used this former name of `lease_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub lease: Option<String>,
    /// How the request wanted to settle the lease.
    #[serde(rename = "as")]
    pub how: SettleAs,
    /// `ok`, `repeated` or `stale`.
    #[schema(value_type = String)]
    pub result: SettleResult,
    /// How a stale lease ended: acked, nacked, released, rejected, expired or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<LeaseOutcome>,
    /// After a nack or reject: failures since the last ack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// After a nack: when the delay or backoff of the key ends; absent if the key is ready or parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// After a nack or reject: whether the key is parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<bool>,
}

/// The reply to a settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettledList {
    /// The results, in the order of the request.
    pub settled: Vec<SettledDocument>,
    /// The number of leases that were not settled, because they had ended.
    pub stale: u64,
}

/// Leases to extend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendBody {
    /// The ids of the leases. A lease may appear once.
    #[serde(default, deserialize_with = "strict::present_texts", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<terms::LeaseId>>, required = true, max_items = 10_000)]
    pub lease_ids: Option<Vec<String>>,
    /// The former name of `lease_ids`.
    #[serde(default, deserialize_with = "strict::present_texts", skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub leases: Option<Vec<String>>,
    /// The time from now to the new deadline, a [duration](crate::duration); by default the queue's setting.
    #[serde(default, deserialize_with = "strict::duration_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::LeaseLength>)]
    pub lease_duration: Option<String>,
    /// The former name of `lease_duration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub lease: Option<String>,
}

/// The result of one extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExtendedDocument {
    /// The id of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = true)]
    pub lease_id: Option<String>,
    /// The id of the lease, in the reply to a request that used this former name of `lease_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub lease: Option<String>,
    /// `ok` or `stale`.
    #[schema(value_type = String)]
    pub result: SettleResult,
    /// When the lease expires now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Milliseconds until the lease expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Deltas that have arrived since the key was leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_deltas: Option<u64>,
    /// Whether the newest delta of the key is a deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
    /// How a stale lease ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<LeaseOutcome>,
}

/// The reply to an extend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExtendedList {
    /// The results, in the order of the request.
    pub leases: Vec<ExtendedDocument>,
    /// The number of leases that were not extended, because they had ended.
    pub stale: u64,
}

/// Parked keys to redrive or to discard, or delayed keys to promote: those of the one field that is present; all without fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "keys": ["sku-1"] }), json!({ "error": "timeout" })))]
pub struct KeysBody {
    /// The keys; absent for all parked or all delayed keys. Null is an empty list, because a client whose list is null hardly means all keys.
    #[serde(default, deserialize_with = "strict::present_texts", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<terms::Key>>)]
    pub keys: Option<Vec<String>>,
    /// All parked or all delayed keys whose last error is this one; the empty text means those without an error. Null is refused.
    #[serde(default, deserialize_with = "strict::present_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = terms::ErrorText, required = false)]
    pub error: Option<String>,
}
