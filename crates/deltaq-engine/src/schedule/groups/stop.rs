//! What stops the delivery of a group: a pause, a hold, and the rate.
//!
//! Holds end, and debts are paid, by themselves. From then on the group has turns again, which changes no state: `wake` only moves the group in
//! the indexes. What has ended is removed with the next lease or switch of any group, so the state is a function of the events.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use super::{GroupId, Groups};
use crate::rate::{Rate, RateDebt};
use crate::time::Time;

/// What stops the delivery of a group. Times that do not apply are the start of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) paused: bool,
    /// When the hold ends.
    pub(crate) held_until: Time,
    /// What the group owes to its rate.
    pub(crate) debt: RateDebt,
    /// When the rate lets the next key through. It follows from the debt.
    pub(super) next_by_rate: Time,
    /// When the debt is paid. It follows from the debt.
    paid_at: Time,
}

impl Stop {
    /// When the hold has ended and the rate lets the next key through.
    pub(super) fn until(self) -> Time {
        self.held_until.max(self.next_by_rate)
    }

    /// When the hold has ended and the debt is paid. A group without a pause is then as new.
    pub(super) fn ends_at(self) -> Time {
        self.held_until.max(self.paid_at)
    }

    fn owe(&mut self, rate: Option<Rate>, debt: RateDebt) {
        self.debt = if debt.owed == 0 { RateDebt::default() } else { debt };
        let rate = rate.filter(|_| debt.owed > 0);
        self.next_by_rate = rate.map_or_else(Time::default, |rate| rate.next(debt, 0, debt.at));
        self.paid_at = rate.map_or_else(Time::default, |rate| rate.paid_at(debt));
    }
}

impl Groups {
    /// Changes a pause or a hold of a group.
    pub(crate) fn switch(&mut self, name: Option<&Arc<str>>, at: Time, change: impl FnOnce(&mut Stop)) {
        self.end_stops(at);
        let id = self.find_or_add(name);
        self.change_stop(id, change);
        self.forget(id);
    }

    /// Records that a key of a group is delivered.
    pub(super) fn note_delivery(&mut self, id: GroupId, at: Time) {
        if let Some(rate) = self.at(id).rate {
            self.change_stop(id, |stop| stop.owe(Some(rate), rate.deliver(stop.debt, at)));
        }
    }

    /// Records that a group has another rate from now on. What it owes stays.
    pub(super) fn change_rate(&mut self, id: GroupId, next: Option<Rate>, at: Time) {
        let before = std::mem::replace(&mut self.at_mut(id).rate, next);
        if before != next {
            let owes = before.filter(|_| next.is_some());
            self.change_stop(id, |stop| {
                stop.owe(next, owes.map_or_else(RateDebt::default, |rate| rate.pay(stop.debt, at)));
            });
        }
    }

    /// Restores what stops the delivery of a group.
    pub(super) fn restore_stop(&mut self, id: GroupId, paused: bool, held_until: Time, debt: RateDebt) {
        let rate = self.at(id).rate;
        self.change_stop(id, |stop| {
            (stop.paused, stop.held_until) = (paused, held_until);
            stop.owe(rate, debt);
        });
    }

    /// Lets groups have turns again for which nothing but time was missing. A clock that was set back makes them wait again.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake(&mut self, now: Time) {
        let (from, to) = (self.now.min(now), self.now.max(now));
        if from == to {
            return;
        }
        let changed =
            self.wakes.range((Excluded((from, GroupId(u32::MAX))), Included((to, GroupId(u32::MAX)))));
        let changed: Vec<GroupId> = changed.map(|(_, id)| *id).collect();
        self.now = now;
        for id in changed {
            self.place(id);
        }
    }

    /// When a group has turns again for which nothing but time is missing.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        let woken = (self.now, GroupId(u32::MAX));
        self.wakes.range((Excluded(woken), Unbounded)).next().map(|(until, _)| *until)
    }

    /// Removes the holds that had ended and the debts that were paid at an event.
    pub(super) fn end_stops(&mut self, at: Time) {
        while let Some((_, id)) = self.ends.first().copied().filter(|(ends_at, _)| *ends_at <= at) {
            self.change_stop(id, |stop| *stop = Stop { paused: stop.paused, ..Stop::default() });
            self.forget(id);
        }
    }

    fn change_stop(&mut self, id: GroupId, change: impl FnOnce(&mut Stop)) {
        let stop = &mut self.at_mut(id).stop;
        let was = *stop;
        change(stop);
        let is = *stop;
        move_in(&mut self.ends, id, timed(was.ends_at()), timed(is.ends_at()));
        self.place(id);
    }
}

/// A time that is not the start of time.
pub(super) fn timed(at: Time) -> Option<Time> {
    Some(at).filter(|at| *at != Time::default())
}

/// Moves a group in an index of times.
pub(super) fn move_in(
    index: &mut BTreeSet<(Time, GroupId)>,
    id: GroupId,
    was: Option<Time>,
    is: Option<Time>,
) {
    if was == is {
        return;
    }
    if let Some(was) = was {
        index.remove(&(was, id));
    }
    if let Some(is) = is {
        index.insert((is, id));
    }
}
