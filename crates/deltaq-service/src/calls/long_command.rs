//! Commands on many keys. They hold the queue's lock for a millisecond at a time, and other calls run in between.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::Progress;
use deltaq_engine::refusal::Refusal;
use deltaq_engine::time::Time;
use deltaq_engine::{Comparison, Queue};
use deltaq_journal::{self, Commit};
use tokio::sync::oneshot;

use crate::Error;
use crate::author::{author, on_behalf_of};
use crate::queue::{Handle, drop_in_background};

/// The maximum time for which a long command holds a queue's lock.
const SLICE: Duration = Duration::from_millis(1);
/// How often a waiting command checks whether the queue is lost and whether the journal accepts events again.
const RECHECK: Duration = Duration::from_secs(1);
/// Maximum number of keys in a step of a long command. The clock is read after each step.
pub(crate) const STEP_KEYS: usize = 256;

/// The progress after one slice of a long command, and the commit of the slice.
type Slice<T> = (Result<Progress<T>, Refusal>, Commit);

impl Handle {
    /// Runs a command step by step. Once begun, it runs to its end even if the caller's future is dropped.
    ///
    /// After a failure of the journal, the command ends if the queue was loaded again, because the loaded queue has
    /// no job for the command. It also ends if the process shuts down. Otherwise it continues once the journal
    /// accepts events again. In all cases the caller gets the error at once.
    ///
    /// Only `service` and tests call this; the other modules use the typed commands.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`], [`Error::Journal`], or a refusal of the engine.
    pub async fn long_command<T: Send + 'static>(
        self: &Arc<Self>,
        mut step: impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let generation = self.lock().generation;
        let mut comparison = None;
        let last = match self.slice(generation, &mut step) {
            Ok((Ok(Progress::Done(out)), commit)) => {
                commit.wait().await?;
                return Ok(out);
            }
            Ok((Err(refusal), commit)) => {
                // The command may own a long list.
                drop_in_background(step);
                commit.wait().await?;
                return Err(refusal.into());
            }
            Ok((Ok(Progress::More), commit)) => commit,
            Ok((Ok(Progress::Compare(pairs)), commit)) => {
                comparison = Some(pairs);
                commit
            }
            Ok((Ok(Progress::NotYet), _)) => Commit::done(),
            Err(error) => {
                drop_in_background(step);
                return Err(error);
            }
        };
        let (failed, failure) = oneshot::channel();
        let rest = self.clone().remaining_slices(generation, step, comparison, last, failed);
        let rest = self.shutdown().spawn("long command", on_behalf_of(author(), rest));
        tokio::select! {
            biased;
            out = rest => out.unwrap_or(Err(Error::Broken)),
            Ok(error) = failure => Err(error.into()),
        }
    }

    /// Runs all slices except the first. `failed` receives the first failure of the journal.
    async fn remaining_slices<T>(
        self: Arc<Self>,
        generation: u64,
        mut step: impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal>,
        mut comparison: Option<Arc<Comparison>>,
        mut last: Commit,
        failed: oneshot::Sender<deltaq_journal::Error>,
    ) -> Result<T, Error> {
        let mut failed = Some(failed);
        loop {
            if let Some(pairs) = comparison.take() {
                compare(pairs).await;
            }
            tokio::task::yield_now().await;
            let ended = self.long_command_ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            match self.slice(generation, &mut step) {
                Ok((Ok(Progress::Done(out)), commit)) => {
                    commit.wait().await?;
                    return Ok(out);
                }
                Ok((Err(refusal), commit)) => {
                    commit.wait().await?;
                    return Err(refusal.into());
                }
                // The command is one slice ahead of the journal, so at most two slices wait to be written.
                Ok((Ok(Progress::More), commit)) => {
                    std::mem::replace(&mut last, commit).wait().await?;
                    continue;
                }
                Ok((Ok(Progress::Compare(pairs)), commit)) => {
                    comparison = Some(pairs);
                    std::mem::replace(&mut last, commit).wait().await?;
                    continue;
                }
                Ok((Ok(Progress::NotYet), _)) => {}
                Err(Error::Journal(error)) if error.is_backlog() => {}
                // The queue is intact and will not be loaded again, so it still has the job for the command.
                Err(Error::Journal(error)) if self.open()?.generation == generation => {
                    if self.shutdown().is_draining() {
                        // This also ends commands that wait for this command.
                        self.lock().generation += 1;
                        self.long_command_ended.notify_waiters();
                        return Err(error.into());
                    }
                    let _disconnected = failed.take().map(|failed| failed.send(error));
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                biased;
                () = ended => {}
                () = tokio::time::sleep(RECHECK) => {}
                () = self.shutdown().cut().cancelled() => {
                    return Err(Error::Journal(deltaq_journal::Error::OutcomeUnknown));
                }
            }
        }
    }

    /// Runs one slice of a long command. If the queue has been loaded again since the command began, the command
    /// ends, because the loaded state has no job for it.
    fn slice<T>(
        self: &Arc<Self>,
        generation: u64,
        step: &mut impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal>,
    ) -> Result<Slice<T>, Error> {
        let begun_us = self.clock().monotonic_us();
        let (progress, commit) = self.change_fairly(|state, now| {
            if state.generation != generation {
                return None;
            }
            loop {
                match step(&mut state.queue, now) {
                    Ok(Progress::More) if self.clock().since(begun_us) < SLICE => {}
                    progress => return Some(progress),
                }
            }
        })?;
        if !matches!(progress, Some(Ok(Progress::More | Progress::Compare(_) | Progress::NotYet))) {
            self.long_command_ended.notify_waiters();
        }
        let progress = progress.ok_or(Error::Journal(deltaq_journal::Error::OutcomeUnknown))?;
        Ok((progress, commit))
    }
}

/// Compares objects on a blocking thread. If that thread fails, the engine compares the objects under the lock.
pub(crate) async fn compare(pairs: Arc<Comparison>) {
    let _failed = tokio::task::spawn_blocking(move || pairs.run()).await;
}
