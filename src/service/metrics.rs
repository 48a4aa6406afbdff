//! The metrics of queues: every name stands here, with what it means.
//!
//! The seven `workqueue_*` have client-go's names, labels and meaning, so that dashboards made for
//! Kubernetes work unchanged. Counters and gauges are handed over when somebody scrapes; only the
//! two histograms are fed as things happen. A key or a raw path is never a label.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::Name;
use crate::engine::delta::DeltaKind;
use crate::engine::time::Time;
use crate::engine::{Queue, Status, Tally};
use crate::journal::Observer;

/// client-go's buckets: 1e-8 s to 1e3 s by tens.
const WORKQUEUE_BUCKETS: [f64; 12] =
    [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];
/// From half a millisecond to the longest wait of a long poll.
const HTTP_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

const METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// From a commit on a fast disk to one on a disk in trouble.
const JOURNAL_BUCKETS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];
/// How many events share a commit.
const EVENTS_BUCKETS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 2_500.0, 10_000.0];
/// A checkpoint takes from milliseconds to minutes.
const CHECKPOINT_BUCKETS: [f64; 9] = [0.005, 0.02, 0.1, 0.5, 2.0, 5.0, 15.0, 60.0, 300.0];

const COMMIT_DURATION: &str = "deltaq_journal_commit_duration_seconds";
const COMMIT_EVENTS: &str = "deltaq_journal_commit_events";
const JOURNAL_BYTES: &str = "deltaq_journal_bytes";
const CHECKPOINT_DURATION: &str = "deltaq_checkpoint_duration_seconds";
const CHECKPOINT_LAG: &str = "deltaq_checkpoint_lag_events";

const DESCRIPTIONS: [(&str, Kind, &str); 25] = [
    ("workqueue_depth", Kind::Gauge, "Keys in line, and leased keys that will be in line again."),
    ("workqueue_adds_total", Kind::Counter, "How often a key got work to do."),
    ("workqueue_queue_duration_seconds", Kind::Histogram, "From a key's work coming in to its handing out."),
    ("workqueue_work_duration_seconds", Kind::Histogram, "From handing a key out to the end of its lease."),
    ("workqueue_unfinished_work_seconds", Kind::Gauge, "How long all live leases have lasted, added up."),
    (
        "workqueue_longest_running_processor_seconds",
        Kind::Gauge,
        "How long the oldest live lease has lasted.",
    ),
    ("workqueue_retries_total", Kind::Counter, "Delayed and rate-limited requeues."),
    ("deltaq_items", Kind::Gauge, "Keys by state: ready, delayed, leased, parked."),
    ("deltaq_known_objects", Kind::Gauge, "Objects that consumers acknowledged last."),
    ("deltaq_deltas_total", Kind::Counter, "Deltas queued, by type."),
    ("deltaq_deltas_coalesced_total", Kind::Counter, "Deltas merged into newer ones by a key's cap."),
    ("deltaq_deltas_ignored_total", Kind::Counter, "Calls and objects that queued nothing, by reason."),
    ("deltaq_settled_total", Kind::Counter, "Leases by how they ended, and settles that came too late."),
    ("deltaq_oldest_ready_age_seconds", Kind::Gauge, "How long the first key has been in line."),
    ("deltaq_waiters", Kind::Gauge, "Pops that wait."),
    ("deltaq_has_synced", Kind::Gauge, "1 once the initial list is acknowledged."),
    (COMMIT_DURATION, Kind::Histogram, "From encoding a batch to its being durable."),
    (COMMIT_EVENTS, Kind::Histogram, "Events in a commit."),
    (JOURNAL_BYTES, Kind::Gauge, "Bytes of the journal's files."),
    (CHECKPOINT_DURATION, Kind::Histogram, "From the first slice of a checkpoint to its last."),
    (CHECKPOINT_LAG, Kind::Gauge, "Events that a start would replay."),
    ("deltaq_build_info", Kind::Gauge, "Always 1; the label is the version of the binary."),
    ("http_requests_in_flight", Kind::Gauge, "Requests that are being answered."),
    ("http_requests_total", Kind::Counter, "Requests answered, by method, route and status."),
    ("http_request_duration_seconds", Kind::Histogram, "From a request's head to its answer's head."),
];

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The metrics of a server. Clones are the same metrics.
#[derive(Clone)]
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    process: metrics_process::Collector,
    /// Names of queues that are gone: what was recorded for them is not shown.
    gone: Arc<Mutex<HashSet<Name>>>,
}

