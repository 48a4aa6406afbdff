//! Versions that no object in the queue has any more. They prevent an older object from restoring a deleted key.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::id::Rv;
use super::key::Key;
use super::limits::{REMEMBERED_VERSIONS_BYTES_MAX, REMEMBERED_VERSIONS_MAX, REMEMBERED_VERSIONS_SECS};
use super::object_version::ObjectVersion;
use super::snapshot::RememberedVersion;
use super::time::Time;

/// Approximate size of a remembered version in bytes, excluding the texts of its key and its version.
const REMEMBERED_BYTES: usize = 500;

/// The remembered versions of a queue. Versions that exceed a limit are dropped, oldest first.
///
/// Invariant: `by_key` has the same keys as `by_rv`, and `bytes` is the sum of their sizes.
#[derive(Debug, Default)]
pub(super) struct RememberedVersions {
    by_rv: BTreeMap<Rv, RememberedVersion>,
    by_key: HashMap<Key, Rv, RandomState>,
    bytes: usize,
}

impl RememberedVersions {
    /// The remembered version of a key.
    pub(super) fn of(&self, key: &Key) -> Option<&ObjectVersion> {
        self.get(key).map(|remembered| &remembered.version)
    }

    /// The remembered version of a key, with its event and its time.
    pub(super) fn get(&self, key: &Key) -> Option<&RememberedVersion> {
        self.by_rv.get(self.by_key.get(key)?)
    }

    /// Remembers a version of a key. Drops the previous version of the key and all versions that exceed a limit.
    /// Returns whether the version is newer than the previous one.
    pub(super) fn remember(&mut self, remembered: RememberedVersion) -> bool {
        let before = self.forget(&remembered.key);
        let grows = before.is_none_or(|before| before.version < remembered.version);
        let now = remembered.at;
        self.insert(remembered);
        self.trim(now);
        grows
    }

    /// Removes the version of a key.
    pub(super) fn forget(&mut self, key: &Key) -> Option<RememberedVersion> {
        let rv = self.by_key.remove(key)?;
        let removed = self.by_rv.remove(&rv)?;
        self.bytes -= bytes(&removed);
        Some(removed)
    }

    /// Removes the version of a key whose deltas were dropped. The version before it becomes valid again.
    pub(super) fn fall_back(&mut self, key: &Key) {
        if let Some(RememberedVersion { rv, at, key, before: Some(version), .. }) = self.forget(key) {
            self.insert(RememberedVersion { rv, at, key, version, before: None });
        }
    }

    /// Approximate size of the versions in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All versions, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RememberedVersion> {
        self.by_rv.values()
    }

    /// Restores the versions from a checkpoint.
    pub(super) fn restore(all: Vec<RememberedVersion>) -> Self {
        let mut restored = Self::default();
        for remembered in all {
            restored.insert(remembered);
        }
        restored
    }

    fn insert(&mut self, remembered: RememberedVersion) {
        self.bytes += bytes(&remembered);
        self.by_key.insert(remembered.key.clone(), remembered.rv);
        self.by_rv.insert(remembered.rv, remembered);
    }

    fn trim(&mut self, now: Time) {
        let age = Duration::from_secs(REMEMBERED_VERSIONS_SECS);
        while let Some(oldest) = self.by_rv.first_entry() {
            let is_old = oldest.get().at.plus(age) < now;
            let is_much =
                self.by_key.len() > REMEMBERED_VERSIONS_MAX || self.bytes > REMEMBERED_VERSIONS_BYTES_MAX;
            if !is_old && !is_much {
                break;
            }
            let removed = oldest.remove();
            self.by_key.remove(&removed.key);
            self.bytes -= bytes(&removed);
        }
    }

    /// Checks the invariants.
    pub(super) fn check(&self) -> Result<(), String> {
        let sum: usize = self.by_rv.values().map(bytes).sum();
        if sum != self.bytes || self.by_key.len() != self.by_rv.len() {
            return Err(String::from("the remembered versions are counted wrongly"));
        }
        let is_wrong = |(rv, remembered): &(&Rv, &RememberedVersion)| {
            **rv != remembered.rv || self.by_key.get(&remembered.key) != Some(rv)
        };
        match self.by_rv.iter().find(is_wrong) {
            Some((_, wrong)) => Err(format!("the remembered version of key {} is not found", wrong.key)),
            None => Ok(()),
        }
    }
}

fn bytes(remembered: &RememberedVersion) -> usize {
    let before = remembered.before.as_ref().map_or(0, ObjectVersion::bytes);
    REMEMBERED_BYTES + remembered.key.as_str().len() + remembered.version.bytes() + before
}
