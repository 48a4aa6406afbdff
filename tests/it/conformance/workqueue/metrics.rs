//! A model of client-go's seven workqueue metrics, after its metrics.go, queue.go and delaying_queue.go. The model is compared
//! with the page of `/metrics` after every step of a trace.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use deltaq_engine::time::Time;
use deltaq_engine::{Effects, Queue};
use deltaq_service::metrics::{Metrics, QueueMetrics, Waiting};
use deltaq_service::{Moment, Name};

use super::{Op, Options};
use crate::metrics::page::Page;

/// client-go's buckets, and their bounds as text on the page.
const BUCKETS: [(f64, &str); 12] = [
    (1e-8, "0.00000001"),
    (1e-7, "0.0000001"),
    (1e-6, "0.000001"),
    (1e-5, "0.00001"),
    (1e-4, "0.0001"),
    (1e-3, "0.001"),
    (1e-2, "0.01"),
    (1e-1, "0.1"),
    (1.0, "1"),
    (10.0, "10"),
    (100.0, "100"),
    (1000.0, "1000"),
];

/// Relative tolerance for sums that were added up in different orders.
const ROUNDING: f64 = 1e-9;

/// The part of a workqueue that determines its metrics. Times are in microseconds.
#[derive(Debug, Default)]
pub(super) struct Model {
    now_us: u64,
    base_us: u64,
    max_us: u64,
    shutting_down: bool,
    queue: VecDeque<String>,
    dirty: Vec<String>,
    /// Start times of the items in process.
    processing: BTreeMap<String, u64>,
    /// Times at which the waiting items were added.
    add_times: BTreeMap<String, u64>,
    /// Due times of delayed items.
    delayed: BTreeMap<String, u64>,
    failures: BTreeMap<String, u32>,
    depth: i64,
    adds: u64,
    retries: u64,
    /// Observed durations, in microseconds.
    latency: Vec<u64>,
    work: Vec<u64>,
}

impl Model {
    pub(super) fn new(options: &Options) -> Self {
        Self { base_us: options.base_us, max_us: options.max_us, ..Self::default() }
    }

    /// Advances time. Delayed items are added at their due times.
    pub(super) fn move_clock(&mut self, span: Duration) {
        let until = self.now_us + u64::try_from(span.as_micros()).expect("traces are short");
        while !self.shutting_down {
            let first = self.delayed.iter().min_by_key(|(_, due)| **due);
            let Some((item, due)) = first.map(|(item, due)| (item.clone(), *due)) else { break };
            if due > until {
                break;
            }
            self.delayed.remove(&item);
            self.now_us = due;
            self.add(&item);
        }
        self.now_us = until;
    }

    pub(super) fn perform(&mut self, op: &Op) {
        match op {
            Op::Add { item } => self.add(item),
            Op::AddAfter { item, ms } => self.add_after(item, ms * 1_000),
            Op::AddRateLimited { item } => {
                let wait = self.when(item);
                self.add_after(item, wait);
            }
            Op::Get => self.get(),
            Op::Done { item } => self.done(item),
            Op::Forget { item } => {
                self.failures.remove(item);
            }
            Op::Shutdown => self.shutting_down = true,
            Op::NumRequeues { .. } | Op::Len => {}
            Op::AdvanceClock { ms } => self.move_clock(Duration::from_millis(*ms)),
        }
    }

    fn add(&mut self, item: &str) {
        if self.shutting_down || self.dirty.iter().any(|other| other == item) {
            return;
        }
        self.adds += 1;
        self.depth += 1;
        self.add_times.entry(item.to_owned()).or_insert(self.now_us);
        self.dirty.push(item.to_owned());
        if !self.processing.contains_key(item) {
            self.queue.push_back(item.to_owned());
        }
    }

    fn add_after(&mut self, item: &str, wait_us: u64) {
        if self.shutting_down {
            return;
        }
        self.retries += 1;
        if wait_us == 0 {
            self.add(item);
            return;
        }
        let due = self.now_us + wait_us;
        let known = self.delayed.entry(item.to_owned()).or_insert(due);
        *known = due.min(*known);
    }

