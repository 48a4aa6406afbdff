//! Named tests of rules that need the inside of the engine. `scripts` has the rules that a caller can see.
//!
//! Each step also checks all invariants, and that the events alone rebuild the same state.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{
    Call, How, Item, KeySelection, Pop, Produced, Progress, Purged, Replace, ReplaceId, Replaced, Settle,
    Settled,
};
use deltaq_engine::config::Config;
use deltaq_engine::delta::{Delta, DeltaKind};
use deltaq_engine::event::Event;
use deltaq_engine::id::{Rv, Sequence, Token};
use deltaq_engine::key::Key;
use deltaq_engine::lives::{Birth, LifeId};
use deltaq_engine::object::Object;
use deltaq_engine::object_version::ObjectVersion;
use deltaq_engine::rate_limit::{ItemExponential, RateLimiter};
use deltaq_engine::refusal::Refusal;
use deltaq_engine::schedule::{Place, Turn};
use deltaq_engine::table::Entry;
use deltaq_engine::time::Time;
use deltaq_engine::{Counters, Queue, ScanCursor};
use deltaq_types::Mode;

mod debounce;
mod deliveries;
mod events;
mod feeds;
mod freshness;
mod groups;
mod leases;
mod limits;
mod memory;
mod operating;
mod parts;
mod recovery;
mod replace;
mod selections;
mod sequences;
mod sources;
mod synced;
mod versions;

/// The initial time.
const START_MS: u64 = 1_000_000;
/// A life that begins as soon as its numbers can.
const NEXT_LIFE: Birth = Birth { id: LifeId::new(7), floor: Rv::ZERO };

/// A queue with a clock, and a second queue that is rebuilt from the events.
struct Fixture {
    queue: Queue,
    rebuilt: Queue,
    events: Vec<Event>,
    counters: Counters,
    resyncs_due: usize,
    now_ms: u64,
}

/// A configuration with exponential backoff from 100 ms, parking after three failures, and leases of 10 s.
fn config(change: impl FnOnce(&mut Config)) -> Arc<Config> {
    let exponential = ItemExponential { base: ms(100), max: ms(60_000) };
    let mut config = Config {
        lease: ms(10_000),
        max_failures: 3,
        rate_limiter: RateLimiter {
            item_exponential: Some(exponential),
            jitter: 0.0,
            ..RateLimiter::default()
        },
        ..Config::default()
    };
    change(&mut config);
    Arc::new(config)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a valid key")
}

