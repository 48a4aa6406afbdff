//! The one who writes: commits batch after batch, runs the checkpoint beside them, trims what is no
//! longer needed, and brings the journal back when it has failed.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::checkpointer::Checkpoint;
use super::commit_queue::{Batch, CommitQueue};
use super::grouped_batch::{GroupedBatch, QueueLogs};
use super::queue_log::QueueLog;
use super::recovery::{self, Contents, on_own_thread};
use super::store::{self, Opening, QueueId, Reader, Store, Writes};
use super::{Error, Journal, Observer, WriterOptions};
use crate::causes::with_causes;
use crate::clock::Clock;
use crate::engine::delta::Rv;
use crate::engine::time::Time;

/// How often the files are looked after.
const UPKEEP_PERIOD: Duration = Duration::from_secs(1);
/// While commits wait, they get this many times as much of the writer's time as a checkpoint. Each time
/// the journal has grown anew by what lets a checkpoint begin, they get half of that, so that a load that
/// never pauses does not leave the checkpoint ever further behind.
const COMMIT_SHARE: u32 = 3;
/// How long a journal that has failed waits before it tries again: this, then twice as long each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest of these waits.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Rows of a deleted queue that are removed at a time.
const SWEPT_ROWS: u32 = 1_000;
/// Deleted queues that are looked at for one that has left rows.
const SWEPT_QUEUES: usize = 64;
/// After a checkpoint that failed, none begins for this long, and twice as long each time.
const CHECKPOINT_WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest of these waits.
const CHECKPOINT_WAIT_MAX: Duration = Duration::from_mins(1);
/// Queues that are trimmed at a time, beside those that grow.
const TRIMMED_QUEUES: usize = 16;

/// Writes what gathers, until the journal is closed.
#[derive(Debug)]
pub struct Writer<S> {
    store: S,
    commit_queue: Arc<CommitQueue>,
    observer: Arc<dyn Observer>,
    clock: Clock,
    cut: CancellationToken,
    next_row: u64,
    logs: QueueLogs,
    checkpoint: Option<Checkpoint>,
    /// Bytes of events since the last checkpoint began.
    growth: u64,
    /// How many of these let the next one begin.
    growth_max: u64,
    /// How many of these the checkpoint that runs makes up for.
    growth_covered: u64,
    pace: WriterOptions,
    /// No checkpoint begins before this instant.
    next_checkpoint_us: u64,
    /// How long none began after the last one that failed.
    checkpoint_wait: Duration,
    /// While commits wait, no slice of a checkpoint comes before this instant.
    next_slice_us: u64,
    next_upkeep_us: u64,
    /// Deleted queues whose rows may still be there.
    deleted: VecDeque<QueueId>,
}

/// A journal over a store that was just opened, and the writer that it needs; and which queues it holds.
/// `cut` ends the final checkpoint early.
///
/// # Errors
/// [`recovery::Error`] if the list of queues is damaged.
pub async fn open<S: Store>(
    (store, reader, opening): (S, Arc<dyn Reader>, Opening),
    clock: Clock,
    observer: Arc<dyn Observer>,
    cut: CancellationToken,
    pace: WriterOptions,
) -> Result<(Journal, Writer<S>, Contents), recovery::Error> {
    let reading = reader.clone();
    let contents = on_own_thread(async move { recovery::contents(reading.as_ref()).await }).await?;
    let commit_queue = Arc::new(CommitQueue::new(opening.numbers, pace.uncommitted_bytes_max));
    let journal = Journal { commit_queue: commit_queue.clone(), floor: opening.numbers.floor, reader };
    let writer = Writer {
        store,
        commit_queue,
        observer,
        clock,
        cut,
        next_row: opening.next_row,
        logs: QueueLogs::new(),
        checkpoint: None,
        growth: 0,
        growth_max: pace.growth_bytes_min,
        growth_covered: 0,
        pace,
        next_checkpoint_us: 0,
        checkpoint_wait: Duration::ZERO,
        next_slice_us: 0,
        next_upkeep_us: 0,
        deleted: contents.deleted.clone().into(),
    };
    Ok((journal, writer, contents))
}

/// Ends a writer before all queues of its store are loaded. The store is not closed in good order, which
/// would be true only if they were.
pub async fn abandon(writing: JoinHandle<()>) {
    writing.abort();
    let _aborted = writing.await;
}

impl<S: Store> Writer<S> {
    /// Writes until the journal is closed and all that was gathered is committed.
    pub async fn run(mut self) {
        let _alarm = Alarm(self.commit_queue.clone());
        // Before anything else is written: what is not closed in good order must show.
        while !self.write_or_fail(Writes { clean: Some(false), ..Writes::default() }).await {
            if self.cut.is_cancelled() || self.commit_queue.is_closed() {
                return self.store.close().await;
            }
        }
        while !self.commit_queue.is_closed() {
            if !self.turn().await {
                self.commit_queue.wait(UPKEEP_PERIOD).await;
            }
        }
        while let Some(batch) = self.commit_queue.take() {
            self.commit(batch).await;
        }
        self.end().await;
    }

