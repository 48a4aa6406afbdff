//! Keys that are being delivered to the caller of a pop.

use std::sync::{Arc, Weak};

use deltaq_engine::command::Item;
use deltaq_journal::Commit;
use tokio::sync::oneshot;

use super::leftovers::Leftovers;
use crate::Error;

/// Keys that were leased to a pop. If the delivery is dropped without [`confirm`](Self::confirm), the keys return to
/// the queue as if they had never been leased, except for those that the engine does not take back.
#[derive(Debug, Default)]
pub struct Delivered {
    /// The keys.
    pub items: Vec<Item>,
    /// The queue that the keys return to, unless the delivery is confirmed.
    undo: Option<Weak<Leftovers>>,
}

impl Delivered {
    /// Keys that this pop, or an earlier one with the same id, has leased.
    pub(crate) fn new(queue: &Arc<Leftovers>, items: Vec<Item>) -> Self {
        let undo = (!items.is_empty()).then(|| Arc::downgrade(queue));
        Self { items, undo }
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
            queue.reclaim(self.items.iter().map(|item| item.token));
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
