//! Durations as text: a number and a unit, `250ms`, `30s`, `5m`, `36h`, and sums of them, `1m30s`.
//!
//! The parser reads the texts that Go writes for durations, such as `1.5s`, `1h0m5s`, `1.5µs` and `100ns`. It accepts no sign and
//! no spaces. A sum is rounded down to whole microseconds. [`parse`] reads every text of [`format()`] back to the same value.
//!
//! Invariant: every duration of this module is a whole number of microseconds that fits in 64 bits.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units with their length in microseconds, longest first: [`format()`] uses the first unit that divides the duration.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Units that are only parsed, because Go writes them, with their length in nanoseconds. Go's µ is the micro sign; the other
/// one is the Greek letter.
const UNITS_OF_GO: [(&str, u64); 3] = [("ns", 1), ("\u{b5}s", NS_PER_US), ("\u{3bc}s", NS_PER_US)];

const NS_PER_US: u64 = 1_000;

/// The units as an error message lists them.
const UNIT_NAMES: &str = "ns, us, ms, s, m, h, d";

/// Why a text is not a duration. Each message quotes the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is empty.
    #[error("a duration is empty; write a number and a unit ({UNIT_NAMES}), such as 30s")]
    Empty,
    /// The text, or a part of the sum, begins with a sign, a space or a letter.
    #[error("duration {text:?} must be numbers with units ({UNIT_NAMES}), such as 30s or 1m30s")]
    NoNumber {
        /// The text.
        text: String,
    },
    /// A number has no unit.
    #[error("duration {text:?} has no unit; one of {UNIT_NAMES} is needed, such as 30s")]
    NoUnit {
        /// The text.
        text: String,
    },
    /// The part after a number is not a unit.
    #[error("duration {text:?} has {unit:?} after its number, which is none of {UNIT_NAMES}")]
    UnknownUnit {
        /// The text.
        text: String,
        /// The part after the number.
        unit: String,
    },
    /// More microseconds than 64 bits hold (about 584,000 years).
    #[error("duration {text:?} is too long to count in microseconds")]
    Overflow {
        /// The text.
        text: String,
    },
}

/// Reads a duration such as `250ms`.
///
/// # Errors
///
/// The text is not a sum of numbers with one of `ns`, `us`, `ms`, `s`, `m`, `h`, `d`, or the value exceeds `u64::MAX` microseconds.
pub fn parse(text: &str) -> Result<Duration, Error> {
    parse_us(text).map(Duration::from_micros)
}

/// Like [`parse`], in microseconds.
///
/// # Errors
///
/// The same as [`parse`].
pub fn parse_us(text: &str) -> Result<u64, Error> {
    if text.is_empty() {
        return Err(Error::Empty);
    }
    let (mut rest, mut sum_ns) = (text, 0_u128);
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        if whole.is_empty() {
            return Err(Error::NoNumber { text: text.to_owned() });
        }
        let fraction = after.strip_prefix('.').map(split_digits).filter(|(digits, _)| !digits.is_empty());
        let (fraction, after) = fraction.unwrap_or(("", after));
        let unit = after.split(|char: char| char.is_ascii_digit()).next().unwrap_or_default();
        if unit.is_empty() {
            return Err(Error::NoUnit { text: text.to_owned() });
        }
        let Some(unit_ns) = unit_ns(unit) else {
            return Err(Error::UnknownUnit { text: text.to_owned(), unit: unit.to_owned() });
        };
        // Digits fail to parse only if there are too many.
        let part_ns = whole.parse::<u64>().ok().map(|count| u128::from(count) * u128::from(unit_ns));
        let part_ns = part_ns.map(|ns| ns + fraction_ns(fraction, unit_ns));
        let sum = part_ns.and_then(|ns| sum_ns.checked_add(ns));
        sum_ns = sum.ok_or_else(|| Error::Overflow { text: text.to_owned() })?;
        rest = after.strip_prefix(unit).unwrap_or_default();
    }
    u64::try_from(sum_ns / u128::from(NS_PER_US)).map_err(|_| Error::Overflow { text: text.to_owned() })
}

