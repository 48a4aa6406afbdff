//! The queue of batches between the callers that append and the writer. Each batch becomes one commit.

use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_engine::event::{Event, EventKind};
use deltaq_engine::id::Rv;
use deltaq_engine::snapshot::QueueState;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::commit::{Commit, Error, Health, Outcome};
use super::hooks::Live;
use super::queue_log::{QueueLog, QueueMeta};
use super::record;
use super::record::Identity;
use super::recovery::Loaded;
use super::store::{Epoch, Numbers, QueueId};

/// A batch is full when it holds about this many bytes. Its commit then takes a few milliseconds.
const BATCH_BYTES: usize = 1 << 20;

/// Approximate size of a queue's row in bytes, without its schema.
const QUEUE_ROW_BYTES: usize = 1 << 10;

/// Approximate size of a JSON pointer in a queue's settings, in bytes.
const POINTER_BYTES: usize = 64;

/// An operation for the writer, which applies operations in the order of their arrival.
#[derive(Debug)]
pub(super) enum Op {
    /// A queue was created.
    Create { log: Box<QueueLog>, state: Box<QueueState> },
    /// A queue was loaded.
    Open(Box<QueueLog>),
    /// Events of a queue, and the number of the event before them.
    Append { queue: QueueId, prev_rv: Rv, events: Vec<Event> },
    /// A queue was deleted.
    Delete { identity: Box<Identity>, last_rv: Rv },
    /// A queue is about to be loaded again. Until then, nothing more is written for it.
    Release(QueueId),
    /// A reload has found that these queues are deleted.
    FoundDeleted(Vec<QueueId>),
}

impl Op {
    /// Approximate memory of the operation in bytes, if its rows have `bytes` bytes of text.
    fn held_bytes(&self, bytes: usize) -> usize {
        let events = match self {
            Self::Append { events, .. } => events.len() * size_of::<Event>(),
            _ => 0,
        };
        size_of::<Self>() + bytes + events
    }
}

/// The operations of one commit.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) ops: Vec<Op>,
    /// Approximate size of the rows of `ops`, in bytes of text.
    bytes: usize,
    outcome: Arc<Outcome>,
    /// The part of `uncommitted` that belongs to this batch.
    held_bytes: usize,
    uncommitted: Arc<AtomicUsize>,
}

impl Batch {
    fn new(uncommitted: &Arc<AtomicUsize>) -> Self {
        let (ops, outcome, uncommitted) = (Vec::new(), Arc::default(), uncommitted.clone());
        Self { ops, bytes: 0, outcome, held_bytes: 0, uncommitted }
    }

    /// Adds an operation whose rows take about `bytes` bytes of text.
    fn push(&mut self, op: Op, bytes: usize) -> Commit {
        let held = op.held_bytes(bytes);
        self.held_bytes += held;
        self.uncommitted.fetch_add(held, Ordering::Relaxed);
        self.bytes += bytes;
        self.ops.push(op);
        Commit::of(&self.outcome)
    }

    /// Sets the outcome, unless the batch has one.
    pub(super) fn end(&self, outcome: Result<(), Error>) {
        let _first_wins = self.outcome.set(outcome);
    }
}

impl Drop for Batch {
    /// A batch that is dropped before its outcome is set has an unknown outcome.
    fn drop(&mut self) {
        self.end(Err(Error::OutcomeUnknown));
        self.uncommitted.fetch_sub(self.held_bytes, Ordering::Relaxed);
    }
}

/// The batches that wait for the writer, and whether more are accepted.
///
/// A change depends on the state that its caller has seen. Each call therefore passes the [`Epoch`] that
/// [`check`](Self::check) or [`admit`](Self::admit) returned before the caller read that state. If the journal has
/// failed since then, earlier events may be missing, and the commit fails.
#[derive(Debug)]
pub struct CommitQueue {
    state: Mutex<Pending>,
    /// Approximate memory of all batches in bytes, including the batch that is being committed.
    uncommitted: Arc<AtomicUsize>,
    uncommitted_max: usize,
    lives: Mutex<HashMap<QueueId, Weak<dyn Live>>>,
    batch_ready: Notify,
    closing: CancellationToken,
    health: watch::Sender<Health>,
}

#[derive(Debug)]
struct Pending {
    batches: VecDeque<Batch>,
    numbers: Numbers,
    down: Option<Error>,
    epoch: Epoch,
    /// Whether no more events are accepted.
    is_closing: bool,
    /// Set at the close: the epoch in which every queue was intact.
    closed: Option<Epoch>,
}

