//! Metrics of requests and connections.

use std::time::Duration;

use deltaq_service::metrics::Metrics;
use metrics::{Gauge, Label};

use super::problem::Code;

/// The label of a request that matches no route.
pub(super) const UNMATCHED: &str = "unmatched";
/// The label of every unknown method, so that callers can't create new labels.
pub(super) const UNKNOWN: &str = "other";

/// The results of calls on queues that other nodes own.
const FORWARDED_RESULTS: [&str; 5] = ["answered", "unreachable", "interrupted", "refused", "no_owner"];

/// The metrics of requests. Clones share them.
#[derive(Clone, Debug)]
pub struct RequestMetrics(Metrics);

impl RequestMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        let metrics = Self(metrics.clone());
        metrics.count_refused(0);
        for result in FORWARDED_RESULTS {
            metrics.count_forwarded(result, 0);
        }
        metrics
    }

    /// Records the beginning of a request.
    pub(super) fn begin(&self) {
        if let Some(requests) = self.0.requests() {
            requests.begin();
        }
    }

    /// Records the end of a request, with its response or because the client disconnected.
    pub(super) fn end(&self) {
        if let Some(requests) = self.0.requests() {
            requests.end();
        }
    }

    /// The number of open connections, of which `limit` are allowed.
    pub fn connections(&self, limit: usize) -> Gauge {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        self.0.gauge("deltaq_http_connections_limit", Vec::new()).set(f64::from(limit));
        self.0.gauge("deltaq_http_connections", Vec::new())
    }

    /// Records that a connection above the limit was refused. It counts as one request with unknown method and route.
    pub(super) fn connection_refused(&self) {
        self.count_refused(1);
    }

    fn count_refused(&self, connections: u64) {
        if let Some(requests) = self.0.requests() {
            requests.answered_unseen(UNKNOWN, UNMATCHED, Code::TooManyConnections.status(), connections);
        }
    }

    /// Records that a client disconnected before its response, so there is no status.
    pub(super) fn client_disconnected(&self, method: &'static str, route: &str) {
        let labels = vec![Label::from_static_parts("method", method), Label::new("route", route.to_owned())];
        self.0.counter("deltaq_http_requests_gone_total", labels).increment(1);
    }

    /// Records the end of a call on a queue that another node or no node owns.
    pub(super) fn forwarded(&self, result: &'static str) {
        self.count_forwarded(result, 1);
    }

    fn count_forwarded(&self, result: &'static str, calls: u64) {
        let labels = vec![Label::from_static_parts("result", result)];
        self.0.counter("deltaq_forwarded_requests_total", labels).increment(calls);
    }

    /// Records the response to a request.
    pub(super) fn answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        if let Some(requests) = self.0.requests() {
            requests.answered(method, route, status, took);
        }
    }
}
