//! How long leases of a queue last, from which follows whether a lease is old for its queue.
//!
//! The mean is of the last leases: each lease that ends moves it by a fixed share, so a change of the work shows soon.

use std::time::Duration;

use deltaq_engine::effects::Work;
use deltaq_runtime::clock::whole_us;

/// The number of leases over which the mean is taken, approximately.
const MEAN_OVER: u64 = 64;
/// The number of ended leases from which the mean says something.
const KNOWN_AFTER: u64 = 10;
/// A lease is old if it has lasted this many times the mean.
const TIMES_MEAN: u32 = 10;
/// While the mean is unknown, a lease is old if it has lasted this many times the setting `lease`.
const TIMES_LEASE: u32 = 10;

/// How long the leases lasted that have ended since the queue was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkTimes {
    /// Number of ended leases, at most [`MEAN_OVER`].
    count: u64,
    mean_us: u64,
}

impl WorkTimes {
    /// Counts leases that have ended.
    pub(crate) fn note(&mut self, works: &[Work]) {
        for work in works {
            self.count = (self.count + 1).min(MEAN_OVER);
            let (mean_us, work_us) = (self.mean_us, whole_us(work.lasted));
            let step = mean_us.abs_diff(work_us) / self.count;
            self.mean_us = if work_us > mean_us { mean_us + step } else { mean_us - step };
        }
    }

    /// The age from which a lease is old, on a queue with this setting `lease`. A worker that is only slow extends its leases, so a lease
    /// that is younger than the setting is never old.
    pub(crate) fn slow_after(&self, lease: Duration) -> Duration {
        if self.count < KNOWN_AFTER {
            return lease.saturating_mul(TIMES_LEASE);
        }
        lease.max(Duration::from_micros(self.mean_us).saturating_mul(TIMES_MEAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lasted(lasted: Duration) -> Work {
        Work { lasted, worker: None, end: None }
    }

    #[test]
    fn a_lease_is_old_compared_with_those_that_have_ended() {
        let mut times = WorkTimes::default();
        assert_eq!(times.slow_after(30 * SECOND), 300 * SECOND);
        (0..9).for_each(|_| times.note(&[lasted(SECOND)]));
        assert_eq!(times.slow_after(30 * SECOND), 300 * SECOND);
        times.note(&[lasted(SECOND)]);
        assert_eq!(times.slow_after(30 * SECOND), 30 * SECOND);
        assert_eq!(times.slow_after(SECOND), 10 * SECOND);
        // The mean follows the last leases.
        (0..1_000).for_each(|_| times.note(&[lasted(100 * SECOND)]));
        assert!(times.slow_after(SECOND) > 990 * SECOND);
        (0..2_000).for_each(|_| times.note(&[lasted(Duration::ZERO)]));
        assert_eq!(times.slow_after(SECOND), SECOND);
    }
}
