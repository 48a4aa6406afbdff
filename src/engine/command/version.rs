//! The setting `version`: an object that is not newer than the newest state of its key is stale, and changes nothing.
//!
//! The version of a present key is read from the newest object that the queue holds. An event remembers a version that no held object
//! has: of a key whose deletion was acknowledged, of a Delete that had nothing to delete, of an acknowledged object of a queue without
//! known objects.

use super::Call;
use crate::engine::delta::DeltaKind;
use crate::engine::event::EventKind;
use crate::engine::id::Slot;
use crate::engine::key::Key;
use crate::engine::object::Object;
use crate::engine::object_version::ObjectVersion;
use crate::engine::queue::Queue;
use crate::engine::table::Entry;
use crate::engine::time::Time;

impl Queue {
    /// The version of an object; `None` if the queue has no setting `version`, or the object has no usable version.
    pub(super) fn version_of(&self, object: &Object) -> Option<ObjectVersion> {
        ObjectVersion::read(self.state().config.version.as_ref()?, object).ok()
    }

    /// The version that a new object of the key must exceed.
    pub(super) fn newest_version(&self, key: &Key) -> Option<ObjectVersion> {
        self.state().config.version.as_ref()?;
        let newest = self.state().table.get(key.as_str()).and_then(Entry::newest_object);
        let held = newest.and_then(|object| self.version_of(object));
        held.max(self.state().versions.of(key).cloned())
    }

    /// Whether a call is not newer than the newest state of its key.
    pub(super) fn is_stale(&self, call: &Call) -> bool {
        let Some(version) = &call.version else { return false };
        self.newest_version(&call.key).is_some_and(|newest| *version <= newest)
    }

    /// Remembers the version of a deletion that no delta may have: the version of the call, or without one the newest version of the
    /// key. When two deletions become one delta, its version may be the older one.
    pub(super) fn remember_deletion(&mut self, now: Time, key: &Key, version: Option<&ObjectVersion>) {
        if self.state().config.version.is_some() {
            let version = version.cloned().max(self.newest_version(key));
            self.remember_version(now, key, version);
        }
    }

    /// Remembers the version of a key whose leased deltas are acknowledged and leave no known object.
    pub(super) fn remember_acknowledged(&mut self, now: Time, slot: Slot) {
        let config = &self.state().config;
        if config.version.is_none() {
            return;
        }
        let entry = self.state().entry(slot);
        let newest = entry.leased.newest();
        let leaves_none = newest.filter(|delta| delta.kind == DeltaKind::Deleted || !config.known_objects);
        let version = leaves_none.and_then(|delta| self.version_of(&delta.object));
        let key = entry.key.clone();
        self.remember_version(now, &key, version);
    }

    /// Remembers a version of a key, unless the queue remembers it or a newer one.
    fn remember_version(&mut self, now: Time, key: &Key, version: Option<ObjectVersion>) {
        let Some(version) = version else { return };
        if self.state().versions.of(key).is_none_or(|remembered| *remembered < version) {
            self.emit(now, EventKind::VersionRemembered { key: key.clone(), version });
        }
    }
}

/// Whether the delta of a deletion may be merged with a deletion before it.
pub(super) fn may_merge_deletion(entry: &Entry) -> bool {
    let newest = [entry.waiting.newest(), entry.leased.newest()];
    newest.into_iter().flatten().any(|delta| delta.kind == DeltaKind::Deleted)
}
