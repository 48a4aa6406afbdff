//! The state of a queue: everything that is a function of its events.

use std::ops::Bound;
use std::sync::Arc;

use deltaq_types::PauseReason;

use super::birth::Birth;
use super::births::Births;
use super::config::Config;
use super::deliveries::Deliveries;
use super::failing::Failing;
use super::follow::FollowPosition;
use super::id::{Rv, Slot, Source};
use super::initial::InitialList;
use super::key::Key;
use super::lives::{LifeId, Lives};
use super::pops::Pops;
use super::rate::{Rate, RateDebt};
use super::rate_limit::BucketLevel;
use super::remembered::RememberedVersions;
use super::schedule::{Groups, HeadStart, Order, Place, Schedule, Turn};
use super::settled::SettledLeases;
use super::snapshot::{LastReplace, QueueState, SourceHistory, SourceRecord};
use super::sources::Sources;
use super::table::{Entry, Table};
use super::time::Time;

/// The state of a queue.
///
/// Invariant: the state is a function of the events. [`apply`](Self::apply) is the only method that changes a
/// `State`, and live traffic, replay and the tests' second engine all use it. A queue passes its state to commands as
/// `&State`, so a command can't change it. Slots are an exception to the invariant: the slot of a key depends on the
/// process, so no event or reply contains a slot.
#[derive(Debug)]
pub(super) struct State {
    /// The number of the newest event.
    pub(super) rv: Rv,
    pub(super) lives: Lives,
    /// When the newest event happened, or the queue was created.
    pub(super) last_at: Time,
    pub(super) config: Arc<Config>,
    pub(super) auto_created: bool,
    /// The name of the token that created the queue.
    pub(super) creator: Option<Arc<str>>,
    pub(super) paused: bool,
    /// No key is delivered before this time. Usually it is in the past.
    ///
    /// Invariant: at most [`HOLD_SECS_MAX`](super::limits::HOLD_SECS_MAX) after `last_at`.
    pub(super) held_until: Time,
    /// Why the queue has paused itself.
    ///
    /// Invariant: `None` unless `paused`.
    pub(super) pause_reason: Option<PauseReason>,
    pub(super) closed: bool,
    /// Whether pops of the closed queue end as soon as no key is ready.
    ///
    /// Invariant: false unless `closed`.
    pub(super) closes_at_once: bool,
    pub(super) initial: InitialList,
    pub(super) table: Table,
    pub(super) schedule: Schedule,
    pub(super) settled: SettledLeases,
    /// Invariant: has the live leases whose pop has an id.
    pub(super) pops: Pops,
    pub(super) bucket: Option<BucketLevel>,
    /// What the queue owes to its rate.
    ///
    /// Invariant: nothing without the setting `rate`.
    pub(super) debt: RateDebt,
    pub(super) next_resync: Option<Time>,
    pub(super) last_replace: Option<LastReplace>,
    pub(super) sources: Sources,
    /// The position of a follower; `None` before its list has begun.
    pub(super) followed: Option<FollowPosition>,
    /// The name of the token that has set what the queue follows.
    ///
    /// Invariant: `None` unless the queue follows another one.
    pub(super) follow_set_by: Option<Arc<str>>,
    /// The remembered versions. Empty without the setting `version`.
    pub(super) versions: RememberedVersions,
    /// The deliveries of webhooks and CloudEvents.
    pub(super) deliveries: Deliveries,
    /// The births of the keys of the view that clients of Kubernetes read.
    ///
    /// Invariant: `None` without the setting `kubernetes`.
    pub(super) births: Option<Box<Births>>,
    /// Number of known objects.
    pub(super) known: usize,
    /// Number of keys with a pending delta of the initial list.
    pub(super) initial_pending: usize,
    /// How often the keys that fail have failed.
    pub(super) failing: Failing,
    /// Whether something may stop delivery: a pause, a hold, or a limit. One flag, so that a queue without them asks for none of them.
    ///
    /// Invariant: false only if [`may_stop`](Self::may_stop) is.
    pub(super) stops: bool,
    /// While a queue is being restored: the slots, the newest events and the groups of its keys. Empty afterwards.
    pub(super) restored_groups: Vec<(Slot, Rv, Arc<str>)>,
    /// The sum of the [bytes](Entry::held_bytes) of all entries.
    pub(super) held_bytes: usize,
}

