//! A naive model of a queue, written from the rules alone: plain maps and lists, clear rather than fast. The property tests compare
//! the engine with it.
//!
//! The model has no events and no replay. It keeps no counters: each read counts the keys again, and `advance` examines every key for
//! due deadlines. It shares with the engine the types of commands and settings, and the rule that each change takes one number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::Outcome;
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::rate_limit::BucketLevel;
use deltaq_types::{Mode, PauseReason};

mod debounce;
mod events;
pub(crate) mod groups;
mod leases;
mod limits;
mod objects;
mod order;
mod parts;
mod produce;
mod replace;
mod scans;
mod versions;

pub(crate) use debounce::Debounced;
pub(crate) use leases::{ModelItem, ModelSettled};
pub(crate) use objects::{Content, OBJECTS, SENT_OBJECTS, bytes_of};
use objects::{UNKNOWN, same_content, same_without_v};
pub(crate) use order::Start;
pub(crate) use produce::ModelCall;
pub(crate) use replace::{ModelReplace, ModelReplaced, Step};
pub(crate) use scans::{ModelScan, Operation};

/// Microseconds.
pub(crate) type Micros = u64;
/// A key, by its text.
pub(crate) type Name = &'static str;
/// The optional name of a source, worker or pop.
pub(crate) type Label = Option<&'static str>;

/// The trace of a call, if the call named one.
pub(crate) type Traced = Option<u8>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelDelta {
    pub(crate) kind: DeltaKind,
    pub(crate) content: Content,
    pub(crate) rv: u64,
    pub(crate) queued_at: Micros,
    pub(crate) source: Label,
    pub(crate) owner: Label,
    pub(crate) final_state_unknown: bool,
    pub(crate) coalesced: u32,
    pub(crate) trace: Traced,
    /// Mode events: when the delta may be delivered.
    pub(crate) due: Option<Micros>,
}

impl ModelDelta {
    pub(crate) fn is_deleted(&self) -> bool {
        self.kind == DeltaKind::Deleted
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ModelKnown {
    pub(crate) content: Content,
    pub(crate) rv: u64,
    pub(crate) owner: Label,
}

/// A position in the ready queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReadyPosition {
    pub(crate) rv: u64,
    pub(crate) since: Micros,
    pub(crate) added: Micros,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Delay {
    pub(crate) due: Micros,
    pub(crate) rv: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelLease {
    pub(crate) token: u64,
    pub(crate) deadline: Micros,
    pub(crate) since: Micros,
    /// The full length of the lease, as of its creation or last extension.
    pub(crate) length: Micros,
    pub(crate) worker: Option<&'static str>,
    pub(crate) pop_id: Option<&'static str>,
    pub(crate) former: ReadyPosition,
    pub(crate) dropped_delay: Option<Delay>,
    /// When the first new change arrived that makes the key ready once the lease is settled.
    pub(crate) new_change: Option<Micros>,
    /// The number of the key's unacknowledged changes that are part of the lease.
    pub(crate) changes: usize,
    pub(crate) may_return: bool,
    /// The head starts of the leased changes.
    pub(crate) starts: Vec<Start>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Place {
    #[default]
    Idle,
    Ready(ReadyPosition),
    Leased(ModelLease),
    Parked,
}

/// One key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Item {
    pub(crate) waiting: Vec<ModelDelta>,
    pub(crate) leased: Vec<ModelDelta>,
    pub(crate) known: Option<ModelKnown>,
    /// The number and the arrival of each change that is not acknowledged, oldest first.
    pub(crate) changes: Vec<(u64, Micros)>,
    pub(crate) place: Place,
    pub(crate) delay: Option<Delay>,
    /// When what has failed is delivered again.
    pub(crate) backoff: Option<Delay>,
    /// The debounced changes that wait for their key to be quiet, and the number of the first of them.
    pub(crate) debounced: Vec<Debounced>,
    pub(crate) window_rv: u64,
    /// The head starts of the changes that wait.
    pub(crate) starts: Vec<Start>,
    /// Before this time no change makes the key ready.
    pub(crate) floor: Option<Micros>,
    pub(crate) failures: u32,
    pub(crate) attempt: u32,
    pub(crate) last_error: Option<Arc<str>>,
    pub(crate) initial_pending: Option<u64>,
    /// Mode keys: the expiry of the failures of an otherwise unused key, and the number of its event.
    pub(crate) failure_expiry: Option<(Micros, u64)>,
}

impl Item {
    pub(crate) fn is_leased(&self) -> bool {
        matches!(self.place, Place::Leased(_))
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.place == Place::Parked
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.place, Place::Ready(_))
    }

    pub(crate) fn is_delayed(&self) -> bool {
        self.place == Place::Idle && self.waits()
    }

    pub(crate) fn lease(&self) -> Option<&ModelLease> {
        if let Place::Leased(lease) = &self.place { Some(lease) } else { None }
    }

    /// The newest delta: waiting, else leased.
    fn newest_delta(&self) -> Option<&ModelDelta> {
        self.waiting.last().or(self.leased.last())
    }

    /// The newest object: waiting, else leased, else known.
    fn newest_content(&self) -> Option<Content> {
        self.newest_delta().map(|delta| delta.content).or(self.known.map(|known| known.content))
    }

    /// Whether the newest state is a deletion.
    fn newest_is_deleted(&self) -> bool {
        self.newest_delta().is_some_and(ModelDelta::is_deleted)
    }

    pub(crate) fn owner(&self) -> Label {
        match self.newest_delta() {
            Some(delta) => delta.owner,
            None => self.known.and_then(|known| known.owner),
        }
    }

    fn set_owner(&mut self, owner: Label) {
        if let Some(delta) = self.waiting.last_mut() {
            delta.owner = owner;
        } else if let Some(delta) = self.leased.last_mut() {
            delta.owner = owner;
        } else if let Some(known) = &mut self.known {
            known.owner = owner;
        }
    }

    /// Whether the queue holds more than a failure count for the key.
    pub(crate) fn is_held(&self) -> bool {
        !self.waiting.is_empty() || self.place != Place::Idle || self.waits() || self.known.is_some()
    }
}

/// Why the model refuses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refused {
    WrongMode,
    NoKnownObjects,
    TooLarge { index: usize },
    Full { keys: usize, wanted: usize },
    KeyFull { field: &'static str, index: usize },
    Closed,
    MassDelete { deletions: u64, owned: u64, counts: ModelReplaced },
    NotEmpty { waiting: usize },
    Immutable(&'static str),
    TooManyReplaces,
    SequenceBusy { number: u64 },
}

/// The latest Replace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LastReplace {
    pub(crate) source: Label,
    pub(crate) counts: ModelReplaced,
    pub(crate) started: Micros,
    pub(crate) ended: Option<Micros>,
    pub(crate) aborted: bool,
}

/// What a source did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ModelSource {
    pub(crate) last_call: Micros,
    pub(crate) last_replace: Option<LastReplace>,
    /// When the last complete Replace ended.
    pub(crate) last_replaced: Option<Micros>,
    /// The number of the last call with a sequence number.
    pub(crate) sequence: Option<u64>,
}

/// A version of a key that no object has any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ModelRemembered {
    pub(crate) rank: u8,
    /// The rank that counts again if the deltas that the key had then are dropped.
    pub(crate) before: Option<u8>,
    /// The number and the time of the event.
    pub(crate) rv: u64,
    pub(crate) at: Micros,
}

