//! Scrapes of 1,000 queues with 1,000,000 keys in all, while workers pop and acknowledge at a steady pace.
//!
//! Targets: a scrape takes less than 200 ms, and the p99 of a pop is the same with one scrape per second as without. The
//! benchmark prints its measurements and never fails because of them.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

mod spawned;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use serde_json::Value;
use spawned::{Connection, Spawned, millis, percentile_ms};

const QUEUES: usize = 1_000;
const KEYS_EACH: usize = 1_000;
const WORKERS: usize = 4;
/// Interval between the pops of a worker, in microseconds: 500 pops per second in all.
const PACE_US: u64 = 8_000;
const SCRAPES: u64 = 50;
const SCRAPE_PERIOD_US: u64 = 1_000_000;
/// Length of the measurement without scrapes.
const UNDISTURBED: Duration = Duration::from_secs(30);
/// The least number of series of a queue.
const SERIES_EACH: usize = 60;

fn main() {
    let clock = Clock::system();
    let server = Spawned::start(&["--in-memory"]);
    fill(&server);
    println!("{QUEUES} queues with {KEYS_EACH} keys each; {WORKERS} workers pop and ack every {PACE_US} us");
    let (alone, ()) = pop_during(&clock, &server, 0, || std::thread::sleep(UNDISTURBED));
    print_pops("without scrapes", &alone);
    let (disturbed, (scrapes, bytes)) = pop_during(&clock, &server, QUEUES / 2, || scrape(&clock, &server));
    print_pops("with one scrape per second", &disturbed);
    println!(
        "  scrapes  {SCRAPES} of {:.1} MiB: p50 {:.1} ms, max {:.1} ms (target < 200 ms)",
        mib(bytes),
        percentile_ms(&scrapes, 0.5),
        scrapes.last().copied().map_or(0.0, millis),
    );
    println!("  memory   {:.0} MiB resident", mib(server.memory("VmRSS:")));
}

fn fill(server: &Spawned) {
    let mut connection = server.connect();
    for queue in 0..QUEUES {
        let objects: Vec<String> =
            (0..KEYS_EACH).map(|key| format!(r#"{{"key":"k{key}","price":{}}}"#, key % 100)).collect();
        connection.call("POST", &format!("{}/add", path(queue)), &format!("[{}]", objects.join(",")));
    }
}

fn path(queue: usize) -> String {
    format!("/v1/queues/q{:04}", queue % QUEUES)
}

/// Scrapes at a steady pace. Returns the sorted durations in microseconds and the bytes of the last page.
fn scrape(clock: &Clock, server: &Spawned) -> (Vec<u64>, u64) {
    let mut connection = server.connect();
    let (begun_us, mut took, mut bytes) = (clock.monotonic_us(), Vec::new(), 0);
    for number in 0..SCRAPES {
        std::thread::sleep(clock.until(begun_us + number * SCRAPE_PERIOD_US));
        let started_us = clock.monotonic_us();
        connection.send("GET", "/metrics", "");
        let page = connection.body();
        took.push(clock.monotonic_us() - started_us);
        bytes = page.len() as u64;
        assert!(lines_of(&page, "q0999") >= SERIES_EACH, "the page has a line for each series of a queue");
    }
    took.sort_unstable();
    (took, bytes)
}

fn lines_of(page: &[u8], queue: &str) -> usize {
    let label = format!("=\"{queue}\"");
    String::from_utf8_lossy(page).lines().filter(|line| line.contains(&label)).count()
}

/// Lets the workers pop while `task` runs. Returns the sorted durations of the pops in microseconds and the task's result.
fn pop_during<T>(clock: &Clock, server: &Spawned, first: usize, task: impl FnOnce() -> T) -> (Vec<u64>, T) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = |number| work(clock, server.connect(), first + number, &stop);
        let working: Vec<_> = (0..WORKERS).map(|number| scope.spawn(move || worker(number))).collect();
        let done = task();
        stop.store(true, Ordering::SeqCst);
        let ended = working.into_iter().flat_map(|worker| worker.join().expect("a worker ends"));
        let mut took: Vec<u64> = ended.collect();
        took.sort_unstable();
        (took, done)
    })
}

/// Pops from one queue after the other and acknowledges each key in the next pop at its queue. A pop is timed from the moment
/// at which it was due, because otherwise a stall would be a single sample.
fn work(clock: &Clock, mut connection: Connection, first: usize, stop: &AtomicBool) -> Vec<u64> {
    let (begun_us, mut took, mut queue) = (clock.monotonic_us(), Vec::new(), first);
    let mut settle = "{}".to_owned();
    for number in 0.. {
        let due_us = begun_us + number * PACE_US;
        std::thread::sleep(clock.until(due_us));
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let popped = connection.call("POST", &format!("{}/pop", path(queue)), &settle);
        took.push(clock.monotonic_us() - due_us);
        let lease = popped.pointer("/items/0/lease/id").and_then(Value::as_str).expect("a key is ready");
        settle = format!(r#"{{"settle":[{{"lease_id":"{lease}","as":"ack"}}]}}"#);
        // The second of two pops at each queue acknowledges the key of the first.
        if number % 2 == 1 {
            connection.call("POST", &format!("{}/settle", path(queue)), &settle);
            "{}".clone_into(&mut settle);
            queue += WORKERS;
        }
    }
    took
}

fn print_pops(title: &str, sorted: &[u64]) {
    println!(
        "  pops     {title}: {}, p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        sorted.len(),
        percentile_ms(sorted, 0.5),
        percentile_ms(sorted, 0.99),
        sorted.last().copied().map_or(0.0, millis),
    );
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
