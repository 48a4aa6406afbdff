//! Applying events: the only way in which a queue changes.
//!
//! `apply` decides nothing that the event does not say. Every event fits the state in which it happened, so one that
//! does not fit is a bug or damage, and is never skipped: live, `apply` panics and the queue is loaded again from its
//! journal; a replay returns [`Misfit`], and the load fails with the name of the row.

use std::fmt;
use std::num::NonZero;
use std::time::Duration;

use super::delta::{self, Delta, DeltaKind, Deltas, Rv};
use super::event::{
    Appended, Disposition, Ending, Event, EventKind, Failure, Leased, Origin, Queued, ReplaceCounts,
    ReplaceEnded,
};
use super::known::{Known, set_known};
use super::limits::FAILURE_EXPIRY_SECS;
use super::queue::{Initial, LastReplace, Queue};
use super::schedule::{EventId, Lease, Place, Slot};
use super::table::Entry;
use super::time::Time;

/// An event that does not fit the state of its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The event's number.
    pub rv: Rv,
    /// The event's type.
    pub event: String,
    /// The key that the event is about.
    pub key: Option<String>,
    /// What the event contradicts.
    pub reason: &'static str,
}

/// What an event contradicts.
type Reason = &'static str;

impl Misfit {
    #[cold]
    fn new(event: &Event, reason: Reason) -> Self {
        // The name of the variant is what `Debug` begins with.
        let mut name = format!("{:?}", event.kind);
        name.truncate(name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len()));
        let key = event.kind.key().map(ToString::to_string);
        Self { rv: event.rv, event: name, key, reason }
    }
}

impl std::error::Error for Misfit {}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rv, event, key, reason } = self;
        write!(f, "event {rv} ({event}")?;
        if let Some(key) = key {
            write!(f, " of key {key:?}")?;
        }
        write!(f, ") does not fit the state of the queue: {reason}")
    }
}

impl Queue {
    /// Applies the next event. Returns how many pairs of deltas the cap merged.
    ///
    /// # Panics
    /// If the event does not fit the state of the queue. The state is then undefined.
    pub fn apply(&mut self, event: &Event) -> u32 {
        let slot = event.kind.key().map(|key| self.table.find_or_insert(key));
        self.apply_at(event, slot)
    }

    /// Applies the next event to a queue whose keys may be ahead of the queue itself. The event changes its key only if
    /// it is newer than the key's row and than `removed_at`, the newest removal of the key that the checkpoints
    /// recorded (or 0). The event changes the queue in any case.
    ///
    /// # Errors
    /// [`Misfit`] if the event does not fit the state of the queue. The state is then undefined.
    pub fn replay(&mut self, event: &Event, removed_at: Rv) -> Result<u32, Misfit> {
        // An ignored event must not make an entry for its key.
        let key = event.kind.key().filter(|_| event.rv > removed_at);
        let slot = key.map(|key| self.table.find_or_insert(key));
        let is_newer = |slot: &Slot| self.table.at(*slot).is_some_and(|entry| event.rv > entry.changed);
        let slot = slot.filter(is_newer);
        self.try_apply(event, slot).map_err(|reason| Misfit::new(event, reason))
    }

    /// Applies the next event, whose key has this slot; without a slot, only its effect on the queue.
    ///
    /// # Panics
    /// As [`apply`](Self::apply).
    pub(super) fn apply_at(&mut self, event: &Event, slot: Option<Slot>) -> u32 {
        match self.try_apply(event, slot) {
            Ok(merged) => merged,
            Err(reason) => panic!("{}", Misfit::new(event, reason)),
        }
    }

    fn try_apply(&mut self, event: &Event, slot: Option<Slot>) -> Result<u32, Reason> {
        let follows = match event.kind {
            EventKind::Recovered => event.rv > self.rv,
            _ => self.rv.checked_add(1) == Some(event.rv),
        };
        if !follows {
            return Err("its number does not follow that of the event before");
        }
        self.rv = event.rv;
        self.last_at = event.at;
        self.apply_to_queue(&event.kind, event.at)?;
        let Some(slot) = slot else { return Ok(0) };
        let stamp = EventId { rv: event.rv, at: event.at };
        self.table.at_mut(slot).ok_or(NO_ENTRY)?.changed = event.rv;
        let merged = match &event.kind {
            EventKind::Appended(appended) => self.apply_appended(slot, appended, stamp)?,
            EventKind::Queued(queued) => self.apply_queued(slot, queued, stamp)?,
            EventKind::Leased(leased) => self.apply_leased(slot, leased, stamp)?,
            EventKind::Settled { token, ending, .. } => self.apply_settled(slot, *token, ending, stamp)?,
            other => self.apply_to_key(slot, other, stamp)?,
        };
        self.drop_if_unused(slot, stamp)?;
        Ok(merged)
    }

