//! Which key may be handed out, when, and to whom.
//!
//! It is client-go's workqueue (dirty, processing, delayed, failure counts) plus leases with a
//! deadline and a place for keys that failed too often. It knows nothing of deltas or objects:
//! whether something waits behind a lease comes in as an argument.
//!
//! Invariants, over the [`ScheduleState`]s of all keys:
//! - a key is in `ready` iff its place is `Ready`, in `leases` and `tokens` iff `Leased`, in `parked` iff `Parked`;
//! - a key is in `delayed` iff its `delay` is set; parked keys have none;
//! - a key is in `failure_expiries` iff it has a `failure_expiry`, and then it is idle without delay.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::delta::Rv;
use super::key::Key;
use super::time::Time;

mod rebuild;

pub(super) use rebuild::Rebuild;

/// Index of a key's entry in the queue's table.
pub type Slot = u32;

/// A key's standing in the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleState {
    /// Where the key is.
    pub place: Place,
    /// Failures since the last acknowledgement, forget or wake-up from parked.
    pub failures: u32,
    /// Deliveries since the last acknowledgement.
    pub attempt: u32,
    /// Invariant: none if nothing would be in it.
    backoff: Option<Box<Backoff>>,
}

/// What a standing has besides when not all goes well, which is so for few of many keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// When a delay or backoff ends. It may stand beside any place but `Parked`.
    pub delay: Option<Delay>,
    /// What the worker said of the last failure.
    pub last_error: Option<Arc<str>>,
    /// When the failure count of an otherwise idle key is dropped.
    pub failure_expiry: Option<(Time, Rv)>,
}

/// Where a key is; exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it waits for its delay, or only its object or failures are known.
    #[default]
    Idle,
    /// In the ready line, in the order of `rv`.
    Ready(ReadyPosition),
    /// With a worker.
    Leased(Box<Lease>),
    /// Out of circulation until news or an operator.
    Parked,
}

/// A place in the ready line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyPosition {
    /// The event that put the key in line.
    pub rv: Rv,
    /// When the key came in line.
    pub since: Time,
    /// When the work that it is in line for came in; before `since` if it came during a lease.
    pub added: Time,
}

/// When a key that waits becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The instant.
    pub due: Time,
    /// The event that set it.
    pub rv: Rv,
}

/// A key in the hands of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The event that made the lease: its fencing token.
    pub token: Rv,
    /// When it expires.
    pub deadline: Time,
    /// When it was made.
    pub since: Time,
    /// How long it was to last when it was made or extended last.
    pub length: Duration,
    /// Who holds it, if the pop said so.
    pub worker: Option<Arc<str>>,
    /// The id of the pop that made it, if it had one.
    pub pop_id: Option<Arc<str>>,
    /// The turn that the key had in line.
    pub former: ReadyPosition,
    /// The delay that handing out dropped.
    pub dropped_delay: Option<Delay>,
    /// When work for the key came in that is not part of the lease and need not wait.
    pub news: Option<Time>,
}

/// The order of every key that the schedule holds.
#[derive(Debug, Default)]
pub struct Schedule {
    ready: BTreeMap<Rv, Slot>,
    delayed: BTreeSet<(Time, Rv, Slot)>,
    leases: BTreeSet<(Time, Rv, Slot)>,
    tokens: BTreeMap<Rv, Slot>,
    /// Sum of the microseconds at which all leases began.
    leased_since_us: u128,
    parked: BTreeMap<Key, Slot>,
    failure_expiries: BTreeSet<(Time, Rv, Slot)>,
    /// Idle keys with a delay, so that "delayed" can be counted as a state.
    idle_delayed: usize,
    /// Leased keys with news behind the lease.
    leased_with_news: usize,
    /// How often a key got work to do (client-go's adds), since the start.
    adds: u64,
}

/// A place change's event: its number and its time.
#[derive(Clone, Copy, Debug)]
pub struct EventId {
    /// The event's number.
    pub rv: Rv,
    /// The event's time.
    pub at: Time,
}

impl Schedule {
    /// Keys in line, first to last.
    pub fn ready(&self) -> impl Iterator<Item = (Rv, Slot)> {
        self.ready.iter().map(|(rv, slot)| (*rv, *slot))
    }

