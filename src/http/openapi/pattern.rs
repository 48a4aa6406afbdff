//! Regular expressions for ranges of numbers, so that the OpenAPI document can say which durations a
//! call takes, and not only how one is written.

use std::time::Duration;

use crate::duration::UNITS;

/// Matches what [`duration::parse`](crate::duration::parse) reads as a duration from `min` to `max`.
pub(super) fn durations(min: Duration, max: Duration) -> String {
    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    let (min, max) = (micros(min), micros(max));
    let units = UNITS.iter().rev().filter_map(|(name, unit)| {
        let (least, most) = (min.div_ceil(*unit), max / unit);
        (least <= most).then(|| format!("({}){name}", numbers(least, most)))
    });
    format!("^0*({})$", units.collect::<Vec<_>>().join("|"))
}

/// Matches the whole numbers from `min` to `max`; leading zeros are looked at elsewhere.
fn numbers(min: u64, max: u64) -> String {
    let (first, last) = (min.to_string(), max.to_string());
    let mut ranges = Vec::new();
    if first.len() == last.len() {
        same_length("", &first, &last, &mut ranges);
        return ranges.join("|");
    }
    let mut whole_from = first.len();
    if !first.strip_prefix('1').unwrap_or(&first).bytes().all(|digit| digit == b'0') {
        same_length("", &first, &"9".repeat(first.len()), &mut ranges);
        whole_from += 1;
    }
    let mut whole_to = last.len() - 1;
    if last.bytes().all(|digit| digit == b'9') {
        whole_to += 1;
    }
    if whole_from <= whole_to {
        let digits = |from: usize, to: usize| match (from, to) {
            (0, 0) => String::new(),
            (1, 1) => "[0-9]".to_owned(),
            (from, to) if from == to => format!("[0-9]{{{from}}}"),
            (from, to) => format!("[0-9]{{{from},{to}}}"),
        };
        ranges.push(match min {
            0 => digits(1, whole_to),
            _ => format!("[1-9]{}", digits(whole_from - 1, whole_to - 1)),
        });
    }
    if whole_to < last.len() {
        same_length("", &format!("1{}", "0".repeat(last.len() - 1)), &last, &mut ranges);
    }
    ranges.join("|")
}

/// Adds what matches `prefix` and a number from `min` to `max`, which have as many digits.
fn same_length(prefix: &str, min: &str, max: &str, ranges: &mut Vec<String>) {
    let (mut low, mut high) = (min.chars(), max.chars());
    let (Some(first), Some(last)) = (low.next(), high.next()) else {
        ranges.push(prefix.to_owned());
        return;
    };
    let (low, high) = (low.as_str(), high.as_str());
    if first == last {
        return same_length(&format!("{prefix}{first}"), low, high, ranges);
    }
    let (mut from, mut to) = (Some(first), Some(last));
    if low.contains(|digit| digit != '0') {
        same_length(&format!("{prefix}{first}"), low, &"9".repeat(low.len()), ranges);
        from = next(first);
    }
    let is_cut = high.contains(|digit| digit != '9');
    if is_cut {
        to = previous(last);
    }
    if let (Some(from), Some(to)) = (from, to)
        && from <= to
    {
        let digit = if from == to { from.to_string() } else { format!("[{from}-{to}]") };
        let rest = match low.len() {
            0 => String::new(),
            1 => "[0-9]".to_owned(),
            more => format!("[0-9]{{{more}}}"),
        };
        ranges.push(format!("{prefix}{digit}{rest}"));
    }
    if is_cut {
        same_length(&format!("{prefix}{last}"), &"0".repeat(high.len()), high, ranges);
    }
}

fn next(digit: char) -> Option<char> {
    char::from_digit(digit.to_digit(10)? + 1, 10)
}

fn previous(digit: char) -> Option<char> {
    char::from_digit(digit.to_digit(10)?.checked_sub(1)?, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_their_digits() {
        assert_eq!(numbers(0, 55), "[0-9]|[1-4][0-9]|5[0-5]");
        assert_eq!(numbers(0, 99), "[0-9]{1,2}");
        assert_eq!(numbers(1, 12), "[1-9]|1[0-2]");
        assert_eq!(numbers(7, 7), "7");
        assert_eq!(numbers(1, 720), "[1-9][0-9]{0,1}|[1-6][0-9]{2}|7[0-1][0-9]|720");
        assert_eq!(numbers(15, 240), "1[5-9]|[2-9][0-9]|1[0-9]{2}|2[0-3][0-9]|240");
        assert_eq!(
            numbers(1_000_000, 43_200_000),
            "[1-9][0-9]{6}|[1-3][0-9]{7}|4[0-2][0-9]{6}|43[0-1][0-9]{5}|43200000"
        );
    }

    #[test]
    fn units_that_do_not_fit_are_left_out() {
        let pattern = durations(Duration::from_millis(100), Duration::from_secs(2));
        assert_eq!(
            pattern,
            "^0*(([1-9][0-9]{5}|1[0-9]{6}|2000000)us|([1-9][0-9]{2}|1[0-9]{3}|2000)ms|([1-2])s)$"
        );
        assert!(durations(Duration::ZERO, Duration::from_secs(1)).ends_with("|([0-1])s|(0)m|(0)h|(0)d)$"));
    }
}
