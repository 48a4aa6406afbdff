//! Recovery: rebuilds a queue from a checkpoint and the events after it.
//!
//! The order of the calls is [`Restore::new`], [`Restore::key`] or [`Restore::removed`] for each entry of a checkpoint,
//! [`Restore::finish`], then [`Queue::replay`] for each event after the restored state, and finally [`Queue::recover`] once. No time passes
//! during these calls: leases get their full length again, and timers that became due during the downtime fire after
//! the recovery.

use std::num::NonZero;

use super::births::Births;
use super::checkpoint::{Checkpoints, SlotSet};
use super::deliveries::Deliveries;
use super::event::{EventKind, ReplaceCounts, ReplaceEnded};
use super::failing::failures_of;
use super::id::{Rv, Slot};
use super::initial::InitialList;
use super::key::Key;
use super::limits::RV_MAX;
use super::lives::{Birth, Lives};
use super::queue::Queue;
use super::remembered::RememberedVersions;
use super::schedule::{Groups, Rebuild};
use super::snapshot::{KeyState, QueueState};
use super::state::State;
use super::table::Entry;
use super::time::Time;
use super::volatile::Volatile;

/// A queue that is being restored from its checkpoint.
#[derive(Debug)]
pub struct Restore {
    state: State,
    checkpoints: Checkpoints,
    /// The slots that had an entry.
    seen: SlotSet,
}

impl Restore {
    /// Starts from the state at a completed checkpoint, without keys.
    #[must_use]
    pub fn new(from: QueueState) -> Self {
        let mut state = State::new(from.config, from.rv, from.last_at);
        if let Some(lives) = Lives::restore(from.lives) {
            state.lives = lives;
        }
        state.auto_created = from.auto_created;
        state.creator = from.creator;
        (state.paused, state.pause_reason) = (from.paused, from.pause_reason);
        state.held_until = from.held_until;
        state.closed = from.closed;
        state.closes_at_once = from.closes_at_once;
        state.initial = from.initial;
        state.bucket = from.bucket;
        state.debt = from.debt;
        if let (Some(rules), Some(groups)) = (state.config.groups.clone(), from.groups) {
            state.schedule.groups = Some(Box::new(Groups::restore(rules, *groups)));
        }
        state.next_resync = from.next_resync;
        state.last_replace = from.last_replace;
        state.followed = from.followed;
        state.follow_set_by.clone_from(&from.follow_set_by);
        state.sources.restore(from.sources);
        state.versions = RememberedVersions::restore(from.versions);
        state.deliveries = Deliveries::restore(from.received, from.kept);
        state.settled = from.settled;
        if let Some(since) = from.births_since {
            state.births = Births::of(state.config.kubernetes_view(), since);
        }
        state.stops = state.may_stop();
        Self { checkpoints: Checkpoints::restored(state.rv), state, seen: SlotSet::default() }
    }

    /// Records that the key of a slot was removed. Older entries of the slot are ignored.
    pub fn removed(&mut self, slot: Slot) {
        self.seen.insert(slot);
    }

    /// Puts a key into its slot. Entries must come newest first: only the first one of a slot counts. Returns whether
    /// this is the first one.
    pub fn key(&mut self, slot: Slot, mut from: KeyState) -> bool {
        if !self.seen.insert(slot) {
            return false;
        }
        if let Some(oldest) = from.leased.iter().chain(&from.waiting).next() {
            from.schedule_state.complete_oldest_change(oldest.rv);
        }
        from.schedule_state.restore_window();
        if let Some(group) = from.group.take() {
            if let Some(groups) = &mut self.state.schedule.groups {
                groups.assign(slot, Some(&group), None);
            }
            self.state.restored_groups.push((slot, from.rv, group));
        }
        if let Some(birth) = from.birth {
            self.state.restore_birth(slot, birth);
        }
        let mut entry = Entry {
            key: from.key,
            waiting: from.waiting.into(),
            leased: from.leased.into(),
            known: from.known.map(Box::new),
            schedule_state: from.schedule_state,
            initial_pending: from.initial_pending.and_then(|pending| NonZero::new(pending.get())),
            changed: from.rv,
            latest_rv: from.latest_rv,
        };
        if entry.schedule_state.may_move() {
            let arrival = entry.arrival(self.state.config.rules());
            entry.schedule_state.restore_turn(arrival);
        }
        self.state.table.put(slot, entry);
        self.checkpoints.note_entry(slot);
        true
    }

