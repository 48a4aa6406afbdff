//! What every call sent and was answered, and what follows from that: the judge of a simulation. It
//! knows the promises of the service and nothing of how they are kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use deltaq::engine::command::{How, Item, Outcome, Settled};
use deltaq::engine::config::Mode;
use deltaq::engine::delta::{Delta, DeltaKind, Rv};
use deltaq::service::Name;

mod keys;
mod queues;

pub(super) use keys::View;
pub(super) use queues::Asked;

use self::keys::Shown;
use super::Violation;

/// Orders what callers did and heard.
pub(super) type Moment = u64;

/// Which queue of which name.
pub(super) type QueueRef = (Name, u32);

/// All queues that ever were.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    moment: Moment,
    /// The monotonic clock. All deadlines here are on it.
    pub(super) now_us: u64,
    names: BTreeMap<Name, NameBook>,
    /// How often what came about: a simulation that never meets a thing says nothing about it.
    pub(super) hits: BTreeMap<&'static str, u64>,
}

/// What outlives a queue of a name.
#[derive(Debug, Default)]
struct NameBook {
    /// The largest number that was answered.
    high: Rv,
    tokens: BTreeSet<Rv>,
    queues: BTreeMap<u32, QueueBook>,
}

/// One queue from its creation to its end.
#[derive(Debug)]
struct QueueBook {
    mode: Mode,
    knows: bool,
    /// Somebody had an answer that depends on it.
    confirmed: bool,
    /// Somebody asked to delete it.
    deleting: bool,
    /// Somebody was told that it is deleted.
    gone: Option<Moment>,
    /// Somebody was told that it has synced.
    synced: Option<Moment>,
    /// Purges and discards that may still run: they may drop what comes.
    dropping: usize,
    keys: BTreeMap<String, KeyBook>,
    /// The pops that were served last, by arrival.
    served: VecDeque<(Moment, Rv)>,
}

#[derive(Debug, Default)]
struct KeyBook {
    calls: BTreeMap<u64, Call>,
    leases: BTreeMap<Rv, Held>,
}

/// What a call does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An Add or Update, or an add in mode keys.
    Put,
    Delete,
    /// An item of a Replace.
    Listed,
}

/// An object, or an add, that was sent. Its number is in the object.
#[derive(Clone, Debug)]
struct Call {
    kind: Kind,
    sent: Moment,
    /// Its event has a larger number.
    floor: Rv,
    /// When it was answered, or else seen, which is as good.
    accepted: Option<Moment>,
    /// It has changed nothing.
    refused: bool,
    /// It may have been dropped, or never queued, for a good reason.
    excused: bool,
    /// The number of its delta, once it was seen.
    rv: Option<Rv>,
}

/// Whether a lease was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Acked {
    No,
    Maybe,
    Yes,
}

/// A lease that was answered.
#[derive(Clone, Debug)]
struct Held {
    objects: Vec<u64>,
    first_rv: Rv,
    /// What is known once it is acknowledged; none if the key is deleted by it.
    result: Option<u64>,
    /// It does not expire before.
    deadline_us: u64,
    acked: Acked,
    /// Its end was asked for.
    settling: bool,
    /// How it ended, as somebody was told.
    ended: Option<Outcome>,
    /// Its answer was given back.
    returned: bool,
}

/// The number in an object.
pub(super) fn number(text: &str) -> Option<u64> {
    let (_, behind) = text.split_once("\"id\":")?;
    behind.trim_end_matches('}').parse().ok()
}

impl Ledger {
    pub(super) fn hit(&mut self, what: &'static str) {
        *self.hits.entry(what).or_default() += 1;
    }

