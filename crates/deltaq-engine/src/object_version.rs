//! Versions of objects: the value at the pointer of the setting `version`, which grows with each state of a key.
//!
//! A version is a number or a string. Numbers are compared as exact decimals, so no digit is lost; strings are
//! compared by their bytes. Every number is older than every string, so all versions have a total order.

use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use smol_str::SmolStr;

use super::decimal::{Decimal, EXPONENT_DIGITS_MAX};
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
            Self::Number(number) => number.bytes(),
            Self::Text(text) => text.len(),
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
