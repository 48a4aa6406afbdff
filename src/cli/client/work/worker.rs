//! What the slots of a worker share, and a key that one of them holds.

use std::cell::Cell;
use std::time::Duration;

use deltaq_client::{Backoff, Error};
use deltaq_types::PoppedItem;
use deltaq_types::name::Name;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{Stop, Work};
use crate::cli::client::session::Session;

/// Longest pause before the first repetition of a failed call.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest pause before any repetition, unless the server asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// What all slots share.
pub(super) struct Worker<'a> {
    pub(super) work: &'a Work,
    pub(super) session: &'a Session,
    pub(super) stop: Stop,
    pub(super) name: String,
    pub(super) lease: Option<String>,
    /// Whether a slot has said that the queue does not exist yet.
    pub(super) said_absent: Cell<bool>,
    pub(super) acknowledged: Cell<u64>,
    pub(super) failed: Cell<u64>,
}

/// A key that this worker holds.
pub(super) struct Item {
    pub(super) popped: PoppedItem,
    pub(super) text: Box<RawValue>,
    pub(super) received_at: Instant,
}

/// The pauses of a command that goes on over restarts of the server.
pub(in crate::cli::client) const fn pauses() -> Backoff {
    Backoff::new(PAUSE, PAUSE_MAX)
}

/// How long to wait before a failed call is repeated; `None` if a repetition fails again.
pub(in crate::cli::client) fn pause_of(error: &Error, backoff: &mut Backoff) -> Option<Duration> {
    error.is_temporary().then(|| backoff.after_failure(error))
}

/// Whether the server says that the queue does not exist.
pub(in crate::cli::client) fn is_absent(error: &Error) -> bool {
    error.code() == Some("queue-not-found")
}

/// Says that the command goes on until the queue exists.
pub(in crate::cli::client) fn report_absence(queue: &Name) {
    eprintln!("deltaq: queue {queue} does not exist yet");
}
