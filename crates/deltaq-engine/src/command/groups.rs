//! Decisions on groups: what stops their delivery, and which keys move to another one.

use std::sync::Arc;
use std::time::Duration;

use deltaq_types::HoldScope;

use super::consume::hold_end;
use super::{How, Progress};
use crate::event::EventKind;
use crate::group_rules::GroupRules;
use crate::id::{Rv, Slot, Token};
use crate::limits::GROUPS_MAX;
use crate::object::Object;
use crate::queue::Queue;
use crate::scan::ScanCursor;
use crate::time::Time;

/// How many bytes of objects a step looks at, besides the last object.
const REGROUP_BYTES: usize = 64 << 10;

/// The progress of a walk over all keys that moves them to other groups.
#[derive(Clone, Debug, Default)]
pub struct RegroupWalk {
    scan: ScanCursor,
    /// The change of the settings that the walk follows.
    since: Option<Rv>,
    moved: u64,
    /// Whether this walk has moved a key, and whether there was no room for a group.
    moves: bool,
    lacks_room: bool,
}

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
        self.regroups_since().is_some()
    }

    /// The event that has changed what names the groups, while keys have to be moved.
    fn regroups_since(&self) -> Option<Rv> {
        self.state().schedule.groups.as_deref()?.regroups_since
    }

    /// Moves keys to the groups that the settings name. They keep their arrivals, and until then are in the groups in which they were. A step
    /// looks at no more than `budget` keys, and at few large objects. Returns the number of the moved keys.
    pub fn regroup_step(&mut self, now: Time, walk: &mut RegroupWalk, budget: usize) -> Progress<u64> {
        let now = self.advance(now);
        let Some(since) = self.regroups_since() else { return Progress::Done(walk.moved) };
        if walk.since != Some(since) {
            // The settings have changed again.
            *walk = RegroupWalk { since: Some(since), moved: walk.moved, ..RegroupWalk::default() };
        }
        let mut bytes = 0;
        for _ in 0..budget {
            let Some(slot) = walk.scan.next_slots(self.state(), 1, |_| true).pop() else {
                return self.end_walk(now, walk);
            };
            bytes += self.state().entry(slot).newest_object().map_or(0, Object::bytes);
            let (grouped, lacks_room) = self.state().regrouped_key(slot);
            walk.lacks_room |= lacks_room;
            if let Some(grouped) = grouped {
                self.emit_at(now, Some(slot), grouped);
                walk.moves = true;
                walk.moved += 1;
            }
            if bytes > REGROUP_BYTES {
                break;
            }
        }
        Progress::More
    }

    /// Ends a walk over all keys. Another one follows if there was no room for a group, and keys have left other groups meanwhile.
    fn end_walk(&mut self, now: Time, walk: &mut RegroupWalk) -> Progress<u64> {
        if std::mem::take(&mut walk.moves) & std::mem::take(&mut walk.lacks_room) {
            return Progress::More;
        }
        self.emit(now, EventKind::Regrouped);
        Progress::Done(walk.moved)
    }

    /// Whether keys have to be moved because the queue gets groups that are named in another way.
    pub(super) fn regroups_for(&self, next: Option<&GroupRules>) -> bool {
        let before = self.state().config.groups.as_deref();
        let is_same = before.map(|before| &before.by) == next.map(|next| &next.by);
        next.is_some() && !is_same && !self.state().table.is_empty()
    }

    /// Lets groups have turns again whose holds have ended or whose rates allow it. This changes no state.
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