impl CommitQueue {
    pub(super) fn new(numbers: Numbers, epoch: Epoch, uncommitted_max: usize) -> Self {
        let state =
            Pending { batches: VecDeque::new(), numbers, down: None, epoch, is_closing: false, closed: None };
        Self {
            state: Mutex::new(state),
            uncommitted: Arc::default(),
            uncommitted_max,
            lives: Mutex::default(),
            batch_ready: Notify::new(),
            closing: CancellationToken::new(),
            health: watch::Sender::new(Health { epoch, down: None }),
        }
    }

    /// Returns a receiver that reports whether the journal accepts events.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// The current epoch. Every commit that failed before this epoch has its outcome.
    ///
    /// # Errors
    /// The reason why the journal accepts no events.
    pub fn check(&self) -> Result<Epoch, Error> {
        let state = self.lock();
        state.down.map_or(Ok(state.epoch), Err)
    }

    /// Like [`check`](Self::check), for a caller that is about to append. A caller must check before it applies its
    /// change, so that a refused change has no effect. The limit on uncommitted bytes is therefore checked before the
    /// append, and the batches can exceed it by one change per thread.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check), [`Error::Backlog`] or [`Error::Closing`].
    pub fn admit(&self) -> Result<Epoch, Error> {
        let epoch = {
            let state = self.lock();
            state.down.map_or(Ok(()), Err)?;
            if state.is_closing {
                return Err(Error::Closing);
            }
            state.epoch
        };
        let limit = self.uncommitted_max;
        if self.uncommitted_bytes() >= limit { Err(Error::Backlog { limit }) } else { Ok(epoch) }
    }

    /// Approximate number of bytes of memory that wait to be committed.
    #[must_use]
    pub fn uncommitted_bytes(&self) -> usize {
        self.uncommitted.load(Ordering::Relaxed)
    }

    /// Registers the loaded queue, so that checkpoints include it.
    pub fn attach(&self, queue: QueueId, live: Weak<dyn Live>) {
        self.lives().insert(queue, live);
    }

    /// Ends the registration of the queue.
    pub fn detach(&self, queue: QueueId) {
        self.lives().remove(&queue);
    }

    /// The loaded queue, while it is registered.
    pub(super) fn live(&self, queue: QueueId) -> Option<Arc<dyn Live>> {
        self.lives().get(&queue).and_then(Weak::upgrade)
    }

    /// Accepts the events of a loaded queue from now on. If the commit fails, the queue must be loaded again.
    #[must_use]
    pub fn resume(&self, loaded: &Loaded, epoch: Epoch) -> Commit {
        self.push(&mut self.lock(), Op::Open(Box::new(QueueLog::of(loaded))), 0, epoch)
    }

    /// Makes the writer release a queue that is about to be loaded again. Once the commit has succeeded, all events
    /// of the queue are durable, and the writer writes nothing for the queue until [`resume`](Self::resume).
    #[must_use]
    pub fn release(&self, queue: QueueId, epoch: Epoch) -> Commit {
        self.push(&mut self.lock(), Op::Release(queue), 0, epoch)
    }

    /// Appends the next events of a queue; `prev_rv` is the event before them. Callers hold the queue's lock, so that
    /// the calls for one queue arrive in the order of its events. `append` therefore does no encoding and never waits
    /// for the disk.
    #[must_use]
    pub fn append(&self, queue: QueueId, prev_rv: Rv, events: Vec<Event>, epoch: Epoch) -> Commit {
        // Computed without holding the lock, because all queues share it.
        let bytes = events.iter().map(bytes_of).sum();
        self.push(&mut self.lock(), Op::Append { queue, prev_rv, events }, bytes, epoch)
    }

    /// Creates a queue. The queue is not checkpointed before [`attach`](Self::attach).
    #[must_use]
    pub fn create(&self, meta: QueueMeta, content: QueueState, epoch: Epoch) -> (QueueId, Commit) {
        let bytes = QUEUE_ROW_BYTES + config_bytes(&content.config);
        let mut state = self.lock();
        state.numbers.queue += 1;
        state.numbers.version += 1;
        let identity = meta.identity(QueueId(state.numbers.queue), state.numbers.version);
        let id = identity.id;
        let log = Box::new(QueueLog::new(identity, content.rv, content.config.retention));
        let create = Op::Create { log, state: Box::new(content) };
        (id, self.push(&mut state, create, bytes, epoch))
    }

    /// Reports queues that a reload found to be deleted although the commit of the deletion had failed.
    pub fn found_deleted(&self, queues: Vec<QueueId>, epoch: Epoch) {
        // If this batch fails, the next reload finds the same queues.
        let _ = self.push(&mut self.lock(), Op::FoundDeleted(queues), 0, epoch);
    }

