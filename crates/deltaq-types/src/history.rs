//! The history of a key.

use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::kinds::Members;
use super::{DeltaType, EventName, LeaseOutcome, RawObject, Timestamp};

// `EventName::members` says which members the events of a kind have.
/// An event of a key. Its kind determines its members.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
pub struct EventDocument {
    /// The number of the event.
    pub resource_version: u64,
    /// When the event happened.
    pub at: Timestamp,
    /// The kind of the event.
    pub event: EventName,
    /// The name of the token whose call caused the event; null if it was the server, or a caller without a token.
    #[serde(default)]
    pub by: Option<String>,
    /// The type of the delta.
    #[serde(rename = "type", default)]
    pub kind: Option<DeltaType>,
    /// Whether the delta is a tombstone.
    #[serde(default)]
    pub final_state_unknown: bool,
    /// The source that becomes the owner of the key; for a deletion, the source that deleted the key.
    #[serde(default)]
    pub source: Option<String>,
    /// The trace of the call, if the call named one.
    #[serde(default)]
    pub traceparent: Option<String>,
    /// The id of the lease.
    #[serde(default)]
    pub lease_id: Option<String>,
    /// The worker, if the pop named one.
    #[serde(default)]
    pub worker: Option<String>,
    /// When the lease expires.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// The newest acknowledged delta.
    #[serde(default)]
    pub through: Option<u64>,
    /// How the lease ended.
    #[serde(default)]
    pub outcome: Option<LeaseOutcome>,
    /// The error that the worker gave.
    #[serde(default)]
    pub error: Option<String>,
    /// Whether the key was parked.
    #[serde(default)]
    pub parked: bool,
    /// The latest time at which the key becomes ready; null if the key is ready at once.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
    /// The object as it was sent; null if the store has lost it.
    #[serde(default)]
    pub object: Option<RawObject>,
}

impl EventName {
    /// The members of the events of this kind, in addition to `resource_version`, `at`, `event` and `by`.
    #[must_use]
    pub const fn members(self) -> Members {
        let (present, nullable): (&[_], &[_]) = match self {
            Self::Appended => {
                (&["type", "final_state_unknown"], &["object", "source", "traceparent", "due_at"])
            }
            Self::Queued => (&[], &["due_at"]),
            Self::TakenOver => (&["source"], &[]),
            Self::Leased => (&["lease_id", "expires_at"], &["worker"]),
            Self::Extended => (&["expires_at"], &[]),
            Self::Progressed => (&["lease_id", "through"], &[]),
            Self::Settled => (&["lease_id", "outcome", "parked"], &["error", "due_at"]),
            Self::Refreshed | Self::Seeded => (&[], &["object", "source"]),
            _ => (&[], &[]),
        };
        Members { present, nullable }
    }
}

impl EventDocument {
    /// An event without further members.
    #[must_use]
    pub const fn new(resource_version: u64, at: Timestamp, event: EventName) -> Self {
        Self {
            resource_version,
            at,
            event,
            by: None,
            kind: None,
            final_state_unknown: false,
            source: None,
            traceparent: None,
            lease_id: None,
            worker: None,
            expires_at: None,
            through: None,
            outcome: None,
            error: None,
            parked: false,
            due_at: None,
            object: None,
        }
    }
}

impl Serialize for EventDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("resource_version", &self.resource_version)?;
        map.serialize_entry("at", &self.at)?;
        map.serialize_entry("event", &self.event)?;
        map.serialize_entry("by", &self.by)?;
        for name in self.event.members().names() {
            match name {
                "type" => map.serialize_entry(name, &self.kind)?,
                "final_state_unknown" => map.serialize_entry(name, &self.final_state_unknown)?,
                "source" => map.serialize_entry(name, &self.source)?,
                "traceparent" => map.serialize_entry(name, &self.traceparent)?,
                "lease_id" => map.serialize_entry(name, &self.lease_id)?,
                "worker" => map.serialize_entry(name, &self.worker)?,
                "expires_at" => map.serialize_entry(name, &self.expires_at)?,
                "through" => map.serialize_entry(name, &self.through)?,
                "outcome" => map.serialize_entry(name, &self.outcome)?,
                "error" => map.serialize_entry(name, &self.error)?,
                "parked" => map.serialize_entry(name, &self.parked)?,
                "due_at" => map.serialize_entry(name, &self.due_at)?,
                "object" => map.serialize_entry(name, &self.object)?,
                _ => {}
            }
        }
        map.end()
    }
}
