//! The metrics of the sources, and readiness.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use deltaq_client::types::ReplaceCounts;
use metrics::{Counter, Gauge, Label, counter, describe_counter, describe_gauge, gauge, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use super::Error;
use super::slot::SlotState;

const UP: &str = "deltaq_reflect_up";
const LAST_SUCCESS: &str = "deltaq_reflect_last_success_timestamp_seconds";
const OBJECTS: &str = "deltaq_reflect_objects";
const LEFT_OUT: &str = "deltaq_reflect_left_out_objects";
const STALE: &str = "deltaq_reflect_stale_objects";
const LISTS: &str = "deltaq_reflect_lists_total";
const CHANGES: &str = "deltaq_reflect_changes_total";
const LAG: &str = "deltaq_reflect_lag_bytes";
const SLOT: &str = "deltaq_reflect_slot_bytes";
const SLOT_LIMIT: &str = "deltaq_reflect_slot_limit_bytes";
const FAILURES: &str = "deltaq_reflect_failures_total";

/// The result of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summary {
    /// The queue has accepted the list.
    Sent {
        /// The objects in the list.
        objects: u64,
        /// The reply of the queue.
        counts: ReplaceCounts,
    },
    /// The source reported that nothing has changed since the previous list.
    Unchanged,
}

/// The metrics of all sources.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    sources: Vec<Arc<SourceMetrics>>,
}

/// The metrics of one source.
#[derive(Debug)]
pub(super) struct SourceMetrics {
    name: String,
    is_up: Gauge,
    succeeded_at: Gauge,
    objects: Gauge,
    left_out: Gauge,
    stale: Gauge,
    lists: Counter,
    unchanged_lists: Counter,
    replaced: Counter,
    deleted: Counter,
    changes: Counter,
    /// The lag of a replicated table, what its slot keeps back, and what it may keep back.
    slot: OnceLock<[Gauge; 3]>,
    source_failures: Counter,
    queue_failures: Counter,
    /// Whether the queue has accepted a list or changes, or the source had nothing new.
    has_succeeded: AtomicBool,
    /// Whether a part of the source can't be read. In that case the queue is not in step, although the rest continues.
    is_degraded: AtomicBool,
    /// Whether the last attempt has failed.
    has_failed: AtomicBool,
}

impl Metrics {
    /// Metrics without any source, with their own recorder.
    pub(super) fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        with_local_recorder(&recorder, || {
            describe_gauge!(UP, "Whether the last attempt to read the source and to send it succeeded.");
            describe_gauge!(
                LAST_SUCCESS,
                "When the queue took a list or changes for the last time, or the source had nothing new; 0 before the first time."
            );
            describe_gauge!(OBJECTS, "Objects of the last list that was accepted.");
            describe_gauge!(
                LEFT_OUT,
                "Objects of the last list and of changes since that the queue refuses. Their keys keep what they had."
            );
            describe_gauge!(
                STALE,
                "Objects of the last list that change nothing, because the queue has a newer version of their keys."
            );
            describe_counter!(LISTS, "Lists, by whether the source said that nothing has changed.");
            describe_counter!(CHANGES, "Deltas that were queued.");
            describe_counter!(FAILURES, "Failed attempts, by the side that failed.");
        });
        Self { recorder: Arc::new(recorder), sources: Vec::new() }
    }

    /// Adds a source.
    pub(super) fn add(&mut self, name: &str, queue: &str) -> Arc<SourceMetrics> {
        let labels = vec![Label::new("source", name.to_owned()), Label::new("queue", queue.to_owned())];
        let count = |metric, label, value| {
            let mut labels = labels.clone();
            labels.push(Label::from_static_parts(label, value));
            counter!(metric, labels)
        };
        let source = with_local_recorder(&*self.recorder, || SourceMetrics {
            name: name.to_owned(),
            is_up: gauge!(UP, labels.clone()),
            succeeded_at: gauge!(LAST_SUCCESS, labels.clone()),
            objects: gauge!(OBJECTS, labels.clone()),
            left_out: gauge!(LEFT_OUT, labels.clone()),
            stale: gauge!(STALE, labels.clone()),
            lists: count(LISTS, "result", "sent"),
            unchanged_lists: count(LISTS, "result", "unchanged"),
            replaced: count(CHANGES, "type", "replaced"),
            deleted: count(CHANGES, "type", "deleted"),
            changes: count(CHANGES, "type", "change"),
            slot: OnceLock::new(),
            source_failures: count(FAILURES, "side", "source"),
            queue_failures: count(FAILURES, "side", "queue"),
            has_succeeded: AtomicBool::new(false),
            is_degraded: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        });
        let source = Arc::new(source);
        self.sources.push(Arc::clone(&source));
        source
    }

    /// Adds the metrics of the slot of a source.
    pub(super) fn watch_slot(&self, source: &SourceMetrics, queue: &str) {
        let labels = vec![Label::new("source", source.name.clone()), Label::new("queue", queue.to_owned())];
        with_local_recorder(&*self.recorder, || {
            describe_gauge!(LAG, "Bytes of the database's log that the queue does not have yet.");
            describe_gauge!(SLOT, "Bytes of its log that the database keeps for the slot of the source.");
            describe_gauge!(SLOT_LIMIT, "Bytes that the slot may keep back; half of it is too much.");
            let gauges = [LAG, SLOT, SLOT_LIMIT].map(|name| gauge!(name, labels.clone()));
            source.slot.get_or_init(|| gauges);
        });
    }

    /// The metrics in Prometheus' text format.
    pub(super) fn page(&self) -> String {
        self.recorder.handle().render()
    }

    /// The sources that have no accepted list yet.
    pub(super) fn unready(&self) -> Vec<&str> {
        let is_unready = |source: &&Arc<SourceMetrics>| !source.has_succeeded.load(Ordering::Relaxed);
        self.sources.iter().filter(is_unready).map(|source| source.name.as_str()).collect()
    }
}

