//! Decisions on pops, settles, extensions and expired timers.

use std::sync::Arc;
use std::time::Duration;

use super::{Call, FailureState, HoldScope, How, Item, Outcome, Part, Pop, Settle, Settled};
use crate::config::Quiet;
use crate::event::{Charged, Disposition, Ending, EventKind, Failure, Leased};
use crate::id::{Slot, Token};
use crate::key::Key;
use crate::limits::{DUE_AT_A_TIME, ERROR_START_BYTES, HOLD_SECS_MAX};
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::schedule::Place;
use crate::table::Entry;
use crate::time::Time;

impl Queue {
    /// Processes every timer that is due at or before `now`, in order of time. At the same instant, leases come
    /// before delays and windows; after that, the smaller event number comes first. Returns the queue's time, which is never
    /// before the last event. A due Resync is recorded once, however many periods have passed. One call processes a
    /// limited number of timers. The rest stay due, and [`next_deadline`](Self::next_deadline) stays in the past.
    pub fn advance(&mut self, now: Time) -> Time {
        let now = now.max(self.state().last_at);
        self.volatile.now = now;
        let caller = self.volatile.caller.take();
        self.wake_groups(now);
        // Nothing in this loop creates a lease or moves a deadline, so leases that were skipped as uncommitted need
        // not be checked again.
        let mut expiry = self.state().schedule.next_expiry(Default::default(), now, self.volatile.committed);
        for _ in 0..DUE_AT_A_TIME {
            let delay = self.state().next_delay().filter(|(at, _, _)| *at <= now);
            let failure_expiry = self.state().schedule.next_failure_expiry().filter(|(at, _, _)| *at <= now);
            if (expiry, delay, failure_expiry) == (None, None, None) {
                // Usually nothing is due.
                break;
            }
            if self.state().schedule.has_windows()
                && let Some((_, _, slot)) = delay
                && self.place_window_again(slot)
            {
                continue;
            }
            let lease = expiry.map(|(at, token, slot)| (at, 0, token.rv(), slot));
            let delay = delay.map(|(at, rv, slot)| (at, 1, rv, slot));
            let failure_expiry = failure_expiry.map(|(at, rv, slot)| (at, 2, rv, slot));
            let next = [lease, delay, failure_expiry].into_iter().flatten().min();
            let Some((at, kind, rv, slot)) = next else { break };
            let key = self.state().entry(slot).key.clone();
            let at_slot = Some(slot);
            match kind {
                0 => {
                    let failure = self.failed(at, slot, None, false, Some(&"lease expired".into()));
                    self.end_lease(at, slot, Ending::Expired(failure));
                    expiry =
                        self.state().schedule.next_expiry((at, Token::new(rv)), now, self.volatile.committed);
                }
                1 => self.emit_at(at, at_slot, EventKind::DelayElapsed { key }),
                _ => self.emit_at(at, at_slot, EventKind::Forgotten { key }),
            }
        }
        if self.state().next_resync.is_some_and(|at| at <= now) {
            self.emit(now, EventKind::ResyncDue);
            self.volatile.effects.resync_due = true;
        }
        self.volatile.caller = caller;
        now
    }

    /// Leases ready keys to a worker, in queue order. A pop whose `id` has live leases gets the same leases again,
    /// even while the queue is paused.
    ///
    /// # Errors
    /// [`Refusal::Closed`] if the queue is closed and has nothing left to deliver.
    pub fn pop(&mut self, now: Time, pop: &Pop) -> Result<Vec<Item>, Refusal> {
        let now = self.advance(now);
        self.hand_out(now, pop)
    }

