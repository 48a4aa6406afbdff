//! What happened in each minute: over restarts, takeovers and steps of the clock.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Memory, Registry, WatchLimits};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::commits::{Bench, api, read};
use super::{lease, object};
use crate::harness::within;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
/// The wall clock of [`Bench::new`]: 20 s after the minute [`MINUTES`]` [0]`.
const START_US: u64 = 1_700_000_000_000_000;
/// The first minutes of a bench.
const MINUTES: [&str; 4] = [
    "2023-11-14T22:13:00.000Z",
    "2023-11-14T22:14:00.000Z",
    "2023-11-14T22:15:00.000Z",
    "2023-11-14T22:16:00.000Z",
];

/// A bench with an empty queue, at the beginning of the minute `MINUTES[1]`.
async fn bench() -> Bench {
    let bench = Bench::with_queue().await;
    bench.registry.measure();
    pass(&bench, 40 * SECOND);
    bench
}

/// Lets time pass, and measures if a minute has ended.
fn pass(bench: &Bench, time: Duration) {
    bench.hand.advance(time);
    bench.registry.measure();
}

async fn series(bench: &Bench, query: &str) -> Value {
    let answer = bench.call("GET", &format!("/series{query}"), &Value::Null).await;
    assert_eq!(answer.status(), 200);
    read(answer).await
}

/// A member of each point from `MINUTES[1]` on; null in a gap.
async fn points(bench: &Bench, group: &str, member: &str) -> Vec<Value> {
    let series = series(bench, &format!("?since={}", MINUTES[1])).await;
    let points = series["points"].as_array().expect("points");
    points.iter().map(|point| point[group][member].clone()).collect()
}

async fn add(bench: &Bench, key: &str) {
    bench.post("/add", &object(key)).await;
}

/// Waits until the store has this many hours of the series of queues.
async fn stored(bench: &Bench, hours: usize) {
    let written = async {
        while bench.journal.series_rows().iter().filter(|row| row.queue.0 > 0).count() < hours {
            // A commit wakes the writer.
            bench.post("/resume", &Value::Null).await;
            bench.hand.advance(Duration::ZERO);
            tokio::task::yield_now().await;
        }
    };
    within(written).await;
}

#[tokio::test]
async fn a_point_says_what_happened_in_its_minute() {
    let bench = bench().await;
    for key in ["a", "b", "c"] {
        add(&bench, key).await;
    }
    let popped = bench.post("/pop?max=2", &Value::Null).await;
    bench.hand.advance(5 * SECOND);
    bench.post("/ack", &json!({"lease_ids": [lease(&popped, 0)]})).await;
    bench.hand.advance(10 * SECOND);
    bench.post("/nack", &json!({"lease_ids": [lease(&popped, 1)], "delay": "1h"})).await;
    pass(&bench, 45 * SECOND);
    add(&bench, "c").await;
    pass(&bench, MINUTE);
    pass(&bench, MINUTE);
    let series = series(&bench, &format!("?since={}", MINUTES[1])).await;
    assert_eq!(
        (&series["queue"], &series["queues"], &series["step_ms"]),
        (&json!("q"), &json!(1), &json!(60_000))
    );
    assert_eq!(
        (&series["from_at"], &series["until_at"]),
        (&json!(MINUTES[1]), &json!("2023-11-14T22:17:00.000Z"))
    );
    let [first, second, third] = &series["points"].as_array().expect("points")[..] else {
        panic!("three points: {series}")
    };
    assert_eq!((&first["at"], &first["minutes"]), (&json!(MINUTES[1]), &json!(1)));
    let counts = &first["counts"];
    let named =
        ["changes", "added", "updated", "deliveries", "acks", "nacks", "failures", "retries", "parked"];
    assert_eq!(named.map(|name| counts[name].as_u64()), [3, 3, 0, 2, 1, 1, 1, 1, 0].map(Some));
    assert_eq!(first["per_minute"], json!({"changes": 3.0, "deliveries": 2.0, "acks": 1.0, "failures": 1.0}));
    let gauges = &first["gauges"];
    assert_eq!(["ready", "delayed", "leased"].map(|name| gauges[name].as_u64()), [1, 1, 0].map(Some));
    assert_eq!(gauges["oldest_unacknowledged_age_ms"], 60_000);
    assert_eq!((&gauges["lag_events"], &gauges["lag_ms"]), (&Value::Null, &Value::Null));
    let processing = &first["processing"];
    let near = |name: &str, seconds: f64| {
        let found = processing[name].as_f64().expect("a number") / 1_000.0;
        assert!((found - seconds).abs() <= seconds / 8.0, "{name}: {found} s");
    };
    assert_eq!(processing["leases"], 2);
    near("p50_ms", 5.0);
    near("p99_ms", 15.0);
    assert_eq!((&second["counts"]["changes"], &second["processing"]), (&json!(1), &Value::Null));
    // The third minute has no bucket.
    assert_eq!((&third["minutes"], &third["counts"]["changes"]), (&json!(1), &json!(0)));
    assert_eq!(
        (&third["gauges"]["ready"], &third["gauges"]["oldest_unacknowledged_age_ms"]),
        (&json!(1), &json!(180_000))
    );
}

