//! What workers send and are told.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use super::{Instant, RawObject, instant, millis, strict};
use crate::engine::command::{Extended, Outcome, Settled};
use crate::engine::delta::{Delta, Source};
use crate::http::openapi::terms;
use crate::service::{LeaseId, Moment};

/// A delta as it is delivered.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeltaDocument {
    /// `Added`, `Updated`, `Deleted`, `Replaced` or `Sync`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The event that queued it.
    pub resource_version: u64,
    /// When it was queued.
    #[schema(value_type = String, format = DateTime)]
    pub queued_at: Instant,
    /// The object as it was sent.
    #[schema(value_type = terms::RawObject)]
    pub object: RawObject,
    /// A tombstone: the deletion was inferred, the object may be older than the last state.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub final_state_unknown: bool,
    /// Who sent it, if it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source: Option<Source>,
    /// How many older deltas the key's cap merged into this one.
    #[serde(skip_serializing_if = "is_zero")]
    pub coalesced: u32,
    /// The trace of the call that queued it, if it named one (W3C Trace Context).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

fn as_text<S: Serializer>(text: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(text)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl DeltaDocument {
    /// A delta as it is shown at `moment`.
    #[must_use]
    pub fn new(delta: &Delta, moment: Moment) -> Self {
        Self {
            kind: delta.kind.as_str(),
            resource_version: delta.rv,
            queued_at: Instant(moment.wall(delta.queued_at)),
            object: RawObject(delta.object.clone()),
            final_state_unknown: delta.final_state_unknown,
            source: delta.provenance.source().cloned(),
            coalesced: delta.coalesced,
            traceparent: delta.provenance.trace().map(ToString::to_string),
        }
    }
}

/// A lease as the worker that holds it sees it.
#[derive(Debug, Serialize, ToSchema)]
pub struct LeaseDocument {
    /// What settles it.
    #[schema(value_type = String)]
    #[serde(serialize_with = "as_text")]
    pub id: LeaseId,
    /// The fencing token: it grows with every lease of the queue.
    pub token: u64,
    /// When it expires.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Instant,
    /// Milliseconds until then, computed as the answer is written.
    pub expires_in_ms: u64,
}

/// A delivered key with its lease.
#[derive(Debug, Serialize, ToSchema)]
pub struct PoppedItem<'a> {
    /// The key.
    pub key: &'a str,
    /// The lease on it.
    pub lease: LeaseDocument,
    /// Deliveries since the last acknowledgement, this one included.
    pub attempt: u32,
    /// Failures so far.
    pub failures: u32,
    /// Whether the key belongs to the initial list.
    pub is_in_initial_list: bool,
    /// What happened since the last acknowledgement, oldest first; empty in mode keys.
    pub deltas: Vec<DeltaDocument>,
    /// The object that was acknowledged last, with `with=known`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::RawObject>)]
    pub known: Option<RawObject>,
}

// `popped` is what writes it.
/// The answer to a pop.
#[derive(Debug, Serialize, ToSchema)]
pub struct Popped<'a> {
    /// The keys; empty when the wait ended.
    pub items: Vec<PoppedItem<'a>>,
    /// What became of the settles that came with the pop.
    pub settled: Vec<SettledDocument>,
}

/// What comes with a pop.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PopBody {
    /// Leases to settle first, each for itself.
    #[serde(default, deserialize_with = "strict::objects")]
    pub settle: Vec<SettleCall>,
}

/// Leases to settle.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    /// Each lease is settled for itself; none is named twice.
    #[serde(deserialize_with = "strict::objects")]
    pub settle: Vec<SettleCall>,
}

/// One lease to settle.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleCall {
    /// The lease's id.
    pub lease: String,
    /// In which way.
    #[serde(rename = "as", deserialize_with = "strict::word")]
    pub how: SettleHow,
    /// With nack only: how long the key waits, instead of the rate limiter's wait.
    #[serde(default)]
    #[schema(value_type = Option<terms::Delay>)]
    pub delay: Option<String>,
    /// With nack and reject only: why.
    #[serde(default)]
    #[schema(value_type = Option<terms::Failure>)]
    pub error: Option<String>,
}

