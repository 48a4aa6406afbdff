//! Metrics. This file and `page` contain the name and the help text of every metric.
//!
//! The recorder keeps the metrics of the whole process. The number of its series is limited by the number of routes,
//! methods and statuses. The metrics of a queue belong to the queue and are removed with it (`queues`). A scrape
//! renders them (`page`). A key or a raw path is never a label.

mod durations;
mod hook_page;
mod hooks;
mod page;
mod push_page;
mod pushes;
mod queues;
mod requests;
mod source_page;
mod striped;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deltaq_journal::Observer;
use deltaq_runtime::clock::Clock;
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use parking_lot::Mutex;

pub use self::hooks::{HookReport, HookResult, Rejected};
pub use self::pushes::{PushReport, PushResult};
use self::queues::SeriesOwners;
pub use self::queues::{Lag, LostPosition, QueueMetrics, Sample, Waiting};
pub use self::requests::Requests;

const METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Bucket bounds in seconds, from a commit on a fast disk to a commit on a failing disk.
const JOURNAL_BUCKETS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];
/// Bucket bounds for the number of events in a commit.
const EVENTS_BUCKETS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 2_500.0, 10_000.0];
/// Bucket bounds in seconds for a checkpoint, from milliseconds to minutes.
const CHECKPOINT_BUCKETS: [f64; 9] = [0.005, 0.02, 0.1, 0.5, 2.0, 5.0, 15.0, 60.0, 300.0];

const COMMIT_DURATION: &str = "deltaq_journal_commit_duration_seconds";
const COMMIT_EVENTS: &str = "deltaq_journal_commit_events";
const JOURNAL_BYTES: &str = "deltaq_journal_bytes";
const CHECKPOINT_DURATION: &str = "deltaq_checkpoint_duration_seconds";
const CHECKPOINT_LAG: &str = "deltaq_checkpoint_lag_events";
const OWNED_PARTITIONS: &str = "deltaq_owned_partitions";
const PARTITIONS: &str = "deltaq_partitions";
const CLAIMS: &str = "deltaq_partition_claims_total";
const HEARTBEAT_AGE: &str = "deltaq_heartbeat_age_seconds";
const NODE_INFO: &str = "deltaq_node_info";
const ROLLBACKS: &str = "deltaq_partition_rollbacks_total";
const RELOAD_SUCCESSFUL: &str = "deltaq_last_reload_successful";
const RELOAD_SUCCESS_TIMESTAMP: &str = "deltaq_last_reload_success_timestamp_seconds";
const CERTIFICATE_EXPIRY: &str = "deltaq_tls_certificate_expiry_timestamp_seconds";
const AUDIT_LOST: &str = "deltaq_audit_lost_total";
const AUDIT_SUPPRESSED: &str = "deltaq_audit_suppressed_total";
const LOG_DROPPED: &str = "deltaq_log_dropped_total";

/// The metrics that the recorder keeps. The metrics of queues are in `page`, those of requests are in `requests`, and
/// a library provides those of the process.
const DESCRIPTIONS: [(&str, Kind, &str); 22] = [
    (COMMIT_DURATION, Kind::Histogram, "Time from encoding a batch until it is durable."),
    (COMMIT_EVENTS, Kind::Histogram, "Events in a commit."),
    (JOURNAL_BYTES, Kind::Gauge, "Bytes of the journal's files."),
    (CHECKPOINT_DURATION, Kind::Histogram, "Duration of a checkpoint."),
    (CHECKPOINT_LAG, Kind::Gauge, "Events that a start would replay."),
    (OWNED_PARTITIONS, Kind::Gauge, "Partitions of the database that this node owns."),
    (PARTITIONS, Kind::Gauge, "Partitions of the database, whoever owns them."),
    (
        CLAIMS,
        Kind::Counter,
        "Partitions that this node has claimed, by whether the former owner had released them.",
    ),
    (
        HEARTBEAT_AGE,
        Kind::Gauge,
        "How long ago this node sent its last heartbeat that the database has confirmed.",
    ),
    (NODE_INFO, Kind::Gauge, "Always 1: the name of this node."),
    (
        ROLLBACKS,
        Kind::Counter,
        "Partitions of this node that lacked acknowledged changes in the database, as after a failover to a replica that lags.",
    ),
    (RELOAD_SUCCESSFUL, Kind::Gauge, "1 if the last reload of tokens and certificates succeeded."),
    (RELOAD_SUCCESS_TIMESTAMP, Kind::Gauge, "Time of the last successful reload, in seconds since 1970."),
    (
        CERTIFICATE_EXPIRY,
        Kind::Gauge,
        "Expiry of the server's certificate, in seconds since 1970; 0 without TLS.",
    ),
    (AUDIT_LOST, Kind::Counter, "Lines of the audit log that could not be written."),
    (
        AUDIT_SUPPRESSED,
        Kind::Counter,
        "Lines of the audit log that were dropped because there were too many in one second.",
    ),
    (LOG_DROPPED, Kind::Counter, "Dropped log lines: the reader of stderr was too slow."),
    ("deltaq_build_info", Kind::Gauge, "Always 1; the label is the version of the binary."),
    ("deltaq_http_connections", Kind::Gauge, "Open connections of the API."),
    (
        "deltaq_http_connections_limit",
        Kind::Gauge,
        "Maximum number of open connections: server.max_connections.",
    ),
    (
        "deltaq_forwarded_requests_total",
        Kind::Counter,
        "Requests on queues that this node does not own, by result.",
    ),
    (
        "deltaq_http_requests_gone_total",
        Kind::Counter,
        "Requests whose clients disconnected before the response, by method and route.",
    ),
];

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The metrics of a server. Clones share the same metrics.
#[derive(Clone)]
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    process: metrics_process::Collector,
    series_owners: Arc<Mutex<SeriesOwners>>,
    requests: Arc<Requests>,
    is_on: bool,
}

