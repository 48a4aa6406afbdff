//! Loading queues from the journal: at the start, after a failed commit, and after a panic.
//!
//! A queue whose commit failed contains events that are not durable. It fails all calls until the journal accepts
//! events again and the queue has been loaded. Waiting pops keep their positions. After a panic, a queue is loaded
//! again once the journal has written its events.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use deltaq_engine::Queue;
use deltaq_engine::lives::Birth;
use deltaq_journal::recovery::{self, Contents, Loaded, Progress, on_own_thread};
use deltaq_journal::store::{Epoch, QueueId, QueueRow};
use deltaq_journal::{self, Health, Journal, Live};
use deltaq_runtime::causes::with_causes;
use deltaq_runtime::retry::RetryWait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::Error;
use super::queue::{Handle, Loss, drop_in_background};
use super::registry::Registry;

/// The waits before a failed load is repeated.
const RELOAD_WAIT: RetryWait = RetryWait::new(Duration::from_secs(1), Duration::from_mins(1));
/// A start logs a warning if the time of a queue is ahead of the wall clock by at least this much.
const CLOCK_LEAD_WARNED: Duration = Duration::from_mins(1);
/// Maximum number of queues that are loaded at the same time. It equals the number of concurrent reads of a store.
const LOADS_MAX: usize = 4;
/// How often a long recovery logs its progress.
const REPORT_PERIOD: Duration = Duration::from_secs(2);

impl Live for Handle {
    fn with(&self, look: &mut dyn FnMut(&mut Queue)) -> bool {
        let Ok(mut state) = self.open() else { return false };
        look(&mut state.queue);
        true
    }

    fn lose(&self) {
        self.lock().lost = Some(Loss::Commit(deltaq_journal::Error::OutcomeUnknown));
    }
}

impl Handle {
    /// Whether the queue must be loaded again.
    fn is_lost(&self) -> bool {
        matches!(self.open(), Err(Error::Journal(_)))
    }

    /// Whether the queue is permanently broken: it panicked, and there is no journal to load it from.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self.open(), Err(Error::Broken))
    }

    /// Whether a panic has lost the state.
    fn has_panicked(&self) -> bool {
        let state = self.lock();
        state.ended.is_none() && state.lost == Some(Loss::Panic)
    }

    /// Continues with the loaded queue if this queue is still lost. Waiting pops get keys from the loaded state.
    ///
    /// # Errors
    /// The queue is lost again. The text says why.
    fn resume(
        self: &Arc<Self>,
        journal: &Journal,
        loaded: Loaded,
        epoch: Epoch,
        birth: Birth,
    ) -> Result<(), String> {
        let mut state = self.lock();
        if state.ended.is_some() || state.lost.is_none() {
            // Another recovery was faster, so this loaded state is older than the queue.
            return Ok(());
        }
        let commit = journal.resume(&loaded, epoch);
        if matches!(commit.outcome(), Some(Err(_))) {
            // The journal has failed again, so the queue will be loaded again.
            return Ok(());
        }
        let now = self.now();
        let last_rv = loaded.last_rv;
        drop_in_background(std::mem::replace(&mut state.queue, loaded.queue));
        state.generation += 1;
        (state.lost, state.is_shown) = (None, false);
        state.lease_waits.wake_all();
        state.queue.set_committed(last_rv);
        state.commits.resume(last_rv, epoch, commit);
        let resumed = catch_unwind(AssertUnwindSafe(|| {
            let recovered = state.queue.recover(now, birth);
            recovered.map(|()| self.finish(&mut state, now))
        }));
        let why = match resumed {
            Ok(Ok(unlocked)) => {
                self.set_lives(&state.queue);
                drop(state);
                self.dispatch(unlocked);
                self.long_command_ended.notify_waiters();
                self.leftovers.wake();
                return Ok(());
            }
            Ok(Err(numbers)) => numbers.to_string(),
            Err(_) => "its recovery panicked".to_owned(),
        };
        self.lose_by_panic(state);
        Err(format!("queue {}: {why}", self.name()))
    }
}

impl Handle {
    /// The generation of a state that is lost and not shown; `None` for any other state.
    fn hidden(&self) -> Option<u64> {
        let mut state = self.lock();
        // A queue that nobody has called since its commit failed is lost too.
        let _failed = self.check(&mut state);
        (state.lost.is_some() && !state.is_shown).then_some(state.generation)
    }

