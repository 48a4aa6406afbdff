//! The counts of the sources, as a page of Prometheus and as readiness.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use deltaq_client::types::ReplaceCounts;

use super::Error;

/// What a list has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summary {
    /// The queue has taken the list.
    Sent {
        /// The objects in the list.
        objects: u64,
        /// The reply of the queue.
        counts: ReplaceCounts,
    },
    /// The source said that nothing has changed since the list before.
    Unchanged,
}

/// The counts of all sources.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics {
    sources: Vec<Arc<SourceMetrics>>,
}

/// The counts of one source.
#[derive(Debug, Default)]
pub(super) struct SourceMetrics {
    name: String,
    queue: String,
    /// When the queue took a list or changes for the last time, or the source had nothing new, in microseconds since 1970; 0 before the
    /// first time.
    succeeded_us: AtomicU64,
    /// Objects of the last list that was accepted.
    objects: AtomicU64,
    lists: AtomicU64,
    unchanged_lists: AtomicU64,
    replaced: AtomicU64,
    deleted: AtomicU64,
    changes: AtomicU64,
    source_failures: AtomicU64,
    queue_failures: AtomicU64,
    /// Whether the last attempt succeeded.
    is_up: AtomicU64,
    /// Whether a part of the source can't be read. The queue is not in step, although the rest goes on.
    is_degraded: AtomicBool,
}

/// Name, type and help of a series, and its value for a source with further labels.
type Series = (&'static str, &'static str, &'static str, fn(&SourceMetrics) -> Vec<(&'static str, f64)>);

#[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
fn value(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

const SERIES: &[Series] = &[
    (
        "deltaq_reflect_up",
        "gauge",
        "Whether the last attempt to read the source and to send it succeeded.",
        |of| vec![("", value(&of.is_up))],
    ),
    (
        "deltaq_reflect_last_success_timestamp_seconds",
        "gauge",
        "When the queue took a list or changes for the last time, or the source had nothing new; 0 before the first time.",
        |of| vec![("", value(&of.succeeded_us) / 1e6)],
    ),
    ("deltaq_reflect_objects", "gauge", "Objects of the last list that was accepted.", |of| {
        vec![("", value(&of.objects))]
    }),
    (
        "deltaq_reflect_lists_total",
        "counter",
        "Lists, by whether the source said that nothing has changed.",
        |of| {
            vec![
                (",result=\"sent\"", value(&of.lists)),
                (",result=\"unchanged\"", value(&of.unchanged_lists)),
            ]
        },
    ),
    ("deltaq_reflect_changes_total", "counter", "Deltas that were queued.", |of| {
        vec![
            (",type=\"replaced\"", value(&of.replaced)),
            (",type=\"deleted\"", value(&of.deleted)),
            (",type=\"change\"", value(&of.changes)),
        ]
    }),
    ("deltaq_reflect_failures_total", "counter", "Failed attempts, by the side that failed.", |of| {
        vec![(",side=\"source\"", value(&of.source_failures)), (",side=\"queue\"", value(&of.queue_failures))]
    }),
];

impl Metrics {
    /// Adds a source.
    pub(super) fn add(&mut self, name: &str, queue: &str) -> Arc<SourceMetrics> {
        let source =
            SourceMetrics { name: name.to_owned(), queue: queue.to_owned(), ..SourceMetrics::default() };
        let source = Arc::new(source);
        self.sources.push(Arc::clone(&source));
        source
    }

    /// The page of Prometheus.
    pub(super) fn page(&self) -> String {
        let mut page = String::new();
        for (name, kind, help, samples) in SERIES {
            let _infallible = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for source in &self.sources {
                let labels = format!("source=\"{}\",queue=\"{}\"", escaped(&source.name), source.queue);
                for (further, value) in samples(source) {
                    let _infallible = writeln!(page, "{name}{{{labels}{further}}} {value}");
                }
            }
        }
        page
    }

    /// The sources of which no list was accepted yet.
    pub(super) fn unready(&self) -> Vec<&str> {
        let is_unready = |source: &&Arc<SourceMetrics>| source.succeeded_us.load(Ordering::Relaxed) == 0;
        self.sources.iter().filter(is_unready).map(|source| source.name.as_str()).collect()
    }
}

impl SourceMetrics {
    /// Counts a list that was accepted, or that had not changed.
    pub(super) fn list(&self, summary: Summary, now_us: u64) {
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
        if let Summary::Sent { objects, counts } = summary {
            self.objects.store(objects, Ordering::Relaxed);
            add(&self.lists, 1);
            add(&self.replaced, counts.replaced);
            add(&self.deleted, counts.deleted);
        } else {
            add(&self.unchanged_lists, 1);
        }
        self.succeeded(now_us);
    }

    /// Counts changes that were accepted, by the deltas that they made.
    pub(super) fn changed(&self, queued: u64, now_us: u64) {
        self.changes.fetch_add(queued, Ordering::Relaxed);
        self.succeeded(now_us);
    }

    /// The queue took what the source had. It does not count if a part of the source can't be read.
    pub(super) fn succeeded(&self, now_us: u64) {
        if !self.is_degraded.load(Ordering::Relaxed) {
            self.succeeded_us.store(now_us, Ordering::Relaxed);
            self.is_up.store(1, Ordering::Relaxed);
        }
    }

    /// A part of the source can't be read.
    pub(super) fn degraded(&self, error: &Error) {
        self.is_degraded.store(true, Ordering::Relaxed);
        self.failed(error);
    }

    /// All parts of the source can be read again.
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
        counter.fetch_add(1, Ordering::Relaxed);
        self.is_up.store(0, Ordering::Relaxed);
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_counts_of_each_source() {
        let mut metrics = Metrics::default();
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
