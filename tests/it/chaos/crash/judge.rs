//! Decides whether a history is possible. The judge reads only the requests and replies of the clients; it shares no code
//! with the service and knows only the promises of the API.
//!
//! The judge is not a model that runs beside the service: with sixteen concurrent clients the order in which calls take
//! effect is unknown. But every event has a number, so the delivered deltas show their own order, and replies bound it. A
//! fault is a history that no order explains:
//!
//! - `numbers`: the event of each number, and the bounds of the number;
//! - `leases`: which lease may have held a key at which time, and how each lease has ended;
//! - `keys`: the deltas that must be delivered for each key, in order, until they are acknowledged;
//! - `events`: the same in mode events, where each delta is delivered alone;
//! - `reads`: the deltas that a list must have, and those that it must not have;
//! - `states`: the newest state of a key, and missing deletions.
//!
//! A call without a reply may or may not have taken effect, until a later reply shows it.

mod events;
mod keys;
mod leases;
mod numbers;
mod reads;
mod states;
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use self::keys::KeyRecord;
use self::leases::Leases;
use self::numbers::Numbers;
use super::history::{Answer, Call, Count, Effect, Epoch, Key, Operation, Snapshot, Us};
use super::queues::Mode;

/// A promise that a history breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A call was refused, or its reply can't be parsed.
    Refused,
    /// A call has no reply although the server was not killed.
    NoReply,
    /// A write with a reply is lost.
    LostWrite,
    /// Only a part of a batch took effect.
    HalfBatch,
    /// An acknowledged delta is redelivered, or the acknowledgement is forgotten.
    LostAck,
    /// A settle other than an ack is forgotten.
    LostSettle,
    /// A live lease is lost.
    LostLease,
    /// An unacknowledged delta is not redelivered.
    LostDelta,
    /// Two leases hold a key at the same time.
    TwoHolders,
    /// A token is not greater than all numbers seen before.
    Token,
    /// A number decreased.
    NumberBack,
    /// Two events have the same number.
    NumberReused,
    /// A read lacks a change that was acknowledged before, as if its server did not own the queue any more.
    StaleRead,
    /// A writer has written, or has tried to, after the next epoch began.
    LateWrite,
    /// Deltas are not in the order of their events.
    Order,
    /// No client sent the delta.
    NeverSent,
    /// The known object contradicts the acknowledgements.
    WrongKnown,
    /// No call that can have been the last leaves the key in its newest state.
    WrongState,
    /// A deletion with a reply is lost.
    MissingDeletion,
    /// Counts disagree, or a constant property has changed.
    Inconsistent,
}

/// A broken rule and the evidence.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

/// The faults found so far, each with its queue and key.
#[derive(Debug, Default)]
struct Findings {
    faults: Vec<Fault>,
    place: String,
}

impl Findings {
    fn add(&mut self, rule: Rule, text: impl AsRef<str>) {
        self.faults.push(Fault { rule, text: format!("{}: {}", self.place, text.as_ref()) });
    }
}

/// The knowledge from all epochs so far.
#[derive(Debug)]
pub(crate) struct Judge {
    queues: Vec<QueueRecord>,
}

impl Judge {
    /// A judge of empty queues: their names and modes.
    pub(crate) fn new(queues: impl Iterator<Item = (&'static str, Mode)>) -> Self {
        Self { queues: queues.map(|(name, mode)| QueueRecord::new(name, mode)).collect() }
    }

    /// Reads the next epoch and returns its faults.
    pub(crate) fn read(&mut self, epoch: &Epoch) -> Vec<Fault> {
        let mut found = Findings::default();
        for book in &mut self.queues {
            found.place = book.name.to_owned();
            book.read(epoch, &mut found);
        }
        found.faults
    }
}

/// The knowledge about a queue.
#[derive(Debug)]
struct QueueRecord {
    name: &'static str,
    mode: Mode,
    numbers: Numbers,
    leases: Leases,
    keys: BTreeMap<Key, KeyRecord>,
    constant: Option<Value>,
    has_synced: bool,
}

/// A call that touches a key.
#[derive(Clone, Copy, Debug)]
struct Touch {
    /// The index of the call in the epoch.
    call: usize,
    start: Us,
    /// The call has no effect after this time.
    end: Us,
    /// The last change of the key by the call.
    last: Effect,
    /// Whether the call has a reply.
    is_sure: bool,
}

impl Touch {
    fn overlaps(&self, other: &Self) -> bool {
        self.call != other.call && self.start <= other.end && other.start <= self.end
    }
}

impl QueueRecord {
    fn new(name: &'static str, mode: Mode) -> Self {
        Self {
            name,
            mode,
            numbers: Numbers::new(mode),
            leases: Leases::default(),
            keys: BTreeMap::new(),
            constant: None,
            has_synced: false,
        }
    }

