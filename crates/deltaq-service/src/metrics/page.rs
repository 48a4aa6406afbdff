//! The metrics of queues on the page `/metrics`.
//!
//! The seven metrics `workqueue_*` have client-go's names, labels and meaning, so dashboards for Kubernetes work
//! unchanged.

use std::sync::atomic::Ordering;

use deltaq_engine::delta::DeltaKind;
use deltaq_engine::view::View;
use metrics::{Key, Label};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};

use super::durations::{Distribution, Durations};
use super::queues::{BOUNDS_DELTAS, BUCKETS, Gauges, Lag, Sample, Series, Totals};
use super::source_page;

/// The label of all queues that share their series. No queue can have this name.
const OTHERS: &str = "_other";

/// The bounds of the buckets in seconds, as shown in their labels.
const BOUNDS: [f64; BUCKETS] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

const STATES: [&str; 4] = ["ready", "delayed", "leased", "parked"];
const STOPS: [&str; 4] = ["eligible", "limited", "held", "paused"];
const GROUP_STATES: [&str; 5] = ["eligible", "limited", "held", "paused", "idle"];
const REASONS: [&str; 7] = ["absent", "duplicate", "unchanged", "superseded", "closed", "repeated", "stale"];
const OUTCOMES: [&str; 6] = ["ack", "nack", "release", "reject", "expired", "stale"];

struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
}

