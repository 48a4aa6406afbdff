//! Numbers of events: each names one event, and they only grow.
//!
//! An answer that had come before a call was sent shows a number that all events of the call are
//! above; the answer to the call shows one that none of them is above. A call without answer has done
//! what it did before the queue was looked at again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::history::{Act, Call, Delta, Key, Kind, Look, Rv, Us, What};
use super::{Findings, Rule};

/// What is known of the numbers of a queue.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// For all answers by their time: the newest number that was seen until then.
    floors: Vec<(Us, Rv)>,
    /// Which event a number is.
    events: HashMap<Rv, Event>,
    /// Who has sent an object, by the number inside it.
    sent: HashMap<u64, Vec<Sent>>,
    /// Deletions without object of this epoch, and Resyncs.
    deletions: HashMap<Key, Vec<Bounds>>,
    resyncs: Vec<Bounds>,
    /// The bounds of the produce calls of this epoch, by their place.
    calls: HashMap<usize, Bounds>,
    /// How many calls there were before this epoch.
    offset: usize,
}

/// An event lies above `after` and not above `until`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) after: Rv,
    pub(super) until: Rv,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Lease { key: Key },
    Delta { key: Key, delta: Delta },
}

#[derive(Debug)]
struct Sent {
    call: usize,
    key: Key,
    kind: Kind,
    bounds: Bounds,
    /// The event that it was found to be.
    rv: Option<Rv>,
}

impl Bounds {
    fn hold(self, rv: Rv) -> bool {
        self.after < rv && rv <= self.until
    }
}

impl Numbers {
    /// Reads the answers of an epoch. `calls` are in the order of their start.
    pub(super) fn begin(&mut self, calls: &[&Call], look: &Look, found: &mut Findings) {
        let seen = |call: &&&Call| {
            let reply = call.reply()?;
            let leased = reply.leases.iter().flat_map(|lease| {
                lease.deltas.iter().map(|delta| delta.rv).chain(std::iter::once(lease.token))
            });
            Some((call.end, leased.chain(reply.rv).max()?))
        };
        let mut floors: Vec<(Us, Rv)> = calls.iter().filter_map(|call| seen(&call)).collect();
        floors.push((look.end, look.rv));
        floors.sort_unstable();
        let mut newest = self.floors.last().map_or(0, |last| last.1);
        for (end, rv) in floors {
            newest = newest.max(rv);
            self.floors.push((end, newest));
        }
        for (number, call) in calls.iter().enumerate() {
            self.check_answer(call, found);
            self.note(number, call, look.rv);
        }
        if look.rv < self.floor(look.start) {
            found.add(Rule::NumberBack, format!("{} was seen before {}", self.floor(look.start), look.rv));
        }
    }

    /// The newest number that was seen before `at`.
    pub(super) fn floor(&self, at: Us) -> Rv {
        let before = self.floors.partition_point(|(end, _)| *end < at);
        before.checked_sub(1).map_or(0, |last| self.floors[last].1)
    }

    /// Between which numbers the events of a produce call of this epoch lie.
    pub(super) fn bounds(&self, call: usize) -> Option<Bounds> {
        self.calls.get(&call).copied()
    }

    /// Notes that a number is that of a lease.
    pub(super) fn note_lease(&mut self, key: &Key, token: Rv, found: &mut Findings) {
        self.note_event(token, Event::Lease { key: key.clone() }, found);
    }

    /// Finds who has sent the deltas of a key.
    pub(super) fn identify(&mut self, key: &Key, deltas: &[Delta], found: &mut Findings) {
        for delta in deltas {
            let event = Event::Delta { key: key.clone(), delta: delta.clone() };
            if self.note_event(delta.rv, event, found) && !self.is_sent(key, delta) {
                found.add(Rule::NobodySent, format!("{key}: {delta:?}"));
            }
        }
    }

