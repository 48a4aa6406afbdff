//! Commands in progress: accepted Replaces that have not ended, and a seed.
//!
//! Jobs are volatile. After a crash the queued events remain, and the caller repeats the command.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::vec::IntoIter;

use super::comparison::Comparison;
use super::deletion_limit::DeletionGuard;
use super::delta::{DeltaKind, Provenance};
use super::event::ReplaceCounts;
use super::id::{Sequence, Slot, Source};
use super::key::{Key, KeySet};
use super::object::Object;
use super::pointer::Pointer;
use super::trace::Trace;

/// Identifies a Replace from its acceptance to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaceId(pub(super) u64);

/// An accepted Replace that has not ended.
#[derive(Debug)]
pub(super) struct ReplaceJob {
    pub(super) id: ReplaceId,
    pub(super) items: IntoIter<(Key, Object)>,
    pub(super) keys: KeySet,
    /// Further keys that the source has.
    pub(super) kept: KeySet,
    /// Whether nothing is deleted.
    pub(super) keeps_all: bool,
    /// The length of the longest object in the list.
    pub(super) longest_bytes: usize,
    pub(super) source: Option<Source>,
    /// The sequence of the call, which the end of the Replace records. `None` for a dry run and for a duplicate.
    pub(super) sequence: Option<Sequence>,
    pub(super) only_changed: bool,
    pub(super) trace: Option<Trace>,
    /// The provenance of the latest delta. The next deltas usually have the same one.
    pub(super) provenance: Provenance,
    /// The type of the queued deltas, according to the settings when the Replace was accepted.
    pub(super) kind: DeltaKind,
    pub(super) guard: DeletionGuard,
    pub(super) is_dry: bool,
    pub(super) phase: Phase,
    /// The slots that are not examined yet; `None` before the first of them.
    pub(super) slots: Option<IntoIter<Slot>>,
    /// The keys that are to be deleted, unless calls arrive for them.
    pub(super) missing: BTreeSet<Key>,
    pub(super) counts: ReplaceCounts,
    /// The latest comparison of listed and stored objects.
    pub(super) comparison: Arc<Comparison>,
    /// Whether the queue had room for the whole list when the Replace was accepted.
    pub(super) fits: bool,
    /// If `fits` is false: listed keys that need room, because the queue did not have them when they were counted, or
    /// has removed them since.
    pub(super) wanted: KeySet,
    /// Room that is reserved for listed keys that are not queued yet.
    pub(super) reserved: usize,
    /// The bytes of the listed objects that are not queued yet.
    pub(super) held_bytes: usize,
    /// Keys that are listed or in the queue, and the produce calls for them since the acceptance.
    pub(super) called: HashMap<Key, CallsMeanwhile>,
    /// The setting `version` when the Replace was accepted. It applies to the listed objects.
    pub(super) version: Option<Pointer>,
    /// Whether versions decide between listed objects and calls. True if the queue has the setting `version` and it
    /// has not changed since the acceptance.
    pub(super) versions_decide: bool,
    /// Whether this Replace brings the initial list, unless another Replace does so first.
    pub(super) may_be_first: bool,
    /// Number of keys of the source.
    pub(super) owned: u64,
}

/// The produce calls for a key since the acceptance of a Replace.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallsMeanwhile {
    /// Whether a call named a source.
    pub(super) named_source: bool,
    /// Whether all calls had an object with a version.
    pub(super) are_versioned: bool,
}

/// The next step of a Replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The sequence number had already been applied, so there is nothing to do.
    Duplicate,
    /// Counts the keys that need room, from the item with this index on.
    Room { next: usize },
    /// Finds the keys that the list deletes.
    Count,
    /// Counts what the items would do, from this index on, and whether they fit. Then refuses the Replace, ends the
    /// dry run, or continues.
    Plan { next: usize, refused: bool },
    /// Records the start of the Replace.
    Start,
    /// Queues the items.
    Items,
    /// Queues the deletions.
    Deletions,
}

impl ReplaceJob {
    /// Whether the queue can't become synced before this job has ended.
    pub(super) fn may_be_first(&self) -> bool {
        self.may_be_first && !self.is_dry && self.phase != Phase::Duplicate
    }

    /// Whether the list deletes this key, if the source owns it.
    pub(super) fn deletes(&self, key: &Key) -> bool {
        let has = self.keeps_all || self.keys.contains(key) || self.kept.contains(key);
        !has && !self.called.contains_key(key)
    }

    /// Whether room must be kept for the listed object of the key. The plan has counted that object, and calls with
    /// versions may arrive for the key in the meantime.
    pub(super) fn needs_room(&self, key: &Key) -> bool {
        self.versions_decide
            && matches!(self.phase, Phase::Plan { .. } | Phase::Start | Phase::Items)
            && !self.is_dry
            && self.keys.contains(key)
            && self.newer_calls(key).is_none()
    }

    /// Records that the queue no longer has a key. If the key is listed, its room is reserved for the list.
    pub(super) fn note_left(&mut self, key: &Key) {
        let counts = matches!(
            self.phase,
            Phase::Room { .. } | Phase::Count | Phase::Plan { .. } | Phase::Start | Phase::Items
        );
        if self.fits || !counts || !self.keys.contains(key) || self.wanted.contains(key) {
            return;
        }
        self.wanted.insert(key.clone());
        if !self.is_dry && !matches!(self.phase, Phase::Room { .. }) {
            self.reserved += 1;
        }
    }

    /// Records a call for a key.
    pub(super) fn note_call(&mut self, key: &Key, named_source: bool, is_versioned: bool) {
        let first = CallsMeanwhile { named_source: false, are_versioned: true };
        let calls = self.called.entry(key.clone()).or_insert(first);
        calls.named_source |= named_source;
        calls.are_versioned &= is_versioned;
    }

    /// The calls for a listed key, if they are newer than the list regardless of versions.
    pub(super) fn newer_calls(&self, key: &Key) -> Option<CallsMeanwhile> {
        self.called.get(key).copied().filter(|calls| !(self.versions_decide && calls.are_versioned))
    }

    /// The sequence of the call.
    pub(super) fn sequence(&self) -> Option<&Sequence> {
        self.sequence.as_ref()
    }
}

/// The calls since a seed began.
#[derive(Debug)]
pub(super) struct Seeding {
    /// Keys with a produce call since the seed began.
    pub(super) called: HashSet<Key>,
    /// Room that is reserved for objects that are not seeded yet.
    pub(super) reserved: usize,
    /// The bytes of these objects.
    pub(super) held_bytes: usize,
}
