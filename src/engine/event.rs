//! Everything that happens to a queue. Applying events is the only way in which a queue changes.

use std::sync::Arc;

use super::config::Config;
use super::delta::{DeltaKind, Rv, Source};
use super::key::Key;
use super::object::Object;
use super::time::Time;
use super::trace::Trace;

/// One thing that happened to a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its number: one more than the event before, except for `Recovered`.
    pub rv: Rv,
    /// When it happened; never before the event before.
    pub at: Time,
    /// What happened.
    pub kind: EventKind,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// A delta was queued.
    Appended {
        /// The key.
        key: Key,
        /// What the delta says.
        kind: DeltaKind,
        /// The object.
        object: Object,
        /// Who sent it.
        source: Option<Source>,
        /// Who owns the key from now on.
        owner: Option<Source>,
        /// A tombstone.
        final_state_unknown: bool,
        /// When it may be handed out, if not at once.
        due: Option<Time>,
        /// What queued it.
        origin: Origin,
        /// The trace of the call, if the producer named one.
        trace: Option<Trace>,
    },
    /// Mode keys: the key was added.
    Queued {
        /// The key.
        key: Key,
        /// When it may be handed out, if not at once.
        due: Option<Time>,
        /// Whether the call counts as a failure (`AddRateLimited`).
        rate_limited: bool,
    },
    /// Mode keys, closed: a rate-limited add was ignored, yet counts as a failure.
    Failed {
        /// The key.
        key: Key,
    },
    /// Mode latest: a key that no consumer has seen was deleted.
    Dropped {
        /// The key.
        key: Key,
        /// What deleted it.
        origin: Origin,
    },
    /// Another source owns the key's newest state from now on.
    TakenOver {
        /// The key.
        key: Key,
        /// The new owner.
        owner: Source,
    },
    /// The key was handed out with all that waited. The event's number is the fencing token.
    Leased {
        /// The key.
        key: Key,
        /// When the lease expires.
        deadline: Time,
        /// Who holds it.
        worker: Option<Arc<str>>,
        /// The pop's id.
        pop_id: Option<Arc<str>>,
    },
    /// The lease got a new deadline.
    Extended {
        /// The key.
        key: Key,
        /// When the lease expires now.
        deadline: Time,
    },
    /// The lease ended.
    Settled {
        /// The key.
        key: Key,
        /// The lease.
        token: Rv,
        /// How it ended.
        ending: Ending,
    },
    /// A delay or backoff ended.
    DelayElapsed {
        /// The key.
        key: Key,
    },
    /// The key's failures are forgotten.
    Forgotten {
        /// The key.
        key: Key,
    },
    /// A parked key was put back in line by hand.
    Redriven {
        /// The key.
        key: Key,
    },
    /// What waited for the key was dropped by hand.
    Removed {
        /// The key.
        key: Key,
    },
    /// The object was put in place without a delta.
    Seeded {
        /// The key.
        key: Key,
        /// The object.
        object: Object,
        /// Who owns the key.
        owner: Option<Source>,
    },
    /// The queue counts as populated.
    Populated,
    /// The settings changed.
    Configured {
        /// All settings.
        config: Arc<Config>,
    },
    /// Nothing is handed out until `Resumed`.
    Paused,
    /// Keys are handed out again.
    Resumed,
    /// The queue drains.
    Closed,
    /// The queue no longer drains.
    Reopened,
    /// A periodic Resync began.
    ResyncDue,
    /// The queue was loaded from its journal after an unclean end: its numbers have skipped ahead, so
    /// that none is ever given twice.
    Recovered,
    /// A Replace was accepted.
    ReplaceStarted {
        /// Whose list it is.
        source: Option<Source>,
        /// Whether it brings the initial list.
        first: bool,
    },
    /// A Replace ended, or was refused at its turn, or cut off by a crash.
    ReplaceEnded {
        /// Whose list it was.
        source: Option<Source>,
        /// Whether it was the one that brings the initial list.
        first: bool,
        /// What it did.
        counts: ReplaceCounts,
        /// Whether it was cut off.
        aborted: bool,
    },
}

impl EventKind {
    /// The key that the event is about; none for those about the queue alone.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Appended { key, .. }
            | Self::Queued { key, .. }
            | Self::Failed { key }
            | Self::Dropped { key, .. }
            | Self::TakenOver { key, .. }
            | Self::Leased { key, .. }
            | Self::Extended { key, .. }
            | Self::Settled { key, .. }
            | Self::DelayElapsed { key }
            | Self::Forgotten { key }
            | Self::Redriven { key }
            | Self::Removed { key }
            | Self::Seeded { key, .. } => Some(key),
            _ => None,
        }
    }
}

/// What queued or dropped something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A producer's Add, Update or Delete: the queue is populated by it.
    Call,
    /// A Replace; `initial` when it brings the initial list.
    Replace {
        /// Whether it is the first one.
        initial: bool,
    },
    /// A Resync: it is no news.
    Resync,
}

/// How a lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Acknowledged: the deltas are known now, failures are forgotten.
    Acked,
    /// client-go's Done alone, without Forget.
    Done,
    /// Failed, by a nack or by its deadline.
    Failed {
        /// Whether the deadline passed.
        expired: bool,
        /// What the worker said.
        error: Option<Arc<str>>,
        /// Where the key went.
        then: Disposition,
        /// Whether the rate limiters were asked, the token bucket among them.
        rate_limited: bool,
    },
    /// Given back to the tail of the line; no failure.
    Released,
    /// Parked at once.
    Rejected {
        /// What the worker said.
        error: Option<Arc<str>>,
    },
    /// Never delivered: the key has its former turn again.
    Undelivered,
}

/// Where a key goes that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// To the tail of the line; a backoff may stand beside.
    Tail {
        /// Mode keys: the backoff that stays beside.
        due: Option<Time>,
    },
    /// It waits.
    Wait {
        /// Until when, or until an earlier delay.
        due: Time,
    },
    /// It waits for the delay that it has.
    Delayed,
    /// Out of circulation.
    Park,
}

/// What a Replace did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaceCounts {
    /// Objects of the list that were queued.
    pub replaced: u64,
    /// Keys that were not in the list and were deleted.
    pub deleted: u64,
    /// Objects equal to the newest state, not queued.
    pub unchanged: u64,
    /// Objects whose key had a call since the Replace was accepted.
    pub skipped: u64,
    /// Keys that belonged to another source before.
    pub taken_over: u64,
}
