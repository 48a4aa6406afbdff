//! The state of a queue, and the reads on it.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::checkpoint::Checkpoints;
use super::command::replace::ReplaceJob;
use super::command::resync::Seeding;
use super::command::{Outcome, Settled};
use super::config::Config;
use super::delta::{DeltaKind, Rv, Source};
use super::effects::Effects;
use super::event::{Appended, Ending, Event, EventKind, ReplaceCounts};
use super::object::Object;
use super::rate_limit::BucketLevel;
use super::schedule::{Lease, Place, ReadyPosition, Schedule, Slot};
use super::settled::SettledLeases;
use super::table::{Entry, Table};
use super::time::Time;

/// One queue: its state, and the commands and reads on it.
///
/// Invariant: every field that is not marked "volatile" is a function of the events.
#[derive(Debug)]
pub struct Queue {
    pub(super) rv: Rv,
    pub(super) last_at: Time,
    pub(super) config: Arc<Config>,
    pub(super) auto_created: bool,
    pub(super) populated: bool,
    pub(super) paused: bool,
    pub(super) closed: bool,
    pub(super) initial: Initial,
    pub(super) table: Table,
    pub(super) schedule: Schedule,
    pub(super) settled: SettledLeases,
    /// Invariant: the slots of the live leases of each pop with an id.
    pub(super) pop_ids: HashMap<Arc<str>, Vec<Slot>, RandomState>,
    pub(super) bucket: Option<BucketLevel>,
    pub(super) next_resync: Option<Time>,
    pub(super) last_replace: Option<LastReplace>,
    /// Number of known objects.
    pub(super) known: usize,
    /// Number of keys with a pending delta of the initial list.
    pub(super) initial_pending: usize,
    /// Volatile: what the checkpoints contain, and what the next one must add.
    pub(super) checkpoints: Checkpoints,
    /// Volatile: Replaces between their acceptance and their end. The first one is running.
    pub(super) replace_jobs: VecDeque<ReplaceJob>,
    /// Volatile: the running seed.
    pub(super) seeding: Option<Seeding>,
    /// Volatile: the number of the last Replace.
    pub(super) last_job: u64,
    /// Volatile: effects that the caller has not taken yet.
    pub(super) effects: Effects,
    /// Volatile: events up to this number are durable. A lease with a larger number does not expire.
    pub(super) committed: Rv,
    /// Volatile: how many of the schedule's adds the caller has taken.
    pub(super) adds_taken: u64,
}

/// The state of a queue's initial list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// No Replace is bringing the initial list.
    #[default]
    Quiet,
    /// A Replace is bringing it.
    Running,
    /// The Replace that brought the initial list was aborted.
    Aborted,
}

/// The latest Replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReplace {
    /// The source of the list.
    pub source: Option<Source>,
    /// What the Replace did.
    pub counts: ReplaceCounts,
    /// When the Replace started.
    pub started: Time,
    /// When the Replace ended, or was found to be aborted.
    pub ended: Option<Time>,
    /// Whether the Replace was aborted.
    pub aborted: bool,
}

/// A summary of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Number of ready keys.
    pub ready: usize,
    /// Number of keys that wait for a delay or backoff.
    pub delayed: usize,
    /// Number of leased keys.
    pub leased: usize,
    /// Number of parked keys.
    pub parked: usize,
    /// Number of known objects.
    pub known: usize,
    /// Whether the initial list has been acknowledged.
    pub has_synced: bool,
    /// Number of keys of the initial list that are not acknowledged.
    pub initial_remaining: usize,
    /// The newest event.
    pub resource_version: Rv,
    /// How long the first ready key has been ready.
    pub oldest_ready_age: Option<Duration>,
    /// Whether delivery is paused.
    pub paused: bool,
    /// Whether the queue is closed.
    pub closed: bool,
    /// Whether the queue is closed and has nothing left to deliver or to settle.
    pub drained: bool,
    /// The latest Replace.
    pub last_replace: Option<LastReplace>,
}

impl Queue {
    /// An empty queue whose first event will be `last_rv + 1`.
    #[must_use]
    pub fn new(config: Arc<Config>, last_rv: Rv, now: Time) -> Self {
        let next_resync = config.resync_period.map(|period| now.plus(period));
        Self {
            rv: last_rv,
            last_at: now,
            config,
            auto_created: false,
            populated: false,
            paused: false,
            closed: false,
            initial: Initial::Quiet,
            table: Table::default(),
            schedule: Schedule::default(),
            settled: SettledLeases::default(),
            pop_ids: HashMap::default(),
            bucket: None,
            next_resync,
            last_replace: None,
            known: 0,
            initial_pending: 0,
            checkpoints: Checkpoints::default(),
            replace_jobs: VecDeque::new(),
            seeding: None,
            last_job: 0,
            effects: Effects::default(),
            committed: Rv::MAX,
            adds_taken: 0,
        }
    }