/// The length of a unit in nanoseconds.
fn unit_ns(unit: &str) -> Option<u64> {
    let named =
        |units: &[(&str, u64)]| units.iter().find(|(name, _)| *name == unit).map(|(_, length)| *length);
    named(&UNITS).map(|us| us * NS_PER_US).or_else(|| named(&UNITS_OF_GO))
}

/// The digits at the start of a text, and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at_checked(digits).unwrap_or((text, ""))
}

/// The whole nanoseconds in a decimal fraction of a unit. Later digits are below a nanosecond of every unit.
fn fraction_ns(digits: &str, unit_ns: u64) -> u128 {
    const DIGITS_MAX: usize = 15;
    let digits = digits.get(..DIGITS_MAX).unwrap_or(digits);
    let (mut numerator, mut denominator) = (0_u128, 1_u128);
    for digit in digits.bytes() {
        numerator = numerator * 10 + u128::from(digit - b'0');
        denominator *= 10;
    }
    numerator * u128::from(unit_ns) / denominator
}

/// The whole milliseconds of a duration, for replies.
#[must_use]
pub fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a duration with the largest unit that divides it exactly: `90s`, `2m`, `1500us`. Zero is `0s`.
///
/// Parts below a microsecond are dropped. A duration of more than `u64::MAX` microseconds is written as `u64::MAX`
/// microseconds.
#[must_use]
pub fn format(duration: Duration) -> String {
    format_us(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// Like [`format()`], from microseconds.
#[must_use]
pub fn format_us(us: u64) -> String {
    if us == 0 {
        return "0s".to_owned();
    }
    UNITS
        .iter()
        .find(|(_, unit_us)| us.is_multiple_of(*unit_us))
        .map_or_else(|| format!("{us}us"), |(name, unit_us)| format!("{}{name}", us / unit_us))
}

/// A duration that is text in JSON, TOML and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DurationText {
    us: u64,
}

impl DurationText {
    /// Creates a duration from whole microseconds.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self { us }
    }

    /// Creates a duration from whole seconds; saturates.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self { us: seconds.saturating_mul(1_000_000) }
    }

    /// The microseconds of the duration, the engine's unit.
    #[must_use]
    pub const fn as_us(self) -> u64 {
        self.us
    }

    /// The duration as the standard library's type.
    #[must_use]
    pub const fn get(self) -> Duration {
        Duration::from_micros(self.us)
    }
}

impl From<Duration> for DurationText {
    /// In whole microseconds; saturates.
    fn from(duration: Duration) -> Self {
        Self::from_us(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<DurationText> for Duration {
    fn from(text: DurationText) -> Self {
        text.get()
    }
}

impl FromStr for DurationText {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse_us(text).map(Self::from_us)
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_us(self.us))
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = DurationText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"30s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DurationText, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

/// A duration that may be negative: a duration with an optional minus sign, such as `-10m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SignedDuration {
    us: i64,
}

impl SignedDuration {
    /// Creates a duration from whole microseconds.
    #[must_use]
    pub const fn from_us(us: i64) -> Self {
        Self { us }
    }

    /// The microseconds of the duration.
    #[must_use]
    pub const fn as_us(self) -> i64 {
        self.us
    }
}

impl FromStr for SignedDuration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (length, sign) = text.strip_prefix('-').map_or((text, 1), |length| (length, -1));
        let us = i64::try_from(parse_us(length)?);
        us.map(|us| Self { us: us * sign }).map_err(|_| Error::Overflow { text: text.to_owned() })
    }
}

impl fmt::Display for SignedDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.us < 0 { "-" } else { "" })?;
        f.write_str(&format_us(self.us.unsigned_abs()))
    }
}