    /// The key that is first in line.
    #[must_use]
    pub fn first(&self) -> Option<(Rv, Slot)> {
        self.ready.first_key_value().map(|(rv, slot)| (*rv, *slot))
    }

    /// Keys in line behind the one that came in line at `after`.
    pub fn ready_after(&self, after: Rv) -> impl Iterator<Item = (Rv, Slot)> {
        self.ready.range((Bound::Excluded(after), Bound::Unbounded)).map(|(rv, slot)| (*rv, *slot))
    }

    /// Keys with a delay behind `after`, by due time; a key in another place may be among them.
    pub fn delayed_after(&self, after: (Time, Rv)) -> impl Iterator<Item = &(Time, Rv, Slot)> {
        self.delayed.range((Bound::Excluded((after.0, after.1, Slot::MAX)), Bound::Unbounded))
    }

    /// Leased keys behind `after`, by deadline.
    pub fn leased_after(&self, after: (Time, Rv)) -> impl Iterator<Item = &(Time, Rv, Slot)> {
        self.leases.range((Bound::Excluded((after.0, after.1, Slot::MAX)), Bound::Unbounded))
    }

    /// Parked keys from `from` on, in key order.
    pub fn parked_from(&self, from: Bound<&str>) -> impl Iterator<Item = (&Key, Slot)> {
        self.parked.range::<str, _>((from, Bound::Unbounded)).map(|(key, slot)| (key, *slot))
    }

    /// The key with the live lease `token`.
    #[must_use]
    pub fn leased_at(&self, token: Rv) -> Option<Slot> {
        self.tokens.get(&token).copied()
    }

    /// Keys with a lease, by its token.
    pub(super) fn leased_slots(&self) -> impl Iterator<Item = Slot> {
        self.tokens.values().copied()
    }

    /// The key whose lease is oldest.
    #[must_use]
    pub fn oldest_lease(&self) -> Option<Slot> {
        self.tokens.first_key_value().map(|(_, slot)| *slot)
    }

    /// How long all leases have lasted, added up.
    #[must_use]
    pub fn leased_for(&self, now: Time) -> Duration {
        let all_us = u128::from(now.as_micros()) * self.tokens.len() as u128;
        let sum_us = all_us.saturating_sub(self.leased_since_us);
        Duration::from_micros(u64::try_from(sum_us).unwrap_or(u64::MAX))
    }

    /// The earliest delay.
    #[must_use]
    pub fn next_delay(&self) -> Option<(Time, Rv, Slot)> {
        self.delayed.first().copied()
    }

