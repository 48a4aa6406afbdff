//! The API without connections, and the transcript of its replies.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use deltaq::audit::Audit;
use deltaq::config::Settings;
use deltaq::http::{AppState, Gate, HttpLimits, Parts, RequestMetrics, StoreInfo, router};
use deltaq::push::{Connector, Policy};
use deltaq::spans::Spans;
use deltaq_engine::config::Config;
use deltaq_runtime::clock::{Clock, ManualClock};
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Partitions, Registry, WatchLimits};
use serde_json::Value;
use tower::ServiceExt;

/// The headers of a reply in the transcript.
const HEADERS: [&str; 6] = ["content-type", "allow", "cache-control", "connection", "etag", "retry-after"];

/// The API without connections, and the transcript of its replies.
pub(crate) struct Talk {
    pub(crate) router: axum::Router,
    registry: Arc<Registry>,
    pub(crate) hand: ManualClock,
    pub(super) shutdown: Shutdown,
    pub(super) transcript: String,
    /// Random values and their names.
    random: Vec<(String, String)>,
    /// The body of the last reply.
    pub(super) last: Value,
}

impl Talk {
    pub(crate) fn new() -> Self {
        Self::with(Limits { auto_create: true, max_queues: 3, max_waiters: 0, watch: WatchLimits::default() })
    }

    pub(super) fn with(limits: Limits) -> Self {
        let http = HttpLimits { max_body_bytes: 2_000, ..HttpLimits::of(&Settings::default()) };
        Self::within(limits, http)
    }

    /// An API with the default limits of bodies.
    pub(crate) fn large() -> Self {
        let limits =
            Limits { auto_create: true, max_queues: 3, max_waiters: 0, watch: WatchLimits::default() };
        Self::within(limits, HttpLimits::of(&Settings::default()))
    }

    fn within(limits: Limits, http: HttpLimits) -> Self {
        // 2026-01-02T03:04:05.678Z
        let (clock, hand) = Clock::manual(1_767_323_045_678_000);
        let shutdown = Shutdown::manual(Duration::ZERO);
        let metrics = Metrics::new(100).expect("metrics");
        let registry = Arc::new(Registry::new(
            limits,
            Config::default(),
            clock.clone(),
            None,
            shutdown.clone(),
            metrics,
        ));
        let state = AppState::from(Parts {
            request_metrics: RequestMetrics::new(registry.metrics()),
            partitions: Arc::new(Partitions::single(registry.clone())),
            limits: http,
            gate: Arc::new(Gate::open()),
            audit: Audit::default(),
            refused_lines: Arc::default(),
            push: Arc::default(),
            hook_secrets: Arc::default(),
            connector: Connector::new(&Policy::default()).expect("a connector"),
            spans: Spans::default(),
            started_us: clock.wall_us(),
            clock,
            shutdown: shutdown.clone(),
            store: StoreInfo::MEMORY,
            node: None,
            serves_metrics: true,
            serves_console: true,
            links: Arc::default(),
            serves_kubernetes: true,
        });
        let router = router(state);
        let (transcript, random) = (String::new(), Vec::new());
        Self { router, registry, hand, shutdown, transcript, random, last: Value::Null }
    }

    /// Sends a request with headers.
    pub(super) async fn say(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        let answer = self.router.clone().oneshot(request).await.expect("routers answer");
        let (head, body_of_answer) = answer.into_parts();
        let id =
            head.headers.get("x-request-id").and_then(|id| id.to_str().ok()).expect("every answer has an id");
        self.random.push((format!("\"{id}\""), "\"[request]\"".to_owned()));
        let bytes = to_bytes(body_of_answer, usize::MAX).await.expect("a whole body");
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        self.last = serde_json::from_str(&text).unwrap_or_default();

        let mut said = format!("{method} {path}\n");
        for (name, value) in headers {
            let _ = writeln!(said, "{name}: {}", value.chars().take(100).collect::<String>());
        }
        if !body.is_empty() {
            let _ = writeln!(said, "{}", body.trim_end());
        }
        let _ = writeln!(said, "\n{}", head.status.as_u16());
        for name in HEADERS {
            if let Some(value) = head.headers.get(name) {
                let _ = writeln!(said, "{name}: {}", value.to_str().expect("text"));
            }
        }
        let is_lines = head.headers.get("content-type").is_some_and(|kind| kind == "application/x-ndjson");
        if self.last.is_object() && !is_lines {
            super::types::check(method, path, head.status.as_u16(), &text);
        }
        let pretty = serde_json::to_string_pretty(&self.last).unwrap_or_default();
        let _ = writeln!(said, "{}", if self.last.is_null() || is_lines { text.trim_end() } else { &pretty });
        let said = self.redacted(said);
        self.transcript.push_str(&said);
        self.transcript.push_str("\n--------\n\n");
    }

    /// Sends a request with a JSON body; `Null` sends none.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: Value) -> Value {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.say(method, path, &[], &text).await;
        self.last.clone()
    }

    pub(crate) async fn post(&mut self, path: &str, body: Value) -> Value {
        self.ask("POST", &format!("/v1/queues/{path}"), body).await
    }

    pub(super) async fn get(&mut self, path: &str) -> Value {
        self.ask("GET", path, Value::Null).await
    }

    /// Starts a section.
    pub(super) fn note(&mut self, text: &str) {
        let _ = writeln!(self.transcript, "## {text}\n");
    }

    fn redacted(&mut self, mut text: String) -> String {
        for handle in self.registry.list(None, usize::MAX, |_| true) {
            let ids = [
                (handle.incarnation().to_string(), "[incarnation]"),
                (handle.lives().present().to_string(), "[life]"),
            ];
            for (id, name) in ids {
                if !self.random.iter().any(|(random, _)| *random == id) {
                    let hex = id.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
                    self.random.push((id, name.to_owned()));
                    self.random.push((hex, name.to_owned()));
                }
            }
        }
        for (random, name) in &self.random {
            text = text.replace(random, name);
        }
        text.replace(env!("CARGO_PKG_VERSION"), "[version]")
    }

    pub(super) fn end(self) -> String {
        self.shutdown.signal();
        self.transcript
    }
}
