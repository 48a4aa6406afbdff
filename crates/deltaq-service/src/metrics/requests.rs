//! The metrics of requests.
//!
//! Each thread has its own counters. A request changes five counters. With shared counters, each change would move a
//! cache line between processors, which would cost a fifteenth of the request's processor time.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use metrics::{Key, Label};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};
use parking_lot::RwLock;

use super::durations::{Distribution, Durations};
use super::page::write_distribution;
use super::striped::Striped;

const BUCKETS: usize = 14;
/// The bounds of the buckets in seconds, up to the maximum wait of a long poll.
const BOUNDS: [f64; BUCKETS] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// The bounds of the buckets in microseconds.
const BOUNDS_US: [u64; BUCKETS] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];

const IN_FLIGHT: &str = "deltaq_http_requests_in_flight";
const TOTAL: &str = "deltaq_http_requests_total";
const DURATION: &str = "deltaq_http_request_duration_seconds";

/// The metrics of a server's requests.
#[derive(Debug, Default)]
pub struct Requests {
    threads: Striped<Counts>,
}

/// The counters of one thread.
#[derive(Debug, Default)]
struct Counts {
    /// Requests that began on this thread minus requests that ended on it. Only the sum of all threads is meaningful.
    in_flight: AtomicI64,
    /// The series of each route. Their number is limited by the number of routes, methods and statuses.
    routes: RwLock<HashMap<Box<str>, Vec<Series>, RandomState>>,
}

#[derive(Debug)]
struct Series {
    method: &'static str,
    status: u16,
    durations: Durations<BUCKETS>,
    /// Requests whose duration is unknown.
    unseen: AtomicU64,
}

impl Requests {
    /// Records the beginning of a request.
    pub fn begin(&self) {
        self.threads.here().in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of a request: it is answered, or its client has disconnected.
    pub fn end(&self) {
        self.threads.here().in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records an answered request and its duration.
    pub fn answered(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        self.count(method, route, status, |series| series.durations.record(&BOUNDS_US, took));
    }

    /// Records answered requests whose duration is unknown. Even with 0 requests, the page shows the series from now
    /// on.
    pub fn answered_unseen(&self, method: &'static str, route: &str, status: u16, requests: u64) {
        self.count(method, route, status, |series| {
            series.unseen.fetch_add(requests, Ordering::Relaxed);
        });
    }

    fn count(&self, method: &'static str, route: &str, status: u16, count: impl Fn(&Series)) {
        let is_it = |series: &&Series| series.method == method && series.status == status;
        let counts = self.threads.here();
        let routes = counts.routes.read();
        if let Some(series) = routes.get(route).and_then(|series| series.iter().find(is_it)) {
            return count(series);
        }
        drop(routes);
        let mut routes = counts.routes.write();
        let of_route = routes.entry(route.into()).or_default();
        // Another thread that shares these counters may have added the series in the meantime.
        if let Some(series) = of_route.iter().find(is_it) {
            return count(series);
        }
        let series = Series { method, status, durations: Durations::default(), unseen: AtomicU64::new(0) };
        count(&series);
        of_route.push(series);
    }

    /// Appends the sums of all threads.
    pub(super) fn write(&self, text: &mut String) {
        // A request may end on a different thread than it began on. A sum that is read at the same time may therefore
        // be off by one, and even be negative.
        let in_flight =
            self.threads.all().map(|counts| counts.in_flight.load(Ordering::Relaxed)).sum::<i64>();
        let mut totals = BTreeMap::<_, u64>::new();
        let mut durations = BTreeMap::<_, Distribution<BUCKETS>>::new();
        for counts in self.threads.all() {
            let routes = counts.routes.read();
            for (route, series) in
                routes.iter().flat_map(|(route, all)| all.iter().map(move |one| (route, one)))
            {
                let (took, unseen) = (series.durations.read(), series.unseen.load(Ordering::Relaxed));
                *totals.entry((series.method, route.clone(), series.status)).or_default() +=
                    took.count() + unseen;
                if took.count() > 0 {
                    durations.entry((series.method, route.clone())).or_default().add(&took);
                }
            }
        }
        head(text, IN_FLIGHT, "gauge", "Requests in flight.");
        line(text, IN_FLIGHT, &labels(&[]), in_flight.max(0));
        text.push('\n');
        head(text, TOTAL, "counter", "Answered requests, by method, route and status.");
        for ((method, route, status), count) in totals {
            let labels = labels(&[("method", method), ("route", &route), ("status", &status.to_string())]);
            line(text, TOTAL, &labels, count);
        }
        text.push('\n');
        head(text, DURATION, "histogram", "Time from the head of a request to the head of its response.");
        for ((method, route), took) in durations {
            write_distribution(
                text,
                DURATION,
                &labels(&[("method", method), ("route", &route)]),
                &BOUNDS,
                &took,
            );
        }
        text.push('\n');
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    write_help_line(text, name, None, None, help);
    write_type_line(text, name, None, None, kind);
}

fn line(text: &mut String, name: &str, labels: &LabelSet, value: impl Display) {
    write_metric_line::<&str, _>(text, name, None, labels, None, value, None);
}

fn labels(pairs: &[(&'static str, &str)]) -> LabelSet {
    let labels: Vec<Label> =
        pairs.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
    LabelSet::from_key_and_global(&Key::from_parts("", labels), &<_>::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_all_threads_are_summed() {
        let requests = Requests::default();
        let took = Duration::from_millis;
        requests.begin();
        requests.answered_unseen("GET", "/c", 503, 0);
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    requests.begin();
                    requests.answered("POST", "/a", 200, took(1));
                    requests.answered("POST", "/a", 409, took(3));
                    requests.answered_unseen("GET", "/b", 200, 1);
                    requests.end();
                });
            }
        });
        let mut text = String::new();
        requests.write(&mut text);
        let has = |line: &str| assert!(text.lines().any(|have| have == line), "{line}\n{text}");
        has("deltaq_http_requests_in_flight 1");
        has(r#"deltaq_http_requests_total{method="POST",route="/a",status="200"} 100"#);
        has(r#"deltaq_http_requests_total{method="POST",route="/a",status="409"} 100"#);
        has(r#"deltaq_http_requests_total{method="GET",route="/b",status="200"} 100"#);
        has(r#"deltaq_http_requests_total{method="GET",route="/c",status="503"} 0"#);
        has(r#"deltaq_http_request_duration_seconds_bucket{method="POST",route="/a",le="0.001"} 100"#);
        has(r#"deltaq_http_request_duration_seconds_bucket{method="POST",route="/a",le="0.0025"} 100"#);
        has(r#"deltaq_http_request_duration_seconds_bucket{method="POST",route="/a",le="0.005"} 200"#);
        has(r#"deltaq_http_request_duration_seconds_sum{method="POST",route="/a"} 0.4"#);
        has(r#"deltaq_http_request_duration_seconds_count{method="POST",route="/a"} 200"#);
        assert!(!text.contains(r#"_count{method="GET""#), "the durations of these are unknown: {text}");
    }

    #[test]
    fn the_bounds_in_seconds_and_in_microseconds_are_equal() {
        assert_eq!(BOUNDS.map(Duration::from_secs_f64), BOUNDS_US.map(Duration::from_micros));
    }
}
