//! Runs each command on the engine and on the model, and applies the events to a second engine.

use std::ops::Bound;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use deltaq_engine::command::{Call, Pop, Progress, RegroupWalk, Replace, ReplaceId, Replaced, SelectedKeys};
use deltaq_engine::config::Quiet;
use deltaq_engine::event::{Event, EventKind};
use deltaq_engine::id::{Rv, Sequence, Source, Token, Worker};
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::schedule::{HeadStart, Turn};
use deltaq_engine::time::Time;
use deltaq_engine::trace::Trace;
use deltaq_engine::{Queue, ScanCursor};
use deltaq_types::Mode;

use super::indexes::Indexes;
use super::readers::Readers;
use super::same::{context, replaced, same, same_entry, same_item, same_replace, same_result, step_of};
use super::script::{Change, Command, LeaseRef, Setup, Step as ScriptStep};
use crate::model::groups::ModelWalk;
use crate::model::{
    self, Label, Micros, Model, ModelCall, ModelReplace, ModelScan, Name, OBJECTS, Operation,
};

mod bounds;
mod grouping;
mod operate;
mod saved_state;
mod settle;
mod versions;

use bounds::Bounds;
pub(super) use saved_state::SavedState;

static OBJECT_LIST: LazyLock<Vec<Object>> =
    LazyLock::new(|| OBJECTS.iter().map(|(text, ..)| Object::from_valid(text)).collect());

const START: Micros = 1_000_000_000;

fn key(name: Name) -> Key {
    Key::new(name).expect("the keys of the tests are valid")
}

fn object(content: u8) -> Object {
    OBJECT_LIST[usize::from(content)].clone()
}

fn label(label: Label) -> Option<Arc<str>> {
    label.map(Arc::from)
}

fn token_of(number: u64) -> Token {
    Token::new(Rv::new(number))
}

fn leases_of(tokens: &[u64]) -> Vec<Token> {
    tokens.iter().copied().map(token_of).collect()
}

fn time(at: Micros) -> Time {
    Time::from_micros(at)
}

/// A queue before its first event.
fn empty(setup: Setup) -> Queue {
    let queue = Queue::new(setup.config(), Rv::ZERO, time(START));
    if setup.auto_created { queue.auto_created() } else { queue }
}

/// The description of a difference.
pub(crate) type Difference = String;

