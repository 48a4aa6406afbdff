//! The setting `version`.

use std::cmp::Ordering;

use deltaq_engine::delta::DeltaKind;
use deltaq_types::VersionTies;

use super::replace::ReplaceJob;
use super::{Content, Item, Micros, Model, ModelCall, ModelDelta, ModelRemembered, Name, OBJECTS};

const DAY: Micros = 86_400_000_000;

impl Model {
    /// The rank of the version of an object.
    pub(super) fn version_of(&self, content: Content) -> Option<u8> {
        OBJECTS[usize::from(content)].2.filter(|_| self.config.version.is_some())
    }

    /// The rank that a new object of the key must exceed.
    pub(super) fn newest_version(&self, key: Name) -> Option<u8> {
        let held = self.get(key).and_then(Item::newest_content).and_then(|content| self.version_of(content));
        held.max(self.remembered.get(key).map(|remembered| remembered.rank))
    }

    /// Whether a call is not newer than the newest state of its key and the calls before it.
    pub(super) fn is_stale(&self, calls: &[ModelCall], index: usize) -> bool {
        let version = |call: &ModelCall| call.content.and_then(|content| self.version_of(content));
        let call = &calls[index];
        let Some(rank) = version(call) else { return false };
        let mut newest = self.newest_version(call.key);
        let mut content =
            self.get(call.key).filter(|item| !item.newest_is_deleted()).and_then(Item::newest_content);
        for (at, earlier) in calls[..index].iter().enumerate() {
            if earlier.key == call.key && !self.is_stale(calls, at) {
                newest = newest.max(version(earlier));
                content = earlier.content.filter(|_| earlier.kind != DeltaKind::Deleted);
            }
        }
        let is_tie = Some(rank) == newest;
        Some(rank) < newest || (is_tie && !self.applies_tie(content, call.content, call.kind))
    }

    /// Whether an object with the version of the newest state, which has the content `present`, is applied.
    pub(super) fn applies_tie(
        &self,
        present: Option<Content>,
        content: Option<Content>,
        kind: DeltaKind,
    ) -> bool {
        let deletes = kind == DeltaKind::Deleted;
        let applies = match present {
            Some(present) => deletes || content != Some(present),
            None => !self.config.known_objects,
        };
        applies && self.config.version_ties == Some(VersionTies::Apply)
    }

    /// Compares a listed object with the newest state of its key, by the setting at the time when the Replace was accepted. After a
    /// change of the setting, the remembered versions are not versions of that setting any more.
    pub(super) fn staleness_in(&mut self, job: &ReplaceJob, key: Name, content: Content) -> Option<Ordering> {
        let rank = |content: Content| OBJECTS[usize::from(content)].2.filter(|_| job.has_version);
        let held = self.get(key).and_then(Item::newest_content).and_then(rank);
        let remembered = self.remembered.get(key).map(|old| old.rank).filter(|_| job.versions_decide);
        let order = rank(content)?.cmp(&held.max(remembered)?);
        if !job.versions_decide {
            self.hit("the setting version changes while a Replace runs");
        }
        let present = self.get(key).filter(|item| !item.newest_is_deleted()).and_then(Item::newest_content);
        if order.is_eq() && self.applies_tie(present, Some(content), DeltaKind::Replaced) {
            self.hit("a listed object with the version of another content");
            return None;
        }
        Some(order).filter(|order| order.is_le())
    }

    pub(super) fn remember(&mut self, now: Micros, key: Name, version: Option<u8>) {
        let Some(version) = version else { return };
        if self.remembered.get(key).is_some_and(|remembered| remembered.rank >= version) {
            return;
        }
        let item = self.get(key).cloned().unwrap_or_default();
        let all: Vec<ModelDelta> = item.leased.into_iter().chain(item.waiting).collect();
        let before = self.remembered.get(key).filter(|_| !all.is_empty()).copied();
        let before = before.and_then(|old| if self.is_of(old, &all) { old.before } else { Some(old.rank) });
        let (rv, at) = self.event(now);
        self.remembered.insert(key, ModelRemembered { rank: version, before, rv, at });
        self.remembered.retain(|_, remembered| remembered.at + DAY >= at);
        self.hit("a version is remembered");
    }

    /// Whether a remembered version came with one of these deltas of its key, oldest first.
    fn is_of(&self, remembered: ModelRemembered, deltas: &[ModelDelta]) -> bool {
        let Some(oldest) = deltas.first() else { return false };
        self.version_of(oldest.content).map_or(remembered.rv > oldest.rv, |rank| remembered.rank >= rank)
    }

    /// A purge or a discard drops these deltas of a key.
    pub(super) fn drop_versions(&mut self, key: Name, dropped: &[ModelDelta]) {
        let Some(remembered) = self.remembered.get(key).copied() else { return };
        if !self.is_of(remembered, dropped) {
            self.hit("a remembered version outlives dropped deltas");
            return;
        }
        if let Some(rank) = remembered.before {
            self.remembered.insert(key, ModelRemembered { rank, before: None, ..remembered });
            self.hit("an earlier version counts again");
        } else {
            self.remembered.remove(key);
        }
    }

    /// A deletion whose version may be in no delta afterwards.
    pub(super) fn remember_deletion(&mut self, now: Micros, key: Name, content: Option<Content>) {
        let version = content.and_then(|content| self.version_of(content));
        self.remember(now, key, version.max(self.newest_version(key)));
    }

    /// An ack of leased deltas that leave no known object.
    pub(super) fn remember_acknowledged(&mut self, now: Micros, key: Name, count: usize) {
        let newest = self.get(key).and_then(|item| item.leased[..count].last());
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
