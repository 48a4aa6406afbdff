//! The only way in which a queue changes: applying an event. It can't fail, and it decides nothing
//! that the event does not say.

use std::num::NonZero;
use std::time::Duration;

use super::command::Outcome;
use super::config::Mode;
use super::delta::{Appended, Delta, DeltaKind, Deltas, Rv};
use super::event::{Disposition, Ending, Event, EventKind, Origin, ReplaceCounts};
use super::limits::FAILURE_MEMORY_SECS;
use super::queue::{Initial, LastReplace, Queue};
use super::schedule::{EventId, Lease, Place, Slot};
use super::table::{Entry, Known};
use super::time::Time;

impl Queue {
    /// Applies the next event. Returns how many pairs of deltas the cap merged.
    pub fn apply(&mut self, event: &Event) -> u32 {
        self.replay(event, 0)
    }

    /// Applies the next event to a queue whose keys may be ahead of the queue itself: what the event
    /// says of its key is passed over if the key has seen it, or was gone as of `floor`, which is the
    /// newest event on the key's gravestones or 0. What it says of the queue counts in any case.
    pub fn replay(&mut self, event: &Event, floor: Rv) -> u32 {
        // A key without an entry has seen nothing, so an event that is passed over makes none.
        let key = event.kind.key().filter(|_| event.rv > floor);
        let slot = key.map(|key| self.table.find_or_insert(key));
        self.apply_at(event, slot)
    }

    /// Applies the next event, whose key has this slot; without one, only what it says of the queue.
    pub(super) fn apply_at(&mut self, event: &Event, slot: Option<Slot>) -> u32 {
        let may_skip = matches!(event.kind, EventKind::Recovered) && event.rv > self.rv;
        debug_assert!(may_skip || event.rv == self.rv + 1, "events are applied in order, without gaps");
        self.rv = event.rv;
        self.last_at = event.at;
        self.apply_to_queue(&event.kind, event.at);
        let Some(slot) = slot else { return 0 };
        let Some(entry) = self.table.at_mut(slot).filter(|entry| event.rv > entry.changed) else { return 0 };
        entry.changed = event.rv;
        let stamp = EventId { rv: event.rv, at: event.at };
        let merged = match &event.kind {
            EventKind::Appended { .. } => self.apply_appended(slot, &event.kind, stamp),
            EventKind::Queued { .. } => self.apply_queued(slot, &event.kind, stamp),
            EventKind::Leased { .. } => self.apply_leased(slot, &event.kind, stamp),
            EventKind::Settled { token, ending, .. } => self.apply_settled(slot, *token, ending, stamp),
            other => {
                self.apply_to_key(slot, other, stamp);
                0
            }
        };
        self.tidy(slot, stamp);
        merged
    }

    /// What the event says of the queue, whatever becomes of its key.
    fn apply_to_queue(&mut self, what: &EventKind, at: Time) {
        match what {
            EventKind::Appended { origin, .. } | EventKind::Dropped { origin, .. } => {
                self.populated |= *origin == Origin::Call;
            }
            EventKind::Queued { rate_limited, .. } => {
                self.populated = true;
                self.take_from_bucket(*rate_limited, at);
            }
            EventKind::Failed { .. } => self.take_from_bucket(true, at),
            EventKind::Settled { token, ending, .. } => {
                self.remember(*token, ending);
                let rate_limited = matches!(ending, Ending::Failed { rate_limited: true, .. });
                self.take_from_bucket(rate_limited, at);
            }
            EventKind::Populated => self.populated = true,
            EventKind::Configured { config } => {
                if self.config.resync_period != config.resync_period {
                    self.next_resync = config.resync_period.map(|period| at.plus(period));
                }
                if self.config.rate_limiter.bucket != config.rate_limiter.bucket {
                    self.bucket = None;
                }
                self.config = config.clone();
                self.auto_created = false;
            }
            EventKind::Paused => self.paused = true,
            EventKind::Resumed => self.paused = false,
            EventKind::Closed => self.closed = true,
            EventKind::Reopened => self.closed = false,
            EventKind::ResyncDue => {
                self.next_resync = self.config.resync_period.map(|period| at.plus(period))
            }
            EventKind::ReplaceStarted { source, first } => {
                if *first {
                    self.initial = Initial::Running;
                }
                let (source, counts) = (source.clone(), ReplaceCounts::default());
                self.last_replace =
                    Some(LastReplace { source, counts, started: at, ended: None, aborted: false });
            }
            EventKind::ReplaceEnded { source, first, counts, aborted } => {
                // What an aborted one queued keeps its marks: the next one, with only_changed, may have
                // no reason to queue it again, and it is not acknowledged yet.
                if *first {
                    self.initial = if *aborted { Initial::Aborted } else { Initial::Quiet };
                }
                self.populated |= !aborted;
                let started = self.last_replace.as_ref().map_or(at, |last| last.started);
                let (source, counts, aborted) = (source.clone(), *counts, *aborted);
                self.last_replace = Some(LastReplace { source, counts, started, ended: Some(at), aborted });
            }
            _ => {}
        }
    }

