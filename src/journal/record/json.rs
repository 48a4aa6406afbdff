//! The pieces of JSON that all records are made of.
//!
//! It is not a document model. Objects are spliced in and cut out as text, never read: what a producer
//! sent comes back byte for byte.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

use crate::engine::object::Object;

/// JSON text that grows. It is bytes because that is what serde writes to.
#[derive(Debug, Default)]
pub(super) struct Json(Vec<u8>);

impl Json {
    /// An empty text with room for `bytes`.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds text that is a piece of JSON.
    pub(super) fn push(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Adds a value. The types of records have text for names, so that nothing can fail.
    #[expect(clippy::expect_used, reason = "memory takes every write, and names of members are text")]
    pub(super) fn push_value(&mut self, value: &impl Serialize) {
        serde_json::to_writer(&mut self.0, value).expect("a record can be written to memory");
    }

    /// Cuts the text in two at `at`, where a comma and an element were added: the element begins an
    /// array of its own.
    pub(super) fn split_off_array(&mut self, at: usize) -> Self {
        let mut array = self.0.split_off(at);
        if let Some(comma) = array.first_mut() {
            *comma = b'[';
        }
        Self(array)
    }

    /// The text.
    #[expect(clippy::expect_used, reason = "serde writes UTF-8, and all else that is added is text")]
    pub(super) fn into_string(self) -> String {
        String::from_utf8(self.0).expect("JSON is text")
    }
}

/// A text that is borrowed from the row, unless an escape stands in it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Text<'a> {
    /// A text to write.
    pub(super) const fn of(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// The text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A finite number that is read by the standard library: serde_json by itself may be off by the last bit.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Float(pub(super) f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Self(number)),
            _ => Err(de::Error::custom(format_args!("{text} is not a number"))),
        }
    }
}

/// Whether a member may be left out: reading puts the default in its place.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A span in whole microseconds, which is all that settings and the engine's own arithmetic know: below
/// one it is cut off, and what is too long is the longest there is.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The object that `text` is. Only the first byte is looked at: the row has a checksum.
pub(super) fn shared_object(text: Arc<str>) -> Result<Object, String> {
    if text.starts_with('{') {
        Ok(Object::from_shared(text))
    } else {
        Err("its known object is not a JSON object".to_owned())
    }
}

/// A member that must be there.
pub(super) fn need<T>(member: Option<T>, name: &str) -> Result<T, String> {
    member.ok_or_else(|| format!("{name:?} is missing"))
}
