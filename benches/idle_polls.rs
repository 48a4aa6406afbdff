//! The cost of 10,000 long polls that wait at one queue, and the order in which keys wake them.
//!
//! Targets: less than 1 % of a core and less than 32 KiB of resident memory per poll. Each key must wake exactly one poll, in order
//! of arrival. The benchmark prints the targets and its measurements; only a wrong order makes it fail.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

mod spawned;

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use serde_json::Value;
use spawned::{Connection, Spawned, millis, percentile_ms};

const POLLS: u64 = 10_000;
/// File descriptors that a process needs besides its connections.
const OTHER_FILES: u64 = 200;
/// Length of the CPU measurement. In its first ten seconds, the head timeout of each connection fires once.
const WATCHED: Duration = Duration::from_secs(40);
/// The kernel's clock ticks per second. The ABI fixes this number.
const TICKS: f64 = 100.0;
/// Keys that are produced, one after the other.
const KEYS: usize = 100;
const QUEUE: &str = "/v1/queues/idle";

fn main() {
    let polls = POLLS.min(raise_file_limit().saturating_sub(OTHER_FILES));
    if polls < POLLS {
        println!("only {polls} polls, because of the limit of open files");
    }
    let clock = Clock::system();
    let server = Spawned::start(&["--in-memory"]);
    let mut control = server.connect();
    // `before` is the memory of a server with one queue.
    control.call("PUT", QUEUE, "{}");
    let before = server.memory("VmRSS:");

    let mut waiting: Vec<Connection> = Vec::new();
    for number in 1..=polls {
        let mut connection = server.connect();
        connection.send("POST", &format!("{QUEUE}/pop?wait=55s&worker=w{number}"), "{}");
        waiting.push(connection);
        // Each poll must be queued before the next is sent, or the order of arrival would be unknown.
        while waiters(&mut control) < number {
            std::thread::yield_now();
        }
    }
    let resident = server.memory("VmRSS:") - before;

    let (used_s, begun_us) = (cpu_s(&server), clock.monotonic_us());
    std::thread::sleep(WATCHED);
    let (used_s, took_s) = (cpu_s(&server) - used_s, clock.since(begun_us).as_secs_f64());

    let woken = wake(&clock, &mut control, &mut waiting);

    println!("{polls} idle long polls on one queue");
    println!("  CPU      {:.2} % of a core over {took_s:.0} s (target < 1 %)", used_s / took_s * 100.0);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let kib_each = resident as f64 / 1024.0 / polls as f64;
    println!("  memory   {kib_each:.1} KiB resident each (target < 32 KiB)");
    println!(
        "  wake-up  {} keys woke one poll each, in order of arrival; add to reply p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        woken.len(),
        percentile_ms(&woken, 0.5),
        percentile_ms(&woken, 0.99),
        woken.last().copied().map_or(0.0, millis),
    );
}

/// Produces keys; each must wake only the poll that has waited longest. Returns the sorted latencies in microseconds.
fn wake(clock: &Clock, control: &mut Connection, waiting: &mut [Connection]) -> Vec<u64> {
    let polls = waiting.len();
    let mut took = Vec::new();
    for number in 0..KEYS.min(polls) {
        let begun_us = clock.monotonic_us();
        control.send("POST", &format!("{QUEUE}/add"), &format!(r#"{{"key":"k{number}"}}"#));
        let reply = waiting.get_mut(number).expect("a poll").reply();
        took.push(clock.monotonic_us() - begun_us);
        assert_eq!(
            reply.pointer("/items/0/key").and_then(Value::as_str),
            Some(format!("k{number}").as_str()),
            "the poll that has waited longest gets the key"
        );
        control.reply();
        assert_eq!(waiters(control), (polls - number - 1) as u64, "one poll is woken");
    }
    let others = waiting.iter().skip(KEYS).filter(|connection| has_unread_bytes(connection)).count();
    assert_eq!(others, 0, "no other poll is woken");
    took.sort_unstable();
    took
}

/// Whether the connection has received bytes that were not read.
fn has_unread_bytes(connection: &Connection) -> bool {
    connection.stream.set_nonblocking(true).expect("a socket");
    let peeked = connection.stream.peek(&mut [0]);
    !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// CPU seconds that the server has used.
fn cpu_s(server: &Spawned) -> f64 {
    let stat = server.proc("stat");
    let after_name = stat.rsplit_once(") ").expect("a name in parentheses").1;
    // Fields 14 and 15 of proc(5) are utime and stime; the first field after the name is number 3.
    let ticks = after_name.split(' ').skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>() / TICKS
}

fn waiters(control: &mut Connection) -> u64 {
    control.call("GET", QUEUE, "").pointer("/status/waiters").and_then(Value::as_u64).expect("a number")
}

/// Raises the soft limit of open files to the hard limit, for this process and the server that it starts. Returns the new limit.
fn raise_file_limit() -> u64 {
    let hard = file_limits().1;
    let pid = std::process::id().to_string();
    let _ = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={hard}:{hard}")]).status();
    file_limits().0
}

/// The soft and the hard limit of open files.
fn file_limits() -> (u64, u64) {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("Linux has /proc");
    let line =
        limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("the line is there");
    let mut numbers = line.split_whitespace().map(|word| word.parse().unwrap_or(u64::MAX));
    (numbers.next().expect("a soft limit"), numbers.next().expect("a hard limit"))
}