    /// Deletes a queue; `last_rv` is its last event.
    #[must_use]
    pub fn delete(&self, queue: QueueId, meta: QueueMeta, last_rv: Rv, epoch: Epoch) -> Commit {
        let mut state = self.lock();
        state.numbers.version += 1;
        let identity = Box::new(meta.identity(queue, state.numbers.version));
        self.detach(queue);
        self.push(&mut state, Op::Delete { identity, last_rv }, QUEUE_ROW_BYTES, epoch)
    }

    /// Adds an operation to the last batch. The commit fails at once if the journal is down. It also fails at once if
    /// `epoch` has ended, because the operation may depend on lost events.
    fn push(&self, state: &mut Pending, op: Op, bytes: usize, epoch: Epoch) -> Commit {
        if let Some(error) = state.down {
            return Commit::failed(error);
        }
        if state.epoch != epoch {
            return Commit::failed(Error::OutcomeUnknown);
        }
        if let Some(batch) = state.batches.back_mut().filter(|batch| batch.bytes + bytes <= BATCH_BYTES) {
            return batch.push(op, bytes);
        }
        let mut batch = Batch::new(&self.uncommitted);
        let commit = batch.push(op, bytes);
        state.batches.push_back(batch);
        self.batch_ready.notify_one();
        commit
    }

    /// Number of batches that wait for the writer.
    pub(super) fn len(&self) -> usize {
        self.lock().batches.len()
    }

    /// Takes the oldest batch. Later operations go into another batch.
    pub(super) fn take(&self) -> Option<Batch> {
        self.lock().batches.pop_front()
    }

    /// Waits until a batch is ready or the queue is closed, but at most for the time `longest`.
    pub(super) async fn wait(&self, longest: Duration) {
        tokio::select! {
            biased;
            () = self.batch_ready.notified() => {}
            () = tokio::time::sleep(longest) => {}
        }
    }

    /// Handles a failure of the store: fails `batch`, all waiting batches and all later operations.
    pub(super) fn go_down(&self, error: Error, batch: Option<Batch>) {
        let waiting = {
            let mut state = self.lock();
            state.down = Some(error);
            std::mem::take(&mut state.batches)
        };
        // A caller that sees its commit fail must already find the journal down.
        for failed in batch.into_iter().chain(waiting) {
            failed.end(Err(error));
        }
        self.health.send_modify(|health| health.down = Some(error));
    }

    /// Accepts operations again, in a new epoch of the store.
    pub(super) fn come_up(&self, epoch: Epoch) {
        {
            let mut state = self.lock();
            state.epoch = epoch;
            state.down = None;
        }
        self.health.send_replace(Health { epoch, down: None });
    }

    /// Stops accepting changes: [`admit`](Self::admit) fails from now on. Changes that were admitted earlier may
    /// still be appended.
    pub fn begin_closing(&self) {
        self.lock().is_closing = true;
    }

    /// Ends the journal: the writer commits the remaining events and stops. It marks the store as cleanly closed only
    /// if every queue is intact, which means that the journal is still in `epoch`.
    pub fn close(&self, epoch: Epoch) {
        self.lock().closed = Some(epoch);
        self.closing.cancel();
        self.batch_ready.notify_one();
    }

    /// Cancelled by [`close`](Self::close).
    pub(super) const fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    pub(super) fn is_down(&self) -> bool {
        self.lock().down.is_some()
    }

    /// The epoch in which rows are written.
    pub(super) fn epoch(&self) -> Epoch {
        self.lock().epoch
    }

    /// Whether every queue is intact: no commit has failed since the epoch that was passed to `close`.
    pub(super) fn is_intact(&self) -> bool {
        let state = self.lock();
        state.down.is_none() && state.closed == Some(state.epoch)
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.state.lock()
    }

    fn lives(&self) -> MutexGuard<'_, HashMap<QueueId, Weak<dyn Live>>> {
        self.lives.lock()
    }
}

/// Approximate size of an event in bytes of text.
fn bytes_of(event: &Event) -> usize {
    let config_bytes = match &event.kind {
        EventKind::Configured { config } => config_bytes(config),
        _ => 0,
    };
    record::bytes_about(event) + config_bytes
}

/// Approximate size of the schema and the pointers of a queue's settings, in bytes of text.
fn config_bytes(config: &Config) -> usize {
    let Some(admission) = &config.admission else { return 0 };
    let schema_bytes = admission.schema_text().map_or(0, str::len);
    schema_bytes + admission.prune.len() * POINTER_BYTES
}
