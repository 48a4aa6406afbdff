//! Where events gather while a commit runs: in batches, each of which is one commit.

use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::queue_log::QueueLog;
use super::record::Identity;
use super::store::{Numbers, QueueId};
use super::{Commit, Error, Health, Live, Outcome, QueueMeta, record};
use crate::engine::config::Config;
use crate::engine::delta::Rv;
use crate::engine::event::{Event, EventKind};
use crate::engine::snapshot::QueueState;

/// A batch takes no more once it holds about this many bytes: a commit of it takes a few milliseconds.
const BATCH_BYTES: usize = 1 << 20;

/// About how many bytes the row of a queue takes, beside its schema.
const QUEUE_ROW_BYTES: usize = 1 << 10;
/// About how many bytes a pointer in the settings takes.
const POINTER_BYTES: usize = 64;

/// Something for the writer, in the order in which it came.
#[derive(Debug)]
pub(super) enum Op {
    /// A queue was created.
    Create { log: Box<QueueLog>, state: Box<QueueState> },
    /// A queue was loaded.
    Open(Box<QueueLog>),
    /// Events of a queue, and the last one before them.
    Append { queue: QueueId, prev_rv: Rv, events: Vec<Event> },
    /// A queue is gone.
    Delete { identity: Box<Identity>, last_rv: Rv },
    /// A queue is to be loaded again, and nothing more is written of it until then.
    Release(QueueId),
    /// Queues that were deleted already.
    FoundDeleted(Vec<QueueId>),
}

impl Op {
    /// About how many bytes of memory the operation holds, beside the `bytes` of text that its rows take.
    fn held_bytes(&self, bytes: usize) -> usize {
        let rest = match self {
            Self::Append { events, .. } => events.len() * size_of::<Event>(),
            _ => 0,
        };
        size_of::<Self>() + bytes + rest
    }
}

/// The operations of one commit.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) ops: Vec<Op>,
    bytes: usize,
    outcome: Arc<Outcome>,
    /// How much of `uncommitted` is held by this batch.
    held_bytes: usize,
    uncommitted: Arc<AtomicUsize>,
}

impl Batch {
    fn new(uncommitted: &Arc<AtomicUsize>) -> Self {
        let (ops, outcome, uncommitted) = (Vec::new(), Arc::default(), uncommitted.clone());
        Self { ops, bytes: 0, outcome, held_bytes: 0, uncommitted }
    }

    /// Adds an operation whose rows take about `bytes` bytes of text.
    fn take(&mut self, op: Op, bytes: usize) -> Commit {
        let held = op.held_bytes(bytes);
        self.held_bytes += held;
        self.uncommitted.fetch_add(held, Ordering::Relaxed);
        self.bytes += bytes;
        self.ops.push(op);
        Commit(Some(self.outcome.clone()))
    }

    /// Tells all who wait for the batch what became of it.
    pub(super) fn end(&self, outcome: Result<(), Error>) {
        let _once = self.outcome.set(outcome);
    }
}

impl Drop for Batch {
    /// A batch that nobody will write any more is not durable for all that is known.
    fn drop(&mut self) {
        self.end(Err(Error::OutcomeUnknown));
        self.uncommitted.fetch_sub(self.held_bytes, Ordering::Relaxed);
    }
}

/// Between those who append and the one who writes.
#[derive(Debug)]
pub(super) struct CommitQueue {
    state: Mutex<State>,
    /// About how many bytes all batches hold, the one that is being committed included.
    uncommitted: Arc<AtomicUsize>,
    uncommitted_max: usize,
    lives: Mutex<HashMap<QueueId, Weak<dyn Live>>>,
    work: Notify,
    closing: CancellationToken,
    health: watch::Sender<Health>,
}

#[derive(Debug)]
struct State {
    batches: VecDeque<Batch>,
    numbers: Numbers,
    down: Option<Error>,
    failures: u64,
    /// How many failures were made good when it was closed.
    closed: Option<u64>,
}

impl CommitQueue {
    pub(super) fn new(numbers: Numbers, uncommitted_max: usize) -> Self {
        let state = State { batches: VecDeque::new(), numbers, down: None, failures: 0, closed: None };
        Self {
            state: Mutex::new(state),
            uncommitted: Arc::default(),
            uncommitted_max,
            lives: Mutex::default(),
            work: Notify::new(),
            closing: CancellationToken::new(),
            health: watch::Sender::new(Health { failures: 0, down: None }),
        }
    }

    pub(super) fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    pub(super) fn check(&self) -> Result<u64, Error> {
        let state = self.lock();
        state.down.map_or(Ok(state.failures), Err)
    }

    /// As [`check`](Self::check), and there is room for more events.
    pub(super) fn admit(&self) -> Result<u64, Error> {
        let failures = self.check()?;
        let limit = self.uncommitted_max;
        if self.uncommitted_bytes() >= limit { Err(Error::Backlog { limit }) } else { Ok(failures) }
    }

    /// About how many bytes wait to be committed.
    pub(super) fn uncommitted_bytes(&self) -> usize {
        self.uncommitted.load(Ordering::Relaxed)
    }

    pub(super) fn attach(&self, queue: QueueId, live: Weak<dyn Live>) {
        self.lives().insert(queue, live);
    }

    pub(super) fn detach(&self, queue: QueueId) {
        self.lives().remove(&queue);
    }

