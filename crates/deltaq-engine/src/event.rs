//! Everything that can happen to a queue. A queue changes only by applying events.
//!
//! The journal stores an event as one JSON object. The types of this module derive its form:
//!
//! ```json
//! {"rv":1042,"at":1763704800000000,"type":"appended","data":{"key":"sku-1","delta":"Added","object":{}}}
//! ```
//!
//! The form follows these rules:
//! - The views that the key entered or left come last: `"latest":"entered"`, with the birth of a key that left the view of
//!   Kubernetes. They are followed by the sequence of the call, which any event of a produce call may carry: `"sequence":{"source":"erp","number":7}`.
//! - `rv`, `at` and `type` come first, in this order, so that the payload can be read without copying it.
//! - Instants are whole microseconds since the Unix epoch.
//! - A field that has its default value is left out.
//! - An object is the text that the producer sent.
//! - A reader ignores unknown fields, so an optional field can be added without a new format version. The field
//!   belongs in the envelope if any event may carry it, otherwise in the payload. A new event type needs a new format
//!   version, and so does a field that changes the meaning of another field.
//!
//! To add an event: add its variant (and a payload struct if it has more than one or two fields), list its key in
//! [`EventKind::key`], apply it in `apply.rs`, and add its rules to the invariants and to the model in the tests.

mod ending;
mod read;

use std::sync::Arc;

use deltaq_types::PauseReason;
use serde::{Deserialize, Serialize};

pub use self::ending::{Disposition, Ending, Failure};
use super::config::Config;
use super::deliveries::{DeliveryId, UnappliedDelivery};
use super::delta::{DeltaKind, Provenance};
use super::follow::FollowPosition;
use super::id::{Rv, Sequence, Source, Token, Worker};
use super::key::Key;
use super::lives::LifeId;
use super::object::Object;
use super::object_version::ObjectVersion;
use super::omit::is_default;
pub use super::schedule::Charged;
use super::schedule::{HeadStart, Window};
use super::snapshot::StaleAfter;
use super::time::Time;
pub use super::view::ViewChanges;

/// A change to a queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// The event's number: the number of the previous event plus one, except for `Recovered`.
    pub rv: Rv,
    /// When the event happened; never earlier than the previous event.
    pub at: Time,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
    /// The views that the key entered or left. This follows from the earlier events. It is stored for readers of the
    /// journal that do not have those events.
    #[serde(flatten)]
    pub views: ViewChanges,
    /// The sequence of the call that caused the event. The first event of a produce call and the end of a Replace carry it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
}

