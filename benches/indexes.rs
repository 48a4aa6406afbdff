//! Two indexes of 1,000,000 known objects: memory per key, acknowledgements with and without them, and queries of 100 objects.
//!
//! Targets: an index takes less than 60 bytes per key; acknowledgements have at least 0.8 of the speed without indexes; the p99 of a
//! query of 100 objects is below 5 ms. The benchmark prints its measurements and never fails because of them.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

mod spawned;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deltaq_engine::Queue;
use deltaq_engine::config::Config;
use deltaq_engine::id::Rv;
use deltaq_engine::index_settings::IndexSettings;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::time::Time;
use deltaq_runtime::clock::Clock;
use serde_json::Value;
use spawned::{Connection, Spawned, millis, percentile_ms};

const KEYS: usize = 1_000_000;
/// Different values of the field `city`, so that each has 100 objects.
const CITIES: usize = 10_000;
const TAGS: usize = 50;
/// Objects of a call.
const BATCH: usize = 1_000;
const ROUNDS: usize = 100;
const QUERIES: usize = 2_000;
const INDEXES: [(&str, &str); 2] = [("by_city", "/address/city"), ("by_tag", "/tags")];

fn main() {
    println!("memory of an index of {KEYS} keys (target < 60 bytes per key)");
    for (title, pointer) in [
        ("100 keys per value", "/address/city"),
        ("a value per key", "/number"),
        ("3 values per key of 50", "/tags"),
    ] {
        println!("  {title:<24} {:.1} bytes per key", index_key_bytes(pointer));
    }
    // Counting allocations takes about as long as allocating.
    allocation_counter::opt_out(over_http);
}

/// Bytes per key that an index adds to a queue.
fn index_key_bytes(pointer: &str) -> f64 {
    let now = Time::from_micros(1_700_000_000_000_000);
    let seeds = |range: std::ops::Range<usize>| {
        range.map(|number| {
            let key = Key::new(&name(number)).expect("a key");
            (key, Object::from_valid(&text(number, number, 0)), None)
        })
    };
    let mut queue = Queue::new(Arc::new(Config::default()), Rv::ZERO, now);
    for start in (0..KEYS).step_by(BATCH) {
        queue.seed_step(now, seeds(start..start + BATCH));
        drop(queue.take_effects());
    }
    let measured = allocation_counter::measure(|| {
        let indexes = IndexSettings::new([("index", pointer)]).expect("a setting");
        queue
            .configure(now, Arc::new(Config { indexes, ..Config::default() }), None)
            .expect("it is accepted");
        while !queue.build_indexes(BATCH) {}
        drop(queue.take_effects());
    });
    let bytes = u32::try_from(measured.bytes_current).expect("less than 4 GiB");
    f64::from(bytes) / f64::from(u32::try_from(KEYS).expect("it fits"))
}

fn over_http() {
    let clock = Clock::system();
    let server = Spawned::start(&["--in-memory"]);
    let mut connection = server.connect();
    for queue in ["bare", "indexed"] {
        fill(&mut connection, queue);
    }
    let before = server.memory("VmRSS:");
    let started_us = clock.monotonic_us();
    let indexes: Value =
        INDEXES.iter().map(|(name, pointer)| ((*name).to_owned(), Value::from(*pointer))).collect();
    connection.call("PUT", "/v1/queues/indexed", &format!("{{\"indexes\":{indexes}}}"));
    while connection.call("GET", "/v1/queues/indexed/status", "").pointer("/building_indexes/0").is_some() {}
    let took_ms = millis(clock.monotonic_us() - started_us);
    let grown_mib = server.memory("VmRSS:").saturating_sub(before) >> 20;
    println!("{} indexes built in {took_ms:.0} ms, {grown_mib} MiB resident", INDEXES.len());

    println!(
        "{BATCH} keys updated, popped and acknowledged in three calls (target: at least 0.8 of the speed)"
    );
    compare(&clock, &mut connection, "each gets another city", 1);
    compare(&clock, &mut connection, "each keeps its city", 2);

    println!("queries of about 100 objects (target: p99 < 5 ms)");
    print_queries("while nothing else happens", &queries(&clock, &server));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let acknowledging = scope.spawn(|| {
            let mut connection = server.connect();
            for round in (ROUNDS..).take_while(|_| !stop.load(Ordering::SeqCst)) {
                change(&clock, &mut connection, "indexed", round, 3);
            }
        });
        print_queries("while keys are acknowledged", &queries(&clock, &server));
        stop.store(true, Ordering::SeqCst);
        acknowledging.join().expect("it ends");
    });
}

