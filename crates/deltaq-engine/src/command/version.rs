//! The setting `version`: an object that is not newer than the newest state of its key is stale, and changes nothing.
//!
//! The version of a key that is present is read from the newest object that the queue holds. If no object has the
//! version, an event remembers it. This happens when a deletion is acknowledged, when a Delete has nothing to delete,
//! and when an object is acknowledged in a queue without known objects. A purge or discard clears a remembered
//! version only if the version belongs to a dropped delta. Versions grow, so this is the case if the remembered
//! version is not less than the version of the oldest dropped delta.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::Call;
use crate::delta::{Delta, DeltaKind};
use crate::event::EventKind;
use crate::id::Slot;
use crate::key::Key;
use crate::object::Object;
use crate::object_version::ObjectVersion;
use crate::pointer::Pointer;
use crate::queue::Queue;
use crate::schedule::Place;
use crate::snapshot::RememberedVersion;
use crate::table::Entry;
use crate::time::Time;

/// The calls of a command that are stale.
#[derive(Debug, Default)]
pub(super) struct StaleCalls(Vec<bool>);

impl StaleCalls {
    /// Whether the call with this index is stale.
    pub(super) fn contains(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|is_stale| *is_stale)
    }
}

impl Queue {
    /// The version of an object. `None` if the queue does not have the setting `version`, or if the object has no
    /// usable version.
    pub(super) fn version_of(&self, object: &Object) -> Option<ObjectVersion> {
        ObjectVersion::read(self.state().config.version.as_ref()?, object).ok()
    }

    /// The version that a new object of the key must exceed.
    pub(super) fn newest_version(&self, key: &Key) -> Option<ObjectVersion> {
        let held = self.held_version(key, self.state().config.version.as_ref()?);
        held.max(self.state().versions.of(key).cloned())
    }

    /// The version of the key's newest object, read at this pointer.
    pub(super) fn held_version(&self, key: &Key, pointer: &Pointer) -> Option<ObjectVersion> {
        let newest = self.state().table.get(key.as_str()).and_then(Entry::newest_object)?;
        ObjectVersion::read(pointer, newest).ok()
    }

    /// Finds the calls that are not newer than the newest state of their key. An earlier call of the same command may
    /// have set that state.
    pub(super) fn stale_calls<'c>(&'c self, calls: &'c [Call]) -> StaleCalls {
        if self.state().config.version.is_none() {
            return StaleCalls::default();
        }
        let mut newest: HashMap<&Key, (Option<ObjectVersion>, Option<&Object>)> = HashMap::new();
        let are_stale = calls.iter().map(|call| {
            let (version, object) = newest
                .entry(&call.key)
                .or_insert_with(|| (self.newest_version(&call.key), self.present_object(&call.key)));
            let is_stale = match &call.version {
                Some(given) => match Some(given).cmp(&version.as_ref()) {
                    Ordering::Less => true,
                    Ordering::Equal => !self.applies_tie(*object, call.object.as_ref(), call.kind),
                    Ordering::Greater => false,
                },
                None => false,
            };
            if !is_stale {
                *version = version.take().max(call.version.clone());
                *object = call.object.as_ref().filter(|_| call.kind != DeltaKind::Deleted);
            }
            is_stale
        });
        StaleCalls(are_stale.collect())
    }

    /// The newest object of a key that was not deleted.
    pub(super) fn present_object(&self, key: &Key) -> Option<&Object> {
        let entry = self.state().table.get(key.as_str()).filter(|entry| !entry.is_deleted())?;
        entry.newest_object()
    }

    /// Whether an object is applied although its version is that of the newest state of its key, which has the object `present`. A
    /// deletion is final, because deliveries may arrive out of order. A queue without known objects can't tell a deleted key from
    /// an acknowledged one, so there every change of an absent key is applied.
    pub(super) fn applies_tie(
        &self,
        present: Option<&Object>,
        object: Option<&Object>,
        kind: DeltaKind,
    ) -> bool {
        let config = &self.state().config;
        config.applies_ties()
            && match present {
                Some(present) => kind == DeltaKind::Deleted || object != Some(present),
                None => !config.known_objects,
            }
    }

    /// Remembers the version of a deletion: that of the call if it has one, otherwise the newest version of the key.
    /// It is remembered because no delta may have it: when two deletions become one delta, the delta may keep the
    /// older version.
    pub(super) fn remember_deletion(&mut self, now: Time, key: &Key, version: Option<&ObjectVersion>) {
        if self.state().config.version.is_some() {
            let version = version.cloned().max(self.newest_version(key));
            self.remember_version(now, key, version);
        }
    }

    /// Remembers the version of a key whose leased deltas are acknowledged and leave no known object.
    pub(super) fn remember_acknowledged(&mut self, now: Time, slot: Slot, delta: &Delta) {
        let config = &self.state().config;
        if config.version.is_none() || (delta.kind != DeltaKind::Deleted && config.known_objects) {
            return;
        }
        let version = self.version_of(&delta.object);
        let key = self.state().entry(slot).key.clone();
        self.remember_version(now, &key, version);
    }

    /// Remembers a version of a key, unless the queue already remembers the same version or a newer one.
    fn remember_version(&mut self, now: Time, key: &Key, version: Option<ObjectVersion>) {
        let Some(version) = version else { return };
        if self.state().versions.of(key).is_none_or(|remembered| *remembered < version) {
            let before = self.version_before_deltas(key);
            self.emit(now, EventKind::VersionRemembered { key: key.clone(), version, before });
        }
    }

    /// The remembered version that remains if all deltas of the key are dropped.
    fn version_before_deltas(&self, key: &Key) -> Option<ObjectVersion> {
        let remembered = self.state().versions.get(key)?;
        let oldest = self.state().table.get(key.as_str())?.oldest_delta()?;
        if self.is_before(remembered, oldest) {
            Some(remembered.version.clone())
        } else {
            remembered.before.clone()
        }
    }

    /// Whether a remembered version belongs to a state of its key before `delta`.
    fn is_before(&self, remembered: &RememberedVersion, delta: &Delta) -> bool {
        match self.version_of(&delta.object) {
            Some(version) => remembered.version < version,
            None => remembered.rv < delta.rv,
        }
    }

    /// The event of a purge or discard, which drops the waiting deltas of the key. In mode events, a discard drops
    /// only the oldest delta.
    pub(super) fn removal(&self, entry: &Entry) -> EventKind {
        let is_discard = entry.schedule_state.place == Place::Parked;
        let some_stay =
            is_discard && self.state().config.rules().leases_oldest_delta && entry.waiting.len() > 1;
        let oldest = entry.waiting.oldest();
        let stays = |remembered: &RememberedVersion| {
            some_stay || oldest.is_none_or(|oldest| self.is_before(remembered, oldest))
        };
        let keeps_version = self.state().versions.get(&entry.key).is_some_and(stays);
        EventKind::Removed { key: entry.key.clone(), keeps_version }
    }
}

/// Whether the delta of a deletion may be merged with the deletion before it.
pub(super) fn may_merge_deletion(entry: &Entry) -> bool {
    let newest = [entry.waiting.newest(), entry.leased.newest()];
    newest.into_iter().flatten().any(|delta| delta.kind == DeltaKind::Deleted)
}