    fn apply_appended(&mut self, slot: Slot, what: &EventKind, stamp: EventId) -> u32 {
        let EventKind::Appended { key, kind, object, source, owner, final_state_unknown, due, origin, trace } =
            what
        else {
            return 0;
        };
        let (latest_only, cap) = (self.config.latest_only(), self.config.cap());
        let Some(entry) = self.table.at_mut(slot) else { return 0 };
        let last = &mut self.last_provenance;
        let delta = Delta {
            kind: *kind,
            object: object.clone(),
            rv: stamp.rv,
            queued_at: stamp.at,
            final_state_unknown: *final_state_unknown,
            coalesced: 0,
            provenance: last.same_or_next(source.as_ref(), owner.as_ref(), trace.as_ref()),
        };
        let Appended::Queued { merged } = entry.waiting.append(delta, latest_only, cap) else { return 0 };
        if *origin == (Origin::Replace { initial: true }) && mark(entry, stamp.rv).is_none() {
            self.marks += 1;
        }
        match due {
            Some(due) => self.schedule.delay(slot, key, &mut entry.standing, *due, stamp.rv),
            None => self.schedule.wake(slot, key, &mut entry.standing, stamp),
        }
        merged
    }

    fn apply_queued(&mut self, slot: Slot, what: &EventKind, stamp: EventId) -> u32 {
        let EventKind::Queued { key, due, rate_limited } = what else { return 0 };
        let Some(entry) = self.table.at_mut(slot) else { return 0 };
        let standing = &mut entry.standing;
        if *rate_limited && standing.place == Place::Parked {
            standing.failures = 0;
        }
        let failures = if *rate_limited { standing.failures.saturating_add(1) } else { 0 };
        match due {
            Some(due) => self.schedule.delay(slot, key, standing, *due, stamp.rv),
            None => self.schedule.wake(slot, key, standing, stamp),
        }
        if *rate_limited {
            standing.failures = failures;
        }
        0
    }

    fn apply_leased(&mut self, slot: Slot, what: &EventKind, stamp: EventId) -> u32 {
        let EventKind::Leased { deadline, worker, pop_id, .. } = what else { return 0 };
        let keeps_delay = self.config.mode == Mode::Keys;
        let Some(entry) = self.table.at_mut(slot) else { return 0 };
        let standing = &mut entry.standing;
        let Place::Ready(former) = standing.place else { return 0 };
        let lease = Lease {
            token: stamp.rv,
            deadline: *deadline,
            since: stamp.at,
            length: deadline.since(stamp.at),
            worker: worker.clone(),
            pop_id: pop_id.clone(),
            former,
            dropped_delay: None,
            news: None,
        };
        self.schedule.lease(slot, standing, lease, keeps_delay);
        entry.leased = std::mem::take(&mut entry.waiting);
        if let Some(id) = pop_id {
            self.pop_ids.entry(id.clone()).or_default().push(slot);
        }
        0
    }

    fn apply_to_key(&mut self, slot: Slot, what: &EventKind, stamp: EventId) {
        let mode = self.config.mode;
        let Some(entry) = self.table.at_mut(slot) else { return };
        let standing = &mut entry.standing;
        match what {
            EventKind::Failed { .. } => {
                standing.failures = standing.failures.saturating_add(1);
                self.schedule.set_memory(slot, standing, None);
            }
            EventKind::Dropped { key, .. } => {
                entry.waiting = Deltas::default();
                self.schedule.drop_waiting(slot, key, standing);
                self.marks -= usize::from(entry.mark.take().is_some());
            }
            EventKind::TakenOver { owner, .. } => {
                let owner = Some(owner.clone());
                if !entry.waiting.is_empty() {
                    entry.waiting.set_owner(owner);
                } else if !entry.leased.is_empty() {
                    entry.leased.set_owner(owner);
                } else if let Some(known) = &mut entry.known {
                    known.owner = owner;
                }
            }
            EventKind::Extended { deadline, .. } => self.schedule.extend(slot, standing, *deadline, stamp.at),
            EventKind::DelayElapsed { key } => {
                let waits = mode == Mode::Keys || !entry.waiting.is_empty();
                self.schedule.fire(slot, key, standing, waits, stamp);
            }
            EventKind::Forgotten { .. } => self.schedule.forget(slot, standing),
            EventKind::Redriven { key } => self.schedule.wake(slot, key, standing, stamp),
            EventKind::Removed { key } => {
                entry.waiting = Deltas::default();
                self.schedule.drop_waiting(slot, key, standing);
                let covered_by = standing.lease().map(|lease| lease.token);
                if entry.mark.is_some_and(|mark| covered_by.is_none_or(|token| mark.get() > token)) {
                    entry.mark = None;
                    self.marks -= 1;
                }
            }
            EventKind::Seeded { object, owner, .. } => {
                let known = Known { object: object.clone(), rv: stamp.rv, owner: owner.clone() };
                self.known += usize::from(entry.known.replace(Box::new(known)).is_none());
            }
            _ => {}
        }
    }