/// The source of a family's values. `Gauges` and `Counters` have one series for each label value.
enum Kind {
    Gauge(fn(&Gauges) -> f64),
    Gauges(&'static str, &'static [&'static str], fn(&Gauges) -> Vec<usize>),
    Counter(fn(&Totals) -> u64),
    Counters(&'static str, &'static [&'static str], fn(&Totals) -> &[u64]),
    Histogram(fn(&Series) -> &Durations<BUCKETS>),
    /// A histogram of numbers of deltas.
    DeltaCounts(fn(&Series) -> &Durations<BUCKETS>),
}

const DELTA_TYPES: [&str; 5] = [
    DeltaKind::ALL[0].as_str(),
    DeltaKind::ALL[1].as_str(),
    DeltaKind::ALL[2].as_str(),
    DeltaKind::ALL[3].as_str(),
    DeltaKind::ALL[4].as_str(),
];

const fn family(name: &'static str, kind: Kind, help: &'static str) -> Family {
    Family { name, help, kind }
}

/// All families, in the order of the page.
const FAMILIES: [Family; 22] = [
    family(
        "workqueue_depth",
        Kind::Gauge(|gauges| count(gauges.depth)),
        "Ready keys, and leased keys that will be ready again.",
    ),
    family("workqueue_adds_total", Kind::Counter(|totals| totals.adds), "How often a key got work."),
    family(
        "workqueue_queue_duration_seconds",
        Kind::Histogram(|series| &series.waits),
        "Time from the arrival of a key's work to its delivery.",
    ),
    family(
        "workqueue_work_duration_seconds",
        Kind::Histogram(|series| &series.works),
        "Time from the delivery of a key to the end of its lease.",
    ),
    family(
        "workqueue_unfinished_work_seconds",
        Kind::Gauge(|gauges| gauges.unfinished.as_secs_f64()),
        "Sum of the ages of all leases.",
    ),
    family(
        "workqueue_longest_running_processor_seconds",
        Kind::Gauge(|gauges| gauges.longest.as_secs_f64()),
        "Age of the oldest lease.",
    ),
    family(
        "workqueue_retries_total",
        Kind::Counter(|totals| totals.retries),
        "Delayed and rate-limited requeues.",
    ),
    family(
        "deltaq_items",
        Kind::Gauges("state", &STATES, |gauges| gauges.items.into()),
        "Keys by state: ready, delayed, leased, parked.",
    ),
    family(
        "deltaq_ready_keys",
        Kind::Gauges("reason", &STOPS, |gauges| gauges.ready.keys.into()),
        "Ready keys by what stops their delivery: eligible (nothing), limited, held, paused.",
    ),
    family(
        "deltaq_known_objects",
        Kind::Gauge(|gauges| count(gauges.known)),
        "Objects that consumers acknowledged last.",
    ),
    family(
        "deltaq_held_bytes",
        Kind::Gauge(|gauges| count(gauges.held_bytes)),
        "Bytes that queues take in memory (approximate).",
    ),
    family(
        "deltaq_deltas_total",
        Kind::Counters("type", &DELTA_TYPES, |totals| &totals.deltas),
        "Deltas queued, by type.",
    ),
    family(
        "deltaq_deltas_coalesced_total",
        Kind::Counter(|totals| totals.coalesced),
        "Deltas merged into newer ones by a key's cap.",
    ),
    family(
        "deltaq_debounced_total",
        Kind::Counter(|totals| totals.debounced),
        "Changes that waited for a pause in the changes of their key.",
    ),
    family(
        "deltaq_deltas_per_delivery",
        Kind::DeltaCounts(|series| &series.delivered),
        "Deltas of a delivered key.",
    ),
    family(
        "deltaq_deltas_ignored_total",
        Kind::Counters("reason", &REASONS, |totals| &totals.ignored),
        "Calls and objects that queued nothing, by reason.",
    ),
    family(
        "deltaq_settled_total",
        Kind::Counters("outcome", &OUTCOMES, |totals| &totals.settled),
        "Ended leases by outcome, and settles that came too late (stale).",
    ),
    family(
        "deltaq_oldest_ready_age_seconds",
        Kind::Gauge(|gauges| gauges.oldest_ready_age.as_secs_f64()),
        "How long the first ready key has been ready; 0 while the queue is paused.",
    ),
    family(
        "deltaq_oldest_unacknowledged_age_seconds",
        Kind::Gauge(|gauges| gauges.oldest_unacknowledged_age.as_secs_f64()),
        "How long the oldest change has waited for its acknowledgement; parked keys do not count.",
    ),
    family("deltaq_waiters", Kind::Gauge(|gauges| count(gauges.waiters)), "Waiting pops."),
    family(
        "deltaq_has_synced",
        Kind::Gauge(|gauges| f64::from(u8::from(gauges.has_synced))),
        "1 once the initial list is acknowledged.",
    ),
    family(
        "deltaq_clock_lead_seconds",
        Kind::Gauge(|gauges| gauges.clock_lead.as_secs_f64()),
        "How far the queue's time is ahead of the wall clock, because the wall clock was set back.",
    ),
];

/// The families of queues that have had a watch.
const WATCH_FAMILIES: [Family; 7] = [
    family(
        "deltaq_watches",
        Kind::Gauges("view", &VIEWS, |gauges| gauges.watches.into()),
        "Watches in flight, by view.",
    ),
    family(
        "deltaq_watch_rows_total",
        Kind::Counters("view", &VIEWS, |totals| &totals.rows),
        "Rows sent to watches, by view.",
    ),
    family(
        "deltaq_watch_delivery_seconds",
        Kind::Histogram(|series| &series.deliveries),
        "Time from a change until a waiting watch has its row, with the commit.",
    ),
    family(
        "deltaq_watch_lost_total",
        Kind::Counters("reason", &LOST, |totals| &totals.lost),
        "Watches that had to list again (410), by reason.",
    ),
    family(
        "deltaq_feed_keys",
        Kind::Gauges("view", &VIEWS, |gauges| gauges.feed_keys.into()),
        "Keys in the change feed, by view.",
    ),
    family(
        "deltaq_feed_tombstones",
        Kind::Gauges("view", &VIEWS, |gauges| gauges.tombstones.into()),
        "Removed keys that the change feed remembers, by view.",
    ),
    family(
        "deltaq_feed_tombstone_bytes",
        Kind::Gauges("view", &VIEWS, |gauges| gauges.tombstone_bytes.into()),
        "Size of these removed keys with their last objects, by view.",
    ),
];

/// The families of queues with groups.
const GROUP_FAMILIES: [Family; 2] = [
    family(
        "deltaq_groups",
        Kind::Gauges("state", &GROUP_STATES, |gauges| {
            let groups = gauges.ready.groups.unwrap_or_default();
            groups.with_keys.into_iter().chain([groups.idle]).collect()
        }),
        "Groups with ready keys, by what stops their delivery: eligible (nothing), limited, held, paused; and idle groups.",
    ),
    family(
        "deltaq_quiet_oldest_ready_age_seconds",
        Kind::Gauge(|gauges| {
            let oldest = gauges.ready.groups.and_then(|groups| groups.quiet_oldest_age);
            oldest.unwrap_or_default().as_secs_f64()
        }),
        "The age of the oldest ready key of the eligible groups that have at most their share of the leases.",
    ),
];

const VIEWS: [&str; 2] = [View::ALL[0].as_str(), View::ALL[1].as_str()];
const LOST: [&str; 3] = ["too_old", "ahead", "lost"];

/// The metrics of one queue, or of all queues that share their series.
struct Row<'a> {
    series: &'a Series,
    totals: Totals,
    gauges: Gauges,
    /// client-go's label `name`, for `workqueue_*`.
    by_name: LabelSet,
    /// The label `queue`, for `deltaq_*`.
    by_queue: LabelSet,
}

impl<'a> Row<'a> {
    fn new(series: &'a Series, gauges: &Gauges) -> Self {
        let name = series.name.as_ref().map_or(OTHERS, |name| name.as_str());
        let labels = |label: &'static str| {
            let key = Key::from_parts("", vec![Label::new(label, name.to_owned())]);
            LabelSet::from_key_and_global(&key, &<_>::default())
        };
        Self {
            series,
            totals: series.totals(),
            gauges: *gauges,
            by_name: labels("name"),
            by_queue: labels("queue"),
        }
    }
}

/// Appends the metrics of the queues.
pub(super) fn write(text: &mut String, samples: &[Sample]) {
    let (own, others): (Vec<_>, Vec<_>) = samples.iter().partition(|sample| sample.series.name.is_some());
    let mut rows: Vec<Row<'_>> = own.iter().map(|sample| Row::new(&sample.series, &sample.gauges)).collect();
    if let Some((first, rest)) = others.split_first() {
        let together = rest.iter().fold(first.gauges, |all, sample| all.with(&sample.gauges));
        rows.push(Row::new(&first.series, &together));
    }
    if rows.is_empty() {
        return;
    }
    write_families(text, &FAMILIES, &rows, |_| true);
    write_families(text, &GROUP_FAMILIES, &rows, |row| row.gauges.ready.groups.is_some());
    write_families(text, &WATCH_FAMILIES, &rows, |row| row.series.is_watched.load(Ordering::Relaxed));
    source_page::write(text, samples);
    write_lags(text, samples);
}

/// Appends families of the queues that have them.
fn write_families(text: &mut String, families: &[Family], rows: &[Row<'_>], have: impl Fn(&Row<'_>) -> bool) {
    let rows: Vec<&Row<'_>> = rows.iter().filter(|row| have(row)).collect();
    if !rows.is_empty() {
        for family in families {
            family.write(text, &rows);
        }
    }
}

/// Name, value and help text of a family.
type LagFamily = (&'static str, fn(&Lag) -> f64, &'static str);

/// Appends the lags of the followers, if there are any.
fn write_lags(text: &mut String, samples: &[Sample]) {
    let families: [LagFamily; 2] = [
        (
            "deltaq_follower_lag_seconds",
            |lag| lag.time.as_secs_f64(),
            "How long the follower has not had all changes of the queue that it follows.",
        ),
        (
            "deltaq_follower_lag_events",
            |lag| events(lag.events),
            "Events of the followed queue since the position of the follower; 0 if none of them concerns the follower.",
        ),
    ];
    for (name, value, help) in families {
        let lags =
            samples.iter().filter_map(|sample| Some((sample.series.name.as_ref()?, sample.lag.as_ref()?)));
        let mut lags = lags.peekable();
        if lags.peek().is_none() {
            return;
        }
        write_help_line(text, name, None, None, help);
        write_type_line(text, name, None, None, "gauge");
        for (queue, lag) in lags {
            let labels = vec![
                Label::new("queue", queue.as_str().to_owned()),
                Label::new("follows", lag.follows.to_string()),
            ];
            let labels = LabelSet::from_key_and_global(&Key::from_parts("", labels), &<_>::default());
            write_metric_line(text, name, None, &labels, None::<(&str, &str)>, value(lag), None);
        }
        text.push('\n');
    }
}

impl Family {
    fn write(&self, text: &mut String, rows: &[&Row<'_>]) {
        let kind = match self.kind {
            Kind::Gauge(_) | Kind::Gauges(..) => "gauge",
            Kind::Counter(_) | Kind::Counters(..) => "counter",
            Kind::Histogram(_) | Kind::DeltaCounts(_) => "histogram",
        };
        write_help_line(text, self.name, None, None, self.help);
        write_type_line(text, self.name, None, None, kind);
        for row in rows {
            self.write_row(text, row);
        }
        text.push('\n');
    }

    fn write_row(&self, text: &mut String, row: &Row<'_>) {
        let labels = if self.name.starts_with("workqueue_") { &row.by_name } else { &row.by_queue };
        let mut line = |suffix, more: Option<(&'static str, &str)>, value: &dyn std::fmt::Display| {
            write_metric_line(text, self.name, suffix, labels, more, value, None);
        };
        match self.kind {
            Kind::Gauge(value) => line(None, None, &value(&row.gauges)),
            Kind::Counter(value) => line(None, None, &value(&row.totals)),
            Kind::Gauges(label, words, values) => {
                for (word, value) in words.iter().zip(values(&row.gauges)) {
                    line(None, Some((label, word)), &value);
                }
            }
            Kind::Counters(label, words, values) => {
                for (word, value) in words.iter().zip(values(&row.totals)) {
                    line(None, Some((label, word)), value);
                }
            }
            Kind::Histogram(durations) => {
                write_distribution(text, self.name, labels, &BOUNDS, &durations(row.series).read());
            }
            Kind::DeltaCounts(counts) => {
                let bounds = BOUNDS_DELTAS.map(f64::from);
                write_distribution(text, self.name, labels, &bounds, &counts(row.series).read());
            }
        }
    }
}

/// The lines of a histogram.
pub(super) fn write_distribution<const N: usize>(
    text: &mut String,
    name: &str,
    labels: &LabelSet,
    bounds: &[f64; N],
    of: &Distribution<N>,
) {
    let mut line = |suffix, more: Option<(&'static str, &str)>, value: &dyn std::fmt::Display| {
        write_metric_line(text, name, Some(suffix), labels, more, value, None);
    };
    let bounds = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(of.up_to()) {
        line("bucket", Some(("le", &bound)), &count);
    }
    line("sum", None, &of.sum().as_secs_f64());
    line("count", None, &of.count());
}

#[expect(clippy::cast_precision_loss, reason = "counts of keys are far below 2^52")]
pub(super) fn count(keys: usize) -> f64 {
    keys as f64
}

#[expect(clippy::cast_precision_loss, reason = "numbers of events are below 2^52")]
fn events(count: u64) -> f64 {
    count as f64
}