    /// Checks that what a call has sent is numbered in the order in which it stood, and that it came
    /// whole or not at all. A Replace may be cut; and where the newest delta stands alone
    /// (`shows_all` is false) some are never seen.
    pub(super) fn check_batches(&self, calls: &[&Call], shows_all: bool, found: &mut Findings) {
        for (number, call) in calls.iter().enumerate() {
            let What::Produce { changes, is_replace } = &call.what else { continue };
            let numbers: Vec<Rv> =
                changes.iter().filter_map(|change| self.number_of(number, change.act)).collect();
            if !numbers.is_sorted() {
                found.add(Rule::Order, format!("a batch is numbered {numbers:?}: {changes:?}"));
            }
            let puts = changes.iter().filter(|change| matches!(change.act, Act::Put { .. }));
            let seen = puts.clone().filter(|change| self.number_of(number, change.act).is_some()).count();
            if shows_all && !is_replace && seen > 0 && seen < puts.count() {
                found.add(Rule::HalfBatch, format!("of a batch came {numbers:?}: {changes:?}"));
            }
        }
    }

    /// Ends the epoch: deltas that it brought and that have not been seen never will be.
    pub(super) fn end(&mut self) {
        self.offset += self.calls.keys().max().map_or(0, |last| last + 1);
        self.deletions.clear();
        self.resyncs.clear();
        self.calls.clear();
    }

    fn check_answer(&self, call: &Call, found: &mut Findings) {
        let Some(rv) = call.reply().and_then(|reply| reply.rv) else { return };
        let floor = self.floor(call.start);
        let adds = match &call.what {
            What::Produce { changes, is_replace: false } => {
                changes.iter().any(|change| matches!(change.act, Act::Put { .. }))
            }
            _ => false,
        };
        if rv < floor || (adds && rv == floor) {
            found
                .add(Rule::NumberBack, format!("{floor} was seen before the answer {rv} to {:?}", call.what));
        }
    }

    /// Notes what a call sends.
    fn note(&mut self, number: usize, call: &Call, last: Rv) {
        if !call.may_have_happened() {
            return;
        }
        let answered = call.reply().map(|reply| reply.rv.unwrap_or(last));
        let bounds = Bounds { after: self.floor(call.start), until: answered.unwrap_or(last) };
        let changes = match &call.what {
            What::Resync => return self.resyncs.push(bounds),
            What::Produce { changes, .. } => changes,
            _ => return,
        };
        self.calls.insert(number, bounds);
        for change in changes {
            let (kind, value) = match change.act {
                Act::Put { kind, value, .. } => (kind, value),
                Act::Delete { value: Some(value) } => (Kind::Deleted, value),
                Act::Delete { value: None } => {
                    self.deletions.entry(change.key.clone()).or_default().push(bounds);
                    continue;
                }
            };
            let (call, key) = (self.offset + number, change.key.clone());
            self.sent.entry(value).or_default().push(Sent { call, key, kind, bounds, rv: None });
        }
    }

    /// Tells whether the number was not known yet.
    fn note_event(&mut self, rv: Rv, event: Event, found: &mut Findings) -> bool {
        match self.events.entry(rv) {
            Entry::Vacant(vacant) => {
                vacant.insert(event);
                true
            }
            Entry::Occupied(known) => {
                if *known.get() != event {
                    found.add(Rule::NumberReused, format!("{rv} is {:?} and {event:?}", known.get()));
                }
                false
            }
        }
    }

    fn is_sent(&mut self, key: &Key, delta: &Delta) -> bool {
        let Some(senders) = self.sent.get_mut(&delta.value) else { return false };
        let inferred = |bounds: &[Bounds]| bounds.iter().any(|bounds| bounds.hold(delta.rv));
        let is_of_key = senders.iter().any(|sent| sent.key == *key);
        match delta.kind {
            Kind::Sync => is_of_key && inferred(&self.resyncs),
            Kind::Deleted if delta.tombstone => {
                is_of_key && self.deletions.get(key).is_some_and(|bounds| inferred(bounds))
            }
            kind => {
                let fits = |sent: &&mut Sent| {
                    sent.key == *key && sent.kind == kind && sent.rv.is_none() && sent.bounds.hold(delta.rv)
                };
                // An object that was sent more than once: deltas come by their number, so the call that
                // had to come first is the one that leaves the others possible.
                let fitting = senders.iter_mut().filter(fits).min_by_key(|sent| sent.bounds.until);
                let Some(sender) = fitting else { return false };
                sender.rv = Some(delta.rv);
                true
            }
        }
    }

    fn number_of(&self, call: usize, act: Act) -> Option<Rv> {
        let (Act::Put { value, .. } | Act::Delete { value: Some(value) }) = act else { return None };
        let call = self.offset + call;
        self.sent.get(&value)?.iter().find(|sent| sent.call == call)?.rv
    }
}
