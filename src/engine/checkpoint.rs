//! Checkpoints: copies of the state, taken a few keys at a time while the queue keeps working.
//!
//! A checkpoint begins at one event, and its chunks describe the keys as of later events, so the stored state is none
//! that the queue ever had. Replay corrects that: it starts behind the event at which the last completed checkpoint
//! began, and ignores the events that a stored key already contains.
//!
//! Invariants, over all keys and with B the event at which the last completed checkpoint began:
//! - a key without a row was created after B, so replay creates it;
//! - the row of a key that has not changed since B is up to date;
//! - the row at a slot belongs to the key at that slot, which then `has_row`, or to a key in `removed`. Each chunk contains
//!   all of `removed`, so no later row finds its slot, or its key at another slot, occupied;
//! - a key that is removed during a checkpoint is in `removed` even without a row: after that checkpoint, replay may start
//!   at an event of this key.

use std::num::NonZero;

use super::delta::Rv;
use super::queue::Queue;
use super::schedule::Slot;
use super::snapshot::{CheckpointChunk, KeyState, QueueState, RemovedKey};
use super::table::Entry;

/// Approximate size of a settled lease in a checkpoint, in bytes.
const SETTLED_BYTES: usize = 16;

/// What the checkpoints of a queue contain, and what the next one must add.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// Whether the queue has a journal. Without one, `removed` would only grow.
    pub(super) journaled: bool,
    /// The event at which the last completed checkpoint began; 0 before the first one.
    pub(super) begun: Rv,
    pub(super) running: Option<Running>,
    /// Keys that were removed since the last chunk, oldest first.
    pub(super) removed: Vec<RemovedKey>,
    /// The size of all keys, as of the last completed checkpoint.
    pub(super) key_bytes: u64,
}

/// A checkpoint that is not completed.
#[derive(Debug)]
pub(super) struct Running {
    begun: Rv,
    /// The next slot to examine.
    next: usize,
    /// Number of slots at the beginning of the checkpoint; keys in later slots are newer.
    end: usize,
    key_bytes: u64,
}

impl Checkpoints {
    /// Records that the entry was removed from the table.
    pub(super) fn note_removed(&mut self, entry: Entry, slot: Slot, rv: Rv) {
        if self.journaled && (entry.has_row || self.running.is_some()) {
            self.removed.push(RemovedKey { key: entry.key, slot, rv });
        }
    }
}

impl Queue {
    /// Makes the queue record what checkpoints need, from now on. A restored queue does so from the beginning.
    pub fn journaled(&mut self) {
        self.checkpoints.journaled = true;
    }

    /// The state of the queue without its keys.
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

    /// Begins a checkpoint and returns the state of the queue. The store must write this state after all chunks of the
    /// checkpoint, because replay starts at the event of this state.
    pub fn begin_checkpoint(&mut self) -> QueueState {
        let (begun, end) = (self.rv, self.table.slots());
        self.checkpoints.running = Some(Running { begun, next: 0, end, key_bytes: 0 });
        self.queue_state()
    }

    /// The next chunk of the running checkpoint: all keys that were removed since the last chunk, and up to `rows` keys
    /// that have changed since the previous checkpoint, among up to `looks` slots. A key with many deltas counts as many
    /// rows; a chunk may always contain one key.
    ///
    /// The store must write the chunks in order, after the events that they contain, and the removed keys of a chunk
    /// before or together with its rows. A key that a later chunk removes may have a row in an earlier one; the removal
    /// must not be written before that row, not even in the same transaction.
    pub fn capture(&mut self, rows: usize, looks: usize) -> CheckpointChunk {
        let removed = std::mem::take(&mut self.checkpoints.removed);
        let mut keys = Vec::new();
        let since = self.checkpoints.begun;
        let Some(running) = &mut self.checkpoints.running else {
            return CheckpointChunk { removed, keys, ended: true };
        };
        // The table may have become smaller: it releases all slots when its last key is removed.
        let end = running.end.min(self.table.slots());
        let stop = running.next.saturating_add(looks).min(end);
        let mut left = rows;
        while running.next < stop && left > 0 {
            let slot = running.next;
            running.next += 1;
            let Ok(slot) = Slot::try_from(slot) else { continue };
            let Some(entry) = self.table.at_mut(slot) else { continue };
            running.key_bytes += entry.stored_bytes();
            if entry.changed > since {
                left = left.saturating_sub((entry.waiting.len() + entry.leased.len()).max(1));
                keys.push((slot, entry.state()));
                entry.has_row = true;
            }
        }
        CheckpointChunk { removed, keys, ended: running.next >= end }
    }

    /// The running checkpoint is complete: the store has written all chunks and the state at the beginning.
    pub fn end_checkpoint(&mut self) {
        if let Some(running) = self.checkpoints.running.take() {
            self.checkpoints.begun = running.begun;
            self.checkpoints.key_bytes = running.key_bytes;
        }
    }

    /// Approximate size of the state in bytes: keys, objects and settled leases, as of the last completed checkpoint or
    /// of recovery.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let settled = self.settled.len() * SETTLED_BYTES;
        self.checkpoints.key_bytes + settled as u64
    }
}

impl Entry {
    /// A copy of the key's state.
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

    /// Size of the key and its objects in bytes.
    pub(super) fn stored_bytes(&self) -> u64 {
        let known = self.known.as_ref().map_or(0, |known| known.object.bytes());
        let objects = known + self.waiting.bytes() + self.leased.bytes();
        (self.key.as_str().len() + objects) as u64
    }
}
