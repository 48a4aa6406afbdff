//! The cost of durability: adds and cycles with an fsync before each reply, with a running checkpoint, starts
//! with many keys, and bytes on disk.
//!
//! Arguments select scenarios: `commits`, `checkpoint`, `start`, `disk`. The benchmark prints its measurements
//! and never fails because of them.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

mod spawned;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use parking_lot::Mutex;
use serde_json::Value;
use spawned::{Connection, Spawned, percentile_ms};

const OBJECT_BYTES: usize = 256;
const QUEUE: &str = "/v1/queues/bench";
/// How long each rate is measured.
const MEASURED: Duration = Duration::from_secs(5);
/// Keys of the larger scenarios.
const KEYS: u64 = 1_000_000;
/// How often a changing rate is sampled.
const SAMPLED: Duration = Duration::from_millis(100);
/// Objects in a request where the speed of requests does not matter.
const BATCH: u64 = 1_000;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let clock = Clock::system();
    if runs("commits") {
        commits(&clock);
    }
    if runs("checkpoint") {
        checkpoint(&clock);
    }
    if runs("start") {
        start(&clock);
    }
    if runs("disk") {
        disk();
    }
}

/// A data directory that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("journal-{}", std::process::id()));
        let _absent = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn server(&self) -> Spawned {
        Spawned::start(&["--data-dir", self.0.to_str().expect("a path in UTF-8")])
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// Adds of distinct keys, and cycles of an add and a pop that acks the previous lease, one request at a time on
/// each connection.
fn commits(clock: &Clock) {
    println!("Requests with an fsync before each reply, {OBJECT_BYTES}-byte objects, distinct keys");
    println!("  connections       add/s   commits/s    p50 ms    p99 ms    cycles/s    events/s");
    for connections in [1, 8, 64, 256] {
        let folder = Folder::new();
        let server = folder.server();
        let next = AtomicU64::new(0);
        let add = |connection: &mut Connection, _: usize| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            connection.call("POST", &format!("{QUEUE}/add"), &object(number, 0));
        };
        let before = Counts::of(&server);
        let (adds, latencies_us) = rate(clock, &server, connections, &add);
        let after = Counts::of(&server);
        let commits = adds * (after.commits - before.commits) / (after.events - before.events);
        let (p50, p99) = (percentile_ms(&latencies_us, 0.5), percentile_ms(&latencies_us, 0.99));
        let leases: Vec<Mutex<String>> = (0..connections).map(|_| Mutex::default()).collect();
        let (cycles, _) = rate(clock, &server, connections, &|connection, index| {
            add(connection, index);
            let lease = leases.get(index).expect("one lease per connection");
            let mut lease = lease.lock();
            *lease = pop(connection, &lease);
        });
        // A cycle is three events: appended, leased, settled.
        let events = 3.0 * cycles;
        println!(
            "  {connections:>11}  {adds:>10.0}  {commits:>10.0}  {p50:>8.2}  {p99:>8.2}  {cycles:>10.0}  {events:>10.0}"
        );
    }
}

