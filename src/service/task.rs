//! The task of a queue: it lets time pass, and carries out what destructors have asked for.
//!
//! A destructor may run anywhere, also under a queue's lock, so it changes no queue. It leaves a request and wakes the task.
//! Every change of the queue carries out the open requests first; the task makes a change when nobody else does.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::queue::{Handle, State};
use super::waiters::Ticket;
use super::{Error, JournalError};
use crate::engine::id::Token;
use crate::engine::time::Time;
use crate::journal::Commit;

/// How long the task waits while the journal has no room for events.
const BACKLOG_WAIT: Duration = Duration::from_millis(100);

/// The requests of destructors, and what wakes the task.
///
/// The lists are bounded by what there is to give back: each live lease is in them at most once, because the delivery that
/// had it is gone, and so is each waiting pop, of which a queue has `max_waiters` at most.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: Mutex<Open>,
    wake: Notify,
}

/// Requests that no change has carried out.
#[derive(Debug, Default)]
pub(super) struct Open {
    undelivered: Vec<Undelivered>,
    left: Vec<Ticket>,
}

/// Leases whose reply did not reach its caller.
#[derive(Debug)]
pub(super) struct Undelivered {
    pub(super) tokens: Vec<Token>,
    /// The commit of the leases.
    pub(super) commit: Commit,
}

impl Requests {
    /// Asks for leases to be given back.
    pub(super) fn reclaim(&self, undelivered: Undelivered) {
        self.open.lock().undelivered.push(undelivered);
        self.wake();
    }

    /// Asks for a pop to be taken off the line, because its caller has disconnected.
    pub(super) fn leave(&self, ticket: Ticket) {
        self.open.lock().left.push(ticket);
        self.wake();
    }

    /// Has the task look at the queue.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Takes the open requests, for a change to carry them out.
    pub(super) fn take(&self) -> Open {
        std::mem::take(&mut *self.open.lock())
    }
}

impl State {
    /// Carries out the requests of destructors. The keys of undelivered leases go back to where they were, unless a
    /// repeated pop was answered with them.
    pub(super) fn carry_out(&mut self, requests: Open, now: Time) {
        for ticket in requests.left {
            self.waiters.leave(ticket);
        }
        for Undelivered { mut tokens, commit } in requests.undelivered {
            // Leases of a failed commit are gone. The queue was loaded again since, and their numbers may be given anew.
            if commit.outcome().is_none_or(|outcome| outcome.is_ok()) {
                tokens.retain(|token| !self.repeated.contains(token));
                self.queue.return_undelivered(now, &tokens);
            }
        }
    }
}

/// What the task waits for.
struct Tick {
    /// A periodic Resync is to run.
    resync_due: bool,
    /// When the next thing is due.
    next: Option<Time>,
    /// A lease is due, but its own commit is still open, and it does not expire before.
    commit: Option<Commit>,
}

impl Handle {
    /// Lets everything happen that is due.
    fn tick(self: &Arc<Self>) -> Result<Tick, Error> {
        let (_now, commit) = self.change(|state, now| state.queue.advance(now))?;
        let mut state = self.lock();
        let resync_due = std::mem::take(&mut state.resync_due);
        let commit = state.queue.due_uncommitted(self.now()).then_some(commit);
        // The deadline counts as armed although the task waits for a commit: each tick would wake the next one else.
        state.armed = state.queue.next_deadline();
        let next = if commit.is_some() { None } else { state.armed };
        Ok(Tick { resync_due, next, commit })
    }
}

/// Runs the task until the queue ends or the service drains.
pub(super) async fn run(handle: Arc<Handle>) {
    // A Resync waits for commits and for other commands; time and requests must not wait for it.
    let mut resync: Option<BoxFuture<'_, ()>> = None;
    let mut resync_due = false;
    loop {
        let (next, commit) = match handle.tick() {
            Ok(tick) => {
                resync_due |= tick.resync_due;
                (tick.next, tick.commit)
            }
            // Nothing reports when the journal has room again.
            Err(Error::Journal(JournalError::Backlog { .. })) => {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(BACKLOG_WAIT) => {}
                    () = handle.shutdown().draining().cancelled() => return,
                }
                continue;
            }
            // The recovery wakes the task once the queue is loaded again.
            Err(Error::Journal(_)) => (None, None),
            Err(_) => return,
        };
        if resync.is_none() && std::mem::take(&mut resync_due) {
            resync = Some(Box::pin(run_resync(&handle)));
        }
        let sleep = next.map(|next| handle.until(next));
        tokio::select! {
            biased;
            () = handle.requests.wake.notified() => {}
            () = tokio::time::sleep(sleep.unwrap_or_default()), if sleep.is_some() => {}
            _ = commit.clone().unwrap_or_default().wait(), if commit.is_some() => {}
            () = ended(&mut resync) => resync = None,
            () = handle.shutdown().draining().cancelled() => return,
        }
    }
}

/// Waits for the end of a Resync, if one runs.
async fn ended(resync: &mut Option<BoxFuture<'_, ()>>) {
    match resync {
        Some(resync) => resync.await,
        None => pending().await,
    }
}

async fn run_resync(handle: &Arc<Handle>) {
    if let Err(error) = handle.resync(None).await
        && error != Error::QueueDeleted
    {
        tracing::warn!(queue = %handle.name(), %error, "the periodic resync failed");
    }
}
