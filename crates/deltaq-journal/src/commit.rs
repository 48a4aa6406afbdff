//! The outcome of a change: whether it is durable.

use std::sync::Arc;

use tokio::sync::SetOnce;

use super::store::{self, Epoch};

/// Why the journal does not confirm a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The journal failed. Whether the events are durable is unknown.
    #[error("the journal could not confirm the write")]
    OutcomeUnknown,
    /// The disk is full. Whether the events are durable is unknown.
    #[error("the journal's disk is full")]
    DiskFull,
    /// Too many bytes are waiting to be committed. Nothing was applied.
    #[error("{limit} bytes wait to be committed already, as many as storage.max_uncommitted_bytes allows")]
    Backlog {
        /// The setting `storage.max_uncommitted_bytes`.
        limit: usize,
    },
    /// The journal is being closed. Nothing was applied.
    #[error("this server stops writing for the queue")]
    Closing,
}

impl From<&store::Error> for Error {
    fn from(error: &store::Error) -> Self {
        match error {
            store::Error::Full { .. } => Self::DiskFull,
            _ => Self::OutcomeUnknown,
        }
    }
}

/// The outcome of a batch. It is set once: when the batch is durable, or when its durability is unknown.
pub(super) type Outcome = SetOnce<Result<(), Error>>;

/// A point in the journal for which a reply waits. A clone waits for the same point.
#[derive(Clone, Debug, Default)]
pub struct Commit(Option<Arc<Outcome>>);

impl Commit {
    /// A commit that has already succeeded.
    #[must_use]
    pub const fn done() -> Self {
        Self(None)
    }

    /// A commit that has already failed.
    pub(crate) fn failed(error: Error) -> Self {
        Self(Some(Arc::new(SetOnce::new_with(Some(Err(error))))))
    }

    /// A commit with this outcome, which is pending or set.
    pub(super) fn of(outcome: &Arc<Outcome>) -> Self {
        Self(Some(outcome.clone()))
    }

    /// The outcome, or `None` while the commit is pending.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        self.0.as_ref().map_or(Some(Ok(())), |outcome| outcome.get().copied())
    }

    /// Whether both values are the same commit.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Waits until the events are durable.
    ///
    /// # Errors
    /// [`Error`] if their durability is unknown.
    pub async fn wait(self) -> Result<(), Error> {
        match self.0 {
            None => Ok(()),
            Some(outcome) => *outcome.wait().await,
        }
    }
}

/// Whether the journal accepts events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The epoch. It increases each time the journal recovers from a failure.
    pub epoch: Epoch,
    /// Why the journal currently accepts no events.
    pub down: Option<Error>,
}