fn object(version: u32) -> Object {
    Object::from_valid(&format!(r#"{{"v":{version}}}"#))
}

/// A produce call.
struct ProduceCall(Call);

impl ProduceCall {
    fn new(kind: DeltaKind, name: &str, version: Option<u32>) -> Self {
        Self(Call {
            kind,
            key: key(name),
            object: version.map(object),
            source: None,
            delay: None,
            debounce: None,
            head_start: None,
            final_state_unknown: false,
            rate_limited: false,
            trace: None,
            version: None,
        })
    }

    fn from(mut self, source: &str) -> Self {
        self.0.source = Some(source.into());
        self
    }

    fn after(mut self, millis: u64) -> Self {
        self.0.delay = Some(ms(millis));
        self
    }
}

fn added(name: &str, version: u32) -> ProduceCall {
    ProduceCall::new(DeltaKind::Added, name, Some(version))
}

fn updated(name: &str, version: u32) -> ProduceCall {
    ProduceCall::new(DeltaKind::Updated, name, Some(version))
}

fn deleted(name: &str) -> ProduceCall {
    ProduceCall::new(DeltaKind::Deleted, name, None)
}

/// Mode keys: Add, without an object.
fn queued(name: &str) -> ProduceCall {
    ProduceCall::new(DeltaKind::Added, name, None)
}

fn list(items: &[(&str, u32)]) -> Replace {
    Replace::new(items.iter().map(|(name, version)| (key(name), object(*version))).collect(), None)
}

fn list_of(source: &str, items: &[(&str, u32)]) -> Replace {
    Replace { source: Some(source.into()), ..list(items) }
}

fn replaced(counts: [u64; 5]) -> [(&'static str, u64); 5] {
    let [replaced, deleted, unchanged, skipped, taken_over] = counts;
    [
        ("replaced", replaced),
        ("deleted", deleted),
        ("unchanged", unchanged),
        ("skipped", skipped),
        ("taken over", taken_over),
    ]
}

fn counts(result: &Replaced) -> [(&'static str, u64); 5] {
    let counts = result.counts;
    replaced([counts.replaced, counts.deleted, counts.unchanged, counts.skipped, counts.taken_over])
}

/// A delta as text, such as `Updated 2`. `?` stands for an unknown final state, and `+n` for `n` merged deltas.
fn delta_text(delta: &Delta) -> String {
    let version = delta.object.as_str().trim_start_matches(r#"{"v":"#).trim_end_matches('}');
    let unknown = if delta.final_state_unknown { "?" } else { "" };
    let merged = if delta.coalesced > 0 { format!("+{}", delta.coalesced) } else { String::new() };
    format!("{} {version}{unknown}{merged}", delta.kind.as_str())
}

fn text(item: &Item) -> String {
    let deltas: Vec<String> = item.deltas.iter().map(delta_text).collect();
    format!("{}: {}", item.key, deltas.join(", "))
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn in_mode(mode: Mode) -> Self {
        Self::with(|config| config.mode = mode)
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let (config, now_ms) = (config(change), START_MS);
        let start = Time::from_micros(now_ms * 1_000);
        Self {
            queue: Queue::new(config.clone(), Rv::ZERO, start),
            rebuilt: Queue::new(config, Rv::ZERO, start),
            events: Vec::new(),
            counters: Counters::default(),
            resyncs_due: 0,
            now_ms,
        }
    }

    fn now(&self) -> Time {
        Time::from_micros(self.now_ms * 1_000)
    }

    /// Commits the events of a command, checks the invariants, and compares the rebuilt queue.
    fn commit_and_check(&mut self) {
        self.queue.set_committed(self.queue.resource_version());
        let effects = self.queue.take_effects();
        self.counters.add(&effects.counters);
        self.resyncs_due += usize::from(effects.resync_due);
        for event in effects.events {
            self.rebuilt.apply(&event);
            self.events.push(event);
        }
        assert_eq!(self.queue.check(), Ok(()));
        assert_eq!(self.queue.image(), self.rebuilt.image(), "the state rebuilt from the events differs");
    }

    fn wait(&mut self, millis: u64) {
        self.now_ms += millis;
        self.queue.advance(self.now());
        self.commit_and_check();
    }

    /// Restarts the process after a crash.
    fn crash(&mut self) {
        let mut rebuilt =
            Queue::new(self.queue.config().clone(), Rv::ZERO, Time::from_micros(START_MS * 1_000));
        for event in &self.events {
            rebuilt.apply(event);
        }
        self.queue = rebuilt;
        self.queue.recover(self.now(), NEXT_LIFE).expect("there are numbers left");
        self.commit_and_check();
    }

    // Producing.

    fn produce(&mut self, calls: impl IntoIterator<Item = ProduceCall>) -> Result<Produced, Refusal> {
        let calls: Vec<Call> = calls.into_iter().map(|call| self.with_version(call)).collect();
        let result = self.queue.produce(self.now(), &calls);
        self.commit_and_check();
        result
    }

    /// The call with the version of its object, by the settings of the queue.
    fn with_version(&self, ProduceCall(call): ProduceCall) -> Call {
        let pointer = self.queue.config().version.clone();
        let version = pointer.zip(call.object.as_ref());
        let version = version.and_then(|(pointer, object)| ObjectVersion::read(&pointer, object).ok());
        Call { version, ..call }
    }

    /// Makes one call; returns whether it queued a delta.
    fn call(&mut self, call: ProduceCall) -> bool {
        self.produce([call]).expect("no refusal").queued == 1
    }

    fn accept(&mut self, list: Replace) -> ReplaceId {
        let id = self.queue.accept_replace(self.now(), list).expect("the list is accepted");
        self.commit_and_check();
        id
    }

    fn step(&mut self, id: ReplaceId) -> Result<Progress<Replaced>, Refusal> {
        let progress = self.queue.replace_step(self.now(), id, 1);
        self.commit_and_check();
        progress
    }

    fn finish(&mut self, id: ReplaceId) -> Result<Replaced, Refusal> {
        loop {
            match self.step(id)? {
                Progress::Done(result) => return Ok(result),
                Progress::More => {}
                Progress::Compare(pairs) => pairs.run(),
                Progress::NotYet => panic!("another Replace has to end first"),
            }
        }
    }

    fn replace(&mut self, list: Replace) -> Result<Replaced, Refusal> {
        let id = self.accept(list);
        self.finish(id)
    }

    fn resync(&mut self) -> u64 {
        let (now, mut cursor) = (self.now(), ScanCursor::default());
        let progress = self.queue.resync_step(now, &mut cursor, usize::MAX);
        self.commit_and_check();
        match progress {
            Ok(Progress::Done(result)) => result.queued,
            other => panic!("the Resync did not complete: {other:?}"),
        }
    }

    // Consuming.

    fn pop_with(&mut self, change: impl FnOnce(&mut Pop)) -> Result<Vec<Item>, Refusal> {
        let (lease, worker, id) = (None, None, None);
        let mut pop =
            Pop { max: 1, max_bytes: usize::MAX, lease, worker, id, with_known: false, group: None };
        change(&mut pop);
        let items = self.queue.pop(self.now(), &pop);
        self.commit_and_check();
        items
    }

    /// Pops the next key, which must exist.
    fn pop(&mut self) -> Item {
        self.pop_with(|_| {}).expect("the queue is open").pop().expect("a key is ready")
    }

    fn settle(&mut self, token: Token, how: How) -> Settled {
        let settled = self.queue.settle(self.now(), &[Settle { token, how }]);
        self.commit_and_check();
        settled[0]
    }

    fn ack(&mut self, item: &Item) {
        assert!(matches!(self.settle(item.token, How::Ack), Settled::Ok { .. }));
    }

    fn nack(&mut self, item: &Item) {
        assert!(matches!(self.settle(item.token, nack()), Settled::Ok { .. }));
    }

    fn reject(&mut self, item: &Item) {
        let how = How::Reject { error: Some("bad".into()) };
        assert!(matches!(self.settle(item.token, how), Settled::Ok { .. }));
    }

    fn extend(&mut self, item: &Item, millis: u64) -> Settled {
        self.settle(item.token, How::Extend { lease: Some(ms(millis)) })
    }

    fn purge(&mut self) -> Purged {
        let (now, mut cursor) = (self.now(), ScanCursor::default());
        let progress = self.queue.purge_step(now, &mut cursor, usize::MAX);
        self.commit_and_check();
        let Progress::Done(purged) = progress else { panic!("the purge did not complete") };
        purged
    }

    fn redrive(&mut self, names: Option<&[&str]>) -> u64 {
        let keys = names.map(|names| names.iter().map(|name| key(name)).collect::<Vec<_>>());
        let now = self.now();
        let progress = self.queue.redrive_step(now, &mut KeySelection::named(keys).into(), usize::MAX);
        self.commit_and_check();
        let Ok(Progress::Done(selected)) = progress else { panic!("the redrive did not complete") };
        selected.keys
    }

    /// Makes a key known: delivers and acknowledges it.
    fn make_known(&mut self, call: ProduceCall) {
        self.call(call);
        let item = self.pop();
        self.ack(&item);
    }

    // Reading.

    fn entry(&self, name: &str) -> &Entry {
        self.queue.table().get(name).expect("the queue has the key")
    }

    fn place(&self, name: &str) -> &'static str {
        let Some(entry) = self.queue.table().get(name) else { return "absent" };
        match entry.schedule_state.place {
            Place::Ready(_) => "ready",
            Place::Leased(_) => "leased",
            Place::Parked => "parked",
            Place::Idle if entry.schedule_state.waits() => "delayed",
            Place::Idle if entry.known.is_some() => "known",
            Place::Idle => "idle",
        }
    }

    /// The ready keys in order.
    fn ready_queue(&self) -> Vec<&str> {
        let table = self.queue.table();
        self.queue
            .ready_after(Turn::START)
            .filter_map(|(_, slot)| table.at(slot))
            .map(|entry| entry.key.as_str())
            .collect()
    }

    /// The waiting deltas of a key.
    fn waiting(&self, name: &str) -> String {
        let Some(entry) = self.queue.table().get(name) else { return String::new() };
        entry.waiting.iter().map(delta_text).collect::<Vec<_>>().join(", ")
    }

    fn owner(&self, name: &str) -> Option<&str> {
        let entry = self.entry(name);
        match entry.waiting.newest().or(entry.leased.newest()) {
            Some(delta) => delta.provenance.owner().map(|owner| &**owner),
            None => entry.known.as_ref()?.owner.as_deref(),
        }
    }

    fn failures(&self, name: &str) -> u32 {
        self.entry(name).schedule_state.failures
    }

    /// The milliseconds until the key's delay ends.
    fn due_in(&self, name: &str) -> Option<u128> {
        let due = self.entry(name).schedule_state.due()?;
        Some(due.since(self.now()).as_millis())
    }

    fn known(&self, name: &str) -> Option<&str> {
        self.queue.table().get(name)?.known.as_ref().map(|known| known.object.as_str())
    }

    fn has_synced(&self) -> bool {
        self.queue.has_synced()
    }
}

fn nack() -> How {
    How::Nack { delay: None, floor: false, error: Some("timeout".into()) }
}

fn nack_after(millis: u64) -> How {
    How::Nack { delay: Some(ms(millis)), floor: false, error: None }
}
