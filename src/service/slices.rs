//! Commands that touch many keys: they hold the queue's lock for a stretch at a time.

use std::sync::Arc;
use std::time::Duration;

use super::Error;
use super::handle::Handle;
use crate::engine::Queue;
use crate::engine::command::Progress;
use crate::engine::refusal::Refusal;
use crate::engine::time::Time;
use crate::journal::{self, Commit};

/// How long a sliced command may hold a queue's lock at a stretch.
const SLICE: Duration = Duration::from_millis(1);
/// How often a command that waits for another one to end looks whether the queue is lost: nobody wakes
/// it then, and a service that drains loads no queue again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How many keys a sliced command looks at before it looks at the clock.
pub const SLICE_KEYS: usize = 256;

/// How far a sliced command got while it held the lock.
enum Stretch<T> {
    Done(T, Commit),
    More(Commit),
    NotYet,
}

impl Handle {
    /// Runs a command that comes in slices. It goes on to its end even if the caller is dropped.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`], [`Error::Journal`], or what the engine refuses.
    pub async fn sliced<T: Send + 'static>(
        self: &Arc<Self>,
        mut step: impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let generation = self.lock().generation;
        let mut last = match self.slice(generation, &mut step)? {
            Stretch::Done(out, commit) => {
                commit.wait().await?;
                return Ok(out);
            }
            Stretch::More(commit) => commit,
            Stretch::NotYet => Commit::done(),
        };
        let handle = self.clone();
        let rest = self.shutdown().spawn("sliced command", async move {
            loop {
                handle.let_others_in().await;
                let turn = handle.sliced_ended.notified();
                tokio::pin!(turn);
                turn.as_mut().enable();
                match handle.slice(generation, &mut step)? {
                    Stretch::Done(out, commit) => {
                        commit.wait().await?;
                        return Ok(out);
                    }
                    // One stretch is ahead of the journal, so that no more than two wait to be written.
                    Stretch::More(commit) => std::mem::replace(&mut last, commit).wait().await?,
                    Stretch::NotYet => tokio::select! {
                        biased;
                        () = turn => {}
                        () = tokio::time::sleep(LOOK_AGAIN) => {}
                    },
                }
            }
        });
        rest.await.unwrap_or(Err(Error::Broken))
    }

    /// One stretch of a sliced command. It ends with the state of the queue in which it began: of what
    /// it was about, nothing is left once the queue was loaded again.
    fn slice<T>(
        self: &Arc<Self>,
        generation: u64,
        step: &mut impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal>,
    ) -> Result<Stretch<T>, Error> {
        let begun = self.clock().now_us();
        let (stretch, commit) = self.with_inner(|inner, now| {
            if inner.generation != generation {
                return Err(Error::Journal(journal::Error::OutcomeUnknown));
            }
            loop {
                match step(&mut inner.queue, now) {
                    Ok(Progress::More) if self.clock().since(begun) < SLICE => {}
                    progress => return Ok(progress?),
                }
            }
        })?;
        if !matches!(stretch, Ok(Progress::More | Progress::NotYet)) {
            self.sliced_ended.notify_waiters();
        }
        Ok(match stretch? {
            Progress::Done(out) => Stretch::Done(out, commit),
            Progress::More => Stretch::More(commit),
            Progress::NotYet => Stretch::NotYet,
        })
    }
}