impl Metrics {
    /// Creates metrics with their own recorder, not the global one. Up to `max_queues` queues have their own series;
    /// the other queues share one set of series.
    ///
    /// # Errors
    /// [`BuildError`] if the exporter refuses its settings.
    pub fn new(max_queues: usize) -> Result<Self, BuildError> {
        let builder = PrometheusBuilder::new()
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
        let series_owners = Arc::new(Mutex::new(SeriesOwners::new(max_queues)));
        let requests = Arc::default();
        let metrics =
            Self { recorder: Arc::new(recorder), handle, process, series_owners, requests, is_on: true };
        let version = Label::from_static_parts("version", env!("CARGO_PKG_VERSION"));
        metrics.gauge("deltaq_build_info", vec![version]).set(1.0);
        Ok(metrics)
    }

    /// Turns the metrics of requests and of the journal on or off. They are on by default.
    #[must_use]
    pub fn switched(self, is_on: bool) -> Self {
        Self { is_on, ..self }
    }

    /// Whether requests and the journal are measured.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// The metrics of requests, unless they are turned off.
    #[must_use]
    pub fn requests(&self) -> Option<&Requests> {
        self.is_on.then_some(&*self.requests)
    }

    /// A counter with these labels.
    pub fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        if !self.is_on {
            return Counter::noop();
        }
        self.recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
    }

    /// A gauge with these labels.
    pub fn gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        if !self.is_on {
            return Gauge::noop();
        }
        self.recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
    }

    /// A histogram with these labels.
    pub fn histogram(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        if !self.is_on {
            return Histogram::noop();
        }
        self.recorder.register_histogram(&Key::from_parts(name, labels), &METADATA)
    }

    /// Empties the buffers of the histograms. Call this regularly, because the buffers grow until a scrape or this call.
    pub fn run_upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The metrics of the journal.
    #[must_use]
    pub fn of_journal(&self) -> JournalMetrics {
        self.of_journal_with(Vec::new())
    }

    /// The metrics of the journal of one of several partitions.
    #[must_use]
    pub fn of_partition(&self, number: i16) -> JournalMetrics {
        self.of_journal_with(vec![Label::new("partition", number.to_string())])
    }

    /// `labels` distinguish the journals of a node in metrics that must not be summed.
    fn of_journal_with(&self, labels: Vec<Label>) -> JournalMetrics {
        JournalMetrics {
            commit_duration: self.histogram(COMMIT_DURATION, Vec::new()),
            commit_events: self.histogram(COMMIT_EVENTS, Vec::new()),
            bytes: self.gauge(JOURNAL_BYTES, Vec::new()),
            checkpoint_duration: self.histogram(CHECKPOINT_DURATION, Vec::new()),
            checkpoint_lag: self.gauge(CHECKPOINT_LAG, labels),
        }
    }

    /// The metrics of a node with this number of partitions. A standalone server has no name.
    #[must_use]
    pub fn of_node(&self, name: Option<&str>, partitions: usize) -> NodeMetrics {
        if let Some(name) = name {
            self.gauge(NODE_INFO, vec![Label::new("node", name.to_owned())]).set(1.0);
        }
        self.gauge(PARTITIONS, Vec::new()).set(page::count(partitions));
        let claims = |cause| self.counter(CLAIMS, vec![Label::from_static_parts("cause", cause)]);
        NodeMetrics {
            owned: self.gauge(OWNED_PARTITIONS, Vec::new()),
            released: claims("released"),
            taken_over: claims("taken_over"),
            heartbeat_age: self.gauge(HEARTBEAT_AGE, Vec::new()),
            rollbacks: self.counter(ROLLBACKS, Vec::new()),
        }
    }

    /// The metrics of reloads. The start counts as a successful reload.
    #[must_use]
    pub fn of_reloads(&self, clock: Clock) -> ReloadMetrics {
        let successful = self.gauge(RELOAD_SUCCESSFUL, Vec::new());
        let timestamp = self.gauge(RELOAD_SUCCESS_TIMESTAMP, Vec::new());
        let reloads = ReloadMetrics { successful, timestamp, clock };
        reloads.ended(true);
        reloads
    }

    /// The metrics of the server's certificate. A server without TLS has the expiry 0.
    #[must_use]
    pub fn of_certificate(&self) -> CertificateMetrics {
        CertificateMetrics(self.gauge(CERTIFICATE_EXPIRY, Vec::new()))
    }

    /// The metrics of dropped lines.
    #[must_use]
    pub fn of_lines(&self) -> LineMetrics {
        let counter = |name| self.counter(name, Vec::new());
        LineMetrics {
            audit_lost: counter(AUDIT_LOST),
            audit_suppressed: counter(AUDIT_SUPPRESSED),
            log_dropped: counter(LOG_DROPPED),
        }
    }

    /// All metrics in Prometheus' text format. `samples` are the metrics of the queues.
    #[must_use]
    pub fn render(&self, samples: &[Sample]) -> String {
        metrics::with_local_recorder(&*self.recorder, || self.process.collect());
        let mut text = self.handle.render();
        if let Some(requests) = self.requests() {
            requests.write(&mut text);
        }
        page::write(&mut text, samples);
        push_page::write(&mut text, samples);
        hook_page::write(&mut text, samples);
        text
    }
}

