//! The metrics of queues. They belong to the queue: deleting a queue removes its metrics, and a recreated queue
//! starts at 0.
//!
//! The first `metrics.max_queues` queues, in order of creation, have their own series. All later queues share one set
//! of series, so that the number of series is limited. When a queue with its own series is deleted, the oldest of the
//! later queues gets its own series. These start at 0, and the queue's earlier counts stay in the shared series, so
//! no counter decreases.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deltaq_engine::effects::Work;
use deltaq_engine::id::Source;
use deltaq_engine::ready::ReadyCounts;
use deltaq_engine::time::Time;
use deltaq_engine::view::View;
use deltaq_engine::{Counters, Queue};
use deltaq_types::ReflectorState;
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::super::{Moment, Name};
use super::Metrics;
use super::durations::Durations;
use super::hooks::HookReport;
use super::pushes::PushReport;
use crate::ReflectedSource;

/// client-go's buckets, 1e-8 s to 1e3 s by powers of ten, in microseconds. The first two hold durations of 0 us.
const BOUNDS_US: [u64; BUCKETS] =
    [0, 0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
/// The bounds of the histogram of deltas per delivery.
pub(super) const BOUNDS_DELTAS: [u32; BUCKETS] = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000];
/// The histogram counts a delta as a second.
const DELTA_US: u64 = 1_000_000;
/// Maximum number of sources of a queue that have a series.
const SOURCES_WITH_SERIES_MAX: usize = 100;
/// Number of buckets with a bound.
pub(super) const BUCKETS: usize = 12;

/// The metrics of one queue.
pub struct QueueMetrics {
    /// Increases with each created queue.
    number: u64,
    name: Name,
    /// Replaced at most once, when a queue that shares its series gets its own series.
    series: RwLock<Arc<Series>>,
}

/// Which queues have their own series.
#[derive(Debug)]
pub(super) struct SeriesOwners {
    max_queues: usize,
    taken: usize,
    created: u64,
    /// The queues that share their series, by number.
    others: BTreeMap<u64, Arc<QueueMetrics>>,
    shared: Arc<Series>,
}

/// The metrics of one queue, or of all queues that share their series.
#[derive(Debug, Default)]
pub(super) struct Series {
    /// `None` for the shared series.
    pub(super) name: Option<Name>,
    totals: Mutex<Totals>,
    pub(super) waits: Durations<BUCKETS>,
    pub(super) works: Durations<BUCKETS>,
    /// The number of deltas of each delivered key, as seconds.
    pub(super) delivered: Durations<BUCKETS>,
    /// The times from a change until a watch has its row.
    pub(super) deliveries: Durations<BUCKETS>,
    /// Whether the queue has had a watch.
    pub(super) is_watched: AtomicBool,
}

/// The totals of the counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) adds: u64,
    pub(super) retries: u64,
    pub(super) deltas: [u64; 5],
    pub(super) coalesced: u64,
    pub(super) debounced: u64,
    pub(super) ignored: [u64; 7],
    pub(super) settled: [u64; 6],
    /// Number of rows of each view.
    pub(super) rows: [u64; 2],
    /// Counts in the order of [`LostPosition`].
    pub(super) lost: [u64; 3],
}

/// Why a watch must list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostPosition {
    /// The queue no longer knows which keys have left the view since that version.
    TooOld,
    /// The version is ahead of the queue.
    Ahead,
    /// The queue never returned this version.
    Lost,
}

/// The callers that wait on a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Number of waiting pops.
    pub pops: usize,
    /// Number of watches of each view.
    pub watches: [usize; 2],
}

/// The gauges of a queue, or of several queues, at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gauges {
    pub(super) depth: usize,
    pub(super) unfinished: Duration,
    pub(super) longest: Duration,
    /// Number of ready, delayed, leased and parked keys.
    pub(super) items: [usize; 4],
    pub(super) known: usize,
    pub(super) held_bytes: usize,
    /// Ready keys, and groups, by what stops them.
    pub(super) ready: ReadyCounts,
    pub(super) oldest_ready_age: Duration,
    pub(super) oldest_unacknowledged_age: Duration,
    pub(super) highest_failures: u32,
    pub(super) waiters: usize,
    /// Number of watches of each view.
    pub(super) watches: [usize; 2],
    /// Keys, tombstones and bytes of tombstones in the feed of each view.
    pub(super) feed_keys: [usize; 2],
    pub(super) tombstones: [usize; 2],
    pub(super) tombstone_bytes: [usize; 2],
    pub(super) has_synced: bool,
    /// How far the queue's time is ahead of the wall clock.
    pub(super) clock_lead: Duration,
}

