//! The setting `version`.

use super::{Content, Item, Micros, Model, ModelDelta, Name, OBJECTS};

const DAY: Micros = 86_400_000_000;

impl Model {
    /// The rank of the version of an object.
    pub(super) fn version_of(&self, content: Content) -> Option<u8> {
        OBJECTS[usize::from(content)].2.filter(|_| self.config.version.is_some())
    }

    /// The rank that a new object of the key must exceed.
    pub(super) fn newest_version(&self, key: Name) -> Option<u8> {
        let held = self.get(key).and_then(Item::newest_content).and_then(|content| self.version_of(content));
        held.max(self.remembered.get(key).map(|(rank, ..)| *rank))
    }

    /// Whether an object is older than the newest state of its key, or as old. `None` if it is newer, or nothing can be compared.
    pub(super) fn staleness(&self, key: Name, content: Option<Content>) -> Option<std::cmp::Ordering> {
        let order = self.version_of(content?)?.cmp(&self.newest_version(key)?);
        Some(order).filter(|order| order.is_le())
    }

    pub(super) fn remember(&mut self, now: Micros, key: Name, version: Option<u8>) {
        let Some(version) = version else { return };
        if self.remembered.get(key).is_some_and(|(rank, ..)| *rank >= version) {
            return;
        }
        let (rv, at) = self.event(now);
        self.remembered.insert(key, (version, rv, at));
        self.remembered.retain(|_, (_, _, since)| *since + DAY >= at);
        self.hit("a version is remembered");
    }

    /// A deletion whose version may be in no delta afterwards.
    pub(super) fn remember_deletion(&mut self, now: Micros, key: Name, content: Option<Content>) {
        let version = content.and_then(|content| self.version_of(content));
        self.remember(now, key, version.max(self.newest_version(key)));
    }

    /// An ack of leased deltas that leave no known object.
    pub(super) fn remember_acknowledged(&mut self, now: Micros, key: Name) {
        let newest = self.get(key).and_then(|item| item.leased.last());
        let Some(newest) = newest.filter(|delta| delta.is_deleted() || !self.config.known_objects) else {
            return;
        };
        self.remember(now, key, self.version_of(newest.content));
    }
}

/// Whether a deletion could be merged with another one.
pub(super) fn may_merge_deletion(item: &Item) -> bool {
    let ends_deleted = |deltas: &[ModelDelta]| deltas.last().is_some_and(ModelDelta::is_deleted);
    ends_deleted(&item.waiting) || ends_deleted(&item.leased)
}
