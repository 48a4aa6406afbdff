//! The writer commits the batches one after another.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock::{Clock, whole_us};
use deltaq_runtime::retry::RetryWait;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::checkpointer::Checkpoint;
use super::commit::Error;
use super::commit_queue::CommitQueue;
use super::grouped_batch::{GroupedBatch, QueueLogs};
use super::handle::Journal;
use super::hooks::Observer;
use super::options::WriterOptions;
use super::queue_log::{QueueLog, find_sharing};
use super::recovery::{self, Contents, on_own_thread};
use super::store::{self, JournalRow, Opening, QueueId, REMOVED_RUNS_MAX, Reader, Store, Writes};
use super::text_cleanup::Texts;
use super::turns::Batch;

/// How often the files are maintained.
const UPKEEP_PERIOD: Duration = Duration::from_secs(1);
/// While commits wait, they get this many times as much of the writer's time as a checkpoint, and as a cleanup of texts.
/// For a checkpoint, the factor is halved each time the journal has grown by the amount that starts a checkpoint, so that a checkpoint completes even under
/// constant load.
const COMMIT_SHARE: u32 = 3;
/// The journal is trimmed when it has grown by this many bytes.
const UNTRIMMED_BYTES_MAX: u64 = 512 << 10;
/// The waits before a failed store is reopened.
const REOPEN_WAIT: RetryWait = RetryWait::new(Duration::from_millis(100), Duration::from_secs(2));
/// How many rows of a deleted queue are removed at a time.
const EMPTIED_ROWS: u32 = 1_000;
/// How many deleted queues are examined at a time for remaining rows.
const EXAMINED_QUEUES: usize = 64;
/// The waits after failed checkpoints.
const CHECKPOINT_WAIT: RetryWait = RetryWait::new(Duration::from_secs(1), Duration::from_mins(1));
/// How many queues are trimmed at a time.
const TRIMMED_QUEUES: usize = 16;

/// Writes the batches until the journal is closed.
#[derive(Debug)]
pub struct Writer<S> {
    store: S,
    commit_queue: Arc<CommitQueue>,
    observer: Arc<dyn Observer>,
    clock: Clock,
    cut: CancellationToken,
    logs: QueueLogs,
    /// Whether `shares` of the logs may be out of date.
    is_sharing_stale: bool,
    texts: Texts,
    checkpoint: Option<Checkpoint>,
    /// Bytes of events since the last checkpoint began.
    growth: u64,
    /// Bytes of events since the journal was last trimmed.
    untrimmed: u64,
    /// The growth that starts the next checkpoint.
    growth_max: u64,
    /// The growth that the running checkpoint covers. If the checkpoint fails, this growth is added back.
    growth_covered: u64,
    options: WriterOptions,
    /// No checkpoint begins before this instant.
    next_checkpoint_us: u64,
    /// The wait after the next failed checkpoint.
    checkpoint_wait: RetryWait,
    /// While commits wait, no checkpoint chunk is written before this instant.
    next_chunk_us: u64,
    /// While commits wait, no step of a cleanup of texts begins before this instant.
    next_cleanup_us: u64,
    next_upkeep_us: u64,
    /// Whether rows may be left that are to be removed.
    has_more_upkeep: bool,
    /// Deleted queues that may have rows left.
    deleted: VecDeque<QueueId>,
    /// Why the writer can no longer write.
    stopped: Option<Ended>,
    end_guard: EndGuard,
}

