//! What callers ask of a queue, and what they are told.

use std::sync::Arc;
use std::time::Duration;

use super::comparison::Comparison;
use super::delta::{Delta, DeltaKind, Rv, Source};
use super::event::ReplaceCounts;
use super::key::{Key, KeySet};
use super::known::Known;
use super::object::Object;
use super::time::Time;
use super::trace::Trace;

/// One Add, Update or Delete of one key.
#[derive(Clone, Debug)]
pub struct Call {
    /// `Added`, `Updated` or `Deleted`.
    pub kind: DeltaKind,
    /// The key.
    pub key: Key,
    /// The object; none for a Delete by key, and in mode keys.
    pub object: Option<Object>,
    /// Who produces it.
    pub source: Option<Source>,
    /// How long it waits before it is handed out.
    pub delay: Option<Duration>,
    /// A Delete that was inferred.
    pub final_state_unknown: bool,
    /// Mode keys: `AddRateLimited`.
    pub rate_limited: bool,
    /// The trace that the call belongs to.
    pub trace: Option<Trace>,
}

/// What a produce command did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Produced {
    /// The queue's newest event after it.
    pub resource_version: Rv,
    /// Calls that were accepted.
    pub queued: u64,
    /// Calls that were ignored.
    pub ignored: u64,
}

/// Objects in the order of a list that may be long, and what would take a look at all of them, while a queue's lock is
/// held, to find out.
#[derive(Debug, Default)]
pub struct ObjectList {
    pub(super) items: Vec<(Key, Object)>,
    /// Invariant: the keys of `items`.
    pub(super) keys: KeySet,
    /// Invariant: the length of the longest object of `items`.
    pub(super) longest_bytes: usize,
}

impl ObjectList {
    /// How many objects are in, some of which may have the same key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no object is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Puts an object behind all others.
    pub fn push(&mut self, key: Key, object: Object) {
        self.longest_bytes = self.longest_bytes.max(object.bytes());
        self.keys.insert(key.clone());
        self.items.push((key, object));
    }
}

impl FromIterator<(Key, Object)> for ObjectList {
    fn from_iter<I: IntoIterator<Item = (Key, Object)>>(items: I) -> Self {
        let mut list = Self::default();
        items.into_iter().for_each(|(key, object)| list.push(key, object));
        list
    }
}

impl IntoIterator for ObjectList {
    type Item = (Key, Object);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

/// The whole set of a source's objects.
#[derive(Debug)]
pub struct Replace {
    /// The objects.
    pub list: ObjectList,
    /// Whose set it is.
    pub source: Option<Source>,
    /// Queue nothing for what has not changed.
    pub only_changed: bool,
    /// Overrides the queue's `max_delete_percent`.
    pub max_delete_percent: Option<f64>,
    /// Overrides the queue's `max_deletes`.
    pub max_deletes: Option<u64>,
    /// Only tell what would happen.
    pub dry_run: bool,
    /// The trace that the call belongs to.
    pub trace: Option<Trace>,
}

impl Replace {
    /// A Replace by `list` with no options set.
    #[must_use]
    pub fn new(list: ObjectList, source: Option<Source>) -> Self {
        let (only_changed, dry_run) = (false, false);
        let (max_delete_percent, max_deletes) = (None, None);
        Self { list, source, only_changed, max_delete_percent, max_deletes, dry_run, trace: None }
    }
}

/// Names a Replace between its acceptance and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaceId(pub(super) u64);

/// How far a sliced command is.
#[derive(Debug)]
pub enum Progress<T> {
    /// There is more to do.
    More,
    /// There is more to do once [`Comparison::run`] has returned. The next step does the comparing itself if the caller
    /// did not.
    Compare(Arc<Comparison>),
    /// Another one has to end first.
    NotYet,
    /// It has ended.
    Done(T),
}

/// What a pop asks for.
#[derive(Clone, Debug)]
pub struct Pop {
    /// Most keys.
    pub max: usize,
    /// Most bytes of objects; the first key always fits.
    pub max_bytes: usize,
    /// How long the leases last; the queue's setting by default.
    pub lease: Option<Duration>,
    /// Who asks.
    pub worker: Option<Arc<str>>,
    /// Names the pop, so that it can be repeated.
    pub id: Option<Arc<str>>,
    /// Whether the objects acknowledged last are wanted.
    pub with_known: bool,
}

/// One key that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// The lease's fencing token.
    pub token: Rv,
    /// When the lease expires.
    pub deadline: Time,
    /// Deliveries since the last acknowledgement, this one included.
    pub attempt: u32,
    /// Failures so far.
    pub failures: u32,
    /// Whether the key belongs to the initial list.
    pub is_in_initial_list: bool,
    /// What happened, oldest first; empty in mode keys.
    pub deltas: Vec<Delta>,
    /// The object that was acknowledged last, if the pop wants it.
    pub known: Option<Known>,
    /// How long the key had work to do before it was handed out.
    pub waited: Duration,
}

/// How a worker settles a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The fencing token.
    pub token: Rv,
    /// In which way.
    pub how: How,
}

/// The ways to settle a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Done; what was handed out is known now.
    Ack,
    /// client-go's Done without Forget. Not part of the HTTP API.
    Done,
    /// Failed.
    Nack {
        /// Instead of the rate limiter's wait.
        delay: Option<Duration>,
        /// Why.
        error: Option<Arc<str>>,
    },
    /// Given back; no failure.
    Release,
    /// Parked.
    Reject {
        /// Why.
        error: Option<Arc<str>>,
    },
}

/// What became of a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The lease ended by it.
    Ok {
        /// How long the lease lasted.
        worked: Duration,
    },
    /// The lease had ended in the same way before.
    Repeated,
    /// The lease had ended in another way, or never was.
    Stale {
        /// What became of it.
        outcome: Outcome,
    },
}

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Acknowledged.
    Acked,
    /// Failed by its worker's word.
    Nacked,
    /// Given back.
    Released,
    /// Parked by its worker's word.
    Rejected,
    /// Its deadline passed.
    Expired,
    /// Never known here, or too long ago.
    Unknown,
}

impl Outcome {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Nacked => "nacked",
            Self::Released => "released",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        }
    }
}

/// What became of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// The lease has a new deadline.
    Ok {
        /// The new deadline.
        deadline: Time,
        /// Deltas that came since the lease was made.
        pending_deltas: usize,
        /// Whether the key's newest delta is a deletion.
        deleted: bool,
    },
    /// The lease has ended.
    Stale {
        /// What became of it.
        outcome: Outcome,
    },
}

/// What a purge dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Ready and delayed keys.
    pub keys: u64,
    /// Deltas, those behind leases included.
    pub deltas: u64,
}

/// What a Replace did, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The queue's newest event after it.
    pub resource_version: Rv,
    /// The counts.
    pub counts: ReplaceCounts,
}
