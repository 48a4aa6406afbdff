//! Numbers of JSON compared by their value, of any size and precision.

/// Whether two JSON numbers have the same value: `1.10` and `1.1`, `100` and `1e2`, `1e400` and `10e399`.
pub(super) fn is_equal(one: &str, other: &str) -> bool {
    match (Decimal::read(one), Decimal::read(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// A number as `0.DIGITS * 10^exponent` without zeros at either end of the digits, so that each value has one form.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i128,
}

impl Decimal {
    /// None for an exponent that is beyond reason.
    fn read(text: &str) -> Option<Self> {
        let (is_negative, magnitude) = match text.strip_prefix('-') {
            Some(magnitude) => (true, magnitude),
            None => (false, text),
        };
        let (mantissa, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let significant = digits.trim_start_matches('0');
        let zeros = digits.len() - significant.len();
        if significant.is_empty() {
            return Some(Self { is_negative: false, digits: String::new(), exponent: 0 });
        }
        let exponent = exponent
            .parse::<i128>()
            .ok()?
            .checked_add(i128::try_from(whole.len()).ok()?)?
            .checked_sub(i128::try_from(zeros).ok()?)?;
        Some(Self { is_negative, digits: significant.trim_end_matches('0').to_owned(), exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::is_equal;

    #[test]
    fn numbers_are_equal_by_value() {
        for (one, other) in [
            ("1.10", "1.1"),
            ("100", "1e2"),
            ("1e400", "10e399"),
            ("0.001", "1E-3"),
            ("-0", "0.000e7"),
            ("-12.50", "-1250e-2"),
            ("9007199254740993", "9007199254740993.0"),
        ] {
            assert!(is_equal(one, other) && is_equal(other, one), "{one} {other}");
        }
        let beyond = format!("1e{}", "9".repeat(60));
        assert!(is_equal(&beyond, &beyond));
        for (one, other) in [
            ("9007199254740993", "9007199254740992"),
            ("1", "-1"),
            ("1e400", "1e401"),
            ("0.1", "0.10000000000000001"),
            (&beyond, "1"),
        ] {
            assert!(!is_equal(one, other), "{one} {other}");
        }
    }
}
