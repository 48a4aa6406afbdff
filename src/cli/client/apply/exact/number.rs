//! Numbers with any number of digits.

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A number as JSON writes it. Two numbers are equal if they have the same value: `4.90` is `4.9`, and `1e2` is `100`.
#[derive(Debug, Clone)]
pub(in crate::cli::client) struct Number(Box<str>);

/// The value of a number: a sign, digits without zeros at their ends, and the power of ten by which they are multiplied.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i128,
}

impl Number {
    /// Takes a text that is known to be a number of JSON.
    pub(super) fn of_json(text: &str) -> Self {
        Self(text.into())
    }

    /// Reads a decimal number. Unlike in JSON, it may begin with `+`, zeros or a point, and it may end with a point.
    pub(in crate::cli::client::apply) fn decimal(text: &str) -> Option<Self> {
        let (sign, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => ("-", unsigned),
            None => ("", text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = parts(unsigned);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if !(are_digits(whole) && are_digits(fraction)) || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let digits_of_exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
        if digits_of_exponent.is_some_and(|digits| digits.is_empty() || !are_digits(digits)) {
            return None;
        }
        let whole = match whole.trim_start_matches('0') {
            "" => "0",
            whole => whole,
        };
        let point = if fraction.is_empty() { "" } else { "." };
        let exponent = exponent.map(|exponent| format!("e{exponent}")).unwrap_or_default();
        Some(Self(format!("{sign}{whole}{point}{fraction}{exponent}").into()))
    }

    /// Reads a whole number without a sign in another base.
    ///
    /// # Errors
    /// The digits are not those of a number, or they have more than 128 bits.
    pub(in crate::cli::client::apply) fn whole(digits: &str, radix: u32) -> Result<Self, String> {
        let number = u128::from_str_radix(digits, radix);
        let number = number.map_err(|_| {
            format!("{digits} to the base {radix} has more than 128 bits: write it as a decimal number")
        })?;
        Ok(Self(number.to_string().into()))
    }

    /// The value; `None` if its exponent has more than 64 bits.
    fn value(&self) -> Option<Decimal> {
        let (is_negative, unsigned) = match self.0.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, &*self.0),
        };
        let (mantissa, exponent) = parts(unsigned);
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let significant = digits.trim_end_matches('0');
        if significant.is_empty() {
            return Some(Decimal { is_negative: false, digits: String::new(), exponent: 0 });
        }
        let exponent: i64 = exponent.map_or(Some(0), |exponent| exponent.parse().ok())?;
        let shift = i128::try_from(digits.len() - significant.len()).ok()?;
        let exponent = i128::from(exponent) + shift - i128::try_from(fraction.len()).ok()?;
        Some(Decimal { is_negative, digits: significant.to_owned(), exponent })
    }
}

/// The parts before and after the letter of the exponent.
fn parts(text: &str) -> (&str, Option<&str>) {
    text.split_once(['e', 'E']).map_or((text, None), |(mantissa, exponent)| (mantissa, Some(exponent)))
}

fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.value().is_some_and(|value| Some(value) == other.value())
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        text.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_if_their_values_are() {
        let equal = [
            ("4.90", "4.9"),
            ("1e2", "100"),
            ("1E+2", "100.0"),
            ("0.1e1", "1"),
            ("-0", "0"),
            ("0e999999999999999999999", "0.0"),
            ("1e400", "10e399"),
            ("12345678901234567890123", "1.2345678901234567890123e22"),
            ("1e99999999999999999999", "1e99999999999999999999"),
        ];
        for (one, other) in equal {
            assert_eq!(Number::of_json(one), Number::of_json(other));
        }
        let different = [
            ("1e400", "1e401"),
            ("12345678901234567890123", "12345678901234567890124"),
            ("0.1", "0.1000000000000000000001"),
            ("1", "-1"),
            ("10", "1"),
        ];
        for (one, other) in different {
            assert_ne!(Number::of_json(one), Number::of_json(other));
        }
    }

    #[test]
    fn other_spellings_become_those_of_json() {
        let cases = [
            ("012", "12"),
            ("+5", "5"),
            ("-007", "-7"),
            ("000", "0"),
            (".5", "0.5"),
            ("1.", "1"),
            ("4.90", "4.90"),
            ("1e5", "1e5"),
            ("+.5E-03", "0.5e-03"),
            ("12345678901234567890123", "12345678901234567890123"),
        ];
        for (text, expected) in cases {
            let number = Number::decimal(text).expect(text);
            assert_eq!(&*number.0, expected);
            assert_eq!(serde_json::to_string(&number).unwrap(), expected);
        }
        for text in [
            "", "+", ".", "e5", ".e5", "1e", "1e+", "1_000", "0b11", "0x1f", "1.2.3", "--1", "nan", "1m",
            "1 ",
        ] {
            assert!(Number::decimal(text).is_none(), "{text}");
        }
        assert_eq!(&*Number::whole("ff", 16).unwrap().0, "255");
        assert!(Number::whole(&"f".repeat(33), 16).unwrap_err().contains("128 bits"));
    }
}