/// Opens a journal over a store that was just opened: the journal, its writer, and the list of queues.
/// `cut` ends the final checkpoint early.
///
/// # Errors
/// [`recovery::Error`] if the list of queues is damaged.
pub async fn open<S: Store>(
    (store, reader, opening): (S, Arc<dyn Reader>, Opening),
    clock: Clock,
    observer: Arc<dyn Observer>,
    cut: CancellationToken,
    options: WriterOptions,
) -> Result<(Journal, Writer<S>, Contents), recovery::Error> {
    let reading = reader.clone();
    let contents = on_own_thread(async move { recovery::contents(reading.as_ref()).await }).await?;
    let Opening { numbers, epoch, wall, .. } = opening;
    let commit_queue = Arc::new(CommitQueue::new(numbers, epoch, options.uncommitted_bytes_max));
    let journal = Journal {
        commit_queue: commit_queue.clone(),
        reader,
        floor: numbers.floor,
        clock: clock.clone(),
        // This clock is read a moment after the opening, so it is behind the database's clock by that moment.
        database_clock: wall.map(|wall| (wall, clock.monotonic_us())),
    };
    let texts = Texts::new(clock.monotonic_us(), options.text_bytes_min);
    let writer = Writer {
        store,
        end_guard: EndGuard { commit_queue: commit_queue.clone(), is_closed: false },
        commit_queue,
        observer,
        clock,
        cut,
        logs: QueueLogs::new(),
        is_sharing_stale: true,
        texts,
        checkpoint: None,
        growth: 0,
        untrimmed: 0,
        growth_max: options.growth_bytes_min,
        growth_covered: 0,
        options,
        next_checkpoint_us: 0,
        checkpoint_wait: CHECKPOINT_WAIT,
        next_chunk_us: 0,
        next_cleanup_us: 0,
        next_upkeep_us: 0,
        has_more_upkeep: false,
        deleted: contents.deleted.clone().into(),
        stopped: None,
    };
    Ok((journal, writer, contents))
}

/// Why a writer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The journal was closed.
    Closed,
    /// Another process has taken over the store.
    Fenced,
    /// The store has lost acknowledged writes, so the loaded queues are ahead of the store.
    RolledBack,
}

/// Stops a writer before all queues are loaded. The store is not marked as cleanly closed, which requires
/// that every queue is intact.
pub async fn abandon(writing: JoinHandle<Ended>) {
    writing.abort();
    let _aborted = writing.await;
}

impl<S: Store> Writer<S> {
    /// Writes until the journal is closed and the last batch is committed, or until another process has taken over the
    /// store.
    pub async fn run(mut self) -> Ended {
        // The first write marks the store as open, so that an unclean stop is detected later.
        while !self.write_or_recover(Writes { clean: Some(false), ..Writes::default() }).await {
            if self.stopped.is_some() || self.cut.is_cancelled() || self.commit_queue.is_closed() {
                return self.close().await;
            }
        }
        while !self.commit_queue.is_closed() && self.stopped.is_none() {
            if !self.step().await {
                self.commit_queue.wait(UPKEEP_PERIOD).await;
            }
        }
        while let Some(batch) = self.commit_queue.take() {
            self.commit(batch).await;
        }
        self.write_series().await;
        self.end().await
    }

    /// Does the work that is due. Returns whether there was any.
    async fn step(&mut self) -> bool {
        let batch = self.commit_queue.take();
        let idle = batch.is_none();
        if let Some(batch) = batch {
            self.commit(batch).await;
        }
        let now_us = self.clock.monotonic_us();
        if self.checkpoint.is_none() && self.growth > self.growth_max && now_us >= self.next_checkpoint_us {
            self.begin_checkpoint();
        }
        let writes_chunk = self.checkpoint.is_some() && (idle || now_us >= self.next_chunk_us);
        if writes_chunk {
            self.write_chunk().await;
            let took = self.clock.since(now_us);
            self.next_chunk_us = now_us.saturating_add(whole_us(took * (1 + self.commit_share())));
        }
        let cleans = self.texts.has_work(now_us) && (idle || now_us >= self.next_cleanup_us);
        if cleans {
            let took = self.clean_texts().await;
            let pause = whole_us(took * COMMIT_SHARE);
            self.next_cleanup_us = self.clock.monotonic_us().saturating_add(pause);
        }
        // A journal is trimmed as fast as it grows, but not with each commit, which would need a transaction of several
        // statements.
        let is_due = now_us >= self.next_upkeep_us || idle && self.has_more_upkeep;
        let maintains = is_due || self.untrimmed >= UNTRIMMED_BYTES_MAX;
        if maintains {
            self.next_upkeep_us = now_us.saturating_add(whole_us(UPKEEP_PERIOD));
            self.upkeep().await;
        }
        writes_chunk || cleans || maintains || !idle
    }

