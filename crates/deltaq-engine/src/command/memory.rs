//! The memory that commands need. A command that needs more than there is gets refused.

use std::collections::HashSet;

use super::{Call, ObjectList, Seed};
use crate::deliveries::UnappliedDelivery;
use crate::delta::{DeltaKind, provenance_bytes};
use crate::feed::{Row, RowKind};
use crate::followed::{FollowedChange, FollowedEvent};
use crate::key::Key;
use crate::limits::DELTA_BYTES;
use crate::object::Object;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::room::Room;
use crate::table::{Entry, key_bytes};

/// Maximum number of objects of a list that are compared at once.
const COMPARED_OBJECTS: usize = 1_000;
/// Approximate maximum size of these objects in bytes.
const COMPARED_BYTES: usize = 1 << 20;

impl Queue {
    /// Sets the memory that the next commands may take.
    pub fn set_room(&mut self, room: Room) {
        self.volatile.room = room;
    }

    /// Refuses calls that take more memory than there is.
    pub(crate) fn check_memory<'c>(
        &self,
        calls: impl Iterator<Item = &'c Call> + Clone,
    ) -> Result<(), Refusal> {
        let most = calls.clone().map(|call| self.most_bytes_of_call(call)).sum();
        if self.volatile.room.check(most).is_ok() {
            return Ok(());
        }
        let mut called = HashSet::new();
        let bytes = |call: &'c Call| {
            let is_first = called.insert(&call.key);
            self.bytes_of_call(call, is_first)
        };
        self.volatile.room.check(calls.map(bytes).sum())
    }

    /// Refuses a kept delivery that takes more memory than there is.
    pub(super) fn check_memory_of_delivery(&self, delivery: &UnappliedDelivery) -> Result<(), Refusal> {
        self.volatile.room.check(delivery.bytes())
    }

    /// The bytes that a call adds at most.
    fn most_bytes_of_call(&self, call: &Call) -> usize {
        let mut object = call.object.as_ref();
        if object.is_none() && self.state().config.rules().keeps_every_delta {
            object = self.state().table.get(call.key.as_str()).and_then(Entry::newest_object);
        }
        new_bytes(&call.key, object) + name_bytes(call)
    }

    /// Refuses known objects that take more memory than there is. Objects that the queue has are not counted.
    pub(crate) fn check_memory_of_seed(&self, seeds: &[Seed]) -> Result<(), Refusal> {
        let most = seeds.iter().map(|(key, object, _)| new_bytes(key, Some(object))).sum();
        if self.volatile.room.check(most).is_ok() {
            return Ok(());
        }
        self.volatile.room.check(self.bytes_of_seed(seeds))
    }

    /// The bytes that known objects add. Objects that the queue has are not counted.
    pub(crate) fn bytes_of_seed(&self, seeds: &[Seed]) -> usize {
        let is_new = |(key, object, _): &&Seed| {
            let entry = self.state().table.get(key.as_str());
            !entry.is_some_and(|entry| repeats(entry, object))
        };
        seeds.iter().filter(is_new).map(|(key, object, _)| new_bytes(key, Some(object))).sum()
    }

    /// The bytes that a call adds. A Delete that repeats the newest object of its key counts as none, so that a full queue can be
    /// emptied. In mode events each Delete is a delta of its own, so only the first one after another state counts as none.
    fn bytes_of_call(&self, call: &Call, is_first: bool) -> usize {
        let rules = self.state().config.rules();
        let Some(entry) = self.state().table.get(call.key.as_str()) else {
            return self.most_bytes_of_call(call);
        };
        let is_free = !rules.keeps_every_delta || (is_first && entry.has_state() && !entry.is_deleted());
        match &call.object {
            None if is_free => 0,
            Some(object) if call.kind == DeltaKind::Deleted && is_free && repeats(entry, object) => 0,
            object => {
                let newest = entry.newest_object();
                let object_bytes = object.as_ref().or(newest).map_or(0, Object::bytes);
                let replaced = if rules.only_newest_waits { entry.waiting.bytes() } else { 0 };
                (DELTA_BYTES + object_bytes + name_bytes(call)).saturating_sub(replaced)
            }
        }
    }

    /// The bytes that some objects of a list add, from the index `from` on, and the index after them. Objects that the queue has
    /// are not counted.
    #[must_use]
    pub fn changed_bytes(&self, list: &ObjectList, from: usize) -> (usize, usize) {
        let (mut next, mut compared, mut added) = (from, 0, 0);
        for (key, object) in list.items.iter().skip(from).take(COMPARED_OBJECTS) {
            let entry = self.state().table.get(key.as_str());
            if !entry.is_some_and(|entry| repeats(entry, object)) {
                added += new_bytes(key, Some(object));
            }
            next += 1;
            compared += object.bytes();
            if compared > COMPARED_BYTES {
                break;
            }
        }
        (added, next)
    }
}

impl ObjectList {
    /// The bytes that the objects take at most in the queue: those of all objects, unless they were set.
    #[must_use]
    pub fn new_bytes(&self) -> usize {
        self.new_bytes
    }

    /// Sets the bytes that the objects take at most.
    pub fn set_new_bytes(&mut self, bytes: usize) {
        self.new_bytes = bytes;
    }
}

impl Row {
    /// The bytes that the row adds to a queue that takes it. A deletion adds none, so that a full queue can be emptied.
    #[must_use]
    pub fn new_bytes(&self) -> usize {
        if self.kind == RowKind::Deleted { 0 } else { new_bytes(&self.key, self.object.as_ref()) }
    }
}

impl FollowedEvent {
    /// The bytes that the event adds to a queue that takes it.
    #[must_use]
    pub fn new_bytes(&self) -> usize {
        match &self.change {
            FollowedChange::Queued(delta) => new_bytes(&self.key, Some(&delta.object)),
            FollowedChange::Left | FollowedChange::Dropped => 0,
        }
    }
}

/// The bytes that a key with one delta or known object takes.
pub(crate) fn new_bytes(key: &Key, object: Option<&Object>) -> usize {
    key_bytes(key) + DELTA_BYTES + object.map_or(0, Object::bytes)
}

/// The bytes of the names and the trace of a call.
fn name_bytes(call: &Call) -> usize {
    provenance_bytes([call.source.as_ref(), call.source.as_ref()], call.trace.is_some())
}

/// Whether the text is that of the newest object of the key.
fn repeats(entry: &Entry, object: &Object) -> bool {
    entry.newest_object() == Some(object)
}