    /// Like [`pop`](Self::pop), but for a call directly after another command at the same instant: nothing can have
    /// become due in between.
    ///
    /// # Errors
    /// Same as [`pop`](Self::pop).
    pub fn hand_out(&mut self, now: Time, pop: &Pop) -> Result<Vec<Item>, Refusal> {
        let now = now.max(self.state().last_at);
        let again = self.live_again(pop);
        if !again.is_empty() {
            return Ok(again);
        }
        if self.state().ends_pops() {
            return Err(Refusal::Closed);
        }
        let deadline = now.plus(pop.lease.unwrap_or(self.state().config.lease));
        let mut items = Vec::new();
        let mut bytes = 0_usize;
        while items.len() < pop.max {
            let Some(slot) = self.state().next_delivered_to(now, pop.group.as_deref()) else { break };
            let entry = self.state().entry(slot);
            let known = entry.known.as_ref().filter(|_| pop.with_known);
            bytes +=
                entry.next_bytes(self.state().config.rules()) + known.map_or(0, |known| known.object.bytes());
            if bytes > pop.max_bytes && !items.is_empty() {
                break;
            }
            let position = entry.ready_position();
            let key = entry.key.clone();
            let (worker, pop_id) = (pop.worker.clone(), pop.id.clone());
            let charged = self.charged(slot, items.len(), pop);
            let leased = Leased { key, deadline, worker, pop_id, charged };
            self.emit_at(now, Some(slot), EventKind::Leased(leased));
            let waited = now.since(position.added);
            self.volatile.effects.waits.push(waited);
            self.note_delivered(slot);
            items.push(self.item(self.state().entry(slot), pop, waited));
        }
        Ok(items)
    }

    /// What the group of a key is charged for, which is the n-th one of its pop.
    #[inline]
    fn charged(&self, slot: Slot, nth: usize, pop: &Pop) -> Option<Box<Charged>> {
        let groups = self.state().schedule.groups.as_deref();
        groups.map(|groups| Box::new(groups.charged(slot, nth, pop.group.is_some())))
    }

    /// Records how many changes a delivery has coalesced.
    fn note_delivered(&mut self, slot: Slot) {
        let deltas = self.state().entry(slot).leased.len();
        if deltas > 1 {
            self.volatile.effects.delivered.push(u32::try_from(deltas).unwrap_or(u32::MAX));
        }
    }

    /// The live leases of the pop's id, oldest first. Empty for a new pop. From now on,
    /// [`return_undelivered`](Self::return_undelivered) does not end these leases.
    pub fn repeat_pop(&mut self, now: Time, pop: &Pop) -> Vec<Item> {
        self.advance(now);
        self.live_again(pop)
    }

    fn live_again(&mut self, pop: &Pop) -> Vec<Item> {
        let Some((first, last)) = pop.id.as_ref().and_then(|id| self.state().pops.tokens(id)) else {
            return Vec::new();
        };
        let leased = self.state().schedule.leased_from(first).take_while(|(token, _)| *token <= last);
        let entries = leased.map(|(_, slot)| self.state().entry(slot));
        let own = entries.filter(|entry| entry.lease().pop_id == pop.id);
        let items: Vec<Item> = own.map(|entry| self.item(entry, pop, Duration::ZERO)).collect();
        self.confirm_leases(items.iter().map(|item| item.token));
        items
    }

    /// Notes that workers have these leases, so that they can't be undelivered any more.
    fn confirm_leases(&mut self, tokens: impl Iterator<Item = Token>) {
        let mut repeated = std::mem::take(&mut self.volatile.repeated);
        let leased = &self.state().schedule;
        if repeated.len() > leased.leased_len() {
            repeated.retain(|token| leased.leased_at(*token).is_some());
        }
        repeated.extend(tokens);
        self.volatile.repeated = repeated;
    }

    fn item(&self, entry: &Entry, pop: &Pop, waited: Duration) -> Item {
        let lease = entry.lease();
        Item {
            key: entry.key.clone(),
            token: lease.token,
            deadline: lease.deadline,
            worker: lease.worker.clone(),
            attempt: entry.schedule_state.attempt,
            failures: entry.schedule_state.failures,
            is_in_initial_list: entry.initial_pending.is_some() || !self.state().initial.is_populated(),
            deltas: entry.leased.to_vec(),
            known: entry.known.as_deref().filter(|_| pop.with_known).cloned(),
            waited,
        }
    }

    /// Settles leases in their order, each one independently.
    pub fn settle(&mut self, now: Time, settles: &[Settle]) -> Vec<Settled> {
        let now = self.advance(now);
        settles.iter().map(|settle| self.settle_one(now, settle)).collect()
    }