    fn read(&mut self, epoch: &Epoch, found: &mut Findings) {
        let mut calls: Vec<&Call> = epoch.calls.iter().filter(|call| call.queue == self.name).collect();
        calls.sort_by_key(|call| call.start);
        check_answers(&calls, epoch.crash.is_some(), found);
        let Some(snapshot) = epoch.snapshots.iter().find(|snapshot| snapshot.queue == self.name) else {
            found.add(Rule::NoReply, "the state of the queue was not read");
            return;
        };
        self.numbers.begin(&calls, snapshot, found);
        let fresh = self.leases.read(&calls, &self.numbers, found);
        if let Some(crash) = epoch.crash {
            self.leases.renew(crash);
        }
        self.identify(&fresh, snapshot, found);
        reads::check(&calls, &fresh, &self.leases, snapshot, found);
        self.numbers.check_batches(&calls, self.mode != Mode::Latest, found);
        let touches = touches(&calls, epoch.crash.map_or(snapshot.start, |crash| crash.gone));
        self.read_keys(&touches, &calls, &fresh, snapshot, found);
        self.leases.check_alive(snapshot, found);
        self.check_constants(snapshot, found);
        self.numbers.end();
    }

    /// Finds the event of each delta.
    fn identify(&mut self, fresh: &BTreeMap<Key, Vec<String>>, snapshot: &Snapshot, found: &mut Findings) {
        for (key, ids) in fresh {
            for lease in ids.iter().filter_map(|id| self.leases.get(id)) {
                self.numbers.note_lease(key, lease.token, found);
                self.numbers.identify(key, &lease.deltas, found);
            }
        }
        for (key, item) in &snapshot.items {
            self.numbers.identify(key, &item.deltas, found);
        }
    }

    fn read_keys(
        &mut self,
        touches: &HashMap<Key, Vec<Touch>>,
        calls: &[&Call],
        fresh: &BTreeMap<Key, Vec<String>>,
        snapshot: &Snapshot,
        found: &mut Findings,
    ) {
        let mut names: BTreeSet<Key> = self.keys.keys().cloned().collect();
        names.extend(
            touches
                .keys()
                .chain(fresh.keys())
                .chain(snapshot.items.keys())
                .chain(snapshot.known.keys())
                .cloned(),
        );
        for name in names {
            found.place = format!("{}/{name}", self.name);
            let key = self.keys.entry(name.clone()).or_insert_with(|| KeyRecord::new(self.mode));
            let touches = touches.get(&name).map_or(&[][..], Vec::as_slice);
            key.begin(&name, touches, calls, &self.numbers);
            for id in fresh.get(&name).into_iter().flatten() {
                key.read_lease(id, &self.leases, found);
            }
            key.read_snapshot(&name, snapshot, &self.leases, found);
            key.check_states(touches, &self.numbers, calls, snapshot.start, found);
            key.end();
        }
        self.name.clone_into(&mut found.place);
    }

    fn check_constants(&mut self, snapshot: &Snapshot, found: &mut Findings) {
        let before = self.constant.get_or_insert_with(|| snapshot.constant.clone());
        if *before != snapshot.constant {
            found.add(
                Rule::Inconsistent,
                format!("the constant properties were {before} and are {}", snapshot.constant),
            );
        }
        if self.has_synced && !snapshot.has_synced {
            found.add(Rule::Inconsistent, "has_synced was true and is false");
        }
        self.has_synced = snapshot.has_synced;
        for count in snapshot.counts.iter().filter(|count| count.reported != count.listed) {
            let Count { name, reported, listed } = count;
            found.add(Rule::Inconsistent, format!("{name}: {reported} are reported and {listed} are listed"));
        }
    }
}

fn check_answers(calls: &[&Call], is_killed: bool, found: &mut Findings) {
    for call in calls {
        match &call.answer {
            Answer::Refused(why) => found.add(Rule::Refused, format!("{:?}: {why}", call.operation)),
            Answer::Unknown if !is_killed => found.add(Rule::NoReply, format!("{:?}", call.operation)),
            _ => {}
        }
    }
}

/// For each key the calls that may have changed it. A call without a reply may have taken effect until `fence`.
fn touches(calls: &[&Call], fence: Us) -> HashMap<Key, Vec<Touch>> {
    let mut touches: HashMap<Key, Vec<Touch>> = HashMap::new();
    for (number, call) in calls.iter().enumerate().filter(|(_, call)| call.may_have_happened()) {
        let Operation::Produce { changes, .. } = &call.operation else { continue };
        let is_sure = call.reply().is_some();
        let end = if is_sure { call.end } else { call.end.max(fence) };
        for change in changes {
            let touch = Touch { call: number, start: call.start, end, last: change.effect, is_sure };
            let of_key = touches.entry(change.key.clone()).or_default();
            match of_key.last_mut().filter(|last| last.call == number) {
                Some(last) => *last = touch,
                None => of_key.push(touch),
            }
        }
    }
    touches
}
