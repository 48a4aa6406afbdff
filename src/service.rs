//! Queues that run: a lock each, waiting pops, a task for time and give-backs, and the way to the journal.
//!
//! This module is no protocol: it knows nothing of HTTP. It has no rules of a queue either; those are the engine's.
//!
//! Architecture invariants:
//! - a mutation is one synchronous critical section (decide, apply, push to the journal) without an await, so a caller that
//!   disconnects leaves no half operation;
//! - an answer waits for the commit of all that it depends on;
//! - a destructor changes no queue: it leaves a request for the queue's task (`task`);
//! - no code but the registry assumes that a queue is local.

pub mod metrics;
pub mod queue;
pub mod registry;

mod admission_permits;
mod commands;
mod history;
mod long_command;
mod pop;
mod recovery;
mod task;
mod time;
mod waiters;

pub use self::admission_permits::AdmissionPermits;
pub use self::commands::DryRun;
pub use self::history::History;
pub use self::pop::{Delivered, PopAnswer, PopCall};
pub use self::queue::{Document, Handle};
pub use self::registry::{FirstCommand, Limits, Registry};
pub use self::time::Moment;
pub use crate::journal::Error as JournalError;
pub use crate::journal::recovery::Progress;
pub use crate::name::{Incarnation, LeaseId, Name, NameError};

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
    /// The number of queues is at its limit.
    #[error("there are {limit} queues, the limit set by max_queues")]
    TooManyQueues {
        /// The setting `max_queues`.
        limit: usize,
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
        /// The largest number of waiting calls.
        limit: usize,
    },
    /// The server is shutting down, and delivers no more keys.
    #[error("the server is shutting down")]
    Draining,
    /// The engine refuses the command.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An earlier change of the queue panicked, and there is no journal to load the queue from.
    #[error("the queue is broken by an internal error")]
    Broken,
    /// The queue's past can't be read from the journal.
    #[error("the journal of the queue is damaged or can't be read, so older events can't be shown")]
    PastUnreadable,
    /// The journal could not confirm the write.
    #[error(transparent)]
    Journal(#[from] journal::Error),
}
