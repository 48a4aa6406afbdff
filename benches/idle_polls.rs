//! 10,000 long polls that wait at one queue: what they cost, and whom a key wakes.
//!
//! Targets: less than 1 % of a core, less than 32 KiB of resident memory each, and each key wakes exactly one, in order of
//! arrival. It prints both the targets and what it measured; only a wrong order makes it fail.

#![expect(clippy::expect_used, reason = "a benchmark that can't go on stops, and says what it expected")]

mod spawned;

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use deltaq::clock::Clock;
use serde_json::Value;

use spawned::{Connection, Spawned, millis, percentile_ms};

const POLLS: u64 = 10_000;
/// Files that a process needs beside its connections.
const OTHER_FILES: u64 = 200;
/// How long the CPU time is watched. In the first ten seconds each connection looks once whether its head came in time.
const WATCHED: Duration = Duration::from_secs(40);
/// How often the kernel counts CPU time, per second. Fixed by the ABI.
const TICKS: f64 = 100.0;
/// How many keys are produced, one after the other.
const KEYS: usize = 100;
const QUEUE: &str = "/v1/queues/idle";

fn main() {
    let polls = POLLS.min(raise_file_limit().saturating_sub(OTHER_FILES));
    if polls < POLLS {
        println!("only {polls} polls: the limit of open files allows no more");
    }
    let clock = Clock::system();
    let server = Spawned::start(&["--in-memory"]);
    let mut control = server.connect();
    // The first pop creates the queue; the memory before is that of a server with one queue.
    control.call("POST", &format!("{QUEUE}/pop"), "{}");
    let before = server.memory("VmRSS:");

    let mut waiting: Vec<Connection> = Vec::new();
    for number in 1..=polls {
        let mut connection = server.connect();
        connection.send("POST", &format!("{QUEUE}/pop?wait=55s&worker=w{number}"), "{}");
        waiting.push(connection);
        // The order of arrival is known only if each is in line before the next is sent.
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
        "  wake-up  {} keys woke one poll each, in order of arrival; add to answer p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        woken.len(),
        percentile_ms(&woken, 0.5),
        percentile_ms(&woken, 0.99),
        woken.last().copied().map_or(0.0, millis),
    );
}

/// Produces keys; each must wake the poll that waits longest, and no other. Gives how long each took, sorted.
fn wake(clock: &Clock, control: &mut Connection, waiting: &mut [Connection]) -> Vec<u64> {
    let polls = waiting.len();
    let mut took = Vec::new();
    for number in 0..KEYS.min(polls) {
        let begun_us = clock.monotonic_us();
        control.send("POST", &format!("{QUEUE}/add"), &format!(r#"{{"key":"k{number}"}}"#));
        let answer = waiting.get_mut(number).expect("a poll").answer();
        took.push(clock.monotonic_us() - begun_us);
        assert_eq!(
            answer.pointer("/items/0/key").and_then(Value::as_str),
            Some(format!("k{number}").as_str()),
            "the poll that waits longest gets the key"
        );
        control.answer();
        assert_eq!(waiters(control), (polls - number - 1) as u64, "one poll is woken");
    }
    let others = waiting.iter().skip(KEYS).filter(|connection| has_news(connection)).count();
    assert_eq!(others, 0, "no other poll hears of it");
    took.sort_unstable();
    took
}

/// Whether something has come that was not read.
fn has_news(connection: &Connection) -> bool {
    connection.stream.set_nonblocking(true).expect("a socket");
    let peeked = connection.stream.peek(&mut [0]);
    !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// CPU time that the server has used so far, in seconds.
fn cpu_s(server: &Spawned) -> f64 {
    let stat = server.proc("stat");
    let behind_name = stat.rsplit_once(") ").expect("a name in brackets").1;
    // Fields 14 and 15 of proc(5) are utime and stime; the first behind the name is field 3.
    let ticks = behind_name.split(' ').skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>() / TICKS
}

fn waiters(control: &mut Connection) -> u64 {
    control.call("GET", QUEUE, "").pointer("/status/waiters").and_then(Value::as_u64).expect("a number")
}

/// Lets this process, and so the server that it starts, open as many files as it may. Gives how many these are.
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
