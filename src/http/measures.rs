//! What is measured of requests and connections.

use std::time::Duration;

use metrics::{Gauge, Label};

use super::problem::Code;
use crate::service::metrics::Metrics;

/// The route of a request that none has.
pub(super) const UNMATCHED: &str = "unmatched";
/// The method of a request that no route takes: one label, so that callers can't make up new ones.
pub(super) const UNKNOWN: &str = "other";

/// The metrics of requests. Clones are the same metrics.
#[derive(Clone, Debug)]
pub struct Measures(Metrics);

impl Measures {
    /// Nothing is measured yet.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        let measures = Self(metrics.clone());
        measures.count_turned_away(0);
        measures
    }

    /// A request is to be answered.
    pub(super) fn begin(&self) {
        if let Some(requests) = self.0.requests() {
            requests.begin();
        }
    }

    /// It is answered, or its caller has gone.
    pub(super) fn end(&self) {
        if let Some(requests) = self.0.requests() {
            requests.end();
        }
    }

    /// How many connections there are; there may be `limit`.
    pub fn connections(&self, limit: usize) -> Gauge {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        self.0.gauge("http_connections_limit", Vec::new()).set(f64::from(limit));
        self.0.gauge("http_connections", Vec::new())
    }

    /// A connection was past the cap: it had a request, of which nothing is known.
    pub(super) fn turned_away(&self) {
        self.count_turned_away(1);
    }

    fn count_turned_away(&self, connections: u64) {
        if let Some(requests) = self.0.requests() {
            requests.answered_unseen(UNKNOWN, UNMATCHED, Code::TooManyConnections.status(), connections);
        }
    }

    /// A caller has left before its answer, which has no status then.
    pub(super) fn gone(&self, method: &'static str, route: &str) {
        let labels = vec![Label::from_static_parts("method", method), Label::new("route", route.to_owned())];
        self.0.counter("http_requests_gone_total", labels).increment(1);
    }

    /// A request was answered.
    pub(super) fn answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        if let Some(requests) = self.0.requests() {
            requests.answered(method, route, status, took);
        }
    }
}
