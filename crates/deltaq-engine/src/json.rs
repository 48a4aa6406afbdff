//! Texts and numbers in records.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

/// A text that borrows from the row unless it contains an escape.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Text<'a> {
    /// A text to write.
    pub const fn of(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A finite number, parsed by the standard library because serde_json may be off by the last bit.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct Float(pub f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Self(number)),
            _ => Err(de::Error::custom(format_args!("{text} is not a number"))),
        }
    }
}