impl State {
    /// The state before the first event, which will be `last_rv + 1`.
    pub(super) fn new(config: Arc<Config>, last_rv: Rv, now: Time) -> Self {
        let next_resync = config.resync_period.map(|period| now.plus(period));
        let births = Births::of(config.kubernetes_view(), Birth { rv: last_rv, at: now });
        let stops = config.max_leased.is_some() || config.rate.is_some();
        Self {
            rv: last_rv,
            lives: Lives::begin(LifeId::default(), last_rv),
            last_at: now,
            schedule: Schedule::of(config.groups.as_ref()),
            config,
            auto_created: false,
            creator: None,
            paused: false,
            held_until: Time::default(),
            pause_reason: None,
            closed: false,
            closes_at_once: false,
            initial: InitialList::Missing,
            table: Table::default(),
            settled: SettledLeases::default(),
            pops: Pops::default(),
            bucket: None,
            debt: RateDebt::default(),
            next_resync,
            last_replace: None,
            sources: Sources::default(),
            followed: None,
            follow_set_by: None,
            versions: RememberedVersions::default(),
            deliveries: Deliveries::default(),
            births,
            known: 0,
            initial_pending: 0,
            failing: Failing::default(),
            stops,
            restored_groups: Vec::new(),
            held_bytes: 0,
        }
    }

    /// The state without its keys.
    pub(super) fn without_keys(&self) -> QueueState {
        let source = |(source, history): (&Source, &SourceHistory)| SourceRecord {
            source: source.clone(),
            history: history.clone(),
        };
        let (received, kept) = self.deliveries.parts();
        QueueState {
            rv: self.rv,
            lives: self.lives.all(self.rv),
            last_at: self.last_at,
            config: self.config.clone(),
            auto_created: self.auto_created,
            creator: self.creator.clone(),
            paused: self.paused,
            held_until: self.held_until,
            pause_reason: self.pause_reason,
            closed: self.closed,
            closes_at_once: self.closes_at_once,
            initial: self.initial,
            settled: self.settled.clone(),
            bucket: self.bucket,
            debt: self.debt,
            groups: self.schedule.groups.as_ref().map(|groups| Box::new(groups.state())),
            next_resync: self.next_resync,
            last_replace: self.last_replace.clone(),
            followed: self.followed,
            follow_set_by: self.follow_set_by.clone(),
            sources: self.sources.histories().map(source).collect(),
            versions: self.versions.iter().cloned().collect(),
            received,
            kept,
            births_since: self.births_since(),
        }
    }

    /// Keys that count toward `max_keys`.
    pub(super) fn keys(&self) -> usize {
        self.table.len() - self.schedule.index_sizes().failure_expiries
    }

    /// The ready key that a pop gets at `now`.
    #[inline]
    pub(super) fn next_delivered(&self, now: Time) -> Option<Slot> {
        if self.stops && self.is_stopped(now) { None } else { self.first_ready() }
    }

    /// Whether a pause, the hold or a limit stops delivery at `now`.
    #[cold]
    fn is_stopped(&self, now: Time) -> bool {
        self.paused
            || self.held_until > now
            || self.is_full()
            || self.next_by_rate(0, now).is_some_and(|at| at > now)
    }

    /// Whether the queue has something that may stop delivery.
    pub(super) fn may_stop(&self) -> bool {
        let is_held = self.held_until != Time::default();
        self.paused || is_held || self.config.max_leased.is_some() || self.config.rate.is_some()
    }

    /// The ready key that a pop gets at `now`, which may ask for a group.
    #[inline]
    pub(super) fn next_delivered_to(&self, now: Time, group: Option<&str>) -> Option<Slot> {
        match group {
            None => self.next_delivered(now),
            Some(group) => self.next_delivered_of(now, group),
        }
    }