    fn settle_one(&mut self, now: Time, settle: &Settle) -> Settled {
        let Some(slot) = self.state().schedule.leased_at(settle.token) else {
            let outcome = self.state().settled.get(settle.token);
            if settle.how.may_have_ended(outcome) {
                return Settled::Repeated;
            }
            self.volatile.effects.counters.stale += 1;
            return Settled::Stale { outcome };
        };
        let worked = now.since(self.state().entry(slot).lease().since);
        let ending = match &settle.how {
            How::Extend { lease } => return self.extend(now, slot, *lease),
            How::Part(part) => return self.settle_part(now, slot, settle.token, part),
            How::Ack | How::Hold { acks: true, .. } => Ending::Acked,
            How::Done { delay } => {
                if delay.is_some() {
                    let key = self.state().entry(slot).key.clone();
                    let call = Call { debounce: Some(Quiet::NONE), ..Call::of_key(key, *delay) };
                    self.add_key(now, &call);
                }
                Ending::Done
            }
            How::Nack { delay, floor, error } => {
                Ending::Nacked(self.failed(now, slot, *delay, *floor, error.as_ref()))
            }
            // A closed queue in mode keys waits for no delay, so it would lose a key that waits.
            How::Hold { scope: HoldScope::Key, acks: false, length }
                if !length.is_zero() && !self.state().freezes_delays() =>
            {
                Ending::Held { until: hold_end(now, *length) }
            }
            How::Release | How::Hold { acks: false, .. } => Ending::Released,
            How::Reject { error } => {
                let error = self.kept_error(slot, error.as_ref());
                Ending::Rejected { error, disposition: self.given_up(now, slot) }
            }
        };
        let group = self.held_group(&settle.how, slot, settle.token);
        let held_until = if let Ending::Held { until } = ending { Some(until) } else { None };
        self.end_lease(now, slot, ending);
        if let Some(until) = held_until {
            return Settled::Held { worked, until };
        }
        match &settle.how {
            How::Hold { scope: HoldScope::Queue, length, .. } => {
                return Settled::Held { worked, until: self.hold(now, *length) };
            }
            // The setting may have gone since the call was checked.
            How::Hold { scope: HoldScope::Group, length, .. } if self.state().schedule.groups.is_some() => {
                return Settled::Held { worked, until: self.hold_group(now, group, *length) };
            }
            _ => {}
        }
        // An acknowledged key may no longer have an entry.
        let failed = matches!(settle.how, How::Nack { .. } | How::Reject { .. });
        Settled::Ok { worked, failed: failed.then(|| failure_state(self.state().entry(slot))) }
    }

    /// Acknowledges the deltas of a lease up to one of them, and settles the others. All deltas before the oldest leased one are acknowledged
    /// already, so a repeat only settles the others.
    fn settle_part(&mut self, now: Time, slot: Slot, token: Token, part: &Part) -> Settled {
        let entry = self.state().entry(slot);
        let worked = now.since(entry.lease().since);
        let (Some(oldest), Some(newest)) = (entry.leased.oldest(), entry.leased.newest()) else {
            return Settled::NotLeased;
        };
        let acknowledged = if part.through < oldest.rv {
            None
        } else {
            let found = entry.leased.iter().find(|delta| delta.rv == part.through);
            let Some(delta) = found else { return Settled::NotLeased };
            if delta.rv == newest.rv {
                let how = match part.rest {
                    Some(How::Hold { scope, length, .. }) => How::Hold { scope, acks: true, length },
                    _ => How::Ack,
                };
                return self.settle_one(now, &Settle { token, how });
            }
            Some(delta.clone())
        };
        if let Some(delta) = &acknowledged {
            let key = entry.key.clone();
            self.remember_acknowledged(now, slot, delta);
            self.confirm_leases(std::iter::once(token));
            self.emit_at(now, Some(slot), EventKind::Progressed { key, token, through: part.through });
        }
        let how = match &part.rest {
            None if acknowledged.is_none() => return Settled::Repeated,
            None => return Settled::Ok { worked, failed: None },
            Some(How::Ack) => How::Release,
            Some(How::Hold { scope, length, .. }) => {
                How::Hold { scope: *scope, acks: false, length: *length }
            }
            Some(how) => how.clone(),
        };
        self.settle_one(now, &Settle { token, how })
    }

