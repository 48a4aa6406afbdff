//! Recovery: a queue is rebuilt from a checkpoint and the events since.
//!
//! The order of the calls is [`Queue::restore`], [`Queue::restore_key`] for each row, [`Queue::restored`], then
//! [`Queue::replay`] for each event behind the restored state, then once [`Queue::recover`]. No time passes meanwhile:
//! leases get their full length again, and what became due during the downtime happens after the recovery.

use std::num::NonZero;

use super::event::{Event, EventKind, ReplaceCounts, ReplaceEnded};
use super::key::Key;
use super::limits::RECOVERY_SKIP_EVENTS;
use super::queue::{Initial, Queue};
use super::schedule::{Rebuild, Slot};
use super::snapshot::{KeyState, QueueState};
use super::table::Entry;
use super::time::Time;

impl Queue {
    /// A journaled queue as of a completed checkpoint, without keys.
    #[must_use]
    pub fn restore(state: QueueState) -> Self {
        let mut queue = Self::new(state.config, state.rv, state.last_at);
        queue.auto_created = state.auto_created;
        queue.populated = state.populated;
        queue.paused = state.paused;
        queue.closed = state.closed;
        queue.initial = state.initial;
        queue.bucket = state.bucket;
        queue.next_resync = state.next_resync;
        queue.last_replace = state.last_replace;
        for (token, outcome) in state.settled {
            queue.settled.insert(token, outcome);
        }
        queue.checkpoints.journaled = true;
        queue.checkpoints.begun = state.rv;
        queue
    }

    /// Puts a key into its slot. If a key has both a row and a removal, only the newer of them counts. The queue is incomplete
    /// before [`restored`](Self::restored).
    ///
    /// # Errors
    /// The text names the slot and both keys, if the slot is occupied.
    pub fn restore_key(&mut self, slot: Slot, state: KeyState) -> Result<(), String> {
        let entry = Entry {
            key: state.key,
            waiting: state.waiting.into(),
            leased: state.leased.into(),
            known: state.known.map(Box::new),
            schedule_state: state.schedule_state,
            initial_pending: state.initial_pending.and_then(NonZero::new),
            changed: state.rv,
            has_row: true,
        };
        self.table.put(slot, entry)
    }

    /// Completes the queue after the last key: builds the indexes and the counts.
    ///
    /// # Errors
    /// The text names the key and both slots, if a key has two.
    pub fn restored(&mut self) -> Result<(), String> {
        self.table.restored()?;
        let mut schedule = Rebuild::default();
        (self.known, self.initial_pending, self.checkpoints.key_bytes) = (0, 0, 0);
        for (slot, entry) in self.table.by_slot() {
            schedule.add(slot, &entry.key, &entry.schedule_state);
            self.known += usize::from(entry.known.is_some());
            self.initial_pending += usize::from(entry.initial_pending.is_some());
            self.checkpoints.key_bytes += entry.stored_bytes();
            if let Some(id) = entry.schedule_state.lease().and_then(|lease| lease.pop_id.as_ref()) {
                self.pop_ids.entry(id.clone()).or_default().push(slot);
            }
        }
        self.schedule = schedule.finish();
        Ok(())
    }

    /// Ends the recovery; to be called once, after the replay and before any command. After an unclean stop the event
    /// numbers skip ahead, because the process may have used numbers that the journal does not contain. Live leases get at
    /// least their full length again, because their workers could not reach the server. An unfinished Replace is recorded as
    /// aborted.
    pub fn recover(&mut self, now: Time, unclean: bool) {
        let now = now.max(self.last_at);
        // The adds of the replay were counted when they happened.
        self.adds_taken = self.schedule.adds();
        if unclean {
            let event = Event { rv: self.rv + RECOVERY_SKIP_EVENTS, at: now, kind: EventKind::Recovered };
            self.apply(&event);
            self.effects.events.push(event);
        }
        for (key, deadline) in self.short_leases(now) {
            self.emit(now, EventKind::Extended { key, deadline });
        }
        self.abort_replace(now);
    }

    /// The keys whose leases end before their full length from `now` on, and their new deadlines, oldest lease first.
    fn short_leases(&self, now: Time) -> Vec<(Key, Time)> {
        let entries = self.schedule.leased_slots().filter_map(|slot| self.table.at(slot));
        let short = entries.filter_map(|entry| {
            let lease = entry.schedule_state.lease()?;
            let deadline = now.plus(lease.length);
            (lease.deadline < deadline).then(|| (entry.key.clone(), deadline))
        });
        short.collect()
    }

    /// Records that a Replace without an end was aborted.
    fn abort_replace(&mut self, now: Time) {
        let cut = self.last_replace.as_ref().filter(|last| last.ended.is_none());
        if let Some(source) = cut.map(|last| last.source.clone()) {
            let first = self.initial == Initial::Running;
            let counts = ReplaceCounts::default();
            self.emit(now, EventKind::ReplaceEnded(ReplaceEnded { source, first, aborted: true, counts }));
        }
    }
}
