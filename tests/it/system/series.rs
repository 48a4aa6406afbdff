//! Series over `kill -9`, SIGTERM and jumps of the clock of the real binary, and over takeovers in PostgreSQL.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_journal::{WriterOptions, writer};
use deltaq_runtime::clock::{Clock, ManualClock, wall_us};
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Registry, WatchLimits};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use crate::harness::blocking::Message;
use crate::harness::server::{End, Spawned, Store};
use crate::harness::waiting::{PATIENCE, until};
use crate::harness::wall_clock::WallClock;
use crate::harness::within;
use crate::node::NoopObserver;
use crate::server::commits::api;
use crate::system::postgres::cluster::Cluster;
use crate::system::postgres::try_open;

const MINUTE_S: i64 = 60;

/// A server whose wall clock is moved by whole minutes.
struct Moved {
    clock: WallClock,
    ahead_s: i64,
    store: Store,
}

impl Moved {
    /// A clock at the beginning of a minute, so that the minute does not end by itself.
    fn new(folder: &std::path::Path, test: &str) -> Self {
        let clock = WallClock::new(folder.join("clock"));
        let second = i64::try_from(wall_us() / 1_000_000 % 60).expect("a second");
        let ahead_s = -second;
        clock.set(ahead_s);
        Self { clock, ahead_s, store: Store::folder(test) }
    }

    fn start(&self) -> Spawned {
        Spawned::start_with(&self.store, |command| self.clock.give(command))
    }

    fn pass(&mut self, minutes: i64) {
        self.ahead_s += minutes * MINUTE_S;
        self.clock.set(self.ahead_s);
    }

    /// The hours of queues in the store.
    fn stored(&self) -> usize {
        let database = self.store.path().join("deltaq.db");
        let query = "SELECT length(content) FROM series WHERE queue_id > 0";
        let read = Command::new("sqlite3").arg("-readonly").arg(database).arg(query).output();
        let read = read.expect("sqlite3 is installed");
        String::from_utf8_lossy(&read.stdout).lines().filter_map(|line| line.parse::<usize>().ok()).sum()
    }
}

fn add(server: &Spawned, key: &str) {
    let (status, body) = server.call(&Message::post("/v1/queues/q/add".to_owned(), &json!({ "key": key })));
    assert_eq!(status, 200, "{body}");
}

/// The changes of the last complete minutes; -1 in a gap.
fn changes(server: &Spawned) -> Vec<i64> {
    let (status, body) = server.call(&Message::get("/v1/queues/q/series?since=10m".to_owned()));
    assert_eq!(status, 200, "{body}");
    let series: Value = serde_json::from_str(&body).expect("JSON");
    let points = series["points"].as_array().expect("points");
    let changes = points.iter().map(|point| point["counts"]["changes"].as_i64().unwrap_or(-1));
    changes.skip_while(|count| *count == -1).collect()
}

/// Waits until a minute is complete, and the minutes since the first start are these.
fn until_changes(server: &Spawned, expected: &[i64]) {
    until(&format!("the series has {expected:?}"), || changes(server) == expected);
}

#[test]
fn a_kill_loses_the_present_minute_of_the_series_and_a_stop_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut moved = Moved::new(folder.path(), "series");
    let server = moved.start();
    add(&server, "a");
    moved.pass(1);
    until_changes(&server, &[1]);
    until("the minute is in the store", || moved.stored() > 0);
    add(&server, "b");
    server.end(End::Kill);
    // The server is down for the rest of this minute and the whole next one.
    moved.pass(2);
    let server = moved.start();
    add(&server, "c");
    add(&server, "d");
    server.end(End::Stop { patience: PATIENCE });
    let server = moved.start();
    add(&server, "e");
    moved.pass(1);
    until_changes(&server, &[1, -1, -1, 3]);
    // The clock is set back by a minute: the minute gets more, and no minute comes twice.
    moved.pass(-1);
    until_changes(&server, &[1, -1, -1]);
    add(&server, "f");
    moved.pass(1);
    until_changes(&server, &[1, -1, -1, 4]);
    server.end(End::Kill);
}

/// A server on a database, without connections, on a clock that the test moves.
struct InProcess {
    registry: Arc<Registry>,
    router: axum::Router,
    hand: ManualClock,
    shutdown: Shutdown,
    writing: JoinHandle<writer::Ended>,
}