    /// The ready key that a pop of a group gets at `now`.
    #[cold]
    #[inline(never)]
    pub(super) fn next_delivered_of(&self, now: Time, group: &str) -> Option<Slot> {
        if self.stops && self.is_stopped(now) {
            return None;
        }
        self.first_of(self.schedule.groups.as_deref()?.next_of(group)?)
    }

    /// When the hold ends, if it has not ended at `now`.
    pub(super) fn hold_at(&self, now: Time) -> Option<Time> {
        Some(self.held_until).filter(|until| *until > now)
    }

    /// Whether workers hold as many keys as they may.
    pub(super) fn is_full(&self) -> bool {
        self.config.max_leased.is_some_and(|most| self.schedule.leased_len() as u64 >= most)
    }

    /// When the rate of the queue lets a key through, if from `now` on `ahead` keys are delivered before it as soon as they may be.
    pub(super) fn next_by_rate(&self, ahead: u64, now: Time) -> Option<Time> {
        self.config.rate.map(|rate| rate.next(self.debt, ahead, now))
    }

    /// When the hold has ended and the rate lets the next key through, if a key waits for nothing else and the time is after `now`.
    #[inline]
    pub(super) fn next_delivery(&self, now: Time) -> Option<Time> {
        if self.stops { self.next_stopped(now) } else { None }
    }

    #[cold]
    fn next_stopped(&self, now: Time) -> Option<Time> {
        let at = self.next_by_rate(0, now).into_iter().fold(self.held_until, Time::max);
        if at <= now {
            return None;
        }
        (!self.paused && !self.is_full() && self.schedule.has_turn()).then_some(at)
    }

    /// Records a delivery.
    #[inline]
    pub(super) fn note_delivery(&mut self, at: Time) {
        if self.stops
            && let Some(rate) = self.config.rate
        {
            self.debt = rate.deliver(self.debt, at);
        }
    }

    /// Records that the queue has another rate from now on. What it owes stays.
    pub(super) fn change_rate(&mut self, next: Option<Rate>, at: Time) {
        if self.config.rate != next {
            let owes = self.config.rate.filter(|_| next.is_some());
            self.debt = owes.map_or_else(RateDebt::default, |rate| rate.pay(self.debt, at));
        }
    }