impl Serialize for SignedDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SignedDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = SignedDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"10m\" or \"-10m\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SignedDuration, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_unit() {
        for (text, us) in [
            ("0s", 0),
            ("7us", 7),
            ("250ms", 250_000),
            ("30s", 30_000_000),
            ("5m", 300_000_000),
            ("36h", 129_600_000_000),
            ("1d", 86_400_000_000),
            ("007s", 7_000_000),
            ("1m30s", 90_000_000),
            ("1h0m5s", 3_605_000_000),
            ("1.5s", 1_500_000),
            ("0.25ms", 250),
            ("1m1.000001s", 61_000_001),
            ("2h45m30.5s", 9_930_500_000),
            ("1.0000009s", 1_000_000),
            ("0.1d", 8_640_000_000),
            ("0.999999999999999999us", 0),
            ("30s1m", 90_000_000),
            ("1.5\u{b5}s", 1),
            ("5\u{3bc}s", 5),
            ("1500ns", 1),
            ("500ns500ns", 1),
            ("2562047h47m16.854775807s", 9_223_372_036_854_775),
            ("18446744073709551615us", u64::MAX),
        ] {
            assert_eq!(parse_us(text), Ok(us), "{text}");
        }
    }

    #[test]
    fn refuses_other_texts_with_a_reason() {
        let text = |given: &str| given.to_owned();
        let unit =
            |given: &str, unit: &str| Error::UnknownUnit { text: given.to_owned(), unit: unit.to_owned() };
        for (given, error) in [
            ("", Error::Empty),
            ("s", Error::NoNumber { text: text("s") }),
            ("-5s", Error::NoNumber { text: text("-5s") }),
            ("+5s", Error::NoNumber { text: text("+5s") }),
            (" 5s", Error::NoNumber { text: text(" 5s") }),
            ("٣s", Error::NoNumber { text: text("٣s") }),
            ("30", Error::NoUnit { text: text("30") }),
            ("0", Error::NoUnit { text: text("0") }),
            ("5 s", unit("5 s", " s")),
            ("5s ", unit("5s ", "s ")),
            ("1.s", unit("1.s", ".s")),
            (".5s", Error::NoNumber { text: text(".5s") }),
            ("1.5", Error::NoUnit { text: text("1.5") }),
            ("1h30", Error::NoUnit { text: text("1h30") }),
            ("1h 30m", unit("1h 30m", "h ")),
            ("1h-30m", unit("1h-30m", "h-")),
            ("18446744073709551615us1us", Error::Overflow { text: text("18446744073709551615us1us") }),
            ("5S", unit("5S", "S")),
            ("5Ms", unit("5Ms", "Ms")),
            ("1e3s", unit("1e3s", "e")),
            ("18446744073709551616us", Error::Overflow { text: text("18446744073709551616us") }),
            ("18446744073709552ms", Error::Overflow { text: text("18446744073709552ms") }),
            ("99999999999999999999999d", Error::Overflow { text: text("99999999999999999999999d") }),
        ] {
            assert_eq!(parse_us(given), Err(error), "{given:?}");
        }
    }

    #[test]
    fn a_signed_duration_is_read_as_it_is_written() {
        for (text, us) in [("0s", 0), ("10m", 600_000_000), ("-10m", -600_000_000), ("-1500us", -1_500)] {
            let duration: SignedDuration = text.parse().expect("a duration");
            assert_eq!((duration.as_us(), duration.to_string().as_str()), (us, text));
        }
        for text in ["", "-", "--1s", "+1s", "- 1s", "9223372036854775808us"] {
            assert!(text.parse::<SignedDuration>().is_err(), "{text}");
        }
    }

    #[test]
    fn writes_the_largest_exact_unit() {
        for (us, text) in [
            (0, "0s"),
            (1, "1us"),
            (1_500, "1500us"),
            (5_000, "5ms"),
            (1_000_000_000, "1000s"),
            (60_000_000, "1m"),
            (90_000_000, "90s"),
            (129_600_000_000, "36h"),
            (172_800_000_000, "2d"),
            (u64::MAX, "18446744073709551615us"),
        ] {
            assert_eq!(format_us(us), text);
            assert_eq!(parse_us(text), Ok(us));
        }
        assert_eq!(format(Duration::MAX), "18446744073709551615us");
        assert_eq!(format(Duration::from_nanos(1_999)), "1us");
    }

    #[test]
    fn is_text_in_json() {
        let text: DurationText = serde_json::from_str("\"90s\"").unwrap();
        assert_eq!(text, DurationText::from_secs(90));
        assert_eq!(serde_json::to_string(&text).unwrap(), "\"90s\"");
        let error = serde_json::from_str::<DurationText>("\"90\"").unwrap_err().to_string();
        assert!(error.contains("has no unit"), "{error}");
        let error = serde_json::from_str::<DurationText>("90").unwrap_err().to_string();
        assert!(error.contains("a duration such as"), "{error}");
    }
}
