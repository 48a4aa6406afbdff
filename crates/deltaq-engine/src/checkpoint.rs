//! Checkpoints: copies of the state, taken a few keys at a time while the queue keeps working.
//!
//! A checkpoint begins at one event, but its chunks describe the keys as of later events. The stored state is
//! therefore not a state that the queue ever had. Replay corrects this: it starts after the event at which the last
//! completed checkpoint began, and ignores events that a stored key already contains.
//!
//! The store keeps the chunks of several checkpoints. Of all entries of a slot, the newest one counts. A full checkpoint
//! contains every key, so the chunks before it can be forgotten once it is complete.
//!
//! Invariants, for all keys, where B is the event at which the last completed checkpoint began:
//! - a key without an entry was created after B, so replay creates it;
//! - the newest entry of a key that has not changed since B is up to date;
//! - the newest entry at a slot belongs either to the key at that slot, which is then in `stored`, or to a key that was
//!   removed; then it is the removal, or the key is in `removed`. Each chunk contains all of `removed` before its keys;
//! - a key that is removed during a checkpoint is in `removed` even without an entry: after that checkpoint, replay may
//!   start at an event of this key.

use std::sync::Arc;

use super::id::{Rv, Slot};
use super::key::Key;
use super::snapshot::{CheckpointChunk, KeyState, RemovedKey};
use super::state::State;
use super::table::Entry;

/// Approximate size of an entry of a checkpoint without its key, objects and deltas, in bytes.
const ENTRY_BYTES: usize = 96;
/// Approximate size of a delta in an entry without its object, with its part of the schedule, in bytes.
const DELTA_BYTES: usize = 240;

/// What the checkpoints of a queue contain, and what the next one must add.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// Whether the queue has a journal. Without a journal, nothing is recorded in `removed`, because nothing would
    /// ever clear it.
    pub(super) journaled: bool,
    /// The event at which the last completed checkpoint began; 0 before the first one.
    pub(super) begun: Rv,
    running: Option<Running>,
    /// The slots whose key has an entry in a chunk. The entry may be outdated.
    stored: SlotSet,
    /// Keys that were removed since the last chunk, oldest first.
    pub(super) removed: Vec<RemovedKey>,
    /// The size that all keys would have in a full checkpoint, as of the last completed checkpoint.
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
    /// Whether the checkpoint contains all keys.
    is_full: bool,
}

impl Checkpoints {
    /// The checkpoints of a queue that was restored from this state.
    pub(super) fn restored(begun: Rv) -> Self {
        Self { journaled: true, begun, ..Self::default() }
    }

    /// Whether the key at this slot has an entry.
    pub(super) fn has_entry(&self, slot: Slot) -> bool {
        self.stored.contains(slot)
    }

    /// Records that the key at this slot has an entry.
    pub(super) fn note_entry(&mut self, slot: Slot) {
        self.stored.insert(slot);
    }

    /// Records that the key was removed from its slot.
    pub(super) fn note_removed(&mut self, key: Key, slot: Slot, rv: Rv) {
        let had_entry = self.stored.remove(slot);
        if self.journaled && (had_entry || self.running.is_some()) {
            self.removed.push(RemovedKey { key, slot, rv });
        }
    }

    /// Begins a checkpoint, which contains all keys if it is full, and otherwise those that have changed since the last one.
    pub(super) fn begin(&mut self, state: &State, is_full: bool) {
        let end = state.table.slots();
        self.running = Some(Running { begun: state.rv, next: 0, end, key_bytes: 0, is_full });
    }

    /// The next chunk of the running checkpoint.
    pub(super) fn capture(&mut self, state: &State, entries: usize, looks: usize) -> CheckpointChunk {
        let removed = std::mem::take(&mut self.removed);
        let mut keys = Vec::new();
        let Some(running) = &mut self.running else {
            return CheckpointChunk { removed, keys, ended: true };
        };
        // The table may have shrunk: it releases all slots when its last key is removed.
        let end = running.end.min(state.table.slots());
        let stop = running.next.saturating_add(looks).min(end);
        let mut left = entries;
        while running.next < stop && left > 0 {
            let slot = Slot::at(running.next);
            running.next += 1;
            let Some(slot) = slot else { continue };
            let Some(entry) = state.table.at(slot) else { continue };
            running.key_bytes += entry.stored_bytes();
            if running.is_full || entry.changed > self.begun {
                left = left.saturating_sub((entry.waiting.len() + entry.leased.len()).max(1));
                let birth = state.stored_birth(slot, entry);
                keys.push((slot, KeyState { birth, ..entry.state(state.schedule.group_of(slot)) }));
                self.stored.insert(slot);
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
        self.key_bytes + (state.settled.bytes() + state.deliveries.bytes()) as u64
    }
}

/// A set of slots, one bit each.
#[derive(Debug, Default)]
pub(super) struct SlotSet(Vec<u64>);

impl SlotSet {
    fn contains(&self, slot: Slot) -> bool {
        let (word, bit) = position(slot);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Adds the slot; returns whether it was not in the set.
    pub(super) fn insert(&mut self, slot: Slot) -> bool {
        let (word, bit) = position(slot);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0.get_mut(word).is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
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
    /// A copy of the key's state without its birth. The objects are shared. `group` is the name of its group.
    #[must_use]
    pub fn state(&self, group: Option<&Arc<str>>) -> KeyState {
        let mut schedule_state = self.schedule_state.clone();
        // A checkpoint has no turn: the restored key gets it from the rest.
        schedule_state.take_turn();
        KeyState {
            key: self.key.clone(),
            rv: self.changed,
            latest_rv: self.latest_rv,
            known: self.known.as_deref().cloned(),
            waiting: self.waiting.to_vec(),
            leased: self.leased.to_vec(),
            schedule_state,
            initial_pending: self.initial_pending.map(|pending| Rv::new(pending.get())),
            group: group.cloned(),
            birth: None,
        }
    }

    /// Approximate size of the key's entry in a checkpoint, in bytes.
    pub(super) fn stored_bytes(&self) -> u64 {
        let known = self.known.as_ref().map_or(0, |known| known.object.bytes());
        let objects = known + self.waiting.bytes() + self.leased.bytes();
        let deltas = self.waiting.len() + self.leased.len();
        (ENTRY_BYTES + self.key.as_str().len() + objects + deltas * DELTA_BYTES) as u64
    }
}
