//! The commands of a queue, and their results.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use std::vec::IntoIter;

use super::config::Quiet;
use super::delta::{Delta, DeltaKind};
use super::event::ReplaceCounts;
use super::id::{Rv, Sequence, Source, Token, Worker};
use super::key::{Key, KeySet};
use super::known::Known;
use super::object::Object;
use super::object_version::ObjectVersion;
use super::schedule::HeadStart;
use super::table::Entry;
use super::time::Time;
use super::trace::Trace;

mod admin;
mod bounds;
mod consume;
mod debounce;
mod deliver;
mod expected;
mod follow;
mod groups;
mod memory;
mod order;
mod produce;
mod replace;
mod resync;
mod sequence;
mod sources;
mod version;

pub use deliver::Delivered;
pub use deltaq_types::HoldScope;
pub use expected::{Expected, Versions};
pub use follow::Taken;
pub use groups::RegroupWalk;
use memory::new_bytes;
pub use resync::Seed;

pub use super::comparison::Comparison;
pub use super::deletion_limit::{DefaultLimit, DeletionGuard};
pub use super::job::ReplaceId;
pub use super::scan::ScanCursor;
pub use super::settled::Outcome;

/// An Add, Update or Delete of one key.
#[derive(Clone, Debug)]
pub struct Call {
    /// `Added`, `Updated` or `Deleted`.
    pub kind: DeltaKind,
    /// The key.
    pub key: Key,
    /// The object. `None` for a Delete by key, and in mode keys.
    pub object: Option<Object>,
    /// The producer's name.
    pub source: Option<Source>,
    /// How long the key waits before it is delivered.
    pub delay: Option<Duration>,
    /// How long the key must be quiet before it is delivered. Overrides the queue's setting.
    pub debounce: Option<Quiet>,
    /// How much earlier the change counts as arrived. Overrides the queue's setting.
    pub head_start: Option<HeadStart>,
    /// Whether the Delete was inferred, so that the object may be outdated.
    pub final_state_unknown: bool,
    /// Whether the call is `AddRateLimited`. Only in mode keys.
    pub rate_limited: bool,
    /// The trace that the call belongs to.
    pub trace: Option<Trace>,
    /// The version of the object, if the queue has the setting `version`.
    pub version: Option<ObjectVersion>,
}

impl Call {
    /// Adds a key in mode keys.
    #[must_use]
    pub fn of_key(key: Key, delay: Option<Duration>) -> Self {
        Self {
            kind: DeltaKind::Added,
            key,
            object: None,
            source: None,
            delay,
            debounce: None,
            head_start: None,
            final_state_unknown: false,
            rate_limited: false,
            trace: None,
            version: None,
        }
    }
}

/// The result of a produce command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Produced {
    /// The queue's newest event after the command.
    pub resource_version: Rv,
    /// Number of accepted calls. This includes a Delete that the dedup rule drops, because a deletion of its key is
    /// already queued.
    pub queued: u64,
    /// Mode keys: number of adds of keys that were already ready and not leased.
    pub merged: u64,
    /// Number of calls that were ignored.
    pub ignored: u64,
    /// Number of calls that were not newer than the newest state of their key.
    pub stale: u64,
    /// Whether the sequence number had already been applied. If so, the command changed nothing.
    pub duplicate: bool,
}

/// A list of objects, which may be long. The keys and the length of the longest object are recorded while the list is
/// built, so no pass over the list is needed under the queue's lock.
#[derive(Debug, Default)]
pub struct ObjectList {
    pub(super) items: Vec<(Key, Object)>,
    /// Invariant: the set of the keys of `items`.
    pub(super) keys: KeySet,
    /// Invariant: the length of the longest object of `items`, in bytes.
    pub(super) longest_bytes: usize,
    /// What the objects of `items` take at most in the queue, in bytes.
    pub(super) new_bytes: usize,
}

impl ObjectList {
    /// Number of objects. Several objects may have the same key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The indexes of two objects with the same key: the earlier object, and the first object that repeats a key.
    #[must_use]
    pub fn duplicate(&self) -> Option<(usize, usize)> {
        if self.keys.len() == self.items.len() {
            return None;
        }
        let mut first = HashMap::new();
        let mut items = self.items.iter().enumerate();
        items.find_map(|(index, (key, _))| first.insert(key, index).map(|before| (before, index)))
    }

    /// The key of an object.
    #[must_use]
    pub fn key_at(&self, index: usize) -> Option<&Key> {
        self.items.get(index).map(|(key, _)| key)
    }

    /// Keeps only the last object of each key.
    pub fn keep_last(&mut self) {
        if self.keys.len() == self.items.len() {
            return;
        }
        let mut later = HashSet::new();
        let mut is_last: Vec<bool> =
            self.items.iter().rev().map(|(key, _)| later.insert(key.clone())).collect();
        self.items.retain(|_| is_last.pop().unwrap_or_default());
    }

