//! Errors as text for people.

/// An error and its causes, on one line.
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
    text
}
