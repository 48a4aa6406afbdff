//! Everything that the clients sent and got. The judge reads this and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

/// An instant or a span, in microseconds. Instants are of one clock for all clients, which never runs
/// backwards.
pub(crate) type Us = u64;
/// The number of an event of a queue.
pub(crate) type Rv = u64;
/// A key. Shared, because every call and every delta names one.
pub(crate) type Key = Arc<str>;

/// What a delta says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Updated,
    Deleted,
    Replaced,
    Sync,
}

impl Kind {
    /// Reads the name on the wire.
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

/// A delta as it was delivered or shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) kind: Kind,
    pub(crate) rv: Rv,
    /// The number inside the object; 0, which nobody sends, for an object that is not as any was sent.
    pub(crate) value: u64,
    /// Whether it is marked as a deletion that was inferred.
    pub(crate) tombstone: bool,
}

impl Delta {
    /// Whether it says that the key is gone.
    pub(crate) fn is_deleted(&self) -> bool {
        self.kind == Kind::Deleted
    }

    /// The state of its key once it is acknowledged.
    pub(crate) fn state(&self) -> Option<u64> {
        (!self.is_deleted()).then_some(self.value)
    }
}

/// The object of `key` that carries `value`. The padding tells an object that was cut or mixed up.
pub(crate) fn object(key: &str, value: u64) -> Value {
    json!({ "key": key, "v": value, "pad": format!("{value:x}").repeat(1 + (value % 40) as usize) })
}

/// What a produce call means for one key.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) key: Key,
    pub(crate) act: Act,
}

/// What happens to a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// An object. A Replace with `only_changed` queues nothing for one that the queue has: then
    /// `may_be_unchanged`.
    Put { kind: Kind, value: u64, may_be_unchanged: bool },
    /// A deletion, with an object of its own or without: named by key, or missing in a Replace.
    Delete { value: Option<u64> },
}

impl Act {
    /// The state of the key after it.
    pub(crate) fn state(self) -> Option<u64> {
        match self {
            Self::Put { value, .. } => Some(value),
            Self::Delete { .. } => None,
        }
    }
}

/// How a worker settles a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Ack,
    Nack,
    Release,
    Reject,
}

impl Way {
    /// The name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Nack => "nack",
            Self::Release => "release",
            Self::Reject => "reject",
        }
    }

    /// What is said of a lease that ended so.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Ack => Outcome::Acked,
            Self::Nack => Outcome::Nacked,
            Self::Release => Outcome::Released,
            Self::Reject => Outcome::Rejected,
        }
    }
}

/// What became of a lease.
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
    /// Reads the name on the wire.
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
    pub(crate) way: Way,
}

/// What was answered to a settle, or to an extension, which is never repeated.
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
    /// What is known of the key, if the pop asked for it.
    pub(crate) known: Option<KnownValue>,
}

/// The number inside the known object, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownValue(pub(crate) Option<u64>);

/// What a client asked for.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Objects and deletions. A Replace has a change for every key of its source.
    Produce { changes: Vec<Change>, is_replace: bool },
    /// All known objects again.
    Resync,
    /// Parked keys back in line.
    Redrive,
    /// Keys. `since` is the start of the first pop of this id: what it delivered comes again.
    Pop { id: Option<String>, since: Us, length: Us, with_known: bool, settles: Vec<Settle> },
    /// An end to leases.
    Settle { settles: Vec<Settle> },
    /// More time for a lease.
    Extend { lease: String, length: Us },
    /// Nothing but a look.
    Read,
}

impl What {
    /// The settles that the call carries.
    pub(crate) fn settles(&self) -> &[Settle] {
        match self {
            Self::Pop { settles, .. } | Self::Settle { settles } => settles,
            _ => &[],
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// It was done. For settles and extensions also: it was not, because the leases are lost.
    Ok(Reply),
    /// It was refused and has changed nothing. Nothing that the clients do should be.
    Refused(String),
    /// Nobody knows: the connection died, or the server said so.
    Unknown,
}

/// What an answer says; what its call does not bring is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) rv: Option<Rv>,
    pub(crate) leases: Vec<Lease>,
    /// In the order of the settles, or of the one extension.
    pub(crate) settled: Vec<Settled>,
}

/// One call of one client.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) queue: &'static str,
    pub(crate) start: Us,
    pub(crate) end: Us,
    pub(crate) what: What,
    pub(crate) answer: Answer,
}

impl Call {
    /// The answer, if it was done.
    pub(crate) fn reply(&self) -> Option<&Reply> {
        match &self.answer {
            Answer::Ok(reply) => Some(reply),
            _ => None,
        }
    }

    /// Whether it may have changed something.
    pub(crate) fn may_have_happened(&self) -> bool {
        !matches!(self.answer, Answer::Refused(_))
    }
}

/// A queue as it stands while nobody calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    pub(crate) queue: &'static str,
    pub(crate) start: Us,
    pub(crate) end: Us,
    /// As of the list of items.
    pub(crate) rv: Rv,
    pub(crate) items: BTreeMap<Key, Item>,
    /// Known objects: the number inside, and the event that brought it.
    pub(crate) known: BTreeMap<Key, (u64, Rv)>,
    /// What must never change: incarnation, time of creation, settings.
    pub(crate) constant: Value,
    pub(crate) has_synced: bool,
    /// Counts that the service gives beside the lists, with where they stand.
    pub(crate) counts: Vec<Count>,
}

/// A key as a list of items shows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    /// Deltas in the hands of a worker, then those that wait.
    pub(crate) deltas: Vec<Delta>,
    /// The token of the lease on it.
    pub(crate) token: Option<Rv>,
}

/// A number that the service gives, and what the lists say.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub(crate) name: &'static str,
    pub(crate) said: u64,
    pub(crate) listed: u64,
}

/// All that happened from one quiet moment to the next: load, most often a kill and a restart, and a
/// look at every queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) calls: Vec<Call>,
    pub(crate) crash: Option<Crash>,
    pub(crate) looks: Vec<Look>,
}

/// A kill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    /// Nothing of the process was left.
    pub(crate) gone: Us,
    /// The next process was about to start.
    pub(crate) restart: Us,
}
