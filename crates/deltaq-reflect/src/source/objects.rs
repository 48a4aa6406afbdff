//! Finds the objects in a text: a JSON document with a list, or one object per line.

use serde_json::value::RawValue;

use super::Error;
use crate::json;
use crate::settings::Format;

/// How the objects are found in a text.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// JSON pointer to the list.
    pub(super) items: String,
    pub(super) map_key: Option<String>,
    pub(super) format: Format,
}

impl Shape {
    /// Whether the text has one object per line. `says_lines` is what the source says about a text that may have
    /// either form.
    pub(super) fn is_lines(&self, text: &str, says_lines: bool) -> bool {
        match self.format {
            Format::Json => false,
            Format::Ndjson => true,
            Format::Auto => {
                let is_array = text.trim_start().starts_with('[');
                says_lines && !is_array && self.items.is_empty() && self.map_key.is_none()
            }
        }
    }

    /// The objects of a document. `of` names the document in errors.
    pub(super) fn of_document(&self, document: &RawValue, of: &str) -> Result<Vec<Box<RawValue>>, Error> {
        json::list(document, &self.items, self.map_key.as_deref()).map_err(|error| Error::because(of, error))
    }

    /// The objects of a text, one per line.
    pub(super) fn of_lines(text: &str, of: &str) -> Result<Vec<Box<RawValue>>, Error> {
        let objects =
            text.lines().enumerate().filter_map(|(number, line)| json::line(number + 1, line).transpose());
        objects.collect::<Result<_, _>>().map_err(|error| Error::because(of, error))
    }

    /// The objects of a text in either form.
    pub(super) fn of_text(
        &self,
        text: &str,
        says_lines: bool,
        of: &str,
    ) -> Result<Vec<Box<RawValue>>, Error> {
        if self.is_lines(text, says_lines) {
            return Self::of_lines(text, of);
        }
        self.of_document(document(text, of)?, of)
    }
}

/// Parses the text as one JSON document.
pub(super) fn document<'t>(text: &'t str, of: &str) -> Result<&'t RawValue, Error> {
    serde_json::from_str(text).map_err(|error| Error::because(format!("{of} is not JSON"), error))
}

/// The bytes as UTF-8 text.
pub(super) fn utf8<'b>(bytes: &'b [u8], of: &str) -> Result<&'b str, Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    str::from_utf8(bytes).map_err(|error| Error::because(format!("{of} is not UTF-8"), error))
}
