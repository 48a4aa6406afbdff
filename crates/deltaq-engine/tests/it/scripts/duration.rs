//! Durations of rule scripts: a whole number and a unit.

use std::time::Duration;

/// Units with their length in milliseconds, longest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(number.parse::<u64>().ok()? * length))
}

/// Writes milliseconds with the longest unit that divides them.
pub(crate) fn format(millis: u64) -> String {
    if millis == 0 {
        return "0s".to_owned();
    }
    let unit = UNITS.iter().find(|(_, length)| millis.is_multiple_of(*length));
    let (name, length) = unit.copied().unwrap_or(("ms", 1));
    format!("{}{name}", millis / length)
}

#[test]
fn durations_are_read_and_written() {
    for text in ["0s", "5ms", "1500ms", "90s", "2m", "36h"] {
        assert_eq!(
            parse(text).map(|span| format(u64::try_from(span.as_millis()).unwrap_or(0))),
            Some(text.into())
        );
    }
    assert_eq!((parse("5"), parse("s"), parse("5x")), (None, None, None));
}
