//! A Replace of 1,000,000 objects of 256 bytes, streamed as NDJSON, while a probe adds and pops at the same queue.
//!
//! Targets: the p99 of an add and a pop is below 50 ms while the list is applied, and memory besides the objects is bounded. The
//! benchmark prints its measurements and never fails because of them.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

mod spawned;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};

use deltaq_runtime::clock::Clock;
use serde_json::Value;
use spawned::{Connection, Spawned, millis, percentile_ms};

const OBJECTS: u64 = 1_000_000;
const OBJECT_BYTES: usize = 256;
/// Objects in one piece of the stream.
const PIECE_OBJECTS: u64 = 256;
/// Interval between the probe's pairs of add and pop, in microseconds.
const PACE_US: u64 = 2_000;
const QUEUE: &str = "/v1/queues/list";

/// Phases of the Replace.
const READING: u8 = 0;
const APPLYING: u8 = 1;
const ENDED: u8 = 2;

fn main() {
    let clock = Clock::system();
    let server = Spawned::start(&["--in-memory"]);
    let before = server.memory("VmRSS:");
    let objects_mib = mib(OBJECTS * OBJECT_BYTES as u64);
    println!("Replace of {OBJECTS} objects of {OBJECT_BYTES} bytes ({objects_mib:.0} MiB), streamed");

    run(&clock, &server, "all new", &format!("{QUEUE}/replace?source=bench"));
    let peak = mib(server.memory("VmHWM:") - before);
    println!("  memory   peak {peak:.0} MiB, of which {:.0} MiB besides the objects", peak - objects_mib);
    println!("           resident at the end {:.0} MiB", mib(server.memory("VmRSS:") - before));

    run(&clock, &server, "none changed", &format!("{QUEUE}/replace?source=bench&only_changed=true"));
    let peak = mib(server.memory("VmHWM:") - before);
    println!(
        "  memory   peak {peak:.0} MiB; the list is held twice: {:.0} MiB besides both copies",
        peak - 2.0 * objects_mib
    );
}

/// Streams the list while a probe adds and pops, and prints the durations.
fn run(clock: &Clock, server: &Spawned, title: &str, path: &str) {
    let phase = AtomicU8::new(READING);
    let (read_s, applied_s, reply, samples) = std::thread::scope(|scope| {
        let probing = scope.spawn(|| probe(clock, server.connect(), &phase));
        let begun_us = clock.monotonic_us();
        let mut connection = server.connect();
        stream_list(&mut connection, path);
        let read_s = clock.since(begun_us).as_secs_f64();
        phase.store(APPLYING, Ordering::SeqCst);
        let reply = connection.reply();
        let all_s = clock.since(begun_us).as_secs_f64();
        phase.store(ENDED, Ordering::SeqCst);
        (read_s, all_s - read_s, reply, probing.join().expect("the probe ends"))
    });
    let count = |name: &str| reply.get(name).and_then(Value::as_u64).unwrap_or_default();
    println!("{title}: {} replaced, {} unchanged", count("replaced"), count("unchanged"));
    println!("  time     {read_s:.2} s to send, {applied_s:.2} s to apply");
    print_samples("while sent", &samples, READING);
    print_samples("while applied (target p99 < 50 ms)", &samples, APPLYING);
}

fn stream_list(connection: &mut Connection, path: &str) {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n",
        connection.host
    );
    send(connection, head.as_bytes());
    let mut piece = String::new();
    for number in 0..OBJECTS {
        let begin = piece.len();
        let _ = write!(piece, r#"{{"key":"k{number:07}","price":{},"text":""#, number % 1000);
        let missing = OBJECT_BYTES - 2 - (piece.len() - begin);
        piece.extend(std::iter::repeat_n('x', missing));
        piece.push_str("\"}\n");
        if (number + 1) % PIECE_OBJECTS == 0 {
            send_piece(connection, piece.as_bytes());
            piece.clear();
        }
    }
    let _ = writeln!(piece, r#"{{"$end":{OBJECTS}}}"#);
    send_piece(connection, piece.as_bytes());
    send_piece(connection, b"");
}

/// Sends a piece of the body. An empty piece ends the body.
fn send_piece(connection: &mut Connection, piece: &[u8]) {
    let head = format!("{:x}\r\n", piece.len());
    for part in [head.as_bytes(), piece, b"\r\n"] {
        send(connection, part);
    }
}

fn send(connection: &mut Connection, bytes: &[u8]) {
    connection.stream.write_all(bytes).expect("the list is sent");
}

/// Adds and pops at a steady pace until the Replace has ended. Returns for each pair of calls the phase in which it was due, and
/// the microseconds from that moment to its end. Timing from the due moment matters: otherwise a stall would be a single sample.
fn probe(clock: &Clock, mut connection: Connection, phase: &AtomicU8) -> Vec<(u8, u64)> {
    let mut samples = Vec::new();
    let mut settle = "{}".to_owned();
    let begun_us = clock.monotonic_us();
    for number in 0_u64.. {
        let due_us = begun_us + number * PACE_US;
        std::thread::sleep(clock.until(due_us));
        let now = phase.load(Ordering::SeqCst);
        if now == ENDED {
            break;
        }
        connection.call("POST", &format!("{QUEUE}/add"), &format!(r#"{{"key":"probe-{number}"}}"#));
        let popped = connection.call("POST", &format!("{QUEUE}/pop"), &settle);
        samples.push((now, clock.monotonic_us() - due_us));
        let lease = popped.pointer("/items/0/lease/id").and_then(Value::as_str).expect("a key is ready");
        settle = format!(r#"{{"settle":[{{"lease_id":"{lease}","as":"ack"}}]}}"#);
    }
    samples
}

fn print_samples(title: &str, samples: &[(u8, u64)], wanted: u8) {
    let mut took: Vec<u64> =
        samples.iter().filter(|(phase, _)| *phase == wanted).map(|(_, took)| *took).collect();
    took.sort_unstable();
    println!(
        "  add+pop  {title}: {} pairs, p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        took.len(),
        percentile_ms(&took, 0.5),
        percentile_ms(&took, 0.99),
        took.last().copied().map_or(0.0, millis),
    );
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