    fn next_moment(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    fn queue(&mut self, (name, incarnation): &QueueRef) -> Result<&mut QueueBook, Violation> {
        let queue = self.names.get_mut(name).and_then(|name| name.queues.get_mut(incarnation));
        queue.ok_or_else(|| format!("{name}: nobody created {incarnation:08x}"))
    }

    /// A pop has answered with these keys, that are confirmed or given back at once.
    pub(super) fn popped(
        &mut self,
        asked: &Asked,
        items: &[Item],
        had_id: bool,
        kept: bool,
    ) -> Result<(), Violation> {
        // A pop with an id may bring leases that are older than the call, of an answer that was lost.
        let as_of = if had_id { 0 } else { asked.moment };
        let shown = Shown { asked: as_of, told: self.next_moment(), now_us: self.now_us };
        let mut first_fresh = None;
        for item in items {
            let name = self.names.entry(asked.queue.0.clone()).or_default();
            let token = item.token.rv();
            let is_fresh = name.tokens.insert(token);
            name.high = name.high.max(token);
            if is_fresh && !had_id && token <= asked.floor {
                return Err(format!("token {token} was given after {} was answered", asked.floor));
            }
            first_fresh = first_fresh.or(is_fresh.then_some(token));
            let queue = self.queue(&asked.queue)?;
            let (mode, key) = (queue.mode, queue.keys.entry(item.key.as_str().to_owned()).or_default());
            let told = if is_fresh { key.leased(item, mode, shown) } else { key.leased_again(item) };
            told.map_err(|found| format!("{}, {}: {found}", asked.queue.0, item.key))?;
            if let Some(held) = key.leases.get_mut(&token) {
                held.returned |= is_fresh && !kept;
            }
        }
        let Some(token) = first_fresh.filter(|_| !had_id) else { return Ok(()) };
        let queue = self.queue(&asked.queue)?;
        // The line of waiting pops survives a failure of the journal.
        let overtaken =
            queue.served.iter().find(|(arrived, other)| (*arrived < asked.moment) != (*other < token));
        if let Some((arrived, other)) = overtaken {
            return Err(format!(
                "{}: the pop of moment {} got token {token}, that of {arrived} got {other}",
                asked.queue.0, asked.moment
            ));
        }
        queue.served.push_back((asked.moment, token));
        if queue.served.len() > 64 {
            queue.served.pop_front();
        }
        Ok(())
    }

    fn held(&mut self, queue: &QueueRef, key: &str, token: Rv) -> Result<&mut Held, Violation> {
        let key = self.queue(queue)?.keys.get_mut(key);
        let held = key.and_then(|key| key.leases.get_mut(&token));
        held.ok_or_else(|| format!("{}: nobody holds {token}", queue.0))
    }

    /// A settle is sent.
    pub(super) fn settles(
        &mut self,
        queue: &QueueRef,
        key: &str,
        token: Rv,
        how: &How,
    ) -> Result<(), Violation> {
        let held = self.held(queue, key, token)?;
        held.settling = true;
        if *how == How::Ack {
            held.acked = held.acked.max(Acked::Maybe);
        }
        Ok(())
    }

    /// A settle was answered.
    pub(super) fn settled(
        &mut self,
        queue: &QueueRef,
        key: &str,
        token: Rv,
        how: &How,
        told: Settled,
    ) -> Result<(), Violation> {
        let now_us = self.now_us;
        let held = self.held(queue, key, token)?;
        let wanted = match how {
            How::Ack | How::Done => Outcome::Acked,
            How::Nack { .. } => Outcome::Nacked,
            How::Release => Outcome::Released,
            How::Reject { .. } => Outcome::Rejected,
        };
        let outcome = match told {
            Settled::Ok { .. } | Settled::Repeated => wanted,
            Settled::Stale { outcome } => outcome,
        };
        let place = format!("{}, {key}, lease {token}", queue.0);
        if let Some(ended) = held.ended
            && (ended != outcome || matches!(told, Settled::Ok { .. }))
        {
            return Err(format!("{place} has {ended:?} by an earlier answer, now {told:?}"));
        }
        match outcome {
            Outcome::Unknown if held.returned => return Ok(()),
            Outcome::Unknown => return Err(format!("{place} was answered and is unknown")),
            Outcome::Expired if now_us < held.deadline_us => {
                return Err(format!("{place} expired before {}", held.deadline_us));
            }
            _ => {}
        }
        held.ended = Some(outcome);
        held.acked = if outcome == Outcome::Acked { Acked::Yes } else { Acked::No };
        Ok(())
    }

    /// A lease may get another deadline.
    pub(super) fn extends(
        &mut self,
        queue: &QueueRef,
        key: &str,
        token: Rv,
        to_us: u64,
    ) -> Result<(), Violation> {
        let held = self.held(queue, key, token)?;
        held.deadline_us = held.deadline_us.min(to_us);
        Ok(())
    }

    /// A lease got another deadline, or had ended.
    pub(super) fn extended(
        &mut self,
        queue: &QueueRef,
        key: &str,
        token: Rv,
        deadline_us: Option<u64>,
    ) -> Result<(), Violation> {
        let now_us = self.now_us;
        let held = self.held(queue, key, token)?;
        match deadline_us {
            Some(_) if held.ended.is_some() => Err(format!("lease {token} has ended, and was extended")),
            Some(deadline_us) => {
                held.deadline_us = deadline_us;
                Ok(())
            }
            None if held.may_have_ended(now_us) => Ok(()),
            None => Err(format!("{}, {key}: lease {token} was answered and is gone", queue.0)),
        }
    }
}

impl Held {
    fn of(item: &Item) -> Self {
        let last = item.deltas.last().filter(|delta| delta.kind != DeltaKind::Deleted);
        Self {
            objects: item.deltas.iter().filter_map(carried).collect(),
            first_rv: item.deltas.first().map_or(0, |delta| delta.rv),
            result: last.and_then(|delta| number(delta.object.as_str())),
            deadline_us: item.deadline.as_micros(),
            acked: Acked::No,
            settling: false,
            ended: None,
            returned: false,
        }
    }

    fn may_have_ended(&self, now_us: u64) -> bool {
        self.settling || self.returned || now_us >= self.deadline_us
    }
}

/// The call that brought a delta; none of those that the queue made by itself.
fn carried(delta: &Delta) -> Option<u64> {
    let own = matches!(delta.kind, DeltaKind::Added | DeltaKind::Updated | DeltaKind::Replaced);
    number(delta.object.as_str()).filter(|_| own)
}
