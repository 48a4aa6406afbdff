//! The reasons for which the engine refuses a command. A refused command changes nothing.

use super::config::Mode;
use super::event::ReplaceCounts;

/// The reason for which a command is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The command names more new keys than `max_keys` allows.
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
        /// Index of the object in the command, from 0.
        index: usize,
    },
    /// The call does not exist in the queue's mode.
    #[error("{call} is not possible: {reason}")]
    WrongMode {
        /// The call, by its name in the API.
        call: &'static str,
        /// Why the mode excludes the call.
        reason: &'static str,
        /// The queue's mode.
        mode: Mode,
    },
    /// Too many Replaces run or wait.
    #[error("{limit} Replaces of this queue already run or wait; that is the limit")]
    TooManyReplaces {
        /// [`limits::REPLACES_MAX`](super::limits::REPLACES_MAX).
        limit: usize,
    },
    /// The settings have changed since the objects of the command were read.
    #[error("the queue's settings changed during the call")]
    ConfigChanged,
    /// The queue is closed and has nothing left to deliver.
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
    /// A seed needs a queue in which nothing is ready, delayed, leased or parked.
    #[error("the queue is not empty: {waiting} keys are ready, delayed, leased or parked")]
    NotEmpty {
        /// Keys that are ready, delayed, leased or parked.
        waiting: usize,
    },
    /// The setting can't change while the queue holds keys.
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
