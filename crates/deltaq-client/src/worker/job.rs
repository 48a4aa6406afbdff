//! A key on which a handler works, and the ways to end the work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deltaq_types::duration::format;
use deltaq_types::terms::{DELAY_MAX, ERROR_BYTES_MAX};
use deltaq_types::{DeltaDocument, DeltaType, LeaseOutcome, PoppedItem, SettleAs, SettleCall};
use serde::de::DeserializeOwned;
use tokio::sync::SetOnce;

/// A key on which a handler works, with its lease.
#[derive(Clone, Debug)]
pub struct Job {
    pub(super) item: PoppedItem,
    pub(super) lost: Arc<SetOnce<Loss>>,
}

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It has ended: the server said so, or the worker that stops has released it.
    Ended(LeaseOutcome),
    /// It could not be extended.
    NotExtended {
        /// How long no other worker can hold the key.
        left: Duration,
    },
}

impl Job {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.item.key
    }

    /// Everything that the pop said about the key.
    #[must_use]
    pub const fn item(&self) -> &PoppedItem {
        &self.item
    }

    /// The newest change. In mode keys there is none.
    #[must_use]
    pub fn newest(&self) -> Option<&DeltaDocument> {
        self.item.deltas.last()
    }

    /// The newest object; `None` if it was deleted, and in mode keys.
    ///
    /// # Errors
    /// The object has another form.
    pub fn object<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        let newest = self.newest().filter(|newest| newest.kind != DeltaType::Deleted);
        newest.map(|newest| serde_json::from_str(newest.object.as_str())).transpose()
    }

    /// The fencing token: it grows with every lease of the queue. A store that remembers the highest token can refuse a worker that
    /// has lost its lease.
    #[must_use]
    pub const fn fencing_token(&self) -> u64 {
        self.item.lease.token
    }

    /// Whether the lease is lost, so that another worker may hold the key: the server said so, or the lease could not be extended in
    /// time. The outcome of the handler then counts no more. It is also true while a worker that stops waits no longer.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.initialized()
    }

    /// Waits until the lease [is lost](Self::is_lost).
    pub async fn lost(&self) -> Loss {
        *self.lost.wait().await
    }
}

/// How a handler ends.
///
/// `()` is [`Outcome::Ack`]. A `Result` is its `Ok`, or a [`Outcome::Nack`] with the text of its error. So a handler may use `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: the deltas are acknowledged.
    Ack,
    /// Failed: the key is delivered again, after its backoff or after `delay`.
    Nack {
        /// The wait, instead of the backoff; a longer one than the server takes is cut to 366 days.
        delay: Option<Duration>,
        /// If true, a newer change does not shorten that wait.
        floor: bool,
        /// The reason.
        error: Option<String>,
    },
    /// Not again: the key is parked at once, unless a newer change waits.
    Reject {
        /// The reason.
        error: Option<String>,
    },
    /// Mode keys: done, and the failures of the key stay.
    Done {
        /// The time after which the key is added again, at most 366 days as well.
        delay: Option<Duration>,
    },
    /// Not worked on: the key is delivered again, without a failure.
    Release,
}

impl Outcome {
    /// A failure with its reason. The key is delivered again after its backoff.
    #[must_use]
    pub fn nack(error: impl fmt::Display) -> Self {
        Self::Nack { delay: None, floor: false, error: Some(format!("{error:#}")) }
    }

    /// A failure that no repetition can help.
    #[must_use]
    pub fn reject(error: impl fmt::Display) -> Self {
        Self::Reject { error: Some(format!("{error:#}")) }
    }

    pub(super) fn settle(self, lease_id: String) -> SettleCall {
        let (how, delay, floor, error) = match self {
            Self::Ack => (SettleAs::Ack, None, false, None),
            Self::Nack { delay, floor, error } => (SettleAs::Nack, delay, floor, error),
            Self::Reject { error } => (SettleAs::Reject, None, false, error),
            Self::Done { delay } => (SettleAs::Done, delay, false, None),
            Self::Release => (SettleAs::Release, None, false, None),
        };
        let error = error.map(|error| bounded(error).into());
        let delay = delay.map(|delay| format(delay.min(DELAY_MAX)).into());
        SettleCall { delay, floor: floor.then_some(true), error, ..SettleCall::new(lease_id, how) }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Ack
    }
}

impl<T: Into<Self>, E: fmt::Display> From<Result<T, E>> for Outcome {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(outcome) => outcome.into(),
            Err(error) => Self::nack(error),
        }
    }
}

/// The text, cut to the longest error that the server takes.
fn bounded(mut error: String) -> String {
    error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_takes_every_outcome() {
        let delay = Some(Duration::MAX);
        let error = Some("é".repeat(5_000));
        let nack = Outcome::Nack { delay, floor: true, error }.settle("a".to_owned());
        assert_eq!((nack.delay.as_deref(), nack.floor), (Some("366d"), Some(true)));
        assert!(nack.error.is_some_and(|error| error.len() <= ERROR_BYTES_MAX && error.ends_with('é')));
        assert_eq!(Outcome::Done { delay }.settle("a".to_owned()).delay.as_deref(), Some("366d"));
    }
}
