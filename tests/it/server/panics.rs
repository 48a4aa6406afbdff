//! A change that panics under the lock of its queue, as a bug would cause.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use deltaq_engine::command::Progress;
use deltaq_engine::config::Config;
use deltaq_engine::event::{Event, EventKind, ViewChanges};
use deltaq_engine::id::{Rv, Slot};
use deltaq_engine::lives::LifeId;
use deltaq_engine::snapshot::QueueState;
use deltaq_journal::record::{self, Decoder, NewRun, QueueRecord};
use deltaq_journal::store::{Epoch, JournalRow, QueueId, QueueRow, Reader, Writes};
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Creator, Error, Handle, Limits, Name, Registry, WatchLimits};
use futures_util::FutureExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::commits::{Bench, api, pushed, read};
use super::{keys, lease, object};
use crate::harness::eventually;
use crate::harness::within;
use crate::store::fake::Fault;

fn queue(registry: &Registry) -> Arc<Handle> {
    registry.get(&Name::new("q").expect("a name")).expect("the queue")
}

/// Panics while a change holds the lock of the queue.
async fn panic_in(handle: &Arc<Handle>) {
    let edit = |_: &Config| -> Result<Config, Error> { resume_unwind(Box::new("on purpose")) };
    assert!(AssertUnwindSafe(async { handle.configure(edit) }).catch_unwind().await.is_err());
}

async fn is_back(bench: &Bench) {
    eventually(async || bench.call("POST", "/resume", &Value::Null).await.status() == 200).await;
}

#[tokio::test]
async fn a_queue_is_loaded_from_its_journal_after_a_panic() {
    let bench = Bench::new().await;
    bench.post("/add", &json!([{"key": "a"}, {"key": "b"}])).await;
    let held = lease(&bench.post("/pop", &Value::Null).await, 0);
    panic_in(&queue(&bench.registry)).await;
    let fails = bench.call("POST", "/add", &object("c")).await;
    assert_eq!(
        (fails.status().as_u16(), read(fails).await["code"].clone()),
        (503, json!("journal-unavailable"))
    );
    assert_eq!(bench.call("GET", "/items", &Value::Null).await.status(), 503);
    is_back(&bench).await;
    let items = read(bench.call("GET", "/items?state=ready,leased", &Value::Null).await).await;
    assert_eq!(keys(&items), ["b", "a"]);
    let acked = bench.post("/ack", &json!({"lease_ids": [held]})).await;
    assert_eq!(acked["settled"][0]["result"], "ok");
    bench.post("/add", &object("c")).await;
    assert_eq!(keys(&bench.post("/pop?max=9", &Value::Null).await), ["b", "c"]);
    let ready = Request::get("/readyz").body(Body::empty()).expect("a request");
    let ready = api(&bench.registry, &Clock::system(), &Shutdown::manual(Duration::ZERO)).oneshot(ready);
    assert_eq!(ready.await.expect("routers answer").status(), 200);
}

#[tokio::test]
async fn a_list_of_queues_goes_on_without_a_queue_that_is_lost() {
    let bench = Bench::with_queue().await;
    let get = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let shutdown = Shutdown::manual(Duration::ZERO);
        api(&bench.registry, &Clock::system(), &shutdown).oneshot(request).await.expect("routers answer")
    };
    for name in ["a", "z"] {
        let name = Name::new(name).expect("a name");
        bench.registry.create(&name, Arc::default(), &Creator::default()).expect("a queue");
    }
    let whole = read(get("/v1/queues").await).await;
    assert_eq!((whole["items"].as_array().map(Vec::len), &whole["unavailable"]), (Some(3), &json!([])));
    // While a commit waits, the queue is not loaded again.
    bench.journal.hold();
    let mut add = bench.call("POST", "/add", &object("k"));
    assert!(pushed(&mut add).await.is_none());
    panic_in(&queue(&bench.registry)).await;
    let names = |page: &Value, list: &str| -> Vec<String> {
        let entries = page[list].as_array().expect("a list");
        entries.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    };
    let page = read(get("/v1/queues").await).await;
    assert_eq!(
        (names(&page, "items"), names(&page, "unavailable")),
        (vec!["a".into(), "z".into()], vec!["q".into()])
    );
    assert_eq!(page["unavailable"][0]["code"], "queue-reloading");
    // A page of the lost queue alone leads to the next page.
    let first = read(get("/v1/queues?limit=1").await).await;
    let second = format!("/v1/queues?limit=1&continue={}", first["continue"].as_str().expect("another page"));
    let second = read(get(&second).await).await;
    assert_eq!((names(&second, "items"), names(&second, "unavailable")), (vec![], vec!["q".into()]));
    assert!(second["continue"].is_string());
    // A list that would be empty, or can't say what it leaves out, is refused.
    let refused = get("/v1/queues?prefix=q").await;
    assert_eq!(refused.status(), 503);
    assert_eq!(read(refused).await["queue"], "q");
    let lines = Request::get("/v1/queues").header("accept", "application/x-ndjson").body(Body::empty());
    let shutdown = Shutdown::manual(Duration::ZERO);
    let lines = api(&bench.registry, &Clock::system(), &shutdown).oneshot(lines.expect("a request"));
    assert_eq!(lines.await.expect("routers answer").status(), 503);
    bench.journal.release();
    assert_eq!(add.await.status(), 200);
}