    /// The earliest deadline of a lease.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Time, Rv, Slot)> {
        self.leases.first().copied()
    }

    /// The earliest deadline from `from` on, and at or before `now`, of a lease that is committed.
    #[must_use]
    pub fn next_expiry(&self, from: (Time, Rv), now: Time, committed: Rv) -> Option<(Time, Rv, Slot)> {
        // Mostly none is due at all.
        self.next_deadline().filter(|(at, _, _)| *at <= now)?;
        let mut due = self.leases.range((from.0, from.1, 0)..).take_while(|(at, _, _)| *at <= now);
        due.find(|(_, token, _)| *token <= committed).copied()
    }

    /// The earliest end of a failure memory.
    #[must_use]
    pub fn next_failure_expiry(&self) -> Option<(Time, Rv, Slot)> {
        self.failure_expiries.first().copied()
    }

    /// Number of keys in line.
    #[must_use]
    pub fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Number of idle keys with a delay.
    #[must_use]
    pub fn delayed_len(&self) -> usize {
        self.idle_delayed
    }

    /// Number of leased keys.
    #[must_use]
    pub fn leased_len(&self) -> usize {
        self.leases.len()
    }

    /// Number of parked keys.
    #[must_use]
    pub fn parked_len(&self) -> usize {
        self.parked.len()
    }

    /// client-go's depth: keys in line, and leased keys that will be again.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.ready.len() + self.leased_with_news
    }

    /// client-go's adds: how often a key got work to do.
    #[must_use]
    pub fn adds(&self) -> u64 {
        self.adds
    }

    /// Numbers of entries per index, for the invariants.
    pub(super) fn index_sizes(&self) -> IndexSizes {
        IndexSizes {
            ready: self.ready.len(),
            delayed: self.delayed.len(),
            leases: self.leases.len(),
            tokens: self.tokens.len(),
            parked: self.parked.len(),
            failure_expiries: self.failure_expiries.len(),
            idle_delayed: self.idle_delayed,
            leased_with_news: self.leased_with_news,
        }
    }

    /// Whether `slot` is in every index that `schedule_state` says, under the right order.
    pub(super) fn holds(&self, slot: Slot, key: &Key, schedule_state: &ScheduleState) -> bool {
        let in_place = match &schedule_state.place {
            Place::Idle => true,
            Place::Ready(position) => self.ready.get(&position.rv) == Some(&slot),
            Place::Leased(lease) => {
                self.leases.contains(&(lease.deadline, lease.token, slot))
                    && self.leased_at(lease.token) == Some(slot)
            }
            Place::Parked => self.parked.get(key.as_str()) == Some(&slot),
        };
        let delay =
            schedule_state.delay().is_none_or(|delay| self.delayed.contains(&(delay.due, delay.rv, slot)));
        let failure_expiry = schedule_state
            .failure_expiry()
            .is_none_or(|(at, rv)| self.failure_expiries.contains(&(at, rv, slot)));
        in_place && delay && failure_expiry
    }

    /// News for the key: idle and parked keys come in line, a leased one when it is settled.
    pub fn wake(&mut self, slot: Slot, key: &Key, schedule_state: &mut ScheduleState, stamp: EventId) {
        match &mut schedule_state.place {
            Place::Idle => self.enqueue(slot, schedule_state, stamp, None),
            Place::Ready(_) => {}
            Place::Leased(lease) => {
                if lease.news.is_none() {
                    lease.news = Some(stamp.at);
                    self.leased_with_news += 1;
                    self.adds += 1;
                }
            }
            Place::Parked => {
                self.parked.remove(key.as_str());
                schedule_state.place = Place::Idle;
                schedule_state.failures = 0;
                self.enqueue(slot, schedule_state, stamp, None);
            }
        }
    }

    /// The key becomes ready at `due` at the latest. A parked key waits for it.
    pub fn delay(&mut self, slot: Slot, key: &Key, schedule_state: &mut ScheduleState, due: Time, rv: Rv) {
        if schedule_state.place == Place::Parked {
            self.parked.remove(key.as_str());
            schedule_state.place = Place::Idle;
            schedule_state.failures = 0;
        }
        self.set_failure_expiry(slot, schedule_state, None);
        if schedule_state.delay().is_none_or(|delay| due < delay.due) {
            self.set_delay(slot, schedule_state, Some(Delay { due, rv }));
        }
    }

    /// The key's delay is over; `waits` is whether it now has something to hand out.
    pub fn fire(
        &mut self,
        slot: Slot,
        key: &Key,
        schedule_state: &mut ScheduleState,
        waits: bool,
        stamp: EventId,
    ) {
        self.set_delay(slot, schedule_state, None);
        if waits {
            self.wake(slot, key, schedule_state, stamp);
        }
    }

    /// Hands the key out. With `keep_delay` a delay stays beside the lease.
    pub fn lease(
        &mut self,
        slot: Slot,
        schedule_state: &mut ScheduleState,
        mut lease: Lease,
        keep_delay: bool,
    ) {
        self.leave_ready(schedule_state);
        if !keep_delay {
            lease.dropped_delay = schedule_state.delay();
            self.set_delay(slot, schedule_state, None);
        }
        self.set_failure_expiry(slot, schedule_state, None);
        self.leases.insert((lease.deadline, lease.token, slot));
        self.tokens.insert(lease.token, slot);
        self.leased_since_us += u128::from(lease.since.as_micros());
        self.set_place(schedule_state, Place::Leased(Box::new(lease)));
        schedule_state.attempt = schedule_state.attempt.saturating_add(1);
    }

    /// Moves the deadline of a lease, as seen from `now`.
    pub fn extend(&mut self, slot: Slot, schedule_state: &mut ScheduleState, deadline: Time, now: Time) {
        if let Place::Leased(lease) = &mut schedule_state.place {
            self.leases.remove(&(lease.deadline, lease.token, slot));
            lease.deadline = deadline;
            lease.length = deadline.since(now);
            self.leases.insert((deadline, lease.token, slot));
        }
    }

    /// Ends the lease. The key comes in line if there is news behind the lease, and is idle else.
    pub fn settle(&mut self, slot: Slot, schedule_state: &mut ScheduleState, stamp: EventId) {
        if let Some(lease) = self.end_lease(slot, schedule_state)
            && let Some(added) = lease.news
        {
            self.enqueue(slot, schedule_state, stamp, Some(added));
        }
    }

    /// Ends the lease; the key goes to the tail of the line.
    pub fn settle_to_tail(&mut self, slot: Slot, schedule_state: &mut ScheduleState, stamp: EventId) {
        if let Some(lease) = self.end_lease(slot, schedule_state) {
            self.enqueue(slot, schedule_state, stamp, lease.news);
        }
    }

    /// Ends the lease as if it had not been: the key has its former turn again.
    pub fn give_back(&mut self, slot: Slot, schedule_state: &mut ScheduleState) {
        let Some(lease) = self.end_lease(slot, schedule_state) else { return };
        schedule_state.attempt = schedule_state.attempt.saturating_sub(1);
        self.ready.insert(lease.former.rv, slot);
        self.set_place(schedule_state, Place::Ready(lease.former));
        if let Some(dropped) = lease.dropped_delay
            && schedule_state.delay().is_none_or(|delay| dropped.due < delay.due)
        {
            self.set_delay(slot, schedule_state, Some(dropped));
        }
    }

    /// Takes the key out of circulation, from a lease; its delay is dropped.
    pub fn park(&mut self, slot: Slot, key: &Key, schedule_state: &mut ScheduleState) {
        self.end_lease(slot, schedule_state);
        self.set_delay(slot, schedule_state, None);
        self.parked.insert(key.clone(), slot);
        self.set_place(schedule_state, Place::Parked);
    }

    /// Drops what is behind the lease, or the key's turn, delay and place in `parked`.
    pub fn drop_waiting(&mut self, slot: Slot, key: &Key, schedule_state: &mut ScheduleState) {
        self.set_delay(slot, schedule_state, None);
        match &mut schedule_state.place {
            Place::Leased(lease) => {
                if lease.news.take().is_some() {
                    self.leased_with_news -= 1;
                }
            }
            Place::Ready(_) => self.leave_ready(schedule_state),
            Place::Parked => {
                self.parked.remove(key.as_str());
                schedule_state.place = Place::Idle;
            }
            Place::Idle => {}
        }
        if schedule_state.place == Place::Idle {
            schedule_state.failures = 0;
            schedule_state.attempt = 0;
            schedule_state.set_last_error(None);
            self.set_failure_expiry(slot, schedule_state, None);
        }
    }

    /// Failures are forgotten, and the error that came with them, unless it says why the key is parked.
    pub fn forget(&mut self, slot: Slot, schedule_state: &mut ScheduleState) {
        schedule_state.failures = 0;
        if schedule_state.place != Place::Parked {
            schedule_state.set_last_error(None);
        }
        self.set_failure_expiry(slot, schedule_state, None);
    }

    /// Sets or drops the instant at which an idle key's failure count goes.
    pub fn set_failure_expiry(
        &mut self,
        slot: Slot,
        schedule_state: &mut ScheduleState,
        failure_expiry: Option<(Time, Rv)>,
    ) {
        let old = schedule_state.failure_expiry();
        if old == failure_expiry {
            return;
        }
        if let Some((at, rv)) = old {
            self.failure_expiries.remove(&(at, rv, slot));
        }
        if let Some((at, rv)) = failure_expiry {
            self.failure_expiries.insert((at, rv, slot));
        }
        schedule_state.set_backoff(|backoff| backoff.failure_expiry = failure_expiry);
    }

    /// Puts the key at the tail. `added` is when its work came in, if that was during a lease and so
    /// is counted already.
    fn enqueue(
        &mut self,
        slot: Slot,
        schedule_state: &mut ScheduleState,
        stamp: EventId,
        added: Option<Time>,
    ) {
        self.set_failure_expiry(slot, schedule_state, None);
        self.ready.insert(stamp.rv, slot);
        self.adds += u64::from(added.is_none());
        let position = ReadyPosition { rv: stamp.rv, since: stamp.at, added: added.unwrap_or(stamp.at) };
        self.set_place(schedule_state, Place::Ready(position));
    }

    fn leave_ready(&mut self, schedule_state: &mut ScheduleState) {
        if let Place::Ready(position) = schedule_state.place {
            self.ready.remove(&position.rv);
            self.set_place(schedule_state, Place::Idle);
        }
    }

    fn end_lease(&mut self, slot: Slot, schedule_state: &mut ScheduleState) -> Option<Box<Lease>> {
        if !matches!(schedule_state.place, Place::Leased(_)) {
            return None;
        }
        let Place::Leased(lease) = self.set_place(schedule_state, Place::Idle) else { return None };
        self.leases.remove(&(lease.deadline, lease.token, slot));
        self.tokens.remove(&lease.token);
        self.leased_since_us -= u128::from(lease.since.as_micros());
        if lease.news.is_some() {
            self.leased_with_news -= 1;
        }
        Some(lease)
    }

    fn set_delay(&mut self, slot: Slot, schedule_state: &mut ScheduleState, delay: Option<Delay>) {
        let (was, old) = (schedule_state.is_delayed(), schedule_state.delay());
        if old == delay {
            return;
        }
        if let Some(old) = old {
            self.delayed.remove(&(old.due, old.rv, slot));
        }
        if let Some(new) = delay {
            self.delayed.insert((new.due, new.rv, slot));
        }
        schedule_state.set_backoff(|backoff| backoff.delay = delay);
        self.count_delayed(was, schedule_state.is_delayed());
    }

    fn set_place(&mut self, schedule_state: &mut ScheduleState, place: Place) -> Place {
        let was = schedule_state.is_delayed();
        let old = std::mem::replace(&mut schedule_state.place, place);
        self.count_delayed(was, schedule_state.is_delayed());
        old
    }

    fn count_delayed(&mut self, was: bool, is: bool) {
        match (was, is) {
            (false, true) => self.idle_delayed += 1,
            (true, false) => self.idle_delayed -= 1,
            _ => {}
        }
    }
}

