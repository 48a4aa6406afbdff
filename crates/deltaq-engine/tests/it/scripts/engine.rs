//! The target of rule scripts that is the engine itself.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{
    Call, DefaultLimit, Expected, HoldScope, How, KeySelection, Part, Pop, Progress, RegroupWalk, Replace,
    Replaced, Selected, SelectedKeys, Settle, Settled,
};
use deltaq_engine::config::{Config, Quiet};
use deltaq_engine::delta::{Delta, DeltaKind};
use deltaq_engine::id::{Rv, Sequence, Source, Token};
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::object_version::ObjectVersion;
use deltaq_engine::refusal::Refusal;
use deltaq_engine::schedule::{Place, ScheduleState, Turn};
use deltaq_engine::table::Entry;
use deltaq_engine::time::Time;
use deltaq_engine::view::View;
use deltaq_engine::{Queue, ScanCursor};
use deltaq_types::Mode;

use super::command::{Change, Command, Keyed, Options, Selection};
use super::order::head_start;
use super::reply;
use super::script::{Leases, Target};
use super::settings::configured;
use reply::{Places, Reply};

/// The number of the event before the first one of a script.
const FIRST: Rv = Rv::new(100);
/// The time at the start of a script.
const START: Time = Time::from_micros(1_700_000_000_000_000);
/// The number of a lease that was never delivered.
const FORGED: Token = Token::new(Rv::new(1 << 40));

/// A queue with a clock, and a second queue that is rebuilt from the events.
pub(super) struct Engine {
    queue: Queue,
    rebuilt: Queue,
    now: Time,
    leases: Leases<Token>,
}

impl Engine {
    /// An empty queue with the default settings.
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let config = Arc::new(config);
        Self {
            queue: Queue::new(config.clone(), FIRST, START),
            rebuilt: Queue::new(config, FIRST, START),
            now: START,
            leases: Leases::new(),
        }
    }
}

impl Target for Engine {
    fn run(&mut self, command: &Command) -> Reply {
        let done = self.try_run(command);
        // The task of a queue carries out at once what a command has made due.
        self.queue.advance(self.now);
        done.unwrap_or_else(|refusal| Reply::Refused {
            code: code(&refusal).to_owned(),
            detail: refusal.to_string(),
        })
    }

    fn places(&mut self) -> Places {
        let mut places = Places { version: version(self.queue.resource_version()), ..Places::default() };
        let (table, schedule) = (self.queue.table(), self.queue.schedule());
        let key = |entry: &Entry| entry.key.to_string();
        places.ready =
            self.queue.ready_after(Turn::START).filter_map(|(_, slot)| table.at(slot).map(key)).collect();
        let delayed = self.queue.delayed_after((Time::default(), Rv::ZERO));
        let delayed = delayed.filter_map(|(_, _, slot)| table.at(slot));
        let delayed = delayed.filter(|entry| entry.schedule_state.is_delayed());
        let delayed =
            delayed.map(|entry| (entry, self.ms_until(entry.schedule_state.due().unwrap_or_default())));
        places.delayed = delayed.map(|(entry, ms)| (key(entry), ms)).collect();
        for (token, slot) in schedule.leased_behind(Token::default()) {
            let Some(entry) = table.at(slot) else { continue };
            let worker = entry.schedule_state.lease().and_then(|lease| lease.worker.clone());
            let lease = self.leases.number(token.rv().get(), &token);
            places.leased.push((lease, key(entry), worker.map(|worker| worker.to_string())));
        }
        places.parked =
            schedule.parked_from(std::ops::Bound::Unbounded).map(|(key, _)| key.to_string()).collect();
        places
    }

    /// Commits the events of the command, checks the invariants, and compares the rebuilt queue.
    fn defect(&mut self) -> Option<String> {
        self.queue.set_committed(self.queue.resource_version());
        for event in self.queue.take_effects().events {
            self.rebuilt.apply(&event);
        }
        if let Err(broken) = self.queue.check() {
            return Some(broken);
        }
        let is_same = self.queue.image() == self.rebuilt.image();
        (!is_same).then(|| "the state rebuilt from the events differs".to_owned())
    }
}