    /// Does what is next; tells whether there was anything.
    async fn turn(&mut self) -> bool {
        let batch = self.commit_queue.take();
        let idle = batch.is_none();
        if let Some(batch) = batch {
            self.commit(batch).await;
        }
        let now_us = self.clock.monotonic_us();
        if self.checkpoint.is_none() && self.growth > self.growth_max && now_us >= self.next_checkpoint_us {
            self.begin_checkpoint();
        }
        let slices = self.checkpoint.is_some() && (idle || now_us >= self.next_slice_us);
        if slices {
            self.slice().await;
            let took = self.clock.since(now_us);
            self.next_slice_us = now_us.saturating_add(micros(took * (1 + self.commit_share())));
        }
        let keeps_up = now_us >= self.next_upkeep_us;
        if keeps_up {
            self.next_upkeep_us = now_us.saturating_add(micros(UPKEEP_PERIOD));
            self.upkeep().await;
        }
        slices || keeps_up || !idle
    }

    fn commit_share(&self) -> u32 {
        let late = self.growth.checked_div(self.growth_max).unwrap_or_default();
        u32::try_from(late).ok().and_then(|late| COMMIT_SHARE.checked_shr(late)).unwrap_or_default()
    }

    /// The checkpoint that runs, then one that knows all, so that the next start is quick; and the note
    /// that all is in order. None of that if the store takes nothing: what was acknowledged is in it.
    async fn end(mut self) {
        self.finish_checkpoint().await;
        if self.checkpoint.is_none() && !self.commit_queue.is_down() {
            self.begin_checkpoint();
        }
        self.finish_checkpoint().await;
        if self.commit_queue.is_in_good_order() {
            self.write_or_fail(Writes { clean: Some(true), ..Writes::default() }).await;
        }
        self.store.close().await;
    }

    async fn finish_checkpoint(&mut self) {
        while self.checkpoint.is_some() && !self.cut.is_cancelled() {
            self.slice().await;
        }
    }

    /// Commits a batch and tells those who wait for it; says whether it is durable.
    async fn commit(&mut self, mut batch: Batch) -> bool {
        let begun_us = self.clock.monotonic_us();
        let mut work = GroupedBatch::of(mem::take(&mut batch.ops));
        let events = work.events();
        let mut writes = work.writes(&mut self.next_row);
        self.growth += writes.journal.iter().map(|row| row.events.len() as u64).sum::<u64>();
        self.add_trims(&mut writes);
        let trims = writes.trimmed.clone();
        if !writes.is_empty()
            && let Err(error) = self.store.write(writes).await
        {
            self.fail_and_reopen(&error, Some(batch)).await;
            return false;
        }
        self.growth += work.replayed_bytes();
        for queue in &work.released {
            self.checkpoint.iter_mut().for_each(|checkpoint| checkpoint.release(*queue));
        }
        self.deleted.extend(work.enter(&mut self.logs, self.pace.segment_bytes));
        batch.end(Ok(()));
        self.trimmed(&trims);
        if events > 0 {
            self.observer.committed(events, self.clock.since(begun_us));
        }
        true
    }

    fn begin_checkpoint(&mut self) {
        self.growth_covered = mem::take(&mut self.growth);
        let queues = self.logs.keys().copied().collect();
        self.checkpoint = Some(Checkpoint::new(queues, self.clock.monotonic_us(), self.pace.clone()));
    }