/// The ways to settle a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleHow {
    /// Done: the deltas of the lease are applied to the known objects.
    Ack,
    /// Failed: it comes back later.
    Nack,
    /// Given back to the tail; no failure.
    Release,
    /// Parked at once.
    Reject,
}

impl SettleHow {
    /// The name on the wire.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Release => "release",
            Self::Reject => "reject",
        }
    }
}

/// Leases to settle all in one way.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeasesBody {
    /// The leases' ids, none twice.
    #[serde(deserialize_with = "strict::texts")]
    #[schema(value_type = Vec<String>, max_items = 10_000)]
    pub leases: Vec<String>,
    /// With nack only: how long the keys wait.
    #[serde(default)]
    #[schema(value_type = Option<terms::Delay>)]
    pub delay: Option<String>,
    /// With nack and reject only: why.
    #[serde(default)]
    #[schema(value_type = Option<terms::Failure>)]
    pub error: Option<String>,
}

/// What became of one settle.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SettledDocument {
    /// The lease's id.
    pub lease: String,
    /// In which way it was to be settled.
    #[serde(rename = "as")]
    pub how: SettleHow,
    /// `ok`, `repeated` or `stale`.
    pub result: &'static str,
    /// What became of a stale lease: acked, nacked, released, rejected, expired, unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
}

impl SettledDocument {
    /// What became of `call`.
    #[must_use]
    pub fn new(lease: String, how: SettleHow, settled: Settled) -> Self {
        let (result, outcome) = match settled {
            Settled::Ok { .. } => ("ok", None),
            Settled::Repeated => ("repeated", None),
            Settled::Stale { outcome } => ("stale", Some(outcome.as_str())),
        };
        Self { lease, how, result, outcome }
    }
}

/// The answer to a settle.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettledList {
    /// In the order of the request.
    pub settled: Vec<SettledDocument>,
}

/// Leases to extend.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendBody {
    /// The leases' ids, none twice.
    #[serde(deserialize_with = "strict::texts")]
    #[schema(value_type = Vec<String>, max_items = 10_000)]
    pub leases: Vec<String>,
    /// From now on, instead of the queue's setting.
    #[serde(default)]
    #[schema(value_type = Option<terms::LeaseLength>)]
    pub lease: Option<String>,
}

/// What became of one extension.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExtendedDocument {
    /// The lease's id.
    pub lease: String,
    /// `ok` or `stale`.
    pub result: &'static str,
    /// When it expires now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Milliseconds until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Deltas that came since the lease was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_deltas: Option<usize>,
    /// Whether the key's newest delta is a deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
    /// What became of a stale lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
}

impl ExtendedDocument {
    /// What became of the extension of `lease`, as of `moment`.
    #[must_use]
    pub fn new(lease: &str, extended: Extended, moment: Moment) -> Self {
        let stale = |outcome: Outcome| Self {
            lease: lease.to_owned(),
            result: "stale",
            expires_at: None,
            expires_in_ms: None,
            pending_deltas: None,
            deleted: None,
            outcome: Some(outcome.as_str()),
        };
        match extended {
            Extended::Stale { outcome } => stale(outcome),
            Extended::Ok { deadline, pending_deltas, deleted } => Self {
                result: "ok",
                expires_at: Some(instant(moment.wall(deadline))),
                expires_in_ms: Some(millis(deadline.since(moment.now))),
                pending_deltas: Some(pending_deltas),
                deleted: Some(deleted),
                outcome: None,
                ..stale(Outcome::Unknown)
            },
        }
    }
}

/// The answer to an extend.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExtendedList {
    /// In the order of the request.
    pub leases: Vec<ExtendedDocument>,
}

/// What is there is not null.
fn present<'de, D: Deserializer<'de>>(keys: D) -> Result<Option<Vec<String>>, D::Error> {
    strict::texts(keys).map(Some)
}

/// Keys to redrive or discard.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeysBody {
    /// The keys; all parked keys when it is left out. Null is refused: a list that its caller does not have is not all keys.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Vec<terms::Key>, required = false)]
    pub keys: Option<Vec<String>>,
}