    /// Whether the queue is closed and no key is ready, delayed or leased. A closed queue in mode keys does not wait for its
    /// delays, which are frozen.
    ///
    /// Invariant: a drained queue has no debounce windows.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        self.closed && self.has_nothing_left()
    }

    #[cold]
    fn has_nothing_left(&self) -> bool {
        let is_frozen = self.config.rules().stops_when_closed;
        let delayed = if is_frozen { 0 } else { self.schedule.delayed_len() };
        let delayed = delayed + usize::from(self.schedule.has_windows());
        self.schedule.ready_len() + delayed + self.schedule.leased_len() == 0
    }

    /// Whether pops are refused: the queue is closed, no key is ready, and no key can become ready unless the queue
    /// was closed at once.
    pub(super) fn ends_pops(&self) -> bool {
        if self.closes_at_once {
            self.schedule.ready_len() == 0 && !self.schedule.has_windows()
        } else {
            self.is_drained()
        }
    }

    /// The earliest time at which a delayed key may be due. A closed queue in mode keys has no delays, because they are frozen. The
    /// windows of every closed queue end at once.
    pub(super) fn next_delay(&self) -> Option<(Time, Rv, Slot)> {
        let delay = if self.freezes_delays() { None } else { self.schedule.next_delay() };
        if self.schedule.has_windows() {
            let window = self.schedule.next_window();
            let window = window.map(|(at, rv, slot)| (if self.closed { self.last_at } else { at }, rv, slot));
            return delay.into_iter().chain(window).min();
        }
        delay
    }

    /// Whether delays do not elapse, because the queue is closed.
    pub(super) fn freezes_delays(&self) -> bool {
        self.closed && self.config.rules().stops_when_closed
    }

    /// The entry at a slot that the schedule or the table has just returned.
    pub(super) fn entry(&self, slot: Slot) -> &Entry {
        match self.table.at(slot) {
            Some(entry) => entry,
            None => panic!("slot {slot} has no entry"),
        }
    }

    /// Entries after `after`, in key order.
    pub(super) fn entries_after(&self, after: Option<&str>) -> impl Iterator<Item = (Slot, &Entry)> {
        self.table.from(after.map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// The slots that may have keys of a source, or without `source` those that may have keys of none.
    pub(super) fn slots_of(&self, source: Option<&Source>) -> Vec<Slot> {
        match source {
            Some(source) => self.sources.slots_of(source),
            None => (0..self.table.slots()).filter_map(Slot::at).collect(),
        }
    }

    /// Whether the key counts toward `max_keys`.
    pub(super) fn holds(&self, key: &Key) -> bool {
        self.table.get(key.as_str()).is_some_and(Entry::is_held)
    }

    /// The owner of the key's newest state.
    pub(super) fn owner_of(&self, key: &Key) -> Option<Source> {
        self.table.get(key.as_str())?.owner().cloned()
    }

    /// Updates the keys of the owner of the event's key. `before` is the owner before the event.
    pub(super) fn track_owner(&mut self, slot: Slot, before: Option<&Source>) {
        let after = self.table.at(slot).and_then(Entry::owner);
        if before != after {
            self.sources.key_moved(slot, before, after);
        }
    }

    /// Mode latest: whether a deletion drops the key because no consumer can have seen it. Without known objects, the
    /// queue can't determine this.
    pub(super) fn drops(&self, entry: &Entry) -> bool {
        self.config.rules().drops_unseen_keys
            && self.config.known_objects
            && entry.known.is_none()
            && entry.schedule_state.attempt == 0
    }

    /// The ready key that is delivered next.
    fn first_ready(&self) -> Option<Slot> {
        match &self.schedule.groups {
            None => self.first_of(self.schedule.order()),
            Some(groups) => self.first_of_groups(groups),
        }
    }

    #[cold]
    #[inline(never)]
    fn first_of_groups(&self, groups: &Groups) -> Option<Slot> {
        groups.next().and_then(|order| self.first_of(order))
    }

    /// The first key of an order.
    #[inline]
    fn first_of(&self, order: &Order) -> Option<Slot> {
        let plain = order.first_plain();
        let Some((turn, ranked)) = order.first_ranked() else { return plain.map(|(_, slot)| slot) };
        let passes = plain.is_none_or(|(rv, slot)| turn < self.plain_turn(rv, slot));
        Some(plain.filter(|_| !passes).map_or(ranked, |(_, slot)| slot))
    }

    /// Ready keys after this turn, in the order of their turns.
    pub(super) fn ready_after(&self, after: Turn) -> impl Iterator<Item = (Turn, Slot)> {
        self.keys_after(self.schedule.order(), after)
    }

    /// The keys of an order after this turn.
    pub(super) fn keys_after<'o>(
        &'o self,
        order: &'o Order,
        after: Turn,
    ) -> impl Iterator<Item = (Turn, Slot)> + 'o {
        let turn = |slot| self.plain_turn(self.entry(slot).ready_position().rv, slot);
        let plain = order.plain_from(move |slot| turn(slot) <= after);
        let mut plain = plain.map(|(rv, slot)| (self.plain_turn(rv, slot), slot)).peekable();
        let mut ranked = order.ranked_after(after).peekable();
        std::iter::from_fn(move || match (plain.peek(), ranked.peek()) {
            (Some(next), Some(passing)) if passing.0 < next.0 => ranked.next(),
            (Some(_), _) => plain.next(),
            (None, _) => ranked.next(),
        })
    }

    /// The turn of a ready key without a head start.
    fn plain_turn(&self, rv: Rv, slot: Slot) -> Turn {
        Turn::new(self.entry(slot).arrival(self.config.rules()), HeadStart::NONE, rv)
    }

    /// When the ready key with the smallest number became ready.
    pub(super) fn oldest_ready(&self) -> Option<Time> {
        let (_, slot) = self.schedule.order().first_by_rv()?;
        match self.entry(slot).schedule_state.place {
            Place::Ready(position) => Some(position.since),
            _ => None,
        }
    }
}
