//! JSON helpers that all records share.
//!
//! This module is not a document model. Objects are written and read as raw text, so they are returned byte for byte.

use serde::Serialize;

/// A growing JSON text. It consists of bytes, because serde writes bytes.
#[derive(Debug, Default)]
pub(super) struct Json(Vec<u8>);

impl Json {
    /// An empty text with capacity for `bytes`.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// The length in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends a piece of JSON.
    pub(super) fn push(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Appends a value. Serializing a record can't fail: the names of its fields are text.
    #[expect(clippy::expect_used, reason = "a write to memory succeeds, and the names of fields are text")]
    pub(super) fn push_value(&mut self, value: &impl Serialize) {
        serde_json::to_writer(&mut self.0, value).expect("a record can be written to memory");
    }

    /// Splits the text at `at`, where a comma and an element were appended. The element begins a new array.
    pub(super) fn split_off_array(&mut self, at: usize) -> Self {
        let mut array = self.0.split_off(at);
        if let Some(comma) = array.first_mut() {
            *comma = b'[';
        }
        Self(array)
    }

    /// The text.
    #[expect(clippy::expect_used, reason = "serde writes UTF-8, and every other piece is a str")]
    pub(super) fn into_string(self) -> String {
        String::from_utf8(self.0).expect("JSON is text")
    }
}