/// What happened to a queue, and to which key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum EventKind {
    /// A delta was queued.
    Appended(Appended),
    /// Mode keys: the key was added.
    Queued(Queued),
    /// Mode keys, closed: a rate-limited add was ignored, but counts as a failure.
    Failed {
        /// The key.
        key: Key,
    },
    /// Mode latest: a key that no consumer has seen was deleted.
    Dropped {
        /// The key.
        key: Key,
        /// The call that deleted the key.
        #[serde(default, skip_serializing_if = "is_default")]
        origin: Origin,
    },
    /// The key's newest object was replaced by one of which only ignored members differ.
    Refreshed {
        /// The key.
        key: Key,
        /// The producer of the object, and the owner of the key.
        #[serde(default, skip_serializing_if = "is_default")]
        provenance: Provenance,
        /// The object.
        object: Object,
    },
    /// Another source now owns the key's newest state.
    TakenOver {
        /// The key.
        key: Key,
        /// The new owner.
        owner: Source,
    },
    /// The key belongs to another group from now on. The event follows that of the change that names the group.
    Grouped {
        /// The key.
        key: Key,
        /// The group; `None` for the group without a name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<Arc<str>>,
    },
    /// The key was leased to a worker with all its waiting deltas. The event's number is the fencing token.
    Leased(Leased),
    /// The lease got a new deadline.
    Extended {
        /// The key.
        key: Key,
        /// When the lease expires now.
        deadline: Time,
    },
    /// The worker acknowledged the older ones of the leased deltas: they become known, and the failures are reset. The lease goes on
    /// with the others.
    Progressed {
        /// The key.
        key: Key,
        /// The lease.
        token: Token,
        /// The newest acknowledged delta.
        through: Rv,
    },
    /// The lease ended.
    Settled {
        /// The key.
        key: Key,
        /// The lease.
        token: Token,
        /// How the lease ended.
        ending: Ending,
    },
    /// A delay, a backoff or a debounce window ended.
    DelayElapsed {
        /// The key.
        key: Key,
    },
    /// The key's failures are forgotten.
    Forgotten {
        /// The key.
        key: Key,
    },
    /// An operator made a parked key ready again.
    Redriven {
        /// The key.
        key: Key,
    },
    /// An operator dropped the deltas that waited for the key.
    Removed {
        /// The key.
        key: Key,
        /// Whether the remembered version of the key remains valid, because it is not the version of a dropped delta.
        #[serde(default, skip_serializing_if = "is_default")]
        keeps_version: bool,
    },
    /// A version of the key that no object has is remembered. Later objects of the key must be newer. A seed of the
    /// key clears the version, and so does a `Removed` that drops a delta with this version.
    VersionRemembered {
        /// The key.
        key: Key,
        /// The version.
        version: ObjectVersion,
        /// The version that becomes valid again if the current deltas of the key are dropped.
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<ObjectVersion>,
    },
    /// The object became known without a delta.
    Seeded {
        /// The key.
        key: Key,
        /// The new owner of the key.
        #[serde(skip_serializing_if = "Option::is_none")]
        owner: Option<Source>,
        /// The object.
        object: Object,
    },
    /// The queue counts as populated.
    Populated,
    /// The settings changed.
    Configured {
        /// All settings.
        config: Arc<Config>,
        /// The name of the token that has set what the queue follows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        follow_set_by: Option<Arc<str>>,
        /// Whether keys have to be moved to other groups from now on.
        #[serde(default, skip_serializing_if = "is_default")]
        regroups: bool,
    },
    /// All keys have been moved to the groups that the settings name, as far as there was room for them.
    Regrouped,
    /// No key is delivered until `Resumed`.
    Paused,
    /// The queue has paused itself: no key is delivered until `Resumed`.
    PausedItself {
        /// Why.
        reason: PauseReason,
    },
    /// Keys are delivered again: neither a pause nor a hold stops delivery.
    Resumed,
    /// No key is delivered before this time, because a worker asked for it. A hold only replaces one that ends earlier.
    Held {
        /// When the hold ends.
        until: Time,
    },
    /// No key of this group is delivered until `GroupResumed`.
    GroupPaused {
        /// The group; `None` for the group without a name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<Arc<str>>,
    },
    /// Keys of this group are delivered again: neither a pause nor a hold of it stops delivery.
    GroupResumed {
        /// The group; `None` for the group without a name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<Arc<str>>,
    },
    /// No key of this group is delivered before this time, because a worker asked for it. A hold only replaces one that ends earlier.
    GroupHeld {
        /// The group; `None` for the group without a name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<Arc<str>>,
        /// When the hold ends.
        until: Time,
    },
    /// The queue begins to drain.
    Closed {
        /// Whether pops end as soon as no key is ready, without waiting for leases and delays.
        #[serde(default, skip_serializing_if = "is_default")]
        at_once: bool,
    },
    /// The queue no longer drains.
    Reopened,
    /// A periodic Resync began.
    ResyncDue,
    /// The queue was loaded from its journal, and a new life of the queue began. The event numbers skip ahead so that
    /// no number is used twice.
    Recovered {
        /// The life.
        life: LifeId,
    },
    /// A Replace was accepted.
    ReplaceStarted {
        /// The source of the list.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<Source>,
        /// Whether the Replace brings the initial list.
        #[serde(default, skip_serializing_if = "is_default")]
        first: bool,
    },
    /// A Replace ended or was aborted by a crash.
    ReplaceEnded(ReplaceEnded),
    /// A follower has applied everything up to a position in the followed queue.
    Followed {
        /// The position.
        position: FollowPosition,
    },
    /// A delivery of a webhook or a CloudEvent was applied. The event follows those of its changes.
    DeliveryReceived {
        /// The id of the delivery.
        id: DeliveryId,
    },
    /// A delivery that could not be applied is kept. The event's number is its number.
    DeliveryKept {
        /// The delivery.
        delivery: Arc<UnappliedDelivery>,
    },
    /// A kept delivery was discarded, or was applied after all.
    DeliveryDropped {
        /// The number of the delivery.
        number: Rv,
    },
    /// An operator set the last sequence number of a source.
    Renumbered {
        /// The source.
        source: Source,
        /// The number; `None` forgets it.
        #[serde(skip_serializing_if = "Option::is_none")]
        sequence: Option<u64>,
    },
    /// Sources were in contact since the last event that says so. One event has the contacts of about a minute.
    SourcesReached {
        /// The sources, each with its last contact.
        contacts: Vec<SourceContact>,
    },
    /// A source got another threshold.
    SourceConfigured {
        /// The source.
        source: Source,
        /// How long the source may be silent; `None` for no threshold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stale_after: Option<StaleAfter>,
    },
}

/// The last contact of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceContact {
    /// The source.
    pub source: Source,
    /// When it was in contact.
    pub at: Time,
}

/// A delta was queued.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Appended {
    /// The key.
    pub key: Key,
    /// The delta's type.
    pub delta: DeltaKind,
    /// Whether the delta is a tombstone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub final_state_unknown: bool,
    /// The call that queued the delta.
    #[serde(default, skip_serializing_if = "is_default")]
    pub origin: Origin,
    /// The delta's producer and the new owner of the key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub provenance: Provenance,
    /// When the key may be delivered; `None` means at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Due>,
    /// How much earlier the change counts as arrived.
    #[serde(default, skip_serializing_if = "HeadStart::is_none")]
    pub head_start: HeadStart,
    /// The object.
    pub object: Object,
}

