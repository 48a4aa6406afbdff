//! How often the keys that fail have failed. A key that is parked, or that has no work, does not count.

use std::collections::BTreeMap;

use super::event::EventKind;
use super::schedule::{Place, ScheduleState};

/// The numbers of failures of the keys that may fail again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Failing {
    /// Invariant: has the number of keys for each number of failures above 0.
    keys: BTreeMap<u32, usize>,
}

/// The failures of a key that counts; 0 for any other key.
pub(super) fn failures_of(state: &ScheduleState) -> u32 {
    if matches!(state.place, Place::Parked) || state.failure_expiry().is_some() { 0 } else { state.failures }
}

/// The failures of a key that counts, before an event. `None` if the event can't change them: few keys fail, and few events
/// make a key fail.
pub(super) fn failures_before(state: &ScheduleState, kind: &EventKind) -> Option<u32> {
    (state.failures > 0 || may_fail(kind)).then(|| failures_of(state))
}

/// Whether the event may make a key fail that has not failed before.
fn may_fail(kind: &EventKind) -> bool {
    match kind {
        EventKind::Settled { ending, .. } => ending.failure().is_some(),
        EventKind::Queued(queued) => queued.rate_limited,
        kind => matches!(kind, EventKind::Failed { .. }),
    }
}

impl Failing {
    /// Records that a key has another number of failures.
    pub(super) fn change(&mut self, before: u32, after: u32) {
        if before == after {
            return;
        }
        if before > 0
            && let Some(keys) = self.keys.get_mut(&before)
        {
            *keys -= 1;
            if *keys == 0 {
                self.keys.remove(&before);
            }
        }
        if after > 0 {
            *self.keys.entry(after).or_default() += 1;
        }
    }

    /// The highest number of failures; 0 if no key fails.
    pub(super) fn highest(&self) -> u32 {
        self.keys.last_key_value().map_or(0, |(failures, _)| *failures)
    }
}
