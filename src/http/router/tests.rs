//! The middleware around handlers that misbehave.

mod revoked;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use deltaq_engine::config::Config;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Partitions, Registry, WatchLimits};
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::audit::Audit;
use crate::config::{self, Settings};
use crate::http::api::table::Endpoint;
use crate::http::operation::{BodyKind, Class, Operation, Permission};
use crate::http::request::call::{Handler, boxed};
use crate::http::request::context::RequestContext;
use crate::http::{Gate, HttpLimits, InFlightLimits, Parts, RequestMetrics, StoreInfo};
use crate::push::{Connector, Policy};
use crate::spans::Spans;
use crate::telemetry::json_format;

/// An operation with the parameter `wait`.
const fn operation(method: &'static str, path: &'static str, class: Class, handler: Handler) -> Endpoint {
    let operation = Operation {
        method,
        path,
        id: None,
        permission: Permission::Nothing,
        class,
        body: BodyKind::Ignored,
        query: &["wait", "max"],
        is_quick: false,
    };
    Endpoint { operation, handler }
}

static LIVEZ: Endpoint =
    operation("GET", "/livez", Class::Unlimited, |_, _, _| boxed(std::future::ready("ok")));

/// A server without a journal.
fn state(gate: Gate, clock: Clock, request_timeout: Duration) -> AppState {
    let shutdown = Shutdown::manual(Duration::ZERO);
    let limits = Limits { auto_create: true, max_queues: 2, max_waiters: 1, watch: WatchLimits::default() };
    let metrics = Metrics::new(1).expect("metrics");
    let registry = Registry::new(limits, Config::default(), clock.clone(), None, shutdown.clone(), metrics);
    AppState::from(Parts {
        request_metrics: RequestMetrics::new(registry.metrics()),
        partitions: Arc::new(Partitions::single(Arc::new(registry))),
        limits: HttpLimits { request_timeout, ..HttpLimits::of(&Settings::default()) },
        gate: Arc::new(gate),
        audit: Audit::default(),
        refused_lines: Arc::default(),
        push: Arc::default(),
        hook_secrets: Arc::default(),
        connector: Connector::new(&Policy::default()).expect("a connector"),
        spans: Spans::default(),
        started_us: clock.wall_us(),
        clock,
        shutdown,
        store: StoreInfo::MEMORY,
        node: None,
        serves_metrics: false,
        serves_console: false,
        links: Arc::default(),
        serves_kubernetes: false,
    })
}

/// A server with two permits for each class and this request timeout.
fn guarded(request_timeout: Duration, operations: &'static [Endpoint]) -> Router {
    let bounds = config::Server {
        max_reads_in_flight: 2,
        max_writes_in_flight: 2,
        max_lists_in_flight: 2,
        max_waits_in_flight: 2,
        max_watches_in_flight: 2,
        max_reply_bytes_in_flight: 1 << 20,
        ..Settings::default().server
    };
    let gate = Gate {
        in_flight: Arc::new(InFlightLimits::new(&bounds, &crate::config::Settings::default().hooks)),
        ..Gate::open()
    };
    let state = state(gate, Clock::system(), request_timeout);
    let operations = Arc::new(Operations::of(operations.iter().chain([&LIVEZ])));
    Api { state, operations }.into_router()
}

async fn ask(router: &Router, method: &str, path: &str) -> (u16, Value, Option<String>) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let retry_after = response.headers().get("retry-after").map(|wait| wait.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default(), retry_after)
}

