//! The journal as its callers see it.

use std::sync::{Arc, Weak};

use deltaq_engine::event::Event;
use deltaq_engine::id::Rv;
use deltaq_engine::snapshot::QueueState;
use deltaq_engine::time::Time;
use deltaq_runtime::clock::Clock;
use tokio::sync::watch;

use super::commit::{Commit, Error, Health};
use super::commit_queue::CommitQueue;
use super::hooks::Live;
use super::queue_log::{QueueLog, QueueMeta};
use super::recovery::Loaded;
use super::store::{Epoch, QueueId, Reader};

/// A handle on the journal. Clones share one journal.
///
/// A change rests on the state that its caller has seen. Each call therefore names the [`Epoch`] in which
/// [`check`](Self::check) or [`admit`](Self::admit) succeeded before the caller looked at that state. If the
/// journal has failed since, earlier events may be missing, and the commit fails.
#[derive(Clone, Debug)]
pub struct Journal {
    pub(super) commit_queue: Arc<CommitQueue>,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) floor: Rv,
    pub(super) clock: Clock,
    /// What the clock of the database showed, and the monotonic clock then.
    pub(super) database_clock: Option<(Time, u64)>,
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

    /// The present time by the clock that all writers of the store share: that of the database or, if the store has none, that of the
    /// machine.
    #[must_use]
    pub fn wall(&self) -> Time {
        match self.database_clock {
            Some((wall, monotonic_us)) => wall.plus(self.clock.since(monotonic_us)),
            None => Time::from_micros(self.clock.wall_us()),
        }
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
    /// As [`check`](Self::check), [`Error::Backlog`] and [`Error::Closing`].
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
    pub fn resume(&self, loaded: &Loaded, epoch: Epoch) -> Commit {
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

    /// Accepts no more changes: [`admit`](Self::admit) fails from now on. Changes that were admitted before may still append.
    pub fn begin_closing(&self) {
        self.commit_queue.begin_closing();
    }

    /// Ends the journal: the writer commits the remaining events and stops. It marks the store as cleanly
    /// closed only if every queue is intact, that is, if the journal is still in `epoch`.
    pub fn close(&self, epoch: Epoch) {
        self.commit_queue.close(epoch);
    }
}
