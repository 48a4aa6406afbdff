//! The promises about the acknowledged part of a lease.

use deltaq_engine::command::Settled;
use deltaq_engine::id::Rv;

use super::{Acked, Held, Ledger, QueueRef};
use crate::chaos::simulation::Violation;

impl Ledger {
    /// A caller acknowledges the deltas of a lease up to one of them.
    pub(in crate::chaos::simulation) fn progresses(
        &mut self,
        queue: &QueueRef,
        key: &str,
        token: Rv,
        through: Rv,
    ) -> Result<(), Violation> {
        self.held(queue, key, token)?.parts.entry(through).or_insert(Acked::Maybe);
        Ok(())
    }

    /// A caller gets the reply.
    pub(in crate::chaos::simulation) fn progressed(
        &mut self,
        queue: &QueueRef,
        key: &str,
        token: Rv,
        through: Rv,
        reply: Settled,
    ) -> Result<(), Violation> {
        let now_us = self.now_us;
        let held = self.held(queue, key, token)?;
        match reply {
            Settled::Ok { .. } | Settled::Repeated => {
                held.parts.insert(through, Acked::Yes);
                Ok(())
            }
            Settled::Stale { .. } if held.may_have_ended(now_us) => Ok(()),
            _ => Err(format!("{key}, lease {token}: the part up to {through} is answered with {reply:?}")),
        }
    }
}

impl Held {
    /// Whether this delta was acknowledged with a part of the lease.
    fn part(&self, rv: Rv) -> Acked {
        self.parts.range(rv..).map(|(_, acked)| *acked).max().unwrap_or(Acked::No)
    }

    /// Whether this call was acknowledged, with the lease or a part of it.
    pub(super) fn consumed(&self, number: u64) -> Acked {
        let deltas = self.deltas.iter().filter(|delta| delta.carried == Some(number));
        deltas.map(|delta| self.acked.max(self.part(delta.rv))).max().unwrap_or(Acked::No)
    }

    /// The newest delta that was certainly acknowledged with a part of the lease.
    pub(super) fn surely_through(&self) -> Option<Rv> {
        self.parts.iter().rev().find(|(_, acked)| **acked == Acked::Yes).map(|(rv, _)| *rv)
    }

    /// Whether a repeated reply may have these deltas.
    pub(super) fn may_have(&self, again: &Self) -> bool {
        let gone = self.deltas.len().checked_sub(again.deltas.len());
        let Some((gone, rest)) = gone.map(|count| self.deltas.split_at(count)) else { return false };
        rest == again.deltas && gone.last().is_none_or(|delta| self.part(delta.rv) != Acked::No)
    }

    /// The known objects that the lease has left.
    pub(super) fn results(&self) -> Results {
        let result = |rv: Option<Rv>| {
            let delta = self.deltas.iter().rfind(|delta| rv.is_none_or(|rv| delta.rv == rv));
            delta.and_then(|delta| delta.result)
        };
        if self.acked == Acked::Yes {
            return Results { is_sure: true, sure: result(None), may_be: Vec::new() };
        }
        let surely = self.surely_through();
        let later = self.parts.range(surely.map_or(Rv::ZERO, Rv::next)..);
        let mut may_be: Vec<Option<u64>> = later.map(|(through, _)| result(Some(*through))).collect();
        may_be.extend((self.acked == Acked::Maybe).then(|| result(None)));
        let sure = surely.and_then(|through| result(Some(through)));
        Results { is_sure: surely.is_some(), sure, may_be }
    }
}

/// The known objects that a lease has left; `None` is none.
#[derive(Debug)]
pub(super) struct Results {
    /// Whether it has certainly left `sure`.
    pub(super) is_sure: bool,
    pub(super) sure: Option<u64>,
    /// What it may have left after that.
    pub(super) may_be: Vec<Option<u64>>,
}
