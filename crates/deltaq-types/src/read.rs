//! Replies of calls that read a queue.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DeltaDocument, HoldReason, ItemState, LastReplaceDocument, LeaseDocument, RawObject, Timestamp};

/// Whether a queue has synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncedDocument {
    /// Whether the initial list is processed.
    pub synced: bool,
    /// Keys of the initial list that are not processed.
    pub remaining: u64,
}

/// An object of a view of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectDocument {
    /// The key.
    pub key: String,
    /// The owner of the key.
    #[schema(required = true)]
    pub source: Option<String>,
    /// The version of the key in the view: the number of the event that changed the key there last. For a known object the
    /// event is an ack or a seed.
    pub resource_version: u64,
    /// The object as it was sent.
    pub object: RawObject,
}

/// A source: the keys that it owns, and what it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceDocument {
    /// The name of the source.
    pub source: String,
    /// Keys that the source owns.
    pub keys: u64,
    /// When the last call arrived that queued a change or had a sequence number, or the last Replace started; null if the queue does not remember it.
    #[schema(required = true)]
    pub last_call_at: Option<Timestamp>,
    /// When the last complete Replace of the source ended.
    #[schema(required = true)]
    pub last_replaced_at: Option<Timestamp>,
    /// The latest Replace of the source.
    #[schema(required = true)]
    pub last_replace: Option<LastReplaceDocument>,
    /// The number of the last call that had a sequence number.
    #[schema(required = true)]
    pub sequence: Option<u64>,
}

/// A key with its deltas, its lease and its failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemDocument {
    /// The key.
    pub key: String,
    /// `leased`, `parked`, `ready` or `delayed`; null for a key that has only failures.
    #[schema(value_type = Option<String>, required = true)]
    pub state: Option<ItemState>,
    /// Deltas that wait.
    pub deltas: Vec<DeltaDocument>,
    /// Deltas that a worker holds.
    pub leased_deltas: Vec<DeltaDocument>,
    /// The lease; null unless the key is leased.
    #[schema(required = true)]
    pub lease: Option<LeaseDocument>,
    /// Deliveries since the last ack.
    pub attempt: u32,
    /// Failures since the last ack.
    pub failures: u32,
    /// The error of the last failure.
    #[schema(required = true)]
    pub last_error: Option<String>,
    /// When the delay or backoff of the key ends.
    #[schema(required = true)]
    pub due_at: Option<Timestamp>,
    /// The owner of the key.
    #[schema(required = true)]
    pub owner: Option<String>,
}

/// Why a key is not delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainDocument {
    /// The key.
    pub key: String,
    /// `leased`, `delayed`, `backing_off`, `parked`, `paused`, `closed`, `queued`, `next`, `nothing_waits` or `unknown`.
    #[schema(value_type = String)]
    pub reason: HoldReason,
    /// The reason as a sentence.
    pub explanation: String,
    /// The lease; null unless the key is leased.
    #[schema(required = true)]
    pub lease: Option<LeaseDocument>,
    /// When the delay or backoff of the key ends.
    #[schema(required = true)]
    pub due_at: Option<Timestamp>,
    /// Failures since the last ack.
    pub failures: u32,
    /// The error of the last failure.
    #[schema(required = true)]
    pub last_error: Option<String>,
    /// Of a ready key: the number of keys that are delivered before it, at most 5,000.
    #[schema(required = true)]
    pub ahead: Option<u64>,
    /// Whether more keys than `ahead` are delivered before it.
    pub has_more_ahead: bool,
}