    /// One slice of the checkpoint. It is written after all that it may know of.
    async fn slice(&mut self) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        let mut writes = checkpoint.next(&self.logs, &self.commit_queue);
        for _ in 0..self.commit_queue.len() {
            let Some(batch) = self.commit_queue.take() else { break };
            if !self.commit(batch).await {
                return;
            }
        }
        // A queue whose deletion has just been committed must not come back by its checkpoint.
        writes.retain(|queue| self.logs.contains_key(&queue));
        let begun_us = self.clock.monotonic_us();
        if !self.write_or_fail(writes).await {
            return;
        }
        let took = self.clock.since(begun_us);
        for done in self.checkpoint.iter_mut().flat_map(|checkpoint| checkpoint.wrote(took)) {
            if let Some(log) = self.logs.get_mut(&done.queue) {
                log.checkpoint_rv = done.rv;
                log.live_bytes = done.live_bytes;
            }
        }
        if let Some(ended) = self.checkpoint.take_if(|checkpoint| checkpoint.has_ended()) {
            let live: u64 = self.logs.values().map(|log| log.live_bytes).sum();
            self.growth_max = self.pace.growth_bytes_min.max(live / 2);
            self.checkpoint_wait = Duration::ZERO;
            self.observer.checkpointed(self.clock.since(ended.begun_us()));
        }
    }

    /// Adds what may go of the queues that `writes` appends to: as much as comes goes.
    fn add_trims(&self, writes: &mut Writes) {
        let now = Time::from_micros(self.clock.wall_us());
        for row in &writes.journal {
            let rv = self.logs.get(&row.queue).and_then(|log| log.expendable(now));
            let trim = rv.map(|rv| (row.queue, rv));
            if trim.is_some() && trim.as_ref() != writes.trimmed.last() {
                writes.trimmed.extend(trim);
            }
        }
    }

    fn trimmed(&mut self, trims: &[(QueueId, Rv)]) {
        for (queue, rv) in trims {
            if let Some(log) = self.logs.get_mut(queue) {
                log.trimmed(*rv);
            }
        }
    }

    /// Removes what is too old and what deleted queues have left, and keeps the files in bounds.
    async fn upkeep(&mut self) {
        let now = Time::from_micros(self.clock.wall_us());
        let old = self.logs.iter().filter_map(|(queue, log)| Some((*queue, log.expendable(now)?)));
        let mut writes = Writes { trimmed: old.take(TRIMMED_QUEUES).collect(), ..Writes::default() };
        self.add_deleted(&mut writes).await;
        let trims = writes.trimmed.clone();
        let more = !writes.is_empty();
        if more && !self.write_or_fail(writes).await {
            return;
        }
        self.trimmed(&trims);
        match self.store.upkeep().await {
            Ok(size) => {
                let lag = self.logs.values().map(QueueLog::lag).sum();
                self.observer.sized(size.bytes, lag);
            }
            Err(error) => self.fail_and_reopen(&error, None).await,
        }
        if more {
            self.next_upkeep_us = 0;
        }
    }

    /// Adds what may go of deleted queues: rows of the first that has any, and all of those before it.
    async fn add_deleted(&mut self, writes: &mut Writes) {
        for _ in 0..SWEPT_QUEUES {
            let Some(queue) = self.deleted.front().copied() else { return };
            match self.store.has_rows(queue).await {
                Ok(true) => return writes.swept.push((queue, SWEPT_ROWS)),
                Ok(false) => writes.forgotten.push(queue),
                Err(error) => {
                    let error = with_causes(&error);
                    tracing::warn!(%queue, %error, "can't look for rows of a deleted queue");
                }
            }
            self.deleted.pop_front();
        }
    }

    async fn write_or_fail(&mut self, writes: Writes) -> bool {
        let written = self.store.write(writes).await;
        if let Err(error) = &written {
            self.fail_and_reopen(error, None).await;
        }
        written.is_ok()
    }

    /// Fails the batch and all behind it, then waits until the store takes writes again. Once the journal is closed nobody
    /// else waits for that, and it is tried once.
    async fn fail_and_reopen(&mut self, error: &store::Error, batch: Option<Batch>) {
        tracing::error!(error = %with_causes(error), "the journal failed; its queues answer 503, or 507 if the disk is full, until it is back");
        // Queues must know that what was captured of them is lost before the journal can be back.
        if let Some(checkpoint) = self.checkpoint.take() {
            checkpoint.lose();
            self.growth += mem::take(&mut self.growth_covered);
            // It may have been what failed, for want of more room than commits need.
            self.checkpoint_wait = (self.checkpoint_wait * 2).clamp(CHECKPOINT_WAIT_MIN, CHECKPOINT_WAIT_MAX);
            self.next_checkpoint_us = self.clock.monotonic_us().saturating_add(micros(self.checkpoint_wait));
        }
        self.commit_queue.go_down(Error::from(error), batch);
        let mut wait = RETRY_MIN;
        let mut told = error.to_string();
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep(wait) => {}
                () = self.commit_queue.closing().cancelled() => {}
                () = self.cut.cancelled() => return,
            }
            wait = (wait * 2).min(RETRY_MAX);
            // Asked before: it may be closed while this is tried.
            let is_closed = self.commit_queue.is_closed();
            let Err(error) = self.store.reopen().await else { break };
            self.commit_queue.go_down(Error::from(&error), None);
            if is_closed {
                return;
            }
            if mem::replace(&mut told, error.to_string()) != told {
                tracing::error!(error = %with_causes(&error), "the journal is still down");
            }
        }
        self.commit_queue.come_up();
        tracing::info!("the journal is back");
    }
}

/// Lets nobody wait for a writer that has panicked.
struct Alarm(Arc<CommitQueue>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.go_down(Error::OutcomeUnknown, None);
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
