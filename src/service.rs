//! Queues that run: a lock each, the callers that wait, the timers, and the way to the journal.
//!
//! It is not a protocol: nothing here knows HTTP. It has no rules either; those are the engine's.
//!
//! Architecture invariants:
//! - a mutation is one synchronous critical section (decide, apply, push to the journal), or one of several in it, never
//!   across an await, so a dropped caller can't leave half an operation;
//! - an answer waits for the commit of all that it depends on;
//! - no code but the registry assumes that a queue is local.

pub mod handle;
pub mod metrics;
pub mod registry;

mod history;
mod popping;
mod reloading;
mod seeding;
mod slices;
mod time;
mod timers;
mod together;
mod turns;
mod waiters;

pub use crate::journal::Error as JournalError;
pub use crate::journal::recovery::Progress;
pub use crate::name::{Incarnation, LeaseId, Name, NameError};
pub use handle::{Document, Handle};
pub use history::History;
pub use popping::{Delivered, PopAnswer, PopCall};
pub use registry::{Limits, Registry};
pub use slices::SLICE_KEYS;
pub use time::Moment;
#[cfg(test)]
pub use together::is_gathering;
pub use together::{Gathering, gather_here};
pub use turns::Turns;

use crate::engine::refusal::Refusal;
use crate::journal;

/// Why a call on a queue fails.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// No queue has this name, and the call does not create one.
    #[error("there is no queue of this name")]
    QueueNotFound,
    /// The queue was deleted while the call ran.
    #[error("the queue was deleted")]
    QueueDeleted,
    /// There are as many queues as are allowed.
    #[error("there are {limit} queues already, as many as max_queues allows")]
    TooManyQueues {
        /// The setting `max_queues`.
        limit: usize,
    },
    /// As many pops wait at the queue as are allowed.
    #[error("{limit} pops wait at this queue already, as many as max_waiters allows")]
    TooManyWaiters {
        /// The setting `max_waiters`.
        limit: usize,
    },
    /// As many calls wait for their objects to be admitted as may.
    #[error(
        "{limit} calls wait already for their objects to be held against the queue's schema, and no more may"
    )]
    TooManyAdmissions {
        /// How many may wait.
        limit: usize,
    },
    /// The service hands out nothing any more.
    #[error("the server is shutting down")]
    Draining,
    /// The engine refuses the command.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An earlier call on the queue failed in the middle of a change.
    #[error("the queue is out of order after an internal error")]
    Broken,
    /// What the journal kept of the queue's past can't be read.
    #[error("the journal of the queue is damaged, or can't be read: what is older can't be told")]
    PastUnreadable,
    /// The journal could not confirm the write.
    #[error(transparent)]
    Journal(#[from] journal::Error),
}