#[tokio::test]
async fn a_restart_continues_the_series_and_a_crash_loses_the_last_minute() {
    let bench = bench().await;
    add(&bench, "a").await;
    pass(&bench, MINUTE);
    stored(&bench, 1).await;
    add(&bench, "b").await;
    bench.hand.advance(30 * SECOND);
    // The server is killed in the middle of `MINUTES[2]`, and the next one starts in `MINUTES[3]`.
    bench.hand.advance(45 * SECOND);
    let bench = bench.restarted().await;
    bench.registry.measure();
    add(&bench, "c").await;
    pass(&bench, MINUTE);
    assert_eq!(points(&bench, "counts", "changes").await, [json!(1), Value::Null, json!(1)]);
    assert_eq!(points(&bench, "gauges", "ready").await, [json!(1), Value::Null, json!(3)]);
    let series = series(&bench, "?since=10m").await;
    assert_eq!(series["points"][0]["minutes"], 0, "no server ran before the first start");
}

#[tokio::test]
async fn a_minute_with_two_servers_has_the_counts_of_both() {
    let bench = bench().await;
    pass(&bench, MINUTE);
    add(&bench, "a").await;
    add(&bench, "b").await;
    bench.hand.advance(20 * SECOND);
    // The first server stops in the middle of `MINUTES[2]`, and the next one goes on in the same minute.
    bench.registry.close();
    within(async {
        while bench.journal.series_rows().iter().all(|row| row.queue.0 == 0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let bench = bench.restarted().await;
    bench.registry.measure();
    add(&bench, "c").await;
    pass(&bench, 40 * SECOND);
    pass(&bench, MINUTE);
    assert_eq!(points(&bench, "counts", "changes").await, [0, 3, 0], "no spike, and no second minute");
    assert_eq!(points(&bench, "gauges", "ready").await, [0, 3, 3]);
}

#[tokio::test]
async fn a_step_of_the_clock_neither_repeats_nor_invents_minutes() {
    let bench = bench().await;
    add(&bench, "a").await;
    pass(&bench, MINUTE);
    add(&bench, "b").await;
    // Back by a minute: what happens from now on is added to `MINUTES[1]`.
    bench.hand.set_wall(START_US + 40_000_000);
    bench.registry.measure();
    add(&bench, "c").await;
    pass(&bench, MINUTE);
    add(&bench, "d").await;
    pass(&bench, MINUTE);
    assert_eq!(points(&bench, "counts", "changes").await, [2, 2]);
    // Forward by three minutes.
    add(&bench, "e").await;
    let now_us = START_US + 40_000_000 + 5 * 60_000_000;
    bench.hand.set_wall(now_us);
    bench.registry.measure();
    add(&bench, "f").await;
    pass(&bench, MINUTE);
    let changes = points(&bench, "counts", "changes").await;
    assert_eq!(changes, [json!(2), json!(2), json!(1), Value::Null, Value::Null, json!(1)]);
}

#[tokio::test]
async fn the_sums_have_the_queues_of_the_server_and_an_estimate() {
    let bench = bench().await;
    for key in 0..12 {
        add(&bench, &key.to_string()).await;
    }
    for _ in 0..10 {
        pass(&bench, MINUTE);
    }
    for _ in 0..3 {
        let popped = bench.post("/pop?max=2", &Value::Null).await;
        bench.post("/ack", &json!({"lease_ids": [lease(&popped, 0), lease(&popped, 1)]})).await;
        pass(&bench, MINUTE);
    }
    let sums = bench.get("/v1/series?since=4m&step=2m").await;
    assert_eq!((&sums["queue"], &sums["queues"]), (&Value::Null, &json!(1)));
    let drain = &sums["drain"];
    assert_eq!((&drain["waiting"], &drain["empties_in_ms"]), (&json!(6), &json!(5 * 60_000)));
    assert_eq!((&drain["reason"], &drain["shrinks_per_minute"]), (&Value::Null, &json!(1.2)));
    let acks: u64 = sums["points"]
        .as_array()
        .expect("points")
        .iter()
        .filter_map(|point| point["counts"]["acks"].as_u64())
        .sum();
    assert_eq!(acks, 6);
    let last = sums["points"].as_array().and_then(|points| points.last()).expect("a point");
    assert_eq!(
        (&last["gauges"]["ready"], &last["counts"]["deliveries"]),
        (&json!(6), &json!(2)),
        "a minute of a longer step"
    );
    let refused = bench.call("GET", "/series?step=90s", &Value::Null).await;
    assert_eq!(refused.status(), 400);
}

/// A registry whose series may take this many bytes.
fn limited(max_bytes: usize) -> (Arc<Registry>, Bounded) {
    let (clock, hand) = Clock::manual(START_US);
    let shutdown = Shutdown::manual(Duration::ZERO);
    let limits =
        Limits { auto_create: true, max_queues: 1_000, max_waiters: 100, watch: WatchLimits::default() };
    let metrics = Metrics::new(1).expect("metrics");
    let registry = Registry::new(limits, Config::default(), clock.clone(), None, shutdown.clone(), metrics);
    let registry = Arc::new(registry.with_memory(Arc::new(Memory::default().with_series(max_bytes))));
    let bounded = Bounded { router: api(&registry, &clock, &shutdown), hand };
    (registry, bounded)
}

struct Bounded {
    router: axum::Router,
    hand: deltaq_runtime::clock::ManualClock,
}

impl Bounded {
    async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = axum::http::Request::builder().method(method).uri(path);
        let request = request.body(axum::body::Body::from(body)).expect("a request");
        read(self.router.clone().oneshot(request).await.expect("routers answer")).await
    }
}

#[tokio::test]
async fn beyond_the_limit_the_oldest_hours_of_the_least_active_queues_go_first() {
    const QUEUES: u64 = 20;
    const MAX_BYTES: usize = 40_000;
    let (registry, server) = limited(MAX_BYTES);
    registry.measure();
    let name = |number: u64| format!("/v1/queues/q{number:02}");
    for _ in 0..180 {
        for number in 0..QUEUES {
            for key in 0..=number / 10 {
                server.send("POST", &format!("{}/add", name(number)), &object(&key.to_string())).await;
            }
        }
        server.hand.advance(MINUTE);
        registry.measure();
        assert!(registry.series_bytes() <= MAX_BYTES, "{} bytes", registry.series_bytes());
    }
    let mut kept = Vec::new();
    for number in 0..QUEUES {
        let series = server.send("GET", &format!("{}/series?since=3h", name(number)), &Value::Null).await;
        let points = series["points"].as_array().expect("points");
        let known = points.iter().filter(|point| point["minutes"] == 1).count();
        let changes = points.iter().filter(|point| point["counts"]["changes"].as_u64() >= Some(1)).count();
        assert_eq!(changes, known, "a minute that was dropped is a gap, not 0");
        assert_eq!(points.last().expect("a point")["counts"]["changes"], number / 10 + 1);
        kept.push(known);
    }
    let (less, more) = kept.split_at(10);
    assert!(less.iter().max() <= more.iter().min(), "{kept:?}");
    assert!(kept.iter().sum::<usize>() < 180 * 20, "{kept:?}");
    let sums = server.send("GET", "/v1/series?since=3h", &Value::Null).await;
    assert!(
        sums["complete_from_at"].as_str() > sums["from_at"].as_str(),
        "the sums say that they lack something"
    );
    // Queues without a series of their own in the metrics have one here.
    assert_eq!(sums["queues"], QUEUES);
}
