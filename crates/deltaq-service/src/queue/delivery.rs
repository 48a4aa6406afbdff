//! Keys that are being delivered to the caller of a pop.

use std::sync::{Arc, Weak};

use deltaq_engine::command::Item;
use deltaq_journal::Commit;
use tokio::sync::oneshot;

use super::leftovers::{Leftovers, Undelivered};
use crate::Error;

/// Keys that were leased to a pop. If the delivery is dropped without [`confirm`](Self::confirm), the keys return to
/// the queue as if they had never been leased.
#[derive(Debug, Default)]
pub struct Delivered {
    /// The keys.
    pub items: Vec<Item>,
    commit: Commit,
    /// The queue that the keys return to, unless the delivery is confirmed.
    undo: Option<Weak<Leftovers>>,
}

impl Delivered {
    /// Keys that this pop has leased; their events are in `commit`.
    pub(crate) fn fresh(queue: &Arc<Leftovers>, items: Vec<Item>, commit: Commit) -> Self {
        let undo = (!items.is_empty()).then(|| Arc::downgrade(queue));
        Self { items, commit, undo }
    }

    /// Keys that an earlier pop has leased. Dropping this delivery does not return any keys.
    pub(crate) fn repeated(items: Vec<Item>) -> Self {
        Self { items, commit: Commit::done(), undo: None }
    }

    /// Whether dropping this returns keys to the queue.
    #[must_use]
    pub fn holds_leases(&self) -> bool {
        self.undo.is_some()
    }

    /// Records that the keys have reached the caller, as far as the server can tell.
    pub fn confirm(&mut self) {
        self.undo = None;
    }
}

impl Drop for Delivered {
    fn drop(&mut self) {
        if let Some(queue) = self.undo.take().and_then(|queue| queue.upgrade()) {
            let tokens = self.items.iter().map(|item| item.token).collect();
            queue.reclaim(Undelivered { tokens, commit: std::mem::take(&mut self.commit) });
        }
    }
}

/// The answer to a waiting pop: keys, or why there are none.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) items: Result<Delivered, Error>,
    /// The commit of the events that the answer depends on. The pop waits for it.
    pub(crate) commit: Commit,
}

impl Delivery {
    /// An answer that depends on no commit.
    pub(crate) fn at_once(items: Result<Delivered, Error>) -> Self {
        Self { items, commit: Commit::done() }
    }
}

/// The sender of the answer to a waiting pop.
pub(crate) type Reply = oneshot::Sender<Delivery>;

/// Keys for a waiting pop, or why there are none.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) reply: Reply,
    pub(crate) items: Result<Vec<Item>, Error>,
}
