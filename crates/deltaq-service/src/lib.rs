//! Running queues: a lock for each queue, waiting pops, a task that processes timers, and the connection to the
//! journal.
//!
//! The service contains no protocol code and does not depend on HTTP. It contains no rules of a queue, which are in
//! the engine.
//!
//! Architecture invariants:
//! - a mutation is one synchronous critical section (decide, apply, push to the journal) without an await, so a
//!   caller that disconnects can't leave a half-finished operation;
//! - an answer waits for the commit of all events that it depends on;
//! - a destructor does not change a queue: it leaves a request (`queue/leftovers.rs`) that the next change carries
//!   out;
//! - only the registry assumes that a queue is local.

pub mod admission;
pub mod import;
pub mod metrics;
pub mod queue;
pub mod registry;

mod author;
mod calls;
mod compiled_schemas;
mod follow;
mod followed_events;
mod grants;
mod lease_id;
mod lives;
mod memory;
mod partitions;
mod push;
mod pusher;
mod recovery;
mod series;
mod task;
mod time;
mod watch;

pub use self::author::{author, on_behalf_of};
pub use self::calls::commands::DryRun;
pub use self::calls::history::{FormerObject, FormerObjects, History, PastEvent};
pub use self::calls::indexes::{IndexValue, Lookup};
pub use self::calls::listed::ListedObject;
pub use self::calls::lists::{ItemFilter, ItemPosition, ListPage, ListedState, PageLimit, ViewFilter};
pub use self::calls::parked::{ParkedGroup, ParkedGroups, ParkedPosition};
pub use self::calls::pop::{PopAnswer, PopCall};
pub use self::calls::reaching::Acknowledged;
pub use self::calls::sources::{SourceSettings, SourceStatus};
pub use self::calls::workers::WorkerState;
pub use self::grants::Grants;
pub use self::lease_id::LeaseId;
pub use self::memory::Memory;
pub use self::metrics::{HookReport, HookResult, PushReport, PushResult, Rejected};
pub use self::partitions::{NodeState, Nodes, Owner, Partitions, Peer};
pub use self::pusher::Pusher;
pub use self::queue::RecentLeases;
pub use self::queue::admission::QueueAdmission;
pub use self::queue::delivery::Delivered;
pub use self::queue::feed_readers::WatchLimits;
pub use self::queue::follow_task::{FollowReport, Obstacle};
pub use self::queue::hook_log::HookLog;
pub use self::queue::push_task::PushTask;
pub use self::queue::reflectors::{ReflectedSource, ReflectorStatus};
pub use self::queue::shared_pages::PageForm;
pub use self::queue::source_reports::SourceReport;
pub use self::queue::{Document, Handle};
pub use self::registry::{Creator, FirstCall, Limits, Registry};
pub use self::series::{
    Backlog, Bucket, Counts, Gauges, Minute, Outlook, SERIES_MINUTES, SeriesRange, SeriesSums, Sketch,
};
pub use self::time::Moment;
pub use self::watch::{KeyFilter, Shard, WatchFrom, Watcher};
pub use deltaq_journal::recovery::Progress;
pub use deltaq_journal::{Author, Error as JournalError};
pub use deltaq_types::name::{Incarnation, Name, NameError};

use std::sync::Arc;

use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::Rv;
use deltaq_engine::refusal::Refusal;

/// Why a call on a queue failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// No queue has this name, and the call does not create queues.
    #[error("there is no queue of this name")]
    QueueNotFound,
    /// Another server or no server owns the partition of the queue.
    #[error("this server does not own the queue")]
    NotOwner,
    /// The queue was deleted while the call ran.
    #[error("the queue was deleted")]
    QueueDeleted,
    /// The setting `follow` is not possible.
    #[error("{0}")]
    Follow(FollowError),
    /// Another queue is the resource that the setting `kubernetes` names.
    #[error("another queue of this server is {resource}")]
    ResourceTaken {
        /// The plural name and the group.
        resource: String,
    },
    /// Other queues follow the queue.
    #[error("{}", followed_by(followers, *hidden))]
    Followed {
        /// The followers.
        followers: Vec<Name>,
        /// Number of further followers, whose names the caller may not see.
        hidden: usize,
    },
    /// The number of queues, or that of the queues that a token has created, is at its limit.
    #[error("{}", too_many_queues(*limit, share.as_ref()))]
    TooManyQueues {
        /// The setting `max_queues`, or three times the number of queues that may still be created.
        limit: usize,
        /// The token, if the limit is its share.
        share: Option<QueueShare>,
    },
    /// The number of waiting pops of the queue is at its limit.
    #[error("{limit} pops wait at this queue, the limit set by max_waiters")]
    TooManyWaiters {
        /// The setting `max_waiters`.
        limit: usize,
    },
    /// The number of calls that wait for a check of their objects is at its limit.
    #[error(
        "{limit} calls wait for their objects to be checked against the queue's schema, which is the limit"
    )]
    TooManyAdmissions {
        /// The maximum number of waiting calls.
        limit: usize,
    },
    /// A read of a queue with changes that could not be committed, until the queue is loaded again.
    #[error("changes of the queue could not be committed, and the queue is being loaded again without them")]
    Reloading,
    /// The server is shutting down, and delivers no more keys.
    #[error("the server is shutting down")]
    Draining,
    /// The engine refuses the command.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An earlier change to the queue panicked, and there is no journal to load the queue from.
    #[error("the queue is broken by an internal error")]
    Broken,
    /// The version of a reader is too old.
    #[error(
        "changes since the reader's version are forgotten; the oldest version that can be continued is {horizon}"
    )]
    Expired {
        /// The oldest version from which a reader can continue.
        horizon: Rv,
    },
    /// The version of a reader is larger than the newest version of the queue.
    #[error("the version is ahead of the queue, whose newest is {newest}")]
    Ahead {
        /// The queue's newest event.
        newest: Rv,
    },
    /// The version is in no life of the queue.
    #[error(
        "the queue never had the version, or has lost it: a backup was restored, or another queue had this name"
    )]
    Lost,
    /// The version is older than the oldest life that the queue remembers.
    #[error("the version is older than all versions that the queue remembers")]
    TooOld,
    /// A call names a version that is larger than the newest version of the queue.
    #[error("the version is ahead of the queue, whose newest is {newest}")]
    VersionAhead {
        /// The queue's newest event.
        newest: Rv,
    },
    /// The queue has no index of this name.
    #[error("the queue has no index {}", Excerpt(index))]
    NoIndex {
        /// The name.
        index: String,
        /// The names of the queue's indexes.
        names: Vec<Arc<str>>,
    },
    /// An index does not have all known objects yet.
    #[error("index {} is being built", Excerpt(index))]
    IndexBuilding {
        /// The name.
        index: String,
    },
    /// The indexes of the queue were dropped, because there was no room for them.
    #[error("index {} waits for memory: the queues hold as much as they may", Excerpt(index))]
    NoRoomForIndex {
        /// The name.
        index: String,
    },
    /// The queue's older events can't be read from the journal.
    #[error("the journal of the queue is damaged or can't be read, so older events can't be shown")]
    PastUnreadable,
    /// The journal could not confirm the write.
    #[error(transparent)]
    Journal(#[from] deltaq_journal::Error),
}

