//! The state of a queue in parts, as checkpoints store it and recovery reads it. The journal decides how the parts are
//! encoded.

use std::sync::Arc;

use super::config::Config;
use super::delta::Delta;
use super::event::ReplaceCounts;
use super::follow::FollowPosition;
use super::id::{Rv, Slot, Source, Token};
use super::initial::InitialList;
use super::key::Key;
use super::known::Known;
use super::lives::Life;
use super::object_version::ObjectVersion;
use super::rate_limit::BucketLevel;
use super::schedule::ScheduleState;
use super::settled::Outcome;
use super::time::Time;

/// The state of a queue without its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueState {
    /// The newest event.
    pub rv: Rv,
    /// The lives of the queue, the oldest first.
    pub lives: Vec<Life>,
    /// When that event happened.
    pub last_at: Time,
    /// The settings.
    pub config: Arc<Config>,
    /// Whether a produce or pop created the queue, and nobody configured it since.
    pub auto_created: bool,
    /// Whether delivery is paused.
    pub paused: bool,
    /// Whether the queue is closed.
    pub closed: bool,
    /// Whether pops of the closed queue end as soon as no key is ready.
    pub closes_at_once: bool,
    /// Where the queue stands with its initial list.
    pub initial: InitialList,
    /// The outcomes of the latest settled leases, oldest first.
    pub settled: Vec<(Token, Outcome)>,
    /// The level of the token bucket.
    pub bucket: Option<BucketLevel>,
    /// When the next periodic Resync is due.
    pub next_resync: Option<Time>,
    /// The latest Replace.
    pub last_replace: Option<LastReplace>,
    /// How far a follower has got; `None` before its list.
    pub followed: Option<FollowPosition>,
    /// What the sources did, by name.
    pub sources: Vec<(Source, SourceHistory)>,
    /// The versions of keys that no object has any more, the oldest first.
    pub versions: Vec<RememberedVersion>,
}

/// A version of a key that no object has any more. Later objects of the key must be newer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedVersion {
    /// The key.
    pub key: Key,
    /// The version.
    pub version: ObjectVersion,
    /// The version that counts again if the deltas that the key had then are dropped.
    pub before: Option<ObjectVersion>,
    /// The event that remembered the version.
    pub rv: Rv,
    /// When that event happened.
    pub at: Time,
}

/// What a source did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceHistory {
    /// When the last call arrived that queued a change or had a sequence, or the last Replace started.
    pub last_call: Time,
    /// The latest Replace of the source.
    pub last_replace: Option<LastReplace>,
    /// When the last Replace of the source ended that was not aborted.
    pub last_replaced: Option<Time>,
    /// The number of the last call that had a sequence.
    pub sequence: Option<u64>,
}

/// The latest Replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReplace {
    /// The source of the list.
    pub source: Option<Source>,
    /// What the Replace did.
    pub counts: ReplaceCounts,
    /// When the Replace started.
    pub started: Time,
    /// When the Replace ended, or was found to be aborted.
    pub ended: Option<Time>,
    /// Whether the Replace was aborted.
    pub aborted: bool,
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
    /// What the schedule knows of the key.
    pub schedule_state: ScheduleState,
    /// The delta of the initial list that is not acknowledged yet, if the key has one.
    pub initial_pending: Option<Rv>,
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

/// What has changed since the checkpoint before, as of one instant.
#[derive(Clone, Debug, Default)]
pub struct CheckpointChunk {
    /// Removed keys. The store must remove them before or together with writing `keys`, and after it wrote the `keys` of
    /// all earlier chunks.
    pub removed: Vec<RemovedKey>,
    /// Changed keys and their slots.
    pub keys: Vec<(Slot, KeyState)>,
    /// Whether the checkpoint has looked at all keys.
    pub ended: bool,
}