pub(crate) struct World {
    pub(super) engine: Queue,
    /// A queue that only gets the events.
    rebuilt: Queue,
    pub(crate) model: Model,
    setup: Setup,
    first: Setup,
    pub(super) events: Vec<Event>,
    now: Micros,
    tokens: Vec<u64>,
    synced: bool,
    resync_due: bool,
    jobs: Vec<(ReplaceId, usize)>,
    accepted: usize,
    resync: Option<(ScanCursor, ModelScan)>,
    purge: Option<(ScanCursor, ModelScan)>,
    regroup: Option<(RegroupWalk, ModelWalk)>,
    promote: Option<(SelectedKeys, ModelScan)>,
    redrive: Option<(SelectedKeys, ModelScan)>,
    discard: Option<(SelectedKeys, ModelScan)>,
    pub(super) readers: Readers,
    pub(super) indexes: Indexes,
    bounds: Bounds,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            engine: empty(setup),
            rebuilt: empty(setup),
            model: Model::new((*setup.config()).clone(), setup.auto_created, START),
            setup,
            first: setup,
            events: Vec::new(),
            now: START,
            tokens: Vec::new(),
            synced: false,
            resync_due: false,
            jobs: Vec::new(),
            accepted: 0,
            resync: None,
            purge: None,
            regroup: None,
            promote: None,
            redrive: None,
            discard: None,
            readers: Readers::default(),
            indexes: Indexes::default(),
            bounds: Bounds::default(),
        }
    }

    /// Runs one step on the engine and on the model, and compares results and states.
    pub(crate) fn step(&mut self, step: &ScriptStep) -> Result<(), Difference> {
        self.now = self.now.saturating_add_signed(step.clock);
        self.run(&step.command)?;
        let commit = step.commit || matches!(step.command, Command::Crash { .. });
        if commit {
            self.engine.set_committed(self.engine.resource_version());
            self.model.committed = self.model.rv;
        }
        self.replay()?;
        self.compare(commit)?;
        self.check_bounds()?;
        self.readers.step(&mut self.engine, &self.events)?;
        self.indexes.step(&mut self.engine, self.events.len())?;
        self.engine.check()
    }

    fn run(&mut self, command: &Command) -> Result<(), Difference> {
        match command {
            Command::Produce { calls, sequence } => self.produce(calls, *sequence),
            Command::Accept(list) => self.accept(list),
            Command::Step { job, budget } => self.replace_step(*job, *budget),
            Command::Pop { max, max_bytes, with_known, lease, worker, id, group } => {
                self.pop((*max, *max_bytes, *with_known), *lease, (*worker, *id), *group)
            }
            Command::Settle(settles) => self.settle(settles),
            Command::ReturnUndelivered(leases) => {
                let tokens: Vec<u64> = leases.iter().map(|lease| self.token(*lease)).collect();
                self.engine.return_undelivered(time(self.now), &leases_of(&tokens));
                self.model.return_undelivered(self.now, &tokens);
                Ok(())
            }
            Command::Resync { budget } => self.resync(*budget),
            Command::Purge { budget } => self.purge(*budget),
            Command::Promote { keys, budget } => self.operate(keys.as_deref(), *budget, Operation::Promote),
            Command::Redrive { keys, budget } => self.operate(keys.as_deref(), *budget, Operation::Redrive),
            Command::Discard { keys, budget } => self.operate(keys.as_deref(), *budget, Operation::Discard),
            Command::Seed(seeds) => self.seed(seeds),
            Command::Forget(keys) => {
                let engine = self.engine.forget(time(self.now), keys.iter().copied());
                same("forget", engine, self.model.forget(self.now, keys))
            }
            Command::Pause(paused) => {
                self.engine.set_paused(time(self.now), *paused);
                self.model.set_paused(self.now, *paused);
                Ok(())
            }
            Command::Regroup { budget } => self.regroup(*budget),
            Command::PauseGroup { group, paused } => {
                let engine = self.engine.set_group_paused(time(self.now), group, *paused);
                same("a switch of a group", engine, self.model.set_group_paused(self.now, group, *paused))
            }
            Command::PauseItself(reason) => {
                self.engine.pause_itself(time(self.now), *reason);
                self.model.pause_itself(self.now, *reason);
                Ok(())
            }
            Command::Close { closed, at_once } => {
                if *at_once {
                    self.engine.close_at_once(time(self.now));
                } else {
                    self.engine.set_closed(time(self.now), *closed);
                }
                self.model.set_closed(self.now, *closed, *at_once);
                Ok(())
            }
            Command::Configure(change) => self.configure(*change),
            Command::Wait => {
                self.engine.advance(time(self.now));
                self.model.advance(self.now);
                Ok(())
            }
            Command::Crash { ahead } => self.crash(*ahead),
        }
    }

    fn token(&self, lease: LeaseRef) -> u64 {
        let mut live: Vec<u64> =
            self.model.items.values().filter_map(|item| item.lease()).map(|lease| lease.token).collect();
        live.sort_unstable();
        match lease {
            LeaseRef::Live(n) if !live.is_empty() => live[n % live.len()],
            LeaseRef::Live(n) | LeaseRef::Issued(n) if !self.tokens.is_empty() => {
                self.tokens[n % self.tokens.len()]
            }
            LeaseRef::Live(_) | LeaseRef::Issued(_) => 0,
            LeaseRef::Forged(token) => token,
        }
    }

    fn produce(
        &mut self,
        calls: &[ModelCall],
        sequence: Option<(&'static str, u64)>,
    ) -> Result<(), Difference> {
        let converted: Vec<Call> = calls
            .iter()
            .map(|call| Call {
                kind: call.kind,
                key: key(call.key),
                object: call.content.map(object),
                source: label(call.source).map(Source::from),
                delay: call.delay.map(Duration::from_micros),
                debounce: call.debounce.map(|(quiet, max_wait)| Quiet {
                    quiet: Duration::from_micros(quiet),
                    max_wait: Duration::from_micros(max_wait),
                }),
                head_start: call.head_start.map(HeadStart::from_micros),
                final_state_unknown: call.final_state_unknown,
                rate_limited: call.rate_limited,
                trace: call.trace.map(context).map(Trace::new),
                version: call.content.and_then(|content| self.version(content)),
            })
            .collect();
        let numbered = sequence.map(|(source, number)| Sequence { source: source.into(), number });
        self.engine.advance(time(self.now));
        let comparison = self.engine.compare_calls(&converted);
        comparison.run();
        self.engine.set_comparison(comparison.into());
        let engine = self.engine.produce_once(time(self.now), &converted, numbered.as_ref(), &[]);
        self.model.advance(self.now);
        let before = self.model.held().len();
        let model = self.model.produce(self.now, calls, sequence);
        let held = self.model.held();
        let reserved = held.union(&self.model.reserved_keys()).count();
        if held.len() > before && reserved > self.model.config.max_keys {
            return Err(format!("{reserved} keys are held or reserved: more than max_keys"));
        }
        let answer = |counts| (self.model.rv, counts);
        same_result(
            "produce",
            engine.map(|done| {
                let counts = (done.queued, done.merged, done.ignored, done.stale, done.duplicate);
                (done.resource_version.get(), counts)
            }),
            model.map(answer),
        )
    }

    fn accept(&mut self, list: &ModelReplace) -> Result<(), Difference> {
        let replace = Replace {
            list: list.items.iter().map(|(name, content)| (key(name), object(*content))).collect(),
            kept: list.kept.iter().map(|name| key(name)).collect(),
            keeps_all: list.keeps_all,
            source: label(list.source).map(Source::from),
            sequence: list.sequence,
            only_changed: list.only_changed,
            max_delete_percent: list.max_delete_percent,
            max_deletes: list.max_deletes,
            default_limit: list.default_limit,
            dry_run: list.dry_run,
            trace: list.trace.map(context).map(Trace::new),
        };
        let engine = self.engine.accept_replace(time(self.now), replace);
        self.accepted += 1;
        let model = self.model.accept_replace(self.now, list, self.accepted);
        if let Ok(id) = &engine {
            self.jobs.push((*id, self.accepted));
        }
        same_result("accept", engine.map(|_| ()), model)
    }

    fn replace_step(&mut self, job: usize, budget: usize) -> Result<(), Difference> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let at = job % self.jobs.len();
        let (id, number) = self.jobs[at];
        let engine = self.engine.replace_step(time(self.now), id, budget);
        let model = self.model.replace_step(self.now, number, budget);
        if !matches!(engine, Ok(Progress::More | Progress::NotYet)) {
            self.jobs.remove(at);
        }
        let engine = engine.map(|progress| {
            let answer =
                |done: Replaced| (done.resource_version.get(), (replaced(done.counts), done.duplicate));
            step_of(progress, answer)
        });
        let rv = self.model.rv;
        same_result("Replace", engine, model.map(|step| step.map(|counts| (rv, counts))))
    }

    fn pop(
        &mut self,
        (max, max_bytes, with_known): (usize, usize, bool),
        lease: Option<Micros>,
        (worker, id): (Label, Label),
        group: Label,
    ) -> Result<(), Difference> {
        let lease = lease.map(Duration::from_micros);
        let pop = Pop {
            max,
            max_bytes,
            lease,
            worker: label(worker).map(Worker::from),
            id: label(id),
            with_known,
            group: label(group),
        };
        let engine = self.engine.pop(time(self.now), &pop);
        let model = self.model.pop(self.now, (max, max_bytes, with_known), lease, (worker, id), group);
        let (engine, model) = match (engine, model) {
            (Ok(engine), Ok(model)) => (engine, model),
            (engine, model) => return same_result("pop", engine.map(|_| ()), model.map(|_| ())),
        };
        same("popped", engine.len(), model.len())?;
        for (engine, model) in engine.iter().zip(&model) {
            same_item(engine, model)?;
            let newest = self.tokens.last().copied().unwrap_or_default();
            if model.token > newest {
                self.tokens.push(model.token);
            } else if !self.tokens.contains(&model.token) {
                return Err(format!("token {} is new, and not above {newest}", model.token));
            }
        }
        Ok(())
    }

    fn resync(&mut self, budget: usize) -> Result<(), Difference> {
        let (mut cursor, mut model_scan) = self.resync.take().unwrap_or_else(|| {
            let trace = self.model.rv.is_multiple_of(2).then_some(7);
            let cursor = ScanCursor::traced(trace.map(context).map(Trace::new));
            (cursor, ModelScan::traced(trace))
        });
        let engine = self.engine.resync_step(time(self.now), &mut cursor, budget);
        let model = self.model.resync_step(self.now, &mut model_scan, budget);
        if matches!(engine, Ok(Progress::More)) {
            self.resync = Some((cursor, model_scan));
        }
        let engine = engine.map(|progress| step_of(progress, |done| (done.queued, done.ignored)));
        same_result("resync", engine, model.map(|step| step.map(|queued| (queued, 0))))
    }

    fn purge(&mut self, budget: usize) -> Result<(), Difference> {
        let (mut cursor, mut model_scan) = self.purge.take().unwrap_or_default();
        let engine = self.engine.purge_step(time(self.now), &mut cursor, budget);
        let model = self.model.purge_step(self.now, &mut model_scan, budget);
        if matches!(engine, Progress::More) {
            self.purge = Some((cursor, model_scan));
        }
        same("purge", step_of(engine, |purged| (purged.keys, purged.deltas)), model)
    }

    fn seed(&mut self, seeds: &[(Name, u8, Label)]) -> Result<(), Difference> {
        let converted: Vec<_> = seeds
            .iter()
            .map(|(name, content, owner)| (key(name), object(*content), label(*owner).map(Source::from)))
            .collect();
        self.engine.advance(time(self.now));
        let engine = self.engine.check_seed(&converted);
        let model = self.model.check_seed(self.now, seeds);
        if engine.is_ok() {
            self.engine.seed_step(time(self.now), converted);
        }
        if model.is_ok() {
            self.model.seed(self.now, seeds);
        }
        same_result("seed", engine, model)
    }

    fn configure(&mut self, change: Change) -> Result<(), Difference> {
        let setup = &mut Setup { ..self.setup };
        match change {
            Change::MaxFailures(n) => setup.max_failures = n,
            Change::MaxKeys(n) => setup.max_keys = n,
            Change::MaxDeltas(n) => setup.max_deltas_per_key = n,
            Change::EmitReplaced(emit) => setup.emit_replaced = emit,
            Change::ResyncPeriod(period) => setup.resync_period = period,
            // The calls of a case in mode keys carry no objects, so an empty queue of such a case keeps its mode.
            Change::Mode(_) if self.setup.mode == Mode::Keys && self.model.held().is_empty() => {}
            Change::Mode(mode) => setup.mode = mode,
            Change::KnownObjects(known) => setup.known_objects = known,
            Change::Indexes(number) => setup.indexes = number,
            Change::Version(version, ties) => (setup.version, setup.ties) = (version, ties),
            Change::Order(order) => setup.order = order,
            Change::Limits(limits) => setup.limits = limits,
            Change::Groups(groups) => setup.groups = groups,
            Change::Kubernetes(number) => setup.kubernetes = number,
        }
        let config = setup.config();
        let engine = self.engine.configure(time(self.now), config.clone(), None);
        let model = self.model.configure(self.now, &config);
        if model.is_ok() {
            self.setup = *setup;
        }
        same_result("configure", engine, model)
    }

    /// Applies the new events to the rebuilt queue and compares it with the engine.
    fn replay(&mut self) -> Result<(), Difference> {
        let effects = self.engine.take_effects();
        self.resync_due |= effects.resync_due;
        for event in effects.events {
            let (rv, at) = self.events.last().map_or((Rv::ZERO, time(START)), |last| (last.rv, last.at));
            let begins_life = matches!(event.kind, EventKind::Recovered { .. });
            let follows = if begins_life { event.rv > rv } else { event.rv == rv.next() };
            if !follows || event.at < at {
                return Err(format!("event {event:?} after rv {rv} at {at:?}"));
            }
            self.rebuilt.apply(&event);
            self.rebuilt.check().map_err(|rule| format!("after event {event:?}: {rule}"))?;
            self.readers.note(&event, &self.rebuilt)?;
            self.events.push(event);
        }
        same("the lives", self.engine.lives(), self.rebuilt.lives())?;
        same("the state rebuilt from the events, as model", self.engine.image(), self.rebuilt.image())
    }

    fn compare(&mut self, committed: bool) -> Result<(), Difference> {
        self.engine.check()?;
        let (engine, model) = (&mut self.engine, &mut self.model);
        same("resync due", std::mem::take(&mut self.resync_due), std::mem::take(&mut model.resync_due))?;
        same("keys", engine.keys(), model.held().len())?;
        self.compare_entries()?;
        self.compare_orders()?;
        self.compare_status()?;
        let now = self.now.max(self.model.last_at);
        same("a pop gets a key", self.engine.has_ready(time(now)), self.model.delivers(now))?;
        self.synced = self.engine.has_synced();
        if committed {
            let due = self.model.next_due().map(|(at, ..)| at);
            let timers = due
                .into_iter()
                .chain(self.model.next_resync)
                .chain(self.model.next_delivery())
                .chain(self.model.next_group());
            let model = timers.min().map(time);
            let engine = self.engine.next_deadline();
            // The engine may look at a window once more before it ends.
            let looks_early = self.model.count(model::Item::has_idle_window) > 0 && engine <= model;
            if !looks_early || engine.is_none() {
                same("next deadline", engine, model)?;
            }
        }
        if let Some(token) = self.tokens.get(self.events.len() % self.tokens.len().max(1))
            && self.model.leased_key(*token).is_none()
        {
            same("outcome", self.engine.outcome(token_of(*token)), self.model.outcome(*token))?;
        }
        Ok(())
    }

    fn compare_entries(&self) -> Result<(), Difference> {
        let mut entries = self.engine.table().from(Bound::Unbounded).map(|(_, entry)| entry);
        for (name, item) in &self.model.items {
            let Some(entry) = entries.next() else { return Err(format!("{name} is missing: {item:?}")) };
            same_entry(entry, name, item).map_err(|difference| format!("key {name}: {difference}"))?;
        }
        if let Some(entry) = entries.next() {
            return Err(format!("unexpected entry {}: {:?}", entry.key, entry.schedule_state));
        }
        Ok(())
    }

    fn compare_orders(&self) -> Result<(), Difference> {
        let (schedule, table) = (self.engine.schedule(), self.engine.table());
        let name = |slot| table.at(slot).map_or("", |entry| entry.key.as_str());
        let ready: Vec<&str> = self.engine.ready_after(Turn::START).map(|(_, slot)| name(slot)).collect();
        same("ready", ready, self.model.ready())?;
        let mut delays = Vec::new();
        let mut leases = Vec::new();
        for (name, item) in &self.model.items {
            let ends = item.delay.into_iter().chain(item.backoff).filter(|_| !item.has_idle_window());
            delays.extend(ends.map(|end| (end.due, end.rv, *name)).min());
            leases.extend(item.lease().map(|lease| (lease.deadline, lease.token, *name)));
        }
        delays.sort_unstable();
        leases.sort_unstable();
        let delayed = schedule.delayed_after((Time::default(), Rv::ZERO));
        let delayed = delayed.map(|(at, rv, slot)| (at.as_micros(), rv.get(), name(slot)));
        same("delayed", delayed.collect(), delays)?;
        let by_deadline = schedule.leased_after((Time::default(), Token::default()));
        let by_deadline = by_deadline.map(|(at, token, slot)| (at.as_micros(), token.rv().get(), name(slot)));
        same("leased", by_deadline.collect(), leases)?;
        let parked: Vec<&str> = schedule.parked_from(Bound::Unbounded).map(|(key, _)| key.as_str()).collect();
        same("parked", parked, self.model.parked())
    }

    fn compare_status(&self) -> Result<(), Difference> {
        let model = &self.model;
        let now = self.now.max(model.last_at);
        let status = self.engine.status(time(now));
        let counts = [status.ready, status.delayed, status.leased, status.parked, status.known];
        let model_counts = [
            model.count(model::Item::is_ready),
            model.count(model::Item::is_delayed),
            model.count(model::Item::is_leased),
            model.count(model::Item::is_parked),
            model.count(|item| item.known.is_some()),
        ];
        same("ready, delayed, leased, parked, known", counts, model_counts)?;
        same("has_synced", status.has_synced, model.has_synced())?;
        if self.synced && !status.has_synced {
            return Err(String::from("has_synced became false again"));
        }
        same("initial_remaining", status.initial_remaining, model.initial_remaining())?;
        same("rv", status.resource_version.get(), model.rv)?;
        same("auto_created", self.engine.is_auto_created(), model.auto_created)?;
        self.compare_groups(now)?;
        let flags = [status.paused, status.closed, status.drained];
        same("pause reason", status.pause_reason, model.pause_reason)?;
        same("paused, closed, drained", flags, [model.paused, model.closed, model.is_drained()])?;
        let held_until = Some(time(model.held_until)).filter(|until| *until > time(now));
        same("held until", status.held_until, held_until)?;
        let positions = model.items.values().filter_map(|item| match item.place {
            model::Place::Ready(position) => Some((position.rv, now - position.since)),
            _ => None,
        });
        let head = positions.min().map(|(_, age)| age);
        same("oldest ready", status.oldest_ready_age.map(model::micros), head)?;
        let unparked = model.items.values().filter(|item| !item.is_parked());
        let oldest = unparked.filter_map(|item| item.changes.first()).min();
        let age = status.oldest_unacknowledged_age.map(model::micros);
        same("oldest unacknowledged", age, oldest.map(|(_, at)| now - at))?;
        let acknowledged = oldest.map_or(model.rv, |(rv, _)| rv - 1);
        same("acknowledged up to", self.engine.acknowledged_up_to().get(), acknowledged)?;
        self.compare_parked()?;
        same_replace("last Replace", status.last_replace.as_ref(), model.last_replace)?;
        self.compare_versions()?;
        self.compare_sources()
    }

    /// Compares the numbers of parked keys with a change up to some versions.
    fn compare_parked(&self) -> Result<(), Difference> {
        let parked = || self.model.items.values().filter(|item| item.is_parked());
        let firsts = || parked().filter_map(|item| item.changes.first().map(|(rv, _)| *rv));
        for version in firsts().flat_map(|rv| [rv - 1, rv]).chain([self.model.rv]) {
            let (mut counted, mut after) = (0, None);
            loop {
                let (count, next) = self.engine.count_parked(Rv::new(version), after.as_ref(), 2);
                counted += count;
                after = next;
                if after.is_none() {
                    break;
                }
            }
            let name = "parked keys with a change up to a version";
            same(name, counted, firsts().filter(|rv| *rv <= version).count())?;
        }
        Ok(())
    }

    fn compare_sources(&self) -> Result<(), Difference> {
        let engine = self.engine.sources_after(None, usize::MAX);
        let model = self.model.all_sources();
        let names: Vec<&str> = engine.iter().map(|state| state.source.as_str()).collect();
        same("sources", names, model.keys().copied().collect())?;
        for (state, (name, (keys, source))) in engine.iter().zip(model) {
            same(name, state.keys, keys)?;
            let history = state.history.as_ref();
            let times = history
                .map(|history| (history.last_call.as_micros(), history.last_replaced.map(Time::as_micros)));
            same(name, times, source.map(|source| (source.last_call, source.last_replaced)))?;
            let sequence = history.and_then(|history| history.sequence);
            same(name, sequence, source.and_then(|source| source.sequence))?;
            let last = history.and_then(|history| history.last_replace.as_ref());
            same_replace(name, last, source.and_then(|source| source.last_replace))?;
        }
        Ok(())
    }
}
