//! Determines whether a value of the column `since` is a time that is ahead of the clock of the database.
//!
//! A database reports the type of a column, but SQLite has no type for times, and many schemas store times as numbers
//! or text. So the value itself determines whether it is a time. A number counts as a time only if the largest other
//! value is a past time in the same unit, because a counter may have any value.

use std::ops::RangeInclusive;
use std::time::UNIX_EPOCH;

use deltaq_runtime::clock;

use super::Value;

/// 2000-01-01, in seconds since 1970. Smaller numbers are not times.
const FIRST: f64 = 946_684_800.0;
/// The year 9999, which many schemas use for "no end".
const NO_END: RangeInclusive<f64> = 253_370_764_800.0..=253_402_300_800.0;
/// Seconds, milliseconds, microseconds and nanoseconds per second.
const UNITS: [f64; 4] = [1.0, 1e3, 1e6, 1e9];

/// The clock of this machine, in seconds since 1970.
#[expect(clippy::cast_precision_loss, reason = "a time is precise to a microsecond for the next 200 years")]
pub(super) fn now() -> f64 {
    clock::wall_us() as f64 / 1e6
}

/// Whether a value is a time later than `now`, or a number that stands for "no end". `reached` is the largest value that
/// is neither. If `reached` is a time, every number later than the clock counts as a time, even one in the year 9999:
/// rows with such a value are only read again, and no row is missed.
pub(super) fn is_ahead(value: &Value, reached: Option<&Value>, now: f64) -> bool {
    if let Value::Text(text) = value
        && let Some(seconds) = seconds(text)
    {
        return seconds > now;
    }
    let Some(number) = value.number() else { return false };
    let is_last = number.is_nan()
        || number == f64::INFINITY
        || UNITS.iter().any(|unit| NO_END.contains(&(number / unit)));
    let reached = reached.and_then(Value::number);
    let has_passed = |unit: f64| reached.is_some_and(|reached| (FIRST..=now).contains(&(reached / unit)));
    is_last || UNITS.iter().any(|unit| has_passed(*unit) && number / unit > now)
}

/// The time in a text, in the formats of databases and of RFC 3339, in seconds since 1970. A text without an offset
/// is in UTC.
pub(super) fn seconds(text: &str) -> Option<f64> {
    if text == "infinity" {
        return Some(f64::INFINITY);
    }
    let year =
        text.find('-').filter(|at| *at >= 4 && text.bytes().take(*at).all(|byte| byte.is_ascii_digit()))?;
    if year > 4 {
        let is_date = text.get(year..year + 6).is_some_and(|rest| {
            rest.bytes()
                .enumerate()
                .all(|(at, byte)| if at % 3 == 0 { byte == b'-' } else { byte.is_ascii_digit() })
        });
        return is_date.then_some(f64::INFINITY);
    }
    let (date, time) = text.split_at_checked(10)?;
    if time.is_empty() {
        return parsed(&format!("{date}T00:00:00Z"));
    }
    let time = time.strip_prefix([' ', 'T', 't'])?.trim_end_matches(['Z', 'z']);
    let (time, offset) = time.find(['+', '-']).map_or((time, ""), |at| time.split_at(at));
    let time = if time.len() == 5 { format!("{time}:00") } else { time.to_owned() };
    Some(parsed(&format!("{date}T{time}Z"))? - offset_seconds(offset)?)
}

/// The seconds of an offset such as `+02`, `+02:00`, `-0530` or `+05:30:15`.
fn offset_seconds(offset: &str) -> Option<f64> {
    let Some(rest) = offset.strip_prefix(['+', '-']) else { return Some(0.0) };
    let digits: String = rest.chars().filter(|c| *c != ':').collect();
    let part = |at: usize| digits.get(at..at + 2).map_or(Some(0.0), |part| part.parse().ok());
    let seconds = part(0)? * 3_600.0 + part(2)? * 60.0 + part(4)?;
    Some(if offset.starts_with('-') { -seconds } else { seconds })
}

fn parsed(text: &str) -> Option<f64> {
    let time = humantime::parse_rfc3339(text).ok()?;
    Some(
        time.duration_since(UNIX_EPOCH)
            .map_or_else(|before| -before.duration().as_secs_f64(), |since| since.as_secs_f64()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-27T10:00:00Z.
    const NOW: f64 = 1_795_773_600.0;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn a_time_after_the_clock_is_ahead_in_each_form() {
        for ahead in [
            "2026-11-27 10:00:01+00",
            "2026-11-27 10:00:00.5",
            "2026-11-27T12:00:01+02:00",
            "2026-11-27T10:00:01Z",
            "2026-11-27 04:30:01-0530",
            "2026-11-27 10:01",
            "2026-11-28",
            "12026-01-01 00:00:00+00",
            "infinity",
        ] {
            assert!(is_ahead(&text(ahead), None, NOW), "{ahead}");
        }
        for passed in [
            "2026-11-27 10:00:00+00",
            "2026-11-27 09:59:59.999999",
            "2026-11-27T11:59:59+02:00",
            "2026-11-27",
            "1969-12-31 23:59:59",
            "-infinity",
            "v2099-01-01",
            "2099-x",
            "2099-01-01 tomorrow",
            "12345678-1234-7123-8123-123456789012",
            "",
        ] {
            assert!(!is_ahead(&text(passed), None, NOW), "{passed}");
        }
    }

    #[test]
    fn a_number_is_a_time_beside_passed_times_of_its_unit() {
        let integer = Value::Integer;
        let day = 86_400;
        let now = 1_795_773_600;
        for unit in [1, 1_000, 1_000_000, 1_000_000_000] {
            let reached = integer((now - day) * unit);
            assert!(is_ahead(&integer((now + day) * unit), Some(&reached), NOW));
            assert!(!is_ahead(&integer((now - 1) * unit), Some(&reached), NOW));
            // The end of the year 9999, where the numbers have room for it, and the largest number.
            for ahead in [253_402_300_799_i64.saturating_mul(unit), i64::MAX] {
                assert!(is_ahead(&integer(ahead), Some(&reached), NOW), "{ahead}");
            }
            // A number beside a counter or nothing.
            assert!(!is_ahead(&integer((now + day) * unit), Some(&integer(7)), NOW));
            assert!(!is_ahead(&integer((now + day) * unit), None, NOW));
        }
        // No number follows on these.
        let no_end = [253_402_300_799, 253_402_300_799_999, 253_402_214_400_000_000].map(integer);
        for last in no_end.into_iter().chain([Value::Real(f64::INFINITY), text("Infinity"), text("NaN")]) {
            assert!(is_ahead(&last, None, NOW) && is_ahead(&last, Some(&integer(7)), NOW));
        }
        // PostgreSQL gives each value as text.
        assert!(is_ahead(&text("1795860000"), Some(&text("1795687200")), NOW));
        assert!(is_ahead(&Value::Real(1_795_860_000.5), Some(&Value::Real(1_795_687_200.5)), NOW));
    }
}
