//! Decides whether a history is possible. It reads what the clients sent and got, and nothing of the
//! service: it shares no code with it and knows only what the API promises.
//!
//! It is no model that is run beside the service: with sixteen clients at once nobody knows in which
//! order calls took effect. But every event has a number, so what is delivered tells the order itself,
//! and what was answered bounds it. Each check names what can't be so in any order:
//!
//! - `numbers`: which event each number is, and between which two numbers it must lie;
//! - `leases`: who may have held a key when, and how each lease has ended;
//! - `keys`: for each key, what must be delivered, once, in order, until it is acknowledged;
//! - `states`: which state of a key is the newest, and which deletions are missing.
//!
//! Whatever has no answer may have happened or not, until something shows which.

mod keys;
mod leases;
mod numbers;
mod states;
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use self::keys::KeyBook;
use self::leases::Leases;
use self::numbers::Numbers;
use super::history::{Act, Answer, Call, Count, Epoch, Key, Look, Us, What};

/// What a history breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A call was refused, or the answer can't be read.
    Refused,
    /// A call has no answer though the server was not killed.
    NoAnswer,
    /// A write that was answered is not there.
    LostWrite,
    /// Of a batch only a part is there.
    HalfBatch,
    /// What was acknowledged comes back, or the acknowledgement is not remembered.
    LostAck,
    /// Another settle is not remembered.
    LostSettle,
    /// A lease that must live is not there.
    LostLease,
    /// A delta that was not acknowledged is not delivered again.
    LostDelta,
    /// A key is in the hands of two.
    TwoHolders,
    /// A token is not above all numbers that were seen before.
    Token,
    /// A number went back.
    NumberBack,
    /// A number names two events.
    NumberReused,
    /// Deltas are not in the order of their events.
    Order,
    /// A delta that nobody sent.
    NobodySent,
    /// The known object is not what the acknowledgements say.
    WrongKnown,
    /// The newest state of a key is of no call that can have been the last.
    WrongState,
    /// A deletion that was answered is missing.
    MissingDeletion,
    /// Counts do not agree, or what must not change has changed.
    Inconsistent,
}

/// A rule that is broken, and by what.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

/// Faults found so far, told apart by queue and key.
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

/// What has been learned from all epochs so far.
#[derive(Debug)]
pub(crate) struct Judge {
    books: Vec<Book>,
}

