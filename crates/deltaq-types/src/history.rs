//! The history of a key.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DeltaType, EventName, LeaseOutcome, RawObject, Timestamp};

/// An event of a key. Fields that the event does not have are absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventDocument {
    /// The number of the event.
    pub resource_version: u64,
    /// When the event happened.
    pub at: Timestamp,
    /// The kind of the event: `appended` (a delta), `queued` and `failed` (mode keys), `dropped`, `taken_over`, `leased`,
    /// `extended`, `settled`, `delay_elapsed` (a delay or backoff, also one that promote ended), `forgotten`, `redriven`, `removed`, `version_remembered`,
    /// `seeded`.
    #[schema(value_type = String)]
    pub event: EventName,
    /// Appended: the type of the delta.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub kind: Option<DeltaType>,
    /// Appended: a tombstone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub final_state_unknown: bool,
    /// Appended: the producer, if the call named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Appended, taken over, seeded: the owner of the key from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Appended: the trace of the call, if the call named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Leased, settled: the id of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    /// The former name of `lease_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(deprecated)]
    pub lease: Option<String>,
    /// Leased: the worker, if the pop named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Leased, extended: when the lease expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Settled: `acked`, `nacked`, `expired`, `released`, `rejected`, or `returned` (the delivery did not arrive).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub outcome: Option<LeaseOutcome>,
    /// Settled: the error that the worker gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Settled: the key was parked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parked: bool,
    /// Appended, queued, settled: when the key becomes ready at the latest, unless it is ready at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// Appended, seeded: the object as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<RawObject>,
}

impl EventDocument {
    /// An event without further fields.
    #[must_use]
    pub const fn new(resource_version: u64, at: Timestamp, event: EventName) -> Self {
        Self {
            resource_version,
            at,
            event,
            kind: None,
            final_state_unknown: false,
            source: None,
            owner: None,
            traceparent: None,
            lease_id: None,
            lease: None,
            worker: None,
            expires_at: None,
            outcome: None,
            error: None,
            parked: false,
            due_at: None,
            object: None,
        }
    }
}
