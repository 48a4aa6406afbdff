//! Errors as text for people.

/// An error and its causes, on one line. Control characters are escaped, because a message may contain a name from outside,
/// such as that of a file, which must neither forge a line of a log nor control a terminal.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| cause.source()) {
        let cause = cause.to_string();
        // Some messages already include their cause.
        if !text.ends_with(&cause) && !text.contains(&format!("{cause};")) {
            text = format!("{text}: {cause}");
        }
    }
    text.chars().map(|c| if is_harmful(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Whether a terminal may obey the character instead of showing it, or show the text after it in another order.
fn is_harmful(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_message_stays_within_its_line() {
        for (name, shown) in [
            ("bad\u{1b}[31m", "bad\\u{1b}[31m"),
            ("a\nFAKE LINE", "a\\nFAKE LINE"),
            ("a\rb\tc", "a\\rb\\tc"),
            ("\u{9b}2J\u{202e}txt.exe", "\\u{9b}2J\\u{202e}txt.exe"),
            ("größe \u{1f600}.json", "größe \u{1f600}.json"),
        ] {
            let error = std::io::Error::other(format!("can't read {name}"));
            assert_eq!(with_causes(&error), format!("can't read {shown}"));
        }
    }
}
