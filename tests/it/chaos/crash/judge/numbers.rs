//! Numbers of events: each names one event, and they only grow.
//!
//! The events of a call have greater numbers than every reply before the call, and no greater number than the reply of the
//! call. A call without a reply has taken effect before the state of the queue was read again, or not at all.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::history::{Call, Delta, Effect, Key, Kind, Operation, Rv, Snapshot, Us};
use super::super::queues::Mode;
use super::{Findings, Rule};

/// The knowledge about the numbers of a queue.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Whether a deletion of a key without an object is delivered: in mode events.
    delivers_absent: bool,
    /// The time of each reply, and the greatest number in the replies until then.
    floors: Vec<(Us, Rv)>,
    /// The event of each number.
    events: HashMap<Rv, Event>,
    /// The calls that sent an object, by the number in it.
    sent: HashMap<u64, Vec<Sent>>,
    /// The deletions without an object of this epoch, and its Resyncs.
    deletions: HashMap<Key, Vec<Bounds>>,
    resyncs: Vec<Bounds>,
    /// The bounds of the produce calls of this epoch, by their index.
    calls: HashMap<usize, Bounds>,
    /// The number of calls before this epoch.
    offset: usize,
}

/// Bounds of the number of an event: greater than `after`, at most `until`.
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
    /// The number of its event, once it was read.
    rv: Option<Rv>,
}

impl Bounds {
    fn hold(self, rv: Rv) -> bool {
        self.after < rv && rv <= self.until
    }
}

impl Numbers {
    pub(super) fn new(mode: Mode) -> Self {
        Self { delivers_absent: mode == Mode::Events, ..Self::default() }
    }

    /// Reads the replies of an epoch. `calls` are in the order of their start.
    pub(super) fn begin(&mut self, calls: &[&Call], snapshot: &Snapshot, found: &mut Findings) {
        let seen = |call: &&&Call| {
            let reply = call.reply()?;
            let leased = reply.leases.iter().flat_map(|lease| {
                lease.deltas.iter().map(|delta| delta.rv).chain(std::iter::once(lease.token))
            });
            Some((call.end, leased.chain(reply.rv).max()?))
        };
        let mut floors: Vec<(Us, Rv)> = calls.iter().filter_map(|call| seen(&call)).collect();
        floors.push((snapshot.end, snapshot.rv));
        floors.sort_unstable();
        let mut newest = self.floors.last().map_or(0, |last| last.1);
        for (end, rv) in floors {
            newest = newest.max(rv);
            self.floors.push((end, newest));
        }
        for (number, call) in calls.iter().enumerate() {
            self.check_answer(call, found);
            self.note(number, call, snapshot.rv);
        }
        if snapshot.rv < self.floor(snapshot.start) {
            found.add(
                Rule::NumberBack,
                format!("{} was in a reply before {}", self.floor(snapshot.start), snapshot.rv),
            );
        }
    }

    /// The greatest number in a reply before `at`.
    pub(super) fn floor(&self, at: Us) -> Rv {
        let before = self.floors.partition_point(|(end, _)| *end < at);
        before.checked_sub(1).map_or(0, |last| self.floors[last].1)
    }

    /// The bounds of the events of a produce call of this epoch.
    pub(super) fn bounds(&self, call: usize) -> Option<Bounds> {
        self.calls.get(&call).copied()
    }

    /// Records the number of a lease.
    pub(super) fn note_lease(&mut self, key: &Key, token: Rv, found: &mut Findings) {
        self.note_event(token, Event::Lease { key: key.clone() }, found);
    }

    /// Finds the calls that sent the deltas of a key.
    pub(super) fn identify(&mut self, key: &Key, deltas: &[Delta], found: &mut Findings) {
        for delta in deltas {
            let event = Event::Delta { key: key.clone(), delta: delta.clone() };
            if self.note_event(delta.rv, event, found) && !self.is_sent(key, delta) {
                found.add(Rule::NeverSent, format!("{key}: {delta:?}"));
            }
        }
    }

    /// Checks that the objects of a call are numbered in their order, and that all of them took effect or none. A Replace may
    /// be interrupted; and in a queue that keeps only the newest delta (`shows_all` is false) some are never delivered.
    pub(super) fn check_batches(&self, calls: &[&Call], shows_all: bool, found: &mut Findings) {
        for (number, call) in calls.iter().enumerate() {
            let Operation::Produce { changes, is_replace } = &call.operation else { continue };
            let numbers: Vec<Rv> =
                changes.iter().filter_map(|change| self.certain_number_of(number, change.effect)).collect();
            if !numbers.is_sorted() {
                found.add(Rule::Order, format!("a batch is numbered {numbers:?}: {changes:?}"));
            }
            let puts = changes.iter().filter(|change| matches!(change.effect, Effect::Put { .. }));
            let seen = puts.clone().filter(|change| self.number_of(number, change.effect).is_some()).count();
            if shows_all && !is_replace && seen > 0 && seen < puts.count() {
                found.add(Rule::HalfBatch, format!("of a batch only {seen} took effect: {changes:?}"));
            }
        }
    }

