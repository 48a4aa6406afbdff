//! The queue between the callers that append and the writer.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_engine::event::{Event, EventKind};
use deltaq_engine::id::Rv;
use deltaq_engine::snapshot::QueueState;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::commit::{Author, Commit, Error, Health};
use super::hooks::Live;
use super::queue_log::{QueueLog, QueueMeta};
use super::record;
use super::recovery::Loaded;
use super::store::{Epoch, Numbers, QueueId, SERIES_ROWS_MAX, SeriesRow};
use super::turns::{Batch, Op, Turns};

/// The changes of one token may take this many times as much memory as is free.
const SHARE: usize = 3;

/// Approximate size of a queue's row in bytes, without its schema.
const QUEUE_ROW_BYTES: usize = 1 << 10;

/// Approximate size of a JSON pointer in a queue's settings, in bytes.
const POINTER_BYTES: usize = 64;

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
    /// The free bytes that the disk must have; 0 while it has them.
    lacking: AtomicU64,
    /// The free bytes of the disk; `u64::MAX` if they are not known.
    disk_free: AtomicU64,
    lives: Mutex<HashMap<QueueId, Weak<dyn Live>>>,
    batch_ready: Notify,
    /// Wakes the followers that wait until fewer bytes are uncommitted.
    committed: Notify,
    closing: CancellationToken,
    /// The rows of series that wait to be written.
    series: Mutex<PendingSeries>,
    health: watch::Sender<Health>,
}

#[derive(Debug)]
struct Pending {
    turns: Turns,
    numbers: Numbers,
    down: Option<Error>,
    epoch: Epoch,
    /// Whether no more events are accepted.
    is_closing: bool,
    /// Set at the close: the epoch in which every queue was intact.
    closed: Option<Epoch>,
}

/// Changes to the series. Invariant: the number of rows is limited by the number of queues, because they are of the hours in which
/// the queues were measured since the store last accepted writes.
#[derive(Debug, Default)]
struct PendingSeries {
    rows: BTreeMap<(u32, QueueId), Vec<u8>>,
    /// The rows of other hours are to be removed.
    hours: Option<Range<u32>>,
}

