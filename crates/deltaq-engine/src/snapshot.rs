//! The state of a queue in parts, as checkpoints store it and recovery reads it. The JSON of a queue's state is
//! derived, like that of events. The journal decides how the state of a key is encoded.

use std::sync::Arc;

use deltaq_types::PauseReason;
use serde::{Deserialize, Serialize};

use super::birth::Birth;
use super::config::Config;
use super::deliveries::{KeptDelivery, ReceivedDelivery};
use super::delta::Delta;
use super::event::ReplaceCounts;
use super::follow::FollowPosition;
use super::id::{Rv, Slot, Source};
use super::initial::InitialList;
use super::key::Key;
use super::known::Known;
use super::lives::Life;
use super::object_version::ObjectVersion;
use super::omit::is_default;
use super::rate::RateDebt;
use super::rate_limit::BucketLevel;
use super::schedule::{GroupsState, ScheduleState};
use super::time::Time;

pub use super::settled::SettledLeases;
pub use super::stale_after::StaleAfter;

/// The state of a queue without its keys. Its JSON is the content of a queue's row; `rv` has a column of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueState {
    /// The newest event.
    #[serde(skip)]
    pub rv: Rv,
    /// The lives of the queue, the oldest first.
    pub lives: Vec<Life>,
    /// When the newest event happened.
    pub last_at: Time,
    /// Whether a produce call created the queue and it has not been configured since.
    pub auto_created: bool,
    /// The name of the token that created the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creator: Option<Arc<str>>,
    /// Whether delivery is paused.
    pub paused: bool,
    /// Nothing is delivered before this time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub held_until: Time,
    /// Why the queue has paused itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<PauseReason>,
    /// Whether the queue is closed.
    pub closed: bool,
    /// Whether pops of the closed queue end as soon as no key is ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub closes_at_once: bool,
    /// The progress of the queue's initial list.
    pub initial: InitialList,
    /// The level of the token bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketLevel>,
    /// What the queue owes to its rate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub debt: RateDebt,
    /// The accounts of the groups. `None` without the setting `groups`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Box<GroupsState>>,
    /// When the next periodic Resync is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_resync: Option<Time>,
    /// The latest Replace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_replace: Option<LastReplace>,
    /// The position of a follower; `None` before its list has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub followed: Option<FollowPosition>,
    /// The name of the token that has set what the queue follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_set_by: Option<Arc<str>>,
    /// The histories of the sources, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceRecord>,
    /// The remembered versions, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<RememberedVersion>,
    /// The remembered ids of deliveries, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received: Vec<ReceivedDelivery>,
    /// The kept deliveries, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptDelivery>,
    /// The event that has set the view that clients of Kubernetes read. Keys of the view without a birth were born with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub births_since: Option<Birth>,
    /// The settings.
    pub config: Arc<Config>,
    /// The outcomes of the latest settled leases.
    pub settled: SettledLeases,
}

/// A version of a key that no object has any more. Later objects of the key must be newer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedVersion {
    /// The event that remembered the version.
    pub rv: Rv,
    /// When that event happened.
    pub at: Time,
    /// The key.
    pub key: Key,
    /// The version.
    pub version: ObjectVersion,
    /// The version that becomes valid again if the deltas that the key had at that event are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<ObjectVersion>,
}

/// A source and its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The source's name.
    pub source: Source,
    /// The history of the source.
    #[serde(flatten)]
    pub history: SourceHistory,
}

/// The history of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceHistory {
    /// When the last call that queued a change or had a sequence arrived, or when the last Replace started; 0 if there was
    /// none.
    pub last_call: Time,
    /// When the source was last in contact, as far as an event says so; 0 before the first contact. `None` in a store that was
    /// written before this field, and for a source that has only a threshold or a number: see [`contact`](Self::contact).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact: Option<Time>,
    /// How long the source may be silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_after: Option<StaleAfter>,
    /// The latest Replace of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_replace: Option<LastReplace>,
    /// When the last completed Replace of the source ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_replaced: Option<Time>,
    /// The number of the last call that had a sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The token of the call since which the queue remembers the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
}

impl SourceHistory {
    /// When the source was last in contact, as far as an event says so.
    #[must_use]
    pub fn contact(&self) -> Option<Time> {
        let known = self.last_contact.or_else(|| Some(self.last_call).max(self.last_replaced));
        known.filter(|at| *at > Time::default())
    }

    /// Whether the source is silent for longer than it may be, if its last contact was at `contact`; `None` without a threshold.
    #[must_use]
    pub fn is_stale(&self, contact: Option<Time>, now: Time) -> Option<bool> {
        let StaleAfter { longest, since, .. } = self.stale_after?;
        Some(now.since(contact.unwrap_or(since)) > longest)
    }
}

/// The latest Replace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastReplace {
    /// The source of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// When the Replace started.
    pub started: Time,
    /// When the Replace ended, or was found to be aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// Whether the Replace was aborted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub aborted: bool,
    /// What the Replace did.
    pub counts: ReplaceCounts,
}

/// The state of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyState {
    /// The key.
    pub key: Key,
    /// The newest event of the key.
    pub rv: Rv,
    /// The newest event that changed the key's newest object or its absence.
    pub latest_rv: Rv,
    /// The last acknowledged object.
    pub known: Option<Known>,
    /// Deltas that are not leased, oldest first.
    pub waiting: Vec<Delta>,
    /// Deltas that a worker holds, oldest first.
    pub leased: Vec<Delta>,
    /// The key's state in the schedule.
    pub schedule_state: ScheduleState,
    /// The delta of the initial list that is not acknowledged yet, if the key has one.
    pub initial_pending: Option<Rv>,
    /// The group of the key; `None` for the group without a name, and in a queue without groups.
    pub group: Option<Arc<str>>,
    /// When the key entered the view that clients of Kubernetes read; `None` if it was there before the setting `kubernetes`.
    pub birth: Option<Birth>,
}

impl KeyState {
    /// The owner of the key's newest state: waiting, else leased, else known.
    #[must_use]
    pub fn owner(&self) -> Option<&Source> {
        match self.waiting.last().or_else(|| self.leased.last()) {
            Some(delta) => delta.provenance.owner(),
            None => self.known.as_ref()?.owner.as_ref(),
        }
    }
}

/// A key that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedKey {
    /// The key.
    pub key: Key,
    /// The slot that the key had.
    pub slot: Slot,
    /// The event that removed the key.
    pub rv: Rv,
}

/// What has changed since the previous checkpoint, as of one instant.
#[derive(Clone, Debug, Default)]
pub struct CheckpointChunk {
    /// Removed keys. They come after the `keys` of all earlier chunks, and before this chunk's `keys`.
    pub removed: Vec<RemovedKey>,
    /// Changed keys and their slots.
    pub keys: Vec<(Slot, KeyState)>,
    /// Whether the checkpoint has examined all keys.
    pub ended: bool,
}
