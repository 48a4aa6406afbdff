//! Minutes of the calendar, and the minutes in which the server ran.

use std::collections::BTreeMap;

use deltaq_engine::time::Time;

const MINUTE_US: u64 = 60_000_000;
const MINUTES_OF_HOUR: u32 = 60;

/// A minute, counted from 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minute(pub u32);

impl Minute {
    /// The minute of an instant.
    #[must_use]
    pub fn of(at: Time) -> Self {
        Self(u32::try_from(at.as_micros() / MINUTE_US).unwrap_or(u32::MAX))
    }

    /// The minute of an hour that is counted from 1970.
    pub(super) const fn in_hour(hour: u32, minute: u8) -> Self {
        Self(hour.saturating_mul(MINUTES_OF_HOUR).saturating_add(minute as u32))
    }

    /// The instant at which the minute begins.
    #[must_use]
    pub const fn begins_at(self) -> Time {
        Time::from_micros(self.0 as u64 * MINUTE_US)
    }

    /// The hour, counted from 1970.
    #[must_use]
    pub const fn hour(self) -> u32 {
        self.0 / MINUTES_OF_HOUR
    }

    /// The minute within its hour.
    pub(super) fn of_hour(self) -> u8 {
        u8::try_from(self.0 % MINUTES_OF_HOUR).unwrap_or_default()
    }

    /// The minute this many minutes later.
    #[must_use]
    pub const fn plus(self, minutes: u32) -> Self {
        Self(self.0.saturating_add(minutes))
    }

    /// The minute this many minutes earlier.
    #[must_use]
    pub const fn minus(self, minutes: u32) -> Self {
        Self(self.0.saturating_sub(minutes))
    }

    /// How many minutes this minute is after another one; negative if it is before.
    pub(super) fn since(self, other: Self) -> i64 {
        i64::from(self.0) - i64::from(other.0)
    }
}

/// The minutes in which the server ran, one bit each.
#[derive(Clone, Debug, Default)]
pub(super) struct Ran {
    hours: BTreeMap<u32, u64>,
}

impl Ran {
    /// Records that the server ran in a minute, at least for a part of it. Returns the bits of its hour.
    pub(super) fn note(&mut self, minute: Minute) -> u64 {
        let hour = self.hours.entry(minute.hour()).or_default();
        *hour |= 1 << minute.of_hour();
        *hour
    }

    /// Adds the stored bits of an hour.
    pub(super) fn load(&mut self, hour: u32, bits: u64) {
        *self.hours.entry(hour).or_default() |= bits;
    }

    pub(super) fn has(&self, minute: Minute) -> bool {
        self.hours.get(&minute.hour()).is_some_and(|hour| hour & (1 << minute.of_hour()) != 0)
    }

    /// Drops the hours outside of this range.
    pub(super) fn keep(&mut self, hours: std::ops::Range<u32>) {
        self.hours.retain(|hour, _| hours.contains(hour));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_begins_at_a_whole_minute() {
        let minute = Minute::of(Time::from_micros(1_796_007_599_999_999));
        assert_eq!(minute.begins_at(), Time::from_micros(1_796_007_540_000_000));
        assert_eq!((minute.of_hour(), Minute::in_hour(minute.hour(), 59)), (59, minute));
        assert_eq!(minute.plus(1).hour(), minute.hour() + 1);
        assert_eq!(Minute::of(Time::from_micros(u64::MAX)), Minute(u32::MAX));
    }

    #[test]
    fn the_minutes_in_which_the_server_ran_are_bits() {
        let mut ran = Ran::default();
        assert_eq!(ran.note(Minute(60)), 1);
        assert_eq!(ran.note(Minute(62)), 0b101);
        ran.load(1, 0b1000);
        let found: Vec<u32> = (50..130).filter(|minute| ran.has(Minute(*minute))).collect();
        assert_eq!(found, [60, 62, 63]);
        ran.keep(2..9);
        assert!(!ran.has(Minute(60)));
    }
}