/// One queue.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) rv: u64,
    pub(crate) last_at: Micros,
    pub(crate) config: Config,
    /// Created by a produce or pop, and not configured since.
    pub(crate) auto_created: bool,
    pub(crate) populated: bool,
    pub(crate) paused: bool,
    /// Before this time nothing is delivered.
    pub(crate) held_until: Micros,
    pub(crate) pause_reason: Option<PauseReason>,
    pub(crate) closed: bool,
    pub(crate) closes_at_once: bool,
    /// An aborted first Replace: the queue is not synced until the next Replace has ended.
    pub(crate) aborted: bool,
    pub(crate) items: BTreeMap<Name, Item>,
    pub(crate) outcomes: BTreeMap<u64, Outcome>,
    /// Accepted Replaces that have not ended, in order.
    pub(crate) jobs: Vec<replace::ReplaceJob>,
    pub(crate) committed: u64,
    bucket: Option<BucketLevel>,
    pub(crate) groups: groups::Groups,
    /// See the module `limits`.
    arrival: u128,
    /// The time of the latest command.
    now: Micros,
    pub(crate) next_resync: Option<Micros>,
    pub(crate) resync_due: bool,
    pub(crate) last_replace: Option<LastReplace>,
    /// What each source did.
    pub(crate) sources: BTreeMap<&'static str, ModelSource>,
    /// The versions of keys that no object has any more.
    pub(crate) remembered: BTreeMap<Name, ModelRemembered>,
    /// How often each rule was reached, by name.
    pub(crate) hits: BTreeMap<&'static str, u64>,
}

impl Model {
    pub(crate) fn new(config: Config, auto_created: bool, now: Micros) -> Self {
        let next_resync = config.resync_period.map(|period| now + micros(period));
        Self {
            rv: 0,
            last_at: now,
            config,
            auto_created,
            populated: false,
            paused: false,
            held_until: 0,
            pause_reason: None,
            closed: false,
            closes_at_once: false,
            aborted: false,
            items: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            jobs: Vec::new(),
            committed: u64::MAX,
            bucket: None,
            groups: groups::Groups::default(),
            arrival: 0,
            now: 0,
            next_resync,
            resync_due: false,
            last_replace: None,
            sources: BTreeMap::new(),
            remembered: BTreeMap::new(),
            hits: BTreeMap::new(),
        }
    }