    /// Completes the queue after the last key: builds the indexes and the counts.
    ///
    /// # Errors
    /// A key has two slots. The text names the key and both slots.
    pub fn finish(self) -> Result<Queue, String> {
        let Self { mut state, mut checkpoints, .. } = self;
        state.table.restored()?;
        let mut schedule = Rebuild::default();
        for (slot, entry) in state.table.by_slot() {
            schedule.add(slot, &entry.key, &entry.schedule_state);
            state.sources.key_moved(slot, None, entry.owner());
            state.known += usize::from(entry.known.is_some());
            state.initial_pending += usize::from(entry.initial_pending.is_some());
            state.failing.change(0, failures_of(&entry.schedule_state));
            state.held_bytes += entry.held_bytes();
            checkpoints.key_bytes += entry.stored_bytes();
            if let Some(lease) = entry.schedule_state.lease()
                && let Some(id) = &lease.pop_id
            {
                state.pops.add(id, lease.token);
            }
        }
        state.schedule = schedule.finish(state.schedule.groups.take());
        Ok(Queue::from_parts(state, Volatile { checkpoints, ..Volatile::default() }))
    }
}

/// The event numbers of a queue are exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its last number is {last}, and a life that begins now would have numbers above {RV_MAX}; check the clock of the machine"
)]
pub struct NoNumbers {
    /// The last number.
    pub last: Rv,
}

impl Queue {
    /// Ends the recovery. Must be called once, after the replay and before any command. A new life of the queue
    /// begins. Live leases get at least their full length again, because their workers could not reach the server. An
    /// unfinished Replace is recorded as aborted.
    ///
    /// # Errors
    /// The queue has no number left for a new life. The queue is unchanged.
    pub fn recover(&mut self, now: Time, birth: Birth) -> Result<(), NoNumbers> {
        let last = self.resource_version();
        let first = birth.first_after(last);
        if first.get() > RV_MAX {
            return Err(NoNumbers { last });
        }
        let now = now.max(self.last_at());
        self.volatile.now = now;
        self.wake_groups(now);
        self.emit_as(first, now, None, EventKind::Recovered { life: birth.id });
        for (key, deadline) in self.short_leases(now) {
            self.emit(now, EventKind::Extended { key, deadline });
        }
        self.abort_replace(now);
        Ok(())
    }

    /// The keys whose leases have less than their full length left at `now`, with their new deadlines, oldest lease
    /// first.
    fn short_leases(&self, now: Time) -> Vec<(Key, Time)> {
        let entries = self.state().schedule.leased_slots().map(|slot| self.state().entry(slot));
        let short = entries.filter_map(|entry| {
            let lease = entry.schedule_state.lease()?;
            let deadline = now.plus(lease.length);
            (lease.deadline < deadline).then(|| (entry.key.clone(), deadline))
        });
        short.collect()
    }

    /// Records that an unfinished Replace was aborted.
    fn abort_replace(&mut self, now: Time) {
        let cut = self.state().last_replace.as_ref().filter(|last| last.ended.is_none());
        if let Some(source) = cut.map(|last| last.source.clone()) {
            let first = matches!(self.state().initial, InitialList::Running { .. });
            let counts = ReplaceCounts::default();
            self.emit(now, EventKind::ReplaceEnded(ReplaceEnded { source, first, aborted: true, counts }));
        }
    }
}
