//! Instants as text: RFC 3339 in UTC.

use std::time::{Duration, UNIX_EPOCH};

/// The last instant that RFC 3339 can write, in microseconds since the Unix epoch: the end of the year 9999.
pub const LAST_US: u64 = 253_402_300_799_999_999;

/// Writes instants, most of which are in the second of the one before. To work out a date takes longer than all
/// else that is written with it, be it a line of the log or a key that is popped.
#[derive(Debug)]
pub struct Seconds {
    second: u64,
    text: String,
}

impl Seconds {
    /// One that has not written any.
    #[must_use]
    pub const fn new() -> Self {
        Self { second: u64::MAX, text: String::new() }
    }

    /// Date and time of an instant, in microseconds since the Unix epoch: without a fraction, and without the `Z` behind it.
    /// What is later than the year 9999 is its last second.
    pub fn of(&mut self, at_us: u64) -> &str {
        let second = at_us.min(LAST_US) / 1_000_000;
        if self.second != second {
            let whole = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(second));
            whole.to_string().trim_end_matches('Z').clone_into(&mut self.text);
            self.second = second;
        }
        &self.text
    }
}

impl Default for Seconds {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instant_has_its_own_second() {
        let mut seconds = Seconds::new();
        for (at_us, text) in [
            (0, "1970-01-01T00:00:00"),
            (1_999_999, "1970-01-01T00:00:01"),
            (2_000_000, "1970-01-01T00:00:02"),
            (1_795_298_400_999_999, "2026-11-21T22:00:00"),
            (0, "1970-01-01T00:00:00"),
            (u64::MAX, "9999-12-31T23:59:59"),
        ] {
            assert_eq!(seconds.of(at_us), text);
        }
    }
}
