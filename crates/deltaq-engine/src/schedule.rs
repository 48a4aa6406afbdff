//! The schedule: which key may be delivered, when, and which worker holds it.
//!
//! The schedule is client-go's workqueue (dirty, processing, delayed, failure counts) plus leases with a deadline and
//! parked keys. It has no access to deltas or objects: the caller passes in whether deltas wait for a key.
//!
//! Invariants, for the [`ScheduleState`]s of all keys:
//! - a key is in `order` iff its place is `Ready`, in `leases` and `tokens` iff `Leased`, in `parked` iff `Parked`;
//! - a key is in `windows` iff it is idle and has a debounce window; a parked key has neither a window nor a delay;
//! - every other key is in `delayed` iff it has a delay or a backoff;
//! - a key is in `failure_expiries` iff its `failure_expiry` is set; such a key is idle and does not wait;
//! - a key is in `older_changes` iff it has an unacknowledged change, is not parked, and is not ready since the arrival of
//!   its oldest change.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::group_rules::GroupRules;
use super::id::{Rv, Slot, Token};
use super::key::Key;
use super::line::Line;
use super::time::Time;

mod groups;
mod order;
mod rebuild;
mod state;
mod window;

pub use groups::{Charged, GroupAccount, GroupLease, GroupStop, GroupsState};
pub(crate) use groups::{Group, Groups};
pub(crate) use order::Order;
pub use order::{HeadStart, Turn};
pub(super) use rebuild::Rebuild;
pub use state::{Backoff, Delay, Lease, NotBefore, Place, ReadyPosition, ScheduleState};
use window::Timer;
pub use window::{OpenWindow, Window};

/// The indexes over the [`ScheduleState`]s of all keys.
#[derive(Debug, Default)]
pub struct Schedule {
    order: Order,
    /// The groups that take turns. Invariant: `Some` iff the queue has the setting `groups`.
    pub(super) groups: Option<Box<Groups>>,
    delayed: Line<(Time, Rv, Slot), ()>,
    windows: Line<(Time, Rv, Slot), ()>,
    leases: Line<(Time, Token, Slot), ()>,
    tokens: Line<Token, Slot>,
    /// Sum of the microseconds at which all leases began.
    leased_since_us: u128,
    parked: BTreeMap<Key, Slot>,
    failure_expiries: Line<(Time, Rv, Slot), ()>,
    /// The oldest unacknowledged change of each key for which that change is not also its position in `order`.
    older_changes: Line<(Rv, Slot), ()>,
    /// Number of idle keys that wait: the keys in the state "delayed".
    idle_delayed: usize,
    /// Number of leased keys with a change that arrived during the lease.
    leased_with_changes: usize,
}

/// The number and the time of an event of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "StoredEventId")]
pub struct EventId {
    /// The event's number.
    pub rv: Rv,
    /// The event's time.
    pub at: Time,
}

/// The stored forms of an [`EventId`]. Older checkpoints have only the time.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredEventId {
    Complete { rv: Rv, at: Time },
    Time(Time),
}

impl From<StoredEventId> for EventId {
    fn from(stored: StoredEventId) -> Self {
        match stored {
            StoredEventId::Complete { rv, at } => Self { rv, at },
            StoredEventId::Time(at) => Self { rv: Rv::ZERO, at },
        }
    }
}

impl Schedule {
    /// The schedule of a queue with these groups and no keys.
    pub(super) fn of(groups: Option<&Arc<GroupRules>>) -> Self {
        let groups = groups.map(|rules| Groups::new(rules.clone(), Order::default()));
        Self { groups: groups.map(Box::new), ..Self::default() }
    }

    /// Whether a pop gets a key if the queue as a whole delivers.
    pub(super) fn has_turn(&self) -> bool {
        self.groups.as_ref().map_or_else(|| self.order.len() > 0, |groups| groups.has_turn())
    }

    /// Keys with a delay or backoff later than `after` and without a window, by due time. These may include leased keys.
    pub fn delayed_after(&self, after: (Time, Rv)) -> impl Iterator<Item = (Time, Rv, Slot)> {
        self.delayed.from(Bound::Excluded((after.0, after.1, Slot::MAX))).map(|(at, ())| at)
    }

    /// Leased keys later than `after`, by deadline.
    pub fn leased_after(&self, after: (Time, Token)) -> impl Iterator<Item = (Time, Token, Slot)> {
        self.leases.from(Bound::Excluded((after.0, after.1, Slot::MAX))).map(|(at, ())| at)
    }

