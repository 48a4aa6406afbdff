//! What became of the leases that ended last, so that a settle repeated after a lost answer is
//! answered as before.

use std::collections::VecDeque;

use super::chunked::Chunked;
use super::command::Outcome;
use super::delta::Rv;
use super::limits::SETTLED_LEASES_MAX;

/// The last [`SETTLED_LEASES_MAX`] settled leases.
///
/// Leases are settled in about the order of their tokens, so both take what comes at their end and let go of what is
/// near their beginning; a hash table of as many would fetch four lines from all over memory each time.
///
/// Invariant: `order` and `outcomes` hold the same.
#[derive(Debug, Default)]
pub(super) struct SettledLeases {
    order: VecDeque<(Rv, Outcome)>,
    outcomes: Chunked<(Rv, Outcome)>,
}

impl SettledLeases {
    /// Notes how the lease ended; the oldest of too many is forgotten.
    pub(super) fn insert(&mut self, token: Rv, outcome: Outcome) {
        if self.order.len() == SETTLED_LEASES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.outcomes.remove(&oldest);
        }
        self.order.push_back((token, outcome));
        self.outcomes.insert((token, outcome));
    }

    /// How the lease ended, as far as it is remembered.
    pub(super) fn get(&self, token: Rv) -> Outcome {
        let found = self.outcomes.next((token, Outcome::Acked)).filter(|(found, _)| *found == token);
        found.map_or(Outcome::Unknown, |(_, outcome)| outcome)
    }

    /// All that is remembered, oldest first. A checkpoint copies it under the queue's lock.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Rv, Outcome)> {
        self.order.iter().copied()
    }

    /// How many leases are remembered.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}
