//! Why the engine refuses a command. A refused command changes nothing.

use std::sync::Arc;

use deltaq_types::Mode;

use super::deletion_limit::{DefaultLimit, DeletionGuard};
use super::event::ReplaceCounts;
use super::id::Rv;
use super::key::Key;
use super::room::Room;

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The command names more new keys than `max_keys` allows.
    #[error("the queue holds {keys} of at most {limit} keys; {wanted} new ones do not fit")]
    QueueFull {
        /// The setting `max_keys`.
        limit: usize,
        /// Number of keys in the queue, including reserved keys.
        keys: usize,
        /// Number of new keys that the command names.
        wanted: usize,
    },
    /// The command takes more memory than there is.
    #[error("{}", memory_full(*wanted, room))]
    MemoryFull {
        /// The bytes that the command adds.
        wanted: usize,
        /// The memory that there is.
        room: Room,
    },
    /// Mode events: the deltas of a key exceed a limit, and deltas are not merged.
    #[error("key {key:?} has no room for another delta: {field} is {limit}", key = key.as_str())]
    KeyFull {
        /// The setting.
        field: &'static str,
        /// The value of the setting.
        limit: usize,
        /// The key.
        key: Key,
        /// Index of the object in the command, from 0.
        index: usize,
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
    /// The queue's mode does not support the call.
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
    #[error("{limit} Replaces of this queue already run or wait, which is the limit")]
    TooManyReplaces {
        /// [`limits::REPLACES_MAX`](super::limits::REPLACES_MAX).
        limit: usize,
    },
    /// The call would give a source its first sequence number, but the queue already remembers the maximum number of
    /// sources.
    #[error(
        "the queue remembers the sequences of {limit} sources, which is the limit, and the source has none yet"
    )]
    TooManySequences {
        /// [`limits::SOURCES_MAX`](super::limits::SOURCES_MAX).
        limit: usize,
    },
    /// An earlier Replace of the same source, with a sequence number, has not ended.
    #[error("the Replace with sequence number {number} of the source has not ended")]
    SequenceBusy {
        /// The sequence number of that Replace.
        number: u64,
    },
    /// The settings have changed since the objects of the command were read.
    #[error("the queue's settings changed during the call")]
    ConfigChanged,
    /// The queue is closed and has nothing left to deliver.
    #[error("the queue is closed, and no key is ready")]
    Closed,
    /// A Replace would delete more keys than its guard allows.
    #[error("{}", mass_delete(*deletions, *owned, *guard))]
    MassDelete {
        /// Number of keys that would be deleted.
        deletions: u64,
        /// Number of keys of the source whose newest state is not a deletion.
        owned: u64,
        /// The limit that the deletions exceed.
        guard: DeletionGuard,
        /// The effects of the Replace that were counted before it was refused.
        counts: ReplaceCounts,
    },
    /// The queue stores no known objects.
    #[error("seed is not possible: known_objects of the queue is false")]
    NoKnownObjects,
    /// A seed needs a queue in which nothing is ready, delayed, leased or parked.
    #[error("the queue is not empty: {waiting} keys are ready, delayed, leased or parked")]
    NotEmpty {
        /// Number of keys that are ready, delayed, leased or parked.
        waiting: usize,
    },
    /// The caller expects a different number of keys.
    #[error("the number of selected keys is {count} now, and expected_count is {expected}")]
    CountChanged {
        /// The number that the caller expects.
        expected: u64,
        /// The number of keys that the command would have changed.
        count: u64,
    },
    /// The newest object of a key is not the one that the caller expects.
    #[error("the newest object of key {key:?} is not the expected one", key = key.as_str())]
    PreconditionFailed {
        /// The key.
        key: Key,
        /// The version of its newest object; `None` if there is no object.
        version: Option<Rv>,
        /// Index of the expectation in the request, from 0.
        index: usize,
    },
    /// The queue follows another queue, so it takes no calls of producers.
    #[error("the queue follows {follows:?} and takes its objects from there")]
    Follower {
        /// The followed queue.
        follows: Arc<str>,
    },
    /// The setting can't change while the queue holds keys.
    #[error("{field} can't change while the queue holds keys, and it holds {keys}")]
    ImmutableConfig {
        /// The field.
        field: &'static str,
        /// Number of keys in the queue.
        keys: usize,
    },
}

impl Room {
    /// Checks that there is room for this many bytes.
    ///
    /// # Errors
    /// [`Refusal::MemoryFull`].
    pub fn check(&self, wanted: usize) -> Result<(), Refusal> {
        if wanted == 0 || wanted <= self.limit.saturating_sub(self.held) {
            return Ok(());
        }
        Err(Refusal::MemoryFull { wanted, room: self.clone() })
    }
}

/// The text of [`Refusal::MemoryFull`].
fn memory_full(wanted: usize, room: &Room) -> String {
    let Room { held, max, token, .. } = room;
    match token {
        None => format!("the queues hold {held} bytes, and the call adds {wanted}; max_held_bytes is {max}"),
        Some(token) => format!(
            "the queues of the token {token:?} hold {held} bytes, and the call adds {wanted}; the rest of {max} (max_held_bytes) is for other tokens"
        ),
    }
}

/// The text of [`Refusal::MassDelete`]: what would be deleted, and the limits that apply.
fn mass_delete(deletions: u64, owned: u64, guard: DeletionGuard) -> String {
    let what = format!("would delete {deletions} of {owned} keys of its source");
    match guard {
        DeletionGuard::Set { max_deletes, max_percent } => {
            let percent = max_percent.map(|percent| format!("max_delete_percent is {percent}"));
            let deletes = max_deletes.map(|deletes| format!("max_deletes is {deletes}"));
            let limits: Vec<String> = [percent, deletes].into_iter().flatten().collect();
            format!("the list {what}, and {}", limits.join(" and "))
        }
        DeletionGuard::Default(DefaultLimit::EmptyList) => {
            format!("the list is empty and {what}")
        }
        DeletionGuard::Default(DefaultLimit::SingleObject) => {
            format!("the body is one object and no list, and {what}")
        }
        DeletionGuard::Default(DefaultLimit::Half | DefaultLimit::None) => {
            format!("the list {what}, more than half of them, which is the default limit")
        }
    }
}