impl Engine {
    fn try_run(&mut self, command: &Command) -> Result<Reply, Refusal> {
        let now = self.now;
        Ok(match command {
            Command::Queue(options) => {
                *self = Self::with(configured(&Config::default(), options));
                Reply::Done
            }
            Command::Set(options) => {
                let config = configured(self.queue.config(), options);
                self.queue.configure(now, Arc::new(config), None)?;
                let mut walk = RegroupWalk::default();
                while matches!(self.queue.regroup_step(now, &mut walk, 2), Progress::More) {}
                Reply::Done
            }
            Command::Tick(span) => {
                self.now = now.plus(*span);
                Reply::Done
            }
            Command::Produce(change, keyed) => self.produce(&[(*change, keyed.clone())], &keyed.options)?,
            Command::Deltas(changes, options) => self.produce(changes, options)?,
            Command::Replace(list, options) => self.replace(list, options)?,
            Command::Resync => self.resync()?,
            Command::Seed(list) => self.seed(list)?,
            Command::Forget(keys) => Reply::Keys(self.queue.forget(now, keys.iter().map(String::as_str))),
            Command::Pop(options) => self.pop(options)?,
            Command::Settle(settles) => self.settle(settles),
            Command::Purge => self.purge(),
            Command::Promote(keys, options) => self.select(keys, options, Queue::promote_step)?,
            Command::Redrive(keys, options) => self.select(keys, options, Queue::redrive_step)?,
            Command::Discard(keys, options) => self.select(keys, options, Queue::discard_step)?,
            Command::Pause(_) | Command::Resume(_) | Command::Close(_) | Command::Reopen => {
                self.switch(command);
                Reply::Done
            }
            Command::Item(key) => Reply::Item(self.queue.table().get(key).map(|entry| self.item(entry))),
            Command::Known => self.view(View::Known),
            Command::Latest => self.view(View::Latest),
            Command::Status => Reply::Status(self.status()),
            Command::Synced(options) => self.synced(options),
            Command::Sources => self.sources(),
            Command::Parked => self.parked(),
        })
    }

    // Producing.

    fn produce(&mut self, changes: &[(Change, Keyed)], options: &Options) -> Result<Reply, Refusal> {
        let calls: Vec<Call> =
            changes.iter().map(|(change, keyed)| self.call(*change, keyed, options)).collect();
        let sequence = options.number("sequence").zip(options.get("source"));
        let sequence = sequence.map(|(number, source)| Sequence { source: source.into(), number });
        let expected: Vec<Expected> = (0..)
            .zip(changes)
            .filter_map(|(index, (_, keyed))| {
                let version = match keyed.options.number("expected_version")? {
                    0 => Rv::ZERO,
                    number => FIRST.plus(number),
                };
                Some(Expected::version(index, key(&keyed.key), version))
            })
            .collect();
        let comparison = self.queue.compare_calls(&calls);
        comparison.run();
        self.queue.set_comparison(comparison.into());
        let produced = self.queue.produce_once(self.now, &calls, sequence.as_ref(), &expected)?;
        let limited = calls.iter().filter(|call| call.rate_limited);
        let keys = limited.map(|call| {
            let state = self.queue.failure_state(&call.key);
            (call.key.to_string(), self.failed(state.failures, state.due, state.is_parked))
        });
        Ok(Reply::Produced(reply::Produced {
            queued: produced.queued,
            merged: produced.merged,
            ignored: produced.ignored,
            stale: produced.stale,
            duplicate: produced.duplicate,
            keys: keys.collect(),
        }))
    }

    fn call(&self, change: Change, keyed: &Keyed, options: &Options) -> Call {
        let config = self.queue.config();
        let object = keyed.object.as_deref().map(Object::from_valid).filter(|_| config.mode != Mode::Keys);
        let version = config.version.as_ref().zip(object.as_ref());
        let source = keyed.options.get("source").or(options.get("source"));
        Call {
            kind: match change {
                Change::Added => DeltaKind::Added,
                Change::Updated => DeltaKind::Updated,
                Change::Deleted => DeltaKind::Deleted,
            },
            key: key(&keyed.key),
            version: version.and_then(|(pointer, object)| ObjectVersion::read(pointer, object).ok()),
            object,
            source: source.map(Source::from),
            delay: keyed.options.duration("delay"),
            debounce: keyed.options.duration("debounce").map(|quiet| {
                Quiet::new(quiet, keyed.options.duration("max_wait")).expect("max_wait is not shorter")
            }),
            head_start: keyed.options.get("head_start").map(head_start),
            final_state_unknown: keyed.options.flag("final_state_unknown"),
            rate_limited: keyed.options.flag("rate_limited"),
            trace: None,
        }
    }

