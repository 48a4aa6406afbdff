//! The oldest change that no worker has acknowledged.
//!
//! A change is unacknowledged from its arrival until a lease that contains it is acknowledged. Failures, delays and
//! releases do not reset the age. For each key, only the oldest unacknowledged change counts, even if newer changes
//! have replaced it. In mode events, each change stays a delta until it is acknowledged, so this is the oldest delta.

use super::delta::Delta;
use super::event::{Ending, EventKind};
use super::id::{Rv, Slot};
use super::schedule::{EventId, Place, ScheduleState};
use super::state::State;

/// The unacknowledged changes of a key before an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changes {
    oldest: Option<EventId>,
    /// The first change after the lease began.
    later: Option<EventId>,
    /// The key's number in the schedule's `older_changes`.
    indexed: Option<Rv>,
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
    /// Updates the oldest unacknowledged change of the event's key.
    pub(super) fn track_changes(&mut self, slot: Slot, before: Changes, kind: &EventKind, id: EventId) {
        let Some(entry) = self.table.at_mut(slot) else { return };
        let oldest_delta = entry.oldest_delta();
        let has_merged = oldest_delta.is_some_and(|delta| delta.coalesced > 0);
        let oldest_delta = oldest_delta.map(Delta::event);
        let state = &mut entry.schedule_state;
        let arrives = matches!(kind, EventKind::Appended(_) | EventKind::Queued(_));
        if let Place::Leased(lease) = &mut state.place {
            if arrives {
                lease.later_change.get_or_insert(id);
            } else if matches!(kind, EventKind::Dropped { .. } | EventKind::Removed { .. }) {
                lease.later_change = None;
            }
        }
        let oldest = if !state.has_work() {
            None
        } else if self.config.rules().leases_oldest_delta {
            oldest_delta
        } else {
            match acknowledged(kind, state.failures) {
                // If there is no later change, a delay has outlasted the lease. The age of its change begins at this event.
                Acknowledged::Lease => before.later.or(Some(id)),
                // A change that was merged into the oldest of the others may be older than it.
                Acknowledged::Part if has_merged => before.oldest,
                Acknowledged::Part => oldest_delta,
                Acknowledged::Nothing => before.oldest.or(arrives.then_some(id)),
            }
        };
        self.schedule.set_oldest_change(slot, state, before.indexed, oldest);
    }

    /// The oldest unacknowledged change of all keys. Parked keys do not count.
    pub(super) fn oldest_change(&self) -> Option<EventId> {
        // The number of a ready key is that of the event that made it ready or, in mode events, of the oldest delta.
        // For a key outside `older_changes`, this event is its oldest change. If the first ready key is in
        // `older_changes`, its oldest change is older than its own position, and therefore older than all later
        // positions.
        let oldest = |slot| self.entry(slot).schedule_state.oldest_change();
        let older = self.schedule.oldest_older_change().and_then(oldest);
        let ready = self.schedule.order().first_by_rv().and_then(|(_, slot)| oldest(slot));
        older.into_iter().chain(ready).min()
    }
}

/// The changes of a lease that an event acknowledges.
enum Acknowledged {
    Nothing,
    /// The older ones.
    Part,
    /// All of them.
    Lease,
}

/// What the event acknowledges. `Done` acknowledges a lease only if the key has no failures: a controller that retries with AddRateLimited and
/// Done has not succeeded.
fn acknowledged(kind: &EventKind, failures: u32) -> Acknowledged {
    match kind {
        EventKind::Settled { ending: Ending::Acked, .. } => Acknowledged::Lease,
        EventKind::Settled { ending: Ending::Done, .. } if failures == 0 => Acknowledged::Lease,
        EventKind::Progressed { .. } => Acknowledged::Part,
        _ => Acknowledged::Nothing,
    }
}