    /// The number of the newest event.
    #[must_use]
    pub fn resource_version(&self) -> Rv {
        self.rv
    }

    /// When the newest event happened, or the queue was created.
    #[must_use]
    pub fn last_at(&self) -> Time {
        self.last_at
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Records that a produce or pop created the queue. Like the settings, this is part of how a queue begins, so it precedes
    /// all events.
    pub fn set_auto_created(&mut self) {
        self.auto_created = true;
    }

    /// Whether a produce or pop created the queue, and nobody configured it since.
    #[must_use]
    pub fn is_auto_created(&self) -> bool {
        self.auto_created
    }

    /// The effects of all commands since the last call. [`Effects`] says what the caller does with them.
    pub fn take_effects(&mut self) -> Effects {
        let mut effects = std::mem::take(&mut self.effects);
        let adds = self.schedule.adds();
        effects.counters.adds = adds - std::mem::replace(&mut self.adds_taken, adds);
        effects.next_deadline = self.next_deadline();
        effects.has_synced = self.has_synced();
        effects.is_drained = self.is_drained();
        effects
    }

    /// The age of the oldest lease.
    #[must_use]
    pub fn longest_lease(&self, now: Time) -> Option<Duration> {
        let slot = self.schedule.oldest_lease()?;
        Some(now.since(self.entry(slot).lease().since))
    }

    /// Sets the number up to which the journal has committed all events.
    pub fn set_committed(&mut self, rv: Rv) {
        self.committed = rv;
    }

    /// Keys that count toward `max_keys`.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.table.len() - self.schedule.index_sizes().failure_expiries
    }

    /// Whether a key can be delivered now.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.paused && self.schedule.ready_len() > 0
    }

    /// Whether the queue is closed and no key is ready, delayed or leased. A closed queue in mode keys does not wait for its
    /// delays, which are frozen.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_frozen = self.config.rules().stops_when_closed;
        let delayed = if is_frozen { 0 } else { self.schedule.delayed_len() };
        self.closed && self.schedule.ready_len() + delayed + self.schedule.leased_len() == 0
    }

    /// client-go's HasSynced, but based on acknowledgements instead of pops. It never becomes false again.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.populated
            && self.initial_pending == 0
            && self.initial == Initial::Quiet
            && !self.replace_jobs.iter().any(ReplaceJob::may_be_first)
    }

    /// Number of keys of the initial list that are not acknowledged.
    #[must_use]
    pub fn initial_remaining(&self) -> usize {
        self.initial_pending
    }

    /// A summary of the queue.
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        Status {
            ready: self.schedule.ready_len(),
            delayed: self.schedule.delayed_len(),
            leased: self.schedule.leased_len(),
            parked: self.schedule.parked_len(),
            known: self.known,
            has_synced: self.has_synced(),
            initial_remaining: self.initial_pending,
            resource_version: self.rv,
            oldest_ready_age: self.oldest_ready().map(|since| now.since(since)),
            paused: self.paused,
            closed: self.closed,
            drained: self.is_drained(),
            last_replace: self.last_replace.clone(),
        }
    }

    /// The keys with their deltas, known objects and schedule states.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The schedule.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// How a lease ended; `Unknown` if the lease is live or there is no record of it.
    #[must_use]
    pub fn outcome(&self, token: Rv) -> Outcome {
        self.settled.get(token)
    }

    /// When the engine must act by itself, unless a command comes first. A lease may then still have to wait for its commit,
    /// see [`due_uncommitted`](Self::due_uncommitted).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let lease = self.schedule.next_deadline();
        let times = [lease.map(|due| due.0), self.next_delay().map(|due| due.0), self.next_resync];
        let failure_expiry = self.schedule.next_failure_expiry().map(|due| due.0);
        times.into_iter().chain([failure_expiry]).flatten().min()
    }

    /// Whether a lease is past its deadline but not committed. Such a lease can't expire before
    /// [`set_committed`](Self::set_committed), whatever [`next_deadline`](Self::next_deadline) returns. The answer is valid
    /// after [`advance`](Self::advance).
    #[must_use]
    pub fn due_uncommitted(&self, now: Time) -> bool {
        self.schedule.next_deadline().is_some_and(|(at, token, _)| at <= now && token > self.committed)
    }

    /// The entry at a slot that the schedule or the table has just returned.
    pub(super) fn entry(&self, slot: Slot) -> &Entry {
        match self.table.at(slot) {
            Some(entry) => entry,
            None => panic!("slot {slot} has no entry"),
        }
    }

    /// Creates, applies, records and counts an event.
    pub(super) fn emit(&mut self, now: Time, kind: EventKind) {
        let slot = kind.key().map(|key| self.table.find_or_insert(key));
        self.emit_at(now, slot, kind);
    }

    /// As [`emit`](Self::emit), for an event whose slot is known. The hash lookup costs as much as the rest of many events.
    pub(super) fn emit_at(&mut self, now: Time, slot: Option<Slot>, kind: EventKind) {
        self.count(now, slot, &kind);
        let event = Event { rv: self.rv + 1, at: now.max(self.last_at), kind };
        self.effects.counters.coalesced += u64::from(self.apply_at(&event, slot));
        self.effects.events.push(event);
    }

    /// The earliest delay that may elapse. A closed queue in mode keys has none, because its delays are frozen.
    pub(super) fn next_delay(&self) -> Option<(Time, Rv, Slot)> {
        let frozen = self.closed && self.config.rules().stops_when_closed;
        if frozen { None } else { self.schedule.next_delay() }
    }

    /// Entries behind `after`, in key order.
    pub(super) fn entries_after(&self, after: Option<&str>) -> impl Iterator<Item = (Slot, &Entry)> {
        self.table.from(after.map_or(Bound::Unbounded, Bound::Excluded))
    }

    fn oldest_ready(&self) -> Option<Time> {
        let (_, slot) = self.schedule.first()?;
        match self.table.at(slot)?.schedule_state.place {
            Place::Ready(position) => Some(position.since),
            _ => None,
        }
    }

    fn count(&mut self, now: Time, slot: Option<Slot>, kind: &EventKind) {
        match kind {
            EventKind::Appended(Appended { delta, .. }) => {
                let place = DeltaKind::ALL.iter().position(|other| other == delta).unwrap_or_default();
                if let Some(count) = self.effects.counters.deltas.get_mut(place) {
                    *count += 1;
                }
            }
            EventKind::Settled { ending, .. } => {
                let place = match ending {
                    Ending::Acked | Ending::Done => Some(0),
                    Ending::Nacked(_) => Some(1),
                    Ending::Expired(_) => Some(4),
                    Ending::Released => Some(2),
                    Ending::Rejected { .. } => Some(3),
                    Ending::Undelivered => None,
                };
                let Some(place) = place else { return };
                if let Some(count) = self.effects.counters.settled.get_mut(place) {
                    *count += 1;
                }
                let entry = slot.and_then(|slot| self.table.at(slot));
                let since = entry.and_then(|entry| entry.schedule_state.lease());
                if let Some(since) = since.map(|lease| lease.since) {
                    self.effects.works.push(now.since(since));
                }
            }
            _ => {}
        }
    }

    /// Counts a settle that came too late.
    pub(super) fn count_stale(&mut self, settled: Settled) -> Settled {
        self.effects.counters.stale += u64::from(matches!(settled, Settled::Stale { .. }));
        settled
    }
}

