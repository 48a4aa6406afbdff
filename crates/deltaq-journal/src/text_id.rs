//! The id of a text that rows share.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Serialize};

/// Identifies a text by its content, so equal texts are one text. Tenants choose the texts, so the hash must be one for
/// which nobody can find two texts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TextId([u8; SHA256_OUTPUT_LEN]);

/// A text is not the id of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not the id of a text")]
pub struct NoTextId;

impl TextId {
    /// The id of this text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut id = [0; SHA256_OUTPUT_LEN];
        id.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(id)
    }

    /// The JSON that stands for the text in a row.
    pub(super) fn reference(self) -> String {
        format!("\"{self}\"")
    }

    /// The id in a reference.
    pub(super) fn from_reference(json: &str) -> Option<Self> {
        json.strip_prefix('"')?.strip_suffix('"')?.parse().ok()
    }
}

impl fmt::Display for TextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TextId {
    type Err = NoTextId;

    fn from_str(text: &str) -> Result<Self, NoTextId> {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = str::from_utf8(digits).map_err(|_| NoTextId)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NoTextId)?;
        }
        // An id has one form.
        let id = Self(bytes);
        if id.to_string() == text { Ok(id) } else { Err(NoTextId) }
    }
}

impl From<TextId> for String {
    fn from(id: TextId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for TextId {
    type Error = NoTextId;

    fn try_from(text: String) -> Result<Self, NoTextId> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_form() {
        let id = TextId::of("{}");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(TextId::from_reference(&id.reference()), Some(id));
        let hex = id.to_string();
        let long = format!("{hex}0");
        for wrong in ["", "44", &hex.to_uppercase(), &hex.replacen("44", "+4", 1), &hex[2..], &long] {
            assert_eq!(wrong.parse::<TextId>(), Err(NoTextId), "{wrong}");
        }
        assert_eq!(TextId::from_reference(&hex), None);
    }
}