impl Judge {
    /// A judge of empty queues: the name of each, and whether it delivers only the newest delta.
    pub(crate) fn new(queues: impl Iterator<Item = (&'static str, bool)>) -> Self {
        Self { books: queues.map(|(name, is_latest)| Book::new(name, is_latest)).collect() }
    }

    /// Reads the next epoch; tells what can't be.
    pub(crate) fn read(&mut self, epoch: &Epoch) -> Vec<Fault> {
        let mut found = Findings::default();
        for book in &mut self.books {
            found.place = book.name.to_owned();
            book.read(epoch, &mut found);
        }
        found.faults
    }
}

/// All that is known of a queue.
#[derive(Debug)]
struct Book {
    name: &'static str,
    is_latest: bool,
    numbers: Numbers,
    leases: Leases,
    keys: BTreeMap<Key, KeyBook>,
    constant: Option<Value>,
    has_synced: bool,
}

/// A call that touches a key.
#[derive(Clone, Copy, Debug)]
struct Touch {
    /// The call's place among those of the epoch.
    call: usize,
    start: Us,
    /// Whatever it does has been done by then.
    end: Us,
    /// What it leaves the key with.
    last: Act,
    /// Whether it was answered.
    is_sure: bool,
}

impl Touch {
    fn overlaps(&self, other: &Self) -> bool {
        self.call != other.call && self.start <= other.end && other.start <= self.end
    }
}

impl Book {
    fn new(name: &'static str, is_latest: bool) -> Self {
        Self {
            name,
            is_latest,
            numbers: Numbers::default(),
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
        let Some(look) = epoch.looks.iter().find(|look| look.queue == self.name) else {
            found.add(Rule::NoAnswer, "nobody has looked at it");
            return;
        };
        self.numbers.begin(&calls, look, found);
        let fresh = self.leases.read(&calls, &self.numbers, found);
        if let Some(crash) = epoch.crash {
            self.leases.renew(crash);
        }
        self.identify(&fresh, look, found);
        self.numbers.check_batches(&calls, !self.is_latest, found);
        let touches = touches(&calls, epoch.crash.map_or(look.start, |crash| crash.gone));
        self.read_keys(&touches, &calls, &fresh, look, found);
        self.leases.check_alive(look, found);
        self.check_constants(look, found);
        self.numbers.end();
    }

    /// Finds out which event each delta is.
    fn identify(&mut self, fresh: &BTreeMap<Key, Vec<String>>, look: &Look, found: &mut Findings) {
        for (key, ids) in fresh {
            for lease in ids.iter().filter_map(|id| self.leases.get(id)) {
                self.numbers.note_lease(key, lease.token, found);
                self.numbers.identify(key, &lease.deltas, found);
            }
        }
        for (key, item) in &look.items {
            self.numbers.identify(key, &item.deltas, found);
        }
    }

    fn read_keys(
        &mut self,
        touches: &HashMap<Key, Vec<Touch>>,
        calls: &[&Call],
        fresh: &BTreeMap<Key, Vec<String>>,
        look: &Look,
        found: &mut Findings,
    ) {
        let mut names: BTreeSet<Key> = self.keys.keys().cloned().collect();
        names.extend(
            touches.keys().chain(fresh.keys()).chain(look.items.keys()).chain(look.known.keys()).cloned(),
        );
        for name in names {
            found.place = format!("{}/{name}", self.name);
            let key = self.keys.entry(name.clone()).or_insert_with(|| KeyBook::new(self.is_latest));
            let touches = touches.get(&name).map_or(&[][..], Vec::as_slice);
            key.begin(&name, touches, calls, &self.numbers);
            for id in fresh.get(&name).into_iter().flatten() {
                key.see_lease(id, &self.leases, found);
            }
            key.see_look(&name, look, &self.leases, found);
            key.check_states(touches, &self.numbers, calls, look.start, found);
            key.end();
        }
        self.name.clone_into(&mut found.place);
    }

    fn check_constants(&mut self, look: &Look, found: &mut Findings) {
        let before = self.constant.get_or_insert_with(|| look.constant.clone());
        if *before != look.constant {
            found.add(Rule::Inconsistent, format!("it was {before} and is {}", look.constant));
        }
        if self.has_synced && !look.has_synced {
            found.add(Rule::Inconsistent, "it had synced and has not any more");
        }
        self.has_synced = look.has_synced;
        for count in look.counts.iter().filter(|count| count.said != count.listed) {
            let Count { name, said, listed } = count;
            found.add(Rule::Inconsistent, format!("{name}: {said} are said and {listed} are there"));
        }
    }
}

fn check_answers(calls: &[&Call], is_killed: bool, found: &mut Findings) {
    for call in calls {
        match &call.answer {
            Answer::Refused(why) => found.add(Rule::Refused, format!("{:?}: {why}", call.what)),
            Answer::Unknown if !is_killed => found.add(Rule::NoAnswer, format!("{:?}", call.what)),
            _ => {}
        }
    }
}

/// For each key the calls that may have changed it. What has no answer may have gone on until `fence`.
fn touches(calls: &[&Call], fence: Us) -> HashMap<Key, Vec<Touch>> {
    let mut touches: HashMap<Key, Vec<Touch>> = HashMap::new();
    for (number, call) in calls.iter().enumerate().filter(|(_, call)| call.may_have_happened()) {
        let What::Produce { changes, .. } = &call.what else { continue };
        let is_sure = call.reply().is_some();
        let end = if is_sure { call.end } else { call.end.max(fence) };
        for change in changes {
            let touch = Touch { call: number, start: call.start, end, last: change.act, is_sure };
            let of_key = touches.entry(change.key.clone()).or_default();
            match of_key.last_mut().filter(|last| last.call == number) {
                Some(last) => *last = touch,
                None => of_key.push(touch),
            }
        }
    }
    touches
}
