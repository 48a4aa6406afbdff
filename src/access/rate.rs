//! The rate limit of a caller.

use std::time::Duration;

use parking_lot::Mutex;

/// A limit on requests per second and on the size of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second.
    pub each_second: u32,
    /// Number of requests that can be made at once after a pause.
    pub burst: u32,
}

/// A token bucket, stored as the time at which it will be full.
#[derive(Debug, Default)]
pub struct Bucket(Mutex<Level>);

#[derive(Debug, Default)]
struct Level {
    /// When the bucket will be full again, in microseconds of the monotonic clock.
    full_at_us: u64,
    /// The fraction of a microsecond to add to `full_at_us`, in units of 1/`each_second`.
    rest: u64,
}

const SECOND_US: u64 = 1_000_000;

impl Bucket {
    /// Takes one request from the bucket. The error is the time until one is available.
    ///
    /// # Errors
    /// The wait.
    pub fn take(&self, rate: Rate, now_us: u64) -> Result<(), Duration> {
        let each_second = u64::from(rate.each_second.max(1));
        let depth_us = u64::from(rate.burst.max(1)).saturating_mul(SECOND_US) / each_second;
        let mut level = self.0.lock();
        if level.full_at_us <= now_us {
            *level = Level { full_at_us: now_us, rest: 0 };
        }
        // A raised rate takes effect at once.
        level.full_at_us = level.full_at_us.min(now_us.saturating_add(depth_us));
        let parts = level.rest + SECOND_US;
        let full_at_us = level.full_at_us + parts / each_second;
        let excess_us = (full_at_us - now_us).saturating_sub(depth_us);
        if excess_us > 0 {
            return Err(Duration::from_micros(excess_us));
        }
        *level = Level { full_at_us, rest: parts % each_second };
        Ok(())
    }

    /// Whether the bucket is full.
    #[must_use]
    pub fn is_full(&self, now_us: u64) -> bool {
        self.0.lock().full_at_us <= now_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_limits() {
        let (bucket, rate) = (Bucket::default(), Rate { each_second: 3, burst: 5 });
        let taken = |now_us| (0..100).take_while(|_| bucket.take(rate, now_us).is_ok()).count();
        let start = 7_000_000;
        assert_eq!(taken(start), 5);
        let wait = bucket.take(rate, start).unwrap_err();
        assert!(wait <= Duration::from_micros(333_334), "{wait:?}");
        assert_eq!(taken(start + 333_334), 1);
        let later: usize = (1..=30).map(|second| taken(start + 333_334 + second * SECOND_US)).sum();
        assert!((89..=91).contains(&later), "{later} in 30 seconds");
        assert_eq!(taken(start + 1_000 * SECOND_US), 5, "no more than a burst after a pause");
    }

    #[test]
    fn a_raised_rate_takes_effect_at_once() {
        let (bucket, slow) = (Bucket::default(), Rate { each_second: 1, burst: 1_000 });
        while bucket.take(slow, 0).is_ok() {}
        let fast = Rate { each_second: 1_000, burst: 1_000 };
        assert!(bucket.take(fast, 0).unwrap_err() <= Duration::from_millis(1));
        assert!(bucket.take(fast, 2_000).is_ok());
    }
}
