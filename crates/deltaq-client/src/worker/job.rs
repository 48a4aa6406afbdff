//! A key on which a handler works, and the ways to end the work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deltaq_types::duration::format;
use deltaq_types::terms::{DELAY_MAX, ERROR_BYTES_MAX};
use deltaq_types::{DeltaDocument, DeltaType, HoldScope, LeaseOutcome, PoppedItem, SettleAs, SettleCall};
use serde::de::DeserializeOwned;
use tokio::sync::SetOnce;

use crate::queue::hold;

/// A key on which a handler works, with its lease.
#[derive(Clone, Debug)]
pub struct Job {
    pub(super) queue: Arc<str>,
    pub(super) item: PoppedItem,
    pub(super) lost: Arc<SetOnce<Loss>>,
}

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The lease has ended: the server has said so, or the worker has released it because it is stopping.
    Ended(LeaseOutcome),
    /// The lease could not be extended.
    NotExtended {
        /// How long it is still certain that no other worker holds the key.
        left: Duration,
    },
}

impl Job {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.item.key
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The key as the pop returned it.
    #[must_use]
    pub const fn item(&self) -> &PoppedItem {
        &self.item
    }

    /// The newest change; `None` in mode keys.
    #[must_use]
    pub fn newest(&self) -> Option<&DeltaDocument> {
        self.item.deltas.last()
    }

    /// The newest object; `None` if the object was deleted, and in mode keys.
    ///
    /// # Errors
    /// The object does not have this type.
    pub fn object<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        let newest = self.newest().filter(|newest| newest.kind != DeltaType::Deleted);
        newest.map(|newest| serde_json::from_str(newest.object.as_str())).transpose()
    }

    /// The fencing token, which grows with every lease of the queue. A store that remembers the highest token can
    /// refuse a worker that has lost its lease.
    #[must_use]
    pub const fn fencing_token(&self) -> u64 {
        self.item.lease.token
    }

    /// Whether the lease is lost, so that another worker may hold the key: the server said so, or the lease could not
    /// be extended in time. The outcome of the handler then has no effect. Also true once a stopping worker no longer
    /// waits for the handler.
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
/// `()` means [`Outcome::Ack`]. A `Result` means its `Ok` value or, for an error, a [`Outcome::Nack`] with the text
/// of the error. So a handler may use `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The work is done: the deltas are acknowledged.
    Ack,
    /// The work failed: the key is delivered again, after its backoff or after `delay`.
    Nack {
        /// The wait, instead of the backoff. A wait that is longer than the server allows is cut to 366 days.
        delay: Option<Duration>,
        /// If true, a newer change does not shorten that wait.
        floor: bool,
        /// The reason.
        error: Option<String>,
    },
    /// The work must not be repeated: the key is parked at once, unless a newer change waits.
    Reject {
        /// The reason.
        error: Option<String>,
    },
    /// The target asks to wait: the key is released, or acknowledged, and nothing of the scope is delivered for a time.
    Hold {
        /// What is held. A key is held only if it is released.
        scope: HoldScope,
        /// Whether the work on the key is done.
        acks: bool,
        /// How long nothing is delivered, at most an hour.
        length: Duration,
    },
    /// Mode keys: the work is done, and the failures of the key stay. In other modes, this is a failure of the key.
    Done {
        /// The time after which the key is added again. A longer time than 366 days is cut to 366 days.
        delay: Option<Duration>,
    },
    /// The key was not worked on: it is delivered again, without a failure.
    Release,
}

impl Outcome {
    /// A failure with its reason. The key is delivered again after its backoff.
    #[must_use]
    pub fn nack(error: impl fmt::Display) -> Self {
        Self::Nack { delay: None, floor: false, error: Some(format!("{error:#}")) }
    }

    /// A failure that no retry can fix.
    #[must_use]
    pub fn reject(error: impl fmt::Display) -> Self {
        Self::Reject { error: Some(format!("{error:#}")) }
    }

    /// The outcome for an item. `Done` outside mode keys is a failure: the server would refuse the settles of other keys
    /// in the same call, too. Items of mode keys have no deltas.
    pub(super) fn suited(self, has_deltas: bool) -> Self {
        match self {
            Self::Done { .. } if has_deltas => {
                Self::nack("Done is only for queues of mode keys, and this queue has another mode")
            }
            outcome => outcome,
        }
    }

    pub(crate) fn settle(self, lease_id: String) -> SettleCall {
        let mut held = None;
        let (how, delay, floor, error) = match self {
            Self::Ack => (SettleAs::Ack, None, false, None),
            Self::Nack { delay, floor, error } => (SettleAs::Nack, delay, floor, error),
            Self::Reject { error } => (SettleAs::Reject, None, false, error),
            Self::Hold { scope, acks, length } => {
                held = Some(Box::new(hold(scope, length)));
                (if acks { SettleAs::Ack } else { SettleAs::Release }, None, false, None)
            }
            Self::Done { delay } => (SettleAs::Done, delay, false, None),
            Self::Release => (SettleAs::Release, None, false, None),
        };
        let error = error.map(|error| bounded(&error).into());
        let delay = delay.map(|delay| format(delay.min(DELAY_MAX)).into());
        let floor = floor.then_some(true);
        SettleCall { delay, floor, error, hold: held, ..SettleCall::new(lease_id, how) }
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

/// The end of the text, which says more than its beginning, cut to the longest error that the server accepts.
fn bounded(error: &str) -> &str {
    let start = error.ceil_char_boundary(error.len().saturating_sub(ERROR_BYTES_MAX));
    error.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn done_outside_mode_keys_is_a_failure() {
        let done = Outcome::Done { delay: None };
        assert_eq!(done.clone().suited(false), done);
        assert!(matches!(done.suited(true), Outcome::Nack { delay: None, error: Some(_), .. }));
        assert_eq!(Outcome::Ack.suited(true), Outcome::Ack);
    }

    #[test]
    fn the_server_takes_every_outcome() {
        let delay = Some(Duration::MAX);
        let error = Some(format!("{}end", "🙂".repeat(5_000)));
        let nack = Outcome::Nack { delay, floor: true, error }.settle("a".to_owned());
        assert_eq!((nack.delay.as_deref(), nack.floor), (Some("366d"), Some(true)));
        let error = nack.error.expect("an error");
        assert!(error.len() <= ERROR_BYTES_MAX && error.ends_with("🙂end"));
        assert!(error.len() > ERROR_BYTES_MAX - 4);
        let hold = Outcome::Hold { scope: HoldScope::Queue, acks: false, length: Duration::MAX }
            .settle("a".to_owned());
        assert_eq!((hold.how, hold.hold), (SettleAs::Release, Some("1h".to_owned().into())));
        assert_eq!(Outcome::Done { delay }.settle("a".to_owned()).delay.as_deref(), Some("366d"));
    }
}
