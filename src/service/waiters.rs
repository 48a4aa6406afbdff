//! The pops that wait at a queue, in the order of their arrival.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Delivered, Error};
use crate::engine::command::Pop;
use crate::journal::Commit;

/// The answer to a waiting pop: keys, or the reason why there are none.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) items: Result<Delivered, Error>,
    /// The commit of the events that the answer depends on. The pop waits for it.
    pub(super) commit: Commit,
}

impl Delivery {
    /// An answer that depends on no commit.
    pub(super) fn at_once(items: Result<Delivered, Error>) -> Self {
        Self { items, commit: Commit::done() }
    }
}

/// A waiting pop.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The arguments of the pop.
    pub(super) pop: Pop,
    /// Takes the answer.
    pub(super) reply: oneshot::Sender<Delivery>,
}

/// Identifies a waiting pop. A repeated pop inherits the position of the pop before it, but not its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    position: u64,
    number: u64,
}

/// The line of waiting pops. Most pops leave from the middle, so that is cheap.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    line: BTreeMap<u64, (Ticket, Waiter)>,
    /// Invariant: the positions of the pops in line that have an id; no two pops in line have the same id.
    ids: HashMap<Arc<str>, u64>,
    arrivals: u64,
}

impl Waiters {
    /// Whether a pop with this id waits.
    pub(super) fn has(&self, id: Option<&Arc<str>>) -> bool {
        id.is_some_and(|id| self.ids.contains_key(id))
    }

    /// Adds a pop at the end of the line, or in the position of a pop with the same id, which is returned: a caller that
    /// repeats a pop has given up the pop before.
    pub(super) fn join(&mut self, waiter: Waiter) -> (Ticket, Option<Waiter>) {
        self.arrivals += 1;
        let number = self.arrivals;
        let mut position = number;
        if let Some(id) = &waiter.pop.id {
            position = *self.ids.entry(id.clone()).or_insert(number);
        }
        let ticket = Ticket { position, number };
        let replaced = self.line.insert(position, (ticket, waiter));
        (ticket, replaced.map(|(_, waiter)| waiter))
    }

    /// Removes a pop, if it is still in line.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        if self.line.get(&ticket.position).is_some_and(|(holder, _)| *holder == ticket) {
            let left = self.line.remove(&ticket.position);
            self.forget_id(left.as_ref());
        }
    }

    /// Removes the pop that has waited longest.
    pub(super) fn next(&mut self) -> Option<Waiter> {
        let next = self.line.pop_first().map(|(_, held)| held);
        self.forget_id(next.as_ref());
        next.map(|(_, waiter)| waiter)
    }

    /// Removes all pops.
    pub(super) fn take_all(&mut self) -> Vec<Waiter> {
        self.ids.clear();
        std::mem::take(&mut self.line).into_values().map(|(_, waiter)| waiter).collect()
    }

    fn forget_id(&mut self, left: Option<&(Ticket, Waiter)>) {
        if let Some(id) = left.and_then(|(_, waiter)| waiter.pop.id.as_ref()) {
            self.ids.remove(id);
        }
    }

    /// Number of waiting pops.
    pub(super) fn len(&self) -> usize {
        self.line.len()
    }
}
