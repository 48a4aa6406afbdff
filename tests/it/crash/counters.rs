//! What the load has done: a judge that has seen nothing has nothing to find.

use std::collections::BTreeMap;
use std::fmt;

use super::history::{Act, Answer, Call, Outcome, Settled, Way, What};

/// How often each thing has happened.
#[derive(Debug, Default)]
pub(crate) struct Counters(BTreeMap<&'static str, usize>);

impl Counters {
    /// Counts what a call did, or may have done.
    pub(crate) fn count(&mut self, call: &Call) {
        let Some(reply) = call.reply() else {
            self.add(
                if matches!(call.answer, Answer::Unknown) { "calls without answer" } else { "refusals" },
                1,
            );
            return;
        };
        match &call.what {
            What::Produce { changes, is_replace } => {
                let deletes =
                    changes.iter().filter(|change| matches!(change.act, Act::Delete { .. })).count();
                self.add(if *is_replace { "Replaces" } else { "produce calls" }, 1);
                self.add("objects", changes.len() - deletes);
                self.add("deletions", deletes);
            }
            What::Resync => self.add("Resyncs", 1),
            What::Pop { .. } => self.add("leases", reply.leases.len()),
            What::Extend { .. } => self.add("extensions", 1),
            What::Settle { .. } | What::Redrive | What::Read => {}
        }
        let again = reply.leases.iter().filter(|lease| lease.attempt > 1).count();
        self.add("leases of keys that came back", again);
        for (settle, settled) in call.what.settles().iter().zip(&reply.settled) {
            self.add(
                match (settled, settle.way) {
                    (Settled::Ok, Way::Ack) => "acks",
                    (Settled::Ok, Way::Nack) => "nacks",
                    (Settled::Ok, Way::Release) => "releases",
                    (Settled::Ok, Way::Reject) => "rejects",
                    (Settled::Repeated, _) => "settles that were repeated",
                    (Settled::Stale(Outcome::Expired), _) => "settles of expired leases",
                    (Settled::Stale(_), _) => "settles of settled leases",
                },
                1,
            );
        }
    }

    /// How often this has happened.
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
