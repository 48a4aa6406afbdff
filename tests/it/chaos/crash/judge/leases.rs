//! Leases: which lease may have held a key at which time, and how each lease has ended.
//!
//! No worker can settle a lease that was in no reply, so such a lease expires and changes nothing. Every other lease has one
//! worker, whose calls do not overlap, so the calls on a lease have an order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::history::{
    Answer, Call, Crash, Delta, Key, KnownValue, Lease, Operation, Outcome, Rv, SettleKind, Settled,
    Snapshot, Us,
};
use super::numbers::Numbers;
use super::{Findings, Rule};

/// All leases of all replies.
#[derive(Debug, Default)]
pub(super) struct Leases {
    records: HashMap<String, LeaseRecord>,
    /// By key and token.
    by_key: BTreeMap<Key, BTreeMap<Rv, String>>,
    /// By the id of the pop.
    by_pop: HashMap<String, Vec<String>>,
    /// The ids of leases that may be alive.
    open: BTreeSet<String>,
}

/// The history of a lease.
#[derive(Debug)]
pub(super) struct LeaseRecord {
    pub(super) key: Key,
    pub(super) token: Rv,
    pub(super) attempt: u64,
    pub(super) deltas: Vec<Delta>,
    pub(super) known: Option<KnownValue>,
    /// The end of the call that returned the lease.
    answered: Us,
    /// The earliest expiry.
    earliest: Us,
    /// The length of the lease, for a renewal.
    length: Us,
    /// The start of the first settle.
    first_settle: Option<Us>,
    /// The start of the last call that found the lease alive.
    last_ok: Option<Us>,
    /// Settles without a reply.
    doubtful: Vec<SettleKind>,
    /// The known end.
    done: Option<Outcome>,
}

/// Whether the deltas of a lease are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    Acked,
    Kept,
    /// An ack has no reply.
    Doubtful,
}

impl LeaseRecord {
    fn surely_lives_until(&self, at: Us) -> bool {
        self.done.is_none() && self.cannot_have_ended_by(at)
    }

    fn cannot_have_ended_by(&self, at: Us) -> bool {
        self.earliest > at && self.first_settle.is_none_or(|first| first > at)
    }
}

impl Leases {
    pub(super) fn get(&self, id: &str) -> Option<&LeaseRecord> {
        self.records.get(id)
    }

    pub(super) fn end_of(&self, id: &str) -> LeaseEnd {
        match self.records.get(id) {
            Some(LeaseRecord { done: Some(Outcome::Acked), .. }) => LeaseEnd::Acked,
            Some(LeaseRecord { done: None, doubtful, .. }) if doubtful.contains(&SettleKind::Ack) => {
                LeaseEnd::Doubtful
            }
            _ => LeaseEnd::Kept,
        }
    }

    /// Reads the calls of an epoch, in the order of their start. Returns the new leases by key, in the order of their tokens.
    pub(super) fn read(
        &mut self,
        calls: &[&Call],
        numbers: &Numbers,
        found: &mut Findings,
    ) -> BTreeMap<Key, Vec<String>> {
        let mut fresh: BTreeMap<Key, Vec<String>> = BTreeMap::new();
        for call in calls {
            self.read_settles(call, found);
            self.read_extend(call, found);
            let (Operation::Pop { id, since, length, .. }, Some(reply)) = (&call.operation, call.reply())
            else {
                continue;
            };
            if let Some(pop) = id {
                self.check_repeated(pop, call, found);
            }
            for lease in &reply.leases {
                if let Some(held) = self.records.get(&lease.id) {
                    check_same(held, lease, found);
                    continue;
                }
                if lease.token <= numbers.floor(*since) {
                    let floor = numbers.floor(*since);
                    found.add(
                        Rule::Token,
                        format!("{floor} was in a reply before the pop that returned {}", shown(lease)),
                    );
                }
                if let Some(pop) = id {
                    self.by_pop.entry(pop.clone()).or_default().push(lease.id.clone());
                }
                fresh.entry(lease.key.clone()).or_default().push(lease.id.clone());
                self.insert(lease, call.end, *since, *length);
            }
        }
        for ids in fresh.values_mut() {
            ids.sort_by_key(|id| self.records[id].token);
        }
        self.check_holders(&fresh, calls, found);
        fresh
    }

