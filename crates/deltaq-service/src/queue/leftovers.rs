//! The requests that destructors leave for a queue.
//!
//! A destructor may run anywhere, even under a queue's lock, so it must not change a queue. Instead it leaves a
//! request and wakes the queue's task. Every change to the queue first carries out the open requests. If no other
//! change comes, the task makes one.

use deltaq_engine::id::Token;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::waiters::Ticket;

/// The requests of destructors, and the wake-up of the queue's task.
///
/// Both lists are bounded. A live lease is in at most one request, because its delivery is dropped only once. A queue
/// has at most `max_waiters` waiting pops.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    open: Mutex<OpenLeftovers>,
    wake: Notify,
}

/// Requests that no change has carried out yet.
#[derive(Debug, Default)]
pub(crate) struct OpenLeftovers {
    /// Leases whose reply did not reach the caller of the pop.
    pub(crate) undelivered: Vec<Token>,
    /// Waiting pops whose callers have disconnected.
    pub(crate) disconnected: Vec<Ticket>,
}

impl Leftovers {
    /// Requests that the keys of undelivered leases return to the queue.
    pub(crate) fn reclaim(&self, undelivered: impl IntoIterator<Item = Token>) {
        self.open.lock().undelivered.extend(undelivered);
        self.wake();
    }

    /// Requests that a waiting pop is removed, because its caller has disconnected.
    pub(crate) fn leave(&self, ticket: Ticket) {
        self.open.lock().disconnected.push(ticket);
        self.wake();
    }

    /// Wakes the queue's task.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until the task is woken.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Takes the open requests, for a change to carry them out.
    pub(crate) fn take(&self) -> OpenLeftovers {
        std::mem::take(&mut *self.open.lock())
    }
}