    /// Applies the event's effect on the queue, whatever becomes of its key.
    fn apply_to_queue(&mut self, kind: &EventKind, at: Time) -> Result<(), Reason> {
        match kind {
            EventKind::Appended(Appended { origin, .. }) | EventKind::Dropped { origin, .. } => {
                self.populated |= *origin == Origin::Call;
            }
            EventKind::Queued(Queued { rate_limited, .. }) => {
                self.populated = true;
                self.take_from_bucket(*rate_limited, at);
            }
            EventKind::Failed { .. } => self.take_from_bucket(true, at),
            EventKind::Settled { token, ending, .. } => {
                if let Some(outcome) = ending.outcome() {
                    self.settled.insert(*token, outcome);
                }
                let rate_limited = ending.failure().is_some_and(|failure| failure.rate_limited);
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
                self.next_resync = self.config.resync_period.map(|period| at.plus(period));
            }
            EventKind::ReplaceStarted { source, first } => {
                if *first {
                    self.initial = Initial::Running;
                }
                let (source, counts) = (source.clone(), ReplaceCounts::default());
                self.last_replace =
                    Some(LastReplace { source, counts, started: at, ended: None, aborted: false });
            }
            EventKind::ReplaceEnded(ended) => self.apply_replace_ended(ended, at)?,
            EventKind::Recovered
            | EventKind::TakenOver { .. }
            | EventKind::Leased(_)
            | EventKind::Extended { .. }
            | EventKind::DelayElapsed { .. }
            | EventKind::Forgotten { .. }
            | EventKind::Redriven { .. }
            | EventKind::Removed { .. }
            | EventKind::Seeded { .. } => {}
        }
        Ok(())
    }

    fn apply_replace_ended(&mut self, ended: &ReplaceEnded, at: Time) -> Result<(), Reason> {
        let ReplaceEnded { source, first, aborted, counts } = ended;
        let running = self.last_replace.as_mut().filter(|last| last.ended.is_none());
        let last = running.ok_or("no Replace is running")?;
        (last.source, last.counts, last.aborted) = (source.clone(), *counts, *aborted);
        last.ended = Some(at);
        // The keys that an aborted Replace queued keep their marks: the next Replace, with only_changed, may have no
        // reason to queue them again, and they are not acknowledged yet.
        if *first {
            self.initial = if *aborted { Initial::Aborted } else { Initial::Quiet };
        }
        self.populated |= !aborted;
        Ok(())
    }

    fn apply_appended(&mut self, slot: Slot, appended: &Appended, stamp: EventId) -> Result<u32, Reason> {
        let Appended { key, delta, final_state_unknown, origin, provenance, due, object } = appended;
        let (latest_only, cap) = (self.config.rules().only_newest_waits, self.config.cap());
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let delta = Delta {
            rv: stamp.rv,
            queued_at: stamp.at,
            kind: *delta,
            final_state_unknown: *final_state_unknown,
            coalesced: 0,
            provenance: provenance.clone(),
            object: object.clone(),
        };
        let delta::Appended::Queued { merged } = entry.waiting.append(delta, latest_only, cap) else {
            return Err("the key's newest delta is a deletion that makes this one superfluous");
        };
        if *origin == Origin::InitialReplace && mark(entry, stamp.rv).is_none() {
            self.initial_pending += 1;
        }
        match due {
            Some(due) => self.schedule.delay(slot, key, &mut entry.schedule_state, *due, stamp.rv),
            None => self.schedule.wake(slot, key, &mut entry.schedule_state, stamp),
        }
        Ok(merged)
    }

    fn apply_queued(&mut self, slot: Slot, queued: &Queued, stamp: EventId) -> Result<u32, Reason> {
        let Queued { key, due, rate_limited } = queued;
        let schedule_state = &mut self.table.at_mut(slot).ok_or(NO_ENTRY)?.schedule_state;
        if *rate_limited && schedule_state.place == Place::Parked {
            schedule_state.failures = 0;
        }
        let failures = if *rate_limited { schedule_state.failures.saturating_add(1) } else { 0 };
        match due {
            Some(due) => self.schedule.delay(slot, key, schedule_state, *due, stamp.rv),
            None => self.schedule.wake(slot, key, schedule_state, stamp),
        }
        if *rate_limited {
            schedule_state.failures = failures;
        }
        Ok(0)
    }

