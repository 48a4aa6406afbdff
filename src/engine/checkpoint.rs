//! Checkpoints: copies of the state, taken a few keys at a time while the queue goes on.
//!
//! A checkpoint begins at one event and its slices are as of later ones, so what it stores is no state
//! that the queue ever was in. Recovery makes it whole: replay starts behind the event at which the
//! last completed checkpoint began, and passes over what a stored key has seen already.
//!
//! Invariants, over all keys and with B the event at which the last completed checkpoint began:
//! - a key that has no row came into being after B: replay makes it;
//! - a key that has not changed since B has its newest row;
//! - the row at a slot is of the key that is there and `stored`, or of one in `gone`. Each slice brings
//!   all of `gone`, so no later row finds the slot, or its key at another slot, taken;
//! - a key that went while a checkpoint runs is in `gone` though it has no row: that checkpoint will
//!   have replay start at an event that the key may have lived to see.

use std::num::NonZero;

use super::delta::Rv;
use super::queue::Queue;
use super::schedule::Slot;
use super::snapshot::{CheckpointChunk, Gone, KeyState, QueueState};
use super::table::Entry;

/// What a settled lease takes in a checkpoint, in bytes, as a rough guess.
const SETTLED_BYTES: usize = 16;

/// What the checkpoints of a queue have, and what they miss.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// Whether there are any. Without, nobody would ever take what is in `gone`.
    pub(super) journaled: bool,
    /// Where the last completed one began; 0 before the first one.
    pub(super) begun: Rv,
    pub(super) running: Option<Running>,
    /// Keys that are gone since the last slice, oldest first.
    pub(super) gone: Vec<Gone>,
    /// What all keys took when a checkpoint was over them last.
    pub(super) key_bytes: u64,
}

/// A checkpoint that is not completed.
#[derive(Debug)]
pub(super) struct Running {
    begun: Rv,
    /// The next slot to look at.
    next: usize,
    /// The slots that there were when it began; keys in others are newer.
    end: usize,
    key_bytes: u64,
}

impl Checkpoints {
    /// A key has left the queue and its slot, of which the checkpoints have a row or not.
    pub(super) fn note_gone(&mut self, entry: Entry, slot: Slot, rv: Rv) {
        if self.journaled && (entry.has_row || self.running.is_some()) {
            self.gone.push(Gone { key: entry.key, slot, rv });
        }
    }
}

impl Queue {
    /// From now on the queue keeps track of what checkpoints need. A restored queue does anyway.
    pub fn journaled(&mut self) {
        self.checkpoints.journaled = true;
    }

    /// All that is not about one key.
    #[must_use]
    pub fn queue_state(&self) -> QueueState {
        QueueState {
            rv: self.rv,
            last_at: self.last_at,
            config: self.config.clone(),
            auto_created: self.auto_created,
            populated: self.populated,
            paused: self.paused,
            closed: self.closed,
            initial: self.initial,
            settled: self.settled.iter().collect(),
            bucket: self.bucket,
            next_resync: self.next_resync,
            last_replace: self.last_replace.clone(),
        }
    }

    /// Begins a checkpoint, as of now. The state that it answers may be written when all slices of it
    /// are, not before: replay starts at its event.
    pub fn begin_checkpoint(&mut self) -> QueueState {
        let (begun, end) = (self.rv, self.table.slots());
        self.checkpoints.running = Some(Running { begun, next: 0, end, key_bytes: 0 });
        self.queue_state()
    }

    /// The next part of the running checkpoint, as of now: all keys that are gone since the last part,
    /// and up to `rows` keys that have changed since the checkpoint before, found by a look at up to
    /// `looks` slots. A key with many deltas counts as many rows; one key is always taken.
    ///
    /// The parts are to be written in their order, the gone keys of each before or with its rows, and
    /// none before the events that it is as of. What is gone in a later part may have a row in an
    /// earlier one: it must not be written before that row, not in one transaction either.
    pub fn capture(&mut self, rows: usize, looks: usize) -> CheckpointChunk {
        let gone = std::mem::take(&mut self.checkpoints.gone);
        let mut keys = Vec::new();
        let since = self.checkpoints.begun;
        let Some(running) = &mut self.checkpoints.running else {
            return CheckpointChunk { gone, keys, ended: true };
        };
        // The table may have become smaller: it lets go of all slots when the last key is gone.
        let end = running.end.min(self.table.slots());
        let stop = running.next.saturating_add(looks).min(end);
        let mut left = rows;
        while running.next < stop && left > 0 {
            let slot = Slot::try_from(running.next).unwrap_or(Slot::MAX);
            running.next += 1;
            let Some(entry) = self.table.at_mut(slot) else { continue };
            running.key_bytes += entry.stored_bytes();
            if entry.changed > since {
                left = left.saturating_sub((entry.waiting.len() + entry.leased.len()).max(1));
                keys.push((slot, entry.state()));
                entry.has_row = true;
            }
        }
        CheckpointChunk { gone, keys, ended: running.next >= end }
    }

    /// The running checkpoint is complete: all its parts and the state at its beginning are written.
    pub fn end_checkpoint(&mut self) {
        if let Some(running) = self.checkpoints.running.take() {
            self.checkpoints.begun = running.begun;
            self.checkpoints.key_bytes = running.key_bytes;
        }
    }

    /// About how many bytes the state has: its keys and their objects, and what settled leases leave
    /// behind; as of the last checkpoint that was completed, or of recovery.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let settled = self.settled.len() * SETTLED_BYTES;
        self.checkpoints.key_bytes + settled as u64
    }
}

impl Entry {
    /// A copy of all that is of the key.
    pub(super) fn state(&self) -> KeyState {
        KeyState {
            key: self.key.clone(),
            rv: self.changed,
            known: self.known.as_deref().cloned(),
            waiting: self.waiting.to_vec(),
            leased: self.leased.to_vec(),
            schedule_state: self.schedule_state.clone(),
            initial_pending: self.initial_pending.map(NonZero::get),
        }
    }

    /// Bytes of the key and of its objects.
    pub(super) fn stored_bytes(&self) -> u64 {
        let known = self.known.as_ref().map_or(0, |known| known.object.bytes());
        let objects = known + self.waiting.bytes() + self.leased.bytes();
        (self.key.as_str().len() + objects) as u64
    }
}
