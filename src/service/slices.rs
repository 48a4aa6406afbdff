//! Commands that touch many keys: they hold the queue's lock for a stretch at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Error;
use super::handle::{Handle, drop_elsewhere};
use crate::engine::command::Progress;
use crate::engine::refusal::Refusal;
use crate::engine::time::Time;
use crate::engine::{Comparison, Queue};
use crate::journal::{self, Commit};

/// How long a sliced command may hold a queue's lock at a stretch.
const SLICE: Duration = Duration::from_millis(1);
/// How often a command that waits looks again: whether the queue is lost, of which nobody tells it if the
/// service drains, and whether the journal is back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How many keys a sliced command looks at before it looks at the clock.
pub const SLICE_KEYS: usize = 256;

/// How far a sliced command got while it held the lock.
enum Stretch<T> {
    /// To its end, or to a refusal.
    Done(Result<T, Refusal>, Commit),
    More(Commit),
    /// To where it needs objects compared, which takes no lock.
    Compare(Arc<Comparison>, Commit),
    NotYet,
}

impl Handle {
    /// Runs a command that comes in slices. It goes on to its end even if the caller is dropped.
    ///
    /// A journal that fails ends it only if the queue loses something by that, or the process is to end. Else it goes
    /// on once the journal is back, but the caller need not wait for that and is told of the failure.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`], [`Error::Journal`], or what the engine refuses.
    pub async fn sliced<T: Send + 'static>(
        self: &Arc<Self>,
        mut step: impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let generation = self.lock().generation;
        let mut comparison = None;
        let last = match self.slice(generation, &mut step) {
            Ok(Stretch::Done(Ok(out), commit)) => {
                commit.wait().await?;
                return Ok(out);
            }
            Ok(Stretch::Done(Err(refusal), commit)) => {
                // It may have a long list.
                drop_elsewhere(step);
                commit.wait().await?;
                return Err(refusal.into());
            }
            Ok(Stretch::More(commit)) => commit,
            Ok(Stretch::Compare(pairs, commit)) => {
                comparison = Some(pairs);
                commit
            }
            Ok(Stretch::NotYet) => Commit::done(),
            Err(error) => {
                drop_elsewhere(step);
                return Err(error);
            }
        };
        let (failed, failure) = oneshot::channel();
        let rest = self.clone().rest(generation, step, comparison, last, failed);
        let rest = self.shutdown().spawn("sliced command", rest);
        tokio::select! {
            biased;
            out = rest => out.unwrap_or(Err(Error::Broken)),
            Ok(error) = failure => Err(error.into()),
        }
    }

    /// All stretches but the first; `failed` hears of a journal that takes nothing.
    async fn rest<T>(
        self: Arc<Self>,
        generation: u64,
        mut step: impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal>,
        mut comparison: Option<Arc<Comparison>>,
        mut last: Commit,
        failed: oneshot::Sender<journal::Error>,
    ) -> Result<T, Error> {
        let mut failed = Some(failed);
        loop {
            if let Some(pairs) = comparison.take() {
                compare(pairs).await;
            }
            self.let_others_in().await;
            let turn = self.sliced_ended.notified();
            tokio::pin!(turn);
            turn.as_mut().enable();
            match self.slice(generation, &mut step) {
                Ok(Stretch::Done(out, commit)) => {
                    commit.wait().await?;
                    return Ok(out?);
                }
                // One stretch is ahead of the journal, so that no more than two wait to be written.
                Ok(Stretch::More(commit)) => {
                    std::mem::replace(&mut last, commit).wait().await?;
                    continue;
                }
                Ok(Stretch::Compare(pairs, commit)) => {
                    comparison = Some(pairs);
                    std::mem::replace(&mut last, commit).wait().await?;
                    continue;
                }
                Ok(Stretch::NotYet) | Err(Error::Journal(journal::Error::Backlog { .. })) => {}
                // The queue is whole. It is not loaded again, so what it keeps for the command stays.
                Err(Error::Journal(error)) if self.open()?.generation == generation => {
                    if self.shutdown().is_draining() {
                        // So those that wait for this one end, too.
                        self.lock().generation += 1;
                        self.sliced_ended.notify_waiters();
                        return Err(error.into());
                    }
                    // Told once; a caller that has gone need not know.
                    let _gone = failed.take().map(|failed| failed.send(error));
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                biased;
                () = turn => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = self.shutdown().cut().cancelled() => {
                    return Err(Error::Journal(journal::Error::OutcomeUnknown));
                }
            }
        }
    }

    /// One stretch of a sliced command. It ends with the state of the queue in which it began: of what
    /// it was about, nothing is left once the queue was loaded again.
    fn slice<T>(
        self: &Arc<Self>,
        generation: u64,
        step: &mut impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal>,
    ) -> Result<Stretch<T>, Error> {
        let begun = self.clock().monotonic_us();
        let (progress, commit) = self.with_inner(|inner, now| {
            if inner.generation != generation {
                return None;
            }
            loop {
                match step(&mut inner.queue, now) {
                    Ok(Progress::More) if self.clock().since(begun) < SLICE => {}
                    progress => return Some(progress),
                }
            }
        })?;
        if !matches!(progress, Some(Ok(Progress::More | Progress::Compare(_) | Progress::NotYet))) {
            self.sliced_ended.notify_waiters();
        }
        Ok(match progress.ok_or(Error::Journal(journal::Error::OutcomeUnknown))? {
            Ok(Progress::Done(out)) => Stretch::Done(Ok(out), commit),
            Ok(Progress::More) => Stretch::More(commit),
            Ok(Progress::Compare(pairs)) => Stretch::Compare(pairs, commit),
            Ok(Progress::NotYet) => Stretch::NotYet,
            Err(refusal) => Stretch::Done(Err(refusal), commit),
        })
    }
}

/// Compares objects on a thread that may block. If that thread fails, the engine compares them itself.
async fn compare(pairs: Arc<Comparison>) {
    let _failed = tokio::task::spawn_blocking(move || pairs.run()).await;
}