#[tokio::test]
async fn a_waiting_pop_keeps_its_position_after_a_panic() {
    let bench = Bench::with_queue().await;
    let mut waits = bench.call("POST", "/pop?wait=30s", &Value::Null);
    assert!(pushed(&mut waits).await.is_none());
    panic_in(&queue(&bench.registry)).await;
    assert!(pushed(&mut waits).await.is_none());
    is_back(&bench).await;
    bench.post("/add", &object("k")).await;
    assert_eq!(keys(&read(waits.await).await), ["k"]);
}

#[tokio::test]
async fn changes_before_a_panic_are_answered_with_their_commit_and_survive() {
    let bench = Bench::with_queue().await;
    bench.journal.hold();
    let mut add = bench.call("POST", "/add", &object("k"));
    assert!(pushed(&mut add).await.is_none());
    panic_in(&queue(&bench.registry)).await;
    let mut fails = bench.call("POST", "/add", &object("l"));
    assert_eq!(pushed(&mut fails).await.map(|answer| answer.status().as_u16()), Some(503));
    bench.journal.release();
    assert_eq!(add.await.status(), 200);
    is_back(&bench).await;
    assert_eq!(keys(&bench.post("/pop?max=9", &Value::Null).await), ["k"]);
}

#[tokio::test]
async fn a_queue_whose_reload_fails_is_loaded_once_the_journal_is_back() {
    let bench = Bench::with_queue().await;
    bench.post("/add", &object("k")).await;
    bench.journal.hold();
    let mut add = bench.call("POST", "/add", &object("lost"));
    assert!(pushed(&mut add).await.is_none());
    panic_in(&queue(&bench.registry)).await;
    bench.journal.break_by(Fault::Refused);
    assert_eq!(add.await.status(), 503);
    bench.journal.repair();
    is_back(&bench).await;
    assert_eq!(keys(&bench.post("/pop?max=9", &Value::Null).await), ["k"]);
}

