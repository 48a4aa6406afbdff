//! Scans: visiting many keys in steps.

use super::delta::Provenance;
use super::id::{Rv, Slot};
use super::key::Key;
use super::state::State;
use super::table::Entry;
use super::trace::Trace;

/// The progress of a command over many keys: the last key, and the counts so far.
#[derive(Clone, Debug, Default)]
pub struct ScanCursor {
    pub(super) after: Option<Key>,
    /// The newest event when the command began.
    pub(super) begun: Option<Rv>,
    /// Number of changed keys.
    pub(super) keys: u64,
    /// Number of dropped deltas.
    pub(super) deltas: u64,
    pub(super) trace: Option<Trace>,
    /// The provenance of the latest delta. The next deltas usually have the same one.
    pub(super) provenance: Provenance,
}

impl ScanCursor {
    /// A cursor whose deltas belong to the trace of a call.
    #[must_use]
    pub fn traced(trace: Option<Trace>) -> Self {
        Self { trace, ..Self::default() }
    }

    /// Whether there are more keys to examine.
    pub(super) fn is_under_way(&self) -> bool {
        self.after.is_some()
    }

    /// The slots among the next `budget` entries for which `wanted` holds. The cursor has no last key when the scan is
    /// complete.
    pub(super) fn next_slots(
        &mut self,
        state: &State,
        budget: usize,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut last = None;
        let mut seen = 0;
        for (slot, entry) in state.entries_after(self.after.as_ref().map(Key::as_str)).take(budget) {
            seen += 1;
            last = Some(&entry.key);
            if wanted(entry) {
                slots.push(slot);
            }
        }
        self.after = last.filter(|_| seen == budget).cloned();
        slots
    }
}
