//! Followers under faults, crashes and lost tombstones, without HTTP: each follower ends with the objects of the queue that it follows,
//! gets each change once, and never an older one after a newer one.
//!
//! A seed determines a run. `DELTAQ_FOLLOWER_SEEDS` sets the number of runs.

mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{Call, How, Item, ObjectList, Pop, Progress, Replace, Settle, Settled, Taken};
use deltaq_engine::config::{Config, Follow};
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::event::{Appended, Event, EventKind};
use deltaq_engine::feed::{Row, RowKind, TombstoneLimits};
use deltaq_engine::follow::{FollowPhase, FollowPosition};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::time::Time;
use deltaq_engine::view::View;
use deltaq_engine::{Comparison, Queue};
use deltaq_journal::WriterOptions;
use deltaq_journal::record::{Decoder, SHARED_BYTES_MIN};
use deltaq_journal::store::QueueId;
use deltaq_runtime::clock::{Clock, ManualClock};
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Creator, Error, Handle, Name, Registry, WatchLimits};
use deltaq_types::{Mode, Retention};
use fastrand::Rng;

pub(crate) use self::events::TakenEvents;
use crate::node;
use crate::store::fake::{FakeStore, Fault};

const KEYS: u32 = 12;
/// Seeds that run unless the environment sets another number.
const SEEDS: u64 = 200;
const PARENT: &str = "parent";

/// The followers: name, followed queue, view, prefix, `max_waiting`.
const FOLLOWERS: [(&str, &str, View, &str, usize); 5] = [
    ("all", PARENT, View::Latest, "", 1_000),
    ("some", PARENT, View::Known, "key-1", 1_000),
    ("slow", PARENT, View::Latest, "", 3),
    ("second", "slow", View::Known, "", 1_000),
    (EACH, PARENT, View::Latest, "", 5),
];
/// The follower in mode `events`.
const EACH: &str = "each";

/// The objects of a view, by key.
pub(crate) type Objects = BTreeMap<String, String>;

/// The changes that followers have taken, by their journals: each once, and none older after a newer one.
#[derive(Debug, Default)]
pub(crate) struct TakenChanges {
    /// The version of the last change that a follower has taken for a key.
    newest: BTreeMap<(QueueId, String), u64>,
}

impl TakenChanges {
    /// Notes an event of a follower. `versions` are those at which the followed view got this object for the key, in order.
    pub(crate) fn note(
        &mut self,
        follower: QueueId,
        event: &Event,
        versions: impl FnOnce(&str, &str) -> Vec<u64>,
    ) -> Result<(), String> {
        let EventKind::Appended(Appended { key, delta, object, .. }) = &event.kind else { return Ok(()) };
        if *delta == DeltaKind::Deleted {
            return Ok(());
        }
        let newest = self.newest.entry((follower, key.to_string())).or_default();
        let versions = versions(key.as_str(), object.as_str());
        match versions.iter().find(|version| *version > newest) {
            Some(version) => {
                *newest = *version;
                Ok(())
            }
            None => Err(format!("{key}: {follower:?} takes {object:?} of {versions:?} after {newest}")),
        }
    }
}

/// Pops keys and settles them. `None` if the pop fails.
pub(crate) async fn work(handle: &Arc<Handle>, max: usize, how: How) -> Option<Work> {
    let pop =
        Pop { max, max_bytes: 1 << 20, lease: None, worker: None, id: None, with_known: false, group: None };
    let items = handle.long_command(move |queue, now| queue.hand_out(now, &pop).map(Progress::Done)).await;
    let items = items.ok()?;
    let settle = |item: &Item| Settle { token: item.token, how: how.clone() };
    let settled = handle.settle(&items.iter().map(settle).collect::<Vec<_>>()).await;
    let is_ok = |settled: &Settled| matches!(settled, Settled::Ok { .. });
    Some(Work { is_settled: settled.is_ok_and(|all| all.iter().all(is_ok)), items })
}

/// The result of [`work`].
pub(crate) struct Work {
    pub(crate) items: Vec<Item>,
    /// Whether all leases were settled.
    pub(crate) is_settled: bool,
}

