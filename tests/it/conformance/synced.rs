//! What HasSynced and the initial list must be, computed beside the queue from the recorded calls.
//!
//! client-go counts pops, this project acknowledgements, so after a requeue the recorded flags may
//! not be ours. Then ours must be what this rule says; before one, both must be the same.

use std::collections::BTreeSet;

use super::fifo::{State, expected};

/// The rule, and whether recorded flags may differ from it.
#[derive(Debug, Default)]
pub(super) struct SyncRule {
    populated: bool,
    /// Keys of the initial list that are not acknowledged.
    marks: BTreeSet<String>,
    excuse: Option<&'static str>,
}

impl SyncRule {
    pub(super) fn has_synced(&self) -> bool {
        self.populated && self.marks.is_empty()
    }

    pub(super) fn is_initial(&self, key: &str) -> bool {
        !self.populated || self.marks.contains(key)
    }

    /// Why recorded flags may differ, if they may.
    pub(super) fn excuse(&self) -> Option<&'static str> {
        self.excuse
    }

    /// An Add, Update or Delete was accepted.
    pub(super) fn called(&mut self) {
        self.populated = true;
    }

    /// A call was refused, which populates client-go's queue.
    pub(super) fn refused(&mut self, before: &State) {
        if !self.populated && !before.has_synced {
            self.excuse.get_or_insert(expected::REFUSED);
        }
    }

    /// A Replace ended. The first one marks its keys and those that it deletes, that is, all.
    pub(super) fn replaced(&mut self, before: &State, list: impl Iterator<Item = String>) {
        if !self.populated {
            self.marks.extend(list);
            self.marks.extend(before.queue.iter().cloned());
            self.marks.extend(before.known.iter().flat_map(|known| known.keys().cloned()));
        }
        self.populated = true;
    }

    /// A key was processed.
    pub(super) fn acked(&mut self, key: &str) {
        self.marks.remove(key);
    }

    /// A key was put back, which counts as processed, and populates, in client-go.
    pub(super) fn requeued(&mut self, before: &State) {
        if !before.has_synced {
            self.excuse.get_or_insert(expected::REQUEUE);
        }
    }
}
