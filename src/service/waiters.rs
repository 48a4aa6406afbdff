//! The pops that wait at a queue, in the order of their arrival.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::{Delivered, Error};
use crate::engine::command::Pop;

/// What a waiting pop gets: keys, or the reason why there will be none.
pub(super) type Delivery = Result<Delivered, Error>;

/// A pop that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    /// What it asks for.
    pub(super) pop: Pop,
    /// Where its answer goes.
    pub(super) reply: oneshot::Sender<Delivery>,
}

/// The line of waiting pops. Leaving from the middle is cheap, as most leave that way.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    line: BTreeMap<u64, Waiter>,
    arrivals: u64,
}

impl Waiters {
    /// Puts a pop at the end of the line; its ticket takes it out again.
    pub(super) fn join(&mut self, waiter: Waiter) -> u64 {
        self.arrivals += 1;
        self.line.insert(self.arrivals, waiter);
        self.arrivals
    }

    /// Takes a pop out of the line.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<Waiter> {
        self.line.remove(&ticket)
    }

    /// Takes the pop out that waits longest.
    pub(super) fn next(&mut self) -> Option<Waiter> {
        self.line.pop_first().map(|(_, waiter)| waiter)
    }

    /// Takes all out.
    pub(super) fn take_all(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.line).into_values().collect()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.line.len()
    }
}