impl Entry {
    /// The position of a ready key.
    pub(super) fn ready_position(&self) -> ReadyPosition {
        match self.schedule_state.place {
            Place::Ready(position) => position,
            ref other => panic!("key {} is not ready: its place is {other:?}", self.key),
        }
    }

    /// The known object of a known key.
    pub(super) fn known_object(&self) -> &Object {
        let Some(known) = &self.known else { panic!("key {} has no known object", self.key) };
        &known.object
    }

    /// The lease of a leased key.
    pub(super) fn lease(&self) -> &Lease {
        match &self.schedule_state.place {
            Place::Leased(lease) => lease,
            other => panic!("key {} has no lease: its place is {other:?}", self.key),
        }
    }

    /// The owner of the key's newest state: waiting, else leased, else known.
    #[must_use]
    pub fn owner(&self) -> Option<&Source> {
        match self.waiting.newest().or_else(|| self.leased.newest()) {
            Some(delta) => delta.provenance.owner(),
            None => self.known.as_ref().and_then(|known| known.owner.as_ref()),
        }
    }

    /// Whether the key's newest state is a deletion.
    pub(super) fn is_deleted(&self) -> bool {
        let newest = self.waiting.newest().or_else(|| self.leased.newest());
        newest.is_some_and(|delta| delta.kind == DeltaKind::Deleted)
    }

    /// The newest object of the key: waiting, else leased, else known.
    pub(super) fn newest_object(&self) -> Option<&Object> {
        match self.waiting.newest().or_else(|| self.leased.newest()) {
            Some(delta) => Some(&delta.object),
            None => self.known.as_ref().map(|known| &known.object),
        }
    }

    /// Whether the queue holds more than a failure count for the key.
    pub(super) fn is_held(&self) -> bool {
        self.has_state() || self.schedule_state.delay().is_some() || self.schedule_state.place != Place::Idle
    }

    /// Whether the key has waiting or leased deltas or a known object.
    pub(super) fn has_state(&self) -> bool {
        !self.waiting.is_empty() || !self.leased.is_empty() || self.known.is_some()
    }
}
