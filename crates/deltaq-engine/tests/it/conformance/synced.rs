//! The expected values of HasSynced and of the initial list, computed independently of the queue from the recorded calls.
//!
//! client-go counts pops and this project counts acknowledgements, so the recorded flags may differ after a requeue. The flags
//! of the queue must always agree with this rule, and before a requeue also with the recording.

use std::collections::BTreeSet;

use super::fifo::{State, expected};

/// The state of the rule, and why recorded flags may differ.
#[derive(Debug, Default)]
pub(super) struct SyncRule {
    populated: bool,
    /// Keys of the initial list that are not acknowledged.
    initial_pending: BTreeSet<String>,
    excuse: Option<&'static str>,
}

impl SyncRule {
    pub(super) fn has_synced(&self) -> bool {
        self.populated && self.initial_pending.is_empty()
    }

    pub(super) fn is_initial(&self, key: &str) -> bool {
        !self.populated || self.initial_pending.contains(key)
    }

    /// Why recorded flags may differ, if there is one.
    pub(super) fn excuse(&self) -> Option<&'static str> {
        self.excuse
    }

    /// An Add, Update or Delete was accepted.
    pub(super) fn called(&mut self) {
        self.populated = true;
    }

    /// A call was refused. In client-go this marks the queue as populated.
    pub(super) fn refused(&mut self, before: &State) {
        if !self.populated && !before.has_synced {
            self.excuse.get_or_insert(expected::REFUSED);
        }
    }

    /// A Replace ended. The initial list consists of the keys of the first Replace and of the keys that it deletes.
    pub(super) fn replaced(&mut self, before: &State, list: impl Iterator<Item = String>) {
        if !self.populated {
            self.initial_pending.extend(list);
            self.initial_pending.extend(before.queue.iter().cloned());
            self.initial_pending.extend(before.known.iter().flat_map(|known| known.keys().cloned()));
        }
        self.populated = true;
    }

    /// A key was processed.
    pub(super) fn acked(&mut self, key: &str) {
        self.initial_pending.remove(key);
    }

    /// A key was requeued. In client-go the key counts as processed, and the queue as populated.
    pub(super) fn requeued(&mut self, before: &State) {
        if !before.has_synced {
            self.excuse.get_or_insert(expected::REQUEUE);
        }
    }
}