impl InProcess {
    async fn open(url: &str) -> Self {
        let (clock, hand) = Clock::manual(wall_us());
        let shutdown = Shutdown::manual(Duration::from_mins(1));
        let opened = try_open(url).await.expect("a store");
        let (cut, options) = (shutdown.cut().clone(), WriterOptions::default());
        let opened = writer::open(opened, clock.clone(), Arc::new(NoopObserver), cut, options).await;
        let (journal, writer, contents) = opened.expect("a journal");
        let writing = shutdown.spawn_last("journal writer", writer.run());
        let limits =
            Limits { auto_create: true, max_queues: 9, max_waiters: 9, watch: WatchLimits::default() };
        let metrics = Metrics::new(9).expect("metrics");
        let (config, journal) = (Config::default(), Some(journal));
        let registry = Registry::new(limits, config, clock.clone(), journal, shutdown.clone(), metrics);
        let registry = Arc::new(registry);
        registry.recover(contents).await.expect("the queues are loaded");
        registry.measure();
        let router = api(&registry, &clock, &shutdown);
        Self { registry, router, hand, shutdown, writing }
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = axum::http::Request::builder().method(method).uri(path);
        let request = request.body(axum::body::Body::from(body)).expect("a request");
        let answer = self.router.clone().oneshot(request).await.expect("routers answer");
        assert_eq!(answer.status(), 200, "{path}");
        let text = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
        serde_json::from_slice(&text).expect("JSON")
    }

    async fn add(&self, key: &str) {
        self.call("POST", "/v1/queues/q/add", &json!({ "key": key })).await;
    }

    /// The changes of each minute that has some.
    async fn changes(&self) -> Vec<u64> {
        let series = self.call("GET", "/v1/queues/q/series?since=10m", &Value::Null).await;
        let points = series["points"].as_array().expect("points");
        points
            .iter()
            .filter_map(|point| point["counts"]["changes"].as_u64())
            .filter(|count| *count > 0)
            .collect()
    }

    /// Ends the server as a stop does.
    async fn stop(self) {
        self.registry.close();
        assert_eq!(within(self.writing).await.expect("no panic"), writer::Ended::Closed);
        self.registry.leave();
        self.shutdown.signal();
    }
}

#[tokio::test]
async fn a_takeover_in_postgres_continues_the_minute_of_the_former_owner() {
    let cluster = Cluster::start();
    let first = InProcess::open(&cluster.url()).await;
    first.add("a").await;
    first.add("b").await;
    first.stop().await;
    let second = InProcess::open(&cluster.url()).await;
    second.add("c").await;
    second.hand.advance(Duration::from_mins(1));
    second.registry.measure();
    let changes = second.changes().await;
    assert!(changes == [3] || changes.iter().sum::<u64>() == 3 && changes.len() == 2, "{changes:?}");
    second.stop().await;
}

#[tokio::test]
async fn an_owner_that_lost_its_queues_changes_nothing_in_the_series() {
    let cluster = Cluster::start();
    let first = InProcess::open(&cluster.url()).await;
    first.add("a").await;
    let second = InProcess::open(&cluster.url()).await;
    second.add("b").await;
    // The former owner measures its minute and writes it, without having noticed.
    first.hand.advance(Duration::from_mins(1));
    first.registry.measure();
    assert_eq!(within(first.writing).await.expect("no panic"), writer::Ended::Fenced);
    second.hand.advance(Duration::from_mins(1));
    second.registry.measure();
    assert_eq!(second.changes().await, [1], "the change before the takeover is lost with its minute");
    second.stop().await;
    let third = InProcess::open(&cluster.url()).await;
    third.hand.advance(Duration::from_mins(2));
    third.registry.measure();
    assert_eq!(third.changes().await, [1]);
    third.stop().await;
}

#[test]
fn a_store_from_before_the_series_opens_and_begins_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut moved = Moved::new(folder.path(), "series-old");
    let server = moved.start();
    add(&server, "a");
    server.end(End::Stop { patience: PATIENCE });
    let database = moved.store.path().join("deltaq.db");
    let older = "DROP TABLE series; DELETE FROM _sqlx_migrations WHERE version >= 3;";
    let changed = Command::new("sqlite3").arg(database).arg(older).status().expect("sqlite3 is installed");
    assert!(changed.success());
    let server = moved.start();
    add(&server, "b");
    moved.pass(1);
    until_changes(&server, &[1]);
    let (_, body) = server.call(&Message::get("/v1/queues/q/series?since=1m".to_owned()));
    let series: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(series["points"][0]["gauges"]["ready"], 2, "the key from before is there");
    server.end(End::Kill);
}
