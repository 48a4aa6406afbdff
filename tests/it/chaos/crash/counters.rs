//! Counts of the effects of the load: a judge finds nothing in an empty history.

use std::collections::BTreeMap;
use std::fmt;

use super::history::{Answer, Call, Effect, Operation, Outcome, SettleKind, Settled};

/// The number of events of each kind.
#[derive(Debug, Default)]
pub(crate) struct Counters(BTreeMap<&'static str, usize>);

impl Counters {
    /// Counts the effects of a call.
    pub(crate) fn count(&mut self, call: &Call) {
        let Some(reply) = call.reply() else {
            self.add(
                if matches!(call.answer, Answer::Unknown) { "calls without reply" } else { "refusals" },
                1,
            );
            return;
        };
        match &call.operation {
            Operation::Produce { changes, is_replace } => {
                let deletes =
                    changes.iter().filter(|change| matches!(change.effect, Effect::Delete { .. })).count();
                self.add(if *is_replace { "Replaces" } else { "produce calls" }, 1);
                self.add("objects", changes.len() - deletes);
                self.add("deletions", deletes);
            }
            Operation::Resync => self.add("Resyncs", 1),
            Operation::Pop { .. } => self.add("leases", reply.leases.len()),
            Operation::Extend { .. } => self.add("extensions", 1),
            Operation::Items => self.add("lists of items", 1),
            Operation::Settle { .. } | Operation::Redrive | Operation::Read => {}
        }
        let again = reply.leases.iter().filter(|lease| lease.attempt > 1).count();
        self.add("redelivered keys", again);
        for (settle, settled) in call.operation.settles().iter().zip(&reply.settled) {
            self.add(
                match (settled, settle.way) {
                    (Settled::Ok, SettleKind::Ack) => "acks",
                    (Settled::Ok, SettleKind::Nack) => "nacks",
                    (Settled::Ok, SettleKind::Release) => "releases",
                    (Settled::Ok, SettleKind::Reject) => "rejects",
                    (Settled::Repeated, _) => "repeated settles",
                    (Settled::Stale(Outcome::Expired), _) => "settles of expired leases",
                    (Settled::Stale(_), _) => "settles of settled leases",
                },
                1,
            );
        }
    }

    /// The number of events of this kind.
    pub(crate) fn of(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or_default()
    }

    fn add(&mut self, name: &'static str, count: usize) {
        *self.0.entry(name).or_default() += count;
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, count) in &self.0 {
            write!(f, "{separator}{count} {name}")?;
            separator = ", ";
        }
        Ok(())
    }
}