    /// Ends the epoch. Its deltas that were not read will never be read.
    pub(super) fn end(&mut self) {
        self.offset += self.calls.keys().max().map_or(0, |last| last + 1);
        self.deletions.clear();
        self.resyncs.clear();
        self.calls.clear();
    }

    fn check_answer(&self, call: &Call, found: &mut Findings) {
        let Some(rv) = call.reply().and_then(|reply| reply.rv) else { return };
        let floor = self.floor(call.start);
        let adds = match &call.operation {
            Operation::Produce { changes, is_replace: false } => {
                changes.iter().any(|change| matches!(change.effect, Effect::Put { .. }))
            }
            _ => false,
        };
        if rv < floor || (adds && rv == floor) {
            let is_read = matches!(call.operation, Operation::Items | Operation::Read);
            found.add(
                if is_read { Rule::StaleRead } else { Rule::NumberBack },
                format!("{floor} was in a reply before the reply {rv} to {:?}", call.operation),
            );
        }
    }

    /// Records the objects and deletions of a call.
    fn note(&mut self, number: usize, call: &Call, last: Rv) {
        if !call.may_have_happened() {
            return;
        }
        let answered = call.reply().map(|reply| reply.rv.unwrap_or(last));
        let bounds = Bounds { after: self.floor(call.start), until: answered.unwrap_or(last) };
        let changes = match &call.operation {
            Operation::Resync => return self.resyncs.push(bounds),
            Operation::Produce { changes, .. } => changes,
            _ => return,
        };
        self.calls.insert(number, bounds);
        for change in changes {
            let (kind, value) = match change.effect {
                Effect::Put { kind, value, .. } => (kind, value),
                Effect::Delete { value: Some(value) } => (Kind::Deleted, value),
                Effect::Delete { value: None } => {
                    self.deletions.entry(change.key.clone()).or_default().push(bounds);
                    continue;
                }
            };
            let (call, key) = (self.offset + number, change.key.clone());
            self.sent.entry(value).or_default().push(Sent { call, key, kind, bounds, rv: None });
        }
    }

    /// Records the event of a number. Returns whether the number is new.
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
        let inferred = |bounds: &[Bounds]| bounds.iter().any(|bounds| bounds.hold(delta.rv));
        let is_inferred = || self.deletions.get(key).is_some_and(|bounds| inferred(bounds));
        if self.delivers_absent && delta.tombstone && delta.value == 0 {
            return is_inferred();
        }
        let Some(senders) = self.sent.get_mut(&delta.value) else { return false };
        let is_of_key = senders.iter().any(|sent| sent.key == *key);
        match delta.kind {
            Kind::Sync => is_of_key && inferred(&self.resyncs),
            Kind::Deleted if delta.tombstone => is_of_key && is_inferred(),
            kind => {
                let fits = |sent: &&mut Sent| {
                    sent.key == *key && sent.kind == kind && sent.rv.is_none() && sent.bounds.hold(delta.rv)
                };
                // An object may be sent more than once. Deltas are read in the order of their numbers, so the call with the
                // lowest bound must be the sender: any other choice could exclude it later.
                let fitting = senders.iter_mut().filter(fits).min_by_key(|sent| sent.bounds.until);
                let Some(sender) = fitting else { return false };
                sender.rv = Some(delta.rv);
                true
            }
        }
    }

    fn number_of(&self, call: usize, effect: Effect) -> Option<Rv> {
        self.sent_by(call, effect)?.0.rv
    }

    /// The number of an event that only this call can have caused. While the database is away, a Replace without a reply may be
    /// followed by another one with the same objects, and either can have caused the event.
    fn certain_number_of(&self, call: usize, effect: Effect) -> Option<Rv> {
        let (own, senders) = self.sent_by(call, effect)?;
        let fits = |sent: &&Sent, rv| sent.key == own.key && sent.kind == own.kind && sent.bounds.hold(rv);
        own.rv.filter(|rv| senders.iter().filter(|sent| fits(sent, *rv)).count() == 1)
    }

    /// What is known about an object of a call, and about all calls that sent the same object.
    fn sent_by(&self, call: usize, effect: Effect) -> Option<(&Sent, &[Sent])> {
        let (Effect::Put { value, .. } | Effect::Delete { value: Some(value) }) = effect else { return None };
        let senders = self.sent.get(&value)?;
        let own = senders.iter().find(|sent| sent.call == self.offset + call)?;
        Some((own, senders))
    }
}
