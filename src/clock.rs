//! What time it is: the wall clock at start plus the monotonic time since, in microseconds since the Unix epoch.
//!
//! This is the one place that reads a clock. So time never runs backwards while the process lives, a step of the wall
//! clock (NTP, an operator, a leap second) does not make leases expire, and tests hold the time in their hand. It is not
//! a timer: who sleeps asks [`Clock::until`] how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of the present time. Cheap to clone; all clones tell the same time.
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    /// `origin_us` is the wall clock at the moment `started` was taken.
    System { origin_us: u64, started: Instant },
    /// Whatever the test says.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's clock, read once here; from then on only monotonic time is added.
    ///
    /// A machine whose clock stands before 1970 counts from the epoch.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clocks")]
    pub fn system() -> Self {
        let origin_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, as_us);
        Self { source: Source::System { origin_us, started: Instant::now() } }
    }

    /// A clock for tests that stands at `start_us` until it is moved by the second value.
    #[must_use]
    pub fn manual(start_us: u64) -> (Self, ManualClock) {
        let now_us = Arc::new(AtomicU64::new(start_us));
        (Self { source: Source::Manual(Arc::clone(&now_us)) }, ManualClock { now_us })
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        match &self.source {
            Source::System { origin_us, started } => origin_us.saturating_add(as_us(started.elapsed())),
            Source::Manual(now_us) => now_us.load(Ordering::SeqCst),
        }
    }

    /// How long it is until `at_us`; zero if that has come already.
    #[must_use]
    pub fn until(&self, at_us: u64) -> Duration {
        Duration::from_micros(at_us.saturating_sub(self.now_us()))
    }

    /// How long it has been since `at_us`; zero if that is still to come.
    #[must_use]
    pub fn since(&self, at_us: u64) -> Duration {
        Duration::from_micros(self.now_us().saturating_sub(at_us))
    }
}

/// What the wall clock says now, in microseconds since the Unix epoch: for the log, which people lay beside the logs of
/// other machines.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clocks")]
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, as_us)
}

/// The hand that moves a clock made by [`Clock::manual`].
#[derive(Debug, Clone)]
pub struct ManualClock {
    now_us: Arc<AtomicU64>,
}

impl ManualClock {
    /// Moves the clock forward, at most to the end of time (`u64::MAX`).
    pub fn advance(&self, by: Duration) {
        let now_us = self.now_us.load(Ordering::SeqCst);
        self.now_us.store(now_us.saturating_add(as_us(by)), Ordering::SeqCst);
    }

    /// Puts the clock anywhere, backwards too: what a restart with a wrong wall clock looks like.
    pub fn set(&self, now_us: u64) {
        self.now_us.store(now_us, Ordering::SeqCst);
    }
}

/// Whole microseconds, saturating: 64 bits last until the year 586524.
fn as_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_time_is_after_2020_and_never_falls() {
        let clock = Clock::system();
        let clone = clock.clone();
        let mut last = clock.now_us();
        assert!(last > 1_577_836_800_000_000, "the machine's clock stands at {last} us");
        for _ in 0..1_000 {
            let now = clone.now_us();
            assert!(now >= last);
            last = now;
        }
        assert_eq!(clock.until(0), Duration::ZERO);
        assert!(clock.until(u64::MAX) > Duration::from_secs(1));
    }

    #[test]
    fn manual_time_moves_only_by_hand_and_for_all_clones() {
        let (clock, hand) = Clock::manual(1_000);
        let clone = clock.clone();
        assert_eq!(clock.now_us(), 1_000);
        hand.advance(Duration::from_millis(2));
        assert_eq!((clock.now_us(), clone.now_us()), (3_000, 3_000));
        assert_eq!(clock.until(3_500), Duration::from_micros(500));
        assert_eq!(clock.since(2_500), Duration::from_micros(500));
        hand.set(10);
        assert_eq!(clone.now_us(), 10);
        assert_eq!(clock.since(11), Duration::ZERO);
        hand.advance(Duration::MAX);
        assert_eq!(clock.now_us(), u64::MAX);
    }
}
