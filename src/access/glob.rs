//! Patterns of names of queues and of sources.

use std::fmt;

/// Maximum length of a pattern in bytes.
const GLOB_BYTES_MAX: usize = 128;

/// A pattern in which each `*` matches any text, including none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// The parts between the stars; a single part is a name without stars.
    parts: Vec<String>,
}

impl Glob {
    /// Describes a valid pattern.
    pub const ALLOWED: &str = "a queue name in which * matches any text, such as \"erp-*\"";

    /// Describes a valid pattern of sources.
    pub const ALLOWED_OF_SOURCES: &str = "names of sources in which * matches any text, such as [\"erp\"]";

    /// Parses a pattern; `None` if no queue name could match.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'*' | b'.' | b'_' | b'-')
        };
        Self::of(text).filter(|_| text.bytes().all(allowed))
    }

    /// Parses a pattern of sources; `None` if no name of a source could match.
    #[must_use]
    pub fn parse_of_source(text: &str) -> Option<Self> {
        Self::of(text).filter(|_| !text.chars().any(char::is_control))
    }

    fn of(text: &str) -> Option<Self> {
        let is_long = text.is_empty() || text.len() > GLOB_BYTES_MAX;
        (!is_long).then(|| Self { parts: text.split('*').map(str::to_owned).collect() })
    }

    /// Whether every name matches.
    #[must_use]
    pub fn matches_all(&self) -> bool {
        self.parts.len() > 1 && self.parts.iter().all(String::is_empty)
    }

    /// Whether the name matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.parts.split_first() else { return false };
        let Some((last, middle)) = rest.split_last() else { return name == first };
        let Some(name) = name.strip_prefix(first.as_str()) else { return false };
        let Some(mut name) = name.strip_suffix(last.as_str()) else { return false };
        // The first match leaves the longest remainder for the later parts.
        for part in middle {
            let Some(at) = name.find(part.as_str()) else { return false };
            name = name.get(at + part.len()..).unwrap_or_default();
        }
        true
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, name, matches) in [
            ("prices", "prices", true),
            ("prices", "prices-2", false),
            ("erp-*", "erp-", true),
            ("erp-*", "erp-a.b", true),
            ("erp-*", "erp", false),
            ("*", "anything", true),
            ("**", "anything", true),
            ("*-dev", "a-dev", true),
            ("*-dev", "a-dev-b", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "ac", false),
            ("a*a", "a", false),
            ("a*bc*c", "abc", false),
        ] {
            assert_eq!(Glob::parse(pattern).unwrap().matches(name), matches, "{pattern} {name}");
        }
        assert!(Glob::parse("**").unwrap().matches_all());
        assert!(!Glob::parse("a*").unwrap().matches_all());
    }

    #[test]
    fn a_pattern_that_no_name_can_match_is_refused() {
        for text in ["", "Prices", "a/b", "a b", "[a]", "?", "ä"] {
            assert_eq!(Glob::parse(text), None, "{text:?}");
        }
        assert_eq!(Glob::parse(&"a".repeat(GLOB_BYTES_MAX + 1)), None);
    }
}
