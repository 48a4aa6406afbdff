//! The history of a run: all requests and replies of the clients. The judge reads nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

/// A time or a duration, in microseconds. All clients use one monotonic clock.
pub(crate) type Us = u64;
/// The number of an event of a queue.
pub(crate) type Rv = u64;
/// A key, shared by all calls and deltas that name it.
pub(crate) type Key = Arc<str>;

/// The type of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Updated,
    Deleted,
    Replaced,
    Sync,
}

impl Kind {
    /// Parses the name on the wire.
    pub(crate) fn read(name: &str) -> Option<Self> {
        Some(match name {
            "Added" => Self::Added,
            "Updated" => Self::Updated,
            "Deleted" => Self::Deleted,
            "Replaced" => Self::Replaced,
            "Sync" => Self::Sync,
            _ => return None,
        })
    }
}

/// A delta in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) kind: Kind,
    pub(crate) rv: Rv,
    /// The number in the object; 0, which clients never send, for an object that differs from every sent object.
    pub(crate) value: u64,
    /// Whether the deletion is inferred (`final_state_unknown`).
    pub(crate) tombstone: bool,
}

impl Delta {
    /// Whether the delta deletes the key.
    pub(crate) fn is_deleted(&self) -> bool {
        self.kind == Kind::Deleted
    }

    /// The state of the key after the delta is acknowledged.
    pub(crate) fn state(&self) -> Option<u64> {
        (!self.is_deleted()).then_some(self.value)
    }
}

/// The object of `key` with `value`. The padding reveals a truncated or mixed-up object.
pub(crate) fn object(key: &str, value: u64) -> Value {
    json!({ "key": key, "v": value, "pad": format!("{value:x}").repeat(1 + (value % 40) as usize) })
}

/// The effect of a produce call on one key.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) key: Key,
    pub(crate) effect: Effect,
}

/// A change of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// An object. `may_be_unchanged`: a Replace with `only_changed` queues nothing for an object that the queue has.
    Put { kind: Kind, value: u64, may_be_unchanged: bool },
    /// A deletion: with an object, or without one (by key, or by its absence from a Replace).
    Delete { value: Option<u64> },
}

impl Effect {
    /// The state of the key after the change.
    pub(crate) fn state(self) -> Option<u64> {
        match self {
            Self::Put { value, .. } => Some(value),
            Self::Delete { .. } => None,
        }
    }
}

/// The way in which a worker settles a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleKind {
    Ack,
    Nack,
    Release,
    Reject,
}

impl SettleKind {
    /// The name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Release => "release",
            Self::Reject => "reject",
        }
    }

    /// The outcome that the service reports for such a settle.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Ack => Outcome::Acked,
            Self::Nack => Outcome::Nacked,
            Self::Release => Outcome::Released,
            Self::Reject => Outcome::Rejected,
        }
    }
}

/// The end of a lease, as the service reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Acked,
    Nacked,
    Released,
    Rejected,
    Expired,
    Unknown,
}

impl Outcome {
    /// Parses the name on the wire.
    pub(crate) fn read(name: &str) -> Option<Self> {
        Some(match name {
            "acked" => Self::Acked,
            "nacked" => Self::Nacked,
            "released" => Self::Released,
            "rejected" => Self::Rejected,
            "expired" => Self::Expired,
            "unknown" => Self::Unknown,
            _ => return None,
        })
    }
}

/// A lease to settle.
#[derive(Clone, Debug)]
pub(crate) struct Settle {
    pub(crate) lease: String,
    pub(crate) way: SettleKind,
}

/// The result of a settle or of an extension. An extension is never `Repeated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Ok,
    Repeated,
    Stale(Outcome),
}

/// A key that was delivered.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) id: String,
    pub(crate) key: Key,
    pub(crate) token: Rv,
    pub(crate) attempt: u64,
    pub(crate) deltas: Vec<Delta>,
    /// The known object of the key, if the pop requested it.
    pub(crate) known: Option<KnownValue>,
}

/// The number in the known object, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownValue(pub(crate) Option<u64>);

/// The request of a call.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Produces objects and deletions. A Replace has a change for every key of its source.
    Produce { changes: Vec<Change>, is_replace: bool },
    /// Queues all known objects again.
    Resync,
    /// Makes parked keys ready.
    Redrive,
    /// Pops keys. `since` is the start of the first pop with this id, whose leases a repetition returns.
    Pop { id: Option<String>, since: Us, length: Us, with_known: bool, settles: Vec<Settle> },
    /// Settles leases.
    Settle { settles: Vec<Settle> },
    /// Extends a lease.
    Extend { lease: String, length: Us },
    /// Lists all items.
    Items,
    /// Reads something else without a change.
    Read,
}

impl Operation {
    /// The settles of the request.
    pub(crate) fn settles(&self) -> &[Settle] {
        match self {
            Self::Pop { settles, .. } | Self::Settle { settles } => settles,
            _ => &[],
        }
    }
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The call succeeded. A settle or extension of a lost lease counts as a success.
    Ok(Reply),
    /// The call was refused and has changed nothing. The clients make only valid calls, so this is a fault.
    Refused(String),
    /// Unknown: the connection failed, or the server replied 503 or 507.
    Unknown,
}

/// The content of a reply. Parts that the call has no use for are empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) rv: Option<Rv>,
    pub(crate) leases: Vec<Lease>,
    /// The results of the settles in order, or of the one extension.
    pub(crate) settled: Vec<Settled>,
    pub(crate) items: BTreeMap<Key, Item>,
}

/// One call of one client.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) queue: &'static str,
    pub(crate) start: Us,
    pub(crate) end: Us,
    pub(crate) operation: Operation,
    pub(crate) answer: Answer,
}

impl Call {
    /// The reply, if the call succeeded.
    pub(crate) fn reply(&self) -> Option<&Reply> {
        match &self.answer {
            Answer::Ok(reply) => Some(reply),
            _ => None,
        }
    }

    /// Whether the call may have changed something.
    pub(crate) fn may_have_happened(&self) -> bool {
        !matches!(self.answer, Answer::Refused(_))
    }
}

/// The state of a queue at a quiet moment, while no client calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) queue: &'static str,
    pub(crate) start: Us,
    pub(crate) end: Us,
    /// The resource version of the list of items.
    pub(crate) rv: Rv,
    pub(crate) items: BTreeMap<Key, Item>,
    /// Known objects: the number in the object, and its version.
    pub(crate) known: BTreeMap<Key, (u64, Rv)>,
    /// Properties that never change: incarnation, time of creation, settings.
    pub(crate) constant: Value,
    pub(crate) has_synced: bool,
    /// Counts that the service reports beside the lists.
    pub(crate) counts: Vec<Count>,
}

/// A key in the list of items.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    /// Leased deltas, then waiting deltas.
    pub(crate) deltas: Vec<Delta>,
    /// The token of its lease.
    pub(crate) token: Option<Rv>,
}

/// A count that the service reports, and the length of the list.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub(crate) name: &'static str,
    pub(crate) reported: u64,
    pub(crate) listed: u64,
}

/// The history between two quiet moments: load, usually a kill and a restart, and the state of every queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) calls: Vec<Call>,
    pub(crate) crash: Option<Crash>,
    pub(crate) snapshots: Vec<Snapshot>,
}

/// A kill, or an outage of the database that the process survives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    /// No call without a reply takes effect after this time: the end of the process or of the outage.
    pub(crate) gone: Us,
    /// The start of the next process, if the process has ended.
    pub(crate) restart: Option<Us>,
}
