//! How the most recently settled leases ended. If a client did not receive the reply to a settle, it repeats the
//! settle and gets the same reply.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::id::Token;
use super::limits::SETTLED_LEASES_MAX;
use super::line::Line;

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Acknowledged.
    Acked,
    /// Done, without an acknowledgement.
    Done,
    /// Its worker reported a failure.
    Nacked,
    /// Released by its worker.
    Released,
    /// Rejected by its worker.
    Rejected,
    /// Its deadline passed.
    Expired,
    /// The lease never existed, or its record was dropped.
    Unknown,
}

impl Outcome {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Done => "done",
            Self::Nacked => "nacked",
            Self::Released => "released",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        }
    }
}

/// The last [`SETTLED_LEASES_MAX`] settled leases.
///
/// Invariant: `order` holds the tokens of `outcomes` in the order in which their leases were settled.
#[derive(Debug, Default)]
pub(super) struct SettledLeases {
    order: VecDeque<Token>,
    outcomes: Line<Token, Outcome>,
}

impl SettledLeases {
    /// Records how the lease ended. When the limit is reached, the oldest record is dropped.
    pub(super) fn insert(&mut self, token: Token, outcome: Outcome) {
        if self.order.len() == SETTLED_LEASES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.outcomes.remove(oldest);
        }
        self.order.push_back(token);
        self.outcomes.insert(token, outcome);
    }

    /// How the lease ended; `Unknown` if there is no record of it.
    pub(super) fn get(&self, token: Token) -> Outcome {
        self.outcomes.get(token).unwrap_or(Outcome::Unknown)
    }

    /// All records, the oldest first. A checkpoint copies them under the queue's lock.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Token, Outcome)> {
        self.order.iter().map(|token| (*token, self.get(*token)))
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Rv;

    fn token(number: u64) -> Token {
        Token::new(Rv::new(number))
    }

    #[test]
    fn every_outcome_is_found_and_the_oldest_is_dropped() {
        let mut settled = SettledLeases::default();
        let outcomes = [
            Outcome::Acked,
            Outcome::Done,
            Outcome::Nacked,
            Outcome::Released,
            Outcome::Rejected,
            Outcome::Expired,
        ];
        for (token, outcome) in (1..).map(token).zip(outcomes) {
            settled.insert(token, outcome);
            assert_eq!(settled.get(token), outcome);
        }
        assert_eq!(settled.get(token(9)), Outcome::Unknown);
        for token in (100..).map(token).take(SETTLED_LEASES_MAX - 5) {
            settled.insert(token, Outcome::Acked);
        }
        assert_eq!((settled.get(token(1)), settled.get(token(2))), (Outcome::Unknown, Outcome::Done));
        assert_eq!(settled.len(), SETTLED_LEASES_MAX);
        assert_eq!(settled.iter().next(), Some((token(2), Outcome::Done)));
    }
}