/// The objects of a view whose keys begin so. `None` if the queue can't be read.
pub(crate) async fn objects_in(handle: &Handle, view: View, prefix: &str) -> Option<Objects> {
    let objects = handle.read(|queue, _| {
        let objects = queue.table().from(Bound::Unbounded).filter_map(|(_, entry)| entry.object_in(view));
        objects.map(|found| (found.key.to_string(), found.object.as_str().to_owned())).collect::<Objects>()
    });
    let mut objects = objects.await.ok()?;
    objects.retain(|key, _| key.starts_with(prefix));
    Some(objects)
}

struct World {
    seed: u64,
    rng: Rng,
    memory: FakeStore,
    clock: Clock,
    hand: ManualClock,
    registry: Arc<Registry>,
    shutdown: Shutdown,
    tombstones: usize,
    growth_bytes_min: u64,
    /// The number of the next object.
    next: u64,
    /// The number of the last delivered object of each key.
    delivered: BTreeMap<(&'static str, String), u64>,
    situations: BTreeSet<&'static str>,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn follow((_, queue, view, prefix, max_waiting): (&str, &str, View, &str, usize)) -> Arc<Follow> {
    Arc::new(Follow { queue: queue.into(), view, prefix: prefix.into(), max_waiting })
}

/// The number of an object.
fn number(object: &Object) -> u64 {
    let value: serde_json::Value = serde_json::from_str(object.as_str()).expect("an object");
    value["n"].as_u64().expect("a number")
}

async fn start(
    memory: &FakeStore,
    clock: &Clock,
    shutdown: &Shutdown,
    tombstones: usize,
    growth_bytes_min: u64,
) -> Arc<Registry> {
    let limits = TombstoneLimits { count: tombstones, bytes: 1 << 20, age: Duration::from_hours(1) };
    let watch = WatchLimits { idle: Duration::from_mins(10), tombstones: limits };
    // Cleanups of texts never stop.
    let options = WriterOptions { growth_bytes_min, text_bytes_min: 0, ..WriterOptions::default() };
    let node = node::start_with(memory.clone(), memory.opening(), clock, shutdown, options, watch);
    node.await.expect("a store in order").registry
}

impl World {
    async fn new(seed: u64) -> Self {
        Self::with(seed, Retention::default(), u64::MAX).await
    }

    /// A world whose journal keeps this much, with a checkpoint after so many bytes.
    async fn with(seed: u64, retention: Retention, growth_bytes_min: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (clock, hand) = Clock::manual(1_700_000_000_000_000);
        let (memory, shutdown) = (FakeStore::default(), Shutdown::manual(Duration::ZERO));
        let tombstones = if rng.bool() { 0 } else { rng.usize(1..100) };
        let registry = start(&memory, &clock, &shutdown, tombstones, growth_bytes_min).await;
        let parent = Arc::new(Config { max_failures: 0, retention, ..Config::default() });
        registry.create(&name(PARENT), parent.clone(), &Creator::default()).expect("it is created");
        for follower in FOLLOWERS {
            let mode = if follower.0 == EACH { Mode::Events } else { Mode::Delta };
            let config = Config { mode, follow: Some(follow(follower)), ..Config::clone(&parent) };
            registry.create(&name(follower.0), Arc::new(config), &Creator::default()).expect("it is created");
        }
        // The queues are durable before the first crash.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Self {
            seed,
            rng,
            memory,
            clock,
            hand,
            registry,
            shutdown,
            tombstones,
            growth_bytes_min,
            next: 0,
            delivered: BTreeMap::new(),
            situations: BTreeSet::new(),
        }
    }

    fn queue(&self, queue: &str) -> Arc<Handle> {
        self.registry.get(&name(queue)).expect("the queue")
    }