fn fill(connection: &mut Connection, queue: &str) {
    for start in (0..KEYS).step_by(BATCH) {
        let seeds: Vec<String> = (start..start + BATCH)
            .map(|number| format!("{{\"object\":{}}}", text(number, number, 0)))
            .collect();
        connection.call("POST", &format!("/v1/queues/{queue}/seed"), &format!("[{}]", seeds.join(",")));
    }
}

/// How long the three calls and the last of them took in each round, in microseconds.
#[derive(Default)]
struct Took {
    cycles_us: Vec<u64>,
    acks_us: Vec<u64>,
}

/// Changes the credit of objects of a queue without and of a queue with indexes, and in the first call also their cities.
fn compare(clock: &Clock, connection: &mut Connection, title: &str, credit: usize) {
    let (mut bare, mut indexed) = (Took::default(), Took::default());
    for round in 0..ROUNDS {
        // Which queue comes first alternates, because other work on the machine changes with time.
        let mut queues = [("bare", &mut bare), ("indexed", &mut indexed)];
        if round % 2 == 1 {
            queues.reverse();
        }
        for (queue, took) in queues {
            let begun_us = clock.monotonic_us();
            took.acks_us.push(change(clock, connection, queue, round, credit));
            took.cycles_us.push(clock.monotonic_us() - begun_us);
        }
    }
    println!("  {title}");
    for (name, mut without_us, mut with_us) in
        [("three calls", bare.cycles_us, indexed.cycles_us), ("ack alone", bare.acks_us, indexed.acks_us)]
    {
        without_us.sort_unstable();
        with_us.sort_unstable();
        let (without_ms, with_ms) = (percentile_ms(&without_us, 0.5), percentile_ms(&with_us, 0.5));
        println!(
            "    {name:<12} p50 {without_ms:.2} ms, with indexes {with_ms:.2} ms: {:.2} of the speed",
            without_ms / with_ms
        );
    }
}

/// Changes the objects of a round. Returns how long their acknowledgement takes, in microseconds.
fn change(clock: &Clock, connection: &mut Connection, queue: &str, round: usize, credit: usize) -> u64 {
    let numbers = (0..BATCH).map(|number| (round * BATCH + number).wrapping_mul(7_919) % KEYS);
    let objects: Vec<String> = numbers.map(|number| text(number, number + round + 1, credit)).collect();
    connection.call("POST", &format!("/v1/queues/{queue}/update"), &format!("[{}]", objects.join(",")));
    let popped = connection.call("POST", &format!("/v1/queues/{queue}/pop?max={BATCH}"), "{}");
    let items = popped.pointer("/items").and_then(Value::as_array).expect("items");
    let leases: Vec<String> =
        items.iter().filter_map(|item| item.pointer("/lease/id")).map(Value::to_string).collect();
    assert_eq!(leases.len(), BATCH, "all changes are popped");
    let body = format!("{{\"lease_ids\":[{}]}}", leases.join(","));
    let started_us = clock.monotonic_us();
    connection.call("POST", &format!("/v1/queues/{queue}/ack"), &body);
    clock.monotonic_us() - started_us
}

/// Queries of different values. Returns the sorted durations in microseconds.
fn queries(clock: &Clock, server: &Spawned) -> Vec<u64> {
    let mut connection = server.connect();
    let mut took_us: Vec<u64> = (0..QUERIES)
        .map(|number| {
            let city = city(number.wrapping_mul(7_919));
            let started_us = clock.monotonic_us();
            connection.send("GET", &format!("/v1/queues/indexed/known?index=by_city&value={city}"), "");
            let page = connection.body();
            let took_us = clock.monotonic_us() - started_us;
            assert!(page.len() > 1_000, "the page has objects");
            took_us
        })
        .collect();
    took_us.sort_unstable();
    took_us
}

fn print_queries(title: &str, sorted: &[u64]) {
    println!(
        "  {title:<28} {}: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        sorted.len(),
        percentile_ms(sorted, 0.5),
        percentile_ms(sorted, 0.99),
        percentile_ms(sorted, 1.0),
    );
}

fn name(number: usize) -> String {
    format!("customer-{number:07}")
}

fn city(number: usize) -> String {
    format!("City-{:05}", number % CITIES)
}

/// An object of about 256 bytes.
fn text(number: usize, city_number: usize, credit: usize) -> String {
    let (name, city) = (name(number), city(city_number));
    let [a, b, c] = [1, 7, 31].map(|step| (number * step) % TAGS);
    format!(
        r#"{{"key":"{name}","number":"{number:012}","title":"Somebody who buys things","address":{{"street":"Long Street {number}","city":"{city}","country":"DE"}},"tags":["tag-{a}","tag-{b}","tag-{c}"],"active":true,"credit":{credit},"note":"xxxxxxxxxxxxxxxx"}}"#
    )
}