/// Why a queue can't follow another queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// There is no queue of the name.
    #[error("there is no queue {0:?}")]
    NotFound(String),
    /// The queues are in different partitions.
    #[error(
        "{queue:?} can't follow {followed:?}, because on several nodes a follower must be in the partition of the queue that it follows"
    )]
    Apart {
        /// The follower.
        queue: Name,
        /// The followed queue.
        followed: Name,
        /// The group of the followed queue's name.
        group: String,
    },
    /// The queue would follow itself, through these queues.
    #[error("the queue would follow itself: {}", _0.join(" follows "))]
    Cycle(Vec<String>),
    /// The followed queue has too many followers.
    #[error("{limit} queues follow {queue:?}, which is the limit")]
    TooMany {
        /// The followed queue.
        queue: Name,
        /// The maximum number of followers.
        limit: usize,
    },
    /// The token has set up too many followers.
    #[error("the token {token:?} has set up {limit} followers, the limit set by max_followers_per_token")]
    TooManyOfToken {
        /// The name of the token.
        token: Arc<str>,
        /// The setting `max_followers_per_token`.
        limit: usize,
    },
    /// The follower is in mode `events`, and the server keeps no journal.
    #[error(
        "a follower in mode \"events\" reads the journal of the followed queue, and a server in memory has none"
    )]
    NoJournal,
    /// The follower is in mode `events`, and follows the known objects.
    #[error(
        "a follower in mode \"events\" follows the view \"latest\", because acknowledgements are no changes"
    )]
    EventsOfKnown,
    /// The settings of the followed queue do not allow followers.
    #[error("the queue {queue:?} can't be followed: {why}")]
    NotFollowable {
        /// The followed queue.
        queue: Name,
        /// The reason.
        why: &'static str,
    },
}

/// The queues that a token has created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueShare {
    /// The name of the token.
    pub token: Arc<str>,
    /// The number of its queues.
    pub created: usize,
    /// The setting `max_queues`.
    pub max_queues: usize,
}

fn too_many_queues(limit: usize, share: Option<&QueueShare>) -> String {
    match share {
        None => format!("there are {limit} queues, the limit set by max_queues"),
        Some(QueueShare { token, created, max_queues }) => {
            format!(
                "the token {token:?} has created {created} queues; the rest of {max_queues} (max_queues) is for other tokens"
            )
        }
    }
}

/// The text of [`Error::Followed`].
fn followed_by(followers: &[Name], hidden: usize) -> String {
    const SHOWN: usize = 10;
    let names: Vec<&str> = followers.iter().take(SHOWN).map(Name::as_str).collect();
    let names = match (names.join(", "), followers.len().saturating_sub(SHOWN)) {
        (names, 0) => names,
        (names, more) => format!("{names} and {more} more"),
    };
    match (names.as_str(), hidden) {
        (names, 0) => format!("the queue is followed by {names}"),
        ("", hidden) => format!("the queue is followed by {hidden} queues that the token may not read"),
        (names, hidden) => {
            format!("the queue is followed by {names}, and {hidden} queues that the token may not read")
        }
    }
}

impl Error {
    /// The error of a read. A read changes nothing, so its outcome is known.
    pub(crate) fn of_read(self) -> Self {
        match self {
            Self::Journal(JournalError::DiskFull | JournalError::OutcomeUnknown) => Self::Reloading,
            error => error,
        }
    }
}
