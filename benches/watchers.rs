//! The cost of 1,000 watchers of one queue: of the changes that they get, and for the producers beside them; and how much a watcher
//! gets that was away for many changes.
//!
//! Targets: with one change per second less than 2 % of a core, and every watcher has the change after less than 50 ms (p99); adds
//! are at least 0.9 times as fast as without watchers; a watcher that was away for a million changes of 1,000 keys gets at most
//! 1,000 rows. The benchmark prints the targets and its measurements; only a lost or repeated row makes it fail.
//!
//! `WATCHERS`, `ADDS` and `CHANGES` set other sizes.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

mod spawned;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use serde_json::Value;
use spawned::{Connection, Spawned, percentile_ms};

/// Changes per second while the cost of the watchers is measured, and their number.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);
const MEASURED_CHANGES: u64 = 30;
/// Keys of the changes that a watcher misses.
const KEYS: u64 = 1_000;
/// Objects of one call of these changes.
const BATCH: u64 = 1_000;
/// The kernel's clock ticks per second. The ABI fixes this number.
const TICKS: f64 = 100.0;
const QUEUE: &str = "/v1/queues/watched";

/// A number from an environment variable.
#[expect(clippy::disallowed_methods, reason = "a switch of this benchmark, not a setting of the server")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Starts a watcher of the changes from now on. It sends the time at which it gets a row of the key "one", and counts the other rows.
fn watcher(server: &Spawned, query: &str, clock: &Clock, others: &Arc<AtomicU64>, got: &SyncSender<u64>) {
    let mut stream = TcpStream::connect(&server.address).expect("a connection");
    let head = format!(
        "GET {QUEUE}/watch?resource_version=now&bookmark=1m{query} HTTP/1.1\r\nhost: {}",
        server.address
    );
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).expect("the request is sent");
    let mut lines = BufReader::new(stream).lines();
    let status = lines.next().expect("a status").expect("text");
    assert!(status.contains(" 200 "), "{status}");
    let (clock, others, got) = (clock.clone(), others.clone(), got.clone());
    let follow = move || {
        for line in lines.map_while(Result::ok) {
            if line.contains("\"key\":\"one\"") {
                if got.send(clock.monotonic_us()).is_err() {
                    return;
                }
            } else if line.contains("\"key\"") {
                others.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::Builder::new().stack_size(64 << 10).spawn(follow).expect("a thread");
}

/// Adds objects one by one. Returns adds per second.
fn add_rate(server: &Spawned, clock: &Clock, adds: u64) -> f64 {
    let mut producer = server.connect();
    let begun_us = clock.monotonic_us();
    for number in 0..adds {
        producer.call("POST", &format!("{QUEUE}/add"), &format!(r#"{{"key":"add-{}"}}"#, number % KEYS));
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = adds as f64 / clock.since(begun_us).as_secs_f64();
    rate
}

/// Makes a change and waits until all watchers have it. Returns the time that each took, in microseconds.
fn deliver(clock: &Clock, control: &mut Connection, got: &Receiver<u64>, watchers: u64) -> Vec<u64> {
    let begun_us = clock.monotonic_us();
    control.call("POST", &format!("{QUEUE}/add"), r#"{"key":"one"}"#);
    (0..watchers).map(|_| got.recv().expect("a row").saturating_sub(begun_us)).collect()
}

/// A watch as a page of JSON.
fn page(server: &Spawned, query: &str) -> Value {
    let mut reader = server.connect();
    "accept: application/json\r\n".clone_into(&mut reader.headers);
    reader.call("GET", &format!("{QUEUE}/watch?{query}"), "")
}

/// What 1,000 watchers cost and get.
struct Measured {
    cpu_percent: f64,
    resident_kib: u64,
    /// From the begin of each change until each watcher had it, sorted.
    took_us: Vec<u64>,
    /// Adds per second without watchers and beside them.
    add_rates: [f64; 2],
    /// Rows of these adds per second, of all watchers together.
    rows_rate: f64,
}

/// Measures watchers with this query.
fn measure(clock: &Clock, query: &str) -> Measured {
    let (watchers, adds) = (number("WATCHERS", 1_000), number("ADDS", 20_000));
    let server = Spawned::start(&["--in-memory"]);
    let mut control = server.connect();
    control.call("PUT", QUEUE, r#"{"mode":"latest"}"#);
    add_rate(&server, clock, adds / 10);
    let without = add_rate(&server, clock, adds);
    let (others, (sender, got)) = (Arc::<AtomicU64>::default(), sync_channel(100_000));
    let before = server.memory("VmRSS:");
    (0..watchers).for_each(|_| watcher(&server, query, clock, &others, &sender));
    let resident_kib = server.memory("VmRSS:").saturating_sub(before) / 1024 / watchers.max(1);
    let mut took_us = Vec::new();
    let (used_s, begun_us) = (cpu_s(&server), clock.monotonic_us());
    for _ in 0..MEASURED_CHANGES {
        let next_us = clock.monotonic_us();
        took_us.extend(deliver(clock, &mut control, &got, watchers));
        thread::sleep(CHANGE_INTERVAL.saturating_sub(clock.since(next_us)));
    }
    let cpu_percent = (cpu_s(&server) - used_s) / clock.since(begun_us).as_secs_f64() * 100.0;
    assert!(got.try_recv().is_err(), "no watcher gets a change twice");
    took_us.sort_unstable();
    let begun_us = clock.monotonic_us();
    let with = add_rate(&server, clock, adds);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rows_rate = others.load(Ordering::Relaxed) as f64 / clock.since(begun_us).as_secs_f64();
    Measured { cpu_percent, resident_kib, took_us, add_rates: [without, with], rows_rate }
}

/// How many rows a watcher gets that was away for many changes.
fn rows_after(changes: u64) -> usize {
    let server = Spawned::start(&["--in-memory"]);
    let mut control = server.connect();
    control.call("PUT", QUEUE, r#"{"mode":"latest"}"#);
    // Version 0 would stand for all keys.
    control.call("POST", &format!("{QUEUE}/add"), r#"{"key":"missed-0"}"#);
    let version = page(&server, "resource_version=now").get("resource_version").cloned().expect("a version");
    for batch in 0..changes / BATCH {
        let objects: Vec<String> =
            (0..BATCH).map(|number| format!(r#"{{"key":"missed-{}","v":{batch}}}"#, number % KEYS)).collect();
        control.call("POST", &format!("{QUEUE}/add"), &format!("[{}]", objects.join(",")));
    }
    let missed = page(&server, &format!("resource_version={version}&limit=5000"));
    missed.get("items").and_then(Value::as_array).map_or(0, Vec::len)
}

fn main() {
    let clock = Clock::system();
    for (title, query) in [("all keys", ""), ("one key, while other keys are added", "&prefix=one")] {
        let Measured { cpu_percent, resident_kib, took_us, add_rates: [without, with], rows_rate } =
            measure(&clock, query);
        println!("{} watchers of {title}", number("WATCHERS", 1_000));
        println!("  CPU       {cpu_percent:.2} % of a core with one change per second (target < 2 %)");
        println!("  memory    {resident_kib} KiB resident each");
        println!(
            "  delivery  p50 {:.2} ms, p99 {:.2} ms to all watchers (target p99 < 50 ms)",
            percentile_ms(&took_us, 0.5),
            percentile_ms(&took_us, 0.99),
        );
        println!(
            "  adds      {with:.0}/s, {without:.0}/s without watchers: {:.2} times (target 0.9); {rows_rate:.0} rows/s",
            with / without
        );
    }
    let changes = number("CHANGES", 1_000_000);
    let rows = rows_after(changes);
    println!(
        "a watcher that was away: {rows} rows after {changes} changes of {KEYS} keys (target at most {KEYS})"
    );
}

/// CPU seconds that the server has used.
fn cpu_s(server: &Spawned) -> f64 {
    let stat = server.proc("stat");
    let after_name = stat.rsplit_once(") ").expect("a name in parentheses").1;
    // Fields 14 and 15 of proc(5) are utime and stime; the first field after the name is number 3.
    let ticks = after_name.split(' ').skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>() / TICKS
}
