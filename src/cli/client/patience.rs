//! How a command handles temporary failures, such as a restart of the server.

use std::time::Duration;

use deltaq_client::{Backoff, Error};
use deltaq_types::name::Name;

use super::failure::{Failure, text_of};
use super::stderr::say;

/// How long to wait before a failed call is retried; `None` if a retry would fail again.
pub(super) fn pause_of(error: &Error, backoff: &mut Backoff) -> Option<Duration> {
    error.is_temporary().then(|| backoff.after_failure(error))
}

/// Waits after a temporary failure, and reports the first one.
pub(super) async fn wait_after(error: Error, backoff: &mut Backoff) -> Result<(), Failure> {
    let Some(pause) = pause_of(&error, backoff) else { return Err(error.into()) };
    report_failure(&error, backoff.failures());
    tokio::time::sleep(pause).await;
    Ok(())
}

/// Reports that a failed call is being retried, if this is its first failure.
pub(super) fn report_failure(error: &Error, failures: u32) {
    if failures == 1 {
        say(&format!("{}; trying again", text_of(error)));
    }
}

/// Whether the server reported that the queue does not exist.
pub(super) fn is_absent(error: &Error) -> bool {
    error.code() == Some("queue-not-found")
}

/// Reports that the command continues until the queue exists.
pub(super) fn report_absence(queue: &Name) {
    say(&format!("queue {queue} does not exist yet"));
}