    fn apply_settled(&mut self, slot: Slot, token: Rv, ending: &Ending, stamp: EventId) -> u32 {
        self.leave_pop(slot);
        let (latest_only, cap) = (self.config.latest_only(), self.config.cap());
        let Some(entry) = self.table.at_mut(slot) else { return 0 };
        let standing = &mut entry.standing;
        let leased = std::mem::take(&mut entry.leased);
        let mut unmark = false;
        let mut merged = 0;
        match ending {
            Ending::Acked => {
                unmark = entry.mark.is_some_and(|mark| mark.get() < token);
                if self.config.known_objects {
                    let is_known = entry.known.is_some();
                    acknowledge(&mut entry.known, leased);
                    self.known += usize::from(entry.known.is_some());
                    self.known -= usize::from(is_known);
                }
                standing.attempt = 0;
                self.schedule.forget(slot, standing);
                self.schedule.settle(slot, standing, stamp);
            }
            Ending::Done => self.schedule.settle(slot, standing, stamp),
            Ending::Failed { error, then, .. } => {
                merged = entry.waiting.put_back(leased, latest_only, cap);
                standing.failures = standing.failures.saturating_add(1);
                standing.set_last_error(error.clone());
                let key = &entry.key;
                match then {
                    Disposition::Tail { due } => {
                        self.schedule.settle_to_tail(slot, standing, stamp);
                        if let Some(due) = due {
                            self.schedule.delay(slot, key, standing, *due, stamp.rv);
                        }
                    }
                    Disposition::Wait { due } => {
                        self.schedule.settle(slot, standing, stamp);
                        self.schedule.delay(slot, key, standing, *due, stamp.rv);
                    }
                    Disposition::Delayed => self.schedule.settle(slot, standing, stamp),
                    Disposition::Park => {
                        unmark = true;
                        self.schedule.park(slot, key, standing);
                    }
                }
            }
            Ending::Released => {
                merged = entry.waiting.put_back(leased, latest_only, cap);
                self.schedule.settle_to_tail(slot, standing, stamp);
            }
            Ending::Rejected { error } => {
                merged = entry.waiting.put_back(leased, latest_only, cap);
                standing.set_last_error(error.clone());
                self.schedule.park(slot, &entry.key, standing);
                unmark = true;
            }
            Ending::Undelivered => {
                merged = entry.waiting.put_back(leased, latest_only, cap);
                self.schedule.give_back(slot, standing);
            }
        }
        if unmark && let Some(entry) = self.table.at_mut(slot) {
            self.marks -= usize::from(entry.mark.take().is_some());
        }
        merged
    }

    /// Notes how the lease ended.
    fn remember(&mut self, token: Rv, ending: &Ending) {
        let outcome = match ending {
            Ending::Acked | Ending::Done => Some(Outcome::Acked),
            Ending::Failed { expired: true, .. } => Some(Outcome::Expired),
            Ending::Failed { .. } => Some(Outcome::Nacked),
            Ending::Released => Some(Outcome::Released),
            Ending::Rejected { .. } => Some(Outcome::Rejected),
            Ending::Undelivered => None,
        };
        if let Some(outcome) = outcome {
            self.settled.insert(token, outcome);
        }
    }

    /// Takes the lease out of its pop's list.
    fn leave_pop(&mut self, slot: Slot) {
        let lease = self.table.at(slot).and_then(|entry| entry.standing.lease());
        let Some(id) = lease.and_then(|lease| lease.pop_id.clone()) else { return };
        if let Some(slots) = self.pop_ids.get_mut(&id) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.pop_ids.remove(&id);
            }
        }
    }

    /// Drops an entry of which nothing is left, or gives its failure count a day.
    fn tidy(&mut self, slot: Slot, stamp: EventId) {
        let Some(entry) = self.table.at_mut(slot) else { return };
        if entry.is_held() {
            return;
        }
        if entry.standing.failures == 0 {
            if let Some(entry) = self.table.remove(slot) {
                self.checkpoints.note_gone(entry, slot, stamp.rv);
            }
        } else if entry.standing.memory().is_none() {
            let until = stamp.at.plus(Duration::from_secs(FAILURE_MEMORY_SECS));
            self.schedule.set_memory(slot, &mut entry.standing, Some((until, stamp.rv)));
        }
    }

    fn take_from_bucket(&mut self, rate_limited: bool, at: Time) {
        if rate_limited {
            self.bucket = self.config.rate_limiter.wait("", 1, self.bucket, at).1;
        }
    }
}

/// Notes what is known of a key now that these deltas are acknowledged.
fn acknowledge(known: &mut Option<Box<Known>>, leased: Deltas) {
    let Some(Delta { kind, object, rv, provenance, .. }) = leased.into_newest() else { return };
    let now = Known { object, rv, owner: provenance.owner().cloned() };
    match known {
        _ if kind == DeltaKind::Deleted => *known = None,
        Some(known) => **known = now,
        None => *known = Some(Box::new(now)),
    }
}

/// Marks the key as one of the initial list; answers the mark that it had.
fn mark(entry: &mut Entry, rv: Rv) -> Option<NonZero<Rv>> {
    std::mem::replace(&mut entry.mark, NonZero::new(rv))
}