/// The metrics of a queue at one instant.
#[derive(Debug)]
pub struct Sample {
    pub(super) series: Arc<Series>,
    pub(super) gauges: Gauges,
    /// The sources, by name. Empty for a queue that shares its series.
    pub(super) sources: Vec<SourceSample>,
    /// The sources whose reflectors have sent heartbeats, by name. Empty for a queue that shares its series.
    pub(super) reflected: Vec<ReflectedSource>,
    /// The lag of a follower. `None` for a queue that shares its series.
    pub(super) lag: Option<Lag>,
    /// What the task of a queue that pushes does. `None` for a queue that shares its series.
    pub(super) push: Option<PushReport>,
    /// What became of the deliveries of a hook. `None` for a queue that shares its series.
    pub(super) hook: Option<HookReport>,
}

/// A source at one instant.
#[derive(Debug)]
pub(super) struct SourceSample {
    pub(super) name: Source,
    /// When its last complete Replace ended, by the wall clock.
    pub(super) last_replaced: Option<Time>,
    /// When it was last in contact, by the wall clock.
    pub(super) last_contact: Option<Time>,
    /// Whether it is silent for longer than its threshold; `None` without a threshold.
    pub(super) is_stale: Option<bool>,
}

/// The lag of a follower behind the queue that it follows.
#[derive(Clone, Debug)]
pub struct Lag {
    /// The name of the followed queue.
    pub follows: Arc<str>,
    /// Number of events.
    pub events: u64,
    /// How long the follower has been behind.
    pub time: Duration,
}

impl Metrics {
    /// The metrics of a queue that was just created.
    #[must_use]
    pub fn of_queue(&self, name: &Name) -> Arc<QueueMetrics> {
        self.lock_series_owners().join(name)
    }

    /// Removes the metrics of a deleted queue.
    pub fn forget(&self, queue: &QueueMetrics) {
        self.lock_series_owners().leave(queue);
    }

    fn lock_series_owners(&self) -> MutexGuard<'_, SeriesOwners> {
        self.series_owners.lock()
    }
}

impl SeriesOwners {
    pub(super) fn new(max_queues: usize) -> Self {
        let (others, shared) = (BTreeMap::new(), Arc::default());
        Self { max_queues, taken: 0, created: 0, others, shared }
    }

    fn join(&mut self, name: &Name) -> Arc<QueueMetrics> {
        self.created += 1;
        let has_own = self.taken < self.max_queues;
        let series = if has_own { Series::of(name) } else { self.shared.clone() };
        let queue = QueueMetrics { number: self.created, name: name.clone(), series: RwLock::new(series) };
        let queue = Arc::new(queue);
        if has_own {
            self.taken += 1;
        } else {
            self.others.insert(queue.number, queue.clone());
        }
        queue
    }

    fn leave(&mut self, queue: &QueueMetrics) {
        if self.others.remove(&queue.number).is_some() {
            return;
        }
        match self.others.pop_first() {
            Some((_, oldest)) => oldest.set_series(Series::of(&oldest.name)),
            None => self.taken -= 1,
        }
    }
}

impl QueueMetrics {
    /// Records how long delivered keys waited, how many deltas they had, and how long ended leases lasted.
    pub fn record(&self, waits: &[Duration], delivered: &[u32], works: &[Work]) {
        if waits.is_empty() && works.is_empty() {
            return;
        }
        let series = self.series();
        // Most keys are delivered with one delta. A key in mode keys has none and counts as one.
        let bounds_us = BOUNDS_DELTAS.map(|deltas| u64::from(deltas) * DELTA_US);
        let record = |deltas: u32, keys: usize| {
            let deltas = Duration::from_micros(u64::from(deltas) * DELTA_US);
            series.delivered.record_all(&bounds_us, deltas, keys as u64);
        };
        let single = waits.len() - delivered.len();
        if single > 0 {
            record(1, single);
        }
        for deltas in delivered {
            record(*deltas, 1);
        }
        for wait in waits {
            series.waits.record(&BOUNDS_US, *wait);
        }
        for work in works {
            series.works.record(&BOUNDS_US, work.lasted);
        }
    }

