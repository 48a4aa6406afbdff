//! Queues and their journal: loaded at the start, and again when a commit has failed.
//!
//! A queue whose commit failed holds what is not durable. It answers nothing until the journal is back
//! and it has been loaded from there; the pops that wait at it keep their place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Error;
use super::handle::{Handle, drop_elsewhere};
use super::registry::Registry;
use crate::causes::with_causes;
use crate::engine::Queue;
use crate::journal::recovery::{self, Contents, Loaded, Progress, on_own_thread};
use crate::journal::store::QueueRow;
use crate::journal::{self, Journal, Live};

/// How long to wait before what could not be loaded is tried again: this, then twice as long each time.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest of these waits.
const RETRY_MAX: Duration = Duration::from_mins(1);
/// After a start, a larger lead of queues over the wall clock is logged.
const CLOCK_LEAD_WARNED: Duration = Duration::from_mins(1);
/// How often a recovery that takes long tells how far it is.
const TELL_PERIOD: Duration = Duration::from_secs(2);

impl Live for Handle {
    fn with(&self, look: &mut dyn FnMut(&mut Queue)) -> bool {
        let Ok(mut inner) = self.open() else { return false };
        look(&mut inner.queue);
        true
    }

    fn lose(&self) {
        self.lock().lost = Some(journal::Error::OutcomeUnknown);
    }
}

impl Handle {
    /// Whether the queue must be loaded again.
    fn is_lost(&self) -> bool {
        matches!(self.open(), Err(Error::Journal(_)))
    }

    /// Goes on with the queue as it was loaded. Pops that wait are served from it.
    fn resume(self: &Arc<Self>, journal: &Journal, loaded: Loaded, failures: u64, unclean: bool) {
        let commit = journal.resume(&loaded, failures);
        if matches!(commit.outcome(), Some(Err(_))) {
            // It has failed anew, so this will be done again.
            return;
        }
        let aftermath = {
            let mut inner = self.lock();
            let now = self.now();
            let last_rv = loaded.last_rv;
            self.metrics().absorb(&mut inner.queue);
            let before = std::mem::replace(&mut inner.queue, loaded.queue);
            inner.generation += 1;
            inner.lost = None;
            inner.opened(last_rv, failures, commit);
            inner.repeated.retain(|token| *token <= last_rv);
            inner.unreached.retain(|token| *token <= last_rv);
            inner.queue.recover(now, unclean);
            drop_elsewhere(before);
            self.finish(&mut inner, now)
        };
        self.conclude(aftermath);
        self.sliced_ended.notify_waiters();
    }
}

impl Registry {
    /// Loads all queues of the store. `unclean` if it had not been closed in good order.
    ///
    /// # Errors
    /// What is wrong with the store.
    pub async fn recover(self: &Arc<Self>, contents: Contents, unclean: bool) -> Result<(), recovery::Error> {
        let Some(journal) = self.journal() else { return Ok(()) };
        let progress = self.progress();
        progress.queues_total.store(contents.live.len() as u64, Ordering::Relaxed);
        if unclean {
            self.set_unclean();
        }
        let begun_us = self.clock().monotonic_us();
        let loading = async {
            for row in &contents.live {
                let loaded = load(journal, row, progress).await?;
                // The contents were read before it could fail.
                self.adopt(journal, loaded, 0);
            }
            Ok::<(), recovery::Error>(())
        };
        tokio::pin!(loading);
        loop {
            tokio::select! {
                biased;
                loaded = &mut loading => {
                    loaded?;
                    tell("loaded", progress, self.clock().since(begun_us));
                    self.warn_of_clock_lead();
                    self.set_ready();
                    return Ok(());
                }
                () = tokio::time::sleep(TELL_PERIOD) => tell("loading", progress, self.clock().since(begun_us)),
            }
        }
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

    /// Whenever the journal is back after a failure, loads what was lost by it, until the shutdown begins.
    pub async fn follow(self: Arc<Self>) {
        tokio::select! {
            biased;
            () = self.shutdown().draining().cancelled() => {}
            () = self.make_good() => {}
        }
    }

    async fn make_good(self: &Arc<Self>) {
        let Some(journal) = self.journal() else { return };
        let mut health = journal.health();
        let (mut told, mut wait) = (Vec::new(), RETRY_MIN);
        loop {
            let handled = self.handled();
            let back = health.wait_for(|health| health.failures > handled && health.down.is_none());
            let Ok(failures) = back.await.map(|health| health.failures) else { return };
            let problems = match self.reload(journal, failures).await {
                Ok(problems) => {
                    self.set_looked_after(failures);
                    problems
                }
                Err(error) => vec![with_causes(&error)],
            };
            if problems.is_empty() {
                self.set_handled(failures);
                (told, wait) = (problems, RETRY_MIN);
                continue;
            }
            if problems != told {
                for problem in &problems {
                    tracing::error!(problem, "what the journal lost can't be loaded");
                }
                (told, wait) = (problems, RETRY_MIN);
            }
            // Unless others are lost meanwhile.
            let anew = health.wait_for(|health| health.failures > failures && health.down.is_none());
            let _ = tokio::time::timeout(wait, anew).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    /// Loads again what is lost since the journal had failed so often; tells what can't be. Until nothing
    /// is left of that, no queue is created or deleted.
    async fn reload(
        self: &Arc<Self>,
        journal: &Journal,
        failures: u64,
    ) -> Result<Vec<String>, recovery::Error> {
        let begun_us = self.clock().monotonic_us();
        let reader = journal.reader().clone();
        let contents = on_own_thread(async move { recovery::contents(reader.as_ref()).await }).await?;
        journal.found_deleted(contents.deleted, failures);
        let progress = Arc::new(Progress::default());
        let mut problems = Vec::new();
        let mut rows: BTreeMap<_, _> = contents.live.into_iter().map(|row| (row.id, row)).collect();
        for handle in self.handles() {
            let row = handle.journal().and_then(|(_, id)| rows.remove(id));
            match row {
                Some(row) if handle.is_lost() => match load(journal, &row, &progress).await {
                    Ok(loaded) => handle.resume(journal, loaded, failures, self.is_unclean()),
                    Err(error) => problems.push(problem(&row, &error)),
                },
                Some(_) => {}
                // It came into being by a commit that failed.
                None => self.discard(&handle),
            }
            // Its timer has stood still.
            handle.timer.notify_one();
        }
        // These went by a commit that failed.
        for row in rows.values() {
            match load(journal, row, &progress).await {
                Ok(loaded) => self.adopt(journal, loaded, failures),
                Err(error) => problems.push(problem(row, &error)),
            }
        }
        tell("loaded again", &progress, self.clock().since(begun_us));
        Ok(problems)
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

fn problem(row: &QueueRow, error: &recovery::Error) -> String {
    format!("queue {}: {}", row.name, with_causes(error))
}

fn tell(what: &'static str, progress: &Progress, took: Duration) {
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
        "{what}"
    );
}