/// Cycles of update, pop and ack of random keys, without and with a running checkpoint.
fn checkpoint(clock: &Clock) {
    let folder = Folder::new();
    let server = folder.server();
    seed(&server, KEYS);
    // The checkpoint at the stop covers everything, so the next one begins some seconds after the load.
    stop(server);
    let server = folder.server();
    println!(
        "Update, pop and ack of keys spread over {KEYS}, 64 connections, batches of 10, fsync before replies"
    );
    let (number, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let samples = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..64 {
            let (mut connection, number, stop) = (server.connect(), &number, &stop);
            scope.spawn(move || {
                let mut lease = String::from("[]");
                while !stop.load(Ordering::Relaxed) {
                    let first = number.fetch_add(10, Ordering::Relaxed);
                    let batch: Vec<String> = (first..first + 10).map(|n| object(spread(n), n)).collect();
                    connection.call("POST", &format!("{QUEUE}/update"), &format!("[{}]", batch.join(",")));
                    let settle = format!("{{\"settle\":{lease}}}");
                    let popped = connection.call("POST", &format!("{QUEUE}/pop?max=10"), &settle);
                    lease = settles(&popped);
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let sample = (clock.monotonic_us(), number.load(Ordering::Relaxed));
                samples.lock().push(sample);
                std::thread::sleep(SAMPLED);
            }
        });
        let rate = |from: u64, to: u64| {
            let samples = samples.lock();
            let at = |us: u64| samples.iter().rev().find(|sample| sample.0 <= us).copied().expect("a sample");
            let ((begun_us, first), (ended_us, last)) = (at(from), at(to));
            // Appended, leased, settled.
            3.0 * count(last - first) / Duration::from_micros(ended_us - begun_us).as_secs_f64()
        };
        std::thread::sleep(SAMPLED);
        let idle_from = clock.monotonic_us();
        let (begun_us, ended_us) = next_checkpoint(clock, &server);
        let (without, with) = (rate(idle_from, begun_us), rate(begun_us, ended_us));
        println!("  without {without:.0} events/s, during the first one {with:.0}: {:.2}", with / without);
        // The load changes so much that each checkpoint begins as soon as the previous one has ended.
        for _ in 0..3 {
            let (begun_us, ended_us) = next_checkpoint(clock, &server);
            println!(
                "  {:.0} events/s, the checkpoint took {:.1} s; {}",
                rate(begun_us, ended_us),
                Duration::from_micros(ended_us - begun_us).as_secs_f64(),
                disk_size(&server)
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Waits until the next checkpoint ends. Returns its start, computed from its duration, and its end.
fn next_checkpoint(clock: &Clock, server: &Spawned) -> (u64, u64) {
    let before = Counts::of(server);
    loop {
        std::thread::sleep(SAMPLED);
        let counts = Counts::of(server);
        if counts.checkpoints > before.checkpoints {
            let ended_us = clock.monotonic_us();
            let took = Duration::from_secs_f64(counts.checkpoints_s - before.checkpoints_s);
            return (ended_us - u64::try_from(took.as_micros()).unwrap_or_default(), ended_us);
        }
    }
}

/// The time from the start of the process until the server is ready.
fn start(clock: &Clock) {
    let folder = Folder::new();
    let server = folder.server();
    seed(&server, KEYS);
    let mut connection = server.connect();
    for first in (KEYS..2 * KEYS).step_by(10_000) {
        connection.call("POST", &format!("{QUEUE}/add"), &objects(first, 10_000));
    }
    println!(
        "Start with {KEYS} known objects of {OBJECT_BYTES} bytes and {KEYS} other ready keys (target 5 s)"
    );
    drop(server);
    for title in ["after kill -9, journal to replay", "after a checkpoint"] {
        let begun_us = clock.monotonic_us();
        let server = folder.server();
        let took = clock.since(begun_us).as_secs_f64();
        let memory = server.memory("VmHWM:") >> 20;
        println!("  {title:<32} {took:.2} s, peak {memory} MiB; {}", disk_size(&server));
        stop(server);
    }
}

/// Bytes on disk per event, and after writing ten times the live data.
fn disk() {
    let keys = KEYS / 2;
    let folder = Folder::new();
    let server = folder.server();
    seed(&server, keys);
    let live = keys * (OBJECT_BYTES as u64 + 10);
    println!("Bytes on disk: {keys} keys of {OBJECT_BYTES} bytes, {} MiB live data", live >> 20);
    println!("  after the seed: {}", disk_size(&server));
    let before = Counts::of(&server);
    let mut connection = server.connect();
    let mut lease = String::from("[]");
    for round in 1..=10 {
        for first in (0..keys).step_by(usize::try_from(BATCH).unwrap_or(1)) {
            let body: Vec<String> = (first..first + BATCH).map(|number| object(number, round)).collect();
            connection.call("POST", &format!("{QUEUE}/update"), &format!("[{}]", body.join(",")));
            let popped = connection.call(
                "POST",
                &format!("{QUEUE}/pop?max={BATCH}"),
                &format!("{{\"settle\":{lease}}}"),
            );
            lease = settles(&popped);
        }
        println!("  after {round} times the live data: {}", disk_size(&server));
    }
    let events = Counts::of(&server).events - before.events;
    println!("  {events:.0} events; target: at most 3 times the live data, {} MiB", (3 * live) >> 20);
    stop(server);
    let server = folder.server();
    println!("  after a restart: {}", disk_size(&server));
}

/// Counters from the metrics.
struct Counts {
    commits: f64,
    events: f64,
    checkpoints: f64,
    checkpoints_s: f64,
    lag: f64,
    bytes: f64,
}

impl Counts {
    fn of(server: &Spawned) -> Self {
        let text = get(server, "/metrics");
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.map_or(0.0, |value| value.parse().expect("a number"))
        };
        Self {
            commits: value("deltaq_journal_commit_events_count"),
            events: value("deltaq_journal_commit_events_sum"),
            checkpoints: value("deltaq_checkpoint_duration_seconds_count"),
            checkpoints_s: value("deltaq_checkpoint_duration_seconds_sum"),
            lag: value("deltaq_checkpoint_lag_events"),
            bytes: value("deltaq_journal_bytes"),
        }
    }
}

/// The rate of `call` on this many connections, and the sorted durations in microseconds.
fn rate(
    clock: &Clock,
    server: &Spawned,
    connections: usize,
    call: &(impl Fn(&mut Connection, usize) + Sync),
) -> (f64, Vec<u64>) {
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for index in 0..connections {
            let (done, stop, mut connection) = (&done, &stop, server.connect());
            clients.push(scope.spawn(move || {
                let mut latencies_us = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let begun_us = clock.monotonic_us();
                    call(&mut connection, index);
                    latencies_us.push(clock.monotonic_us() - begun_us);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                latencies_us
            }));
        }
        std::thread::sleep(Duration::from_millis(500));
        let (begun_us, before) = (clock.monotonic_us(), done.load(Ordering::Relaxed));
        std::thread::sleep(MEASURED);
        let rate = count(done.load(Ordering::Relaxed) - before) / clock.since(begun_us).as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let mut latencies_us: Vec<u64> =
            clients.into_iter().flat_map(|client| client.join().expect("a client ends")).collect();
        latencies_us.sort_unstable();
        (rate, latencies_us)
    })
}

/// Pops one key and acks the previous lease. Returns the new lease.
fn pop(connection: &mut Connection, lease: &str) -> String {
    let settle = if lease.is_empty() {
        "[]".to_owned()
    } else {
        format!("[{{\"lease_id\":\"{lease}\",\"as\":\"ack\"}}]")
    };
    let popped = connection.call(
        "POST",
        &format!("{QUEUE}/pop?lease_duration=5m"),
        &format!("{{\"settle\":{settle}}}"),
    );
    let id = popped.pointer("/items/0/lease/id").and_then(Value::as_str);
    id.unwrap_or_default().to_owned()
}

/// Settles that ack all leases of a pop.
fn settles(popped: &Value) -> String {
    let items = popped.get("items").and_then(Value::as_array).expect("items");
    let ids = items.iter().filter_map(|item| item.pointer("/lease/id")?.as_str());
    let acks: Vec<String> = ids.map(|id| format!("{{\"lease_id\":\"{id}\",\"as\":\"ack\"}}")).collect();
    format!("[{}]", acks.join(","))
}

fn seed(server: &Spawned, keys: u64) {
    let mut body = String::new();
    for number in 0..keys {
        let _ = writeln!(body, "{{\"object\":{}}}", object(number, 0));
    }
    let mut connection = server.connect();
    let (host, bytes) = (&connection.host, body.len());
    let head =
        format!("POST {QUEUE}/seed HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/x-ndjson\r\n");
    let head = format!("{head}content-length: {bytes}\r\n\r\n");
    connection.stream.write_all(head.as_bytes()).expect("the head is sent");
    connection.stream.write_all(body.as_bytes()).expect("the lines are sent");
    let reply = connection.reply();
    assert_eq!(reply.get("queued").and_then(Value::as_u64), Some(keys), "{reply}");
}

fn get(server: &Spawned, path: &str) -> String {
    let mut connection = server.connect();
    connection.send("GET", path, "");
    String::from_utf8(connection.body()).expect("a text")
}

/// Stops the server with SIGTERM and waits until it has ended.
fn stop(mut server: Spawned) {
    let sent = Command::new("kill").args(["-TERM", &server.process.id().to_string()]).status();
    assert!(sent.expect("kill runs").success(), "the signal is sent");
    server.process.wait().expect("the server ends");
}

fn objects(first: u64, count: u64) -> String {
    let all: Vec<String> = (first..first + count).map(|number| object(number, 0)).collect();
    format!("[{}]", all.join(","))
}

fn object(key: u64, value: u64) -> String {
    let text = format!("{{\"key\":\"key-{key:08}\",\"value\":{value},\"text\":\"");
    let fill = OBJECT_BYTES.saturating_sub(text.len() + 2);
    format!("{text}{}\"}}", "x".repeat(fill))
}

/// Spreads consecutive numbers over all keys.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS
}

fn disk_size(server: &Spawned) -> String {
    // The size is measured about once a second.
    std::thread::sleep(Duration::from_millis(2_500));
    let counts = Counts::of(server);
    format!("{:.0} MiB on disk, {:.0} events to replay", counts.bytes / f64::from(1 << 20), counts.lag)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn count(number: u64) -> f64 {
    number as f64
}
