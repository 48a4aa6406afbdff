//! The parameters of a run: the queues, the callers, the readers and followers, and the sizes of the writer's steps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{HoldScope, How};
use deltaq_engine::config::{Config, Debounce, GroupBy, GroupRules, Order, OrderValue};
use deltaq_engine::feed::TombstoneLimits;
use deltaq_engine::follow::Follow;
use deltaq_engine::pointer::Pointer;
use deltaq_engine::rate::Rate;
use deltaq_engine::rate_limit::{ItemExponential, RateLimiter};
use deltaq_engine::schedule::HeadStart;
use deltaq_engine::view::View;
use deltaq_journal::WriterOptions;
use deltaq_service::{Name, WatchLimits};
use deltaq_types::{Mode, Retention};
use fastrand::Rng;

/// The parameters of a queue.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) name: Name,
    pub(super) config: Arc<Config>,
    /// Maximum number of keys.
    pub(super) keys: usize,
}

/// The parameters of a follower.
#[derive(Clone, Debug)]
pub(super) struct FollowerSetup {
    pub(super) name: Name,
    /// The settings without `follow`.
    pub(super) config: Arc<Config>,
    pub(super) follow: Arc<Follow>,
    /// The longest pause of its worker.
    pub(super) pause_ms: u64,
}

/// The parameters of a reader.
#[derive(Clone, Debug)]
pub(super) struct ReaderSetup {
    pub(super) queue: Name,
    pub(super) view: View,
    pub(super) prefix: &'static str,
    /// The longest time between two connections.
    pub(super) pause_ms: u64,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) queues: Vec<Setup>,
    pub(super) followers: Vec<FollowerSetup>,
    pub(super) readers: Vec<ReaderSetup>,
    pub(super) watch: WatchLimits,
    /// Whether `watch` keeps all tombstones.
    pub(super) forgets_nothing: bool,
    pub(super) pace: WriterOptions,
    /// Calls of each caller.
    pub(super) callers: Vec<u32>,
    /// How often a caller disconnects before the reply, in percent.
    pub(super) leaves: u32,
    /// Number of runs of the node with faults.
    pub(super) lives: u32,
    /// The longest pause between two calls of a caller.
    pub(super) pause_ms: u64,
    /// The longest time between two faults.
    pub(super) calm_ms: u64,
}

/// Longer than a run takes, with all changes of the wall clock.
const AGE: Duration = Duration::from_hours(24 * 365 * 100);

impl Plan {
    /// The names of all queues.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        let followers = self.followers.iter().map(|setup| &setup.name);
        self.queues.iter().map(|setup| &setup.name).chain(followers)
    }
}

