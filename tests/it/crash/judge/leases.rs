//! Leases: who may have held a key when, and how each has ended.
//!
//! A lease that nobody has answered with can't be settled by anybody, so it ends by itself and changes
//! nothing. Of the others one worker knows, who makes one call after the other: what it did to a lease
//! has an order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::history::{
    Answer, Call, Crash, Delta, Key, KnownValue, Lease, Look, Outcome, Rv, Settled, Us, Way, What,
};
use super::numbers::Numbers;
use super::{Findings, Rule};

/// All leases that were answered with.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: HashMap<String, Held>,
    /// By key and token.
    by_key: BTreeMap<Key, BTreeMap<Rv, String>>,
    /// By the id of the pop.
    by_pop: HashMap<String, Vec<String>>,
    /// Those that may be alive.
    open: BTreeSet<String>,
}

/// A lease.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) key: Key,
    pub(super) token: Rv,
    pub(super) attempt: u64,
    pub(super) deltas: Vec<Delta>,
    pub(super) known: Option<KnownValue>,
    /// It was answered by then.
    answered: Us,
    /// It can't have expired before.
    earliest: Us,
    /// How long it lasts at least, when it begins anew.
    length: Us,
    /// When it was first tried to be settled.
    first_settle: Option<Us>,
    /// When a call was last sent that found it alive.
    last_ok: Option<Us>,
    /// Ways of settling whose answers are missing.
    doubtful: Vec<Way>,
    /// How it is known to have ended.
    done: Option<Outcome>,
}

/// Whether the deltas of a lease are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    Acked,
    Kept,
    /// An acknowledgement has no answer.
    Doubtful,
}

impl Held {
    fn surely_lives_until(&self, at: Us) -> bool {
        self.done.is_none() && self.cannot_have_ended_by(at)
    }

    fn cannot_have_ended_by(&self, at: Us) -> bool {
        self.earliest > at && self.first_settle.is_none_or(|first| first > at)
    }
}

impl Leases {
    pub(super) fn get(&self, id: &str) -> Option<&Held> {
        self.held.get(id)
    }

    pub(super) fn end_of(&self, id: &str) -> LeaseEnd {
        match self.held.get(id) {
            Some(Held { done: Some(Outcome::Acked), .. }) => LeaseEnd::Acked,
            Some(Held { done: None, doubtful, .. }) if doubtful.contains(&Way::Ack) => LeaseEnd::Doubtful,
            _ => LeaseEnd::Kept,
        }
    }