    /// After a kill every live lease lasts its full length again, because no worker could reach the service.
    /// The leases of a process that survives need not last longer.
    pub(super) fn renew(&mut self, crash: Crash) {
        let Some(restart) = crash.restart else { return };
        for id in &self.open {
            if let Some(held) = self.records.get_mut(id).filter(|held| held.earliest > crash.gone) {
                held.earliest = held.earliest.max(restart + held.length);
            }
        }
    }

    /// Checks at a quiet moment that every live lease is listed.
    pub(super) fn check_alive(&mut self, snapshot: &Snapshot, found: &mut Findings) {
        for id in std::mem::take(&mut self.open) {
            let Some(held) = self.records.get(&id) else { continue };
            let seen = snapshot.items.get(&held.key).and_then(|item| item.token);
            if held.surely_lives_until(snapshot.end) && seen != Some(held.token) {
                let key = &held.key;
                found.add(Rule::LostLease, format!("{key}: {id} must be alive, the list has {seen:?}"));
            }
            if held.done.is_none() && held.earliest > snapshot.end {
                self.open.insert(id);
            }
        }
    }

    fn insert(&mut self, lease: &Lease, answered: Us, since: Us, length: Us) {
        let held = LeaseRecord {
            key: lease.key.clone(),
            token: lease.token,
            attempt: lease.attempt,
            deltas: lease.deltas.clone(),
            known: lease.known,
            answered,
            earliest: since + length,
            length,
            first_settle: None,
            last_ok: None,
            doubtful: Vec::new(),
            done: None,
        };
        self.by_key.entry(lease.key.clone()).or_default().insert(lease.token, lease.id.clone());
        self.open.insert(lease.id.clone());
        self.records.insert(lease.id.clone(), held);
    }

    fn read_settles(&mut self, call: &Call, found: &mut Findings) {
        for (number, settle) in call.operation.settles().iter().enumerate() {
            let Some(held) = self.records.get_mut(&settle.lease) else { continue };
            match &call.answer {
                Answer::Refused(_) => continue,
                Answer::Unknown => held.doubtful.push(settle.way),
                Answer::Ok(reply) => match reply.settled.get(number) {
                    Some(settled) => held.settled(&settle.lease, settle.way, *settled, call, found),
                    None => found.add(Rule::Refused, format!("no result for {settle:?}")),
                },
            }
            held.first_settle.get_or_insert(call.start);
        }
    }

    fn read_extend(&mut self, call: &Call, found: &mut Findings) {
        let Operation::Extend { lease, length } = &call.operation else { return };
        let Some(held) = self.records.get_mut(lease) else { return };
        let deadline = call.start + length;
        match &call.answer {
            Answer::Refused(_) => {}
            Answer::Unknown => {
                held.earliest = held.earliest.min(deadline);
                held.length = held.length.min(*length);
            }
            Answer::Ok(reply) => match reply.settled.first() {
                Some(Settled::Ok) if held.done.is_none() => {
                    held.earliest = deadline;
                    held.length = *length;
                    held.last_ok = Some(call.start);
                }
                Some(Settled::Stale(outcome)) => held.stale(lease, None, *outcome, call, found),
                other => found.add(Rule::LostSettle, format!("extending {lease}: {other:?}, {held:?}")),
            },
        }
    }

    /// Checks that a repeated pop returns all live leases of the first pop.
    fn check_repeated(&self, pop: &str, call: &Call, found: &mut Findings) {
        let Some(reply) = call.reply() else { return };
        for id in self.by_pop.get(pop).into_iter().flatten() {
            let lives = self.records.get(id).is_some_and(|held| held.surely_lives_until(call.end));
            if lives && !reply.leases.iter().any(|lease| lease.id == *id) {
                found.add(Rule::LostLease, format!("{id} is alive and pop {pop} does not return it"));
            }
        }
    }

