//! Excerpts of a caller's text for messages: quoted, and at most 200 characters long.

use std::fmt;

/// Maximum number of characters of a caller's text in a message.
pub const EXCERPT_CHARS_MAX: usize = 200;

/// A caller's text as a message repeats it.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt<'t>(pub &'t str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = cut(self.0);
        let ellipsis = if start.len() < self.0.len() { "..." } else { "" };
        write!(f, "{start:?}{ellipsis}")
    }
}

/// The part of a text that may be repeated.
#[must_use]
pub fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(EXCERPT_CHARS_MAX).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

/// Removes the middle of a long message. A message is long only if it repeats a caller's text.
#[must_use]
pub fn shortened(message: &str) -> String {
    let chars = message.chars().count();
    if chars <= 2 * EXCERPT_CHARS_MAX {
        return message.to_owned();
    }
    let start: String = message.chars().take(EXCERPT_CHARS_MAX / 2).collect();
    let end: String = message.chars().skip(chars - EXCERPT_CHARS_MAX / 2).collect();
    format!("{start}...{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(Excerpt("a\"b").to_string(), r#""a\"b""#);
        assert_eq!(Excerpt(&"ü".repeat(200)).to_string(), format!("{:?}", "ü".repeat(200)));
        assert_eq!(Excerpt(&"ü".repeat(201)).to_string(), format!("{:?}...", "ü".repeat(200)));
    }

    #[test]
    fn a_long_message_loses_its_middle() {
        let message = format!("invalid type: string {:?}, expected a list", "x".repeat(1_000));
        let short = shortened(&message);
        assert!(
            short.starts_with("invalid type: string \"xxx") && short.ends_with("xxx\", expected a list"),
            "{short}"
        );
        assert_eq!(short.chars().count(), EXCERPT_CHARS_MAX + 3);
        assert_eq!(shortened("short"), "short");
    }
}
