//! Applying what concerns the groups of a queue.

use std::sync::Arc;

use crate::config::GroupRules;
use crate::event::{Charged, Ending, EventKind};
use crate::id::{Rv, Slot, Token};
use crate::schedule::{Groups, Place, Schedule, ScheduleState};
use crate::state::State;
use crate::time::Time;

impl State {
    /// Charges the group of a key that is leased.
    #[cold]
    #[inline(never)]
    pub(super) fn charge(&mut self, charged: &Charged, at: Time) {
        if let Some(groups) = &mut self.schedule.groups {
            groups.lease(Token::new(self.rv), charged, at);
        }
    }

    /// Ends the charge for a lease.
    #[inline]
    pub(super) fn settle_charge(&mut self, token: Token, ending: &Ending, at: Time) {
        if let Some(groups) = &mut self.schedule.groups {
            groups.settle(token, at, ending.outcome().is_some());
        }
    }

    /// Applies what stops the delivery of a group, or ends that.
    #[cold]
    #[inline(never)]
    pub(super) fn switch_group(&mut self, kind: &EventKind, at: Time) {
        let Some(groups) = &mut self.schedule.groups else { return };
        match kind {
            EventKind::GroupPaused { group } => groups.switch(group.as_ref(), at, |stop| stop.paused = true),
            EventKind::GroupResumed { group } => {
                groups.switch(group.as_ref(), at, |stop| {
                    (stop.paused, stop.held_until) = (false, Time::default());
                });
            }
            EventKind::GroupHeld { group, until } => {
                groups.switch(group.as_ref(), at, |stop| stop.held_until = *until);
            }
            _ => {}
        }
    }

    /// Applies the setting `groups`. Without it before, all keys belong to the group without a name until they are moved.
    pub(super) fn change_groups(&mut self, rules: Option<&Arc<GroupRules>>, at: Time) {
        match (&mut self.schedule.groups, rules) {
            (groups, None) => *groups = None,
            (Some(groups), Some(rules)) => groups.configure(rules, at),
            (None, Some(rules)) => {
                let mut groups = Groups::new(rules.clone(), self.schedule.order().clone());
                // In a replay, some keys have got a group after this event.
                for (slot, changed, group) in &self.restored_groups {
                    let entry = self.table.at(*slot).filter(|_| *changed > self.rv);
                    if let Some(entry) = entry {
                        groups.assign(*slot, Some(group), entry.schedule_state.ready_turn());
                    }
                }
                self.schedule.groups = Some(Box::new(groups));
            }
        }
    }

    /// Records whether keys have to be moved to other groups from now on.
    pub(super) fn note_regrouping(&mut self, begins: bool) {
        let rv = self.rv;
        if let Some(groups) = self.schedule.groups.as_mut().filter(|_| begins) {
            groups.regroups_since = Some(rv);
        }
    }

    /// Records that all keys have been moved.
    pub(super) fn end_regrouping(&mut self) {
        if let Some(groups) = &mut self.schedule.groups {
            groups.regroups_since = None;
        }
    }

    /// Begins a life. No worker could reach the queue since its last event. A replay may go on behind it, with keys in a later state.
    pub(super) fn recover_groups(&mut self, rv: Rv, at: Time) {
        self.restored_groups.retain(|(_, changed, _)| *changed > rv);
        self.restored_groups.shrink_to_fit();
        if let Some(groups) = &mut self.schedule.groups {
            groups.skip(at.since(self.last_at));
        }
    }
}

impl Schedule {
    /// Moves a key to another group. The key keeps its arrival.
    pub(super) fn regroup(&mut self, slot: Slot, state: &ScheduleState, group: Option<&Arc<str>>) {
        if let Some(groups) = &mut self.groups {
            groups.assign(slot, group, state.ready_turn());
        }
    }

    /// Records that a slot has no key any more.
    #[inline]
    pub(super) fn leave_group(&mut self, slot: Slot) {
        if let Some(groups) = &mut self.groups {
            groups.release(slot);
        }
    }

    /// The name of a key's group; `None` for the group without a name, and in a queue without groups.
    pub(crate) fn group_of(&self, slot: Slot) -> Option<&Arc<str>> {
        self.groups.as_deref()?.of(slot).name.as_ref()
    }
}

impl ScheduleState {
    /// The place of a ready key in the order.
    fn ready_turn(&self) -> Option<(Rv, Option<crate::schedule::Turn>)> {
        match self.place {
            Place::Ready(position) => Some((position.rv, self.turn())),
            _ => None,
        }
    }
}
