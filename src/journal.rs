//! The journal: events go in, in order; replies wait until theirs are durable.
//!
//! All queues share it. Whatever comes while one commit runs is gathered into the next, so those who
//! wait share the cost of making it durable. It is not a store of objects and knows no rule of a
//! queue: it keeps what the engine says, and gives it back after a restart.
//!
//! Architecture invariants:
//! - nothing but a [`store`] knows how rows are kept, and nothing but [`record`] what is in them;
//! - a commit is answered once: done, or failed with all that was gathered behind it.

pub mod memory;
pub mod record;
pub mod recovery;
pub mod sqlite;
pub mod store;
pub mod writer;

mod checkpointer;
mod commit_queue;
mod grouped_batch;
mod options;
mod queue_log;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{SetOnce, watch};

use self::commit_queue::CommitQueue;
pub use self::options::WriterOptions;
pub use self::queue_log::QueueMeta;
use self::queue_log::{QueueLog, SEGMENT_BYTES};
use self::store::{QueueId, Reader};
use crate::engine::Queue;
use crate::engine::delta::Rv;
use crate::engine::event::Event;
use crate::engine::snapshot::QueueState;

/// Why a commit did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The journal failed. Whether the events are durable is unknown.
    #[error("the journal could not confirm the write")]
    OutcomeUnknown,
    /// The disk is full. Whether the events are durable is unknown.
    #[error("the journal's disk is full")]
    DiskFull,
    /// Too much waits to be committed. Nothing was applied.
    #[error("{limit} bytes wait to be committed already, as many as storage.max_uncommitted_bytes allows")]
    Backlog {
        /// The setting `storage.max_uncommitted_bytes`.
        limit: usize,
    },
}

impl From<&store::Error> for Error {
    fn from(error: &store::Error) -> Self {
        match error {
            store::Error::Full { .. } => Self::DiskFull,
            _ => Self::OutcomeUnknown,
        }
    }
}

/// What becomes of a batch: set once, when it is durable or when that can't be told any more.
type Outcome = SetOnce<Result<(), Error>>;

/// A point in the journal that a reply waits for. Cloning it waits for the same point.
#[derive(Clone, Debug, Default)]
pub struct Commit(Option<Arc<Outcome>>);

impl Commit {
    /// A commit that has come already.
    #[must_use]
    pub const fn done() -> Self {
        Self(None)
    }

    /// A commit that never comes.
    pub(crate) fn failed(error: Error) -> Self {
        Self(Some(Arc::new(SetOnce::new_with(Some(Err(error))))))
    }

    /// Whether it has come, or failed; none if that is still open.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        self.0.as_ref().map_or(Some(Ok(())), |outcome| outcome.get().copied())
    }

    /// Whether the other commit comes and fails together with this one.
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
    /// [`Error`] if that can't be told.
    pub async fn wait(self) -> Result<(), Error> {
        match self.0 {
            None => Ok(()),
            Some(outcome) => *outcome.wait().await,
        }
    }
}

/// Whether the journal takes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// How often it has failed so far.
    pub failures: u64,
    /// Why it takes nothing at present.
    pub down: Option<Error>,
}

/// A queue that runs, as the journal sees it.
pub trait Live: fmt::Debug + Send + Sync {
    /// Lets `look` at the queue, unless the queue is gone or waits to be loaded again; tells whether it did.
    fn with(&self, look: &mut dyn FnMut(&mut Queue)) -> bool;

    /// What was captured of the queue is lost: it must be loaded again.
    fn lose(&self);
}

/// Hears of what the journal does, for metrics.
pub trait Observer: fmt::Debug + Send + Sync {
    /// So many events were committed.
    fn committed(&self, events: usize, took: Duration);
    /// A checkpoint has ended.
    fn checkpointed(&self, took: Duration);
    /// The files take so many bytes; so many events would be replayed.
    fn sized(&self, bytes: u64, lag_events: u64);
}

