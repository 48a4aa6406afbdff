//! A node of a history: the API without connections on a store in memory or without a store, or a process on a folder.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use deltaq_engine::config::Config;
use deltaq_journal::WriterOptions;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Registry, WatchLimits};
use futures_util::StreamExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::harness::Client;
use crate::harness::server::{End, Spawned, Store};
use crate::harness::waiting::PATIENCE;
use crate::harness::wall_clock::WallClock;
use crate::node;
use crate::server::commits::api;
use crate::store::fake::FakeStore;

/// The queue of all histories.
const QUEUE: &str = "/v1/queues/q";

/// A running node.
pub(super) enum Running {
    /// In this process.
    Here {
        router: Router,
        shutdown: Shutdown,
        node: Option<node::Node>,
    },
    Process(Spawned),
}

/// A reply.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
    pub(super) body: Value,
}

impl Running {
    /// A node on a store; without a store one without a journal.
    pub(super) async fn start(store: Option<&FakeStore>, clock: &Clock) -> Self {
        let shutdown = Shutdown::manual(Duration::from_mins(1));
        let (registry, node) = if let Some(store) = store {
            let options = WriterOptions { growth_bytes_min: u64::MAX, ..WriterOptions::default() };
            let node = node::start_on(store.clone(), store.opening(), clock, &shutdown, options).await;
            let node = node.expect("a store in order");
            (node.registry.clone(), Some(node))
        } else {
            let limits = Limits {
                auto_create: true,
                max_queues: 100,
                max_waiters: 100,
                watch: WatchLimits::default(),
            };
            let metrics = Metrics::new(100).expect("metrics");
            let registry =
                Registry::new(limits, Config::default(), clock.clone(), None, shutdown.clone(), metrics);
            (Arc::new(registry), None)
        };
        Self::Here { router: api(&registry, clock, &shutdown), shutdown, node }
    }

    /// A process on a folder.
    pub(super) fn process(folder: &Path, clock: &WallClock) -> Self {
        let store = Store::Borrowed(folder.to_owned());
        Self::Process(Spawned::start_with(&store, |command| {
            clock.give(command);
            // Live leases would delay the end.
            command.env("DELTAQ_SERVER__SHUTDOWN_TIMEOUT", "1s");
        }))
    }

    /// Stops the node, which writes its last checkpoint.
    pub(super) async fn stop(self) {
        match self {
            Self::Here { shutdown, node, .. } => {
                shutdown.signal();
                let _left = shutdown.join().await;
                if let Some(node) = node {
                    node.registry.close();
                    let _ended = node.writing.await;
                }
            }
            Self::Process(process) => drop(process.end(End::Stop { patience: PATIENCE })),
        }
    }

    /// Makes a call.
    pub(super) async fn call(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.call_with(method, path, &[("accept", "application/json")], body).await
    }

    /// Makes a call with these headers.
    pub(super) async fn call_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        match self {
            Self::Here { router, .. } => {
                let response = router
                    .clone()
                    .oneshot(request(method, path, headers, body))
                    .await
                    .expect("routers answer");
                let etag =
                    response.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
                let status = response.status().as_u16();
                let text = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
                Answer { status, etag, body: serde_json::from_slice(&text).unwrap_or_default() }
            }
            Self::Process(process) => {
                let mut client = Client::connect(process.api).await;
                let reply = client.call_with(method, &format!("{QUEUE}{path}"), headers, body).await;
                let etag = reply.header("etag").map(str::to_owned);
                Answer { status: reply.status, etag, body: reply.body }
            }
        }
    }

    /// The beginning of the stream of an `EventSource` that has this id.
    pub(super) async fn events_after(&self, id: &str) -> String {
        let headers = [("accept", "text/event-stream"), ("last-event-id", id)];
        let (status, first) = match self {
            Self::Here { router, .. } => {
                let request = request("GET", "/watch", &headers, &Value::Null);
                let response = router.clone().oneshot(request).await.expect("routers answer");
                let status = response.status().as_u16();
                let first = response.into_body().into_data_stream().next().await;
                (status, first.expect("a piece").expect("no cut").to_vec())
            }
            Self::Process(process) => {
                let mut client = Client::connect(process.api).await;
                client.send_text("GET", &format!("{QUEUE}/watch"), &headers, "").await;
                let (status, _) = client.head().await.expect("a head");
                (status, client.chunk().await.expect("no cut").expect("a piece"))
            }
        };
        assert_eq!(status, 200, "an EventSource would not come again");
        String::from_utf8(first).expect("text")
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(format!("{QUEUE}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let text = if body.is_null() { String::new() } else { body.to_string() };
    request.body(Body::from(text)).expect("a request")
}
