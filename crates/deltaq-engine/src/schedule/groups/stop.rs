//! What stops the delivery of a group: a pause, and a hold.
//!
//! A hold ends by itself. From then on the group has turns again, which changes no state: `wake` only moves the group in the indexes. The
//! hold is removed with the next lease or switch of any group, so the state is a function of the events.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use super::{GroupId, Groups};
use crate::time::Time;

/// What stops the delivery of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) paused: bool,
    /// When the hold ends. The start of time without a hold.
    pub(crate) held_until: Time,
}

impl Stop {
    /// Whether nothing of the group is delivered at `now`.
    pub(crate) fn stops(self, now: Time) -> bool {
        self.paused || self.held_until > now
    }
}

impl Groups {
    /// Changes what stops the delivery of a group.
    pub(crate) fn switch(&mut self, name: Option<&Arc<str>>, at: Time, change: impl FnOnce(&mut Stop)) {
        self.end_holds(at);
        let id = self.find_or_add(name);
        let stop = &mut self.at_mut(id).stop;
        let was = std::mem::replace(stop, {
            let mut is = *stop;
            change(&mut is);
            is
        });
        self.index_hold(id, was.held_until);
        self.place(id);
        self.forget(id);
    }

    /// Lets groups have turns again whose holds have ended. A clock that was set back makes them wait again.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake(&mut self, now: Time) {
        let (from, to) = (self.now.min(now), self.now.max(now));
        if from == to {
            return;
        }
        let changed =
            self.holds.range((Excluded((from, GroupId(u32::MAX))), Included((to, GroupId(u32::MAX)))));
        let changed: Vec<GroupId> = changed.map(|(_, id)| *id).collect();
        self.now = now;
        for id in changed {
            self.place(id);
        }
    }

    /// When the next hold ends.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        let ended = (self.now, GroupId(u32::MAX));
        self.holds.range((Excluded(ended), Unbounded)).next().map(|(until, _)| *until)
    }

    /// Removes the holds that had ended at an event.
    pub(super) fn end_holds(&mut self, at: Time) {
        while let Some((until, id)) = self.holds.first().copied()
            && until <= at
        {
            self.holds.pop_first();
            self.at_mut(id).stop.held_until = Time::default();
            self.place(id);
            self.forget(id);
        }
    }

    /// Restores what stops the delivery of a group.
    pub(super) fn restore_stop(&mut self, id: GroupId, stop: Stop) {
        self.at_mut(id).stop = stop;
        self.index_hold(id, Time::default());
    }

    fn index_hold(&mut self, id: GroupId, was: Time) {
        let is = self.at(id).stop.held_until;
        if was != is {
            self.holds.remove(&(was, id));
            if is != Time::default() {
                self.holds.insert((is, id));
            }
        }
    }
}