#[tokio::test]
async fn time_goes_on_in_a_queue_whose_task_panicked() {
    let bench = Bench::with_queue().await;
    let handle = queue(&bench.registry);
    bench.post("/add?delay=5s", &object("a")).await;
    let mut leaves = bench.call("POST", "/pop?wait=30s", &Value::Null);
    assert!(pushed(&mut leaves).await.is_none());
    // No number follows this one, so the next event panics.
    let exhausted = handle.long_command(|queue, now| {
        queue.apply(&Event {
            rv: Rv::MAX,
            at: now,
            kind: EventKind::Recovered { life: LifeId::new(1) },
            views: ViewChanges::default(),
            sequence: None,
            by: None,
        });
        Ok(Progress::Done(()))
    });
    exhausted.await.expect("a change");
    bench.hand.advance(Duration::from_secs(6));
    // The task removes the pop, and the delay elapses.
    drop(leaves);
    let newest = async || handle.read(|queue, _| queue.resource_version()).await;
    eventually(async || !newest().await.is_ok_and(|newest| newest == Rv::MAX)).await;
    is_back(&bench).await;
    assert_eq!(keys(&bench.post("/pop", &Value::Null).await), ["a"]);
    bench.post("/add?delay=5s", &object("b")).await;
    let [mut waits, mut leaves] = ["/pop?wait=30s"; 2].map(|call| bench.call("POST", call, &Value::Null));
    assert!(pushed(&mut waits).await.is_none() && pushed(&mut leaves).await.is_none());
    bench.hand.advance(Duration::from_secs(6));
    drop(leaves);
    assert_eq!(keys(&read(within(waits).await).await), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_panics_while_another_is_damaged_keeps_its_uncommitted_changes() {
    let bench = Bench::with_queue().await;
    let name = Name::new("damaged").expect("a name");
    let (damaged, _) = bench.registry.create(&name, Arc::default(), &Creator::default()).expect("a queue");
    damaged.read(|_, _| ()).await.expect("a durable queue");
    bench.journal.hold();
    let mut paused = Box::pin(damaged.set_paused(true));
    assert!((&mut paused).now_or_never().is_none());
    bench.journal.break_by(Fault::Refused);
    assert!(paused.await.is_err());
    let row = JournalRow {
        queue: QueueId(2),
        epoch: Epoch(1),
        prev_rv: Rv::ZERO,
        first_rv: Rv::new(1),
        last_rv: Rv::new(1),
        at: damaged.now(),
        format: 1,
        texts: Vec::new(),
        text_bytes: 0,
        events: "[]".to_owned(),
        checksum: 0,
    };
    bench.journal.put(Writes { journal: vec![row], ..Writes::default() }).expect("a row");
    bench.journal.repair();
    is_back(&bench).await;
    bench.journal.hold();
    let mut add = bench.call("POST", "/add", &object("k"));
    assert!(pushed(&mut add).await.is_none());
    panic_in(&queue(&bench.registry)).await;
    // The damaged queue is loaded again and again, and fails each time.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(damaged.read(|_, _| ()).await.is_err());
    bench.journal.release();
    assert_eq!(add.await.status(), 200);
    is_back(&bench).await;
    assert_eq!(keys(&bench.post("/pop?max=9", &Value::Null).await), ["k"]);
}

/// The row of the only queue, with another number of its newest event.
async fn row_at(bench: &Bench, rv: Rv) -> QueueRow {
    let row = bench.journal.queues().await.expect("rows").remove(0);
    let QueueRecord { identity, state, .. } = Decoder::new().queue(&row).expect("a row in order");
    let runs = row.first_run..row.next_run;
    record::queue_row(&identity, &QueueState { rv, ..state.expect("a live queue") }, runs)
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_can_not_be_loaded_again_is_loaded_later() {
    let bench = Bench::with_queue().await;
    let handle = queue(&bench.registry);
    bench.post("/add", &json!([{"key": "a"}, {"key": "b"}])).await;
    let ready =
        handle.read(|queue, _| ["a", "b"].map(|key| queue.table().get(key).map(|entry| entry.state(None))));
    let ready = ready.await.expect("the queue").map(|state| state.expect("a ready key"));
    assert_eq!(keys(&bench.post("/pop?max=2&lease_duration=1h", &Value::Null).await), ["a", "b"]);
    let mut waits = bench.call("POST", "/pop?wait=30s&max=2", &Value::Null);
    assert!(pushed(&mut waits).await.is_none());
    panic_in(&handle).await;
    // No number is left for another life.
    let intact = row_at(&bench, Rv::ZERO).await;
    let mut run = NewRun::default();
    for (slot, state) in (0..).map(Slot::new).zip(&ready) {
        run.add_key(slot, state, false);
    }
    let broken = Writes {
        queues: vec![row_at(&bench, Rv::new(u64::MAX - 1)).await],
        runs: vec![run.close(QueueId(1), 0)],
        ..Writes::default()
    };
    bench.journal.put(broken).expect("rows");
    assert!(pushed(&mut waits).await.is_none());
    assert_eq!(bench.call("GET", "/items", &Value::Null).await.status(), 503);
    let repaired = Writes { queues: vec![intact], ..Writes::default() };
    bench.journal.remove_runs();
    bench.journal.put(repaired).expect("rows");
    is_back(&bench).await;
    let items = read(bench.call("GET", "/items?state=leased", &Value::Null).await).await;
    assert_eq!(keys(&items), ["a", "b"]);
    // The pop that waits has kept its place.
    bench.post("/add", &object("c")).await;
    assert_eq!(keys(&read(waits.await).await), ["c"]);
    // The recovery still runs.
    panic_in(&handle).await;
    is_back(&bench).await;
}

#[tokio::test]
async fn without_a_journal_a_panic_breaks_only_its_queue_and_readyz_fails() {
    let (clock, _) = Clock::manual(1_700_000_000_000_000);
    let shutdown = Shutdown::manual(Duration::ZERO);
    let limits = Limits { auto_create: true, max_queues: 9, max_waiters: 9, watch: WatchLimits::default() };
    let metrics = Metrics::new(9).expect("metrics");
    let registry = Registry::new(limits, Config::default(), clock.clone(), None, shutdown.clone(), metrics);
    let registry = Arc::new(registry);
    let router = api(&registry, &clock, &shutdown);
    let call = async |method: &str, path: &str| {
        let body = if path.ends_with("add") { json!({"key": "k"}).to_string() } else { String::new() };
        let request = Request::builder().method(method).uri(path).body(Body::from(body)).expect("a request");
        router.clone().oneshot(request).await.expect("routers answer").status().as_u16()
    };
    assert_eq!(call("PUT", "/v1/queues/q").await, 201);
    assert_eq!(call("POST", "/v1/queues/other/add").await, 200);
    assert_eq!(call("GET", "/readyz").await, 200);
    let mut waits = Box::pin(call("POST", "/v1/queues/q/pop?wait=30s"));
    assert!((&mut waits).now_or_never().is_none());
    panic_in(&queue(&registry)).await;
    assert_eq!(within(waits).await, 500, "nothing will ever come");
    assert_eq!(call("POST", "/v1/queues/q/add").await, 500);
    assert_eq!(call("POST", "/v1/queues/other/add").await, 200);
    assert_eq!(call("GET", "/readyz").await, 500);
    shutdown.signal();
}
