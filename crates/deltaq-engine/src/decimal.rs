//! Numbers of JSON as exact decimals, so that no digit is lost: `4.90`, `4.9` and `49e-1` are the same number.

use std::cmp::Ordering;
use std::fmt;

use smol_str::SmolStr;

/// Maximum number of digits of the exponent of a [`Decimal`], so that sums of exponents and lengths fit into 64 bits.
pub(super) const EXPONENT_DIGITS_MAX: usize = 17;
/// Maximum number of digits of an exponent that [`same_value`] adds to a length, so that the sum fits into 128 bits.
const COMPARED_DIGITS_MAX: usize = 37;

/// A number without rounding: `0.DIGITS` times ten to the power of `magnitude`.
///
/// Invariant: `digits` neither begins nor ends with 0. Zero has no digits, no sign and the magnitude 0. So equal numbers
/// have equal fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    is_negative: bool,
    magnitude: i64,
    digits: SmolStr,
}

/// The parts of a number: `0.DIGITS` times ten to the power of `shift` and of `exponent`.
#[derive(PartialEq, Eq)]
struct Parts<'t> {
    is_negative: bool,
    /// Without zeros at both ends; empty for zero.
    digits: SmolStr,
    shift: i64,
    exponent: Exponent<'t>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Exponent<'t> {
    is_negative: bool,
    /// Without zeros at the start; empty for zero.
    digits: &'t str,
}

/// Whether two numbers of JSON have the same value. The work is bounded by the lengths of their texts, even if their
/// exponents are large. Different exponents with more than 37 digits count as different values.
pub(super) fn same_value(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let (Some(a), Some(b)) = (Parts::of(a), Parts::of(b)) else { return false };
    if a.digits.is_empty() && b.digits.is_empty() {
        return true;
    }
    let magnitude = |parts: &Parts<'_>| parts.magnitude(COMPARED_DIGITS_MAX);
    (a.is_negative, &a.digits) == (b.is_negative, &b.digits)
        && match (magnitude(&a), magnitude(&b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        }
}

impl<'t> Parts<'t> {
    /// The parts of a number in JSON; `None` if the length of the text does not fit into an `i64`.
    fn of(text: &'t str) -> Option<Self> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text),
        };
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let zeros = length(all.len() - digits.len())?;
        let shift = length(whole.len())? - zeros;
        let digits = digits.trim_end_matches('0').into();
        Some(Self { is_negative, digits, shift, exponent: Exponent::of(exponent) })
    }

    /// The power of ten; `None` if the exponent has more digits.
    fn magnitude(&self, digits_max: usize) -> Option<i128> {
        let Exponent { is_negative, digits } = self.exponent;
        if digits.is_empty() {
            return Some(self.shift.into());
        }
        let exponent: i128 = (digits.len() <= digits_max).then(|| digits.parse().ok()).flatten()?;
        Some(i128::from(self.shift) + if is_negative { -exponent } else { exponent })
    }
}

impl<'t> Exponent<'t> {
    fn of(text: &'t str) -> Self {
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        Self { is_negative, digits: digits.trim_start_matches('0') }
    }
}

impl Decimal {
    /// Parses a JSON number; `None` if its exponent is too long.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts = Parts::of(text)?;
        if parts.digits.is_empty() {
            return Some(Self { is_negative: false, magnitude: 0, digits: SmolStr::default() });
        }
        let magnitude = parts.magnitude(EXPONENT_DIGITS_MAX)?.try_into().ok()?;
        Some(Self { is_negative: parts.is_negative, magnitude, digits: parts.digits })
    }

    /// Length of the number's digits in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.digits.len()
    }

    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

fn length(bytes: usize) -> Option<i64> {
    i64::try_from(bytes).ok()
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| {
            let absolute = self.magnitude.cmp(&other.magnitude).then_with(|| self.digits.cmp(&other.digits));
            if self.is_negative { absolute.reverse() } else { absolute }
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Maximum number of zeros after the digits of a number that is written without an exponent.
const ZEROS_MAX: i64 = 20;

/// Writes a JSON number with the same value.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_negative, magnitude, digits } = self;
        if digits.is_empty() {
            return f.write_str("0");
        }
        let sign = if *is_negative { "-" } else { "" };
        let exponent = length(digits.len()).map_or(0, |length| magnitude - length);
        match usize::try_from(exponent) {
            Ok(zeros) if exponent <= ZEROS_MAX => write!(f, "{sign}{digits}{:0<zeros$}", ""),
            _ => write!(f, "{sign}{digits}e{exponent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_many_texts() {
        let long = "9".repeat(1_000);
        let values = [
            vec![
                "0".to_owned(),
                "-0".into(),
                "0.000".into(),
                "-0e5".into(),
                "0e99999999999999999999999999999999999999".into(),
            ],
            vec!["4.9".into(), "4.90".into(), "49e-1".into(), "0.49E+1".into(), "4900e-003".into()],
            vec!["-4.9".into(), "-4.90".into()],
            vec!["4.900000000000000000000000000000000000001".into()],
            vec!["100".into(), "1e2".into(), "100.0".into(), "0.1e3".into(), "1E+02".into()],
            vec!["1e400".into(), "10e399".into(), format!("1{}", "0".repeat(400))],
            vec!["1e401".into()],
            vec!["1e-400".into(), "0.1e-399".into(), format!("0.{}1", "0".repeat(399))],
            vec!["1e999999999".into(), "10e999999998".into(), "0.001e1000000002".into()],
            vec!["1e-999999999".into()],
            vec!["1e999999999999999999999".into(), "100e999999999999999999997".into()],
            vec![long.clone(), format!("{long}.0"), format!("{long}0e-1")],
            vec![format!("{long}.5")],
            vec![format!("1e{long}")],
            vec![format!("2e{long}"), format!("2.0e+0{long}")],
        ];
        let all =
            values.iter().enumerate().flat_map(|(value, texts)| texts.iter().map(move |text| (value, text)));
        let all: Vec<_> = all.collect();
        for (value, text) in &all {
            for (other, other_text) in &all {
                assert_eq!(same_value(text, other_text), value == other, "{text:.60} and {other_text:.60}");
            }
        }
    }
}
