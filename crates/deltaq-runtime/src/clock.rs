//! The clocks of the process: the wall clock, a monotonic clock that runs since the start, and a monotonic clock that also runs
//! while the machine is suspended.
//!
//! This module is the only one that reads a clock, so tests can set both. [`Clock::monotonic_us`] measures spans:
//! timeouts, durations, and the progress of a queue's time (`service/time.rs`). It never goes back, and steps of the
//! wall clock (NTP, an operator, a leap second) do not affect it. [`Clock::uptime_us`] is for agreements with other machines,
//! which go on while this one is suspended. [`Clock::wall_us`] is the current calendar time. It
//! determines when a token expires, and it is used in log and audit lines. It may jump in either direction, so no
//! span is computed from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// A source of the current time. It is cheap to clone, and all clones show the same time.
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    /// The machine's clocks. The monotonic clock counts from `started`.
    System { started: Instant },
    /// Readings that a test sets.
    Manual(Arc<Readings>),
}

#[derive(Debug)]
struct Readings {
    wall_us: AtomicU64,
    monotonic_us: AtomicU64,
    suspension: AtomicU64,
}

impl Clock {
    /// The machine's clocks. The monotonic clock is zero now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the only module that reads the machine's clocks")]
    pub fn system() -> Self {
        Self { source: Source::System { started: Instant::now() } }
    }

    /// A clock for tests, which the second value moves. Its wall clock shows `wall_us`, and its monotonic clock shows
    /// zero.
    #[must_use]
    pub fn manual(wall_us: u64) -> (Self, ManualClock) {
        let readings = Readings {
            wall_us: AtomicU64::new(wall_us),
            monotonic_us: AtomicU64::new(0),
            suspension: AtomicU64::new(0),
        };
        let readings = Arc::new(readings);
        (Self { source: Source::Manual(Arc::clone(&readings)) }, ManualClock { readings })
    }

    /// The wall clock as it is now, in microseconds since the Unix epoch. It may go back.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        match &self.source {
            Source::System { .. } => wall_us(),
            Source::Manual(readings) => readings.wall_us.load(Ordering::SeqCst),
        }
    }

    /// Microseconds since this clock was created. It never goes back, and steps of the wall clock do not affect it.
    #[must_use]
    pub fn monotonic_us(&self) -> u64 {
        match &self.source {
            Source::System { started } => whole_us(started.elapsed()),
            Source::Manual(readings) => readings.monotonic_us.load(Ordering::SeqCst),
        }
    }

    /// Microseconds of the time since the machine was started, including the time during which it was suspended. Otherwise it
    /// is like [`monotonic_us`](Self::monotonic_us), with another zero.
    #[must_use]
    pub fn uptime_us(&self) -> u64 {
        match &self.source {
            Source::System { .. } => {
                let time = clock_gettime(ClockId::Boottime);
                let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
                seconds
                    .saturating_mul(1_000_000)
                    .saturating_add(u64::try_from(time.tv_nsec / 1_000).unwrap_or_default())
            }
            Source::Manual(readings) => {
                let suspended_us = readings.suspension.load(Ordering::SeqCst);
                readings.monotonic_us.load(Ordering::SeqCst).saturating_add(suspended_us)
            }
        }
    }

    /// The time until the monotonic clock shows `at_us`; zero if that is in the past.
    #[must_use]
    pub fn until(&self, at_us: u64) -> Duration {
        Duration::from_micros(at_us.saturating_sub(self.monotonic_us()))
    }

    /// The time since the monotonic clock showed `at_us`; zero if that is in the future.
    #[must_use]
    pub fn since(&self, at_us: u64) -> Duration {
        Duration::from_micros(self.monotonic_us().saturating_sub(at_us))
    }
}

/// The machine's wall clock as it is now, in microseconds since the Unix epoch; zero before 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the only module that reads the machine's clocks")]
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, whole_us)
}

/// Moves a clock made by [`Clock::manual`].
#[derive(Debug, Clone)]
pub struct ManualClock {
    readings: Arc<Readings>,
}

impl ManualClock {
    /// Moves both clocks forward; saturates at `u64::MAX`.
    pub fn advance(&self, by: Duration) {
        for reading in [&self.readings.wall_us, &self.readings.monotonic_us] {
            let now_us = reading.load(Ordering::SeqCst);
            reading.store(now_us.saturating_add(whole_us(by)), Ordering::SeqCst);
        }
    }

    /// Suspends the machine for this time: the monotonic clock does not move.
    pub fn suspend(&self, time: Duration) {
        let suspended_us = whole_us(time);
        self.readings.wall_us.fetch_add(suspended_us, Ordering::SeqCst);
        self.readings.suspension.fetch_add(suspended_us, Ordering::SeqCst);
    }

    /// Sets the wall clock, possibly to an earlier time, as an operator or NTP would. The monotonic clock does not
    /// change.
    pub fn set_wall(&self, wall_us: u64) {
        self.readings.wall_us.store(wall_us, Ordering::SeqCst);
    }
}

/// A duration in whole microseconds. A duration of more than 584,000 years saturates.
#[must_use]
pub fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_after_2020_and_the_monotonic_clock_never_falls() {
        let clock = Clock::system();
        let clone = clock.clone();
        let wall_us = clock.wall_us();
        assert!(wall_us > 1_577_836_800_000_000, "the machine's clock shows {wall_us} us");
        let mut last = clock.monotonic_us();
        assert!(last < 60_000_000, "the monotonic clock starts at zero, not at {last} us");
        for _ in 0..1_000 {
            let now = clone.monotonic_us();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand_and_for_all_clones() {
        let (clock, hand) = Clock::manual(1_000);
        let clone = clock.clone();
        assert_eq!((clock.wall_us(), clock.monotonic_us()), (1_000, 0));
        hand.advance(Duration::from_millis(2));
        assert_eq!((clone.wall_us(), clone.monotonic_us()), (3_000, 2_000));
        assert_eq!(clock.until(3_500), Duration::from_micros(1_500));
        assert_eq!(clock.since(1_500), Duration::from_micros(500));
        assert_eq!(clock.since(2_001), Duration::ZERO);
        hand.advance(Duration::MAX);
        assert_eq!((clock.wall_us(), clock.monotonic_us()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn the_uptime_goes_on_while_the_machine_is_suspended() {
        let (clock, hand) = Clock::manual(1_000);
        hand.advance(Duration::from_micros(5));
        hand.suspend(Duration::from_micros(7));
        assert_eq!((clock.wall_us(), clock.monotonic_us(), clock.uptime_us()), (1_012, 5, 12));
        let system = Clock::system();
        let (before, zero) = (system.uptime_us(), system.monotonic_us());
        assert!(before > zero, "the machine was started before this process");
        assert!(system.uptime_us() >= before);
    }

    #[test]
    fn setting_the_wall_clock_does_not_move_the_monotonic_clock() {
        let (clock, hand) = Clock::manual(1_000);
        hand.advance(Duration::from_micros(5));
        hand.set_wall(10);
        assert_eq!((clock.wall_us(), clock.monotonic_us()), (10, 5));
    }
}