    fn when(&mut self, item: &str) -> u64 {
        let failures = self.failures.entry(item.to_owned()).or_default();
        let factor = 1_u64.checked_shl(*failures).unwrap_or(u64::MAX);
        *failures += 1;
        self.base_us.saturating_mul(factor).min(self.max_us)
    }

    fn get(&mut self) {
        let Some(item) = self.queue.pop_front() else { return };
        self.depth -= 1;
        self.dirty.retain(|other| *other != item);
        if let Some(added) = self.add_times.remove(&item) {
            self.latency.push(self.now_us - added);
        }
        self.processing.insert(item, self.now_us);
    }

    fn done(&mut self, item: &str) {
        let Some(began) = self.processing.remove(item) else { return };
        self.work.push(self.now_us - began);
        if self.dirty.iter().any(|other| other == item) {
            self.queue.push_back(item.to_owned());
        }
    }

    /// All series of the seven metrics, in the form of a page.
    #[expect(clippy::cast_precision_loss, reason = "traces are short")]
    fn expected(&self) -> BTreeMap<String, f64> {
        let ages = self.processing.values().map(|began| seconds(self.now_us - began));
        let mut expected = BTreeMap::from([
            ("workqueue_depth".to_owned(), self.depth as f64),
            ("workqueue_adds_total".to_owned(), self.adds as f64),
            ("workqueue_retries_total".to_owned(), self.retries as f64),
            ("workqueue_unfinished_work_seconds".to_owned(), ages.clone().sum()),
            ("workqueue_longest_running_processor_seconds".to_owned(), ages.fold(0.0, f64::max)),
        ]);
        let histograms = [
            ("workqueue_queue_duration_seconds", &self.latency),
            ("workqueue_work_duration_seconds", &self.work),
        ];
        for (name, observed) in histograms {
            for (bound, text) in BUCKETS {
                let below = observed.iter().filter(|took| seconds(**took) <= bound).count();
                expected.insert(format!("{name}_bucket{{le=\"{text}\"}}"), below as f64);
            }
            expected.insert(format!("{name}_bucket{{le=\"+Inf\"}}"), observed.len() as f64);
            expected.insert(format!("{name}_count"), observed.len() as f64);
            expected.insert(format!("{name}_sum"), observed.iter().map(|took| seconds(*took)).sum());
        }
        expected
    }
}

#[expect(clippy::cast_precision_loss, reason = "traces are short")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// The metrics that the service derives from the queue of a trace.
pub(super) struct Measured {
    metrics: Metrics,
    queue: std::sync::Arc<QueueMetrics>,
}

impl Measured {
    pub(super) fn new() -> Self {
        let metrics = Metrics::new(1).expect("metrics");
        let queue = metrics.of_queue(&Name::new("trace").expect("a name"));
        Self { metrics, queue }
    }

    /// Compares the page with the model.
    pub(super) fn compare(
        &self,
        queue: &Queue,
        mut effects: Effects,
        now: Time,
        model: &Model,
    ) -> Result<(), String> {
        self.queue.record(&effects.waits, &effects.delivered, &effects.works);
        self.queue.absorb(&mut effects.counters);
        let page = Page::read(&self.metrics.render(&[self.queue.sample(
            queue,
            Waiting::default(),
            Moment::at(now),
            Duration::ZERO,
        )]));
        let mut ours = page.of_queue("trace");
        ours.retain(|series, _| series.starts_with("workqueue_"));
        let theirs = model.expected();
        let differences: Vec<String> = ours
            .keys()
            .chain(theirs.keys())
            .filter(|series| !is_near(ours.get(*series), theirs.get(*series)))
            .map(|series| format!("{series}: {:?} instead of {:?}", ours.get(series), theirs.get(series)))
            .collect();
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n  ")) }
    }
}

fn is_near(ours: Option<&f64>, theirs: Option<&f64>) -> bool {
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return false };
    (ours - theirs).abs() <= ROUNDING * theirs.abs()
}

#[test]
fn a_wrong_or_missing_series_is_a_difference() {
    assert!(is_near(Some(&0.0), Some(&0.0)) && is_near(Some(&0.3), Some(&(0.1 + 0.2))));
    assert!(!is_near(Some(&1.0), Some(&2.0)) && !is_near(None, Some(&0.0)) && !is_near(Some(&0.0), None));
}
