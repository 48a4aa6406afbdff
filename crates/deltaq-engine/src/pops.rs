//! The live leases of pops with an id, so that a repeated pop finds the leases of the first one.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::id::Token;
use super::schedule::Lease;

/// The pops with an id that have live leases.
///
/// A pop leases its keys one after the other, so no other lease has a token between theirs. Only the number of the leases
/// and the range of their tokens are kept: a list of the leases would have to be searched at the end of each of them.
#[derive(Debug, Default)]
pub(super) struct Pops(HashMap<Arc<str>, LivePop, RandomState>);

/// A pop with live leases.
#[derive(Debug)]
struct LivePop {
    first: Token,
    last: Token,
    leases: usize,
}

impl Pops {
    /// Records a new lease of the pop.
    pub(super) fn add(&mut self, id: &Arc<str>, token: Token) {
        let new = LivePop { first: token, last: token, leases: 0 };
        let pop = self.0.entry(id.clone()).or_insert(new);
        pop.first = pop.first.min(token);
        pop.last = pop.last.max(token);
        pop.leases += 1;
    }

    /// Records the end of a lease. Returns whether its pop had one.
    pub(super) fn end(&mut self, lease: &Lease) -> bool {
        let Some(id) = &lease.pop_id else { return true };
        let Some(pop) = self.0.get_mut(id) else { return false };
        pop.leases -= 1;
        if pop.leases == 0 {
            self.0.remove(id);
        }
        true
    }

    /// The smallest and the largest token of the pop's leases. Some of them may have ended.
    pub(super) fn tokens(&self, id: &str) -> Option<(Token, Token)> {
        self.0.get(id).map(|pop| (pop.first, pop.last))
    }

    /// Number of live leases of all pops.
    pub(super) fn leases(&self) -> usize {
        self.0.values().map(|pop| pop.leases).sum()
    }
}
