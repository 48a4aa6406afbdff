//! The time of a queue: a hybrid of the wall clock and the monotonic clock.
//!
//! When a queue is created or loaded, its time is the later of the calendar and the time of its last event. From
//! then on it advances with the monotonic clock. So it never goes back and never stops. After a restart with a wall
//! clock that is days behind, leases, delays and backoffs still end on time, and the queue's time is days ahead of
//! the calendar. The calendar of nodes is the clock of their database, so a queue goes on when it moves to a node whose
//! wall clock is wrong.
//!
//! Replies show wall times. [`Moment::wall`] subtracts the difference between the two clocks from an instant of the
//! queue.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use deltaq_engine::time::Time;
use deltaq_runtime::clock::Clock;

/// Replies ignore a difference between a queue's time and the wall clock that is smaller than this, and follow
/// changes of the difference in steps of at least this size. So the same instant is always shown with the same text,
/// even while NTP slews the wall clock.
const SHOWN_STEP_US: u64 = 1_000_000;

/// The clock of one queue.
#[derive(Debug)]
pub(super) struct QueueClock {
    clock: Clock,
    /// The queue's time when the monotonic clock showed zero.
    origin_us: u64,
    /// The lead over the wall clock that replies subtract.
    shown_lead_us: AtomicI64,
}

/// A queue's current time, and the offset that converts the queue's instants to wall times.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The current time of the queue.
    pub now: Time,
    lead_us: i64,
}

impl QueueClock {
    /// The clock of a queue whose last event happened at `last`. `calendar` is the present time of the clock that all
    /// servers of the queue share.
    pub(super) fn new(clock: Clock, calendar: Time, last: Time) -> Self {
        let origin_us = calendar.max(last).as_micros().saturating_sub(clock.monotonic_us());
        Self { clock, origin_us, shown_lead_us: AtomicI64::new(0) }
    }

    /// The current time of the queue.
    pub(super) fn now(&self) -> Time {
        Time::from_micros(self.origin_us.saturating_add(self.clock.monotonic_us()))
    }

    /// The time until `at`; zero if that is in the past.
    pub(super) fn until(&self, at: Time) -> Duration {
        at.since(self.now())
    }

    /// How far the queue's time is ahead of the wall clock; zero if it is behind.
    pub(super) fn lead(&self) -> Duration {
        self.now().since(Time::from_micros(self.clock.wall_us()))
    }

    /// The current time, with the data that replies need to show the queue's instants.
    pub(super) fn moment(&self) -> Moment {
        let now = self.now();
        let lead_us = now.as_micros().cast_signed().saturating_sub(self.clock.wall_us().cast_signed());
        let mut shown_us = self.shown_lead_us.load(Ordering::Relaxed);
        if lead_us.abs_diff(shown_us) >= SHOWN_STEP_US {
            self.shown_lead_us.store(lead_us, Ordering::Relaxed);
            shown_us = lead_us;
        }
        Moment { now, lead_us: shown_us }
    }
}

impl Moment {
    /// Converts an instant of the queue to wall time.
    #[must_use]
    pub fn wall(&self, at: Time) -> Time {
        Time::from_micros(at.as_micros().saturating_sub_signed(self.lead_us))
    }

    /// The moment `now` of a queue whose time is the wall clock's.
    #[must_use]
    pub const fn at(now: Time) -> Self {
        Self { now, lead_us: 0 }
    }

    /// A moment of a queue whose time is `lead_us` ahead of the wall clock.
    #[must_use]
    pub const fn ahead(now: Time, lead_us: i64) -> Self {
        Self { now, lead_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);
    const START: Time = Time::from_micros(1_700_000_000_000_000);

    impl QueueClock {
        fn of_machine(clock: Clock, last: Time) -> Self {
            let calendar = Time::from_micros(clock.wall_us());
            Self::new(clock, calendar, last)
        }
    }

    #[test]
    fn time_runs_on_from_the_last_event_however_far_the_wall_clock_is_behind() {
        let (clock, hand) = Clock::manual(START.as_micros());
        hand.advance(Duration::from_secs(7));
        let last = START.plus(10 * DAY);
        let queue = QueueClock::of_machine(clock, last);
        assert_eq!(queue.now(), last);
        hand.advance(Duration::from_secs(2));
        assert_eq!(queue.now(), last.plus(Duration::from_secs(2)));
        assert_eq!(queue.until(last.plus(Duration::from_secs(3))), Duration::from_secs(1));
        assert_eq!(queue.lead() + Duration::from_secs(7), 10 * DAY);
    }

    #[test]
    fn time_begins_with_the_wall_clock_where_that_is_ahead_of_the_last_event() {
        let (clock, _hand) = Clock::manual(START.plus(DAY).as_micros());
        let queue = QueueClock::of_machine(clock, START);
        assert_eq!((queue.now(), queue.lead()), (START.plus(DAY), Duration::ZERO));
    }

    #[test]
    fn a_queue_goes_on_with_the_calendar_of_its_servers_and_not_with_the_wall_clock_of_one() {
        let hour = Duration::from_hours(1);
        for wrong in [START.plus(hour), Time::from_micros(START.as_micros() - 3_600_000_000)] {
            let (clock, hand) = Clock::manual(wrong.as_micros());
            let queue = QueueClock::new(clock, START, Time::from_micros(START.as_micros() - 1));
            assert_eq!(queue.now(), START);
            hand.advance(Duration::from_secs(2));
            assert_eq!(queue.now(), START.plus(Duration::from_secs(2)));
        }
    }

    #[test]
    fn steps_of_the_wall_clock_do_not_move_the_time_of_a_queue() {
        let (clock, hand) = Clock::manual(START.as_micros());
        let queue = QueueClock::of_machine(clock, START);
        for wall in [START.plus(DAY), Time::default()] {
            hand.set_wall(wall.as_micros());
            assert_eq!(queue.now(), START);
        }
    }

    #[test]
    fn replies_show_the_wall_clock_of_this_moment() {
        let (clock, hand) = Clock::manual(START.as_micros());
        let ahead = QueueClock::of_machine(clock, START.plus(10 * DAY));
        let due = ahead.now().plus(Duration::from_secs(2));
        assert_eq!(ahead.moment().wall(due), START.plus(Duration::from_secs(2)));
        hand.set_wall(START.plus(20 * DAY).as_micros());
        assert_eq!(ahead.moment().wall(due), START.plus(20 * DAY).plus(Duration::from_secs(2)));
    }

    #[test]
    fn an_instant_is_shown_the_same_while_the_wall_clock_is_slewed() {
        let (clock, hand) = Clock::manual(START.as_micros());
        let queue = QueueClock::of_machine(clock, START);
        for slewed in [999_999, 1, 500_000] {
            hand.set_wall(START.as_micros() - slewed);
            assert_eq!(queue.moment().wall(START), START);
        }
        hand.set_wall(START.as_micros() - 1_000_000);
        assert_eq!(queue.moment().wall(START).as_micros(), START.as_micros() - 1_000_000);
    }
}
