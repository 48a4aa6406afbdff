//! Replies wait for their commit. The tests use a fake store whose commits can be delayed and can fail.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use deltaq::audit::Audit;
use deltaq::config::Settings;
use deltaq::http::{AppState, Gate, HttpLimits, Parts, RequestMetrics, StoreInfo, router};
use deltaq::push::{Connector, Policy};
use deltaq::spans::Spans;
use deltaq_engine::event::{Ending, EventKind};
use deltaq_journal::record::Decoder;
use deltaq_journal::store::{QueueRow, Reader as _, Writes};
use deltaq_runtime::clock::{Clock, ManualClock};
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Creator, Name, Partitions, Registry};

use crate::harness::eventually;
use crate::store::fake::{FakeStore, Fault};
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{QUEUE, keys, lease, object, objects, settled, settling};
use crate::harness::within;
use crate::node;

/// More polls than any call needs that waits for nothing.
const TURNS: usize = 200;

/// The API without connections, on a fake store and a manual clock.
pub(crate) struct Bench {
    router: axum::Router,
    pub(super) journal: FakeStore,
    clock: Clock,
    pub(crate) hand: ManualClock,
    pub(super) registry: Arc<Registry>,
    /// Ends the tasks of the queues.
    shutdown: Shutdown,
}

/// The API of a registry.
pub(crate) fn api(registry: &Arc<Registry>, clock: &Clock, shutdown: &Shutdown) -> axum::Router {
    router(AppState::from(Parts {
        request_metrics: RequestMetrics::new(registry.metrics()),
        partitions: Arc::new(Partitions::single(registry.clone())),
        limits: HttpLimits::of(&Settings::default()),
        gate: Arc::new(Gate::open()),
        audit: Audit::default(),
        refused_lines: Arc::default(),
        push: Arc::default(),
        hook_secrets: Arc::default(),
        connector: Connector::new(&Policy::default()).expect("a connector"),
        spans: Spans::default(),
        started_us: clock.wall_us(),
        clock: clock.clone(),
        shutdown: shutdown.clone(),
        store: StoreInfo::MEMORY,
        node: None,
        serves_metrics: false,
        serves_console: false,
        links: Arc::default(),
        serves_kubernetes: false,
    }))
}

pub(crate) type Answer = Pin<Box<dyn Future<Output = Response<Body>>>>;

impl Bench {
    pub(crate) async fn new() -> Self {
        let (clock, hand) = Clock::manual(1_700_000_000_000_000);
        Self::on(FakeStore::default(), clock, hand).await
    }

    /// A server that starts on the store as a crash of this server leaves it.
    pub(super) async fn restarted(&self) -> Self {
        Self::on(self.journal.restarted(), self.clock.clone(), self.hand.clone()).await
    }

    async fn on(journal: FakeStore, clock: Clock, hand: ManualClock) -> Self {
        let shutdown = Shutdown::manual(Duration::ZERO);
        let registry = node::start(&journal, &clock, &shutdown, u64::MAX).await.expect("a store in order");
        let router = api(&registry, &clock, &shutdown);
        Self { router, journal, clock, hand, registry, shutdown }
    }

    /// A bench with an empty queue.
    pub(super) async fn with_queue() -> Self {
        let bench = Self::new().await;
        assert_eq!(bench.call("PUT", "", &json!({})).await.status(), 201);
        bench
    }

    /// A call that is not polled yet.
    pub(super) fn call(&self, method: &str, call: &str, body: &Value) -> Answer {
        self.send(method, call, if body.is_null() { String::new() } else { body.to_string() })
    }

    /// A call with any text as its body, which is not polled yet.
    pub(crate) fn send(&self, method: &str, call: &str, body: String) -> Answer {
        let request = Request::builder().method(method).uri(format!("{QUEUE}{call}"));
        let request = request.body(Body::from(body)).expect("a request");
        let router = self.router.clone();
        Box::pin(async move { router.oneshot(request).await.expect("routers answer") })
    }

    /// Reads a document that belongs to no queue.
    pub(super) async fn get(&self, path: &str) -> Value {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = self.router.clone().oneshot(request).await.expect("routers answer");
        assert_eq!(answer.status(), 200, "{path}");
        read(answer).await
    }