    fn replace(&mut self, list: &[Keyed], options: &Options) -> Result<Reply, Refusal> {
        let allows_all = options.flag("allow_empty") && list.is_empty();
        let max_delete_percent = options.number("max_delete_percent");
        let replace = Replace {
            sequence: options.number("sequence"),
            only_changed: options.flag("only_changed"),
            max_delete_percent: max_delete_percent.or(allows_all.then_some(100.0)),
            max_deletes: options.number("max_deletes"),
            default_limit: if list.is_empty() { DefaultLimit::EmptyList } else { DefaultLimit::Half },
            dry_run: options.flag("dry_run"),
            ..Replace::new(
                list.iter().map(|keyed| (key(&keyed.key), object(keyed))).collect(),
                options.get("source").map(Source::from),
            )
        };
        let id = self.queue.accept_replace(self.now, replace)?;
        let Replaced { counts, duplicate, .. } = loop {
            match self.queue.replace_step(self.now, id, usize::MAX)? {
                Progress::Done(replaced) => break replaced,
                Progress::Compare(pairs) => pairs.run(),
                Progress::More | Progress::NotYet => {}
            }
        };
        Ok(Reply::Replaced(reply::Counts {
            replaced: counts.replaced,
            deleted: counts.deleted,
            unchanged: counts.unchanged,
            taken_over: counts.taken_over,
            stale: counts.stale,
            duplicate,
        }))
    }

    fn resync(&mut self) -> Result<Reply, Refusal> {
        let progress = self.queue.resync_step(self.now, &mut ScanCursor::default(), usize::MAX)?;
        let queued = complete(progress).queued;
        Ok(Reply::Produced(reply::Produced { queued, ..reply::Produced::default() }))
    }

    fn seed(&mut self, list: &[Keyed]) -> Result<Reply, Refusal> {
        let seeds: Vec<_> = list
            .iter()
            .map(|keyed| (key(&keyed.key), object(keyed), keyed.options.get("source").map(Source::from)))
            .collect();
        self.queue.check_seed(&seeds)?;
        let queued = seeds.len() as u64;
        self.queue.seed_step(self.now, seeds);
        Ok(Reply::Produced(reply::Produced { queued, ..reply::Produced::default() }))
    }

    // Consuming.

    fn pop(&mut self, options: &Options) -> Result<Reply, Refusal> {
        let pop = Pop {
            max: options.number("max").unwrap_or(1),
            max_bytes: usize::MAX,
            lease: options.duration("lease_duration"),
            worker: options.get("worker").map(Into::into),
            id: options.get("id").map(Into::into),
            with_known: options.get("with") == Some("known"),
            group: options.get("group").map(Into::into),
        };
        let items = self.queue.pop(self.now, &pop)?;
        let items = items.iter().map(|item| reply::Popped {
            lease: self.leases.number(item.token.rv().get(), &item.token),
            key: item.key.to_string(),
            deltas: item.deltas.iter().map(delta).collect(),
            attempt: item.attempt,
            failures: item.failures,
            is_in_initial_list: item.is_in_initial_list,
            known: item.known.as_ref().map(|known| known.object.as_str().to_owned()),
        });
        let items = items.collect();
        let switches = self.queue.switches(self.now);
        let held_ms = switches.held_until.map(|until| self.ms_until(until));
        Ok(Reply::Popped { items, closed: switches.closed, paused: switches.paused, held_ms })
    }

    fn settle(&mut self, settles: &[super::command::Settle]) -> Reply {
        let tokens = settles.iter().map(|settle| self.token(settle.lease));
        let calls: Vec<Settle> =
            tokens.zip(settles).map(|(token, settle)| Settle { token, how: how(settle) }).collect();
        let settled = self.queue.settle(self.now, &calls);
        let settled = settled.into_iter().map(|settled| match settled {
            Settled::Ok { failed, .. } => reply::Settled::Ok(
                failed.map(|state| self.failed(state.failures, state.due, state.is_parked)),
            ),
            Settled::Held { until, .. } => reply::Settled::Held { held_ms: self.ms_until(until) },
            Settled::Extended { deadline, pending_deltas, deleted } => reply::Settled::Extended {
                expires_in_ms: self.ms_until(deadline),
                pending_deltas: pending_deltas as u64,
                deleted,
            },
            Settled::Repeated => reply::Settled::Repeated,
            Settled::NotLeased => reply::Settled::NotLeased,
            Settled::Stale { outcome } => reply::Settled::Stale(outcome.as_str().to_owned()),
        });
        Reply::Settled(settles.iter().map(|settle| settle.lease).zip(settled).collect())
    }

