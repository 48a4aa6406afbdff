//! The engine alone, on one thread: the time of a command, and the memory of a key.
//!
//! divan measures the parts one by one. Figures with a target are printed as plain lines, `<name> <number>`. Each part of a round
//! counts with its fastest time of several rounds, because other work on the machine can only make it slower. No figure makes the
//! benchmark fail.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

use std::ops::Range;
use std::sync::Arc;

use deltaq_engine::Queue;
use deltaq_engine::command::{Call, How, Pop, Settle};
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::id::{Rv, Token};
use deltaq_engine::key::{Key, KeySpec};
use deltaq_engine::object::{self, Object};
use deltaq_engine::time::Time;
use deltaq_runtime::clock::Clock;
use divan::Bencher;
// mimalloc replaces the system's allocator, also below the counting allocator.
use mimalloc as _;

const OBJECT_BYTES: usize = 256;
/// Keys of the cycles. All of them are known.
const CYCLE_KEYS: u64 = 100_000;
/// Keys of a queue that is filled and drained.
const FILL_KEYS: u64 = 1_000_000;
/// Calls that are prepared before a timed part. Their number is small, so they stay in the processor's cache, like calls that a
/// server has just read.
const READY: usize = 1_000;
/// Samples of a thousand calls each, so that each of [`CYCLE_KEYS`] is used once.
const SAMPLES: u32 = 100;
const ROUNDS: usize = 5;

fn main() {
    // Counting allocations takes about as long as allocating.
    allocation_counter::opt_out(|| {
        divan::main();
        println!("cycle_ns {:.0}", cycle_ns());
        println!("fill_drain_ns {:.0}", fill_drain_ns());
    });
    println!("waiting_key_bytes {:.1}", waiting_key_bytes());
    println!("drained_key_bytes {:.1}", drained_key_bytes());
}

/// Time of add, pop and ack of one key, over [`CYCLE_KEYS`] known keys.
fn cycle_ns() -> f64 {
    let mut bench = Bench::new(true);
    bench.cycles(0..CYCLE_KEYS);
    fastest_ns(|| bench.cycles(0..CYCLE_KEYS), CYCLE_KEYS)
}

/// Time of adds of [`FILL_KEYS`] keys and of a pop and an ack of each.
fn fill_drain_ns() -> f64 {
    let fill_and_drain = || {
        let mut bench = Bench::new(true);
        let fill_us = bench.fill(FILL_KEYS);
        [fill_us, bench.drain()].concat()
    };
    fastest_ns(fill_and_drain, FILL_KEYS)
}

/// Time per key, if each part of a round takes as long as in its fastest round.
fn fastest_ns(mut round: impl FnMut() -> Vec<u64>, keys: u64) -> f64 {
    let mut fastest_us = round();
    for _ in 1..ROUNDS {
        for (fastest_us, part_us) in fastest_us.iter_mut().zip(round()) {
            *fastest_us = part_us.min(*fastest_us);
        }
    }
    let sum = std::time::Duration::from_micros(fastest_us.iter().sum());
    sum.as_secs_f64() * 1e9 / f64::from(u32::try_from(keys).expect("fewer than 2^32 keys"))
}

/// Memory of a waiting key without its object.
fn waiting_key_bytes() -> f64 {
    let mut bench = Bench::new(true);
    let left = left_bytes(|| drop(bench.fill(FILL_KEYS)));
    per_key_bytes(left) - bytes(OBJECT_BYTES)
}

/// Memory that remains per removed key: acknowledged in a queue without known objects, or deleted in a queue with them.
fn drained_key_bytes() -> f64 {
    let mut bench = Bench::new(false);
    let acked = left_bytes(|| {
        bench.fill(FILL_KEYS);
        bench.drain();
    });
    let mut bench = Bench::new(true);
    let deleted = left_bytes(|| {
        bench.fill(FILL_KEYS);
        bench.drain();
        bench.delete_all(FILL_KEYS);
        bench.drain();
    });
    per_key_bytes(acked.max(deleted))
}

/// Bytes that `run` leaves allocated.
fn left_bytes(run: impl FnOnce()) -> i64 {
    allocation_counter::measure(run).bytes_current
}

fn per_key_bytes(all: i64) -> f64 {
    bytes(usize::try_from(all).unwrap_or_default())
        / bytes(usize::try_from(FILL_KEYS).expect("the count fits into usize"))
}

fn bytes(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("less than 4 GiB"))
}

/// A queue, used as the service does: its effects are taken after each command.
struct Bench {
    queue: Queue,
    now_us: u64,
    clock: Clock,
}

impl Bench {
    fn new(known_objects: bool) -> Self {
        let config = Config { known_objects, ..Config::default() };
        let now_us = 1_700_000_000_000_000;
        let queue = Queue::new(Arc::new(config), Rv::ZERO, Time::from_micros(now_us));
        Self { queue, now_us, clock: Clock::system() }
    }

    /// A queue with this many ready keys.
    fn filled(keys: u64) -> Self {
        let mut bench = Self::new(true);
        bench.fill(keys);
        bench
    }

    /// Adds new keys. Returns the microseconds that each thousand took, as do the following functions.
    fn fill(&mut self, keys: u64) -> Vec<u64> {
        self.timed(0..keys, Self::add)
    }

    /// Adds, pops and acknowledges the keys one by one.
    fn cycles(&mut self, keys: Range<u64>) -> Vec<u64> {
        self.timed(keys, |bench, call| {
            bench.add(call);
            bench.pop_and_ack();
        })
    }