    fn apply_leased(&mut self, slot: Slot, leased: &Leased, stamp: EventId) -> Result<u32, Reason> {
        let Leased { key: _, deadline, worker, pop_id } = leased;
        let keeps_delay = self.config.rules().delays_are_adds;
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let schedule_state = &mut entry.schedule_state;
        let Place::Ready(former) = schedule_state.place else { return Err("the key is not ready") };
        let lease = Lease {
            token: stamp.rv,
            deadline: *deadline,
            since: stamp.at,
            length: deadline.since(stamp.at),
            worker: worker.clone(),
            pop_id: pop_id.clone(),
            former,
            dropped_delay: None,
            new_change: None,
        };
        self.schedule.lease(slot, schedule_state, lease, keeps_delay);
        entry.leased = std::mem::take(&mut entry.waiting);
        if let Some(id) = pop_id {
            self.pop_ids.entry(id.clone()).or_default().push(slot);
        }
        Ok(0)
    }

    /// Applies an event that merges no deltas.
    fn apply_to_key(&mut self, slot: Slot, kind: &EventKind, stamp: EventId) -> Result<u32, Reason> {
        let rules = self.config.rules();
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let schedule_state = &mut entry.schedule_state;
        match kind {
            EventKind::Failed { .. } => {
                schedule_state.failures = schedule_state.failures.saturating_add(1);
                self.schedule.set_failure_expiry(slot, schedule_state, None);
            }
            EventKind::Dropped { key, .. } => {
                entry.waiting = Deltas::default();
                self.schedule.drop_waiting(slot, key, schedule_state);
                self.initial_pending -= usize::from(entry.initial_pending.take().is_some());
            }
            EventKind::TakenOver { owner, .. } => {
                let owner = Some(owner.clone());
                if !entry.waiting.is_empty() {
                    entry.waiting.set_owner(owner);
                } else if !entry.leased.is_empty() {
                    entry.leased.set_owner(owner);
                } else {
                    entry.known.as_mut().ok_or("the key has no object that could be owned")?.owner = owner;
                }
            }
            EventKind::Extended { deadline, .. } => {
                schedule_state.lease().ok_or(NO_LEASE)?;
                self.schedule.extend(slot, schedule_state, *deadline, stamp.at);
            }
            EventKind::DelayElapsed { key } => {
                schedule_state.delay().ok_or("the key has no delay")?;
                let waits = rules.delays_are_adds || !entry.waiting.is_empty();
                self.schedule.fire(slot, key, schedule_state, waits, stamp);
            }
            EventKind::Forgotten { .. } => self.schedule.forget(slot, schedule_state),
            EventKind::Redriven { key } => {
                if schedule_state.place != Place::Parked {
                    return Err("the key is not parked");
                }
                self.schedule.wake(slot, key, schedule_state, stamp);
            }
            EventKind::Removed { key } => {
                entry.waiting = Deltas::default();
                self.schedule.drop_waiting(slot, key, schedule_state);
                let covered_by = schedule_state.lease().map(|lease| lease.token);
                if entry.initial_pending.is_some_and(|mark| covered_by.is_none_or(|token| mark.get() > token))
                {
                    entry.initial_pending = None;
                    self.initial_pending -= 1;
                }
            }
            EventKind::Seeded { object, owner, .. } => {
                let known = Known { object: object.clone(), rv: stamp.rv, owner: owner.clone() };
                set_known(&mut entry.known, Some(known), &mut self.known);
            }
            _ => return Err("it is not about a key"),
        }
        Ok(0)
    }

