//! The data of a queue that its events do not contain.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::checkpoint::Checkpoints;
use super::comparison::Comparison;
use super::effects::Effects;
use super::feed::Feeds;
use super::id::{Rv, Sequence, Token};
use super::indexes::Indexes;
use super::job::{ReplaceJob, Seeding};
use super::key::Key;
use super::room::Room;
use super::time::Time;

/// The part of a queue that is lost at a restart. A rebuilt queue begins with the default.
#[derive(Debug)]
pub(super) struct Volatile {
    /// The time of the latest command.
    pub(super) now: Time,
    /// Effects that the caller has not taken yet.
    pub(super) effects: Effects,
    /// Events up to this number are durable. A lease with a larger number does not expire.
    pub(super) committed: Rv,
    /// What the checkpoints contain, and what the next one must add.
    pub(super) checkpoints: Checkpoints,
    /// The change feeds that have readers.
    pub(super) feeds: Feeds,
    /// The indexes of the known objects.
    pub(super) indexes: Indexes,
    /// Accepted Replaces that have not ended. The first one is running.
    pub(super) replace_jobs: VecDeque<ReplaceJob>,
    /// The number of the last Replace.
    pub(super) last_job: u64,
    /// The running seed.
    pub(super) seeding: Option<Seeding>,
    /// The sequence that the next event carries. Set only inside a command.
    pub(super) sequence: Option<Sequence>,
    /// The token of the call that the next events belong to.
    pub(super) caller: Option<Arc<str>>,
    /// Leases of this life that a repeated pop was answered with, or whose worker has acknowledged a part. Some of them may have ended.
    pub(super) repeated: HashSet<Token>,
    /// Leases for whose first newer change a caller waits.
    pub(super) watched_leases: HashSet<Token>,
    /// The memory that the next commands may take.
    pub(super) room: Room,
    /// The comparison for the next calls of producers.
    pub(super) comparison: Option<Arc<Comparison>>,
}

impl Volatile {
    /// Records that the queue no longer has a key.
    pub(super) fn note_left(&mut self, key: &Key) {
        self.replace_jobs.iter_mut().for_each(|job| job.note_left(key));
    }

    /// The bytes of the objects that accepted Replaces and a running seed have not queued yet.
    pub(super) fn listed_bytes(&self) -> usize {
        let seeding = self.seeding.as_ref().map_or(0, |seeding| seeding.held_bytes);
        seeding + self.replace_jobs.iter().map(|job| job.held_bytes).sum::<usize>()
    }

    /// Number of keys that accepted Replaces and a running seed may still add.
    pub(super) fn reserved(&self) -> usize {
        let seeding = self.seeding.as_ref().map_or(0, |seeding| seeding.reserved);
        seeding + self.replace_jobs.iter().map(|job| job.reserved).sum::<usize>()
    }
}

impl Default for Volatile {
    fn default() -> Self {
        Self {
            now: Time::default(),
            effects: Effects::default(),
            // A queue without a journal has no commits to wait for.
            committed: Rv::MAX,
            checkpoints: Checkpoints::default(),
            feeds: Feeds::default(),
            indexes: Indexes::default(),
            replace_jobs: VecDeque::new(),
            last_job: 0,
            seeding: None,
            sequence: None,
            caller: None,
            watched_leases: HashSet::new(),
            repeated: HashSet::new(),
            room: Room::default(),
            comparison: None,
        }
    }
}
