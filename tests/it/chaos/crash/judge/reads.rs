//! Reads beside changes: a list of all items has every delta that it must have, and none that was acknowledged before the call.
//!
//! A delta that was removed never comes back. So a delta that a lease or the state at a quiet moment shows must be in every list
//! between its own event and theirs.

use std::collections::BTreeMap;

use super::super::history::{Call, Delta, Item, Key, Operation, Rv, SettleKind, Settled, Snapshot, Us};
use super::leases::Leases;
use super::{Findings, Rule};

/// A list of all items.
struct List<'a> {
    start: Us,
    rv: Rv,
    items: &'a BTreeMap<Key, Item>,
}

impl List<'_> {
    fn has(&self, key: &Key, rv: Rv) -> bool {
        self.items.get(key).is_some_and(|item| item.deltas.iter().any(|delta| delta.rv == rv))
    }
}

/// Checks the lists of an epoch. `fresh` has its leases.
pub(super) fn check(
    calls: &[&Call],
    fresh: &BTreeMap<Key, Vec<String>>,
    leases: &Leases,
    snapshot: &Snapshot,
    found: &mut Findings,
) {
    let lists: Vec<List<'_>> = calls.iter().filter_map(|call| list(call)).collect();
    let delivered = fresh.iter().flat_map(|(key, ids)| {
        let records = ids.iter().filter_map(|id| leases.get(id));
        records.map(move |held| (key, held.token, &held.deltas))
    });
    let left = snapshot.items.iter().map(|(key, item)| (key, snapshot.rv, &item.deltas));
    for (key, at, shown) in delivered.chain(left) {
        for list in lists.iter().filter(|list| list.rv <= at) {
            let missing = shown.iter().find(|delta| delta.rv <= list.rv && !list.has(key, delta.rv));
            if let Some(delta) = missing {
                let text = format!("{key}: {delta:?} is there at {at}, and a list at {} lacks it", list.rv);
                found.add(Rule::StaleRead, text);
            }
        }
    }
    for (end, key, deltas) in calls.iter().flat_map(|call| acknowledged(call, leases)) {
        for list in lists.iter().filter(|list| list.start > end) {
            if let Some(delta) = deltas.iter().find(|delta| list.has(key, delta.rv)) {
                let text = format!("{key}: {delta:?} was acknowledged before a list at {} has it", list.rv);
                found.add(Rule::StaleRead, text);
            }
        }
    }
}

/// The list that a call has returned.
fn list(call: &Call) -> Option<List<'_>> {
    let reply = call.reply().filter(|_| matches!(call.operation, Operation::Items))?;
    Some(List { start: call.start, rv: reply.rv?, items: &reply.items })
}

/// The deltas that a call has acknowledged, and the time of its reply.
fn acknowledged<'a>(call: &'a Call, leases: &'a Leases) -> impl Iterator<Item = (Us, &'a Key, &'a [Delta])> {
    let results = call.reply().map(|reply| &reply.settled[..]).unwrap_or_default();
    let settles = call.operation.settles().iter().zip(results);
    let acked = settles.filter(|(settle, settled)| {
        settle.way == SettleKind::Ack && matches!(settled, Settled::Ok | Settled::Repeated)
    });
    let held = acked.filter_map(|(settle, _)| leases.get(&settle.lease));
    held.map(|held| (call.end, &held.key, &held.deltas[..]))
}
