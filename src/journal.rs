//! The journal makes events durable, in order, and a reply waits until its events are durable.
//!
//! All queues share one journal. Events that arrive while a commit runs are grouped into the next commit, so
//! all waiting calls share the cost of making it durable (group commit). The journal is not an object store
//! and contains no rule of a queue: it stores the engine's events and returns them after a restart.
//!
//! Architecture invariants:
//! - only a [`store`] knows how rows are stored, and only [`record`] knows what a row contains;
//! - a commit has exactly one outcome. If it fails, every commit that was queued behind it fails too.

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
use self::store::{Epoch, QueueId, Reader};
use crate::engine::Queue;
use crate::engine::delta::Rv;
use crate::engine::event::Event;
use crate::engine::snapshot::QueueState;

/// Why the journal does not confirm a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The journal failed. Whether the events are durable is unknown.
    #[error("the journal could not confirm the write")]
    OutcomeUnknown,
    /// The disk is full. Whether the events are durable is unknown.
    #[error("the journal's disk is full")]
    DiskFull,
    /// Too many bytes wait to be committed. Nothing was applied.
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

/// The outcome of a batch. It is set once: when the batch is durable, or when its durability is unknown.
type Outcome = SetOnce<Result<(), Error>>;

/// A point in the journal that a reply waits for. A clone waits for the same point.
#[derive(Clone, Debug, Default)]
pub struct Commit(Option<Arc<Outcome>>);

impl Commit {
    /// A commit that has succeeded already.
    #[must_use]
    pub const fn done() -> Self {
        Self(None)
    }

    /// A commit that has failed already.
    pub(crate) fn failed(error: Error) -> Self {
        Self(Some(Arc::new(SetOnce::new_with(Some(Err(error))))))
    }

    /// The outcome, or `None` while the commit is pending.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        self.0.as_ref().map_or(Some(Ok(())), |outcome| outcome.get().copied())
    }

    /// Whether both commits have the same outcome because they are one commit.
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
    /// The epoch. It grows each time the journal recovers from a failure.
    pub epoch: Epoch,
    /// Why the journal accepts no events at present.
    pub down: Option<Error>,
}

/// A loaded queue as the journal's checkpoint sees it.
pub trait Live: fmt::Debug + Send + Sync {
    /// Calls `look` with the queue, unless the queue is deleted or must be reloaded. Returns whether it did.
    fn with(&self, look: &mut dyn FnMut(&mut Queue)) -> bool;

    /// Marks the queue as lost: captured parts of it were not written, so the queue must be reloaded.
    fn lose(&self);
}

/// Receives the journal's measurements, for metrics.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A commit of this many events has succeeded.
    fn committed(&self, events: usize, took: Duration);
    /// A checkpoint has completed.
    fn checkpointed(&self, took: Duration);
    /// The size of all files, and how many events a replay would apply.
    fn sized(&self, bytes: u64, lag_events: u64);
}

/// A handle on the journal. Clones share one journal.
///
/// A change rests on the state that its caller has seen. Each call therefore names the [`Epoch`] in which
/// [`check`](Self::check) or [`admit`](Self::admit) succeeded before the caller looked at that state. If the
/// journal has failed since, earlier events may be missing, and the commit fails.
#[derive(Clone, Debug)]
pub struct Journal {
    commit_queue: Arc<CommitQueue>,
    reader: Arc<dyn Reader>,
    floor: Rv,
}

impl Journal {
    /// Reads the committed rows.
    #[must_use]
    pub fn reader(&self) -> &Arc<dyn Reader> {
        &self.reader
    }

    /// The largest event of any deleted queue when the store was opened. New queues start above it.
    #[must_use]
    pub fn floor(&self) -> Rv {
        self.floor
    }

    /// The current epoch. Every commit that failed before this epoch has its outcome.
    ///
    /// # Errors
    /// Why the journal accepts no events.
    pub fn check(&self) -> Result<Epoch, Error> {
        self.commit_queue.check()
    }

    /// As [`check`](Self::check), for a caller that is about to append. A caller must ask before it applies
    /// its change, so that a refused change has no effect.
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`Error::Backlog`].
    pub fn admit(&self) -> Result<Epoch, Error> {
        self.commit_queue.admit()
    }

    /// About how many bytes of memory wait to be committed.
    #[must_use]
    pub fn uncommitted_bytes(&self) -> usize {
        self.commit_queue.uncommitted_bytes()
    }

    /// Watches whether the journal accepts events.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.commit_queue.health()
    }

    /// Creates a queue. The queue is not checkpointed before [`attach`](Self::attach).
    #[must_use]
    pub fn create(&self, meta: QueueMeta, state: QueueState, epoch: Epoch) -> (QueueId, Commit) {
        self.commit_queue.create(meta, state, epoch)
    }

    /// Registers the loaded queue, so that checkpoints include it.
    pub fn attach(&self, queue: QueueId, live: Weak<dyn Live>) {
        self.commit_queue.attach(queue, live);
    }

    /// Removes the queue's registration.
    pub fn detach(&self, queue: QueueId) {
        self.commit_queue.detach(queue);
    }

    /// Accepts events of a loaded queue from now on. If the commit fails, the queue must be loaded again.
    #[must_use]
    pub fn resume(&self, loaded: &recovery::Loaded, epoch: Epoch) -> Commit {
        self.commit_queue.open(QueueLog::of(loaded), epoch)
    }

    /// Makes the writer let go of a queue that is about to be loaded again. Once the commit has succeeded, all events
    /// of the queue are durable, and the writer writes nothing of the queue until [`resume`](Self::resume).
    #[must_use]
    pub fn release(&self, queue: QueueId, epoch: Epoch) -> Commit {
        self.commit_queue.release(queue, epoch)
    }

    /// Appends the next events of a queue; `prev_rv` is the event before them. Callers hold the queue's lock,
    /// so that the calls for one queue arrive in the order of its events. Therefore `append` encodes nothing
    /// and never waits for the disk.
    #[must_use]
    pub fn append(&self, queue: QueueId, prev_rv: Rv, events: Vec<Event>, epoch: Epoch) -> Commit {
        self.commit_queue.append(queue, prev_rv, events, epoch)
    }

    /// Reports queues that a reload found deleted although the commit of their deletion had failed.
    pub fn found_deleted(&self, queues: Vec<QueueId>, epoch: Epoch) {
        self.commit_queue.found_deleted(queues, epoch);
    }

    /// Deletes a queue; `last_rv` is its last event.
    #[must_use]
    pub fn delete(&self, queue: QueueId, meta: QueueMeta, last_rv: Rv, epoch: Epoch) -> Commit {
        self.commit_queue.delete(queue, meta, last_rv, epoch)
    }

    /// Ends the journal: the writer commits the remaining events and stops. It marks the store as cleanly
    /// closed only if every queue is intact, that is, if the journal is still in `epoch`.
    pub fn close(&self, epoch: Epoch) {
        self.commit_queue.close(epoch);
    }
}