    /// The queue, while it runs.
    pub(super) fn live(&self, queue: QueueId) -> Option<Arc<dyn Live>> {
        self.lives().get(&queue).and_then(Weak::upgrade)
    }

    pub(super) fn open(&self, log: QueueLog, failures: u64) -> Commit {
        self.push_to(&mut self.lock(), Op::Open(Box::new(log)), 0, failures)
    }

    pub(super) fn release(&self, queue: QueueId, failures: u64) -> Commit {
        self.push_to(&mut self.lock(), Op::Release(queue), 0, failures)
    }

    pub(super) fn append(&self, queue: QueueId, prev_rv: Rv, events: Vec<Event>, failures: u64) -> Commit {
        // Counted before: all queues share the lock.
        let bytes = events.iter().map(bytes_of).sum();
        self.push_to(&mut self.lock(), Op::Append { queue, prev_rv, events }, bytes, failures)
    }

    pub(super) fn create(&self, meta: QueueMeta, content: QueueState, failures: u64) -> (QueueId, Commit) {
        let bytes = QUEUE_ROW_BYTES + config_bytes(&content.config);
        let mut state = self.lock();
        state.numbers.queue += 1;
        state.numbers.version += 1;
        let identity = meta.identity(QueueId(state.numbers.queue), state.numbers.version);
        let id = identity.id;
        let log = Box::new(QueueLog::new(identity, content.rv, content.config.retention));
        let create = Op::Create { log, state: Box::new(content) };
        (id, self.push_to(&mut state, create, bytes, failures))
    }

    pub(super) fn found_deleted(&self, queues: Vec<QueueId>, failures: u64) {
        // If this fails, they are found again.
        let _ = self.push_to(&mut self.lock(), Op::FoundDeleted(queues), 0, failures);
    }

    pub(super) fn delete(&self, queue: QueueId, meta: QueueMeta, last_rv: Rv, failures: u64) -> Commit {
        let mut state = self.lock();
        state.numbers.version += 1;
        let identity = meta.identity(queue, state.numbers.version);
        self.detach(queue);
        let delete = Op::Delete { identity: Box::new(identity), last_rv };
        self.push_to(&mut state, delete, QUEUE_ROW_BYTES, failures)
    }

    /// Puts something into the next batch. While the journal is down its commit has failed already; and
    /// so it has if the journal failed more than `failures` times, because it may rest on what was lost.
    fn push_to(&self, state: &mut State, op: Op, bytes: usize, failures: u64) -> Commit {
        if let Some(error) = state.down {
            return Commit::failed(error);
        }
        if state.failures != failures {
            return Commit::failed(Error::OutcomeUnknown);
        }
        if let Some(batch) = state.batches.back_mut().filter(|batch| batch.bytes + bytes <= BATCH_BYTES) {
            return batch.take(op, bytes);
        }
        let mut batch = Batch::new(&self.uncommitted);
        let commit = batch.take(op, bytes);
        state.batches.push_back(batch);
        self.work.notify_one();
        commit
    }

    /// How many batches wait for the writer.
    pub(super) fn len(&self) -> usize {
        self.lock().batches.len()
    }

    /// The oldest batch. From now on what comes gathers in another one.
    pub(super) fn take(&self) -> Option<Batch> {
        self.lock().batches.pop_front()
    }

    /// Waits until a batch has come or nothing more will, at most `longest`.
    pub(super) async fn wait(&self, longest: Duration) {
        tokio::select! {
            biased;
            () = self.work.notified() => {}
            () = tokio::time::sleep(longest) => {}
        }
    }

    /// Nothing can be written: everything that has gathered, and that comes, fails with `batch`.
    pub(super) fn go_down(&self, error: Error, batch: Option<Batch>) {
        let gathered = {
            let mut state = self.lock();
            state.failures += u64::from(state.down.is_none());
            state.down = Some(error);
            std::mem::take(&mut state.batches)
        };
        // Whoever hears of a failure finds the journal down already.
        for failed in batch.into_iter().chain(gathered) {
            failed.end(Err(error));
        }
        self.health.send_modify(|health| {
            health.failures += u64::from(health.down.is_none());
            health.down = Some(error);
        });
    }

    /// Events are taken again.
    pub(super) fn come_up(&self) {
        self.lock().down = None;
        self.health.send_modify(|health| health.down = None);
    }

    pub(super) fn close(&self, failures: u64) {
        self.lock().closed = Some(failures);
        self.closing.cancel();
        self.work.notify_one();
    }

    /// Cancelled once nothing more comes.
    pub(super) const fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// Whether it takes nothing at present.
    pub(super) fn is_down(&self) -> bool {
        self.lock().down.is_some()
    }

    /// Whether it takes events, and took all that came before it was closed.
    pub(super) fn is_in_good_order(&self) -> bool {
        let state = self.lock();
        state.down.is_none() && state.closed == Some(state.failures)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lives(&self) -> MutexGuard<'_, HashMap<QueueId, Weak<dyn Live>>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// About how many bytes of text an event takes.
fn bytes_of(event: &Event) -> usize {
    let config_bytes = match &event.kind {
        EventKind::Configured { config } => config_bytes(config),
        _ => 0,
    };
    record::bytes_about(event) + config_bytes
}

/// About how many bytes of text the part of the settings takes that has no fixed size.
fn config_bytes(config: &Config) -> usize {
    let Some(admission) = &config.admission else { return 0 };
    admission.schema().map_or(0, |schema| schema.as_str().len()) + admission.prune().len() * POINTER_BYTES
}