    /// Records that the queue has a watch.
    pub fn note_watch(&self) {
        self.series().is_watched.store(true, Ordering::Relaxed);
    }

    /// Counts rows that a watch has received, and records the time since the change that woke the watch. The time
    /// does not include writing the rows to the connection. For a watch that is busy with earlier rows, the time
    /// starts at the newest announcement.
    pub fn record_rows(&self, view: View, rows: usize, lag: Option<Duration>) {
        let series = self.series();
        let counts = &mut series.totals.lock().rows;
        for (count, _) in counts.iter_mut().zip(View::ALL).filter(|(_, of)| *of == view) {
            *count += rows as u64;
        }
        if let Some(lag) = lag {
            series.deliveries.record(&BOUNDS_US, lag);
        }
    }

    /// Counts a watch that must list again.
    pub fn count_lost(&self, why: LostPosition) {
        let series = self.series();
        let [too_old, ahead, lost] = &mut series.totals.lock().lost;
        *match why {
            LostPosition::TooOld => too_old,
            LostPosition::Ahead => ahead,
            LostPosition::Lost => lost,
        } += 1;
    }

    /// Adds counts to the series, and sets the counts to zero.
    pub fn absorb(&self, counters: &mut Counters) {
        self.series().add(&std::mem::take(counters));
    }

    /// The gauges of the queue, and its series. Only its groups are examined, and no keys, because the caller holds the queue's lock.
    pub fn sample(&self, queue: &Queue, waiting: Waiting, moment: Moment, clock_lead: Duration) -> Sample {
        let now = moment.now;
        let series = self.series();
        let status = queue.status(now);
        let feeds = View::ALL.map(|view| queue.feed_size(view).unwrap_or_default());
        let gauges = Gauges {
            depth: queue.schedule().depth(),
            unfinished: queue.schedule().leased_for(now),
            longest: queue.longest_lease(now).unwrap_or_default(),
            items: [status.ready, status.delayed, status.leased, status.parked],
            ready: queue.ready_counts(now),
            known: status.known,
            held_bytes: status.held_bytes,
            // While the queue is paused, its keys wait on purpose, so their age is reported as 0.
            oldest_ready_age: status.oldest_ready_age.filter(|_| !status.paused).unwrap_or_default(),
            oldest_unacknowledged_age: status.oldest_unacknowledged_age.unwrap_or_default(),
            highest_failures: queue.highest_failures(),
            waiters: waiting.pops,
            watches: waiting.watches,
            feed_keys: feeds.map(|feed| feed.keys),
            tombstones: feeds.map(|feed| feed.tombstones),
            tombstone_bytes: feeds.map(|feed| feed.tombstone_bytes),
            has_synced: status.has_synced,
            clock_lead,
        };
        if waiting.watches != [0; 2] {
            // A queue with a watch may have got its own series since.
            series.is_watched.store(true, Ordering::Relaxed);
        }
        Sample {
            series,
            gauges,
            sources: Vec::new(),
            reflected: Vec::new(),
            lag: None,
            push: None,
            hook: None,
        }
    }

    fn series(&self) -> Arc<Series> {
        self.series.read().clone()
    }

    fn set_series(&self, series: Arc<Series>) {
        *self.series.write() = series;
    }
}

impl Sample {
    /// Adds the sources of the queue. `contact` is the last contact with a source.
    #[must_use]
    pub fn with_sources(
        mut self,
        queue: &Queue,
        contact: impl Fn(&Source) -> Option<Time>,
        moment: Moment,
    ) -> Self {
        if self.series.name.is_none() {
            return self;
        }
        let samples = queue.source_histories().map(|(name, history)| {
            let contact = contact(name);
            SourceSample {
                name: name.clone(),
                last_replaced: history.last_replaced.map(|at| moment.wall(at)),
                last_contact: contact.map(|at| moment.wall(at)),
                is_stale: history.is_stale(contact, moment.now),
            }
        });
        self.sources = samples.collect();
        // Other sources must not leave a stale one without its alert.
        if self.sources.len() > SOURCES_WITH_SERIES_MAX {
            self.sources.sort_by_key(|one| (Reverse(one.is_stale), one.last_replaced.is_none()));
            self.sources.truncate(SOURCES_WITH_SERIES_MAX);
        }
        self
    }