    /// The failure state of a key; zero failures if the queue does not have the key.
    #[must_use]
    pub fn failure_state(&self, key: &Key) -> FailureState {
        self.state().table.get(key.as_str()).map(failure_state).unwrap_or_default()
    }

    /// Ends leases whose reply could not be written, as if they had never existed. This includes leases past their
    /// deadline.
    ///
    /// A lease stays with its worker, and runs to its deadline, if a repeated pop was answered with it. Only the life
    /// in which a lease was granted knows this, so a lease of an earlier life stays as well.
    pub fn return_undelivered(&mut self, now: Time, tokens: &[Token]) {
        let now = now.max(self.state().last_at);
        let first = self.lives().present_first();
        for token in tokens {
            if token.rv() < first || self.volatile.repeated.contains(token) {
                continue;
            }
            if let Some(slot) = self.state().schedule.leased_at(*token) {
                let key = self.state().entry(slot).key.clone();
                self.emit_at(
                    now,
                    Some(slot),
                    EventKind::Settled { key, token: *token, ending: Ending::Undelivered },
                );
            }
        }
    }

    /// Sets the deadline of a lease to `now + lease`.
    fn extend(&mut self, now: Time, slot: Slot, lease: Option<Duration>) -> Settled {
        let deadline = now.plus(lease.unwrap_or(self.state().config.lease));
        let entry = self.state().entry(slot);
        let (key, token) = (entry.key.clone(), entry.lease().token);
        self.emit_at(now, Some(slot), EventKind::Extended { key, deadline });
        self.lease_state(token)
    }

    /// Delivers nothing for a time. A hold that ends later stays. Returns when the hold ends.
    fn hold(&mut self, now: Time, length: Duration) -> Time {
        let until = hold_end(now, length);
        if until > now.max(self.state().held_until) {
            self.emit(now, EventKind::Held { until });
        }
        self.state().held_until.max(until)
    }

    fn end_lease(&mut self, now: Time, slot: Slot, ending: Ending) {
        let entry = self.state().entry(slot);
        let token = entry.lease().token;
        let key = entry.key.clone();
        if ending == Ending::Acked
            && self.state().config.version.is_some()
            && let Some(newest) = entry.leased.newest().cloned()
        {
            self.remember_acknowledged(now, slot, &newest);
        }
        self.emit_at(now, Some(slot), EventKind::Settled { key, token, ending });
    }

    /// Where a leased key goes if its work is not retried. A change that no worker has seen is not part of what failed,
    /// so such a key goes to the tail, or waits until it is due. In mode events the delta that failed holds back its key.
    fn given_up(&self, now: Time, slot: Slot) -> Disposition {
        let schedule_state = &self.state().entry(slot).schedule_state;
        if self.has_new_change(slot) || schedule_state.has_past_window(now, self.state().closed) {
            Disposition::Tail { due: None }
        } else if schedule_state.waits() {
            Disposition::Delayed
        } else {
            Disposition::Park
        }
    }

    /// Whether a change waits behind the lease that makes the key ready once the lease has failed. In a closed queue a window is over,
    /// and its changes are such changes.
    fn has_new_change(&self, slot: Slot) -> bool {
        let entry = self.state().entry(slot);
        let debounced = self.state().closed && entry.schedule_state.window().is_some();
        (entry.lease().new_change.is_some() || debounced) && !self.state().config.rules().leases_oldest_delta
    }

    /// The error that is kept for a key: only its beginning if there is no room for all of it. A key keeps at least as much as it
    /// has.
    fn kept_error(&mut self, slot: Slot, error: Option<&Arc<str>>) -> Option<Arc<str>> {
        let error = error?;
        let has = self.state().entry(slot).schedule_state.last_error().map_or(0, str::len);
        let kept = has.max(ERROR_START_BYTES);
        if error.len() <= kept {
            return Some(error.clone());
        }
        if self.volatile.room.check(error.len() - has).is_ok() {
            // The next error of the same call has less room.
            self.volatile.room.held += error.len() - has;
            return Some(error.clone());
        }
        Some(error[..error.floor_char_boundary(kept)].into())
    }

