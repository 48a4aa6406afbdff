//! The requests that destructors leave for a queue.
//!
//! A destructor may run anywhere, also under a queue's lock, so it changes no queue. It leaves a request and wakes the queue's
//! task. Every change of the queue carries out the open requests first; the task makes a change if nobody else does.

use deltaq_engine::id::Token;
use deltaq_journal::Commit;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::waiters::Ticket;

/// The requests of destructors, and what wakes the queue's task.
///
/// Both lists are bounded: a live lease is in at most one request, because its delivery is dropped once, and a queue has at
/// most `max_waiters` waiting pops.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: Mutex<OpenRequests>,
    wake: Notify,
}

/// Requests that no change has carried out.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    pub(super) undelivered: Vec<Undelivered>,
    /// Waiting pops whose callers have disconnected.
    pub(super) disconnected: Vec<Ticket>,
}

/// Leases whose reply did not reach its caller.
#[derive(Debug)]
pub(super) struct Undelivered {
    pub(super) tokens: Vec<Token>,
    /// The commit of the leases.
    pub(super) commit: Commit,
}

impl Requests {
    /// Requests that the keys of undelivered leases return to the queue.
    pub(super) fn reclaim(&self, undelivered: Undelivered) {
        self.open.lock().undelivered.push(undelivered);
        self.wake();
    }

    /// Requests that a waiting pop is removed, because its caller has disconnected.
    pub(super) fn leave(&self, ticket: Ticket) {
        self.open.lock().disconnected.push(ticket);
        self.wake();
    }

    /// Wakes the queue's task.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until the task is woken.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Takes the open requests, for a change to carry them out.
    pub(super) fn take(&self) -> OpenRequests {
        std::mem::take(&mut *self.open.lock())
    }
}
