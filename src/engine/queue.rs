//! The state of one queue, and what can be read of it.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::checkpoint::Checkpoints;
use super::command::{Outcome, Settled};
use super::config::Config;
use super::delta::{DeltaKind, Rv, Source};
use super::event::{Appended, Ending, Event, EventKind, ReplaceCounts};
use super::rate_limit::BucketLevel;
use super::refusal::Refusal;
use super::replace::{Garbage, ReplaceJob};
use super::schedule::{Lease, Place, Schedule, Slot};
use super::settled::SettledLeases;
use super::sweep::Seeding;
use super::table::{Entry, Table};
use super::time::Time;

/// One queue: its state, and the commands and reads on it.
///
/// Invariant: everything outside of the fields marked "volatile" is a function of the events.
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
    /// Invariant: the live leases of each pop that had an id.
    pub(super) pop_ids: HashMap<Arc<str>, Vec<Slot>, RandomState>,
    pub(super) bucket: Option<BucketLevel>,
    pub(super) next_resync: Option<Time>,
    pub(super) last_replace: Option<LastReplace>,
    /// Number of known objects.
    pub(super) known: usize,
    /// Number of keys that carry a mark of the initial list.
    pub(super) initial_pending: usize,
    /// Volatile: what the checkpoints have and what they miss.
    pub(super) checkpoints: Checkpoints,
    /// Volatile: Replaces between their acceptance and their end, the running one first.
    pub(super) replace_jobs: VecDeque<ReplaceJob>,
    /// Volatile: the seeding that is under way.
    pub(super) seeding: Option<Seeding>,
    /// Volatile: Replaces that have ended and wait to be dropped.
    pub(super) garbage: Vec<Garbage>,
    /// Volatile: the number of the last Replace.
    pub(super) last_job: u64,
    /// Volatile: events that nobody has taken yet.
    pub(super) events: Vec<Event>,
    /// Volatile: events up to this number are durable; leases behind it do not expire.
    pub(super) committed: Rv,
    /// Volatile: a periodic Resync is due.
    pub(super) resync_due: bool,
    /// Volatile: what happened since the start, for metrics.
    pub(super) counters: Counters,
    /// Volatile: the adds that are in a tally already.
    pub(super) adds_taken: u64,
}

/// Where a queue is with its initial list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// No Replace brings it right now.
    #[default]
    Quiet,
    /// A Replace is bringing it.
    Running,
    /// The Replace that brought it was cut off.
    Aborted,
}

/// How the latest Replace went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReplace {
    /// Whose list it was.
    pub source: Option<Source>,
    /// What it did.
    pub counts: ReplaceCounts,
    /// When it started.
    pub started: Time,
    /// When it ended or was found cut off.
    pub ended: Option<Time>,
    /// Whether it was cut off.
    pub aborted: bool,
}

/// A queue at a glance.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Keys in line.
    pub ready: usize,
    /// Keys that wait for a delay or backoff.
    pub delayed: usize,
    /// Keys in the hands of workers.
    pub leased: usize,
    /// Keys out of circulation.
    pub parked: usize,
    /// Known objects.
    pub known: usize,
    /// Whether the initial list has been acknowledged.
    pub has_synced: bool,
    /// Keys of the initial list that are not acknowledged.
    pub initial_remaining: usize,
    /// The newest event.
    pub resource_version: Rv,
    /// How long the first key has been in line.
    pub oldest_ready_age: Option<Duration>,
    /// Nothing is handed out.
    pub paused: bool,
    /// The queue drains.
    pub closed: bool,
    /// It is closed and nothing is left to hand out or to settle.
    pub drained: bool,
    /// The latest Replace.
    pub last_replace: Option<LastReplace>,
}

/// Spans of time, of which most commands have one: it is kept without an allocation.
pub type Durations = SmallVec<[Duration; 1]>;