    /// Appends an object.
    pub fn push(&mut self, key: Key, object: Object) {
        self.longest_bytes = self.longest_bytes.max(object.bytes());
        self.new_bytes += new_bytes(&key, Some(&object));
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

/// A complete list of the objects of a source.
#[derive(Debug)]
pub struct Replace {
    /// The objects.
    pub list: ObjectList,
    /// Further keys that the source has, whose objects are not known. Nothing is queued for them, and they are not deleted.
    pub kept: KeySet,
    /// Whether the list deletes nothing: the source has an object whose key is not known.
    pub keeps_all: bool,
    /// The source of the list.
    pub source: Option<Source>,
    /// The sequence number of the call. A list without a source has no sequence number.
    pub sequence: Option<u64>,
    /// Whether to skip unchanged objects.
    pub only_changed: bool,
    /// Overrides the queue's `max_delete_percent`.
    pub max_delete_percent: Option<f64>,
    /// Overrides the queue's `max_deletes`.
    pub max_deletes: Option<u64>,
    /// The limit on deletions, if neither the call nor the queue sets one.
    pub default_limit: DefaultLimit,
    /// Whether to report only what would happen, without changing anything.
    pub dry_run: bool,
    /// The trace that the call belongs to.
    pub trace: Option<Trace>,
}

impl Replace {
    /// A Replace with `list` and no options.
    #[must_use]
    pub fn new(list: ObjectList, source: Option<Source>) -> Self {
        let (only_changed, dry_run) = (false, false);
        let (max_delete_percent, max_deletes) = (None, None);
        let default_limit = DefaultLimit::None;
        Self {
            list,
            kept: KeySet::default(),
            keeps_all: false,
            source,
            sequence: None,
            only_changed,
            max_delete_percent,
            max_deletes,
            default_limit,
            dry_run,
            trace: None,
        }
    }

    /// The sequence of the call.
    #[must_use]
    pub fn sequence(&self) -> Option<Sequence> {
        Some(Sequence { source: self.source.clone()?, number: self.sequence? })
    }
}

/// The parked or delayed keys that a command concerns.
#[derive(Debug)]
pub enum KeySelection {
    /// All parked keys, or all delayed keys, in key order.
    All,
    /// These keys. The iterator is consumed.
    Named(IntoIter<Key>),
    /// Keys whose last error is this text. The empty text also selects keys without an error.
    WithError(String),
}

/// A command on parked or delayed keys, between its steps.
#[derive(Debug)]
pub struct SelectedKeys {
    pub(super) selection: KeySelection,
    /// The number of keys that the caller expects. `None` if the caller expects no number, or once the keys have been
    /// counted.
    pub(super) expected_count: Option<u64>,
    pub(super) cursor: ScanCursor,
}

impl SelectedKeys {
    /// A command on the keys of `selection`. The command is refused unless the selection has `expected_count` keys.
    #[must_use]
    pub fn new(selection: KeySelection, expected_count: Option<u64>) -> Self {
        Self { selection, expected_count, cursor: ScanCursor::default() }
    }
}

impl From<KeySelection> for SelectedKeys {
    fn from(selection: KeySelection) -> Self {
        Self::new(selection, None)
    }
}

impl KeySelection {
    /// Selects these keys, or all keys if `None`.
    #[must_use]
    pub fn named(keys: Option<Vec<Key>>) -> Self {
        keys.map_or(Self::All, |keys| Self::Named(keys.into_iter()))
    }

    /// Whether the selection includes this parked or delayed key.
    fn includes(&self, entry: &Entry) -> bool {
        match self {
            Self::All | Self::Named(_) => true,
            Self::WithError(error) => entry.schedule_state.last_error().unwrap_or_default() == error,
        }
    }
}

/// The progress of a command that runs in steps.
#[derive(Debug)]
pub enum Progress<T> {
    /// There is more to do.
    More,
    /// There is more to do after [`Comparison::run`]. If the caller does not run the comparison, the next step runs
    /// it.
    Compare(Arc<Comparison>),
    /// Another command must end first.
    NotYet,
    /// The command has ended.
    Done(T),
}

impl<T> Progress<T> {
    /// The progress with another result.
    pub fn map<U>(self, result: impl FnOnce(T) -> U) -> Progress<U> {
        match self {
            Self::More => Progress::More,
            Self::Compare(pairs) => Progress::Compare(pairs),
            Self::NotYet => Progress::NotYet,
            Self::Done(done) => Progress::Done(result(done)),
        }
    }
}

/// A pop.
#[derive(Clone, Debug)]
pub struct Pop {
    /// Maximum number of keys.
    pub max: usize,
    /// Maximum size of the objects in bytes. The first key is returned regardless of its size.
    pub max_bytes: usize,
    /// The length of the leases. Defaults to the queue's setting.
    pub lease: Option<Duration>,
    /// The name of the worker.
    pub worker: Option<Worker>,
    /// Identifies the pop, so that it can be repeated.
    pub id: Option<Arc<str>>,
    /// Whether the result includes known objects.
    pub with_known: bool,
    /// The only group whose keys are delivered. The empty name is that of the group without a name. Such a delivery takes no turn.
    pub group: Option<Arc<str>>,
}

/// One delivered key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// The lease's fencing token.
    pub token: Token,
    /// When the lease expires.
    pub deadline: Time,
    /// The worker of the lease, if its pop named one.
    pub worker: Option<Worker>,
    /// Number of deliveries since the last acknowledgement, including this one.
    pub attempt: u32,
    /// Failures so far.
    pub failures: u32,
    /// Whether the key belongs to the initial list.
    pub is_in_initial_list: bool,
    /// The delivered deltas, oldest first. Empty in mode keys.
    pub deltas: Vec<Delta>,
    /// The known object, if the pop asked for it.
    pub known: Option<Known>,
    /// How long the key waited before this delivery.
    pub waited: Duration,
}

/// A settle of one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The fencing token.
    pub token: Token,
    /// How the lease is settled.
    pub how: How,
}