    /// Parked keys from `from` on, in key order.
    pub fn parked_from(&self, from: Bound<&str>) -> impl Iterator<Item = (&Key, Slot)> {
        self.parked.range::<str, _>((from, Bound::Unbounded)).map(|(key, slot)| (key, *slot))
    }

    /// The key with the live lease `token`.
    #[must_use]
    pub fn leased_at(&self, token: Token) -> Option<Slot> {
        self.tokens.get(token)
    }

    /// Leased keys, by token.
    pub(super) fn leased_slots(&self) -> impl Iterator<Item = Slot> {
        self.tokens.iter().map(|(_, slot)| slot)
    }

    /// Leased keys with a larger token than `after`, by token.
    pub fn leased_behind(&self, after: Token) -> impl Iterator<Item = (Token, Slot)> {
        self.tokens.from(Bound::Excluded(after))
    }

    /// Leased keys from this token on, by token.
    pub(super) fn leased_from(&self, from: Token) -> impl Iterator<Item = (Token, Slot)> {
        self.tokens.from(Bound::Included(from))
    }

    /// The key with the oldest lease.
    #[must_use]
    pub fn oldest_lease(&self) -> Option<Slot> {
        self.tokens.first().map(|(_, slot)| slot)
    }

    /// The sum of the ages of all leases at `now`.
    #[must_use]
    pub fn leased_for(&self, now: Time) -> Duration {
        let all_us = u128::from(now.as_micros()) * self.tokens.len() as u128;
        let sum_us = all_us.saturating_sub(self.leased_since_us);
        Duration::from_micros(u64::try_from(sum_us).unwrap_or(u64::MAX))
    }

    /// The earliest end of a delay or backoff.
    #[must_use]
    pub fn next_delay(&self) -> Option<(Time, Rv, Slot)> {
        self.delayed.first().map(|(first, ())| first)
    }