    /// Pops and acknowledges all ready keys.
    fn drain(&mut self) -> Vec<u64> {
        let mut parts_us = Vec::new();
        while self.queue.has_ready(Time::from_micros(self.now_us)) {
            let start_us = self.clock.monotonic_us();
            (0..READY).for_each(|_| self.pop_and_ack());
            parts_us.push(self.clock.monotonic_us() - start_us);
        }
        parts_us
    }

    fn delete_all(&mut self, keys: u64) {
        let delete = |call| Call { kind: DeltaKind::Deleted, object: None, ..call };
        self.timed(0..keys, |bench, call| bench.add(delete(call)));
    }

    fn timed(&mut self, keys: Range<u64>, mut run: impl FnMut(&mut Self, Call)) -> Vec<u64> {
        let mut parts_us = Vec::new();
        for start in keys.step_by(READY) {
            let calls: Vec<Call> = (start..).take(READY).map(call).collect();
            let start_us = self.clock.monotonic_us();
            for call in calls {
                run(self, call);
            }
            parts_us.push(self.clock.monotonic_us() - start_us);
        }
        parts_us
    }

    fn add(&mut self, call: Call) {
        let now = self.tick();
        self.queue.produce(now, &[call]).expect("no refusal");
        self.take();
    }

    fn pop(&mut self) -> Token {
        let now = self.tick();
        let items = self.queue.pop(now, &a_pop()).expect("the queue is open");
        self.take();
        items.first().map(|item| item.token).unwrap_or_default()
    }

    fn ack(&mut self, token: Token) {
        let now = self.tick();
        divan::black_box(self.queue.settle(now, &[Settle { token, how: How::Ack }]));
        self.take();
    }

    fn pop_and_ack(&mut self) {
        let token = self.pop();
        self.ack(token);
    }

    fn take(&mut self) {
        drop(divan::black_box(self.queue.take_effects()));
    }

    fn tick(&mut self) -> Time {
        self.now_us += 1;
        Time::from_micros(self.now_us)
    }
}

fn a_pop() -> Pop {
    Pop { max: 1, max_bytes: 4 << 20, lease: None, worker: None, id: None, with_known: false, group: None }
}

fn call(number: u64) -> Call {
    let (key, object) = keyed(number);
    Call {
        kind: DeltaKind::Added,
        key,
        object: Some(object),
        source: None,
        delay: None,
        debounce: None,
        head_start: None,
        final_state_unknown: false,
        rate_limited: false,
        trace: None,
        version: None,
    }
}

/// A key and its object in memory of their own, as after reading a request.
fn keyed(number: u64) -> (Key, Object) {
    let text = text(number);
    (Key::new(&name(number)).expect("a key"), Object::from_valid(&text))
}

/// Names of equal length, in random order.
fn name(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    format!("sku-{mixed:010x}")
}

fn text(number: u64) -> String {
    let name = name(number);
    let text = format!(
        r#"{{"key":"{name}","title":"A thing that is sold","price":1999,"currency":"EUR","stock":{},"tags":["new","blue"],"size":{{"width":10.5,"height":4}},"active":true,"note":""#,
        number % 100
    );
    let room = OBJECT_BYTES - text.len() - r#""}"#.len();
    format!("{text}{}\"}}", "x".repeat(room))
}

#[divan::bench]
fn scan(bencher: Bencher<'_, '_>) {
    let (text, spec) = (text(0), KeySpec::default());
    bencher.bench_local(|| object::scan(divan::black_box(&text), &spec).is_ok());
}

/// Adds a known key.
#[divan::bench(sample_size = 1_000, sample_count = SAMPLES)]
fn add(bencher: Bencher<'_, '_>) {
    let mut bench = Bench::filled(CYCLE_KEYS);
    bench.drain();
    let mut numbers = (0..CYCLE_KEYS).cycle();
    bencher.with_inputs(|| call(numbers.next().expect("the cycle is endless"))).bench_local_values(|call| {
        bench.add(call);
    });
}

#[divan::bench(sample_size = 1_000, sample_count = SAMPLES)]
fn pop(bencher: Bencher<'_, '_>) {
    let mut bench = Bench::filled(CYCLE_KEYS);
    bencher.bench_local(|| bench.pop());
}

#[divan::bench(sample_size = 1_000, sample_count = SAMPLES)]
fn ack(bencher: Bencher<'_, '_>) {
    let mut bench = Bench::filled(CYCLE_KEYS);
    let tokens: Vec<Token> = (0..CYCLE_KEYS).map(|_| bench.pop()).collect();
    let mut tokens = tokens.into_iter();
    bencher
        .with_inputs(|| tokens.next().expect("one lease per ack"))
        .bench_local_values(|token| bench.ack(token));
}

/// A Replace of 1,000 known objects.
#[divan::bench]
fn replace_unchanged(bencher: Bencher<'_, '_>) {
    use deltaq_engine::command::{Progress, Replace};

    let mut bench = Bench::filled(1_000);
    bench.drain();
    let list = || Replace { only_changed: true, ..Replace::new((0..1_000).map(keyed).collect(), None) };
    bencher.with_inputs(list).bench_local_values(|replace| {
        let now = bench.tick();
        let id = bench.queue.accept_replace(now, replace).expect("the Replace is accepted");
        while matches!(bench.queue.replace_step(now, id, 1_000), Ok(Progress::More)) {}
        bench.queue.take_effects()
    });
}