/// When a change that is not delivered at once is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Due {
    /// At this time.
    At(Time),
    /// At the end of the debounce window of its key. The window includes this change.
    Window(Box<Window>),
}

impl Due {
    /// When the change is due, unless a later change prolongs its window.
    #[must_use]
    pub fn time(&self) -> Time {
        match self {
            Self::At(at) => *at,
            Self::Window(window) => window.due(),
        }
    }
}

/// Mode keys: the key was added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// The key.
    pub key: Key,
    /// When the key may be delivered; `None` means at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Due>,
    /// How much earlier the change counts as arrived.
    #[serde(default, skip_serializing_if = "HeadStart::is_none")]
    pub head_start: HeadStart,
    /// Whether the call counts as a failure (`AddRateLimited`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate_limited: bool,
}

/// A key was leased to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leased {
    /// The key.
    pub key: Key,
    /// When the lease expires.
    pub deadline: Time,
    /// The worker, if the pop named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
    /// The pop's id, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pop_id: Option<Arc<str>>,
    /// What the group of the key is charged for; `None` in a queue without groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<Box<Charged>>,
}

/// A Replace ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplaceEnded {
    /// The source of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Whether the Replace brought the initial list.
    #[serde(default, skip_serializing_if = "is_default")]
    pub first: bool,
    /// Whether the Replace was aborted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub aborted: bool,
    /// What the Replace did.
    pub counts: ReplaceCounts,
}

impl EventKind {
    /// The key that the event concerns; `None` if the event concerns only the queue.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Appended(Appended { key, .. })
            | Self::Queued(Queued { key, .. })
            | Self::Failed { key }
            | Self::Dropped { key, .. }
            | Self::Refreshed { key, .. }
            | Self::TakenOver { key, .. }
            | Self::Grouped { key, .. }
            | Self::Leased(Leased { key, .. })
            | Self::Extended { key, .. }
            | Self::Progressed { key, .. }
            | Self::Settled { key, .. }
            | Self::DelayElapsed { key }
            | Self::Forgotten { key }
            | Self::Redriven { key }
            | Self::Removed { key, .. }
            | Self::VersionRemembered { key, .. }
            | Self::Seeded { key, .. } => Some(key),
            Self::Populated
            | Self::Configured { .. }
            | Self::Regrouped
            | Self::Paused
            | Self::PausedItself { .. }
            | Self::GroupPaused { .. }
            | Self::GroupResumed { .. }
            | Self::GroupHeld { .. }
            | Self::Resumed
            | Self::Held { .. }
            | Self::Closed { .. }
            | Self::Reopened
            | Self::ResyncDue
            | Self::DeliveryReceived { .. }
            | Self::DeliveryKept { .. }
            | Self::DeliveryDropped { .. }
            | Self::Recovered { .. }
            | Self::ReplaceStarted { .. }
            | Self::ReplaceEnded(_)
            | Self::Followed { .. }
            | Self::Renumbered { .. }
            | Self::SourcesReached { .. }
            | Self::SourceConfigured { .. } => None,
        }
    }

    /// Whether the object that the event carries may be older than the key's last state.
    #[must_use]
    pub const fn is_final_state_unknown(&self) -> bool {
        matches!(self, Self::Appended(Appended { final_state_unknown: true, .. }))
    }

    /// The object that the event carries.
    #[must_use]
    pub fn object(&self) -> Option<&Object> {
        match self {
            Self::Appended(Appended { object, .. })
            | Self::Refreshed { object, .. }
            | Self::Seeded { object, .. } => Some(object),
            _ => None,
        }
    }
}

/// The call that queued or dropped a delta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A producer's Add, Update or Delete, which populates the queue.
    #[default]
    Call,
    /// A Replace that does not bring the initial list.
    Replace,
    /// The Replace that brings the initial list.
    InitialReplace,
    /// A Resync. Its delta is not a new change.
    Resync,
}

impl Origin {
    /// The origin of a Replace. If `initial` is true, the Replace brings the initial list.
    #[must_use]
    pub const fn replace(initial: bool) -> Self {
        if initial { Self::InitialReplace } else { Self::Replace }
    }
}

/// What a Replace did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaceCounts {
    /// Objects of the list that were queued.
    pub replaced: u64,
    /// Keys that were not in the list and were deleted.
    pub deleted: u64,
    /// Objects that equal the newest state and were not queued.
    pub unchanged: u64,
    /// Objects that were skipped because their key had a call since the Replace was accepted.
    pub skipped: u64,
    /// Keys that belonged to another source before.
    pub taken_over: u64,
    /// Objects that were not newer than the newest state of their key, according to the setting `version`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stale: u64,
}
