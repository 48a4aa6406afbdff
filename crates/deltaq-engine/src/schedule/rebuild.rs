//! Builds a schedule from the states of all keys, for recovery.

use super::{Groups, Order, Place, Schedule, ScheduleState, Timer, Turn};
use crate::id::{Rv, Slot, Token};
use crate::key::Key;
use crate::time::Time;

/// Collects the states of keys in any order. Sorting each index once at the end takes a fraction of the time that it
/// takes to insert millions of keys one by one.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    ready: Vec<(Rv, Slot)>,
    ranked: Vec<(Turn, Slot)>,
    delayed: Vec<(Time, Rv, Slot)>,
    windows: Vec<(Time, Rv, Slot)>,
    leases: Vec<(Time, Token, Slot)>,
    tokens: Vec<(Token, Slot)>,
    leased_since_us: u128,
    parked: Vec<(Key, Slot)>,
    failure_expiries: Vec<(Time, Rv, Slot)>,
    older_changes: Vec<(Rv, Slot)>,
    idle_delayed: usize,
    leased_with_changes: usize,
}

impl Rebuild {
    /// Adds the state of a key.
    pub(crate) fn add(&mut self, slot: Slot, key: &Key, schedule_state: &ScheduleState) {
        match &schedule_state.place {
            Place::Idle => {}
            Place::Ready(position) => match schedule_state.turn() {
                Some(turn) => self.ranked.push((turn, slot)),
                None => self.ready.push((position.rv, slot)),
            },
            Place::Leased(lease) => {
                self.leases.push((lease.deadline, lease.token, slot));
                self.tokens.push((lease.token, slot));
                self.leased_since_us += u128::from(lease.since.as_micros());
                self.leased_with_changes += usize::from(lease.new_change.is_some());
            }
            Place::Parked => self.parked.push((key.clone(), slot)),
        }
        match schedule_state.wait().timer {
            Timer::None => {}
            Timer::Delay(due, rv) => self.delayed.push((due, rv, slot)),
            Timer::Window { due, rv, .. } => self.windows.push((due, rv, slot)),
        }
        if let Some((at, rv)) = schedule_state.failure_expiry() {
            self.failure_expiries.push((at, rv, slot));
        }
        self.older_changes.extend(schedule_state.older_change().map(|rv| (rv, slot)));
        self.idle_delayed += usize::from(schedule_state.is_delayed());
    }

    /// The schedule of all added keys. `groups` know which slots belong to which group.
    pub(crate) fn finish(self, mut groups: Option<Box<Groups>>) -> Schedule {
        if let Some(groups) = &mut groups {
            let mut ready = self.ready.clone();
            ready.sort_unstable();
            for (rv, slot) in ready {
                groups.enter(slot, rv, None);
            }
            for (turn, slot) in &self.ranked {
                groups.enter(*slot, turn.rv, Some(*turn));
            }
        }
        Schedule {
            groups,
            order: Order::collect(self.ready, self.ranked),
            delayed: self.delayed.into_iter().map(|entry| (entry, ())).collect(),
            windows: self.windows.into_iter().map(|entry| (entry, ())).collect(),
            leases: self.leases.into_iter().map(|entry| (entry, ())).collect(),
            tokens: self.tokens.into_iter().collect(),
            leased_since_us: self.leased_since_us,
            parked: self.parked.into_iter().collect(),
            failure_expiries: self.failure_expiries.into_iter().map(|entry| (entry, ())).collect(),
            older_changes: self.older_changes.into_iter().map(|entry| (entry, ())).collect(),
            idle_delayed: self.idle_delayed,
            leased_with_changes: self.leased_with_changes,
        }
    }
}