    fn commit_share(&self) -> u32 {
        let lateness = self.growth.checked_div(self.growth_max).unwrap_or_default();
        let share = u32::try_from(lateness).ok().and_then(|lateness| COMMIT_SHARE.checked_shr(lateness));
        share.unwrap_or_default()
    }

    /// Completes the running checkpoint, then writes a last one, so that the next start replays nothing, and marks
    /// the store as cleanly closed. If the store is down, none of this happens. Everything that was acknowledged is
    /// already in the store.
    async fn end(mut self) -> Ended {
        self.finish_checkpoint().await;
        if self.checkpoint.is_none() && !self.commit_queue.is_down() {
            self.begin_checkpoint();
        }
        self.finish_checkpoint().await;
        if self.commit_queue.is_intact() {
            self.write_or_recover(Writes { clean: Some(true), ..Writes::default() }).await;
        }
        self.close().await
    }

    async fn close(mut self) -> Ended {
        let ended = self.stopped.unwrap_or(Ended::Closed);
        self.store.close().await;
        self.end_guard.is_closed = ended == Ended::Closed;
        ended
    }

    async fn finish_checkpoint(&mut self) {
        while self.checkpoint.is_some() && !self.cut.is_cancelled() {
            self.write_chunk().await;
        }
    }

    /// Commits a batch and sets its outcome. Returns whether the batch is durable.
    async fn commit(&mut self, mut batch: Batch) -> bool {
        let begun_us = self.clock.monotonic_us();
        let mut grouped = GroupedBatch::of(mem::take(&mut batch.ops));
        let events = grouped.events();
        if grouped.has_large_objects() {
            self.find_sharing();
        }
        let writes = grouped.writes(self.commit_queue.epoch(), &self.logs);
        let bytes = writes.journal.iter().map(JournalRow::bytes).sum::<u64>();
        self.growth += bytes;
        self.untrimmed += bytes;
        if !writes.is_empty()
            && let Err(error) = self.write(writes).await
        {
            self.fail_and_recover(&error, Some(batch)).await;
            return false;
        }
        self.growth += grouped.replayed_bytes();
        for queue in &grouped.released {
            self.checkpoint.iter_mut().for_each(|checkpoint| checkpoint.release(*queue));
        }
        self.is_sharing_stale |= grouped.changes_followers();
        self.deleted.extend(grouped.record(&mut self.logs, self.options.segment_bytes));
        batch.end(Ok(()));
        drop(batch);
        self.commit_queue.note_committed();
        if events > 0 {
            self.observer.committed(events, self.clock.since(begun_us));
        }
        true
    }

    async fn write(&mut self, mut writes: Writes) -> Result<(), store::Error> {
        self.texts.complete(&mut writes);
        self.store.write(Writes { epoch: self.commit_queue.epoch(), ..writes }).await
    }

    fn find_sharing(&mut self) {
        if mem::take(&mut self.is_sharing_stale) {
            find_sharing(self.logs.values_mut());
        }
    }

    fn begin_checkpoint(&mut self) {
        self.find_sharing();
        self.growth_covered = mem::take(&mut self.growth);
        let queues = self.logs.keys().copied().collect();
        self.checkpoint = Some(Checkpoint::new(queues, self.clock.monotonic_us(), self.options.clone()));
    }

    /// Writes one chunk of the checkpoint, after all batches whose events the chunk may contain.
    async fn write_chunk(&mut self) {
        let Some(checkpoint) = &mut self.checkpoint else { return };
        let begun_us = self.clock.monotonic_us();
        let mut writes = checkpoint.next_chunk(&self.logs, &self.commit_queue);
        let took_to_encode = self.clock.since(begun_us);
        // A queue may have been deleted after its rows were captured for an earlier chunk, and its rows must not be
        // written again.
        writes.retain(|queue| self.logs.contains_key(&queue));
        let newest = self.commit_queue.newest_batch();
        while self.commit_queue.has_batches_up_to(newest) {
            let Some(batch) = self.commit_queue.take() else { break };
            if !self.commit(batch).await {
                return;
            }
            // The batch may also have deleted a queue, or released a queue that a later batch opens again in its
            // loaded state.
            writes.retain(|queue| self.logs.contains_key(&queue));
        }
        let begun_us = self.clock.monotonic_us();
        if !self.write_or_recover(writes).await {
            return;
        }
        let took = took_to_encode + self.clock.since(begun_us);
        for done in self.checkpoint.iter_mut().flat_map(|checkpoint| checkpoint.wrote(took)) {
            if let Some(log) = self.logs.get_mut(&done.queue) {
                log.checkpoint_rv = done.rv;
                // Runs may have been removed in the meantime.
                let oldest = log.runs.oldest;
                log.runs = done.runs;
                log.runs.oldest = oldest;
                log.live_bytes = done.live_bytes;
            }
        }
        if let Some(ended) = self.checkpoint.take_if(|checkpoint| checkpoint.has_ended()) {
            let live: u64 = self.logs.values().map(|log| log.live_bytes).sum();
            self.growth_max = self.options.growth_bytes_min.max(live / 2);
            self.checkpoint_wait.reset();
            self.observer.checkpointed(self.clock.since(ended.begun_us()));
        }
    }

