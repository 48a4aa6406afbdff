//! Instants as text: RFC 3339 in UTC.

use std::time::{Duration, UNIX_EPOCH};

/// The last instant that RFC 3339 can write, in microseconds since the Unix epoch: the end of the year 9999.
pub const LAST_US: u64 = 253_402_300_799_999_999;

/// Writes instants. Most are in the same second as the previous instant, and computing a date takes longer than
/// writing the rest of a popped key, so the text of the last second is cached.
#[derive(Debug)]
pub struct Seconds {
    second: u64,
    text: String,
}

impl Seconds {
    /// Creates a writer without a cached second.
    #[must_use]
    pub const fn new() -> Self {
        Self { second: u64::MAX, text: String::new() }
    }

    /// Writes an instant, in microseconds since the Unix epoch, with its milliseconds.
    pub fn millis(&mut self, at_us: u64, out: &mut String) {
        let at_us = self.second(at_us, out);
        let digit = |unit: u64| digit(at_us / unit);
        out.extend(['.', digit(100_000), digit(10_000), digit(1_000), 'Z']);
    }

    /// Writes an instant without its fraction, and returns it. Instants after [`LAST_US`] are written as [`LAST_US`].
    fn second(&mut self, at_us: u64, out: &mut String) -> u64 {
        let at_us = at_us.min(LAST_US);
        let second = at_us / 1_000_000;
        if self.second != second {
            let whole = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(second));
            whole.to_string().trim_end_matches('Z').clone_into(&mut self.text);
            self.second = second;
        }
        out.push_str(&self.text);
        at_us
    }
}

/// The last digit of a number.
fn digit(number: u64) -> char {
    char::from(b'0' + u8::try_from(number % 10).unwrap_or_default())
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
    fn an_instant_is_written_with_its_own_second() {
        let mut seconds = Seconds::new();
        for (at_us, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_999_999, "1970-01-01T00:00:01.999Z"),
            (2_000_001, "1970-01-01T00:00:02.000Z"),
            (1_795_298_400_102_030, "2026-11-21T22:00:00.102Z"),
            (7, "1970-01-01T00:00:00.000Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            let mut millis = String::new();
            seconds.millis(at_us, &mut millis);
            assert_eq!(millis, text);
        }
    }
}