/// The metrics of the journal.
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
        self.commit_events.record(page::count(events));
    }

    fn checkpointed(&self, took: Duration) {
        self.checkpoint_duration.record(took.as_secs_f64());
    }

    fn sized(&self, bytes: u64, lag_events: u64) {
        self.bytes.set(page::count(usize::try_from(bytes).unwrap_or(usize::MAX)));
        self.checkpoint_lag.set(page::count(usize::try_from(lag_events).unwrap_or(usize::MAX)));
    }
}

/// The metrics of a node.
#[derive(Clone, Debug)]
pub struct NodeMetrics {
    owned: Gauge,
    released: Counter,
    taken_over: Counter,
    heartbeat_age: Gauge,
    rollbacks: Counter,
}

impl NodeMetrics {
    /// Sets the number of partitions that the node owns.
    pub fn owns(&self, partitions: usize) {
        self.owned.set(page::count(partitions));
    }

    /// Counts a partition that the node has claimed. `was_released` says whether its owner had released it.
    pub fn claimed(&self, was_released: bool) {
        if was_released { &self.released } else { &self.taken_over }.increment(1);
    }

    /// Sets the age of the last heartbeat that the database has confirmed.
    pub fn heartbeat_age(&self, age: Duration) {
        self.heartbeat_age.set(age.as_secs_f64());
    }

    /// Counts a partition that lacks acknowledged changes in the database.
    pub fn rolled_back(&self) {
        self.rollbacks.increment(1);
    }
}

/// The metrics of reloads.
#[derive(Clone, Debug)]
pub struct ReloadMetrics {
    successful: Gauge,
    timestamp: Gauge,
    clock: Clock,
}

impl ReloadMetrics {
    /// Records the end of a reload.
    pub fn ended(&self, is_successful: bool) {
        self.successful.set(f64::from(u8::from(is_successful)));
        if is_successful {
            self.timestamp.set(Duration::from_micros(self.clock.wall_us()).as_secs_f64());
        }
    }
}

/// The metrics of the server's certificate.
#[derive(Clone)]
pub struct CertificateMetrics(Gauge);

impl CertificateMetrics {
    /// Sets the expiry, in microseconds since the Unix epoch.
    pub fn expires(&self, at_us: Option<u64>) {
        self.0.set(at_us.map_or(0.0, |at_us| Duration::from_micros(at_us).as_secs_f64()));
    }
}

/// The numbers of dropped lines of the audit log and of the log.
#[derive(Debug)]
pub struct LineMetrics {
    audit_lost: Counter,
    audit_suppressed: Counter,
    log_dropped: Counter,
}

impl LineMetrics {
    /// Sets the numbers of lines that were dropped since the start.
    pub fn are(&self, audit_lost: u64, audit_suppressed: u64, log_dropped: u64) {
        self.audit_lost.absolute(audit_lost);
        self.audit_suppressed.absolute(audit_suppressed);
        self.log_dropped.absolute(log_dropped);
    }
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