    pub(crate) fn hit(&mut self, rule: &'static str) {
        *self.hits.entry(rule).or_default() += 1;
    }

    fn is_keys(&self) -> bool {
        self.config.mode == Mode::Keys
    }

    fn is_latest(&self) -> bool {
        self.config.mode == Mode::Latest
    }

    /// Mode keys, closed: client-go's ShutDown.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.is_keys() && self.closed
    }

    /// Takes the number of a change.
    fn event(&mut self, at: Micros) -> (u64, Micros) {
        self.rv += 1;
        self.last_at = self.last_at.max(at);
        (self.rv, self.last_at)
    }

    /// Records a call of a source at the time of the last change.
    fn note_source(&mut self, source: Label) {
        if let Some(source) = source {
            self.sources.entry(source).or_default().last_call = self.last_at;
        }
    }

    /// Records the latest Replace with its source.
    fn note_replace(&mut self) {
        let Some(last) = self.last_replace else { return };
        let Some(source) = last.source.and_then(|source| self.sources.get_mut(source)) else { return };
        source.last_replace = Some(last);
        if last.ended.is_some() && !last.aborted {
            source.last_replaced = last.ended;
        }
    }

    /// All sources that own keys or have called: the number of their keys, and what they did.
    pub(crate) fn all_sources(&self) -> BTreeMap<&'static str, (usize, Option<ModelSource>)> {
        let owners = self.items.values().filter_map(Item::owner);
        let names: BTreeSet<&'static str> = owners.chain(self.sources.keys().copied()).collect();
        let keys = |name| self.count(|item| item.owner() == Some(name));
        names.into_iter().map(|name| (name, (keys(name), self.sources.get(name).copied()))).collect()
    }

    fn item(&mut self, key: Name) -> &mut Item {
        self.items.entry(key).or_default()
    }

    fn get(&self, key: Name) -> Option<&Item> {
        self.items.get(key)
    }

    /// Removes keys without content, and sets or removes the time at which an otherwise unused failure count expires.
    fn tidy(&mut self, key: Name) {
        let (rv, at) = (self.rv, self.last_at);
        let Some(item) = self.items.get_mut(key) else { return };
        let waits = item.waits();
        if item.place == Place::Idle && !waits {
            item.changes.clear();
        }
        if !item.has_waiting() {
            item.starts.clear();
        }
        if item.failures > 0 && item.place == Place::Idle && !waits && item.waiting.is_empty() {
            item.failure_expiry.get_or_insert((at + 86_400_000_000, rv));
        } else {
            item.failure_expiry = None;
        }
        if item.is_held() {
            return;
        }
        if item.failures == 0 {
            self.items.remove(key);
            self.leave_group(key);
        }
        self.keep_room(key);
    }

    // Reads.

    pub(crate) fn parked(&self) -> Vec<Name> {
        self.items.iter().filter(|(_, item)| item.is_parked()).map(|(key, _)| *key).collect()
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Item) -> bool) -> usize {
        self.items.values().filter(|item| wanted(item)).count()
    }

    /// Keys that count toward `max_keys`.
    pub(crate) fn held(&self) -> BTreeSet<Name> {
        self.items.iter().filter(|(_, item)| item.is_held()).map(|(key, _)| *key).collect()
    }

    pub(crate) fn initial_remaining(&self) -> usize {
        self.count(|item| item.initial_pending.is_some())
    }

    pub(crate) fn has_synced(&self) -> bool {
        let is_first_running = self.jobs.iter().any(replace::ReplaceJob::waits_for_initial_list);
        self.populated && !is_first_running && !self.aborted && self.initial_remaining() == 0
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.closed
            && self.count(Item::is_ready) == 0
            && self.count(Item::is_leased) == 0
            && self.count(Item::has_idle_window) == 0
            && (self.is_keys() || self.count(Item::is_delayed) == 0)
    }

    /// Whether pops are refused.
    pub(crate) fn ends_pops(&self) -> bool {
        let is_empty = || self.count(Item::is_ready) + self.count(Item::has_idle_window) == 0;
        if self.closes_at_once { self.closed && is_empty() } else { self.is_drained() }
    }

    // Time.

    /// Processes all due expiries, delays and failure expiries in order of time.
    pub(crate) fn advance(&mut self, now: Micros) -> Micros {
        let now = now.max(self.last_at);
        self.now = now;
        while let Some((time, class, _, key)) = self.next_due() {
            if time > now {
                break;
            }
            match class {
                0 => self.expire(key),
                1 => self.delay_elapses(key, time),
                _ => self.expire_failures(key, time),
            }
        }
        // One Resync replaces all missed ones.
        if self.next_resync.is_some_and(|due| due <= now) {
            self.event(now);
            self.next_resync = self.config.resync_period.map(|period| now + micros(period));
            self.resync_due = true;
            self.hit("the resync timer fires");
        }
        now
    }

    /// The next deadline: its time; 0 for a lease, 1 for a delay, 2 for the expiry of a failure count; its number; its key.
    pub(crate) fn next_due(&self) -> Option<(Micros, u8, u64, Name)> {
        let mut next: Vec<(Micros, u8, u64, Name)> = Vec::new();
        let mut windows: Vec<(Micros, u8, u64, Name)> = Vec::new();
        for (key, item) in &self.items {
            if let Some(lease) = item.lease()
                && lease.token <= self.committed
            {
                next.push((lease.deadline, 0, lease.token, key));
            }
            if item.has_idle_window() {
                windows.push((item.due().expect("a window ends"), 1, item.window_rv, *key));
            } else if !self.is_shut_down() {
                let ends = item.delay.into_iter().chain(item.backoff);
                next.extend(ends.map(|end| (end.due, 1, end.rv, *key)));
            }
            if let Some((until, rv)) = item.failure_expiry {
                next.push((until, 2, rv, key));
            }
        }
        // The windows of a closed queue end at once.
        let window = windows.into_iter().min();
        next.extend(
            window
                .map(|(due, class, rv, key)| (if self.closed { self.last_at } else { due }, class, rv, key)),
        );
        next.into_iter().min()
    }

    fn expire_failures(&mut self, key: Name, until: Micros) {
        self.event(until);
        self.item(key).failures = 0;
        self.item(key).last_error = None;
        self.tidy(key);
        self.hit("failures expire after a day");
    }

    // Settings.

    pub(crate) fn configure(&mut self, now: Micros, config: &Config) -> Result<(), Refused> {
        let now = self.advance(now);
        let (old, new) = (&self.config, config);
        if !self.held().is_empty() || !self.jobs.is_empty() {
            let differs = [
                (old.mode != new.mode, "mode"),
                (old.key != new.key, "key"),
                (old.known_objects != new.known_objects, "known_objects"),
            ];
            if let Some((_, field)) = differs.into_iter().find(|(differs, _)| *differs) {
                return Err(Refused::Immutable(field));
            }
        }
        if old == new && !self.auto_created {
            return Ok(());
        }
        self.auto_created = false;
        let (_, at) = self.event(now);
        if old_period(&self.config) != old_period(config) {
            self.next_resync = config.resync_period.map(|period| at + micros(period));
        }
        self.change_limits(config, at);
        if self.config.version != config.version {
            self.jobs.iter_mut().for_each(|job| job.versions_decide = false);
            self.remembered.clear();
        }
        self.config = config.clone();
        Ok(())
    }

    pub(crate) fn set_closed(&mut self, now: Micros, closed: bool, at_once: bool) {
        let now = self.advance(now);
        if self.closed != closed || self.closes_at_once != at_once {
            self.event(now);
            self.closed = closed;
            self.closes_at_once = at_once;
            self.advance(now);
        }
    }

    pub(crate) fn forget(&mut self, now: Micros, keys: &[Name]) -> u64 {
        let now = self.advance(now);
        let mut count = 0;
        for key in keys {
            if self.get(key).is_some_and(|item| item.failures > 0) {
                self.event(now);
                self.item(key).failures = 0;
                if self.item(key).place != Place::Parked {
                    self.item(key).last_error = None;
                }
                self.tidy(key);
                self.hit("a forget resets failures");
                count += 1;
            }
        }
        count
    }
}

fn old_period(config: &Config) -> Option<Duration> {
    config.resync_period
}

pub(crate) fn micros(span: Duration) -> Micros {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

impl Item {
    /// A new change: an idle or parked key becomes ready, a ready key keeps its position, a leased key becomes ready when it is settled.
    fn wake(&mut self, (rv, at): (u64, Micros)) {
        self.debounced.clear();
        if let Some(floor) = self.floor.filter(|floor| *floor > at) {
            self.wait_until(floor, rv);
            return;
        }
        self.floor = None;
        // A backoff that a newer change ends is a delay that comes too late, except in mode keys.
        let ends = self.delay.into_iter().chain(self.backoff.take());
        self.delay = ends.min_by_key(|end| (end.due, end.rv));
        match &mut self.place {
            Place::Idle => self.place = Place::Ready(ReadyPosition { rv, since: at, added: at }),
            Place::Ready(_) => {}
            Place::Leased(lease) => lease.new_change = lease.new_change.or(Some(at)),
            Place::Parked => {
                self.place = Place::Ready(ReadyPosition { rv, since: at, added: at });
                self.failures = 0;
            }
        }
    }
}
