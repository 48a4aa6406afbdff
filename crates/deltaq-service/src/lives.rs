//! Determines where the lives of queues begin.

use deltaq_engine::id::Rv;
use deltaq_engine::lives::{Birth, LifeId};
use deltaq_engine::time::Time;

/// The calendar time at which the floor of the numbers is 0: the first instant of 2025 in UTC, in milliseconds since the Unix epoch.
const FLOOR_ZERO_MS: u64 = 1_735_689_600_000;
/// The floor grows by 2 to this power in each millisecond: 4,096 numbers per millisecond or 4.1 million per second,
/// more than a queue uses.
const NUMBERS_PER_MS_LOG2: u32 = 12;

/// A life that begins at this calendar time. If the clock is correct, its numbers are above all numbers of earlier
/// lives, including lost ones.
pub(super) fn birth(wall: Time) -> Birth {
    // The id 0 is reserved for lives that are no longer remembered.
    Birth { id: LifeId::new(fastrand::u32(1..)), floor: floor(wall) }
}

/// The floor of a life that begins at this calendar time: all numbers of the life are larger.
pub(super) fn floor(wall: Time) -> Rv {
    let ms = (wall.as_micros() / 1_000).saturating_sub(FLOOR_ZERO_MS);
    Rv::new(ms << NUMBERS_PER_MS_LOG2)
}

#[cfg(test)]
mod tests {
    use deltaq_engine::limits::RV_MAX;

    use super::*;

    #[test]
    fn the_floor_grows_with_the_calendar_and_fits_until_2094() {
        let at = |ms: u64| floor(Time::from_micros(ms * 1_000)).get();
        assert_eq!((at(0), at(FLOOR_ZERO_MS), at(FLOOR_ZERO_MS + 1)), (0, 0, 4_096));
        assert_eq!(at(FLOOR_ZERO_MS + 1_000), 4_096_000);
        // 2094-01-01.
        assert!(at(3_913_056_000_000) < RV_MAX);
        assert!(at(4_000_000_000_000) > RV_MAX);
    }
}
