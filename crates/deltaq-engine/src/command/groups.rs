//! Decisions on what stops the delivery of a group.

use std::sync::Arc;
use std::time::Duration;

use deltaq_types::HoldScope;

use super::consume::hold_end;
use super::{How, Progress};
use crate::event::EventKind;
use crate::group_rules::GroupRules;
use crate::id::{Slot, Token};
use crate::limits::GROUPS_MAX;
use crate::queue::Queue;
use crate::scan::ScanCursor;
use crate::time::Time;

impl Queue {
    /// Pauses or resumes the delivery of a group. The empty name is that of the group without a name. A resume also ends a hold of the group.
    /// Returns false if there is no such group and no room for it.
    pub fn set_group_paused(&mut self, now: Time, name: &str, paused: bool) -> bool {
        let now = self.advance(now);
        let Some(groups) = self.state().schedule.groups.as_deref() else { return false };
        let stop = groups.stop_of(name);
        if paused && !name.is_empty() && !groups.has_room(name, GROUPS_MAX) {
            return false;
        }
        let is_held = !paused && stop.held_until > now;
        if stop.paused != paused || is_held {
            let group = (!name.is_empty()).then(|| name.into());
            self.emit(
                now,
                if paused { EventKind::GroupPaused { group } } else { EventKind::GroupResumed { group } },
            );
        }
        true
    }

    /// Whether keys have to be moved to other groups after a change of the settings. [`regroup_step`](Self::regroup_step) moves them.
    #[must_use]
    pub fn must_regroup(&self) -> bool {
        self.state().schedule.groups.as_deref().is_some_and(|groups| groups.regroups)
    }

    /// Moves keys to the groups that the settings name. They keep their arrivals, and until then are in the groups in which they were. Returns the
    /// number of the moved keys.
    pub fn regroup_step(&mut self, now: Time, cursor: &mut ScanCursor, budget: usize) -> Progress<u64> {
        let now = self.advance(now);
        if !self.must_regroup() {
            return Progress::Done(cursor.keys);
        }
        for slot in cursor.next_slots(self.state(), budget, |_| true) {
            if let Some(grouped) = self.state().regrouped_key(slot) {
                self.emit_at(now, Some(slot), grouped);
                cursor.keys += 1;
            }
        }
        if cursor.is_under_way() {
            return Progress::More;
        }
        self.emit(now, EventKind::Regrouped);
        Progress::Done(cursor.keys)
    }

    /// Whether keys have to be moved once the queue has these groups: the setting names the groups in another way, or keys are still being moved.
    pub(super) fn regroups_after(&self, next: Option<&GroupRules>) -> bool {
        let before = self.state().config.groups.as_deref();
        let is_same = before.map(|before| &before.by) == next.map(|next| &next.by);
        let moves = if is_same { self.must_regroup() } else { self.state().table.len() > 0 };
        next.is_some() && moves
    }

    /// Lets groups have turns again whose holds have ended. This changes no state.
    #[inline]
    pub fn wake_groups(&mut self, now: Time) {
        if let Some(groups) = self.groups_mut() {
            groups.wake(now);
        }
    }

    /// The group that a settle holds: that of its lease. `None` for the group without a name.
    pub(super) fn held_group(&self, how: &How, slot: Slot, token: Token) -> Option<Arc<str>> {
        let How::Hold { scope: HoldScope::Group, .. } = how else { return None };
        self.state().schedule.groups.as_deref()?.charged_to(token, slot).cloned()
    }

    /// Delivers no key of a group for a time. A hold that ends later stays. Returns when the hold ends.
    pub(super) fn hold_group(&mut self, now: Time, group: Option<Arc<str>>, length: Duration) -> Time {
        let until = hold_end(now, length);
        let groups = self.state().schedule.groups.as_deref();
        let held_until = groups.map(|groups| groups.stop_of(group.as_deref().unwrap_or_default()).held_until);
        let held_until = held_until.unwrap_or_default();
        if until > now.max(held_until) {
            self.emit(now, EventKind::GroupHeld { group, until });
        }
        held_until.max(until)
    }
}