/// Far longer than any test runs.
const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_panic_is_a_500_without_its_text() {
    static PANICS: [Endpoint; 1] = [operation("GET", "/v1/boom/{key}", Class::Read, |_, _, _| {
        boxed(async { panic!("the inside") as &str })
    })];
    let (log, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
    let subscriber =
        tracing_subscriber::fmt().event_format(json_format()).with_writer(Arc::new(log)).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let router = guarded(HOUR, &PANICS);
    let (status, body, _) = ask(&router, "GET", "/v1/boom/secret").await;
    drop(guard);
    assert_eq!((status, &body["code"]), (500, &Value::from("internal")));
    assert!(!body.to_string().contains("the inside"), "{body}");
    let log = std::fs::read_to_string(path).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let reported: Vec<Value> = lines.filter(|line| line["message"] == "a request panicked").collect();
    assert_eq!(reported.len(), 1, "{log}");
    assert_eq!((&reported[0]["request_id"], &reported[0]["level"]), (&body["request_id"], &"ERROR".into()));
    assert_eq!((&reported[0]["route"], &reported[0]["method"]), (&"/v1/boom/{key}".into(), &"GET".into()));
    assert!(!log.contains("the inside") && !log.contains("secret"), "{log}");
    for _ in 0..3 {
        assert_eq!(ask(&router, "GET", "/v1/boom/a").await.0, 500, "a panic returns its permit");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_times_out() {
    static POPS: [Endpoint; 2] = [
        operation("POST", "/v1/queues/{queue}/pop", Class::Pop, |_, _, _| boxed(pending::<()>())),
        operation("POST", "/v1/queues/{queue}/add", Class::Write, |_, _, _| boxed(pending::<()>())),
    ];
    let router = guarded(Duration::from_secs(5), &POPS);
    let begun = tokio::time::Instant::now();
    let (status, body, retry_after) = ask(&router, "POST", "/v1/queues/a/pop").await;
    assert_eq!((status, &body["code"], &body["limit_ms"]), (504, &"timeout".into(), &5_000.into()));
    assert_eq!(retry_after.as_deref(), Some("1"));
    assert_eq!(begun.elapsed().as_secs(), 5);
    let begun = tokio::time::Instant::now();
    assert_eq!(ask(&router, "POST", "/v1/queues/a/pop?w%61it=20%73&max=1").await.0, 504);
    assert_eq!(begun.elapsed().as_secs(), 25, "the wait extends the timeout");
    let begun = tokio::time::Instant::now();
    assert_eq!(ask(&router, "POST", "/v1/queues/a/pop?wait=9000h").await.0, 504);
    assert_eq!(begun.elapsed().as_secs(), 60, "at most by server.max_wait");
    let begun = tokio::time::Instant::now();
    assert_eq!(ask(&router, "POST", "/v1/queues/a/add?wait=20s").await.0, 504);
    assert_eq!(begun.elapsed().as_secs(), 5, "only calls that may wait get more time");
}

#[tokio::test]
async fn a_turn_is_held_while_there_is_work_and_given_back_by_who_waits() {
    async fn reads(context: Arc<RequestContext>) {
        let readers = &context.state.gate.in_flight.large_bodies;
        let processors = std::thread::available_parallelism().unwrap().get();
        assert_eq!(readers.available_permits(), processors, "whoever came before waits and has none");
        context.acquire_parse_permit().await;
        assert_eq!(readers.available_permits(), processors - 1);
        pending::<()>().await;
    }
    static READS: [Endpoint; 1] =
        [operation("GET", "/v1/queues/{queue}", Class::Read, |context, _, _| boxed(reads(context)))];
    let router = guarded(HOUR, &READS);
    let (one, two) = (ask(&router, "GET", "/v1/queues/a"), ask(&router, "GET", "/v1/queues/a"));
    tokio::pin!(one, two);
    assert!(futures_util::poll!(&mut one).is_pending());
    assert!(futures_util::poll!(&mut two).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_replace_has_no_request_timeout() {
    static LISTS: [Endpoint; 1] =
        [operation("POST", "/v1/queues/{queue}/replace", Class::List, |_, _, _| {
            boxed(tokio::time::sleep(HOUR))
        })];
    let router = guarded(Duration::from_secs(5), &LISTS);
    assert_eq!(ask(&router, "POST", "/v1/queues/a/replace").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn each_class_has_a_limit_of_its_own() {
    static CLASSES: [Endpoint; 5] = [
        operation("GET", "/v1/queues/{queue}", Class::Read, |_, _, _| boxed(pending::<()>())),
        operation("POST", "/v1/queues/{queue}/add", Class::Write, |_, _, _| boxed(pending::<()>())),
        operation("POST", "/v1/queues/{queue}/ack", Class::Settle, |_, _, _| boxed(pending::<()>())),
        operation("POST", "/v1/queues/{queue}/pop", Class::Pop, |_, _, _| boxed(pending::<()>())),
        operation("POST", "/v1/queues/{queue}/replace", Class::List, |_, _, _| boxed(pending::<()>())),
    ];
    let router = guarded(HOUR, &CLASSES);
    // The parameter wait does not change the class.
    let calls = [
        "GET /v1/queues/a?wait=1s",
        "POST /v1/queues/a/add?wait=1s",
        "POST /v1/queues/a/ack",
        "POST /v1/queues/a/pop",
        "POST /v1/queues/a/replace?wait=1s",
    ];
    for (index, call) in calls.iter().enumerate() {
        let (method, path) = call.split_once(' ').unwrap();
        let (one, two) = (ask(&router, method, path), ask(&router, method, path));
        tokio::pin!(one, two);
        assert!(futures_util::poll!(&mut one).is_pending() && futures_util::poll!(&mut two).is_pending());
        let (status, body, retry_after) = ask(&router, method, path).await;
        assert_eq!((status, &body["code"], &body["limit"]), (429, &"too-many-requests".into(), &2.into()));
        assert_eq!(retry_after.as_deref(), Some("1"));
        assert_eq!(ask(&router, "GET", "/livez").await.0, 200, "health checks have no limit");
        let (method, path) = calls[(index + 1) % calls.len()].split_once(' ').unwrap();
        let other = ask(&router, method, path);
        tokio::pin!(other);
        assert!(futures_util::poll!(&mut other).is_pending(), "{call} takes no permit of {method} {path}");
    }
    let again = ask(&router, "GET", "/v1/queues/a");
    tokio::pin!(again);
    assert!(futures_util::poll!(&mut again).is_pending(), "a client that disconnects returns its permit");
}

#[tokio::test]
async fn unread_replies_to_reads_hold_bytes_and_no_permit() {
    static LARGE: [Endpoint; 1] = [operation("GET", "/v1/queues/{queue}", Class::Read, |_, _, _| {
        boxed(std::future::ready("x".repeat(290 << 10)))
    })];
    let router = guarded(HOUR, &LARGE);
    let read = || {
        let request = Request::builder().uri("/v1/queues/a").body(Body::empty()).unwrap();
        router.clone().oneshot(request)
    };
    let mut unread = Vec::new();
    for _ in 0..3 {
        let response = read().await.unwrap();
        assert_eq!(response.status(), 200, "an unread reply holds no permit");
        unread.push(response);
    }
    let (status, body, _) = ask(&router, "GET", "/v1/queues/a").await;
    assert_eq!(
        (status, &body["code"], &body["limit"]),
        (429, &"too-many-requests".into(), &((7 << 20) / 8).into())
    );
    assert!(body["detail"].as_str().unwrap().contains("server.max_reply_bytes_in_flight"), "{body}");
    unread.pop();
    assert_eq!(read().await.unwrap().status(), 200);
}
