//! Why the engine refuses a command. A refused command has changed nothing.

use super::config::Mode;
use super::event::ReplaceCounts;

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// New keys would pass the queue's `max_keys`.
    #[error("the queue holds {keys} of at most {limit} keys; {wanted} new ones do not fit")]
    QueueFull {
        /// The setting `max_keys`.
        limit: usize,
        /// Keys in the queue, reserved ones included.
        keys: usize,
        /// New keys that the command names.
        wanted: usize,
    },
    /// An object is longer than the queue's `max_object_bytes`.
    #[error("the object has {bytes} bytes; max_object_bytes is {limit}")]
    ObjectTooLarge {
        /// The setting `max_object_bytes`.
        limit: usize,
        /// Bytes of the object.
        bytes: usize,
        /// Its place in the command, from 0.
        index: usize,
    },
    /// The call does not exist in the queue's mode.
    #[error("{call} is not possible: {reason}")]
    WrongMode {
        /// The call, by its name in the API.
        call: &'static str,
        /// Why not.
        reason: &'static str,
        /// The queue's mode.
        mode: Mode,
    },
    /// Too many Replaces wait for their turn.
    #[error("{limit} Replaces of this queue run or wait for their turn already")]
    TooManyReplaces {
        /// [`limits::REPLACES_MAX`](super::limits::REPLACES_MAX).
        limit: usize,
    },
    /// The settings changed since the keys of the command's objects were read.
    #[error("the queue's settings changed meanwhile")]
    ConfigChanged,
    /// The queue is closed and nothing is left to hand out.
    #[error("the queue is closed and drained")]
    Closed,
    /// A Replace would delete more than its guard allows.
    #[error(
        "the list would delete {deletions} of {owned} keys, more than max_deletes = {max_deletes} and more than max_delete_percent = {max_percent}"
    )]
    MassDelete {
        /// Keys that would be deleted.
        deletions: u64,
        /// Keys of the source whose newest state is not a deletion.
        owned: u64,
        /// The guard `max_deletes`.
        max_deletes: u64,
        /// The guard `max_delete_percent`.
        max_percent: f64,
        /// What the Replace would have done, as far as it was counted.
        counts: ReplaceCounts,
    },
    /// Seeding needs a queue in which nothing waits.
    #[error("the queue is not empty: {waiting} keys are ready, delayed, leased or parked")]
    NotEmpty {
        /// Keys that are ready, delayed, leased or parked.
        waiting: usize,
    },
    /// The field can't change while the queue holds or knows keys.
    #[error(
        "{field} can't change while the queue holds keys, and it holds {keys}; delete the queue first, or use another"
    )]
    ImmutableConfig {
        /// The field.
        field: &'static str,
        /// Keys in the queue.
        keys: usize,
    },
}
