//! Scans: how a command visits many keys in steps.

use super::Purged;
use crate::engine::delta::{Provenance, Rv};
use crate::engine::key::Key;
use crate::engine::queue::Queue;
use crate::engine::schedule::Slot;
use crate::engine::table::Entry;
use crate::engine::trace::Trace;

/// The progress of a command over many keys: the last key, and the counts so far.
#[derive(Clone, Debug, Default)]
pub struct ScanCursor {
    pub(super) after: Option<Key>,
    pub(super) begun: Option<Rv>,
    pub(super) done: Purged,
    pub(super) trace: Option<Trace>,
    /// The provenance of the latest delta. Most later deltas have the same.
    pub(super) provenance: Provenance,
}

impl ScanCursor {
    /// A cursor whose deltas belong to the trace of a call.
    #[must_use]
    pub fn traced(trace: Option<Trace>) -> Self {
        Self { trace, ..Self::default() }
    }

    /// Whether there are more keys to examine.
    pub(in crate::engine) fn is_under_way(&self) -> bool {
        self.after.is_some()
    }
}

impl Queue {
    /// The slots among the next `budget` entries for which `wanted` holds. The cursor has no last key when the scan is
    /// complete.
    pub(in crate::engine) fn next_slots(
        &self,
        cursor: &mut ScanCursor,
        budget: usize,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut last = None;
        let mut seen = 0;
        for (slot, entry) in self.entries_after(cursor.after.as_ref().map(Key::as_str)).take(budget) {
            seen += 1;
            last = Some(&entry.key);
            if wanted(entry) {
                slots.push(slot);
            }
        }
        cursor.after = last.filter(|_| seen == budget).cloned();
        slots
    }
}