    fn record_trims(&mut self, trims: &[(QueueId, Rv)]) {
        for (queue, rv) in trims {
            if let Some(log) = self.logs.get_mut(queue) {
                log.trimmed(*rv);
            }
        }
    }

    /// Writes all series, so that the next server goes on where this one ends.
    async fn write_series(&mut self) {
        while !self.commit_queue.is_down() {
            let (series, series_hours) = self.commit_queue.take_series();
            let writes = Writes { series, series_hours, ..Writes::default() };
            if writes.is_empty() || !self.write_or_recover(writes).await {
                return;
            }
        }
    }

    /// Removes rows that are too old and rows of deleted queues, writes series, and keeps the files bounded.
    async fn upkeep(&mut self) {
        let begun_us = self.clock.monotonic_us();
        self.untrimmed = 0;
        let now = Time::from_micros(self.clock.wall_us());
        let old = self.logs.iter().filter_map(|(queue, log)| Some((*queue, log.trimmable(now)?)));
        let mut most = u64::from(REMOVED_RUNS_MAX);
        let obsolete = self.logs.iter().map_while(|(queue, log)| {
            let numbers = log.runs.obsolete(most);
            most -= numbers.as_ref().map_or(0, |numbers| numbers.end - numbers.start);
            (most > 0 || numbers.is_some()).then_some((*queue, numbers))
        });
        let obsolete = obsolete.filter_map(|(queue, numbers)| Some((queue, numbers?))).collect();
        let trimmed = old.take(TRIMMED_QUEUES).collect();
        let mut writes = Writes { trimmed, removed_runs: obsolete, ..Writes::default() };
        self.add_deleted(&mut writes).await;
        (writes.series, writes.series_hours) = self.commit_queue.take_series();
        let (series, series_hours) = (writes.series.clone(), writes.series_hours.clone());
        let (trims, removed_runs) = (writes.trimmed.clone(), writes.removed_runs.clone());
        let more = !writes.is_empty();
        if more && !self.write_or_recover(writes).await {
            self.commit_queue.put_back_series(series, series_hours);
            return;
        }
        self.record_trims(&trims);
        for (queue, numbers) in removed_runs {
            self.logs.entry(queue).and_modify(|log| log.runs.oldest = numbers.end);
        }
        match self.store.upkeep().await {
            Ok(size) => {
                let lag = self.logs.values().map(QueueLog::lag).sum();
                self.observer.sized(size.bytes, lag);
            }
            Err(error) => self.fail_and_recover(&error, None).await,
        }
        self.has_more_upkeep = more;
        if more {
            let pause = whole_us(self.clock.since(begun_us) * COMMIT_SHARE);
            self.next_upkeep_us = self.clock.monotonic_us().saturating_add(pause);
        }
    }

    /// Adds the removal of rows of the first deleted queue that has any. For the deleted queues before it, adds the
    /// removal of their rows in `queues`.
    async fn add_deleted(&mut self, writes: &mut Writes) {
        for _ in 0..EXAMINED_QUEUES {
            let Some(queue) = self.deleted.front().copied() else { return };
            match self.store.has_rows(queue).await {
                Ok(true) => return writes.emptied.push((queue, EMPTIED_ROWS)),
                Ok(false) => writes.forgotten.push(queue),
                Err(error) => {
                    let error = with_causes(&error);
                    tracing::warn!(%queue, %error, "can't look for rows of a deleted queue");
                }
            }
            self.deleted.pop_front();
        }
    }