    fn token(&self, lease: usize) -> Token {
        self.leases.get(lease).copied().unwrap_or(FORGED)
    }

    // Operating.

    fn switch(&mut self, command: &Command) {
        let (now, queue) = (self.now, &mut self.queue);
        match command {
            Command::Pause(options) | Command::Resume(options) => {
                let paused = matches!(command, Command::Pause(_));
                match options.get("group") {
                    None => queue.set_paused(now, paused),
                    Some(group) => {
                        assert!(queue.set_group_paused(now, group, paused), "the queue has groups");
                    }
                }
            }
            Command::Close(options) if options.get("wait_for") == Some("none") => queue.close_at_once(now),
            Command::Close(_) => queue.set_closed(now, true),
            _ => queue.set_closed(now, false),
        }
    }

    fn purge(&mut self) -> Reply {
        let purged = complete(self.queue.purge_step(self.now, &mut ScanCursor::default(), usize::MAX));
        Reply::Purged { keys: purged.keys, deltas: purged.deltas }
    }

    fn select(
        &mut self,
        selection: &Selection,
        options: &Options,
        step: impl Fn(&mut Queue, Time, &mut SelectedKeys, usize) -> Result<Progress<Selected>, Refusal>,
    ) -> Result<Reply, Refusal> {
        let selection = match selection {
            Selection::All => KeySelection::All,
            Selection::Keys(keys) => KeySelection::named(Some(keys.iter().map(|text| key(text)).collect())),
            Selection::Error(error) => KeySelection::with_error(error.clone()),
        };
        let mut selected = SelectedKeys::new(selection, options.number("expected_count"));
        Ok(Reply::Keys(complete(step(&mut self.queue, self.now, &mut selected, usize::MAX)?).keys))
    }

    // Reading.

    fn item(&self, entry: &Entry) -> reply::Item {
        let state: &ScheduleState = &entry.schedule_state;
        let has_item = state.has_work() || state.failures > 0;
        if !has_item && entry.known.is_some() {
            return reply::Item::known(entry.key.as_str());
        }
        let place = match state.place {
            Place::Ready(_) => Some("ready"),
            Place::Leased(_) => Some("leased"),
            Place::Parked => Some("parked"),
            Place::Idle => state.waits().then_some("delayed"),
        };
        reply::Item {
            key: entry.key.to_string(),
            state: place.map(str::to_owned),
            waiting: entry.waiting.iter().map(delta).collect(),
            leased: entry.leased.iter().map(delta).collect(),
            attempt: state.attempt,
            failures: state.failures,
            last_error: state.last_error().map(str::to_owned),
            due_in_ms: state.due().map(|due| self.ms_until(due)),
            expires_in_ms: state.lease().map(|lease| self.ms_until(lease.deadline)),
            owner: entry.owner().map(ToString::to_string),
        }
    }

    fn view(&self, view: View) -> Reply {
        let entries = self.queue.table().from(std::ops::Bound::Unbounded);
        let objects = entries.filter_map(|(_, entry)| entry.object_in(view));
        let object = |object: deltaq_engine::view::ViewObject| reply::ViewObject {
            key: object.key.to_string(),
            object: object.object.as_str().to_owned(),
            owner: object.owner.map(|owner| owner.to_string()),
            version: version(object.rv),
        };
        Reply::Objects(objects.map(object).collect())
    }

    fn status(&self) -> reply::Status {
        let status = self.queue.status(self.now);
        let counts = [status.ready, status.delayed, status.leased, status.parked, status.known];
        reply::Status {
            counts: counts.map(|count| count as u64),
            version: version(status.resource_version),
            oldest_unacknowledged_ms: status.oldest_unacknowledged_age.map_or(0, millis),
            paused: status.paused,
            held_ms: status.held_until.map(|until| self.ms_until(until)),
            closed: status.closed,
            drained: status.drained,
        }
    }

    fn synced(&self, options: &Options) -> Reply {
        let wanted = options.get("resource_version").map(|text| match text {
            "now" => self.queue.resource_version(),
            number => FIRST.plus(number.parse().expect("a number")),
        });
        Reply::Synced {
            synced: self.queue.has_synced(),
            remaining: self.queue.initial_remaining() as u64,
            reached: wanted.map(|version| reply::Reached {
                reached: self.queue.acknowledged_up_to() >= version,
                parked: self.queue.count_parked(version, None, usize::MAX).0 as u64,
            }),
        }
    }

