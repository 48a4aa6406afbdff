//! Tokens expire by the wall clock as it is at the request, however an operator or NTP steps it while the server runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::Request;
use deltaq::access::{Access, Tokens};
use deltaq::audit::Audit;
use deltaq::config::access::{TokenEntry, Verb};
use deltaq::config::{self, Settings};
use deltaq::http::{AppState, Gate, HttpLimits, Parts, RequestMetrics, StoreInfo, router};
use deltaq::push::{Connector, Policy};
use deltaq::spans::Spans;
use deltaq_engine::config::Config;
use deltaq_runtime::clock::{Clock, ManualClock};
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Partitions, Registry, WatchLimits};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::token;
use crate::harness::within;

/// 2026-01-02T03:00:00Z
const START_US: u64 = 1_767_322_800_000_000;
const HOUR_US: u64 = 3_600_000_000;
const HOUR: Duration = Duration::from_hours(1);

/// The API, with a token "short" that expires at 04:00.
fn api(audit: Audit) -> (Router, ManualClock) {
    let (clock, hand) = Clock::manual(START_US);
    let shutdown = Shutdown::manual(Duration::ZERO);
    let limits = Limits { auto_create: true, max_queues: 3, max_waiters: 0, watch: WatchLimits::default() };
    let metrics = Metrics::new(1).expect("metrics");
    let registry = Registry::new(limits, Config::default(), clock.clone(), None, shutdown.clone(), metrics);
    let expires = Some("2026-01-02T04:00:00Z".to_owned());
    let entries = [TokenEntry { expires, ..token("short", &Verb::ALL, "*") }];
    let tokens = Tokens::new(&entries, &Tokens::default()).expect("a valid entry");
    let state = AppState::from(Parts {
        request_metrics: RequestMetrics::new(registry.metrics()),
        partitions: Arc::new(Partitions::single(Arc::new(registry))),
        limits: HttpLimits::of(&Settings::default()),
        gate: Arc::new(Gate { access: Access::new(tokens), ..Gate::open() }),
        audit,
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
    });
    (router(state), hand)
}

/// The status and the body of a request with the token.
async fn call(router: &Router, method: &str, path: &str, body: Body) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("authorization", "Bearer short");
    let request = request.body(body).expect("a request");
    let response = router.clone().oneshot(request).await.expect("routers reply");
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.expect("a complete body");
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

async fn is_valid(router: &Router) -> bool {
    match call(router, "GET", "/v1/info", Body::empty()).await {
        (200, _) => true,
        (401, problem) => {
            assert_eq!(problem["detail"], "the token expired at 2026-01-02T04:00:00.000Z");
            false
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_token_expires_by_the_wall_clock_though_it_is_stepped() {
    let (router, hand) = api(Audit::default());
    assert!(is_valid(&router).await);
    hand.set_wall(START_US + HOUR_US);
    assert!(!is_valid(&router).await, "the wall clock was stepped forward");
    hand.set_wall(START_US + HOUR_US - 1);
    assert!(is_valid(&router).await, "the wall clock was stepped back");
    hand.advance(2 * HOUR);
    assert!(!is_valid(&router).await);
    hand.set_wall(START_US);
    assert!(is_valid(&router).await, "hours have passed, but the wall clock was stepped back");
    hand.advance(HOUR.saturating_sub(Duration::from_micros(1)));
    assert!(is_valid(&router).await);
    hand.advance(Duration::from_micros(1));
    assert!(!is_valid(&router).await);
}

#[tokio::test]
async fn a_token_that_expires_during_its_body_is_refused() {
    let (router, hand) = api(Audit::default());
    for (wall_us, status) in [(START_US + HOUR_US - 1, 200), (START_US + HOUR_US, 401)] {
        let hand = hand.clone();
        hand.set_wall(START_US);
        let later = stream::once(async move {
            // The server waits for this part of the body, so it checks the token again after it.
            tokio::task::yield_now().await;
            hand.set_wall(wall_us);
            Ok::<_, Infallible>(Bytes::from_static(b"{\"key\":\"a\"}"))
        });
        let body = Body::from_stream(stream::once(async { Ok(Bytes::from_static(b" ")) }).chain(later));
        let (answered, body) = call(&router, "POST", "/v1/queues/prices/add", body).await;
        assert_eq!(answered, status, "{body}");
    }
}

#[tokio::test]
async fn the_audit_log_shows_the_wall_clock_of_each_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.jsonl");
    let settings = config::Audit { calls: config::AuditCalls::All, file: Some(file.clone()) };
    let (audit, writer) = Audit::open(&settings).expect("a file");
    let (router, hand) = api(audit);
    for wall_us in [START_US, START_US + 2 * HOUR_US, START_US + HOUR_US / 2] {
        hand.set_wall(wall_us);
        is_valid(&router).await;
    }
    let closing = CancellationToken::new();
    closing.cancel();
    within(writer.expect("a writer").run(closing)).await;
    let text = std::fs::read_to_string(file).expect("a file");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let shown: Vec<(Value, Value)> =
        lines.map(|line| (line["time"].clone(), line["outcome"].clone())).collect();
    let expected = [
        ("2026-01-02T03:00:00.000Z", "ok"),
        ("2026-01-02T05:00:00.000Z", "unauthorized"),
        ("2026-01-02T03:30:00.000Z", "ok"),
    ];
    assert_eq!(shown, expected.map(|(time, outcome)| (time.into(), outcome.into())));
}
