//! Followers: what 10 of them cost the producer of the queue that they follow, and how long calls wait while a new follower takes
//! 1,000,000 keys.
//!
//! Targets: at 1,000 changes per second the producer's p99 is at most 1.2 of that without followers; no call takes longer than 20 ms
//! because of a new follower. The benchmark prints its measurements and never fails because of them.
//!
//! `KEYS` sets another number of keys of the followed queue.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

mod spawned;

use std::thread;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use serde_json::Value;
use spawned::{Connection, Spawned, millis, percentile_ms};

const FOLLOWERS: usize = 10;
const CHANGE_INTERVAL: Duration = Duration::from_millis(1);
/// Changes of a round.
const CHANGES: usize = 5_000;
/// Rounds with and without followers, in turns.
const ROUNDS: usize = 5;
/// Keys of the changes.
const CHANGED_KEYS: usize = 10_000;
/// Objects of a call.
const BATCH: usize = 1_000;

/// The number of keys that a new follower takes.
#[expect(clippy::disallowed_methods, reason = "a switch of this benchmark, not a setting of the server")]
fn keys() -> usize {
    std::env::var("KEYS").ok().map_or(1_000_000, |text| text.parse().expect("a number"))
}

fn main() {
    let clock = Clock::system();
    for (title, arguments) in [("in memory", vec!["--in-memory"]), ("with fsync", vec![])] {
        cost_for_the_producer(&clock, title, &arguments);
    }
    new_follower(&clock);
}

/// Measures adds of a queue without followers and of one with them, in turns.
fn cost_for_the_producer(clock: &Clock, title: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("a path");
    let stored = ["--data-dir", folder];
    let server = Spawned::start(if arguments.is_empty() { &stored } else { arguments });
    let mut producer = server.connect();
    for queue in ["alone", "followed"] {
        producer.call("PUT", &format!("/v1/queues/{queue}"), r#"{"mode":"latest"}"#);
    }
    for number in 0..FOLLOWERS {
        let follow = r#"{"mode":"latest","follow":{"queue":"followed"}}"#;
        producer.call("PUT", &format!("/v1/queues/follower-{number}"), follow);
    }
    let (mut alone_us, mut followed_us) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut queues = [("alone", &mut alone_us), ("followed", &mut followed_us)];
        if round % 2 == 1 {
            queues.reverse();
        }
        for (queue, took_us) in queues {
            take_adds(clock, &mut producer, queue, took_us);
        }
    }
    println!("{FOLLOWERS} followers of a queue that changes 1,000 times per second, {title}");
    for (name, sorted) in [("without", &mut alone_us), ("with", &mut followed_us)] {
        sorted.sort_unstable();
        let [p50, p99] = [0.5, 0.99].map(|share| percentile_ms(sorted, share));
        println!("  {name:<8} p50 {p50:.3} ms, p99 {p99:.3} ms");
    }
    let ratio = percentile_ms(&followed_us, 0.99) / percentile_ms(&alone_us, 0.99);
    println!("  {ratio:.2} of the p99 without followers (target at most 1.2)");
}

/// Adds objects at an even pace. The duration of an add counts from the time at which it was due.
fn take_adds(clock: &Clock, producer: &mut Connection, queue: &str, took_us: &mut Vec<u64>) {
    let interval_us = u64::try_from(CHANGE_INTERVAL.as_micros()).expect("it fits");
    let mut due_us = clock.monotonic_us();
    for number in 0..CHANGES {
        let key = number.wrapping_mul(7_919) % CHANGED_KEYS;
        thread::sleep(Duration::from_micros(due_us.saturating_sub(clock.monotonic_us())));
        producer.call("POST", &format!("/v1/queues/{queue}/add"), &format!("{{\"key\":\"key-{key}\"}}"));
        took_us.push(clock.monotonic_us() - due_us);
        due_us += interval_us;
    }
}

/// Measures adds and pops of a large queue while it gets a follower.
fn new_follower(clock: &Clock) {
    let keys = keys();
    let server = Spawned::start(&["--in-memory"]);
    let mut connection = server.connect();
    for start in (0..keys).step_by(BATCH) {
        let seeds: Vec<String> = (start..start + BATCH)
            .map(|number| format!(r#"{{"object":{{"key":"key-{number:07}","text":"{}"}}}}"#, "x".repeat(100)))
            .collect();
        connection.call("POST", "/v1/queues/followed/seed", &format!("[{}]", seeds.join(",")));
    }
    let mut quiet_us = Vec::new();
    take_adds(clock, &mut connection, "followed", &mut quiet_us);
    let (begun_us, before) = (clock.monotonic_us(), server.memory("VmRSS:"));
    let follow = format!(r#"{{"follow":{{"queue":"followed","view":"known","max_waiting":{}}}}}"#, 2 * keys);
    connection.call("PUT", "/v1/queues/new", &follow);
    let mut busy_us = Vec::new();
    loop {
        take_adds(clock, &mut connection, "followed", &mut busy_us);
        let status = connection.call("GET", "/v1/queues/new/status", "");
        let state = status.pointer("/follow/state").and_then(Value::as_str).unwrap_or_default().to_owned();
        let ready = status.get("ready").and_then(Value::as_u64).unwrap_or_default();
        if state != "listing" {
            let took_ms = millis(clock.monotonic_us() - begun_us);
            let grown_mib = server.memory("VmRSS:").saturating_sub(before) >> 20;
            println!(
                "a new follower of {keys} keys: {ready} keys wait in it after {took_ms:.0} ms, {grown_mib} MiB resident"
            );
            break;
        }
    }
    println!("  adds to the followed queue at 1,000 per second");
    for (name, sorted) in [("before", &mut quiet_us), ("meanwhile", &mut busy_us)] {
        sorted.sort_unstable();
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| percentile_ms(sorted, share));
        println!(
            "    {name:<10} p50 {p50:.3} ms, p99 {p99:.3} ms, longest {most:.2} ms (target: at most 20 ms longer)"
        );
    }
}