    fn object(&mut self) -> (Key, Object) {
        let key = format!("key-{}", self.rng.u32(..KEYS));
        self.next += 1;
        // Half of the objects are shared with the followers.
        let padding = if self.rng.bool() { SHARED_BYTES_MIN } else { 0 };
        let object = format!(r#"{{"key":"{key}","n":{},"pad":"{:padding$}"}}"#, self.next, "");
        let object = Object::from_valid(&object);
        (Key::new(&key).expect("a key"), object)
    }

    async fn step(&mut self) {
        match self.rng.u32(..20) {
            0..8 => self.produce().await,
            8 => self.replace().await,
            9..15 => {
                let queues = [PARENT, "all", "some", "slow", "second", EACH];
                let queue = *self.rng.choice(&queues).expect("there are some");
                let max = self.rng.usize(1..6);
                let ack = self.rng.u8(..4) > 0;
                self.work(queue, max, ack).await;
            }
            15..18 => {
                let time = Duration::from_millis(self.rng.u64(1..3_000));
                self.pass(time).await;
            }
            18 if self.rng.u8(..4) == 0 => self.crash().await,
            18 => {
                let faults = [Fault::Refused, Fault::Full, Fault::Doubted];
                let fault = *self.rng.choice(&faults).expect("there are some");
                self.memory.fault_at(self.memory.steps() + self.rng.u64(1..4), fault);
                self.situations.insert("a commit failed");
            }
            _ => self.detach_or_attach().await,
        }
    }

    async fn pass(&self, time: Duration) {
        self.hand.advance(time);
        tokio::time::sleep(time).await;
    }

    async fn produce(&mut self) {
        let (key, object) = self.object();
        let kinds = [DeltaKind::Added, DeltaKind::Updated, DeltaKind::Updated, DeltaKind::Deleted];
        let kind = *self.rng.choice(&kinds).expect("there are some");
        let object = Some(object).filter(|_| kind != DeltaKind::Deleted);
        let call = Call { kind, object, ..Call::of_key(key, None) };
        let queue = self.queue(PARENT);
        let _outcome = queue.produce(&queue.config(), &[call]).await;
    }

    async fn replace(&mut self) {
        let count = self.rng.usize(..6);
        let mut list: ObjectList = (0..count).map(|_| self.object()).collect();
        list.keep_last();
        let queue = self.queue(PARENT);
        let _outcome = queue.replace(queue.config(), Replace::new(list, None), ()).await;
    }

    /// Pops keys of a queue, acknowledges them or not, and checks them.
    async fn work(&mut self, queue: &'static str, max: usize, ack: bool) -> usize {
        let how = if ack { How::Ack } else { How::Nack { delay: None, floor: false, error: None } };
        let Some(Work { items, is_settled }) = work(&self.queue(queue), max, how).await else { return 0 };
        for item in &items {
            let key = (queue, item.key.to_string());
            for delta in &item.deltas {
                let number = number(&delta.object);
                let last = self.delivered.get(&key).copied().unwrap_or_default();
                let kind = delta.kind;
                let unknown = delta.final_state_unknown;
                assert!(
                    number >= last,
                    "seed {}: {key:?} got {kind:?} {number} (unknown {unknown}) after object {last}: {item:?}",
                    self.seed
                );
            }
            if ack && is_settled {
                let newest = item.deltas.last().expect("a delta");
                self.delivered.insert(key, number(&newest.object));
            }
        }
        items.len()
    }

    /// Ends the node as a power failure does, and starts it on what was written.
    async fn crash(&mut self) {
        self.situations.insert("a crash");
        let memory = self.memory.restarted();
        self.shutdown.signal();
        self.shutdown.signal();
        tokio::task::yield_now().await;
        self.memory = memory;
        self.shutdown = Shutdown::manual(Duration::ZERO);
        let (tombstones, growth) = (self.tombstones, self.growth_bytes_min);
        self.registry = start(&self.memory, &self.clock, &self.shutdown, tombstones, growth).await;
    }

    async fn detach_or_attach(&mut self) {
        let follower = FOLLOWERS[self.rng.usize(..FOLLOWERS.len())];
        let handle = self.queue(follower.0);
        let follow = if handle.config().follow.is_some() { None } else { Some(follow(follower)) };
        let edit = |config: &Config| Ok::<_, Error>(Config { follow: follow.clone(), ..config.clone() });
        let _outcome = self.registry.configure(&handle, edit).await;
    }

    async fn view(&self, queue: &str, view: View, prefix: &str) -> Option<Objects> {
        objects_in(&self.queue(queue), view, prefix).await
    }

    /// Attaches all followers, and checks that each reaches the state of the queue that it follows.
    async fn finish(&mut self, seed: u64) {
        self.memory.repair();
        self.pass(Duration::from_mins(2)).await;
        for follower in FOLLOWERS {
            let handle = self.queue(follower.0);
            let edit =
                |config: &Config| Ok::<_, Error>(Config { follow: Some(follow(follower)), ..config.clone() });
            self.registry.configure(&handle, edit).await.expect("it follows");
        }
        for (name, followed, view, prefix, _) in FOLLOWERS {
            let mut tries = 0;
            loop {
                while self.work(name, 100, true).await > 0 {}
                let (wanted, got) =
                    (self.view(followed, view, prefix).await, self.view(name, View::Latest, "").await);
                if wanted.is_some() && wanted == got {
                    break;
                }
                tries += 1;
                assert!(tries < 600, "seed {seed}: {name} has {got:?}, and {followed} {wanted:?}");
                self.pass(Duration::from_secs(1)).await;
            }
        }
        self.check_journal(seed);
    }

    /// Checks by the journal that followers took each change once, and in order.
    fn check_journal(&mut self, seed: u64) {
        let (mut taken, mut taken_events) = (TakenChanges::default(), TakenEvents::default());
        let mut decoder = Decoder::new();
        let rows = self.memory.journal_rows();
        // The followed queue was created first, and the follower in mode events last.
        let (parent, each) = (rows.iter().map(|row| row.queue).min(), rows.iter().map(|row| row.queue).max());
        let incarnation = self.queue(PARENT).incarnation().0;
        for row in rows.iter().filter(|row| Some(row.queue) == parent) {
            for event in decoder.events(row).expect("readable rows") {
                taken_events.note_followed(incarnation, &event);
            }
        }
        for row in rows.iter().filter(|row| Some(row.queue) != parent) {
            for event in decoder.events(row).expect("readable rows") {
                // A later object of a key has a larger number.
                let number = |_: &str, object: &str| vec![number(&Object::from_valid(object))];
                let mut checked = taken.note(row.queue, &event, number);
                if Some(row.queue) == each {
                    checked = checked.and_then(|()| taken_events.note_follower(row.queue, "", &event));
                }
                checked.unwrap_or_else(|found| panic!("seed {seed}: {found}"));
            }
        }
        if taken_events.count > 20 {
            self.situations.insert("a follower took more than 20 events");
        }
    }
}

fn run(seed: u64) -> BTreeSet<&'static str> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut world = World::new(seed).await;
        for _ in 0..world.rng.usize(20..200) {
            world.step().await;
        }
        world.finish(seed).await;
        world.situations
    })
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the knobs of a test are no settings of the service")]
fn followers_reach_the_state_of_their_queue_and_take_each_change_once() {
    let seeds =
        std::env::var("DELTAQ_FOLLOWER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut situations = BTreeSet::new();
    for seed in 0..seeds {
        situations.extend(run(seed));
    }
    let all = ["a commit failed", "a crash", "a follower took more than 20 events"];
    assert_eq!(situations, BTreeSet::from(all), "the seeds cover this");
}

#[test]
fn a_page_is_taken_only_at_the_position_from_which_it_was_read() {
    let config = Config { follow: Some(follow(FOLLOWERS[0])), ..Config::default() };
    let mut queue = Queue::new(Arc::new(config), Rv::ZERO, Time::default());
    let began = queue.begin_follow_list(Time::default(), 1, Rv::new(9)).expect("nothing else runs");
    let changes = FollowPosition { after: Rv::new(9), phase: FollowPhase::Changes, ..began };
    let row = |key: &str| Row {
        kind: RowKind::Added,
        key: Key::new(key).expect("a key"),
        rv: Rv::new(10),
        object: Some(Object::from_valid("{}")),
        source: None,
        final_state_unknown: false,
        birth: None,
    };
    let later = FollowPosition { after: Rv::new(10), ..changes };
    let none = Comparison::default();
    assert_eq!(queue.take_rows(Time::default(), changes, &[row("a")], later, &none), Taken::Moved);
    assert_eq!((queue.keys(), queue.follow_position()), (0, Some(began)));
    assert_eq!(queue.take_rows(Time::default(), began, &[], changes, &none), Taken::All(changes));
    assert_eq!(queue.take_rows(Time::default(), changes, &[row("a")], later, &none), Taken::All(later));
    assert_eq!(queue.take_rows(Time::default(), changes, &[row("b")], later, &none), Taken::Moved);
    assert_eq!((queue.keys(), queue.follow_position()), (1, Some(later)));
}

#[test]
fn a_list_queues_no_object_that_is_only_written_in_another_way() {
    let config = Config { follow: Some(follow(FOLLOWERS[0])), ..Config::default() };
    let mut queue = Queue::new(Arc::new(config), Rv::ZERO, Time::default());
    let list = |queue: &mut Queue, object: &str| {
        let began = queue.begin_follow_list(Time::default(), 1, Rv::new(9)).expect("nothing else runs");
        let listing = FollowPosition { phase: FollowPhase::List { since: Rv::new(9) }, ..began };
        let end = FollowPosition { after: Rv::new(10), phase: FollowPhase::Changes, ..began };
        let row = Row {
            kind: RowKind::Added,
            key: Key::new("a").expect("a key"),
            rv: Rv::new(10),
            object: Some(Object::from_valid(object)),
            source: None,
            final_state_unknown: false,
            birth: None,
        };
        let none = Comparison::default();
        assert_eq!(queue.take_rows(Time::default(), began, &[], listing, &none), Taken::All(listing));
        let pairs = queue.compare_rows(listing.phase, std::slice::from_ref(&row));
        pairs.run();
        assert_eq!(queue.take_rows(Time::default(), listing, &[row], end, &pairs), Taken::All(end));
        queue.table().get("a").map_or(0, |entry| entry.waiting.len())
    };
    // An object of this size is not compared under the lock.
    let filler = "x".repeat(4_000);
    let object = |price: &str| format!(r#"{{"price":{price},"text":"{filler}"}}"#);
    assert_eq!(list(&mut queue, r#"{"price":4.90,"n":1}"#), 1);
    assert_eq!(list(&mut queue, r#"{"n":1.0, "price":4.9}"#), 1, "nothing is new");
    assert_eq!(list(&mut queue, &object("4.9")), 2);
    assert_eq!(list(&mut queue, &object("49e-1")), 2, "nothing is new");
    assert_eq!(list(&mut queue, &object("4.91")), 3);
}

/// Leases and acks are no events for a follower, so it lacks nothing if the journal drops them.
#[tokio::test(start_paused = true)]
async fn a_follower_of_events_passes_what_it_does_not_take_before_the_journal_drops_it() {
    let mut world = World::with(0, Retention { age: None, bytes: Some(0) }, 1).await;
    let obstacle = async |world: &World| {
        let document = world.registry.document(&world.queue(EACH)).await.expect("a document");
        document.follow.expect("a follower").obstacle
    };
    for round in 0..20 {
        let (key, object) = world.object();
        let call = Call { object: Some(object), ..Call::of_key(key, None) };
        let parent = world.queue(PARENT);
        parent.produce(&parent.config(), &[call]).await.expect("it is added");
        world.pass(Duration::from_secs(3)).await;
        assert_eq!(obstacle(&world).await, None, "round {round}");
        while world.work(EACH, 9, true).await > 0 {}
        for _ in 0..9 {
            world.work(PARENT, 1, false).await;
            world.pass(Duration::from_secs(20)).await;
        }
        if round % 7 == 6 {
            world.crash().await;
            world.pass(Duration::from_secs(3)).await;
        }
    }
    assert_eq!(obstacle(&world).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_follower_goes_on_after_a_detach_that_was_not_written() {
    let mut world = World::new(0).await;
    let handle = world.queue("all");
    world.memory.fault_at(world.memory.steps() + 1, Fault::Refused);
    let detach = |config: &Config| Ok::<_, Error>(Config { follow: None, ..config.clone() });
    assert!(world.registry.configure(&handle, detach).await.is_err());
    world.pass(Duration::from_mins(2)).await;
    assert!(handle.config().follow.is_some(), "the queue was loaded again");
    let followers = world.registry.followers_of(&name(PARENT));
    assert_eq!(followers, ["all", EACH, "slow", "some"].map(name));
    let (key, object) = world.object();
    let call = Call { object: Some(object), ..Call::of_key(key, None) };
    let parent = world.queue(PARENT);
    parent.produce(&parent.config(), &[call]).await.expect("the journal works again");
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(world.view("all", View::Latest, "").await, world.view(PARENT, View::Latest, "").await);
}
