//! What is measured of requests. The series of a route are looked up once and then kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use foldhash::fast::RandomState;
use metrics::{Counter, Gauge, Histogram, Label};

use super::problem::Code;
use crate::service::metrics::Metrics;

/// The route of a request that none has.
pub(super) const UNMATCHED: &str = "unmatched";
/// The method of a request that no route takes: one label, so that callers can't make up new ones.
pub(super) const UNKNOWN: &str = "other";

/// The metrics of requests.
pub struct Measures {
    metrics: Metrics,
    in_flight: Gauge,
    /// By route: bounded by the routes, methods and statuses that there are.
    routes: RwLock<HashMap<Box<str>, Vec<Series>, RandomState>>,
}

struct Series {
    method: &'static str,
    status: u16,
    total: Counter,
    duration: Histogram,
}

impl Measures {
    /// Nothing is measured yet.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        let in_flight = metrics.gauge("http_requests_in_flight", Vec::new());
        Self { metrics: metrics.clone(), in_flight, routes: RwLock::default() }
    }

    /// How many requests are being answered.
    pub(super) fn in_flight(&self) -> &Gauge {
        &self.in_flight
    }

    /// How many connections there are; there may be `limit`.
    pub fn connections(&self, limit: usize) -> Gauge {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        self.metrics.gauge("http_connections_limit", Vec::new()).set(f64::from(limit));
        self.metrics.gauge("http_connections", Vec::new())
    }

    /// Counts connections past the cap: each had a request, of which nothing is known.
    pub fn turned_away(&self) -> Counter {
        self.series(UNKNOWN, UNMATCHED, Code::TooManyConnections.status()).total
    }

    /// A caller has left before its answer, which has no status then.
    pub(super) fn gone(&self, method: &'static str, route: &str) {
        let labels = vec![Label::from_static_parts("method", method), Label::new("route", route.to_owned())];
        self.metrics.counter("http_requests_gone_total", labels).increment(1);
    }

    /// A request was answered.
    pub(super) fn answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        if !self.metrics.is_on() {
            return;
        }
        let record = |series: &[Series]| {
            let found = series.iter().find(|series| series.method == method && series.status == status);
            found.inspect(|series| {
                series.total.increment(1);
                series.duration.record(took.as_secs_f64());
            });
            found.is_some()
        };
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        if routes.get(route).is_some_and(|series| record(series)) {
            return;
        }
        drop(routes);
        let series = self.series(method, route, status);
        record(std::slice::from_ref(&series));
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        // Of two that come at once both are the same series.
        routes.entry(route.into()).or_default().push(series);
    }

    fn series(&self, method: &'static str, route: &str, status: u16) -> Series {
        let route = Label::new("route", route.to_owned());
        let of_method = Label::from_static_parts("method", method);
        let of_status = Label::new("status", status.to_string());
        let labels = vec![of_method.clone(), route.clone(), of_status];
        let total = self.metrics.counter("http_requests_total", labels);
        let duration = self.metrics.histogram("http_request_duration_seconds", vec![of_method, route]);
        Series { method, status, total, duration }
    }
}

impl fmt::Debug for Measures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Measures")
    }
}
