//! The waiting pops of a queue, in order of arrival.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use deltaq_engine::Queue;
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
    /// The token of the call.
    pub(crate) caller: Option<Arc<str>>,
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
    /// The positions of the pops that take the keys of all groups.
    of_all: BTreeSet<u64>,
    /// The positions of the pops that take the keys of one group. Invariant: no set is empty.
    of_groups: BTreeMap<Arc<str>, BTreeSet<u64>>,
    arrivals: u64,
}

impl<R> Default for Waiters<R> {
    fn default() -> Self {
        Self {
            queued: BTreeMap::new(),
            ids: HashMap::new(),
            of_all: BTreeSet::new(),
            of_groups: BTreeMap::new(),
            arrivals: 0,
        }
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
            position = self.ids.get(id).copied().unwrap_or(number);
        }
        let ticket = Ticket { position, number };
        let replaced = self.take(position);
        match &waiter.pop.group {
            None => self.of_all.insert(position),
            Some(group) => self.of_groups.entry(group.clone()).or_default().insert(position),
        };
        if let Some(id) = &waiter.pop.id {
            self.ids.insert(id.clone(), position);
        }
        self.queued.insert(position, (ticket, waiter));
        (ticket, replaced)
    }

    /// Removes a pop, if it still waits.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if self.queued.get(&ticket.position).is_some_and(|(holder, _)| *holder == ticket) {
            self.take(ticket.position);
        }
    }

    /// Removes the waiting pop with this id, because its client has repeated it without a wait.
    pub(crate) fn give_up(&mut self, id: Option<&Arc<str>>) -> Option<Waiter<R>> {
        let position = *self.ids.get(id?)?;
        self.take(position)
    }

    /// Removes the pop that has waited longest.
    pub(crate) fn next(&mut self) -> Option<Waiter<R>> {
        let position = *self.queued.first_key_value()?.0;
        self.take(position)
    }

    /// Removes the pop that has waited longest of those that take a key of one of the groups that have a turn.
    pub(crate) fn next_of(&mut self, queue: &Queue) -> Option<Waiter<R>> {
        if self.of_groups.is_empty() {
            return self.next();
        }
        let first = |positions: &BTreeSet<u64>| positions.first().copied();
        let served = if queue.groups_with_turn_len() < self.of_groups.len() {
            queue.groups_with_turn().filter_map(|name| first(self.of_groups.get(name)?)).min()
        } else {
            let of_groups = self.of_groups.iter().filter(|(name, _)| queue.has_turn(name));
            of_groups.filter_map(|(_, positions)| first(positions)).min()
        };
        let position = served.into_iter().chain(first(&self.of_all)).min()?;
        self.take(position)
    }

    /// Removes all pops.
    pub(crate) fn take_all(&mut self) -> Vec<Waiter<R>> {
        self.ids.clear();
        self.of_all.clear();
        self.of_groups.clear();
        std::mem::take(&mut self.queued).into_values().map(|(_, waiter)| waiter).collect()
    }

    fn take(&mut self, position: u64) -> Option<Waiter<R>> {
        let (_, waiter) = self.queued.remove(&position)?;
        if let Some(id) = &waiter.pop.id {
            self.ids.remove(id);
        }
        match &waiter.pop.group {
            None => drop(self.of_all.remove(&position)),
            Some(group) => self.leave_line(group, position),
        }
        Some(waiter)
    }

    fn leave_line(&mut self, group: &str, position: u64) {
        let Some(positions) = self.of_groups.get_mut(group) else { return };
        positions.remove(&position);
        if positions.is_empty() {
            self.of_groups.remove(group);
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