/// Counters since the queue was opened. Replaying events does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Deltas queued, by kind in the order of [`DeltaKind::ALL`].
    pub deltas: [u64; 5],
    /// Deltas that the cap merged into newer ones.
    pub coalesced: u64,
    /// Deletes of keys that the queue does not have, or that are deleted already.
    pub ignored_absent: u64,
    /// Deletes that the dedup rule swallowed.
    pub ignored_duplicate: u64,
    /// Objects of a Replace that had not changed.
    pub ignored_unchanged: u64,
    /// Objects of a Replace whose key had a newer call.
    pub ignored_superseded: u64,
    /// Adds to a closed queue of mode keys.
    pub ignored_closed: u64,
    /// How often a key got work to do (client-go's adds).
    pub adds: u64,
    /// Requeues with a delay, however short, or by the rate limiter (client-go's retries).
    pub retries: u64,
    /// Leases by how they ended: ack, nack, release, reject, expired.
    pub settled: [u64; 5],
    /// Settles of leases that had ended otherwise.
    pub stale: u64,
    /// For each key handed out, how long its work had waited.
    pub waits: Durations,
    /// For each lease that ended, how long it lasted.
    pub works: Durations,
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
            garbage: Vec::new(),
            last_job: 0,
            events: Vec::new(),
            committed: Rv::MAX,
            resync_due: false,
            counters: Counters::default(),
            adds_taken: 0,
        }
    }

    /// The newest event's number.
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

    /// Says that the queue came into being by a produce or pop. It is part of how the queue begins, as
    /// the settings are, so it is said before any event.
    pub fn set_auto_created(&mut self) {
        self.auto_created = true;
    }

    /// Whether the queue came into being by a produce or pop, and was never configured.
    #[must_use]
    pub fn is_auto_created(&self) -> bool {
        self.auto_created
    }

    /// The events since the last call, oldest first.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What was counted since the last call.
    pub fn take_counters(&mut self) -> Counters {
        let adds = self.schedule.adds();
        let mut counters = std::mem::take(&mut self.counters);
        counters.adds = adds - std::mem::replace(&mut self.adds_taken, adds);
        counters
    }

    /// How long each key handed out had waited, and each ended lease had lasted, since the last call.
    pub fn take_durations(&mut self) -> (Durations, Durations) {
        (std::mem::take(&mut self.counters.waits), std::mem::take(&mut self.counters.works))
    }

    /// How long the oldest lease has lasted.
    #[must_use]
    pub fn longest_lease(&self, now: Time) -> Option<Duration> {
        let slot = self.schedule.oldest_lease()?;
        Some(now.since(self.entry(slot).lease().since))
    }

    /// Says up to which event the journal has everything.
    pub fn set_committed(&mut self, rv: Rv) {
        self.committed = rv;
    }

    /// Whether `resync_period` has passed since the last Resync; asks once.
    pub fn take_resync_due(&mut self) -> bool {
        std::mem::take(&mut self.resync_due)
    }

    /// Keys that count toward `max_keys`.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.table.len() - self.schedule.index_sizes().failure_expiries
    }

    /// Keys that may be handed out now, if the queue is not paused.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.paused && self.schedule.ready_len() > 0
    }

    /// Whether the queue is closed and nothing is ready, delayed or leased. In mode keys delays are
    /// frozen while closed and hold nothing up.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_frozen = self.config.rules().stops_when_closed;
        let delayed = if is_frozen { 0 } else { self.schedule.delayed_len() };
        self.closed && self.schedule.ready_len() + delayed + self.schedule.leased_len() == 0
    }

    /// client-go's HasSynced, counting acknowledgements instead of pops. Once true it stays true.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.populated
            && self.initial_pending == 0
            && self.initial == Initial::Quiet
            && !self.replace_jobs.iter().any(ReplaceJob::may_be_first)
    }

    /// Keys of the initial list that are not acknowledged.
    #[must_use]
    pub fn initial_remaining(&self) -> usize {
        self.initial_pending
    }

    /// The queue at a glance.
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

    /// The keys and all that belongs to them.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The order of the keys.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// What is remembered of a lease that is not live.
    #[must_use]
    pub fn outcome(&self, token: Rv) -> Outcome {
        self.settled.get(token)
    }

    /// When the engine has something to do by itself, unless a command comes first. It may have to wait
    /// for a commit then, see [`due_uncommitted`](Self::due_uncommitted).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let lease = self.schedule.next_deadline();
        let times = [lease.map(|due| due.0), self.next_delay().map(|due| due.0), self.next_resync];
        let failure_expiry = self.schedule.next_failure_expiry().map(|due| due.0);
        times.into_iter().chain([failure_expiry]).flatten().min()
    }

    /// Whether a lease is past its deadline that is not committed, and so can't expire before
    /// [`set_committed`](Self::set_committed), whatever [`next_deadline`](Self::next_deadline) says. It
    /// is to be asked after [`advance`](Self::advance).
    #[must_use]
    pub fn due_uncommitted(&self, now: Time) -> bool {
        self.schedule.next_deadline().is_some_and(|(at, token, _)| at <= now && token > self.committed)
    }

    /// Changes the settings.
    ///
    /// # Errors
    /// [`Refusal::ImmutableConfig`] if the change is not possible while the queue holds keys.
    pub fn configure(&mut self, now: Time, config: Arc<Config>) -> Result<(), Refusal> {
        let now = self.advance(now);
        if let Some(field) = self.config.immutable_difference(&config)
            && (self.keys() > 0 || !self.replace_jobs.is_empty())
        {
            return Err(Refusal::ImmutableConfig { field, keys: self.keys() });
        }
        if self.auto_created || *self.config != *config {
            self.emit(now, EventKind::Configured { config });
        }
        Ok(())
    }

    /// Checks that the settings by which the objects of a command were read still hold.
    ///
    /// # Errors
    /// [`Refusal::ConfigChanged`].
    pub fn check_config(&self, read_by: &Config) -> Result<(), Refusal> {
        let now = &self.config;
        let same = now.key == read_by.key && now.mode == read_by.mode && now.admission == read_by.admission;
        if same { Ok(()) } else { Err(Refusal::ConfigChanged) }
    }

    /// Stops or starts handing out.
    pub fn set_paused(&mut self, now: Time, paused: bool) {
        let now = self.advance(now);
        if self.paused != paused {
            self.emit(now, if paused { EventKind::Paused } else { EventKind::Resumed });
        }
    }

    /// Starts or stops draining.
    pub fn set_closed(&mut self, now: Time, closed: bool) {
        let now = self.advance(now);
        if self.closed != closed {
            self.emit(now, if closed { EventKind::Closed } else { EventKind::Reopened });
        }
    }

    /// Drops the failures of `keys`; returns how many had any.
    pub fn forget<'a>(&mut self, now: Time, keys: impl IntoIterator<Item = &'a str>) -> u64 {
        let now = self.advance(now);
        let mut forgotten = 0;
        for key in keys {
            let failed = self.table.get(key).filter(|entry| entry.schedule_state.failures > 0);
            if let Some(key) = failed.map(|entry| entry.key.clone()) {
                self.emit(now, EventKind::Forgotten { key });
                forgotten += 1;
            }
        }
        forgotten
    }

    /// The entry at a slot that the schedule or the table has just named.
    pub(super) fn entry(&self, slot: Slot) -> &Entry {
        match self.table.at(slot) {
            Some(entry) => entry,
            None => panic!("slot {slot} has no entry"),
        }
    }

    /// Numbers, applies, records and counts an event.
    pub(super) fn emit(&mut self, now: Time, kind: EventKind) {
        let slot = kind.key().map(|key| self.table.find_or_insert(key));
        self.emit_at(now, slot, kind);
    }

    /// As [`emit`](Self::emit), where it is known which slot the key of the event has: to find it takes as long as all
    /// the rest of many an event.
    pub(super) fn emit_at(&mut self, now: Time, slot: Option<Slot>, kind: EventKind) {
        self.count(now, slot, &kind);
        let event = Event { rv: self.rv + 1, at: now.max(self.last_at), kind };
        self.counters.coalesced += u64::from(self.apply_at(&event, slot));
        self.events.push(event);
    }

    /// The earliest delay that may fire: none while a closed queue of mode keys freezes them.
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
                if let Some(count) = self.counters.deltas.get_mut(place) {
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
                if let Some(count) = self.counters.settled.get_mut(place) {
                    *count += 1;
                }
                let entry = slot.and_then(|slot| self.table.at(slot));
                let since = entry.and_then(|entry| entry.schedule_state.lease());
                if let Some(since) = since.map(|lease| lease.since) {
                    self.counters.works.push(now.since(since));
                }
            }
            _ => {}
        }
    }

    /// Counts a settle that came too late.
    pub(super) fn count_stale(&mut self, settled: Settled) -> Settled {
        self.counters.stale += u64::from(matches!(settled, Settled::Stale { .. }));
        settled
    }
}

impl Entry {
    /// The lease of a key that the schedule says is leased.
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
    pub(super) fn newest_object(&self) -> Option<&super::object::Object> {
        match self.waiting.newest().or_else(|| self.leased.newest()) {
            Some(delta) => Some(&delta.object),
            None => self.known.as_ref().map(|known| &known.object),
        }
    }

    /// Whether anything but a failure count is left of the key.
    pub(super) fn is_held(&self) -> bool {
        self.has_state() || self.schedule_state.delay().is_some() || self.schedule_state.place != Place::Idle
    }

    /// Whether deltas wait or are handed out, or an object is known.
    pub(super) fn has_state(&self) -> bool {
        !self.waiting.is_empty() || !self.leased.is_empty() || self.known.is_some()
    }
}
