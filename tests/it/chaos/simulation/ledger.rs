//! A ledger of all calls and replies: the judge of a simulation. The ledger contains the promises of the service, and no
//! implementation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use deltaq_engine::command::{How, Item, Outcome, Settled};
use deltaq_engine::delta::{Delta, DeltaKind};
use deltaq_engine::id::Rv;
use deltaq_service::Name;
use deltaq_types::Mode;

mod keys;
mod parts;
mod queues;

pub(super) use keys::View;
pub(super) use queues::Asked;

use self::keys::Shown;
use super::Violation;

/// The order of calls and replies.
pub(super) type Moment = u64;

/// A queue: its name and its incarnation.
pub(super) type QueueRef = (Name, u32);

/// All queues of a run, also deleted ones.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    moment: Moment,
    /// The monotonic clock. All deadlines in the ledger refer to it.
    pub(super) now_us: u64,
    names: BTreeMap<Name, NameBook>,
    /// How often each situation occurred. A situation that never occurs is not tested.
    pub(super) hits: BTreeMap<&'static str, u64>,
}

/// The facts about a name that outlive its queues.
#[derive(Debug, Default)]
struct NameBook {
    /// The largest event number in a reply.
    high: Rv,
    tokens: BTreeSet<Rv>,
    queues: BTreeMap<u32, QueueHistory>,
}

/// One queue from its creation to its end.
#[derive(Debug)]
struct QueueHistory {
    mode: Mode,
    knows: bool,
    /// A reply depended on the existence of the queue.
    confirmed: bool,
    /// A caller sent a deletion.
    deleting: bool,
    /// A reply said that the queue is deleted.
    gone: Option<Moment>,
    /// A reply said that the queue has synced.
    synced: Option<Moment>,
    /// Purges and discards that may still run. They may drop new deltas.
    dropping: usize,
    keys: BTreeMap<String, KeyHistory>,
    /// The latest pops with keys, by arrival.
    served: VecDeque<(Moment, Rv)>,
}

#[derive(Debug, Default)]
struct KeyHistory {
    calls: BTreeMap<u64, Call>,
    leases: BTreeMap<Rv, Held>,
}

/// The effect of a call on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An Add or Update, or an add in mode keys.
    Put,
    Delete,
    /// An item of a Replace.
    Listed,
}

/// A sent object or add. The object contains its number.
#[derive(Clone, Debug)]
struct Call {
    kind: Kind,
    sent: Moment,
    /// The event of the object has a larger number.
    floor: Rv,
    /// When a reply confirmed the object or contained it.
    accepted: Option<Moment>,
    /// The call has changed nothing.
    refused: bool,
    /// The object may have been dropped or ignored, by the rules.
    excused: bool,
    /// The number of its delta, once a reply contained it.
    rv: Option<Rv>,
}

/// Whether a lease was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Acked {
    No,
    Maybe,
    Yes,
}

/// A lease that a reply contained.
#[derive(Clone, Debug)]
struct Held {
    deltas: Vec<Leased>,
    /// The acknowledged parts: up to which delta, and whether a reply confirmed it.
    parts: BTreeMap<Rv, Acked>,
    /// The lease does not expire before this time.
    deadline_us: u64,
    acked: Acked,
    /// A caller sent a settle.
    settling: bool,
    /// How the lease ended, by a reply.
    ended: Option<Outcome>,
    /// The reply was dropped.
    returned: bool,
}

/// A delta of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leased {
    rv: Rv,
    /// The call that caused it.
    carried: Option<u64>,
    /// The known object after its acknowledgement; `None` if it deletes the key.
    result: Option<u64>,
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

    fn queue(&mut self, (name, incarnation): &QueueRef) -> Result<&mut QueueHistory, Violation> {
        let queue = self.names.get_mut(name).and_then(|name| name.queues.get_mut(incarnation));
        queue.ok_or_else(|| format!("{name}: nobody created {incarnation:08x}"))
    }

    /// A pop has returned these keys. The caller confirms or drops them at once.
    pub(super) fn popped(
        &mut self,
        asked: &Asked,
        items: &[Item],
        had_id: bool,
        kept: bool,
    ) -> Result<(), Violation> {
        // A pop with an id may return leases of an earlier, lost reply.
        let as_of = if had_id { 0 } else { asked.moment };
        let shown = Shown { asked: as_of, replied: self.next_moment(), now_us: self.now_us };
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
            let checked = if is_fresh { key.leased(item, mode, shown) } else { key.leased_again(item) };
            checked.map_err(|found| format!("{}, {}: {found}", asked.queue.0, item.key))?;
            if let Some(held) = key.leases.get_mut(&token) {
                held.returned |= is_fresh && !kept;
            }
        }
        let Some(token) = first_fresh.filter(|_| !had_id) else { return Ok(()) };
        let queue = self.queue(&asked.queue)?;
        // Waiting pops keep their order after a failure of the journal.
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

    /// A caller sends a settle.
    pub(super) fn settles(
        &mut self,
        queue: &QueueRef,
        key: &str,
        token: Rv,
        how: &How,
    ) -> Result<(), Violation> {
        let held = self.held(queue, key, token)?;
        held.settling = true;
        if how.outcome() == Some(Outcome::Acked) {
            held.acked = held.acked.max(Acked::Maybe);
        }
        Ok(())
    }

    /// A caller gets the reply to a settle.
    pub(super) fn settled(
        &mut self,
        queue: &QueueRef,
        key: &str,
        token: Rv,
        how: &How,
        reply: Settled,
    ) -> Result<(), Violation> {
        let now_us = self.now_us;
        let held = self.held(queue, key, token)?;
        let outcome = match reply {
            Settled::Ok { .. } | Settled::Held { .. } | Settled::Repeated => {
                how.outcome().ok_or("the settle ends no lease")?
            }
            Settled::Extended { .. } | Settled::NotLeased => {
                return Err(format!("{how:?} is answered with {reply:?}"));
            }
            Settled::Stale { outcome } => outcome,
        };
        let place = format!("{}, {key}, lease {token}", queue.0);
        if let Some(ended) = held.ended
            && (ended != outcome || matches!(reply, Settled::Ok { .. } | Settled::Held { .. }))
        {
            return Err(format!("{place} has {ended:?} by an earlier answer, now {reply:?}"));
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

    /// A caller sends an extension.
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

    /// A caller gets the reply to an extension.
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
        let result = |delta: &Delta| {
            let is_deleted = delta.kind == DeltaKind::Deleted;
            number(delta.object.as_str()).filter(|_| !is_deleted)
        };
        let leased = |delta: &Delta| Leased { rv: delta.rv, carried: carried(delta), result: result(delta) };
        Self {
            deltas: item.deltas.iter().map(leased).collect(),
            parts: BTreeMap::new(),
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

/// The number of the call that caused a delta; `None` for deltas that the queue created by itself.
fn carried(delta: &Delta) -> Option<u64> {
    let own = matches!(delta.kind, DeltaKind::Added | DeltaKind::Updated | DeltaKind::Replaced);
    number(delta.object.as_str()).filter(|_| own)
}