impl ScheduleState {
    /// A standing of all its parts.
    #[must_use]
    pub fn new(place: Place, failures: u32, attempt: u32, backoff: Backoff) -> Self {
        let mut schedule_state = Self { place, failures, attempt, backoff: None };
        schedule_state.set_backoff(|own| *own = backoff);
        schedule_state
    }

    /// What it has when not all goes well.
    #[must_use]
    pub fn backoff(&self) -> &Backoff {
        static NONE: Backoff = Backoff { delay: None, last_error: None, failure_expiry: None };
        self.backoff.as_deref().unwrap_or(&NONE)
    }

    /// When a delay or backoff ends.
    #[must_use]
    pub fn delay(&self) -> Option<Delay> {
        self.backoff().delay
    }

    /// When the failure count of an otherwise idle key is dropped.
    #[must_use]
    pub fn failure_expiry(&self) -> Option<(Time, Rv)> {
        self.backoff().failure_expiry
    }

    /// What the worker said of the last failure.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.backoff().last_error.as_deref()
    }

    /// Notes what the worker said of the last failure.
    pub fn set_last_error(&mut self, error: Option<Arc<str>>) {
        if error.is_some() || self.backoff.is_some() {
            self.set_backoff(|backoff| backoff.last_error = error);
        }
    }

    fn set_backoff(&mut self, change: impl FnOnce(&mut Backoff)) {
        let mut backoff = self.backoff.take().map(|backoff| *backoff).unwrap_or_default();
        change(&mut backoff);
        self.backoff = (backoff != Backoff::default()).then(|| Box::new(backoff));
    }

    /// Whether the key waits for its delay and nothing else.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.delay().is_some() && self.place == Place::Idle
    }

    /// The lease, while a worker holds the key.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match &self.place {
            Place::Leased(lease) => Some(lease),
            _ => None,
        }
    }
}

/// Sizes of the schedule's indexes and counters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct IndexSizes {
    pub(super) ready: usize,
    pub(super) delayed: usize,
    pub(super) leases: usize,
    pub(super) tokens: usize,
    pub(super) parked: usize,
    pub(super) failure_expiries: usize,
    pub(super) idle_delayed: usize,
    pub(super) leased_with_news: usize,
}
