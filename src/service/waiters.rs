//! The pops that wait at a queue, in the order of their arrival.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Delivered, Error};
use crate::engine::command::Pop;
use crate::journal::Commit;

/// What a waiting pop gets: keys, or the reason why there will be none.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) items: Result<Delivered, Error>,
    /// Of what brought it about: before that it is not told.
    pub(super) commit: Commit,
}

impl Delivery {
    /// What rests on no commit.
    pub(super) fn at_once(items: Result<Delivered, Error>) -> Self {
        Self { items, commit: Commit::done() }
    }
}

/// A pop that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    /// What it asks for.
    pub(super) pop: Pop,
    /// Where its answer goes.
    pub(super) reply: oneshot::Sender<Delivery>,
}

/// Takes a pop out of the line again. A place may pass to another pop, a ticket does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    place: u64,
    number: u64,
}

/// The line of waiting pops. Leaving from the middle is cheap, as most leave that way.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    line: BTreeMap<u64, (Ticket, Waiter)>,
    /// Invariant: the places of the pops in line that have an id, of which no two have the same.
    ids: HashMap<Arc<str>, u64>,
    arrivals: u64,
}

impl Waiters {
    /// Whether a pop of this id waits.
    pub(super) fn has(&self, id: Option<&Arc<str>>) -> bool {
        id.is_some_and(|id| self.ids.contains_key(id))
    }

    /// Puts a pop at the end of the line, or in the place of the one that has its id and is returned:
    /// whoever repeats a pop has given up the one before.
    pub(super) fn join(&mut self, waiter: Waiter) -> (Ticket, Option<Waiter>) {
        self.arrivals += 1;
        let number = self.arrivals;
        let mut place = number;
        if let Some(id) = &waiter.pop.id {
            place = *self.ids.entry(id.clone()).or_insert(number);
        }
        let ticket = Ticket { place, number };
        let before = self.line.insert(place, (ticket, waiter));
        (ticket, before.map(|(_, waiter)| waiter))
    }

    /// Takes a pop out of the line, if it still stands there.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        if self.line.get(&ticket.place).is_some_and(|(holder, _)| *holder == ticket) {
            let left = self.line.remove(&ticket.place);
            self.forget_id(left.as_ref());
        }
    }

    /// Takes the pop out that waits longest.
    pub(super) fn next(&mut self) -> Option<Waiter> {
        let next = self.line.pop_first().map(|(_, held)| held);
        self.forget_id(next.as_ref());
        next.map(|(_, waiter)| waiter)
    }

    /// Takes all out.
    pub(super) fn take_all(&mut self) -> Vec<Waiter> {
        self.ids.clear();
        std::mem::take(&mut self.line).into_values().map(|(_, waiter)| waiter).collect()
    }

    fn forget_id(&mut self, left: Option<&(Ticket, Waiter)>) {
        if let Some(id) = left.and_then(|(_, waiter)| waiter.pop.id.as_ref()) {
            self.ids.remove(id);
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.line.len()
    }
}
