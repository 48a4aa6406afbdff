//! What became of the leases that ended last, so that a settle repeated after a lost answer is
//! answered as before.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::command::Outcome;
use super::delta::Rv;
use super::limits::SETTLED_LEASES_MAX;

/// The last [`SETTLED_LEASES_MAX`] settled leases.
///
/// Invariant: `order` and `outcomes` hold the same.
#[derive(Debug, Default)]
pub(super) struct SettledLeases {
    order: VecDeque<(Rv, Outcome)>,
    outcomes: HashMap<Rv, Outcome, RandomState>,
}

impl SettledLeases {
    /// Notes how the lease ended; the oldest of too many is forgotten.
    pub(super) fn insert(&mut self, token: Rv, outcome: Outcome) {
        if self.order.len() == SETTLED_LEASES_MAX
            && let Some((oldest, _)) = self.order.pop_front()
        {
            self.outcomes.remove(&oldest);
        }
        self.order.push_back((token, outcome));
        self.outcomes.insert(token, outcome);
    }

    /// How the lease ended, as far as it is remembered.
    pub(super) fn get(&self, token: Rv) -> Outcome {
        self.outcomes.get(&token).copied().unwrap_or(Outcome::Unknown)
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