pub(super) fn millis(rng: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

/// A random way to settle a lease.
pub(super) fn how(rng: &mut Rng) -> How {
    // A generator of its own, so that the other choices of a seed do not depend on holds.
    let mut holds = Rng::with_seed(rng.get_seed());
    let how = plain_how(rng);
    match how {
        How::Ack | How::Release if holds.u8(..8) == 0 => {
            let scope = [HoldScope::Queue, HoldScope::Group, HoldScope::Key][holds.usize(..3)];
            How::Hold { scope, acks: how == How::Ack, length: millis(&mut holds, 1..3_000) }
        }
        how => how,
    }
}

fn plain_how(rng: &mut Rng) -> How {
    match rng.u8(..10) {
        0..6 => How::Ack,
        6..8 => How::Nack {
            delay: (rng.u8(..3) == 0).then(|| millis(rng, 0..3_000)),
            floor: rng.u8(..4) == 0,
            error: None,
        },
        8 => How::Release,
        _ => How::Reject { error: None },
    }
}

impl Plan {
    pub(super) fn of(rng: &mut Rng) -> Self {
        let queues: Vec<Setup> = (0..rng.usize(2..=4)).map(|index| setup(rng, index)).collect();
        let followers = followers(rng, &queues);
        let readers = readers(rng, &queues, &followers);
        let forgets_nothing = rng.u8(..3) > 0;
        let count = if forgets_nothing { usize::MAX } else { rng.usize(..5) };
        let tombstones = TombstoneLimits { count, bytes: usize::MAX, age: AGE };
        let chunk_bytes = rng.usize(1..2_000);
        let pace = WriterOptions {
            growth_bytes_min: rng.u64(300..6_000),
            chunk_bytes: chunk_bytes..=chunk_bytes + rng.usize(..4_000),
            run_bytes: rng.usize(1..1_500),
            state_bytes_min: rng.u64(1..6_000),
            captured: rng.usize(1..6),
            examined: rng.usize(1..10),
            segment_bytes: rng.u64(100..1_500),
            ..WriterOptions::default()
        };
        Self {
            queues,
            followers,
            readers,
            watch: WatchLimits { idle: millis(rng, 100..20_000), tombstones },
            forgets_nothing,
            pace,
            callers: (0..rng.usize(2..=5)).map(|_| rng.u32(15..70)).collect(),
            leaves: *rng.choice(&[0, 10, 30]).unwrap_or(&0),
            lives: rng.u32(1..8),
            pause_ms: *rng.choice(&[2, 30, 400]).unwrap_or(&2),
            calm_ms: *rng.choice(&[200, 1_500, 6_000]).unwrap_or(&200),
        }
    }
}

/// Followers of some of the queues. The second follower may follow the first one.
fn followers(rng: &mut Rng, queues: &[Setup]) -> Vec<FollowerSetup> {
    let can_be_followed = |setup: &&Setup| setup.config.mode != Mode::Keys && setup.config.known_objects;
    let mut followed: Vec<Name> =
        queues.iter().filter(can_be_followed).map(|setup| setup.name.clone()).collect();
    let mut followers = Vec::new();
    for index in 0..rng.usize(..3) {
        let Some(queue) = rng.choice(&followed).cloned() else { break };
        let name = Name::new(&format!("f{index}")).expect("it is a name");
        let view = if rng.bool() { View::Known } else { View::Latest };
        let prefix = if rng.u8(..4) == 0 { "k1" } else { "" };
        let max_waiting = *rng.choice(&[2, 1_000]).unwrap_or(&2);
        let follow = Follow { queue: queue.as_str().into(), view, prefix: prefix.into(), max_waiting };
        let config =
            Config { resync_period: None, max_failures: 0, ..Config::clone(&setup(rng, index).config) };
        let mode = *rng.choice(&[Mode::Delta, Mode::Latest, Mode::Events]).unwrap_or(&Mode::Delta);
        let view = if mode == Mode::Events { View::Latest } else { view };
        let follow = Follow { view, ..follow };
        let debounce = config.debounce.filter(|_| mode != Mode::Events);
        let config = Arc::new(Config { mode, debounce, known_objects: true, ..config });
        let pause_ms = *rng.choice(&[20, 500, 3_000]).unwrap_or(&20);
        followed.push(name.clone());
        followers.push(FollowerSetup { name, config, follow: Arc::new(follow), pause_ms });
    }
    followers
}

/// Readers of some of the views, at different speeds.
fn readers(rng: &mut Rng, queues: &[Setup], followers: &[FollowerSetup]) -> Vec<ReaderSetup> {
    let names = queues.iter().map(|setup| &setup.name).chain(followers.iter().map(|setup| &setup.name));
    let views = names.flat_map(|name| View::ALL.map(|view| (name.clone(), view)));
    let mut readers = Vec::new();
    for (queue, view) in views {
        for _ in 0..rng.usize(..3) {
            let prefix = if rng.u8(..4) == 0 { "k1" } else { "" };
            let pause_ms = *rng.choice(&[3, 300, 5_000, 30_000]).unwrap_or(&3);
            readers.push(ReaderSetup { queue: queue.clone(), view, prefix, pause_ms });
        }
    }
    readers
}

/// The debounce of every third queue. Its random numbers are its own, so that the other choices of a seed do not depend on it.
fn debounce(rng: &mut Rng) -> Option<Debounce> {
    let (quiet, more) = (millis(rng, 1..2_000), millis(rng, 0..6_000));
    let max_wait = rng.bool().then_some(quiet + more);
    let (delivers_deletes_now, debounces_lists) = (rng.bool(), rng.bool());
    (rng.u8(..3) == 0).then_some(Debounce { quiet, max_wait, delivers_deletes_now, debounces_lists })
}

/// The order of every third queue. As for the debounce, its random numbers are its own.
fn order(rng: &mut Rng) -> Option<Order> {
    let mut lists = || rng.bool().then(|| HeadStart::from_micros(rng.i64(-3_000_000..3_000_000)));
    let (initial_list, resync) = (lists(), lists());
    let pointer = Pointer::parse("/id", false).expect("it is a pointer");
    let step = rng.bool().then(|| millis(rng, 1..500));
    let value = rng.bool().then_some(OrderValue::Priority { pointer, step });
    (rng.u8(..3) == 0).then_some(Order { value, initial_list, resync })
}

/// The limits of every third queue. As for the debounce, their random numbers are their own.
fn limits(rng: &mut Rng) -> (Option<u64>, Option<Rate>) {
    let most = rng.bool().then(|| rng.u64(1..4));
    let rate =
        rng.bool().then(|| Rate { per_1000_seconds: rng.u64(20_000..2_000_000), burst: rng.u64(1..5) });
    if rng.u8(..3) == 0 { (most, rate) } else { (None, None) }
}

/// The groups of every third queue, by sources or, in mode keys, by the beginnings of keys.
fn groups(rng: &mut Rng, mode: Mode) -> Option<Arc<GroupRules>> {
    let by = if mode == Mode::Keys { GroupBy::KeyPrefix("1".into()) } else { GroupBy::Source };
    let max_leased = rng.bool().then(|| rng.u64(1..3));
    let rate = |rng: &mut Rng| Rate { per_1000_seconds: rng.u64(20_000..2_000_000), burst: rng.u64(1..5) };
    (rng.u8(..3) == 0).then(|| {
        let rate = (rng.u8(..3) == 0).then(|| rate(rng));
        Arc::new(GroupRules { by, max_leased, rate, overrides: BTreeMap::new() })
    })
}

fn setup(rng: &mut Rng, index: usize) -> Setup {
    let modes = [Mode::Delta, Mode::Delta, Mode::Latest, Mode::Keys, Mode::Events];
    let mode = *rng.choice(&modes).unwrap_or(&Mode::Delta);
    let backoff = ItemExponential { base: millis(rng, 1..200), max: millis(rng, 200..3_000) };
    let limiter = RateLimiter { item_exponential: Some(backoff), ..RateLimiter::default() };
    let config = Config {
        mode,
        known_objects: mode == Mode::Keys || rng.u8(..4) > 0,
        lease: millis(rng, 200..10_000),
        max_failures: *rng.choice(&[0, 1, 3]).unwrap_or(&0),
        rate_limiter: RateLimiter { item_fast_slow: None, bucket: None, ..limiter },
        // No queue of mode keys is stored with one.
        resync_period: (rng.u8(..6) == 0).then(|| millis(rng, 1_000..9_000)).filter(|_| mode != Mode::Keys),
        retention: Retention {
            age: (rng.u8(..4) == 0).then(|| millis(rng, 500..20_000).into()),
            bytes: (rng.u8(..8) > 0).then(|| rng.u64(..4_000)),
        },
        ..Config::default()
    };
    let name = Name::new(&format!("q{index}")).expect("it is a name");
    let debounce = debounce(&mut Rng::with_seed(!rng.get_seed())).filter(|_| mode != Mode::Events);
    let order = order(&mut Rng::with_seed(rng.get_seed().rotate_left(32)));
    let (max_leased, rate) = limits(&mut Rng::with_seed(rng.get_seed().rotate_left(16)));
    let groups = groups(&mut Rng::with_seed(!rng.get_seed().rotate_left(16)), mode);
    Setup {
        name,
        config: Arc::new(Config { debounce, order, groups, max_leased, rate, ..config }),
        keys: if rng.u8(..6) == 0 { rng.usize(10..40) } else { rng.usize(1..10) },
    }
}

/// The head start of every fourth call.
pub(super) fn head_start(number: u64) -> Option<HeadStart> {
    let micros = i64::try_from(number * 7_919 % 4_000).unwrap_or_default() * 1_000 - 2_000_000;
    number.is_multiple_of(4).then(|| HeadStart::from_micros(micros))
}
