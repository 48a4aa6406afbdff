//! Waits between the attempts of a call.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// Maximum of the random pause while a queue moves to another node, which takes seconds and is no overload.
const MOVING_MAX: Duration = Duration::from_secs(1);

/// How often, and for how long, a failed call is repeated.
///
/// The pause before the n-th repetition is a random part of `first * 2^(n - 1)` or, if that is larger than `max`, of
/// `max` (full jitter). If the server asks to wait (`Retry-After`), that time is added. No further attempt is made
/// after `attempts` attempts, or if it would begin later than `total` after the first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// The maximum pause before the first repetition.
    pub first: Duration,
    /// The maximum pause before any repetition.
    pub max: Duration,
    /// Maximum number of attempts; with 1, nothing is repeated.
    pub attempts: u32,
    /// The time after the first attempt during which further attempts may begin.
    pub total: Duration,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            max: Duration::from_secs(10),
            attempts: u32::MAX,
            total: Duration::from_mins(2),
        }
    }
}

impl RetryOptions {
    /// Whether another attempt may follow after `failures` failures and `pause`, if the first one began at `began`.
    pub(crate) fn allow(&self, failures: u32, began: Instant, pause: Duration) -> bool {
        failures < self.attempts && began.elapsed().saturating_add(pause) < self.total
    }
}

/// The pauses of a worker whose queue does not exist yet: 1 s, doubling to 15 s.
pub fn pauses_without_queue() -> impl Iterator<Item = Duration> {
    const MAX: Duration = Duration::from_secs(15);
    let doubled = |pause: &Duration| Some(pause.saturating_mul(2).min(MAX));
    std::iter::successors(Some(Duration::from_secs(1)), doubled)
}

/// The number of consecutive failures of a call, which determines the pauses.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Pauses that begin with a random part of `first` and grow to a random part of `max`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// Failures since the last success.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// The pause after a failure: the time that the server asked for, plus a random part of the current limit. While a
    /// queue moves to another node (`not-owner`), the limit is at most a second.
    pub fn after_failure(&mut self, error: &Error) -> Duration {
        let is_moving = error.code() == Some("not-owner");
        let limit = self.limit().min(if is_moving { MOVING_MAX } else { Duration::MAX });
        error.retry_after().unwrap_or_default().saturating_add(limit.mul_f64(fastrand::f64()))
    }

    /// The pause after a failure without a reply from the server.
    pub fn pause(&mut self) -> Duration {
        self.limit().mul_f64(fastrand::f64())
    }

    /// Returns the current limit, and doubles it for the next pause.
    fn limit(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        doubled.min(self.max)
    }

    /// Records a success: the next pause is as short as the first one.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

impl Default for Backoff {
    /// The random pauses of a loop that runs forever: at most 250 ms at first, growing to at most 5 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(250), Duration::from_secs(5))
    }
}

/// The pauses of a reflector. Each is between half a limit and the limit, which is half of the time since the first
/// failure, at least 0.8 s and at most a minute. So after an outage, the source is read again within half of its time.
/// After two minutes without a failure, or after a connection that has lived longer than the last pause, the limit is
/// 0.8 s again.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReflectorBackoff {
    failing_since: Option<Instant>,
    failed_at: Option<Instant>,
    last_pause: Duration,
}

impl ReflectorBackoff {
    /// The pause after a failure, at least as long as the source or the server has asked for.
    pub fn after_failure(&mut self, asked: Option<Duration>) -> Duration {
        const RESET: Duration = Duration::from_mins(2);
        const LIMIT_MIN: Duration = Duration::from_millis(800);
        const LIMIT_MAX: Duration = Duration::from_mins(1);
        let now = Instant::now();
        if self.failed_at.is_some_and(|at| now.duration_since(at) >= RESET) {
            self.failing_since = None;
        }
        self.failed_at = Some(now);
        let since = *self.failing_since.get_or_insert(now);
        let limit = (now.duration_since(since) / 2).clamp(LIMIT_MIN, LIMIT_MAX);
        let pause = limit.mul_f64(f64::midpoint(1.0, fastrand::f64()));
        self.last_pause = pause.max(asked.unwrap_or_default());
        self.last_pause
    }

    /// Records how long a connection has worked. A proxy that cuts every connection after a while is no reason for
    /// longer pauses.
    pub fn worked(&mut self, time: Duration) {
        if time > self.last_pause {
            self.failing_since = None;
        }
    }
}

impl From<RetryOptions> for Backoff {
    fn from(options: RetryOptions) -> Self {
        Self::new(options.first, options.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_without_a_queue_double_to_their_maximum() {
        let seconds: Vec<u64> = pauses_without_queue().take(6).map(|pause| pause.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 15, 15]);
    }

    #[test]
    fn pauses_are_random_parts_of_a_limit_that_doubles() {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(5));
        for failures in 0..70 {
            let limit = first.saturating_mul(1 << failures.min(3)).min(max);
            let pauses = (0..200).map(|_| Backoff { first, max, failures }.pause()).collect::<Vec<_>>();
            assert!(pauses.iter().all(|pause| *pause <= limit), "{failures}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause < limit / 4), "{failures}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause > limit / 2), "{failures}: {pauses:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_lives_longer_than_the_pause_before_it_ends_the_backoff() {
        let (mut cut, mut failing) = (ReflectorBackoff::default(), ReflectorBackoff::default());
        for _ in 0..9 {
            assert!(cut.after_failure(None) <= Duration::from_millis(800));
            cut.worked(Duration::from_secs(13));
            failing.after_failure(None);
            failing.worked(Duration::from_millis(300));
            tokio::time::advance(Duration::from_secs(14)).await;
        }
        assert!(failing.after_failure(None) >= Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_is_read_again_within_half_of_the_time_of_its_outage() {
        for outage_ms in [100, 1_000, 2_000, 5_000, 10_000, 35_000, 60_000, 300_000] {
            let outage = Duration::from_millis(outage_ms);
            let most = Duration::from_millis(800).max(outage / 2).min(Duration::from_mins(1));
            for _ in 0..50 {
                let (mut backoff, began, mut attempts) = (ReflectorBackoff::default(), Instant::now(), 0);
                while began.elapsed() < outage {
                    tokio::time::advance(backoff.after_failure(None)).await;
                    attempts += 1;
                }
                assert!(began.elapsed() <= outage + most, "{outage:?}: {:?}", began.elapsed());
                assert!(attempts <= 2 * outage_ms.ilog2(), "{outage:?}: {attempts} attempts");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_of_a_reflector_begin_again_after_two_good_minutes() {
        let mut backoff = ReflectorBackoff::default();
        let mut is_between = |from_ms: u128, to_ms: u128| {
            let pause = backoff.after_failure(None);
            assert!((from_ms..=to_ms).contains(&pause.as_millis()), "{pause:?}");
        };
        is_between(400, 800);
        is_between(400, 800);
        tokio::time::advance(Duration::from_secs(20)).await;
        is_between(5_000, 10_000);
        tokio::time::advance(Duration::from_secs(119)).await;
        is_between(30_000, 60_000);
        tokio::time::advance(Duration::from_mins(2)).await;
        is_between(400, 800);
        assert_eq!(backoff.after_failure(Some(Duration::from_secs(7))), Duration::from_secs(7));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert!(backoff.after_failure(Some(Duration::ZERO)) >= Duration::from_millis(1_750));
    }
}