/// The metrics of one queue.
pub struct QueueMetrics {
    queue_duration: Histogram,
    work_duration: Histogram,
    recorder: Metrics,
    name: Name,
}

/// Gauges that only metrics need.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    depth: usize,
    unfinished: Duration,
    longest: Duration,
}

impl Numbers {
    /// Reads them off the queue.
    #[must_use]
    pub fn of(queue: &Queue, now: Time) -> Self {
        Self {
            depth: queue.schedule().depth(),
            unfinished: queue.schedule().leased_for(now),
            longest: queue.longest_lease(now).unwrap_or_default(),
        }
    }
}

impl Metrics {
    /// Metrics of their own, apart from any global recorder.
    ///
    /// # Errors
    /// [`BuildError`] if the exporter refuses its settings.
    pub fn new() -> Result<Self, BuildError> {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Prefix("workqueue_".to_owned()), &WORKQUEUE_BUCKETS)?
            .set_buckets_for_metric(Matcher::Prefix("http_".to_owned()), &HTTP_BUCKETS)?
            .set_buckets_for_metric(Matcher::Full(COMMIT_DURATION.to_owned()), &JOURNAL_BUCKETS)?
            .set_buckets_for_metric(Matcher::Full(COMMIT_EVENTS.to_owned()), &EVENTS_BUCKETS)?
            .set_buckets_for_metric(Matcher::Full(CHECKPOINT_DURATION.to_owned()), &CHECKPOINT_BUCKETS)?;
        let recorder = builder.build_recorder();
        for (name, kind, text) in DESCRIPTIONS {
            match kind {
                Kind::Counter => recorder.describe_counter(name.into(), None, text.into()),
                Kind::Gauge => recorder.describe_gauge(name.into(), None, text.into()),
                Kind::Histogram => {
                    let unit = name.ends_with("_seconds").then_some(Unit::Seconds);
                    recorder.describe_histogram(name.into(), unit, text.into());
                }
            }
        }
        let handle = recorder.handle();
        let process = metrics_process::Collector::default();
        metrics::with_local_recorder(&recorder, || process.describe());
        let metrics = Self { recorder: Arc::new(recorder), handle, process, gone: Arc::default() };
        let version = Label::from_static_parts("version", env!("CARGO_PKG_VERSION"));
        metrics.gauge("deltaq_build_info", vec![version]).set(1.0);
        Ok(metrics)
    }

    /// A counter with these labels.
    pub fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        self.recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
    }

    /// A gauge with these labels.
    pub fn gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        self.recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
    }

    /// A histogram with these labels.
    pub fn histogram(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        self.recorder.register_histogram(&Key::from_parts(name, labels), &METADATA)
    }

    /// Empties the buffers of the histograms; to be called now and then, also if nobody scrapes.
    pub fn run_upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The metrics of a queue that has just come into being.
    #[must_use]
    pub fn of_queue(&self, name: &Name) -> QueueMetrics {
        self.lock_gone().remove(name);
        let label = || vec![Label::new("name", name.to_string())];
        QueueMetrics {
            queue_duration: self.histogram("workqueue_queue_duration_seconds", label()),
            work_duration: self.histogram("workqueue_work_duration_seconds", label()),
            recorder: self.clone(),
            name: name.clone(),
        }
    }

    /// The metrics of the journal.
    #[must_use]
    pub fn of_journal(&self) -> JournalMetrics {
        JournalMetrics {
            commit_duration: self.histogram(COMMIT_DURATION, Vec::new()),
            commit_events: self.histogram(COMMIT_EVENTS, Vec::new()),
            bytes: self.gauge(JOURNAL_BYTES, Vec::new()),
            checkpoint_duration: self.histogram(CHECKPOINT_DURATION, Vec::new()),
            checkpoint_lag: self.gauge(CHECKPOINT_LAG, Vec::new()),
        }
    }

    /// Shows nothing of the queue any more.
    pub fn forget(&self, name: &Name) {
        self.lock_gone().insert(name.clone());
    }

    /// Everything in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        metrics::with_local_recorder(&*self.recorder, || self.process.collect());
        let text = self.handle.render();
        let gone = self.lock_gone();
        if gone.is_empty() {
            return text;
        }
        let shown = |line: &&str| queue_of(line).is_none_or(|queue| !gone.contains(queue));
        text.split_inclusive('\n').filter(shown).collect()
    }

    fn lock_gone(&self) -> std::sync::MutexGuard<'_, HashSet<Name>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is measured of the journal.
pub struct JournalMetrics {
    commit_duration: Histogram,
    commit_events: Histogram,
    bytes: Gauge,
    checkpoint_duration: Histogram,
    checkpoint_lag: Gauge,
}

