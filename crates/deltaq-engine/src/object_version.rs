//! Versions of objects: the value at the pointer of the setting `version`, which grows with each state of a key.
//!
//! A version is a number or a string. Numbers are compared as exact decimals, so no digit is lost; strings are
//! compared by their bytes. Every number is older than every string, so all versions have a total order.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use smol_str::SmolStr;

use super::limits::VERSION_BYTES_MAX;
use super::object::Object;
use super::pointer::{Cursor, Pointer, Value, find};

#[cfg(test)]
mod tests;

/// The version of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectVersion {
    /// A number.
    Number(Decimal),
    /// A string.
    Text(SmolStr),
}

/// A number without rounding: `0.DIGITS` times ten to the power of `magnitude`.
///
/// Invariant: `digits` neither begins nor ends with 0. Zero has no digits, no sign and the magnitude 0. So equal numbers have equal
/// fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    magnitude: i64,
    digits: SmolStr,
}

/// Why an object has no usable version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// There is no value at the pointer, or it is null.
    #[error("no version at {pointer:?}: the queue's setting version needs a number or a string there")]
    Missing {
        /// The RFC 6901 pointer.
        pointer: Arc<str>,
    },
    /// The value at the pointer is neither a number nor a string.
    #[error("the version at {pointer:?} is {found}; it must be a number or a string")]
    NotComparable {
        /// The RFC 6901 pointer.
        pointer: Arc<str>,
        /// The kind of the value, with an article: `an array`.
        found: &'static str,
    },
    /// The value is longer than [`VERSION_BYTES_MAX`].
    #[error("the version at {pointer:?} has {bytes} bytes; at most {VERSION_BYTES_MAX} are allowed")]
    TooLong {
        /// The RFC 6901 pointer.
        pointer: Arc<str>,
        /// Bytes of the number, or of the string without quotes and escapes.
        bytes: usize,
    },
    /// The exponent of the number has more than 17 digits.
    #[error("the version at {pointer:?} has an exponent of more than {EXPONENT_DIGITS_MAX} digits")]
    Exponent {
        /// The RFC 6901 pointer.
        pointer: Arc<str>,
    },
}

/// Maximum number of digits of an exponent, so that sums of exponents and lengths fit into 64 bits.
const EXPONENT_DIGITS_MAX: usize = 17;

impl VersionError {
    /// The pointer to the version.
    #[must_use]
    pub fn pointer(&self) -> &str {
        match self {
            Self::Missing { pointer }
            | Self::NotComparable { pointer, .. }
            | Self::TooLong { pointer, .. }
            | Self::Exponent { pointer } => pointer,
        }
    }

    /// The limit that was exceeded, if any.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        match self {
            Self::TooLong { .. } => Some(VERSION_BYTES_MAX),
            Self::Exponent { .. } => Some(EXPONENT_DIGITS_MAX),
            Self::Missing { .. } | Self::NotComparable { .. } => None,
        }
    }
}

impl ObjectVersion {
    /// The version of an object.
    ///
    /// # Errors
    /// [`VersionError`] if the object has no usable version.
    pub fn read(pointer: &Pointer, object: &Object) -> Result<Self, VersionError> {
        let pointer_text = || pointer.text.clone();
        let found = find(object.as_str(), std::slice::from_ref(pointer)).into_iter().next().flatten();
        let (bytes, version) = match found.and_then(Cursor::value) {
            None | Some(Value::Null) => return Err(VersionError::Missing { pointer: pointer_text() }),
            Some(Value::Text(text)) => (text.len(), Some(Self::Text(text.as_ref().into()))),
            Some(Value::Number(text)) => (text.len(), Decimal::parse(text).map(Self::Number)),
            Some(other) => {
                return Err(VersionError::NotComparable { pointer: pointer_text(), found: other.kind() });
            }
        };
        if bytes > VERSION_BYTES_MAX {
            return Err(VersionError::TooLong { pointer: pointer_text(), bytes });
        }
        version.ok_or_else(|| VersionError::Exponent { pointer: pointer_text() })
    }

    /// Length of the version's digits or text in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Number(number) => number.digits.len(),
            Self::Text(text) => text.len(),
        }
    }
}

impl Decimal {
    /// Parses a JSON number; `None` if its exponent is too long.
    fn parse(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text),
        };
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let zeros = length(all.len() - digits.len())?;
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self { is_negative: false, magnitude: 0, digits: SmolStr::default() });
        }
        let magnitude = parse_exponent(exponent)? + length(whole.len())? - zeros;
        Some(Self { is_negative, magnitude, digits: digits.into() })
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

fn parse_exponent(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let exponent: i64 = (digits.len() <= EXPONENT_DIGITS_MAX).then(|| digits.parse().ok()).flatten()?;
    Some(sign * exponent)
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

impl Serialize for ObjectVersion {
    /// Writes a number as raw text, like [`Object`], because serde's numbers lose digits.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const TOKEN: &str = "$serde_json::private::RawValue";
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(number) => {
                let mut raw = serializer.serialize_struct(TOKEN, 1)?;
                raw.serialize_field(TOKEN, &number.to_string())?;
                raw.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for ObjectVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        if text.starts_with('"') {
            let text: String = serde_json::from_str(text).map_err(de::Error::custom)?;
            return Ok(Self::Text(text.into()));
        }
        let number = Some(text).filter(|text| text.starts_with(|c: char| c == '-' || c.is_ascii_digit()));
        let number = number.and_then(Decimal::parse).map(Self::Number);
        number.ok_or_else(|| de::Error::custom("the version is neither a number nor a string"))
    }
}
