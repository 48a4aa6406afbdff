//! The waits of a source: between lists, and after failures. The numbers are those of client-go's Reflector.

use std::time::Duration;

use deltaq_runtime::clock::Clock;
use deltaq_runtime::retry::RetryWait;

/// The wait after the first failure, without jitter.
const FIRST: Duration = Duration::from_millis(800);
/// The longest wait after a failure, without jitter.
const MAX: Duration = Duration::from_secs(30);
/// After this time without a failure, the waits begin with the first one again.
const RESET: Duration = Duration::from_mins(2);
/// The part of an interval by which it is longer or shorter at random.
const INTERVAL_JITTER: f64 = 0.1;

/// The waits after failures.
#[derive(Debug)]
pub(super) struct Backoff {
    waits: RetryWait,
    failed_at_us: Option<u64>,
    clock: Clock,
}

impl Backoff {
    pub(super) const fn new(clock: Clock) -> Self {
        Self { waits: RetryWait::new(FIRST, MAX), failed_at_us: None, clock }
    }

    /// The wait after a failure: once to twice the step, and at least as long as the source has asked for.
    pub(super) fn after_failure(&mut self, retry_after: Option<Duration>) -> Duration {
        if self.failed_at_us.is_some_and(|at_us| self.clock.since(at_us) >= RESET) {
            self.waits.reset();
        }
        self.failed_at_us = Some(self.clock.monotonic_us());
        let wait = self.waits.after_failure().mul_f64(1.0 + fastrand::f64());
        wait.max(retry_after.unwrap_or_default())
    }
}

/// An interval that is up to a tenth longer or shorter, so that processes that started together do not stay together.
pub(super) fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(INTERVAL_JITTER.mul_add(fastrand::f64().mul_add(2.0, -1.0), 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_with_jitter_and_begin_again_after_two_good_minutes() {
        let (clock, hand) = Clock::manual(0);
        let mut backoff = Backoff::new(clock);
        let mut is_between = |from_ms: u64, to_ms: u64| {
            let wait = backoff.after_failure(None);
            assert!((from_ms..=to_ms).contains(&u64::try_from(wait.as_millis()).unwrap()), "{wait:?}");
        };
        is_between(800, 1_600);
        is_between(1_600, 3_200);
        is_between(3_200, 6_400);
        (0..4).for_each(|_| is_between(6_400, 60_000));
        is_between(30_000, 60_000);
        hand.advance(Duration::from_secs(119));
        is_between(30_000, 60_000);
        hand.advance(Duration::from_mins(2));
        is_between(800, 1_600);
    }

    #[test]
    fn a_source_may_ask_for_a_longer_wait() {
        let mut backoff = Backoff::new(Clock::manual(0).0);
        assert_eq!(backoff.after_failure(Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert!(backoff.after_failure(Some(Duration::ZERO)) >= Duration::from_millis(1_600));
    }

    #[test]
    fn intervals_differ_by_up_to_a_tenth() {
        for _ in 0..1_000 {
            let interval = jittered(Duration::from_secs(10));
            assert!((9.0..=11.0).contains(&interval.as_secs_f64()), "{interval:?}");
        }
    }
}