impl Observer for JournalMetrics {
    fn committed(&self, events: usize, took: Duration) {
        self.commit_duration.record(took.as_secs_f64());
        self.commit_events.record(count(events));
    }

    fn checkpointed(&self, took: Duration) {
        self.checkpoint_duration.record(took.as_secs_f64());
    }

    fn sized(&self, bytes: u64, lag_events: u64) {
        self.bytes.set(count(usize::try_from(bytes).unwrap_or(usize::MAX)));
        self.checkpoint_lag.set(count(usize::try_from(lag_events).unwrap_or(usize::MAX)));
    }
}

impl QueueMetrics {
    /// Feeds the histograms.
    pub fn record(&self, waits: &[Duration], works: &[Duration]) {
        for wait in waits {
            self.queue_duration.record(wait.as_secs_f64());
        }
        for work in works {
            self.work_duration.record(work.as_secs_f64());
        }
    }

    /// Hands over what was counted since the last time, and how the queue is now.
    pub fn publish(&self, status: &Status, tally: &Tally, waiters: usize, numbers: &Numbers) {
        self.count("workqueue_adds_total", "name", None, tally.adds);
        self.count("workqueue_retries_total", "name", None, tally.retries);
        self.show("workqueue_depth", "name", None, count(numbers.depth));
        self.show("workqueue_unfinished_work_seconds", "name", None, numbers.unfinished.as_secs_f64());
        self.show("workqueue_longest_running_processor_seconds", "name", None, numbers.longest.as_secs_f64());
        for (state, keys) in [
            ("ready", status.ready),
            ("delayed", status.delayed),
            ("leased", status.leased),
            ("parked", status.parked),
        ] {
            self.show("deltaq_items", "queue", Some(("state", state)), count(keys));
        }
        self.show("deltaq_known_objects", "queue", None, count(status.known));
        self.show("deltaq_waiters", "queue", None, count(waiters));
        self.show("deltaq_has_synced", "queue", None, f64::from(u8::from(status.has_synced)));
        let age = status.oldest_ready_age.unwrap_or_default();
        self.show("deltaq_oldest_ready_age_seconds", "queue", None, age.as_secs_f64());
        for (kind, deltas) in DeltaKind::ALL.iter().zip(tally.deltas) {
            self.count("deltaq_deltas_total", "queue", Some(("type", kind.as_str())), deltas);
        }
        self.count("deltaq_deltas_coalesced_total", "queue", None, tally.coalesced);
        for (reason, ignored) in [
            ("absent", tally.ignored_absent),
            ("duplicate", tally.ignored_duplicate),
            ("unchanged", tally.ignored_unchanged),
            ("superseded", tally.ignored_superseded),
            ("closed", tally.ignored_closed),
        ] {
            self.count("deltaq_deltas_ignored_total", "queue", Some(("reason", reason)), ignored);
        }
        let outcomes = ["ack", "nack", "release", "reject", "expire", "stale"];
        let settled = tally.settled.into_iter().chain([tally.stale]);
        for (outcome, leases) in outcomes.into_iter().zip(settled) {
            self.count("deltaq_settled_total", "queue", Some(("outcome", outcome)), leases);
        }
    }

    fn count(
        &self,
        name: &'static str,
        label: &'static str,
        more: Option<(&'static str, &'static str)>,
        by: u64,
    ) {
        self.recorder.counter(name, self.labels(label, more)).increment(by);
    }

    fn show(
        &self,
        name: &'static str,
        label: &'static str,
        more: Option<(&'static str, &'static str)>,
        value: f64,
    ) {
        self.recorder.gauge(name, self.labels(label, more)).set(value);
    }

    fn labels(&self, label: &'static str, more: Option<(&'static str, &'static str)>) -> Vec<Label> {
        let queue = Label::new(label, self.name.to_string());
        let more = more.map(|(name, value)| Label::from_static_parts(name, value));
        std::iter::once(queue).chain(more).collect()
    }
}

/// The queue that a line of the text format is about; its label comes first.
fn queue_of(line: &str) -> Option<&str> {
    let (_, labels) = line.split_once('{')?;
    let value = labels.strip_prefix("name=\"").or_else(|| labels.strip_prefix("queue=\""))?;
    value.split('"').next()
}

#[expect(clippy::cast_precision_loss, reason = "counts of keys are far below 2^52")]
fn count(keys: usize) -> f64 {
    keys as f64
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl fmt::Debug for JournalMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JournalMetrics")
    }
}

impl fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueMetrics({})", self.name)
    }
}