    fn sources(&self) -> Reply {
        let sources = self.queue.sources_after(None, usize::MAX);
        let sources = sources.into_iter().map(|state| reply::Source {
            name: state.source.to_string(),
            keys: state.keys as u64,
            sequence: state.history.and_then(|history| history.sequence),
        });
        Reply::Sources(sources.collect())
    }

    fn parked(&self) -> Reply {
        let mut errors: Vec<(String, u64, String)> = Vec::new();
        for (key, slot) in self.queue.schedule().parked_from(std::ops::Bound::Unbounded) {
            let entry = self.queue.table().at(slot);
            let error = entry.and_then(|entry| entry.schedule_state.last_error()).unwrap_or_default();
            match errors.iter_mut().find(|(other, _, _)| other == error) {
                Some((_, keys, _)) => *keys += 1,
                None => errors.push((error.to_owned(), 1, key.to_string())),
            }
        }
        // Errors with as many keys stay in the order of their first keys.
        errors.sort_by_key(|(_, keys, _)| std::cmp::Reverse(*keys));
        Reply::Parked(errors)
    }

    fn failed(&self, failures: u32, due: Option<Time>, parked: bool) -> reply::Failed {
        reply::Failed { failures, due_in_ms: due.map(|due| self.ms_until(due)), parked }
    }

    fn ms_until(&self, at: Time) -> u64 {
        millis(at.since(self.now))
    }
}

/// The number of an event, counted from the first of the script.
fn version(rv: Rv) -> u64 {
    rv.since(FIRST)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn complete<T: std::fmt::Debug>(progress: Progress<T>) -> T {
    match progress {
        Progress::Done(result) => result,
        other => panic!("the command did not complete: {other:?}"),
    }
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a valid key")
}

fn object(keyed: &Keyed) -> Object {
    Object::from_valid(keyed.object.as_deref().expect("an object"))
}

fn delta(delta: &Delta) -> reply::Delta {
    reply::Delta {
        kind: delta.kind.as_str().to_owned(),
        object: delta.object.as_str().to_owned(),
        final_state_unknown: delta.final_state_unknown,
        coalesced: delta.coalesced,
    }
}

fn how(settle: &super::command::Settle) -> How {
    let Some(through) = settle.options.number("through") else { return whole(settle) };
    let rest = (settle.options.get("keep") != Some("true")).then(|| whole(settle));
    How::Part(Box::new(Part { through: FIRST.plus(through), rest }))
}

fn whole(settle: &super::command::Settle) -> How {
    let delay = settle.options.duration("delay");
    let error = settle.options.get("error").map(Into::into);
    for (name, scope) in
        [("hold", HoldScope::Queue), ("hold_group", HoldScope::Group), ("hold_key", HoldScope::Key)]
    {
        if let Some(length) = settle.options.duration(name).filter(|length| !length.is_zero()) {
            return How::Hold { scope, acks: settle.how == "ack", length };
        }
    }
    match settle.how.as_str() {
        "ack" => How::Ack,
        "done" => How::Done { delay },
        "nack" => How::Nack { delay, floor: settle.options.get("floor") == Some("true"), error },
        "release" => How::Release,
        "reject" => How::Reject { error },
        "extend" => How::Extend { lease: settle.options.duration("lease_duration") },
        other => panic!("no settle is called {other:?}"),
    }
}

/// The code that the HTTP API has for a refusal.
fn code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::QueueFull { .. } => "queue-full",
        Refusal::MemoryFull { .. } => "memory-full",
        Refusal::KeyFull { .. } => "key-full",
        Refusal::ObjectTooLarge { .. } => "object-too-large",
        Refusal::WrongMode { .. } => "wrong-mode",
        Refusal::TooManySequences { .. } => "too-many-sequences",
        Refusal::TooManyReplaces { .. } | Refusal::SequenceBusy { .. } | Refusal::ConfigChanged => {
            "too-many-requests"
        }
        Refusal::Closed => "queue-closed",
        Refusal::MassDelete { .. } => "mass-delete",
        Refusal::NoKnownObjects => "no-known-objects",
        Refusal::NotEmpty { .. } => "not-empty",
        Refusal::PreconditionFailed { .. } => "precondition-failed",
        Refusal::CountChanged { .. } => "count-changed",
        Refusal::Follower { .. } => "follower",
        Refusal::ImmutableConfig { .. } => "immutable-config",
    }
}
