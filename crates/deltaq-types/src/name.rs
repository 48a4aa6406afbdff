//! Names and incarnations of queues.

use std::fmt;
use std::sync::Arc;

/// The name of a queue: `[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// The name in quotes, as messages show it.
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Maximum length of a queue's name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Separates the group of a name from the rest.
const GROUP_END: &str = "--";

/// Why a text is not a valid name of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a queue name has at least one character")]
    Empty,
    /// Longer than [`NAME_BYTES_MAX`].
    #[error("a queue name has at most {NAME_BYTES_MAX} characters, this one has {bytes}")]
    TooLong {
        /// Bytes of the text.
        bytes: usize,
    },
    /// A character is not allowed, or the text begins or ends with a punctuation mark.
    #[error(
        "a queue name is made of a-z, 0-9, '.', '_' and '-', and begins and ends with a letter or a digit"
    )]
    Character,
}

impl NameError {
    /// The limit that the text exceeds; `None` for other errors.
    #[must_use]
    pub fn limit(self) -> Option<usize> {
        matches!(self, Self::TooLong { .. }).then_some(NAME_BYTES_MAX)
    }
}

impl Name {
    /// Checks `text` against the rules of a queue's name.
    ///
    /// # Errors
    /// [`NameError`] names the rule that it breaks.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let inside = bytes.iter().all(|byte| plain(byte) || b"._-".contains(byte));
        if inside && bytes.first().is_some_and(plain) && bytes.last().is_some_and(plain) {
            Ok(Self(text.into()))
        } else {
            Err(NameError::Character)
        }
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The group of the name: the part before the first `--`, or the whole name. Queues of one group are in one partition.
    #[must_use]
    pub fn group(&self) -> &str {
        self.0.split_once(GROUP_END).map_or(&self.0, |(group, _)| group)
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Digits of an incarnation.
const INCARNATION_DIGITS: usize = 8;

/// Distinguishes a queue from earlier queues of the same name. Shown in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incarnation(pub u32);

impl Incarnation {
    /// Reads an incarnation as this service writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_whole = text.len() == INCARNATION_DIGITS && text.bytes().all(is_hex);
        u32::from_str_radix(text, 16).ok().filter(|_| is_whole).map(Self)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0width$x}", self.0, width = INCARNATION_DIGITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_pattern() {
        for good in ["a", "7", "prices", "a.b_c-d", "0-0", &"x".repeat(128)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", ".", "..", "A", "a b", "ä", "a/b", &"x".repeat(129)] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }
}
