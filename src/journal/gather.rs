//! Where events gather while a commit runs: in batches, each of which is one commit.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::books::{Book, Deleted};
use super::store::{QueueId, QueueRow};
use super::{Commit, Error, Health, Live, Naming, Outcome, record};
use crate::engine::delta::Rv;
use crate::engine::event::Event;
use crate::engine::snapshot::QueueState;

/// A batch takes no more once it holds about this many bytes: a commit of it takes a few milliseconds.
const BATCH_BYTES: usize = 1 << 20;

/// Something for the writer, in the order in which it came.
#[derive(Debug)]
pub(super) enum Op {
    /// A queue came into being, perhaps behind one of its name that is gone.
    Create { row: QueueRow, book: Box<Book>, supersedes: Option<QueueId> },
    /// A queue was loaded.
    Open(Box<Book>),
    /// Events of a queue, and the last one before them.
    Append { queue: QueueId, prev_rv: Rv, events: Vec<Event> },
    /// A queue is gone.
    Delete { row: QueueRow },
    /// Queues that were gone already.
    FoundDeleted(Vec<Deleted>),
}

/// What is committed together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) ops: Vec<Op>,
    bytes: usize,
    outcome: Arc<Outcome>,
}

impl Batch {
    /// Takes something in that is about so many bytes in the journal.
    fn take(&mut self, op: Op, bytes: usize) -> Commit {
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
    }
}

/// The numbers from which queues are numbered on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    /// The largest id of a queue so far.
    pub queue: u32,
    /// The largest version of a queue so far.
    pub version: u64,
}

/// Between those who append and the one who writes.
#[derive(Debug)]
pub(super) struct Gathering {
    state: Mutex<State>,
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

impl Gathering {
    pub(super) fn new(numbers: Numbers) -> Self {
        let state = State { batches: VecDeque::new(), numbers, down: None, failures: 0, closed: None };
        Self {
            state: Mutex::new(state),
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

    pub(super) fn open(&self, book: Book, failures: u64) -> Commit {
        self.push_to(&mut self.lock(), Op::Open(Box::new(book)), 0, failures)
    }

    pub(super) fn append(&self, queue: QueueId, prev_rv: Rv, events: Vec<Event>, failures: u64) -> Commit {
        // Counted before: all queues share the lock.
        let bytes = events.iter().map(record::bytes_about).sum();
        self.push_to(&mut self.lock(), Op::Append { queue, prev_rv, events }, bytes, failures)
    }

    pub(super) fn create(
        &self,
        naming: Naming,
        content: &QueueState,
        supersedes: Option<QueueId>,
        failures: u64,
    ) -> (QueueId, Commit) {
        let mut state = self.lock();
        state.numbers.queue += 1;
        state.numbers.version += 1;
        let identity = naming.identity(QueueId(state.numbers.queue), state.numbers.version);
        let row = record::queue_row(&identity, content);
        let (id, bytes) = (identity.id, row.state.len());
        let book = Box::new(Book::new(identity, content.rv, content.config.retention));
        (id, self.push_to(&mut state, Op::Create { row, book, supersedes }, bytes, failures))
    }

    pub(super) fn found_deleted(&self, queues: Vec<Deleted>, failures: u64) {
        // If this fails, they are found again.
        let _ = self.push_to(&mut self.lock(), Op::FoundDeleted(queues), 0, failures);
    }

    pub(super) fn delete(&self, queue: QueueId, naming: Naming, last_rv: Rv, failures: u64) -> Commit {
        let mut state = self.lock();
        state.numbers.version += 1;
        let identity = naming.identity(queue, state.numbers.version);
        let row = record::deleted_queue_row(&identity, last_rv);
        self.detach(queue);
        self.push_to(&mut state, Op::Delete { row }, 0, failures)
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
        let mut batch = Batch::default();
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