    /// Reads the calls of an epoch, in the order of their start. Returns the leases that are new, by
    /// key, in the order of their tokens.
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
            let (What::Pop { id, since, length, .. }, Some(reply)) = (&call.what, call.reply()) else {
                continue;
            };
            if let Some(pop) = id {
                self.check_repeated(pop, call, found);
            }
            for lease in &reply.leases {
                if let Some(held) = self.held.get(&lease.id) {
                    check_same(held, lease, found);
                    continue;
                }
                if lease.token <= numbers.floor(*since) {
                    let floor = numbers.floor(*since);
                    found.add(
                        Rule::Token,
                        format!("{floor} was seen before the pop that got {}", shown(lease)),
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
            ids.sort_by_key(|id| self.held[id].token);
        }
        self.check_holders(&fresh, calls, found);
        fresh
    }

    /// After a crash every lease that was alive lasts its full length again: no worker could reach
    /// the service.
    pub(super) fn renew(&mut self, crash: Crash) {
        for id in &self.open {
            if let Some(held) = self.held.get_mut(id).filter(|held| held.earliest > crash.gone) {
                held.earliest = held.earliest.max(crash.restart + held.length);
            }
        }
    }

    /// Checks that leases that must be alive are, as of a quiet moment.
    pub(super) fn check_alive(&mut self, look: &Look, found: &mut Findings) {
        for id in std::mem::take(&mut self.open) {
            let Some(held) = self.held.get(&id) else { continue };
            let seen = look.items.get(&held.key).and_then(|item| item.token);
            if held.surely_lives_until(look.end) && seen != Some(held.token) {
                let key = &held.key;
                found.add(Rule::LostLease, format!("{key}: {id} must live, the list shows {seen:?}"));
            }
            if held.done.is_none() && held.earliest > look.end {
                self.open.insert(id);
            }
        }
    }

    fn insert(&mut self, lease: &Lease, answered: Us, since: Us, length: Us) {
        let held = Held {
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
        self.held.insert(lease.id.clone(), held);
    }

    fn read_settles(&mut self, call: &Call, found: &mut Findings) {
        for (number, settle) in call.what.settles().iter().enumerate() {
            let Some(held) = self.held.get_mut(&settle.lease) else { continue };
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
        let What::Extend { lease, length } = &call.what else { return };
        let Some(held) = self.held.get_mut(lease) else { return };
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

    /// A pop with the id of an earlier one returns what lives of its leases.
    fn check_repeated(&self, pop: &str, call: &Call, found: &mut Findings) {
        let Some(reply) = call.reply() else { return };
        for id in self.by_pop.get(pop).into_iter().flatten() {
            let lives = self.held.get(id).is_some_and(|held| held.surely_lives_until(call.end));
            if lives && !reply.leases.iter().any(|lease| lease.id == *id) {
                found.add(Rule::LostLease, format!("{id} lives and pop {pop} does not return it"));
            }
        }
    }

    /// No key is in two hands: of two leases the first must have ended before the second was answered,
    /// and nothing finds it alive after that.
    fn check_holders(&self, fresh: &BTreeMap<Key, Vec<String>>, calls: &[&Call], found: &mut Findings) {
        let settled = calls.iter().flat_map(|call| call.what.settles()).map(|settle| &settle.lease);
        let extended = calls.iter().filter_map(|call| match &call.what {
            What::Extend { lease, .. } => Some(lease),
            _ => None,
        });
        let touched: BTreeSet<&String> = fresh.values().flatten().chain(settled).chain(extended).collect();
        let mut pairs = BTreeSet::new();
        for held in touched.into_iter().filter_map(|id| self.held.get(id)) {
            let of_key = &self.by_key[&held.key];
            let before = of_key.range(..held.token).next_back();
            let after = of_key.range(held.token + 1..).next();
            pairs.extend(before.map(|(_, before)| (before, &of_key[&held.token])));
            pairs.extend(after.map(|(_, after)| (&of_key[&held.token], after)));
        }
        for (first, second) in pairs {
            let (one, two) = (&self.held[first], &self.held[second]);
            let key = &one.key;
            if one.cannot_have_ended_by(two.answered) {
                found.add(Rule::TwoHolders, format!("{key}: {first} lives and {second} is delivered"));
            }
            if one.last_ok.is_some_and(|at| at > two.answered) {
                found.add(Rule::TwoHolders, format!("{key}: {first} is found alive after {second} was"));
            }
        }
    }
}

impl Held {
    /// Reads the result of a settle.
    fn settled(&mut self, id: &str, way: Way, settled: Settled, call: &Call, found: &mut Findings) {
        let lost = if self.done == Some(Outcome::Acked) { Rule::LostAck } else { Rule::LostSettle };
        match settled {
            Settled::Stale(outcome) => return self.stale(id, Some(way), outcome, call, found),
            Settled::Ok => {
                self.last_ok = Some(call.start);
                if let Some(done) = self.done {
                    found.add(lost, format!("{id} was {done:?} and is settled by {way:?} as if it lived"));
                }
            }
            Settled::Repeated => {
                let is_possible = match self.done {
                    Some(done) => done == way.outcome(),
                    None => self.doubtful.contains(&way),
                };
                if !is_possible {
                    found.add(lost, format!("{id} is {:?}, but {way:?} is said to be repeated", self.done));
                }
            }
        }
        self.done = Some(way.outcome());
    }

    /// Reads that the lease was lost.
    fn stale(&mut self, id: &str, way: Option<Way>, outcome: Outcome, call: &Call, found: &mut Findings) {
        let lost = if self.done == Some(Outcome::Acked) { Rule::LostAck } else { Rule::LostSettle };
        if way.is_some_and(|way| way.outcome() == outcome) {
            found.add(lost, format!("{id} was settled by {way:?}, which is not said to be repeated"));
        }
        match self.done {
            Some(done) if done != outcome => {
                found.add(lost, format!("{id} was {done:?} and is said to be {outcome:?}"));
            }
            Some(_) => {}
            None if outcome == Outcome::Expired => {
                if self.earliest > call.end {
                    found.add(Rule::LostLease, format!("{id} is said to be expired before its time"));
                }
            }
            None => {
                if !self.doubtful.iter().any(|way| way.outcome() == outcome) {
                    found.add(Rule::LostLease, format!("{id} is said to be {outcome:?}, by nobody"));
                }
            }
        }
        self.done = Some(outcome);
    }
}

fn check_same(held: &Held, lease: &Lease, found: &mut Findings) {
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
