//! A histogram of durations.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deltaq_runtime::clock::whole_us;

/// The counters of a histogram. The caller provides the bounds of the buckets. There is one additional bucket without
/// a bound.
#[derive(Debug)]
pub(super) struct Durations<const BUCKETS: usize> {
    /// The count of each bucket, not including smaller buckets.
    counts: [AtomicU64; BUCKETS],
    beyond: AtomicU64,
    sum_us: AtomicU64,
}

/// The counts of a histogram at one instant, or the sums of several histograms with the same bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distribution<const BUCKETS: usize> {
    counts: [u64; BUCKETS],
    beyond: u64,
    sum_us: u64,
}

impl<const BUCKETS: usize> Default for Durations<BUCKETS> {
    fn default() -> Self {
        Self { counts: from_fn(|_| AtomicU64::new(0)), beyond: AtomicU64::new(0), sum_us: AtomicU64::new(0) }
    }
}

impl<const BUCKETS: usize> Default for Distribution<BUCKETS> {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], beyond: 0, sum_us: 0 }
    }
}

impl<const BUCKETS: usize> Durations<BUCKETS> {
    /// Counts a duration in the first bucket that can hold it.
    pub(super) fn record(&self, bounds_us: &[u64; BUCKETS], took: Duration) {
        self.record_all(bounds_us, took, 1);
    }

    /// Counts this number of equal durations.
    pub(super) fn record_all(&self, bounds_us: &[u64; BUCKETS], took: Duration, number: u64) {
        let took_us = whole_us(took);
        let bucket = bounds_us.partition_point(|bound| *bound < took_us);
        self.counts.get(bucket).unwrap_or(&self.beyond).fetch_add(number, Ordering::Relaxed);
        self.sum_us.fetch_add(took_us * number, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Distribution<BUCKETS> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Distribution {
            counts: self.counts.each_ref().map(read),
            beyond: read(&self.beyond),
            sum_us: read(&self.sum_us),
        }
    }
}

impl<const BUCKETS: usize> Distribution<BUCKETS> {
    /// The number of durations.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.beyond
    }

    pub(super) fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// The cumulative count of each bucket, as Prometheus requires it.
    pub(super) fn up_to(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().chain([&self.beyond]).scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
    }

    /// Counts a duration.
    pub(super) fn record(&mut self, bounds_us: &[u64; BUCKETS], took: Duration) {
        let took_us = whole_us(took);
        let bucket = bounds_us.partition_point(|bound| *bound < took_us);
        *self.counts.get_mut(bucket).unwrap_or(&mut self.beyond) += 1;
        self.sum_us += took_us;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.beyond += other.beyond;
        self.sum_us += other.sum_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_holds_it() {
        let bounds = [0, 1, 10, 1_000_000];
        let durations = Durations::default();
        for micros in [0, 1, 2, 10, 999_999, 1_000_000, 1_000_001] {
            durations.record(&bounds, Duration::from_micros(micros));
        }
        let read = durations.read();
        assert_eq!(read.up_to().collect::<Vec<_>>(), [1, 2, 4, 6, 7]);
        assert_eq!((read.count(), read.sum()), (7, Duration::from_micros(3_000_013)));
        let mut twice = read;
        twice.add(&read);
        assert_eq!(twice.up_to().collect::<Vec<_>>(), [2, 4, 8, 12, 14]);
        assert_eq!((twice.count(), twice.sum()), (14, 2 * read.sum()));
    }
}