    /// Checks that no two leases hold a key at the same time: of two leases the first must have ended before the second was
    /// returned, and no call finds the first alive after that.
    fn check_holders(&self, fresh: &BTreeMap<Key, Vec<String>>, calls: &[&Call], found: &mut Findings) {
        let settled = calls.iter().flat_map(|call| call.operation.settles()).map(|settle| &settle.lease);
        let extended = calls.iter().filter_map(|call| match &call.operation {
            Operation::Extend { lease, .. } => Some(lease),
            _ => None,
        });
        let touched: BTreeSet<&String> = fresh.values().flatten().chain(settled).chain(extended).collect();
        let mut pairs = BTreeSet::new();
        for held in touched.into_iter().filter_map(|id| self.records.get(id)) {
            let of_key = &self.by_key[&held.key];
            let before = of_key.range(..held.token).next_back();
            let after = of_key.range(held.token + 1..).next();
            pairs.extend(before.map(|(_, before)| (before, &of_key[&held.token])));
            pairs.extend(after.map(|(_, after)| (&of_key[&held.token], after)));
        }
        for (first, second) in pairs {
            let (one, two) = (&self.records[first], &self.records[second]);
            let key = &one.key;
            if one.cannot_have_ended_by(two.answered) {
                found.add(Rule::TwoHolders, format!("{key}: {first} is alive and {second} is delivered"));
            }
            if one.last_ok.is_some_and(|at| at > two.answered) {
                found.add(
                    Rule::TwoHolders,
                    format!("{key}: {first} is found alive after {second} was delivered"),
                );
            }
        }
    }
}

impl LeaseRecord {
    /// Reads the result of a settle.
    fn settled(&mut self, id: &str, way: SettleKind, settled: Settled, call: &Call, found: &mut Findings) {
        let lost = if self.done == Some(Outcome::Acked) { Rule::LostAck } else { Rule::LostSettle };
        match settled {
            Settled::Stale(outcome) => return self.stale(id, Some(way), outcome, call, found),
            Settled::Ok => {
                self.last_ok = Some(call.start);
                if let Some(done) = self.done {
                    found.add(
                        lost,
                        format!("{id} was {done:?} and is settled by {way:?} as if it were alive"),
                    );
                }
            }
            Settled::Repeated => {
                let is_possible = match self.done {
                    Some(done) => done == way.outcome(),
                    None => self.doubtful.contains(&way),
                };
                if !is_possible {
                    found.add(lost, format!("{id} is {:?}, but {way:?} is reported as repeated", self.done));
                }
            }
        }
        self.done = Some(way.outcome());
    }

    /// Reads a result that says that the lease was lost.
    fn stale(
        &mut self,
        id: &str,
        way: Option<SettleKind>,
        outcome: Outcome,
        call: &Call,
        found: &mut Findings,
    ) {
        let lost = if self.done == Some(Outcome::Acked) { Rule::LostAck } else { Rule::LostSettle };
        if way.is_some_and(|way| way.outcome() == outcome) {
            found.add(lost, format!("{id} was settled by {way:?}, which is not reported as repeated"));
        }
        match self.done {
            Some(done) if done != outcome => {
                found.add(lost, format!("{id} was {done:?} and is reported as {outcome:?}"));
            }
            Some(_) => {}
            None if outcome == Outcome::Expired => {
                if self.earliest > call.end {
                    found.add(Rule::LostLease, format!("{id} is reported as expired before its deadline"));
                }
            }
            None => {
                if !self.doubtful.iter().any(|way| way.outcome() == outcome) {
                    found.add(
                        Rule::LostLease,
                        format!("{id} is reported as {outcome:?}, but no worker settled it so"),
                    );
                }
            }
        }
        self.done = Some(outcome);
    }
}

fn check_same(held: &LeaseRecord, lease: &Lease, found: &mut Findings) {
    if (&held.key, held.token, &held.deltas) != (&lease.key, lease.token, &lease.deltas) {
        found.add(Rule::LostLease, format!("{} was {held:?} and is {lease:?}", lease.id));
    }
    if let Some(done) = held.done {
        let rule = if done == Outcome::Acked { Rule::LostAck } else { Rule::LostSettle };
        found.add(rule, format!("{} was {done:?} and is delivered again", lease.id));
    }
}

fn shown(lease: &Lease) -> String {
    format!("{} of {} with token {}", lease.id, lease.key, lease.token)
}