impl Metrics {
    /// The sources that had an accepted list and whose last attempt has failed.
    pub(super) fn not_in_step(&self) -> Vec<&str> {
        let has_failed = |source: &&Arc<SourceMetrics>| {
            source.has_succeeded.load(Ordering::Relaxed) && source.has_failed.load(Ordering::Relaxed)
        };
        self.sources.iter().filter(has_failed).map(|source| source.name.as_str()).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
impl SourceMetrics {
    /// Counts a list that was accepted, or that had not changed.
    pub(super) fn list(&self, summary: Summary, now_us: u64) {
        if let Summary::Sent { objects, counts } = summary {
            self.objects.set(objects as f64);
            self.stale.set(counts.stale as f64);
            self.lists.increment(1);
            self.replaced.increment(counts.replaced);
            self.deleted.increment(counts.deleted);
        } else {
            self.unchanged_lists.increment(1);
        }
        self.succeeded(now_us);
    }

    /// Sets where the slot stands.
    pub(super) fn slot(&self, slot: &SlotState<'_>) {
        if let Some([lag, kept, limit]) = self.slot.get() {
            lag.set(slot.lag_bytes as f64);
            kept.set(slot.kept_bytes as f64);
            limit.set(slot.limit_bytes as f64);
        }
    }

    /// Sets the number of objects that are left out.
    pub(super) fn leaves_out(&self, count: u64) {
        self.left_out.set(count as f64);
    }

    /// Counts the deltas of changes that were accepted.
    pub(super) fn changed(&self, queued: u64, now_us: u64) {
        self.changes.increment(queued);
        self.succeeded(now_us);
    }

    /// Records that the queue has accepted the state of the source. This does not count as a success while a part of
    /// the source can't be read.
    pub(super) fn succeeded(&self, now_us: u64) {
        if !self.is_degraded.load(Ordering::Relaxed) {
            self.has_succeeded.store(true, Ordering::Relaxed);
            self.succeeded_at.set(now_us as f64 / 1e6);
            self.is_up.set(1.0);
            self.has_failed.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a part of the source can't be read.
    pub(super) fn is_degraded(&self) -> bool {
        self.is_degraded.load(Ordering::Relaxed)
    }

    /// Records that a part of the source can't be read.
    pub(super) fn degraded(&self, error: &Error) {
        self.is_degraded.store(true, Ordering::Relaxed);
        self.failed(error);
    }

    /// Records that reading of the source begins again. The source is not in step until it has succeeded.
    pub(super) fn begins(&self) {
        self.is_degraded.store(false, Ordering::Relaxed);
    }

    /// Records that all parts of the source can be read again.
    pub(super) fn recovered(&self, now_us: u64) {
        self.is_degraded.store(false, Ordering::Relaxed);
        self.succeeded(now_us);
    }

    /// Counts a failed attempt.
    pub(super) fn failed(&self, error: &Error) {
        let counter = match error {
            Error::Source(_) => &self.source_failures,
            Error::Queue { .. } => &self.queue_failures,
        };
        counter.increment(1);
        self.is_up.set(0.0);
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_counts_of_each_source() {
        let mut metrics = Metrics::new();
        let (erp, _crm) = (metrics.add("er\"p", "prices"), metrics.add("crm", "users"));
        assert_eq!(metrics.unready(), ["er\"p", "crm"]);
        let counts = ReplaceCounts { replaced: 3, deleted: 1, ..ReplaceCounts::default() };
        erp.list(Summary::Sent { objects: 7, counts }, 2_500_000);
        assert_eq!(metrics.unready(), ["crm"]);
        let page = metrics.page();
        for line in [
            "deltaq_reflect_up{source=\"er\\\"p\",queue=\"prices\"} 1\n",
            "deltaq_reflect_up{source=\"crm\",queue=\"users\"} 0\n",
            "deltaq_reflect_last_success_timestamp_seconds{source=\"er\\\"p\",queue=\"prices\"} 2.5\n",
            "deltaq_reflect_objects{source=\"er\\\"p\",queue=\"prices\"} 7\n",
            "deltaq_reflect_changes_total{source=\"er\\\"p\",queue=\"prices\",type=\"deleted\"} 1\n",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }
}