    /// Does a step of the cleanup of texts. Returns the time that it took.
    async fn clean_texts(&mut self) -> Duration {
        let begun_us = self.clock.monotonic_us();
        let step = self.texts.step(&mut self.store).await;
        let unused_texts = step.unwrap_or_else(|error| {
            let error = with_causes(&error);
            tracing::warn!(%error, "can't look for unused texts");
            self.texts.give_up();
            Vec::new()
        });
        let writes = Writes { unused_texts, ..Writes::default() };
        let is_done = writes.is_empty() || self.write_or_recover(writes).await;
        // A recovery may have taken hours.
        let took = if is_done { self.clock.since(begun_us) } else { Duration::ZERO };
        self.texts.stepped(self.clock.monotonic_us(), whole_us(took));
        took
    }

    async fn write_or_recover(&mut self, writes: Writes) -> bool {
        let written = self.write(writes).await;
        if let Err(error) = &written {
            self.fail_and_recover(error, None).await;
        }
        written.is_ok()
    }

    /// Fails `batch` and all later batches, then reopens the store until it accepts writes. Once the journal is
    /// closed, the store is reopened only once, because no caller is waiting. A store that another process has taken
    /// over is not reopened, and the writer ends.
    async fn fail_and_recover(&mut self, error: &store::Error, batch: Option<Batch>) {
        tracing::error!(error = %with_causes(error), "the journal failed; its queues answer 503, or 507 if the disk is full, until it has recovered");
        self.texts.forget();
        // The queues must learn that their captured parts are lost before the journal accepts events again.
        if let Some(checkpoint) = self.checkpoint.take() {
            // Some runs may be written, so only the load knows their numbers.
            for queue in checkpoint.lose() {
                self.logs.remove(&queue);
            }
            self.is_sharing_stale = true;
            self.growth += mem::take(&mut self.growth_covered);
            // The checkpoint may have caused the failure, because it needs more disk space than commits do.
            let wait = self.checkpoint_wait.after_failure();
            self.next_checkpoint_us = self.clock.monotonic_us().saturating_add(whole_us(wait));
        }
        self.commit_queue.go_down(Error::from(error), batch);
        if self.stops_after(error) {
            return;
        }
        let mut wait = REOPEN_WAIT;
        let mut reported = error.to_string();
        let epoch = loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep(wait.after_failure()) => {}
                () = self.commit_queue.closing().cancelled() => {}
                () = self.cut.cancelled() => return,
            }
            // Read before the attempt, because the journal may be closed during the attempt.
            let is_closed = self.commit_queue.is_closed();
            let error = match self.store.reopen().await {
                Ok(epoch) => break epoch,
                Err(error) => error,
            };
            self.commit_queue.go_down(Error::from(&error), None);
            if self.stops_after(&error) || is_closed {
                return;
            }
            if mem::replace(&mut reported, error.to_string()) != reported {
                tracing::error!(error = %with_causes(&error), "the journal is still down");
            }
        };
        self.commit_queue.come_up(epoch);
        tracing::info!(epoch = epoch.0, "the journal has recovered");
    }

    /// Stops the writer if it can no longer use the store, because another process has taken it over or because the
    /// store has lost acknowledged writes.
    fn stops_after(&mut self, error: &store::Error) -> bool {
        self.stopped = match error {
            store::Error::Fenced { .. } => Some(Ended::Fenced),
            store::Error::RolledBack { .. } => Some(Ended::RolledBack),
            _ => return self.stopped.is_some(),
        };
        tracing::error!(error = %with_causes(error), "the journal writes nothing any more");
        true
    }
}

/// Fails all commits if the writer ends before the journal was closed, is aborted or panics, so that no caller waits for a writer that
/// no longer runs.
#[derive(Debug)]
struct EndGuard {
    commit_queue: Arc<CommitQueue>,
    is_closed: bool,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        if !self.is_closed {
            self.commit_queue.go_down(Error::OutcomeUnknown, None);
        }
    }
}
