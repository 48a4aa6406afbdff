//! Objects of producers.

use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

/// The name of `RawValue` in `serde_json`, by which it recognises raw text.
pub(crate) const RAW_TEXT: &str = "$serde_json::private::RawValue";

/// An object exactly as the producer sent it: numbers keep every digit. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawObject(Arc<str>);

impl RawObject {
    /// Wraps a text that is known to be one JSON object.
    #[must_use]
    pub fn from_valid(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for RawObject {
    /// Writes the text unchanged. A conversion into a `RawValue` would parse the object once more.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut raw = serializer.serialize_struct(RAW_TEXT, 1)?;
        raw.serialize_field(RAW_TEXT, self.as_str())?;
        raw.end()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        if text.get().starts_with('{') {
            Ok(Self(text.get().into()))
        } else {
            Err(de::Error::custom("the object is not a JSON object"))
        }
    }
}

/// A JSON value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawJson(Box<str>);

impl RawJson {
    /// Wraps a text that is known to be one JSON value.
    #[must_use]
    pub fn from_valid(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut raw = serializer.serialize_struct(RAW_TEXT, 1)?;
        raw.serialize_field(RAW_TEXT, self.as_str())?;
        raw.end()
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(deserializer)?.get().into()))
    }
}