    fn apply_settled(
        &mut self,
        slot: Slot,
        token: Rv,
        ending: &Ending,
        stamp: EventId,
    ) -> Result<u32, Reason> {
        self.leave_pop(slot, token)?;
        let (latest_only, cap) = (self.config.rules().only_newest_waits, self.config.cap());
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let schedule_state = &mut entry.schedule_state;
        let leased = std::mem::take(&mut entry.leased);
        let mut unmark = false;
        let mut merged = 0;
        match ending {
            Ending::Acked => {
                unmark = entry.initial_pending.is_some_and(|mark| mark.get() < token);
                if self.config.known_objects {
                    let newest = leased.into_newest();
                    let newest = newest.filter(|delta| delta.kind != DeltaKind::Deleted);
                    let known = newest.map(|Delta { object, provenance, .. }| Known {
                        object,
                        rv: stamp.rv,
                        owner: provenance.owner().cloned(),
                    });
                    set_known(&mut entry.known, known, &mut self.known);
                }
                schedule_state.attempt = 0;
                self.schedule.forget(slot, schedule_state);
                self.schedule.settle(slot, schedule_state, stamp);
            }
            Ending::Done => self.schedule.settle(slot, schedule_state, stamp),
            Ending::Nacked(failure) | Ending::Expired(failure) => {
                merged = entry.waiting.put_back(leased, latest_only, cap);
                unmark = failure.disposition == Disposition::Park;
                self.apply_failure(slot, failure, stamp)?;
            }
            Ending::Released => {
                merged = entry.waiting.put_back(leased, latest_only, cap);
                self.schedule.settle_to_tail(slot, schedule_state, stamp);
            }
            Ending::Rejected { error } => {
                merged = entry.waiting.put_back(leased, latest_only, cap);
                schedule_state.set_last_error(error.clone());
                self.schedule.park(slot, &entry.key, schedule_state);
                unmark = true;
            }
            Ending::Undelivered => {
                merged = entry.waiting.put_back(leased, latest_only, cap);
                self.schedule.restore_position(slot, schedule_state);
            }
        }
        if unmark {
            let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
            self.initial_pending -= usize::from(entry.initial_pending.take().is_some());
        }
        Ok(merged)
    }

    fn apply_failure(&mut self, slot: Slot, failure: &Failure, stamp: EventId) -> Result<(), Reason> {
        let Entry { key, schedule_state, .. } = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        schedule_state.failures = schedule_state.failures.saturating_add(1);
        schedule_state.set_last_error(failure.error.clone());
        match failure.disposition {
            Disposition::Tail { due } => {
                self.schedule.settle_to_tail(slot, schedule_state, stamp);
                if let Some(due) = due {
                    self.schedule.delay(slot, key, schedule_state, due, stamp.rv);
                }
            }
            Disposition::Wait { due } => {
                self.schedule.settle(slot, schedule_state, stamp);
                self.schedule.delay(slot, key, schedule_state, due, stamp.rv);
            }
            Disposition::Delayed => {
                schedule_state.delay().ok_or("the key has no delay")?;
                self.schedule.settle(slot, schedule_state, stamp);
            }
            Disposition::Park => self.schedule.park(slot, key, schedule_state),
        }
        Ok(())
    }

    /// Checks that the key has the live lease `token`, and takes the lease out of its pop's list.
    fn leave_pop(&mut self, slot: Slot, token: Rv) -> Result<(), Reason> {
        let entry = self.table.at(slot).ok_or(NO_ENTRY)?;
        let lease = entry.schedule_state.lease().filter(|lease| lease.token == token).ok_or(NO_LEASE)?;
        let Some(id) = &lease.pop_id else { return Ok(()) };
        let slots = self.pop_ids.get_mut(id).ok_or("the lease is not in its pop's list")?;
        slots.retain(|other| *other != slot);
        if slots.is_empty() {
            self.pop_ids.remove(id);
        }
        Ok(())
    }

    /// Drops an entry that holds nothing any more, or sets the time at which its failure count is dropped.
    fn drop_if_unused(&mut self, slot: Slot, stamp: EventId) -> Result<(), Reason> {
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        if entry.is_held() {
            return Ok(());
        }
        if entry.schedule_state.failures == 0 {
            let entry = self.table.remove(slot).ok_or(NO_ENTRY)?;
            self.checkpoints.note_removed(entry, slot, stamp.rv);
        } else if entry.schedule_state.failure_expiry().is_none() {
            let until = stamp.at.plus(Duration::from_secs(FAILURE_EXPIRY_SECS));
            self.schedule.set_failure_expiry(slot, &mut entry.schedule_state, Some((until, stamp.rv)));
        }
        Ok(())
    }

    fn take_from_bucket(&mut self, rate_limited: bool, at: Time) {
        if rate_limited {
            self.bucket = self.config.rate_limiter.wait("", 1, self.bucket, at).1;
        }
    }
}

const NO_ENTRY: Reason = "the key has no entry";
const NO_LEASE: Reason = "the key does not have this lease";

/// Makes the delta `rv` the one that the initial list waits for. Returns the one that it waited for until now.
fn mark(entry: &mut Entry, rv: Rv) -> Option<NonZero<Rv>> {
    std::mem::replace(&mut entry.initial_pending, NonZero::new(rv))
}