    /// The failure of a lease at `now`, which determines where the key goes. At `max_failures` the key is given up even
    /// if the worker requested a delay; otherwise a key that always fails could loop with a delay of zero. With `floor`,
    /// no change shortens the wait.
    fn failed(
        &mut self,
        now: Time,
        slot: Slot,
        delay: Option<Duration>,
        floor: bool,
        error: Option<&Arc<str>>,
    ) -> Failure {
        let entry = self.state().entry(slot);
        let failures = entry.schedule_state.failures.saturating_add(1);
        let new_change = self.has_new_change(slot);
        let window = entry.schedule_state.window().map(|open| open.times.due());
        let delays_are_adds = self.state().config.rules().delays_are_adds;
        let too_often = self.state().config.max_failures > 0 && failures >= self.state().config.max_failures;
        let is_awaited = floor || if new_change { delays_are_adds } else { !too_often || window.is_some() };
        let asks_limiter = delay.is_none() && is_awaited;
        let wait = match delay {
            Some(delay) => delay,
            None if asks_limiter => {
                self.state()
                    .config
                    .rate_limiter
                    .wait(entry.key.as_str(), failures, self.state().bucket, now)
                    .0
            }
            None => Duration::ZERO,
        };
        let due = (!wait.is_zero()).then(|| now.plus(wait));
        let floor = due.filter(|_| floor);
        let disposition = match due {
            Some(due) if new_change && floor.is_some() => Disposition::Wait { due },
            _ if new_change => Disposition::Tail { due: due.filter(|_| delays_are_adds) },
            // A debounced change does not end the backoff, but gives the key another chance.
            Some(due) if window.is_some() => Disposition::Wait { due },
            None if window.is_some_and(|due| due > now) => Disposition::Wait { due: now },
            None if window.is_some() => Disposition::Tail { due: None },
            _ if too_often => self.given_up(now, slot),
            Some(due) => Disposition::Wait { due },
            None => Disposition::Tail { due: None },
        };
        let error = self.kept_error(slot, error);
        let failure = Failure { error, disposition, rate_limited: asks_limiter, floor };
        self.volatile.effects.counters.retries += u64::from(is_retry(&failure, delay));
        failure
    }
}

/// When a hold of this length ends.
pub(super) fn hold_end(now: Time, length: Duration) -> Time {
    now.plus(length.min(Duration::from_secs(HOLD_SECS_MAX)))
}

fn failure_state(entry: &Entry) -> FailureState {
    let state = &entry.schedule_state;
    FailureState { failures: state.failures, due: state.due(), is_parked: state.place == Place::Parked }
}

/// Whether a failed key is requeued by the rate limiter or with an explicit delay: client-go's AddRateLimited and
/// AddAfter, which count even when the wait is zero.
const fn is_retry(failure: &Failure, delay: Option<Duration>) -> bool {
    match failure.disposition {
        Disposition::Park | Disposition::Delayed => false,
        Disposition::Tail { .. } | Disposition::Wait { .. } => failure.rate_limited || delay.is_some(),
    }
}

impl How {
    /// The outcome that is recorded for a lease settled in this way; `None` if the lease continues.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Ack | Self::Hold { acks: true, .. } => Some(Outcome::Acked),
            Self::Done { .. } => Some(Outcome::Done),
            Self::Nack { .. } => Some(Outcome::Nacked),
            Self::Release | Self::Hold { acks: false, .. } => Some(Outcome::Released),
            Self::Reject { .. } => Some(Outcome::Rejected),
            Self::Extend { .. } | Self::Part(_) => None,
        }
    }

    /// Whether a settle of this kind may have ended a lease with this outcome.
    fn may_have_ended(&self, outcome: Outcome) -> bool {
        let Self::Part(part) = self else { return self.outcome() == Some(outcome) };
        // With the newest delta, everything was acknowledged.
        outcome == Outcome::Acked
            || match &part.rest {
                None => false,
                Some(Self::Ack | Self::Hold { .. }) => outcome == Outcome::Released,
                Some(how) => how.outcome() == Some(outcome),
            }
    }
}
