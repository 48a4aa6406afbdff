//! The problems of a journal that does not take a change.

use deltaq_service::JournalError;

use super::{Code, Problem, REPEAT, REPEAT_IF_SAFE};

/// The problem of a change that the journal has not confirmed. `detail` is the text of the error.
pub(super) fn problem(error: JournalError, detail: String) -> Problem {
    let not_applied = || format!("{detail}; nothing of the request was applied");
    match error {
        JournalError::DiskFull => Problem::new(
            Code::DiskFull,
            "the journal's disk is full; whether the request took effect is unknown",
        )
        .hint("make room on the disk; the server recovers by itself. Changes and settles are safe to repeat"),
        JournalError::DiskLow { min_free_bytes } => Problem::new(Code::DiskFull, not_applied())
            .hint("make room on the disk; reads are answered, and changes are accepted again by themselves")
            .with("limit", min_free_bytes),
        JournalError::Backlog { limit } | JournalError::BacklogOfToken { limit } => {
            Problem::new(Code::JournalBehind, not_applied()).hint(REPEAT).with("limit", limit)
        }
        JournalError::OutcomeUnknown => Problem::new(
            Code::JournalUnavailable,
            "the journal could not confirm the write; whether it took effect is unknown",
        )
        .hint(REPEAT_IF_SAFE),
        JournalError::Closing => Problem::new(Code::NotOwner, detail),
    }
}