    /// Adds the sources whose reflectors have sent heartbeats.
    #[must_use]
    pub fn with_reflectors(mut self, mut reflected: Vec<ReflectedSource>) -> Self {
        if self.series.name.is_some() {
            if reflected.len() > SOURCES_WITH_SERIES_MAX {
                reflected.sort_by_key(|of| of.state == ReflectorState::Ok);
                reflected.truncate(SOURCES_WITH_SERIES_MAX);
            }
            self.reflected = reflected;
        }
        self
    }

    /// Adds the lag of a follower.
    #[must_use]
    pub fn with_lag(mut self, lag: Option<Lag>) -> Self {
        self.lag = lag.filter(|_| self.series.name.is_some());
        self
    }

    /// Adds what became of the deliveries of a hook.
    #[must_use]
    pub fn with_hook(mut self, hook: Option<HookReport>) -> Self {
        self.hook = hook.filter(|_| self.series.name.is_some());
        self
    }

    /// Adds what the task of a queue that pushes does.
    #[must_use]
    pub fn with_push(mut self, push: Option<PushReport>) -> Self {
        self.push = push.filter(|_| self.series.name.is_some());
        self
    }
}

impl Series {
    fn of(name: &Name) -> Arc<Self> {
        Arc::new(Self { name: Some(name.clone()), ..Self::default() })
    }

    fn add(&self, counters: &Counters) {
        self.totals.lock().add(counters);
    }

    pub(super) fn totals(&self) -> Totals {
        *self.totals.lock()
    }
}

impl Totals {
    fn add(&mut self, counters: &Counters) {
        let ignored = [
            counters.ignored_absent,
            counters.ignored_duplicate,
            counters.ignored_unchanged,
            counters.ignored_superseded,
            counters.ignored_closed,
            counters.ignored_repeated,
            counters.ignored_stale,
        ];
        let settled = counters.settled.iter().chain([&counters.stale]);
        self.adds += counters.adds;
        self.retries += counters.retries;
        self.coalesced += counters.coalesced;
        self.debounced += counters.debounced;
        add_each(&mut self.deltas, &counters.deltas);
        add_each(&mut self.ignored, &ignored);
        add_each(&mut self.settled, settled);
    }
}

fn add_each<'a>(sums: &mut [u64], more: impl IntoIterator<Item = &'a u64>) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

impl Gauges {
    /// The gauges of both queues together: sums, the largest ages, and whether both have synced.
    pub(super) fn with(mut self, other: &Self) -> Self {
        for (keys, more) in self.items.iter_mut().zip(other.items) {
            *keys += more;
        }
        self.ready = self.ready.with(&other.ready);
        self.depth += other.depth;
        self.unfinished = self.unfinished.saturating_add(other.unfinished);
        self.longest = self.longest.max(other.longest);
        self.known += other.known;
        self.held_bytes += other.held_bytes;
        self.oldest_ready_age = self.oldest_ready_age.max(other.oldest_ready_age);
        self.oldest_unacknowledged_age = self.oldest_unacknowledged_age.max(other.oldest_unacknowledged_age);
        self.highest_failures = self.highest_failures.max(other.highest_failures);
        self.waiters += other.waiters;
        for (sums, more) in [
            (&mut self.watches, other.watches),
            (&mut self.feed_keys, other.feed_keys),
            (&mut self.tombstones, other.tombstones),
            (&mut self.tombstone_bytes, other.tombstone_bytes),
        ] {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        self.has_synced &= other.has_synced;
        self.clock_lead = self.clock_lead.max(other.clock_lead);
        self
    }
}

impl fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueMetrics({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_queue_leaves_nothing_behind() {
        let metrics = Metrics::new(1).expect("metrics");
        let [first, second, third] =
            ["a", "b", "c"].map(|name| metrics.of_queue(&Name::new(name).expect("a name")));
        let left = [&first, &second, &third].map(Arc::downgrade);
        metrics.forget(&third);
        metrics.forget(&first);
        drop((first, third));
        assert!(left[0].upgrade().is_none() && left[2].upgrade().is_none());
        let series = Arc::downgrade(&second.series());
        assert_eq!(
            second.series().name.as_ref().map(Name::as_str),
            Some("b"),
            "the shared series became its own"
        );
        metrics.forget(&second);
        drop(second);
        assert!(left[1].upgrade().is_none() && series.upgrade().is_none());
        assert_eq!(metrics.lock_series_owners().taken, 0);
        assert!(metrics.lock_series_owners().others.is_empty());
    }
}