    /// The earliest deadline of a lease.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Time, Token, Slot)> {
        self.leases.first().map(|(first, ())| first)
    }

    /// The earliest deadline of a committed lease between `from` and `now`.
    #[must_use]
    pub fn next_expiry(&self, from: (Time, Token), now: Time, committed: Rv) -> Option<(Time, Token, Slot)> {
        // Usually no lease is due.
        self.next_deadline().filter(|(at, _, _)| *at <= now)?;
        let leases = self.leases.from(Bound::Included((from.0, from.1, Slot::MIN))).map(|(lease, ())| lease);
        leases.take_while(|(at, _, _)| *at <= now).find(|(_, token, _)| token.rv() <= committed)
    }

    /// The earliest expiry of a failure count.
    #[must_use]
    pub fn next_failure_expiry(&self) -> Option<(Time, Rv, Slot)> {
        self.failure_expiries.first().map(|(first, ())| first)
    }

    /// The key with the oldest unacknowledged change among the keys that are delayed, leased, or ready again.
    #[must_use]
    pub fn oldest_older_change(&self) -> Option<Slot> {
        self.older_changes.first().map(|((_, slot), ())| slot)
    }

    /// Number of ready keys.
    #[must_use]
    pub fn ready_len(&self) -> usize {
        self.order.len()
    }

    /// Number of idle keys that wait for a delay, a backoff or a window.
    #[must_use]
    pub fn delayed_len(&self) -> usize {
        self.idle_delayed
    }

    /// Number of keys that wait, including ready and leased keys with a delay.
    pub(super) fn waiting_len(&self) -> usize {
        self.delayed.len() + self.windows.len()
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

    /// client-go's depth: ready keys, and leased keys that become ready when they are settled.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.ready_len() + self.leased_with_changes
    }

    /// The size of each index, for the invariants.
    pub(super) fn index_sizes(&self) -> IndexSizes {
        IndexSizes {
            ready: self.order.plain_len(),
            ranked: self.order.ranked_len(),
            delayed: self.delayed.len(),
            windows: self.windows.len(),
            leases: self.leases.len(),
            tokens: self.tokens.len(),
            parked: self.parked.len(),
            failure_expiries: self.failure_expiries.len(),
            older_changes: self.older_changes.len(),
            idle_delayed: self.idle_delayed,
            leased_with_changes: self.leased_with_changes,
        }
    }

    /// Whether the indexes agree with `state` for `slot`.
    pub(super) fn holds(&self, slot: Slot, key: &Key, state: &ScheduleState) -> bool {
        let in_place = match &state.place {
            Place::Idle => true,
            Place::Ready(position) => self.order.has(slot, position.rv, state.turn()),
            Place::Leased(lease) => {
                self.leases.get((lease.deadline, lease.token, slot)).is_some()
                    && self.leased_at(lease.token) == Some(slot)
            }
            Place::Parked => self.parked.get(key.as_str()) == Some(&slot),
        };
        let waits = match state.wait().timer {
            Timer::None => true,
            Timer::Delay(due, rv) => self.delayed.get((due, rv, slot)).is_some(),
            Timer::Window { indexed, rv, .. } => {
                indexed.is_some_and(|indexed| self.windows.get((indexed, rv, slot)).is_some())
            }
        };
        let failure_expiry =
            state.failure_expiry().is_none_or(|(at, rv)| self.failure_expiries.get((at, rv, slot)).is_some());
        let older_change = state.older_change().is_none_or(|rv| self.older_changes.get((rv, slot)).is_some());
        in_place && waits && failure_expiry && older_change
    }

    /// Handles a new change of the key. An idle or parked key becomes ready, but not before its floor. A leased key becomes
    /// ready when it is settled. Returns whether the key had no work before (client-go's adds).
    pub fn wake(&mut self, slot: Slot, key: &Key, state: &mut ScheduleState, event: EventId) -> bool {
        self.end_window(slot, state);
        if let Some(floor) = state.floor().filter(|floor| *floor > event.at) {
            self.delay(slot, key, state, floor, event.rv);
            return false;
        }
        self.make_ready(slot, key, state, event)
    }

    /// Like [`wake`](Self::wake), but regardless of the key's floor, because its wait has ended or an operator ends it.
    pub fn make_ready(&mut self, slot: Slot, key: &Key, state: &mut ScheduleState, event: EventId) -> bool {
        match &mut state.place {
            Place::Ready(_) => return false,
            Place::Leased(lease) => {
                if lease.new_change.is_some() {
                    return false;
                }
                lease.new_change = Some(event.at);
                self.leased_with_changes += 1;
                self.end_window(slot, state);
            }
            Place::Idle => self.enqueue(slot, state, event, None),
            Place::Parked => {
                self.unpark(key, state);
                state.failures = 0;
                self.enqueue(slot, state, event, None);
            }
        }
        true
    }

    /// Makes the key ready no later than `due`, but not before its floor. A parked key becomes delayed.
    pub fn delay(&mut self, slot: Slot, key: &Key, state: &mut ScheduleState, due: Time, rv: Rv) {
        if state.place == Place::Parked {
            self.unpark(key, state);
            state.failures = 0;
        }
        self.set_failure_expiry(slot, state, None);
        let due = state.floor().map_or(due, |floor| due.max(floor));
        if state.delay().is_none_or(|delay| due < delay.due) {
            self.set_delay(slot, state, Some(Delay { due, rv }));
        }
    }

    /// Makes an idle key ready no earlier than `due`, unless a change of it is due by itself.
    pub fn back_off(&mut self, slot: Slot, state: &mut ScheduleState, due: Time, rv: Rv) {
        self.set_failure_expiry(slot, state, None);
        let floor = state.floor();
        let at = floor.map_or(due, |floor| due.max(floor));
        let is_hold = state.is_held();
        let not_before = NotBefore { at, rv, retries: true, is_floor: floor.is_some(), is_hold };
        self.update(slot, state, |state| state.set_backoff(|backoff| backoff.not_before = Some(not_before)));
    }

    /// Sets the time before which only an operator makes the key ready, for a failure or a hold. A delay that would end earlier is extended.
    pub fn set_floor(&mut self, slot: Slot, state: &mut ScheduleState, floor: EventId, is_hold: bool) {
        let EventId { at, rv } = floor;
        let not_before = NotBefore { at, rv, retries: false, is_floor: true, is_hold };
        self.update(slot, state, |state| {
            state.set_backoff(|backoff| {
                backoff.not_before = Some(not_before);
                if let Some(delay) = &mut backoff.delay {
                    delay.due = delay.due.max(floor.at);
                }
            });
        });
    }

    /// Handles the end of the key's wait, or a promote. If `waits` is true, the key has something to deliver. With `keeps_delay`, a
    /// delay that is not due stays. Returns whether the key got work.
    pub fn fire(
        &mut self,
        slot: Slot,
        key: &Key,
        state: &mut ScheduleState,
        (waits, keeps_delay): (bool, bool),
        event: EventId,
    ) -> bool {
        self.update(slot, state, |state| {
            state.set_backoff(|backoff| {
                backoff.delay = backoff.delay.filter(|delay| keeps_delay && delay.due > event.at);
                (backoff.not_before, backoff.window) = (None, None);
            });
        });
        waits && self.make_ready(slot, key, state, event)
    }

    /// Leases the key. With `keep_delay`, an existing delay is kept during the lease.
    pub fn lease(&mut self, slot: Slot, state: &mut ScheduleState, mut lease: Lease, keep_delay: bool) {
        self.leave_ready(slot, state);
        if !keep_delay {
            lease.dropped_delay = state.delay();
            self.set_delay(slot, state, None);
        }
        self.set_failure_expiry(slot, state, None);
        self.leases.insert((lease.deadline, lease.token, slot), ());
        self.tokens.insert(lease.token, slot);
        self.leased_since_us += u128::from(lease.since.as_micros());
        self.leased_with_changes += usize::from(lease.new_change.is_some());
        self.set_place(slot, state, Place::Leased(Box::new(lease)));
        state.attempt = state.attempt.saturating_add(1);
    }

    /// Moves the deadline of the key's lease. The lease now lasts from `now` on.
    ///
    /// # Panics
    /// If the key is not leased.
    pub fn extend(&mut self, slot: Slot, state: &mut ScheduleState, deadline: Time, now: Time) {
        let Place::Leased(lease) = &mut state.place else {
            panic!("slot {slot} has no lease to extend: its place is {:?}", state.place);
        };
        self.leases.remove((lease.deadline, lease.token, slot));
        lease.deadline = deadline;
        lease.length = deadline.since(now);
        self.leases.insert((deadline, lease.token, slot), ());
    }

    /// Ends the lease. The key becomes ready if a new change arrived during the lease, or if it has a window that is over, else
    /// idle. Returns whether the end of the window gives the key work.
    pub fn settle(&mut self, slot: Slot, state: &mut ScheduleState, event: EventId, is_closed: bool) -> bool {
        let added = self.end_lease(slot, state).new_change;
        let window = state.window().filter(|_| state.has_past_window(event.at, is_closed));
        let debounced = window.map(|open| open.times.first);
        if let Some(added) = added.or(debounced) {
            self.enqueue(slot, state, event, Some(added));
        }
        debounced.is_some()
    }

    /// Ends the lease. The key waits for a delay or its window, even if a change arrived during the lease.
    pub fn settle_to_wait(&mut self, slot: Slot, state: &mut ScheduleState) {
        self.end_lease(slot, state);
    }

    /// Ends the lease; the key becomes ready. Returns whether the key had no work before. A new change during the
    /// lease counts as work.
    pub fn settle_to_tail(&mut self, slot: Slot, state: &mut ScheduleState, event: EventId) -> bool {
        let lease = self.end_lease(slot, state);
        self.enqueue(slot, state, event, lease.new_change);
        lease.new_change.is_none()
    }

    /// Ends an undelivered lease. The key returns to its former position.
    pub fn restore_position(&mut self, slot: Slot, state: &mut ScheduleState) {
        let lease = self.end_lease(slot, state);
        self.end_window(slot, state);
        state.attempt = state.attempt.saturating_sub(1);
        self.enter_order(slot, lease.former.rv, None);
        self.set_place(slot, state, Place::Ready(lease.former));
        if let Some(dropped) = lease.dropped_delay
            && state.delay().is_none_or(|delay| dropped.due < delay.due)
        {
            self.set_delay(slot, state, Some(dropped));
        }
    }

    /// Ends the lease, parks the key and drops its delay.
    pub fn park(&mut self, slot: Slot, key: &Key, state: &mut ScheduleState, event: EventId) {
        self.end_lease(slot, state);
        self.set_delay(slot, state, None);
        self.parked.insert(key.clone(), slot);
        self.set_place(slot, state, Place::Parked);
        state.set_parked(Some(event));
    }

    fn unpark(&mut self, key: &Key, state: &mut ScheduleState) {
        self.parked.remove(key.as_str());
        state.place = Place::Idle;
        state.set_parked(None);
    }

    /// Records that the key's waiting deltas were dropped: a leased key stays leased, and any other key becomes idle.
    pub fn drop_waiting(&mut self, slot: Slot, key: &Key, state: &mut ScheduleState) {
        self.stop_waiting(slot, state, |_| None);
        match &mut state.place {
            Place::Leased(lease) => {
                if lease.new_change.take().is_some() {
                    self.leased_with_changes -= 1;
                }
            }
            Place::Ready(_) => self.leave_ready(slot, state),
            Place::Parked => self.unpark(key, state),
            Place::Idle => {}
        }
        state.set_head_start(HeadStart::NONE);
        if state.place == Place::Idle {
            state.failures = 0;
            state.attempt = 0;
            state.set_last_error(None);
            self.set_failure_expiry(slot, state, None);
        }
    }

    /// Resets the key's failures and its last error. A parked key keeps the error, which explains why it is parked.
    pub fn forget(&mut self, slot: Slot, state: &mut ScheduleState) {
        state.failures = 0;
        if state.place != Place::Parked {
            state.set_last_error(None);
        }
        self.set_failure_expiry(slot, state, None);
    }

    /// Sets or removes the expiry of the key's failure count.
    pub fn set_failure_expiry(
        &mut self,
        slot: Slot,
        state: &mut ScheduleState,
        failure_expiry: Option<(Time, Rv)>,
    ) {
        let old = state.failure_expiry();
        if old == failure_expiry {
            return;
        }
        if let Some((at, rv)) = old {
            self.failure_expiries.remove((at, rv, slot));
        }
        if let Some((at, rv)) = failure_expiry {
            self.failure_expiries.insert((at, rv, slot), ());
        }
        state.set_backoff(|backoff| backoff.failure_expiry = failure_expiry);
    }

    /// Sets the key's oldest unacknowledged change. `was` is the number that the key had in `older_changes`.
    pub fn set_oldest_change(
        &mut self,
        slot: Slot,
        state: &mut ScheduleState,
        was: Option<Rv>,
        oldest: Option<EventId>,
    ) {
        state.set_oldest_change(oldest);
        let is = state.older_change();
        if was == is {
            return;
        }
        if let Some(rv) = was {
            self.older_changes.remove((rv, slot));
        }
        if let Some(rv) = is {
            self.older_changes.insert((rv, slot), ());
        }
    }

    /// Puts the key into the ready queue at the position `event.rv`. Usually this is the number of the current event,
    /// so the key goes to the tail. In mode events it is the number of the key's oldest delta. `added` is when the
    /// key's work arrived, if it arrived during a lease.
    fn enqueue(&mut self, slot: Slot, state: &mut ScheduleState, event: EventId, added: Option<Time>) {
        self.set_failure_expiry(slot, state, None);
        self.stop_waiting(slot, state, Backoff::first_end);
        self.enter_order(slot, event.rv, None);
        let position = ReadyPosition { rv: event.rv, since: event.at, added: added.unwrap_or(event.at) };
        self.set_place(slot, state, Place::Ready(position));
    }

    fn leave_ready(&mut self, slot: Slot, state: &mut ScheduleState) {
        if let Place::Ready(position) = state.place {
            self.leave_order(slot, state, position.rv);
            self.set_place(slot, state, Place::Idle);
        }
    }

    fn end_lease(&mut self, slot: Slot, state: &mut ScheduleState) -> Box<Lease> {
        let lease = match self.set_place(slot, state, Place::Idle) {
            Place::Leased(lease) => lease,
            other => panic!("slot {slot} has no lease to end: its place is {other:?}"),
        };
        self.leases.remove((lease.deadline, lease.token, slot));
        self.tokens.remove(lease.token);
        self.leased_since_us -= u128::from(lease.since.as_micros());
        if lease.new_change.is_some() {
            self.leased_with_changes -= 1;
        }
        lease
    }

    /// Ends the backoff, the floor and the window of the key, and sets its delay.
    fn stop_waiting(
        &mut self,
        slot: Slot,
        state: &mut ScheduleState,
        delay: impl FnOnce(&Backoff) -> Option<Delay>,
    ) {
        if state.backoff.is_none() {
            return;
        }
        self.update(slot, state, |state| {
            state.set_backoff(|backoff| {
                backoff.delay = delay(backoff);
                (backoff.not_before, backoff.window) = (None, None);
            });
        });
    }

    fn set_delay(&mut self, slot: Slot, state: &mut ScheduleState, delay: Option<Delay>) {
        if state.delay() != delay {
            self.update(slot, state, |state| state.set_backoff(|backoff| backoff.delay = delay));
        }
    }

    #[inline]
    fn set_place(&mut self, slot: Slot, state: &mut ScheduleState, place: Place) -> Place {
        self.update(slot, state, |state| std::mem::replace(&mut state.place, place))
    }
}

/// The sizes of the schedule's indexes, and the schedule's counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct IndexSizes {
    pub(super) ready: usize,
    pub(super) ranked: usize,
    pub(super) delayed: usize,
    pub(super) windows: usize,
    pub(super) leases: usize,
    pub(super) tokens: usize,
    pub(super) parked: usize,
    pub(super) failure_expiries: usize,
    pub(super) older_changes: usize,
    pub(super) idle_delayed: usize,
    pub(super) leased_with_changes: usize,
}