    /// Shows the durable state to reads while the journal takes no events. It was read since the state had this generation. Returns
    /// whether it is shown.
    fn show(&self, loaded: Loaded, generation: u64) -> bool {
        let mut state = self.lock();
        // The journal may have recovered in the meantime, and may have failed again after later changes.
        let is_same = state.generation == generation && matches!(state.lost, Some(Loss::Commit(_)));
        if state.ended.is_some() || !is_same {
            return false;
        }
        drop_in_background(std::mem::replace(&mut state.queue, loaded.queue));
        state.queue.set_committed(loaded.last_rv);
        state.commits.forget();
        // The changes behind it are lost. A follower would look for them in vain, and take the history for lost.
        state.last_change = state.last_change.min(loaded.last_rv);
        state.generation += 1;
        state.is_shown = true;
        state.lease_waits.wake_all();
        drop(state);
        self.note_reached();
        true
    }
}

impl Registry {
    /// Loads all queues of the store.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub async fn recover(self: &Arc<Self>, contents: Contents) -> Result<(), recovery::Error> {
        let Some(journal) = self.journal() else { return Ok(()) };
        let progress = self.progress();
        progress.queues_total.store(contents.live.len() as u64, Ordering::Relaxed);
        let begun_us = self.clock().monotonic_us();
        let loading = async {
            // The contents were read before the journal could fail.
            let epoch = self.recovered();
            let load = |row| async move { self.load(journal, &row, progress, epoch).await };
            let loads = contents.live.into_iter().map(load);
            stream::iter(loads).buffered(LOADS_MAX).try_collect::<()>().await
        };
        tokio::pin!(loading);
        loop {
            tokio::select! {
                biased;
                loaded = &mut loading => {
                    loaded?;
                    journal.reader().forget_texts();
                    self.load_series(journal).await;
                    report("loaded", progress, self.clock().since(begun_us));
                    self.warn_of_clock_lead();
                    self.warn_of_numbers_ahead();
                    self.set_ready();
                    return Ok(());
                }
                () = tokio::time::sleep(REPORT_PERIOD) => report("loading", progress, self.clock().since(begun_us)),
            }
        }
    }

    /// Loads one queue that this process does not have, and starts it.
    ///
    /// # Errors
    /// What is wrong with its rows.
    async fn load(
        &self,
        journal: &Journal,
        row: &QueueRow,
        progress: &Arc<Progress>,
        epoch: Epoch,
    ) -> Result<(), recovery::Error> {
        let loaded = load(journal, row, progress).await?;
        let numbers = |source| recovery::Error::Numbers { queue: row.name.to_string(), source };
        self.adopt(journal, loaded, epoch).map_err(numbers)
    }

    /// Logs that the wall clock is far behind the last events of queues.
    fn warn_of_clock_lead(&self) {
        let leads = self.handles().into_iter().map(|handle| (handle.lead(), handle));
        let ahead: Vec<_> = leads.filter(|(lead, _)| *lead >= CLOCK_LEAD_WARNED).collect();
        if let Some((lead, handle)) = ahead.iter().max_by_key(|(lead, _)| *lead) {
            tracing::warn!(
                queues = ahead.len(),
                queue = %handle.name(),
                lead_s = lead.as_secs(),
                "the wall clock is behind the last events of queues, the most in this one; \
                 their time runs on from there, so leases and delays end on time"
            );
        }
    }

    /// Logs that the numbers of queues are ahead of the clock that determines where lives begin. Such a queue still
    /// never repeats a number. However, if a backup of it is restored, numbers may be repeated, because the numbers
    /// of the lost life may not be below those of the next life.
    fn warn_of_numbers_ahead(&self) {
        let floor = self.birth().floor;
        let is_ahead = |handle: &Arc<Handle>| handle.lives().present_first() > floor.next();
        let ahead: Vec<_> = self.handles().into_iter().filter(is_ahead).collect();
        if let Some(handle) = ahead.first() {
            tracing::warn!(
                queues = ahead.len(),
                queue = %handle.name(),
                "the last numbers of queues are ahead of the clock, in this one among others: the clock was set back, or it was wrong before. \
                 If a backup is restored now, plain versions and tokens of the lost time may be used again"
            );
        }
    }

    /// Reloads queues that were lost by a failure of the journal or by a panic, until the shutdown begins.
    pub(super) async fn follow(self: Arc<Self>) {
        let Some(journal) = self.journal() else { return };
        tokio::select! {
            biased;
            () = self.shutdown().draining().cancelled() => {}
            () = self.recover_failures(journal) => {}
            () = self.show_while_full(journal) => {}
            () = self.recover_panics(journal) => {}
        }
    }

    /// Reloads the queues that have lost events, whenever the journal accepts events again after a failure.
    async fn recover_failures(self: &Arc<Self>, journal: &Journal) {
        let mut health = journal.health();
        let (mut reported, mut wait) = (Vec::new(), RELOAD_WAIT);
        loop {
            let recovered = self.recovered();
            let up = health.wait_for(|health| health.epoch > recovered && health.down.is_none());
            let Ok(epoch) = up.await.map(|health| health.epoch) else { return };
            let problems = match self.reload(journal, epoch).await {
                Ok(problems) => {
                    self.set_reloaded(epoch);
                    problems
                }
                Err(error) => vec![with_causes(&error)],
            };
            if problems.is_empty() {
                self.set_recovered(epoch);
                (reported, wait) = (problems, RELOAD_WAIT);
                continue;
            }
            if problems != reported {
                for problem in &problems {
                    tracing::error!(problem, "a queue can't be loaded after a failure of the journal");
                }
                (reported, wait) = (problems, RELOAD_WAIT);
            }
            // Another failure may lose more queues in the meantime.
            let anew = health.wait_for(|health| health.epoch > epoch && health.down.is_none());
            let _ = tokio::time::timeout(wait.after_failure(), anew).await;
        }
    }

    /// Loads the queues that a full disk has made lose events, so that they can be read until there is room. A full disk can be read. After
    /// any other failure, what the store has may not be durable.
    async fn show_while_full(self: &Arc<Self>, journal: &Journal) {
        let mut health = journal.health();
        let is_full = |health: &Health| health.down == Some(deltaq_journal::Error::DiskFull);
        loop {
            if health.wait_for(is_full).await.is_err() {
                return;
            }
            let mut wait = RELOAD_WAIT;
            // Calls that began before the failure may still lose a queue.
            while is_full(&health.borrow()) {
                if let Err(error) = self.show_lost(journal).await {
                    let error = with_causes(&error);
                    tracing::warn!(error, "queues can't be loaded for reads while the disk is full");
                }
                let _recovered = tokio::time::timeout(wait.after_failure(), health.changed()).await;
            }
        }
    }

    /// Shows the durable state of the queues that are lost.
    async fn show_lost(self: &Arc<Self>, journal: &Journal) -> Result<(), recovery::Error> {
        let handles = self.handles().into_iter();
        let hidden: Vec<_> = handles.filter_map(|handle| handle.hidden().map(|of| (handle, of))).collect();
        if hidden.is_empty() {
            return Ok(());
        }
        let reader = journal.reader().clone();
        let contents = on_own_thread(async move { recovery::contents(reader.as_ref()).await }).await?;
        for (handle, generation) in hidden {
            let id = handle.journal().map(|(_, id)| *id);
            let Some(row) = contents.live.iter().find(|row| Some(row.id) == id) else { continue };
            match load(journal, row, &Arc::default()).await {
                Ok(loaded) => {
                    if handle.show(loaded, generation) {
                        tracing::info!(queue = %handle.name(), "the queue can be read while the disk is full");
                    }
                }
                // The others can be read.
                Err(error) => tracing::warn!(
                    error = with_causes(&error),
                    queue = %handle.name(),
                    "the queue can't be loaded for reads while the disk is full"
                ),
            }
        }
        Ok(())
    }

    /// Reloads the queues that were lost before `epoch`. Returns the problems of queues that can't be loaded. As long
    /// as there are such queues, no queue can be created or deleted.
    async fn reload(
        self: &Arc<Self>,
        journal: &Journal,
        epoch: Epoch,
    ) -> Result<Vec<String>, recovery::Error> {
        let begun_us = self.clock().monotonic_us();
        // The tasks of intact queues wait for this. They must continue even if another queue can't be loaded.
        self.handles().iter().for_each(|handle| handle.leftovers.wake());
        let reader = journal.reader().clone();
        let contents = on_own_thread(async move { recovery::contents(reader.as_ref()).await }).await?;
        journal.found_deleted(contents.deleted, epoch);
        let progress = Arc::new(Progress::default());
        let mut problems = Vec::new();
        let mut rows: BTreeMap<_, _> = contents.live.into_iter().map(|row| (row.id, row)).collect();
        for handle in self.handles() {
            let row = handle.journal().and_then(|(_, id)| rows.remove(id));
            match row {
                // Events of a queue that panicked may still be waiting for their commit.
                Some(_) if handle.is_lost() && handle.has_panicked() => {
                    problems.extend(self.reload_panicked(journal, &handle).await.err());
                }
                Some(row) if handle.is_lost() => {
                    let loaded = load(journal, &row, &progress).await.map_err(|error| problem(&row, &error));
                    let resumed =
                        loaded.and_then(|loaded| handle.resume(journal, loaded, epoch, self.birth()));
                    problems.extend(resumed.err());
                    self.note_loaded(&handle);
                }
                Some(_) => {}
                // The commit that created the queue has failed.
                None => self.discard(&handle),
            }
        }
        // The commits that deleted these queues have failed.
        for row in rows.values() {
            if let Err(error) = self.load(journal, row, &progress, epoch).await {
                problems.push(problem(row, &error));
            }
        }
        report("loaded again", &progress, self.clock().since(begun_us));
        Ok(problems)
    }

    /// Reloads a queue whenever one of its changes has panicked.
    async fn recover_panics(self: &Arc<Self>, journal: &Journal) {
        loop {
            self.panicked().notified().await;
            let mut wait = RELOAD_WAIT;
            loop {
                let mut problems = Vec::new();
                for handle in self.handles().into_iter().filter(|handle| handle.has_panicked()) {
                    problems.extend(self.reload_panicked(journal, &handle).await.err());
                }
                if problems.is_empty() {
                    break;
                }
                for problem in problems {
                    tracing::error!(problem, "a queue can't be loaded again after a panic");
                }
                tokio::time::sleep(wait.after_failure()).await;
            }
        }
    }

    /// Reloads a queue whose change has panicked.
    ///
    /// # Errors
    /// Why the queue can't be loaded.
    async fn reload_panicked(
        self: &Arc<Self>,
        journal: &Journal,
        handle: &Arc<Handle>,
    ) -> Result<(), String> {
        let Some((_, id)) = handle.journal() else { return Ok(()) };
        let epoch = journal.check().map_err(|error| error.to_string())?;
        // After this commit all events of the queue are durable, and the checkpoint writes no more of its keys.
        journal.release(*id, epoch).wait().await.map_err(|error| error.to_string())?;
        let reader = journal.reader().as_ref();
        let row = row_of(reader.queues().await.map_err(|error| with_causes(&error))?, *id);
        let row = row.ok_or("it is not in the store")?;
        let loaded = load(journal, &row, &Arc::default()).await;
        let loaded = loaded.map_err(|error| problem(&row, &error))?;
        handle.resume(journal, loaded, epoch, self.birth())?;
        self.note_loaded(handle);
        tracing::info!(queue = %handle.name(), "the queue is loaded again after a panic");
        Ok(())
    }
}

async fn load(
    journal: &Journal,
    row: &QueueRow,
    progress: &Arc<Progress>,
) -> Result<Loaded, recovery::Error> {
    let (reader, row, progress) = (journal.reader().clone(), row.clone(), progress.clone());
    on_own_thread(async move { recovery::load(reader.as_ref(), &row, &progress).await }).await
}

fn row_of(rows: Vec<QueueRow>, id: QueueId) -> Option<QueueRow> {
    rows.into_iter().find(|row| row.id == id && !row.deleted)
}

fn problem(row: &QueueRow, error: &recovery::Error) -> String {
    format!("queue {}: {}", row.name, with_causes(error))
}

fn report(stage: &'static str, progress: &Progress, took: Duration) {
    let [queues, queues_total, keys, events] = progress.counts();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = (keys + events) as f64 / took.as_secs_f64().max(1e-3);
    tracing::info!(
        queues,
        queues_total,
        keys,
        events,
        took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        rows_per_s = rate.round(),
        "{stage}"
    );
}
