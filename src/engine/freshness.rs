//! How old the oldest change is that no worker has acknowledged.
//!
//! A key's change is unacknowledged from its arrival until the ack of a lease that it is part of. Failures, delays and
//! releases do not begin a new age. A key has one such time: the arrival of the oldest of its changes, even if newer changes
//! have replaced that one.

use super::event::{Ending, EventKind};
use super::id::Slot;
use super::schedule::{Place, ScheduleState};
use super::state::State;
use super::time::Time;

/// What a key's unacknowledged changes were before an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changes {
    /// When the oldest change arrived.
    oldest: Option<Time>,
    /// When the first change after the lease began arrived.
    later: Option<Time>,
    /// The key's time in the schedule's `older_changes`.
    indexed: Option<Time>,
}

impl Changes {
    /// The changes of a key before the next event.
    pub(super) fn of(state: &ScheduleState) -> Self {
        Self {
            oldest: state.oldest_change(),
            later: state.lease().and_then(|lease| lease.later_change),
            indexed: state.older_change(),
        }
    }
}

impl State {
    /// Completes the effect of an event on its key: the arrival of the key's oldest unacknowledged change.
    pub(super) fn track_changes(&mut self, slot: Slot, before: Changes, kind: &EventKind, at: Time) {
        let Some(entry) = self.table.at_mut(slot) else { return };
        let state = &mut entry.schedule_state;
        let arrives = matches!(kind, EventKind::Appended(_) | EventKind::Queued(_));
        if let Place::Leased(lease) = &mut state.place {
            if arrives {
                lease.later_change.get_or_insert(at);
            } else if matches!(kind, EventKind::Dropped { .. } | EventKind::Removed { .. }) {
                lease.later_change = None;
            }
        }
        let oldest = if !state.has_work() {
            None
        } else if acknowledges(kind, state.failures) {
            // Without a later change, a delay has outlasted the lease. The age of that delay begins here.
            before.later.or(Some(at))
        } else {
            before.oldest.or(arrives.then_some(at))
        };
        self.schedule.set_oldest_change(slot, state, before.indexed, oldest);
    }

    /// When the oldest unacknowledged change of all keys arrived. Parked keys do not count.
    pub(super) fn oldest_change(&self) -> Option<Time> {
        // The ready queue is ordered by the time at which its keys became ready. For all keys outside of `older_changes`
        // this is the arrival of their oldest change. If the first ready key is in `older_changes`, its oldest change is older
        // than its own position, and so than all positions behind it.
        let (older, ready) = (self.schedule.oldest_older_change(), self.oldest_ready());
        older.into_iter().chain(ready).min()
    }
}

/// Whether the event acknowledges the changes of a lease. `Done` does so unless failures remain: a controller that retries by
/// AddRateLimited and Done has not succeeded.
fn acknowledges(kind: &EventKind, failures: u32) -> bool {
    match kind {
        EventKind::Settled { ending: Ending::Acked, .. } => true,
        EventKind::Settled { ending: Ending::Done, .. } => failures == 0,
        _ => false,
    }
}
