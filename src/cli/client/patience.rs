//! What a command does about failures that may pass, such as a restart of the server.

use std::time::Duration;

use deltaq_client::{Backoff, Error};
use deltaq_types::name::Name;

use super::failure::{Failure, text_of};

/// How long to wait before a failed call is repeated; `None` if a repetition fails again.
pub(super) fn pause_of(error: &Error, backoff: &mut Backoff) -> Option<Duration> {
    error.is_temporary().then(|| backoff.after_failure(error))
}

/// Waits after a failure that may pass, and says so at the first one.
pub(super) async fn wait_after(error: Error, backoff: &mut Backoff) -> Result<(), Failure> {
    let Some(pause) = pause_of(&error, backoff) else { return Err(error.into()) };
    report_failure(&error, backoff.failures());
    tokio::time::sleep(pause).await;
    Ok(())
}

/// Says that a failed call is repeated, if this is its first failure.
pub(super) fn report_failure(error: &Error, failures: u32) {
    if failures == 1 {
        eprintln!("deltaq: {}; trying again", text_of(error));
    }
}

/// Whether the server says that the queue does not exist.
pub(super) fn is_absent(error: &Error) -> bool {
    error.code() == Some("queue-not-found")
}

/// Says that the command goes on until the queue exists.
pub(super) fn report_absence(queue: &Name) {
    eprintln!("deltaq: queue {queue} does not exist yet");
}