impl Settle {
    /// Whether the queue keeps an error text.
    #[must_use]
    pub const fn has_error(&self) -> bool {
        match &self.how {
            How::Part(part) => matches!(part.rest, Some(How::Nack { error: Some(_), .. })),
            how => matches!(how, How::Nack { error: Some(_), .. } | How::Reject { error: Some(_) }),
        }
    }
}

/// The ways to settle a lease. All of them except `Extend` end the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The work is done: the delivered deltas become known.
    Ack,
    /// Mode keys: client-go's Done without Forget.
    Done {
        /// The key is added again after this time, as by client-go's `AddAfter` before Done.
        delay: Option<Duration>,
    },
    /// The work failed.
    Nack {
        /// The wait. Overrides the rate limiter.
        delay: Option<Duration>,
        /// If true, a newer change does not shorten the wait.
        floor: bool,
        /// The error text.
        error: Option<Arc<str>>,
    },
    /// The key returns to the ready queue without a failure.
    Release,
    /// The delivered deltas up to one of them are acknowledged, and the rest is settled in another way.
    Part(Box<Part>),
    /// The key is acknowledged or released, and nothing of the queue or of its group is delivered for a time.
    Hold {
        /// What is not delivered.
        scope: HoldScope,
        /// Whether the key is acknowledged.
        acks: bool,
        /// How long nothing is delivered: at most [`HOLD_SECS_MAX`](super::limits::HOLD_SECS_MAX).
        length: Duration,
    },
    /// The key is parked unless a newer change waits. No failure is counted, because the worker reports that a retry is
    /// pointless.
    Reject {
        /// The error text.
        error: Option<Arc<str>>,
    },
    /// The lease gets a new deadline, which may be earlier than the current one.
    Extend {
        /// The time from now to the deadline. Defaults to the queue's setting.
        lease: Option<Duration>,
    },
}

/// An acknowledgement of the older ones of the delivered deltas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The newest acknowledged delta.
    pub through: Rv,
    /// How the other deltas are settled; `None` if the lease goes on with them. They are not acknowledged, so [`How::Ack`] releases them.
    pub rest: Option<How>,
}

/// The result of a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The settle ended the lease.
    Ok {
        /// How long the lease lasted.
        worked: Duration,
        /// The state of the key after a nack or reject.
        failed: Option<FailureState>,
    },
    /// The settle ended the lease, and the queue or its group is held.
    Held {
        /// How long the lease lasted.
        worked: Duration,
        /// When the hold ends.
        until: Time,
    },
    /// The lease has a new deadline.
    Extended {
        /// The new deadline.
        deadline: Time,
        /// Number of deltas that arrived during the lease.
        pending_deltas: usize,
        /// Whether the key's newest delta is a deletion.
        deleted: bool,
    },
    /// The lease had already ended in the same way, or the deltas were acknowledged already.
    Repeated,
    /// The lease has no delta with this number.
    NotLeased,
    /// The lease had ended in another way, or never existed.
    Stale {
        /// How the lease ended.
        outcome: Outcome,
    },
}

/// The failures of a key, and when the key is delivered again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureState {
    /// Failures since the last ack.
    pub failures: u32,
    /// When the delay or backoff of the key ends.
    pub due: Option<Time>,
    /// Whether the key is parked.
    pub is_parked: bool,
}

/// The result of a purge: how much work is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Number of ready and delayed keys.
    pub keys: u64,
    /// Number of deltas, including those that waited while their key was leased.
    pub deltas: u64,
}

/// The result of a Replace, or of its dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The queue's newest event after the Replace.
    pub resource_version: Rv,
    /// The counts.
    pub counts: ReplaceCounts,
    /// Whether the sequence number had already been applied. If so, the Replace changed nothing.
    pub duplicate: bool,
}