    /// Makes a POST and returns the reply's document.
    pub(super) async fn post(&self, call: &str, body: &Value) -> Value {
        let answer = self.call("POST", call, body).await;
        assert_eq!(answer.status(), 200, "{call}");
        read(answer).await
    }

    /// Repairs the journal, and waits until the queues work again.
    async fn recovered(&self) {
        self.journal.repair();
        let back = async {
            while self.call("POST", "/resume", &Value::Null).await.status() != 200 {
                tokio::task::yield_now().await;
            }
        };
        within(back).await;
    }

    pub(super) fn events(&self) -> Vec<EventKind> {
        let mut decoder = Decoder::new();
        let rows = self.journal.journal_rows();
        let events = rows.iter().flat_map(|row| decoder.events(row).expect("rows that were written"));
        events.map(|event| event.kind).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.shutdown.signal();
    }
}

pub(super) async fn read(answer: Response<Body>) -> Value {
    let text = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
    serde_json::from_slice(&text).expect("JSON")
}

/// Polls a call until it waits. Returns the reply, if there is one.
pub(super) async fn pushed<F: Future + ?Sized>(answer: &mut Pin<Box<F>>) -> Option<F::Output> {
    for _ in 0..TURNS {
        let polled = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = polled {
            return Some(answer);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Calls that change the queue or read changes. `{lease}` is a live lease.
fn calls(lease: &str) -> Vec<(&'static str, &'static str, Value)> {
    let leases = json!({"lease_ids": [lease]});
    vec![
        ("POST", "/add", object("new")),
        ("POST", "/update", object("new")),
        ("POST", "/delete", object("b")),
        ("POST", "/deltas", json!([{"type": "Added", "object": {"key": "new"}}])),
        ("POST", "/replace", objects(&["new"])),
        ("POST", "/resync", Value::Null),
        ("POST", "/pop", Value::Null),
        ("POST", "/pop", settling(lease, "ack")),
        ("POST", "/settle", settling(lease, "ack")),
        ("POST", "/ack", leases.clone()),
        ("POST", "/nack", leases.clone()),
        ("POST", "/release", leases.clone()),
        ("POST", "/reject", leases.clone()),
        ("POST", "/extend", leases),
        ("POST", "/pause", Value::Null),
        ("POST", "/close", Value::Null),
        ("POST", "/purge", Value::Null),
        ("PUT", "", json!({"max_failures": 3})),
        ("PATCH", "", json!({"max_failures": 4})),
    ]
}

/// All reads. Each must wait for the commit of the events that it may have seen.
const READS: &[&str] = &[
    "",
    "/status",
    "/items",
    "/items/new",
    "/explain/new",
    "/known",
    "/known/new",
    "/latest",
    "/latest/new",
    "/sources",
    "/synced",
    "/watch",
];

/// A fixture whose queue has a leased key `a`, ready keys `b` and `c`, and a known object `d`; and the lease of `a`.
async fn prepared() -> (Bench, String) {
    let bench = Bench::new().await;
    bench.post("/add", &object("d")).await;
    let popped = bench.post("/pop", &Value::Null).await;
    bench.post("/ack", &json!({"lease_ids": [lease(&popped, 0)]})).await;
    bench.post("/add", &objects(&["a", "b", "c"])).await;
    let popped = bench.post("/pop", &Value::Null).await;
    let held = lease(&popped, 0);
    (bench, held)
}

#[tokio::test]
async fn no_call_is_answered_before_its_commit() {
    let count = calls("").len();
    for index in 0..count {
        let (bench, held) = prepared().await;
        let (method, call, body) = calls(&held).swap_remove(index);
        bench.journal.hold();
        let mut answer = bench.call(method, call, &body);
        assert!(pushed(&mut answer).await.is_none(), "{method} {call} was answered before its commit");
        for read in READS {
            let mut looks = bench.call("GET", read, &Value::Null);
            assert!(pushed(&mut looks).await.is_none(), "GET {read} showed {call} before its commit");
        }
        bench.journal.release();
        assert!(answer.await.status().is_success(), "{method} {call}");
    }
}

#[tokio::test]
async fn a_failed_commit_gives_503_with_an_unknown_outcome() {
    let count = calls("").len();
    for index in 0..count {
        let (bench, held) = prepared().await;
        let (method, call, body) = calls(&held).swap_remove(index);
        bench.journal.hold();
        let mut answer = bench.call(method, call, &body);
        assert!(pushed(&mut answer).await.is_none());
        let mut looks = bench.call("GET", "/items", &Value::Null);
        assert!(pushed(&mut looks).await.is_none());
        bench.journal.break_by(Fault::Refused);
        for (call, answer) in [(call, answer.await), ("/items", looks.await)] {
            assert_eq!(answer.status(), 503, "{method} {call}");
            assert!(answer.headers().contains_key("retry-after"));
            let problem = read(answer).await;
            // A read changes nothing, so its outcome is known.
            let code = if call == "/items" { "queue-reloading" } else { "journal-unavailable" };
            assert_eq!((&problem["code"], &problem["retryable"]), (&json!(code), &json!(true)));
            // The outcome of the settles is also unknown.
            let settled = (call == "/pop").then(|| json!([]));
            assert_eq!(problem.get("settled"), settled.as_ref(), "{method} {call}");
        }
    }
}

#[tokio::test]
async fn a_waiting_pop_is_answered_after_the_commit_of_the_change_that_woke_it() {
    let bench = Bench::new().await;
    read(bench.call("PUT", "", &json!({})).await).await;
    let mut waits = bench.call("POST", "/pop?wait=30s", &Value::Null);
    assert!(pushed(&mut waits).await.is_none());
    bench.journal.hold();
    let mut add = bench.call("POST", "/add", &object("k"));
    assert!(pushed(&mut add).await.is_none());
    assert!(pushed(&mut waits).await.is_none(), "leased, and not committed");
    bench.journal.release();
    assert_eq!(keys(&read(waits.await).await), ["k"]);
}

#[tokio::test]
async fn a_watch_sends_a_change_after_its_commit() {
    let bench = Bench::with_queue().await;
    let mut rows =
        bench.call("GET", "/watch?resource_version=now", &Value::Null).await.into_body().into_data_stream();
    let mut row = Box::pin(async move { rows.next().await.expect("a row").expect("a body") });
    bench.journal.hold();
    let mut add = bench.call("POST", "/add", &object("k"));
    assert!(pushed(&mut add).await.is_none());
    assert!(pushed(&mut row).await.is_none(), "the row was sent before its commit");
    bench.journal.release();
    let row: Value = serde_json::from_slice(&row.await).expect("a row");
    assert_eq!((&row["type"], &row["key"]), (&json!("Added"), &json!("k")));
}

#[tokio::test]
async fn a_waiting_pop_learns_of_the_deletion_after_its_commit() {
    for (method, call) in [("POST", "/close"), ("DELETE", "")] {
        for (fault, status) in [(None, 410), (Some(Fault::Refused), 503)] {
            let bench = Bench::with_queue().await;
            let mut waits = bench.call("POST", "/pop?wait=30s", &Value::Null);
            assert!(pushed(&mut waits).await.is_none());
            bench.journal.hold();
            let mut ends = bench.call(method, call, &Value::Null);
            assert!(pushed(&mut ends).await.is_none());
            assert!(pushed(&mut waits).await.is_none(), "{method} {call} was answered before its commit");
            let succeeds = fault.is_none();
            fault.map_or_else(|| bench.journal.release(), |fault| bench.journal.break_by(fault));
            assert_eq!(ends.await.status().is_success(), succeeds, "{method} {call}");
            assert_eq!(waits.await.status(), status, "{method} {call}");
        }
    }
}

#[tokio::test]
async fn a_refusal_waits_for_the_commit_of_the_events_that_it_depends_on() {
    let refused = [
        ("PATCH", "", json!({"mode": "keys"}), "immutable-config"),
        ("POST", "/replace?max_delete_percent=0", json!([]), "mass-delete"),
        ("POST", "/seed", json!([{"object": {"key": "new"}}]), "not-empty"),
    ];
    for (method, call, body, code) in refused {
        let bench = Bench::with_queue().await;
        bench.journal.hold();
        let mut add = bench.call("POST", "/add", &object("k"));
        assert!(pushed(&mut add).await.is_none());
        let mut refusal = bench.call(method, call, &body);
        assert!(pushed(&mut refusal).await.is_none(), "{call} showed an add before its commit");
        bench.journal.release();
        assert_eq!(read(refusal.await).await["code"], code, "{call}");
    }
}

#[tokio::test]
async fn a_waiting_pop_keeps_its_position_when_another_commit_fails() {
    let bench = Bench::with_queue().await;
    bench.journal.hold();
    let mut later = bench.call("POST", "/add?delay=1h", &object("later"));
    assert!(pushed(&mut later).await.is_none());
    let mut waits = bench.call("POST", "/pop?wait=30s", &Value::Null);
    assert!(pushed(&mut waits).await.is_none());
    bench.journal.break_by(Fault::Refused);
    assert_eq!(later.await.status(), 503);
    bench.recovered().await;
    bench.post("/add", &object("k")).await;
    let popped = waits.await;
    assert_eq!(popped.status(), 200);
    assert_eq!(keys(&read(popped).await), ["k"]);
}

#[tokio::test]
async fn a_pop_without_keys_is_answered_after_the_commit_of_its_queue() {
    let bench = Bench::new().await;
    bench.journal.hold();
    let mut put = bench.call("PUT", "", &json!({}));
    assert!(pushed(&mut put).await.is_none());
    let mut pop = bench.call("POST", "/pop?wait=1ms", &Value::Null);
    assert!(pushed(&mut pop).await.is_none());
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(pushed(&mut pop).await.is_none(), "the reply showed a queue before the commit of its creation");
    bench.journal.release();
    assert_eq!(keys(&read(pop.await).await), Vec::<&str>::new());
}

#[tokio::test]
async fn a_replaced_pop_is_answered_after_the_commit_of_its_queue() {
    let bench = Bench::new().await;
    bench.journal.hold();
    let mut put = bench.call("PUT", "", &json!({}));
    assert!(pushed(&mut put).await.is_none());
    let mut before = bench.call("POST", "/pop?id=x&wait=30s", &Value::Null);
    assert!(pushed(&mut before).await.is_none());
    let mut after = bench.call("POST", "/pop?id=x&wait=30s", &Value::Null);
    assert!(pushed(&mut after).await.is_none());
    assert!(
        pushed(&mut before).await.is_none(),
        "the reply showed a queue before the commit of its creation"
    );
    bench.journal.release();
    assert_eq!(keys(&read(before.await).await), Vec::<&str>::new());
}

#[tokio::test]
async fn while_the_journal_is_down_no_reply_omits_or_denies_a_change() {
    let (bench, held) = prepared().await;
    bench.journal.hold();
    let mut add = bench.call("POST", "/add", &object("new"));
    assert!(pushed(&mut add).await.is_none());
    bench.journal.break_by(Fault::Refused);
    assert_eq!(add.await.status(), 503);
    let pop = bench.call("POST", "/pop", &settling(&held, "ack")).await;
    assert_eq!(pop.status(), 503);
    assert_eq!(read(pop).await["settled"], json!([]), "the lease is live");
    let list = Request::builder().uri("/v1/queues").body(Body::empty()).expect("a request");
    let list = bench.router.clone().oneshot(list).await.expect("routers answer");
    assert_eq!(list.status(), 503, "it would leave a queue out");
}

#[tokio::test]
async fn keys_keep_their_positions_if_the_client_disconnects_before_the_reply() {
    let (bench, _) = prepared().await;
    bench.journal.hold();
    let mut leaves = bench.call("POST", "/pop?max=1", &Value::Null);
    assert!(pushed(&mut leaves).await.is_none());
    let mut stays = bench.call("POST", "/pop?max=2", &Value::Null);
    assert!(pushed(&mut stays).await.is_none(), "it was handed c");
    let mut waits = bench.call("POST", "/pop?wait=30s", &Value::Null);
    assert!(pushed(&mut waits).await.is_none(), "nothing is left");
    drop(leaves);
    bench.journal.release();
    let popped = read(waits.await).await;
    assert_eq!((keys(&popped), &popped["items"][0]["attempt"]), (vec!["b"], &json!(1)));
    assert_eq!(keys(&read(stays.await).await), ["c"]);
}

#[tokio::test]
async fn keys_of_a_dropped_reply_return_to_the_front() {
    let (bench, _) = prepared().await;
    let answer = bench.call("POST", "/pop?max=1", &Value::Null).await;
    assert_eq!(keys(&read(bench.call("GET", "/items?state=ready", &Value::Null).await).await), ["c"]);
    drop(answer);
    // The queue's task returns the key without another call.
    let back = async {
        while keys(&read(bench.call("GET", "/items?state=ready", &Value::Null).await).await) != ["b", "c"] {
            tokio::task::yield_now().await;
        }
    };
    within(back).await;
    assert!(matches!(bench.events().last(), Some(EventKind::Settled { ending: Ending::Undelivered, .. })));
}

#[tokio::test]
async fn keys_of_a_disconnected_waiting_pop_go_to_the_next_pop() {
    let bench = Bench::new().await;
    read(bench.call("PUT", "", &json!({})).await).await;
    let mut leaves = bench.call("POST", "/pop?wait=30s", &Value::Null);
    assert!(pushed(&mut leaves).await.is_none());
    let mut next = bench.call("POST", "/pop?wait=30s", &Value::Null);
    assert!(pushed(&mut next).await.is_none());
    // The pop is woken, and its client disconnects before the pop is polled.
    bench.post("/add", &object("k")).await;
    assert!(pushed(&mut next).await.is_none(), "the key is with the first");
    drop(leaves);
    let popped = read(next.await).await;
    assert_eq!((keys(&popped), &popped["items"][0]["attempt"]), (vec!["k"], &json!(1)));
}

#[tokio::test]
async fn undelivered_keys_return_once_the_journal_works_again() {
    let (bench, _) = prepared().await;
    let lost = bench.call("POST", "/pop?lease_duration=1s", &Value::Null).await;
    assert_eq!(lost.status(), 200);
    bench.journal.break_by(Fault::Refused);
    assert_eq!(bench.call("POST", "-other/add", &object("k")).await.status(), 503);
    drop(lost);
    bench.hand.advance(Duration::from_secs(2));
    bench.recovered().await;
    let again = bench.post("/pop", &Value::Null).await;
    assert_eq!((keys(&again), &again["items"][0]["attempt"]), (vec!["b"], &json!(1)));
}

#[tokio::test]
async fn a_lost_reply_returns_no_keys_that_a_repeated_pop_has_delivered() {
    let (bench, _) = prepared().await;
    let first = bench.call("POST", "/pop?id=one", &Value::Null).await;
    let again = bench.post("/pop?id=one", &Value::Null).await;
    drop(first);
    assert_eq!(keys(&again), ["b"]);
    let acked = bench.post("/ack", &json!({"lease_ids": [lease(&again, 0)]})).await;
    assert_eq!(acked["settled"][0]["result"], "ok");
}

#[tokio::test]
async fn a_lost_reply_returns_no_keys_of_a_queue_that_was_loaded_again() {
    for is_repeated_before in [true, false] {
        let (bench, _) = prepared().await;
        let first = bench.call("POST", "/pop?id=one", &Value::Null).await;
        assert_eq!(first.status(), 200);
        if is_repeated_before {
            bench.post("/pop?id=one", &Value::Null).await;
        }
        bench.journal.break_by(Fault::Refused);
        assert_eq!(bench.call("POST", "/add", &object("k")).await.status(), 503);
        drop(first);
        bench.recovered().await;
        let again = bench.post("/pop?id=one", &Value::Null).await;
        assert_eq!((keys(&again), &again["items"][0]["attempt"]), (vec!["b"], &json!(1)));
        assert_eq!(keys(&bench.post("/pop", &Value::Null).await), ["c"]);
        let acked = bench.post("/ack", &json!({"lease_ids": [lease(&again, 0)]})).await;
        assert_eq!(acked["settled"][0]["result"], "ok");
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_repeated_pop_returns_no_keys() {
    let (bench, _) = prepared().await;
    let first = bench.post("/pop?id=one", &Value::Null).await;
    drop(bench.call("POST", "/pop?id=one", &Value::Null).await);
    assert_eq!(keys(&bench.post("/pop", &Value::Null).await), ["c"]);
    let acked = bench.post("/ack", &json!({"lease_ids": [lease(&first, 0)]})).await;
    assert_eq!(acked["settled"][0]["result"], "ok");
}

#[tokio::test]
async fn a_pop_whose_keys_have_returned_gets_new_leases() {
    let (bench, held) = prepared().await;
    let path = "/pop?id=one&max=2";
    drop(bench.call("POST", path, &settling(&held, "nack")).await);
    let again = read(bench.call("POST", path, &settling(&held, "nack")).await).await;
    assert_eq!((keys(&again), &again["settled"][0]["result"]), (vec!["b", "c"], &json!("repeated")));
    assert_eq!(again["items"][0]["attempt"], 1);
    let undone = |what: &EventKind| matches!(what, EventKind::Settled { ending: Ending::Undelivered, .. });
    assert_eq!(bench.events().iter().filter(|what| undone(what)).count(), 2);
}

#[tokio::test]
async fn a_lease_does_not_expire_before_its_own_commit() {
    let (bench, _) = prepared().await;
    bench.journal.hold();
    let mut pop = bench.call("POST", "/pop?lease_duration=1s", &Value::Null);
    assert!(pushed(&mut pop).await.is_none());
    bench.hand.advance(Duration::from_secs(2));
    let mut add = bench.call("POST", "/add", &object("new"));
    assert!(pushed(&mut add).await.is_none());
    let expired = |what: &EventKind| matches!(what, EventKind::Settled { ending: Ending::Expired(_), .. });
    assert_eq!(bench.events().iter().filter(|what| expired(what)).count(), 0);
    bench.journal.release();
    let popped = read(pop.await).await;
    assert_eq!((keys(&popped), &popped["items"][0]["lease"]["expires_in_ms"]), (vec!["b"], &json!(0)));
    bench.post("/add", &object("new")).await;
    assert_eq!(bench.events().iter().filter(|what| expired(what)).count(), 1);
}

#[tokio::test]
async fn settles_of_a_refused_pop_wait_for_their_commit() {
    let (bench, held) = prepared().await;
    bench.post("/purge", &Value::Null).await;
    bench.post("/close", &Value::Null).await;
    bench.journal.hold();
    let mut pop = bench.call("POST", "/pop?wait=30s", &settling(&held, "ack"));
    assert!(pushed(&mut pop).await.is_none());
    bench.journal.release();
    let closed = read(pop.await).await;
    assert_eq!((&closed["code"], &closed["settled"]), (&json!("queue-closed"), &settled(&held, "ack", "ok")));
}

#[tokio::test(start_paused = true)]
async fn delays_elapse_while_another_queue_cannot_be_loaded() {
    let bench = Bench::with_queue().await;
    bench.post("/add?delay=5s", &object("k")).await;
    let name = Name::new("damaged").expect("a name");
    let (damaged, _) = bench.registry.create(&name, Arc::default(), &Creator::default()).expect("a queue");
    damaged.read(|_, _| ()).await.expect("a durable queue");
    let [mut waits, mut leaves] = ["/pop?wait=30s"; 2].map(|call| bench.call("POST", call, &Value::Null));
    assert!(pushed(&mut waits).await.is_none() && pushed(&mut leaves).await.is_none());
    bench.journal.break_by(Fault::Refused);
    assert!(damaged.set_paused(true).await.is_err());
    // The task of the queue wakes up while the journal is down.
    drop(leaves);
    assert!(pushed(&mut waits).await.is_none());
    let row = bench.journal.queues().await.expect("rows").remove(1);
    let row = QueueRow { checksum: row.checksum ^ 1, ..row };
    bench.journal.put(Writes { queues: vec![row], ..Writes::default() }).expect("a row");
    bench.hand.advance(Duration::from_secs(6));
    bench.journal.repair();
    assert_eq!(keys(&read(waits.await).await), ["k"]);
}

#[tokio::test]
async fn the_tasks_of_a_queue_whose_creation_failed_end() {
    let bench = Bench::new().await;
    bench.journal.hold();
    let mut put = bench.call("PUT", "", &json!({}));
    assert!(pushed(&mut put).await.is_none());
    let queue = Arc::downgrade(&bench.registry.get(&Name::new("q").expect("a name")).expect("the queue"));
    bench.journal.break_by(Fault::Refused);
    assert_eq!(put.await.status(), 503);
    bench.journal.repair();
    // Each task has the queue.
    eventually(async || queue.strong_count() == 0).await;
}
