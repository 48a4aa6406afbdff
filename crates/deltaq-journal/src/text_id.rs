//! The id of a text that rows share.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Serialize};

/// The ids of recent texts. A text is hashed once, not for each of its rows: a change of a queue with 30 followers has 31.
static RECENT: Mutex<RecentIds> = Mutex::new(RecentIds(VecDeque::new()));

/// How many bytes of recent texts are remembered at most. Only texts that nothing else uses take memory.
const RECENT_BYTES_MAX: usize = 8 << 20;
/// How many recent texts are remembered at most, because a look-up compares all of them.
const RECENT_MAX: usize = 64;

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

    /// The id of a text, which is hashed unless it is one of the recent ones.
    pub(super) fn of_shared(text: &Arc<str>) -> Self {
        if let Some(id) = RECENT.lock().find(text) {
            return id;
        }
        let id = Self::of(text);
        RECENT.lock().add(text, id);
        id
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

/// A text that was hashed, known by its address. A weak reference keeps the address from being used again.
struct RecentId {
    text: Weak<str>,
    bytes: usize,
    id: TextId,
}

/// The newest is the last.
struct RecentIds(VecDeque<RecentId>);

impl RecentIds {
    fn find(&self, text: &Arc<str>) -> Option<TextId> {
        let is_it = |recent: &&RecentId| std::ptr::addr_eq(recent.text.as_ptr(), Arc::as_ptr(text));
        self.0.iter().rev().find(is_it).map(|recent| recent.id)
    }

    fn add(&mut self, text: &Arc<str>, id: TextId) {
        self.0.retain(|recent| recent.text.strong_count() > 0);
        self.0.push_back(RecentId { text: Arc::downgrade(text), bytes: text.len(), id });
        let mut bytes: usize = self.0.iter().map(|recent| recent.bytes).sum();
        while bytes > RECENT_BYTES_MAX || self.0.len() > RECENT_MAX {
            let Some(oldest) = self.0.pop_front() else { break };
            bytes -= oldest.bytes;
        }
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
    fn a_recent_text_is_known_by_its_address_and_takes_bounded_memory() {
        let mut recent = RecentIds(VecDeque::new());
        let text = |n: usize| -> Arc<str> { format!("{n}{}", " ".repeat(RECENT_BYTES_MAX / 4 - 1)).into() };
        let texts: Vec<_> = (0..6).map(text).collect();
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(recent.find(text), None, "{index}");
            recent.add(text, TextId::of(text));
        }
        assert_eq!(recent.find(&text(5)), None, "an equal text elsewhere is hashed");
        let known: Vec<_> = texts.iter().map(|text| recent.find(text)).collect();
        let ids: Vec<_> = texts.iter().map(|text| Some(TextId::of(text))).collect();
        assert_eq!(known[2..], ids[2..]);
        assert_eq!(known[..2], [None, None], "the oldest ones are forgotten");
        drop(texts);
        let small: Arc<str> = "{}".into();
        (0..=RECENT_MAX).for_each(|_| recent.add(&small, TextId::of(&small)));
        assert_eq!(recent.0.len(), RECENT_MAX);
        assert!(
            recent.0.iter().all(|recent| recent.bytes == small.len()),
            "unused texts are forgotten first"
        );
    }

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