impl CommitQueue {
    pub(super) fn new(numbers: Numbers, epoch: Epoch, uncommitted_max: usize) -> Self {
        let turns = Turns::default();
        let uncommitted = turns.held().clone();
        let state = Pending { turns, numbers, down: None, epoch, is_closing: false, closed: None };
        Self {
            state: Mutex::new(state),
            uncommitted,
            uncommitted_max,
            lacking: AtomicU64::new(0),
            disk_free: AtomicU64::new(u64::MAX),
            lives: Mutex::default(),
            batch_ready: Notify::new(),
            committed: Notify::new(),
            closing: CancellationToken::new(),
            series: Mutex::default(),
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

    /// Like [`check`](Self::check), for an author who is about to append. A caller must check before it applies its
    /// change, so that a refused change has no effect. The limit on uncommitted bytes is therefore checked before the
    /// append, and the batches can exceed it by one change per thread. The changes of one token may take three times
    /// as much memory as is free, so that others have room.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check), [`Error::DiskLow`], [`Error::Backlog`], [`Error::BacklogOfToken`] or [`Error::Closing`].
    pub fn admit(&self, author: &Author) -> Result<Epoch, Error> {
        let state = self.lock();
        state.down.map_or(Ok(()), Err)?;
        if state.is_closing {
            return Err(Error::Closing);
        }
        self.check_space()?;
        let free = self.uncommitted_max.saturating_sub(self.uncommitted_bytes());
        if free == 0 {
            return Err(Error::Backlog { limit: self.uncommitted_max });
        }
        let share = free.saturating_mul(SHARE);
        if author.token.is_some() && state.turns.held_by(author) >= share {
            return Err(Error::BacklogOfToken { limit: share });
        }
        Ok(state.epoch)
    }

    /// Records how many bytes the disk has free. With less than `min_free_bytes`, changes are refused. The journal itself goes on,
    /// so checkpoints can make room.
    pub fn set_disk_free(&self, free_bytes: u64, min_free_bytes: u64) {
        self.disk_free.store(free_bytes, Ordering::Relaxed);
        let is_low = free_bytes < min_free_bytes;
        self.lacking.store(if is_low { min_free_bytes } else { 0 }, Ordering::Relaxed);
    }

    /// The free bytes of the disk; `None` if they are not known.
    pub fn disk_free(&self) -> Option<u64> {
        Some(self.disk_free.load(Ordering::Relaxed)).filter(|free| *free != u64::MAX)
    }

    /// Whether the disk has the free bytes that it must have.
    ///
    /// # Errors
    /// [`Error::DiskLow`].
    pub fn check_space(&self) -> Result<(), Error> {
        match self.lacking.load(Ordering::Relaxed) {
            0 => Ok(()),
            min_free_bytes => Err(Error::DiskLow { min_free_bytes }),
        }
    }

    /// Waits until less than half of the limit on uncommitted bytes is used. Followers wait here, so that calls always
    /// have room.
    pub async fn is_half_empty(&self) {
        loop {
            let committed = self.committed.notified();
            if self.uncommitted_bytes() < self.uncommitted_max.div_ceil(2) {
                return;
            }
            committed.await;
        }
    }

    /// Wakes those who wait until fewer bytes are uncommitted.
    pub(super) fn note_committed(&self) {
        self.committed.notify_waiters();
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
        self.push_alone(&mut self.lock(), Op::Open(Box::new(QueueLog::of(loaded))), 0, epoch)
    }

    /// Makes the writer release a queue that is about to be loaded again. Once the commit has succeeded, all events
    /// of the queue are durable, and the writer writes nothing for the queue until [`resume`](Self::resume).
    #[must_use]
    pub fn release(&self, queue: QueueId, epoch: Epoch) -> Commit {
        self.push_alone(&mut self.lock(), Op::Release(queue), 0, epoch)
    }

    /// Appends the next events of a queue; `prev_rv` is the event before them and `previous` their commit. Callers hold
    /// the queue's lock, so that the calls for one queue arrive in the order of its events. `append` therefore does no
    /// encoding and never waits for the disk.
    #[must_use]
    pub fn append(
        &self,
        queue: QueueId,
        prev_rv: Rv,
        events: Vec<Event>,
        epoch: Epoch,
        (author, previous): (&Author, &Commit),
    ) -> Commit {
        // Computed without holding the lock, because all queues share it.
        let bytes = events.iter().map(bytes_of).sum();
        let append = Op::Append { queue, prev_rv, events };
        self.push(&mut self.lock(), append, bytes, epoch, (author, previous))
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
        let log = Box::new(QueueLog::new(identity, content.rv, &content.config));
        let create = Op::Create { log, state: Box::new(content) };
        (id, self.push_alone(&mut state, create, bytes, epoch))
    }

    /// Reports queues that a reload found to be deleted although the commit of the deletion had failed.
    pub fn found_deleted(&self, queues: Vec<QueueId>, epoch: Epoch) {
        // If this batch fails, the next reload finds the same queues.
        let _ = self.push_alone(&mut self.lock(), Op::FoundDeleted(queues), 0, epoch);
    }

    /// Deletes a queue; `last_rv` is its last event.
    #[must_use]
    pub fn delete(&self, queue: QueueId, meta: QueueMeta, last_rv: Rv, epoch: Epoch) -> Commit {
        let mut state = self.lock();
        state.numbers.version += 1;
        let identity = Box::new(meta.identity(queue, state.numbers.version));
        self.detach(queue);
        self.push_alone(&mut state, Op::Delete { identity, last_rv }, QUEUE_ROW_BYTES, epoch)
    }

    /// Adds an operation of the server that creates, opens or ends a queue.
    fn push_alone(&self, state: &mut Pending, op: Op, bytes: usize, epoch: Epoch) -> Commit {
        self.push(state, op, bytes, epoch, (&Author::default(), &Commit::done()))
    }

    /// Adds an operation to a batch. The commit fails at once if the journal is down. It also fails at once if `epoch`
    /// has ended, because the operation may depend on lost events.
    fn push(
        &self,
        state: &mut Pending,
        op: Op,
        bytes: usize,
        epoch: Epoch,
        (author, previous): (&Author, &Commit),
    ) -> Commit {
        if let Some(error) = state.down {
            return Commit::failed(error);
        }
        if state.epoch != epoch {
            return Commit::failed(Error::OutcomeUnknown);
        }
        let newest = state.turns.newest();
        let commit = state.turns.push(op, bytes, author, previous);
        if state.turns.newest() > newest {
            self.batch_ready.notify_one();
        }
        commit
    }

    /// Replaces rows of series when there is time for it. Nobody waits until they are durable, and a crash may lose them.
    pub fn write_series(&self, rows: impl IntoIterator<Item = SeriesRow>) {
        let mut series = self.series.lock();
        series.rows.extend(rows.into_iter().map(|row| ((row.hour, row.queue), row.content)));
    }

    /// Removes the rows of series whose hours are not in this range when there is time for it.
    pub fn keep_series(&self, hours: Range<u32>) {
        let mut series = self.series.lock();
        series.rows.retain(|(hour, _), _| hours.contains(hour));
        series.hours = Some(hours);
    }

    /// Takes some of the changes to the series.
    pub(super) fn take_series(&self) -> (Vec<SeriesRow>, Option<Range<u32>>) {
        let mut series = self.series.lock();
        let first = std::iter::from_fn(|| series.rows.pop_first());
        let row = |((hour, queue), content)| SeriesRow { hour, queue, content };
        let rows = first.take(SERIES_ROWS_MAX).map(row).collect();
        (rows, series.hours.take())
    }

    /// Returns changes that could not be written. Newer ones stay.
    pub(super) fn put_back_series(&self, rows: Vec<SeriesRow>, hours: Option<Range<u32>>) {
        let mut series = self.series.lock();
        for SeriesRow { hour, queue, content } in rows {
            series.rows.entry((hour, queue)).or_insert(content);
        }
        series.hours = series.hours.take().or(hours);
    }

    /// The number of the newest batch.
    pub(super) fn newest_batch(&self) -> u64 {
        self.lock().turns.newest()
    }

    /// Whether a batch waits whose number is at most `number`.
    pub(super) fn has_batches_up_to(&self, number: u64) -> bool {
        self.lock().turns.has_up_to(number)
    }

    /// Takes the next batch. Later operations go into another batch.
    pub(super) fn take(&self) -> Option<Batch> {
        self.lock().turns.take()
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
            state.turns.take_all()
        };
        // A caller that sees its commit fail must already find the journal down.
        for failed in batch.into_iter().chain(waiting) {
            failed.end(Err(error));
        }
        self.health.send_modify(|health| health.down = Some(error));
        self.note_committed();
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
        EventKind::Configured { config, .. } => config_bytes(config),
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
