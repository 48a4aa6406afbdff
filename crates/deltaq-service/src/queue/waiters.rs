//! The waiting pops of a queue, in order of arrival.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use deltaq_engine::command::Pop;
use deltaq_engine::time::Time;

/// A waiting pop. `R` sends its answer.
#[derive(Debug)]
pub(crate) struct Waiter<R> {
    /// The arguments of the pop.
    pub(crate) pop: Pop,
    /// The sender of the answer.
    pub(crate) reply: R,
    /// When the pop arrived.
    pub(crate) since: Time,
}

/// Identifies a waiting pop. A repeated pop takes over the position of the earlier pop, but not its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    position: u64,
    number: u64,
}

/// The waiting pops. Removal from the middle is cheap, because most pops leave before their turn.
#[derive(Debug)]
pub(crate) struct Waiters<R> {
    queued: BTreeMap<u64, (Ticket, Waiter<R>)>,
    /// Invariant: the positions of the waiting pops that have an id; no two waiting pops have the same id.
    ids: HashMap<Arc<str>, u64>,
    arrivals: u64,
}

impl<R> Default for Waiters<R> {
    fn default() -> Self {
        Self { queued: BTreeMap::new(), ids: HashMap::new(), arrivals: 0 }
    }
}

impl<R> Waiters<R> {
    /// Whether a pop with this id waits.
    pub(crate) fn has(&self, id: Option<&Arc<str>>) -> bool {
        id.is_some_and(|id| self.ids.contains_key(id))
    }

    /// Adds a pop at the end. If a pop with the same id is waiting, the new pop replaces it at its position, and the
    /// old pop is returned: a caller that repeats a pop has abandoned the earlier one.
    pub(crate) fn join(&mut self, waiter: Waiter<R>) -> (Ticket, Option<Waiter<R>>) {
        self.arrivals += 1;
        let number = self.arrivals;
        let mut position = number;
        if let Some(id) = &waiter.pop.id {
            position = *self.ids.entry(id.clone()).or_insert(number);
        }
        let ticket = Ticket { position, number };
        let replaced = self.queued.insert(position, (ticket, waiter));
        (ticket, replaced.map(|(_, waiter)| waiter))
    }

    /// Removes a pop, if it still waits.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if self.queued.get(&ticket.position).is_some_and(|(holder, _)| *holder == ticket) {
            let left = self.queued.remove(&ticket.position);
            self.forget_id(left.as_ref());
        }
    }

    /// Removes the waiting pop with this id, because its client has repeated it without a wait.
    pub(crate) fn give_up(&mut self, id: Option<&Arc<str>>) -> Option<Waiter<R>> {
        let position = self.ids.remove(id?)?;
        self.queued.remove(&position).map(|(_, waiter)| waiter)
    }

    /// Removes the pop that has waited longest.
    pub(crate) fn next(&mut self) -> Option<Waiter<R>> {
        let next = self.queued.pop_first().map(|(_, held)| held);
        self.forget_id(next.as_ref());
        next.map(|(_, waiter)| waiter)
    }

    /// Removes all pops.
    pub(crate) fn take_all(&mut self) -> Vec<Waiter<R>> {
        self.ids.clear();
        std::mem::take(&mut self.queued).into_values().map(|(_, waiter)| waiter).collect()
    }

    fn forget_id(&mut self, left: Option<&(Ticket, Waiter<R>)>) {
        if let Some(id) = left.and_then(|(_, waiter)| waiter.pop.id.as_ref()) {
            self.ids.remove(id);
        }
    }

    /// The waiting pops after a position, each with its position.
    pub(crate) fn after(&self, position: u64) -> impl Iterator<Item = (u64, &Waiter<R>)> {
        let behind = self.queued.range((Bound::Excluded(position), Bound::Unbounded));
        behind.map(|(position, (_, waiter))| (*position, waiter))
    }

    /// Number of waiting pops.
    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }
}
