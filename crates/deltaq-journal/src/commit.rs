//! The outcome of a change: whether it is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// The disk is nearly full. Nothing was applied.
    #[error(
        "the journal's disk has less than {min_free_bytes} bytes free, which storage.min_free_bytes keeps for the journal itself"
    )]
    DiskLow {
        /// The setting `storage.min_free_bytes`.
        min_free_bytes: u64,
    },
    /// Too many bytes are waiting to be committed. Nothing was applied.
    #[error("{limit} bytes wait to be committed already, as many as storage.max_uncommitted_bytes allows")]
    Backlog {
        /// The setting `storage.max_uncommitted_bytes`.
        limit: usize,
    },
    /// Too many bytes of one token are waiting to be committed. Nothing was applied.
    #[error(
        "{limit} bytes of this token wait to be committed already; the rest of storage.max_uncommitted_bytes is for others"
    )]
    BacklogOfToken {
        /// The share of the token.
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

impl Error {
    /// Whether the change can be made once earlier changes are committed.
    #[must_use]
    pub const fn is_backlog(self) -> bool {
        matches!(self, Self::Backlog { .. } | Self::BacklogOfToken { .. } | Self::DiskLow { .. })
    }
}

/// On whose behalf a change is made. The authors take turns at the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// The name of the caller's token. Without one, the change is made by the server, or by a caller without a token.
    pub token: Option<Arc<str>>,
    /// Whether the change passes rows to a follower.
    pub is_follower: bool,
}

/// The outcome of a batch.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Set once: when the batch is durable, or when its durability is unknown.
    pub(super) result: SetOnce<Result<(), Error>>,
    /// The author in whose line the batch waits.
    author: Author,
    /// Whether the writer has not taken the batch yet.
    is_waiting: AtomicBool,
}

impl Outcome {
    /// The outcome of a batch that waits in the line of an author.
    pub(super) fn in_line_of(author: Author) -> Self {
        Self { result: SetOnce::new(), author, is_waiting: AtomicBool::new(true) }
    }

    /// Records that the writer has taken the batch.
    pub(super) fn leave(&self) {
        self.is_waiting.store(false, Ordering::Relaxed);
    }
}

/// A point in the journal for which a reply waits. A clone waits for the same point.
#[derive(Clone, Debug, Default)]
pub struct Commit(Point);

#[derive(Clone, Debug, Default)]
enum Point {
    #[default]
    Past,
    Failed(Error),
    Batch(Arc<Outcome>),
}

impl Commit {
    /// A commit that has already succeeded.
    #[must_use]
    pub const fn done() -> Self {
        Self(Point::Past)
    }

    /// A commit that has already failed.
    pub(crate) fn failed(error: Error) -> Self {
        Self(Point::Failed(error))
    }

    /// A commit with this outcome, which is pending or set.
    pub(super) fn of(outcome: &Arc<Outcome>) -> Self {
        Self(Point::Batch(outcome.clone()))
    }

    /// The outcome, or `None` while the commit is pending.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        match &self.0 {
            Point::Past => Some(Ok(())),
            Point::Failed(error) => Some(Err(*error)),
            Point::Batch(outcome) => outcome.result.get().copied(),
        }
    }

    /// The author in whose line the batch waits, until the writer takes the batch.
    pub(super) fn line(&self) -> Option<&Author> {
        match &self.0 {
            Point::Batch(outcome) => outcome.is_waiting.load(Ordering::Relaxed).then_some(&outcome.author),
            Point::Past | Point::Failed(_) => None,
        }
    }

    /// Whether both values are the same commit.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Point::Batch(own), Point::Batch(other)) => Arc::ptr_eq(own, other),
            (Point::Past, Point::Past) => true,
            _ => false,
        }
    }

    /// Waits until the events are durable.
    ///
    /// # Errors
    /// [`Error`] if their durability is unknown.
    pub async fn wait(self) -> Result<(), Error> {
        match self.0 {
            Point::Past => Ok(()),
            Point::Failed(error) => Err(error),
            Point::Batch(outcome) => *outcome.result.wait().await,
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
