//! Errors as people read them.

/// An error and what caused it, on one line.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| cause.source()) {
        let cause = cause.to_string();
        // Some say already what caused them.
        if !text.ends_with(&cause) && !text.contains(&format!("{cause};")) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
