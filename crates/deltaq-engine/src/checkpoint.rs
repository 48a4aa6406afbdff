//! Checkpoints: copies of the state, taken a few keys at a time while the queue keeps working.
//!
//! A checkpoint begins at one event, but its chunks describe the keys as of later events. The stored state is
//! therefore not a state that the queue ever had. Replay corrects this: it starts after the event at which the last
//! completed checkpoint began, and ignores events that a stored key already contains.
//!
//! Invariants, for all keys, where B is the event at which the last completed checkpoint began:
//! - a key without a row was created after B, so replay creates it;
//! - the row of a key that has not changed since B is up to date;
//! - the row at a slot belongs either to the key at that slot, which is then in `rows`, or to a key in `removed`.
//!   Each chunk contains all of `removed`, so a later row never finds its slot occupied, or its key at another slot;
//! - a key that is removed during a checkpoint is in `removed` even without a row: after that checkpoint, replay may start
//!   at an event of this key.

use super::id::{Rv, Slot};
use super::key::Key;
use super::snapshot::{CheckpointChunk, KeyState, RemovedKey};
use super::state::State;
use super::table::Entry;

/// What the checkpoints of a queue contain, and what the next one must add.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// Whether the queue has a journal. Without a journal, nothing is recorded in `removed`, because nothing would
    /// ever clear it.
    pub(super) journaled: bool,
    /// The event at which the last completed checkpoint began; 0 before the first one.
    pub(super) begun: Rv,
    running: Option<Running>,
    /// The slots whose key has a row. The row may be outdated.
    rows: SlotSet,
    /// Keys that were removed since the last chunk, oldest first.
    pub(super) removed: Vec<RemovedKey>,
    /// The size of all keys, as of the last completed checkpoint.
    pub(super) key_bytes: u64,
}

/// A checkpoint in progress.
#[derive(Debug)]
pub(super) struct Running {
    begun: Rv,
    /// The next slot to examine.
    next: usize,
    /// Number of slots when the checkpoint began; keys in later slots are newer.
    end: usize,
    key_bytes: u64,
}

impl Checkpoints {
    /// The checkpoints of a queue that was restored from this state and these rows.
    pub(super) fn restored(begun: Rv) -> Self {
        Self { journaled: true, begun, ..Self::default() }
    }

    /// Whether the key at this slot has a row.
    pub(super) fn has_row(&self, slot: Slot) -> bool {
        self.rows.contains(slot)
    }

    /// Records that the key at this slot has a row.
    pub(super) fn note_row(&mut self, slot: Slot) {
        self.rows.insert(slot);
    }

    /// Records that the key was removed from its slot.
    pub(super) fn note_removed(&mut self, key: Key, slot: Slot, rv: Rv) {
        let had_row = self.rows.remove(slot);
        if self.journaled && (had_row || self.running.is_some()) {
            self.removed.push(RemovedKey { key, slot, rv });
        }
    }

    /// Begins a checkpoint.
    pub(super) fn begin(&mut self, state: &State) {
        self.running = Some(Running { begun: state.rv, next: 0, end: state.table.slots(), key_bytes: 0 });
    }

    /// The next chunk of the running checkpoint.
    pub(super) fn capture(&mut self, state: &State, rows: usize, looks: usize) -> CheckpointChunk {
        let removed = std::mem::take(&mut self.removed);
        let mut keys = Vec::new();
        let Some(running) = &mut self.running else {
            return CheckpointChunk { removed, keys, ended: true };
        };
        // The table may have shrunk: it releases all slots when its last key is removed.
        let end = running.end.min(state.table.slots());
        let stop = running.next.saturating_add(looks).min(end);
        let mut left = rows;
        while running.next < stop && left > 0 {
            let slot = Slot::at(running.next);
            running.next += 1;
            let Some(slot) = slot else { continue };
            let Some(entry) = state.table.at(slot) else { continue };
            running.key_bytes += entry.stored_bytes();
            if entry.changed > self.begun {
                left = left.saturating_sub((entry.waiting.len() + entry.leased.len()).max(1));
                keys.push((slot, entry.state()));
                self.rows.insert(slot);
            }
        }
        CheckpointChunk { removed, keys, ended: running.next >= end }
    }

    /// Ends the running checkpoint.
    pub(super) fn end(&mut self) {
        if let Some(running) = self.running.take() {
            self.begun = running.begun;
            self.key_bytes = running.key_bytes;
        }
    }

    /// Approximate size of the state in bytes.
    pub(super) fn live_bytes(&self, state: &State) -> u64 {
        self.key_bytes + state.settled.bytes() as u64
    }
}

/// A set of slots, one bit each.
#[derive(Debug, Default)]
struct SlotSet(Vec<u64>);

impl SlotSet {
    fn contains(&self, slot: Slot) -> bool {
        let (word, bit) = position(slot);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn insert(&mut self, slot: Slot) {
        let (word, bit) = position(slot);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    /// Removes the slot; returns whether it was in the set.
    fn remove(&mut self, slot: Slot) -> bool {
        let (word, bit) = position(slot);
        let Some(word) = self.0.get_mut(word) else { return false };
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

/// The index of the word that contains the slot's bit, and the mask of that bit.
fn position(slot: Slot) -> (usize, u64) {
    (slot.index() / 64, 1 << (slot.get() % 64))
}

impl Entry {
    /// A copy of the key's state. The objects are shared.
    #[must_use]
    pub fn state(&self) -> KeyState {
        KeyState {
            key: self.key.clone(),
            rv: self.changed,
            latest_rv: self.latest_rv,
            known: self.known.as_deref().cloned(),
            waiting: self.waiting.to_vec(),
            leased: self.leased.to_vec(),
            schedule_state: self.schedule_state.clone(),
            initial_pending: self.initial_pending.map(|pending| Rv::new(pending.get())),
        }
    }

    /// Size of the key and its objects in bytes.
    pub(super) fn stored_bytes(&self) -> u64 {
        let known = self.known.as_ref().map_or(0, |known| known.object.bytes());
        let objects = known + self.waiting.bytes() + self.leased.bytes();
        (self.key.as_str().len() + objects) as u64
    }
}