/// The way into the journal. Clones are the same journal.
///
/// What goes in rests on what was seen to be there. So each call tells, as `failures`, how often the
/// journal [had failed](Self::check) before that was seen: if it has failed since, something may be
/// missing below, and the commit has failed as well.
#[derive(Clone, Debug)]
pub struct Journal {
    commit_queue: Arc<CommitQueue>,
    floor: Rv,
    reader: Arc<dyn Reader>,
}

impl Journal {
    /// The largest event of a deleted queue as the store was opened: new queues start above it.
    #[must_use]
    pub fn floor(&self) -> Rv {
        self.floor
    }

    /// What is committed, to be read.
    #[must_use]
    pub fn reader(&self) -> &Arc<dyn Reader> {
        &self.reader
    }

    /// How often the journal has failed, if it takes events now. Commits that failed by then are known to
    /// have.
    ///
    /// # Errors
    /// Why it takes nothing.
    pub fn check(&self) -> Result<u64, Error> {
        self.commit_queue.check()
    }

    /// As [`check`](Self::check), for a caller that is about to append: a caller that asks first changes
    /// nothing that the journal has no room for.
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`Error::Backlog`].
    pub fn admit(&self) -> Result<u64, Error> {
        self.commit_queue.admit()
    }

    /// About how many bytes of memory wait to be committed.
    #[must_use]
    pub fn uncommitted_bytes(&self) -> usize {
        self.commit_queue.uncommitted_bytes()
    }

    /// Follows whether the journal takes events.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.commit_queue.health()
    }

    /// A new queue, which does not run yet.
    #[must_use]
    pub fn create(&self, meta: QueueMeta, state: QueueState, failures: u64) -> (QueueId, Commit) {
        self.commit_queue.create(meta, state, failures)
    }

    /// The queue runs from now on: checkpoints look at `live`.
    pub fn attach(&self, queue: QueueId, live: Weak<dyn Live>) {
        self.commit_queue.attach(queue, live);
    }

    /// The queue runs no longer.
    pub fn detach(&self, queue: QueueId) {
        self.commit_queue.detach(queue);
    }

    /// A queue was loaded: what the journal has to know of it. If the commit fails, it must be loaded
    /// again.
    #[must_use]
    pub fn resume(&self, loaded: &recovery::Loaded, failures: u64) -> Commit {
        self.commit_queue.open(QueueLog::of(loaded), failures)
    }

    /// Has the writer let go of a queue that is to be loaded again. Once the commit has come, all events of the queue are
    /// durable, and the writer writes nothing of it until [`resume`](Self::resume).
    #[must_use]
    pub fn release(&self, queue: QueueId, failures: u64) -> Commit {
        self.commit_queue.release(queue, failures)
    }

    /// Takes the next events of a queue; `prev_rv` is the last event before them. It is called under
    /// the queue's lock, so it only pushes; for one queue, calls come in the order of the events.
    #[must_use]
    pub fn append(&self, queue: QueueId, prev_rv: Rv, events: Vec<Event>, failures: u64) -> Commit {
        self.commit_queue.append(queue, prev_rv, events, failures)
    }

    /// Queues that were found deleted, though their deletion was told as failed.
    pub fn found_deleted(&self, queues: Vec<QueueId>, failures: u64) {
        self.commit_queue.found_deleted(queues, failures);
    }

    /// The queue is gone; `last_rv` is its last event.
    #[must_use]
    pub fn delete(&self, queue: QueueId, meta: QueueMeta, last_rv: Rv, failures: u64) -> Commit {
        self.commit_queue.delete(queue, meta, last_rv, failures)
    }

    /// Nothing more comes: the writer commits what it has and ends. The store is closed in good order if
    /// all queues are whole, so not if the journal has failed since.
    pub fn close(&self, failures: u64) {
        self.commit_queue.close(failures);
    }
}
