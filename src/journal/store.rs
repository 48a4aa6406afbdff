//! What the journal asks of a database: to write a set of rows whole or not at all, and to read them.
//!
//! It is not where rows get their meaning: `record` turns events and states into rows and back, and a
//! store carries them as they are. One suite of tests holds every store to what is said here.

#[cfg(test)]
pub(crate) mod suite;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::engine::delta::Rv;
use crate::engine::schedule::Slot;
use crate::engine::time::Time;

/// Names a queue for as long as the store lives: another queue of the same name has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What happened to one queue in one commit, or in a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRow {
    /// Grows by one over all queues.
    pub id: u64,
    /// The queue.
    pub queue: QueueId,
    /// The last event of the queue's row before this one: where it is not, rows are missing.
    pub prev_rv: Rv,
    /// The first event in the row.
    pub first_rv: Rv,
    /// The last event in the row.
    pub last_rv: Rv,
    /// When the last event happened.
    pub at: Time,
    /// The version of the format of `events`.
    pub format: u32,
    /// A JSON array of events, oldest first.
    pub events: String,
    /// Over all of the above.
    pub checksum: u32,
}

/// A key as of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The queue.
    pub queue: QueueId,
    /// The key's place in the queue's table. A row takes the place of another one with the same slot.
    pub slot: Slot,
    /// The key.
    pub key: Arc<str>,
    /// The last event of the key that the row knows of.
    pub rv: Rv,
    /// The event that made the object known: an acknowledgement or a seed.
    pub known_rv: Option<Rv>,
    /// The known object, as it was sent.
    pub known_object: Option<Arc<str>>,
    /// Who owns the key as of the known object.
    pub owner: Option<Arc<str>>,
    /// All else of the key, as JSON; none for a key of which only the object is known.
    pub item: Option<String>,
    /// The version of the format of `item`.
    pub format: u32,
    /// Over all of the above.
    pub checksum: u32,
}

/// Says that a key was gone as of an event: older events of it must not be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TombstoneRow {
    /// The queue.
    pub queue: QueueId,
    /// The slot that the key had. Writing the tombstone removes the row of the slot.
    pub slot: Slot,
    /// The key.
    pub key: Arc<str>,
    /// The event that removed it.
    pub rv: Rv,
    /// Over all of the above.
    pub checksum: u32,
}

/// A queue as of its last checkpoint, or what is left of one that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// The queue.
    pub id: QueueId,
    /// Grows with each queue that is created or deleted, over all queues: the number of the latest of
    /// the two for this one.
    pub version: u64,
    /// Its name. At most one queue that is not deleted has it.
    pub name: Arc<str>,
    /// Which of the queues of its name it is, as lease ids tell.
    pub incarnation: u32,
    /// When it came into being.
    pub created_at: Time,
    /// Whether it is gone; only `name` and `rv` count then.
    pub deleted: bool,
    /// The event as of which the row is: replay starts behind it. The last one of a deleted queue.
    pub rv: Rv,
    /// All of the queue that is not about one key, as JSON.
    pub state: String,
    /// The version of the format of `state`.
    pub format: u32,
    /// Over all of the above.
    pub checksum: u32,
}

/// Most rows of one kind that a queue loses in one write by `outlived`, `trimmed` or `swept`.
pub const REMOVED_ROWS_MAX: u32 = 4_096;
/// About how many bytes of events a queue loses in one write by `trimmed`.
pub const REMOVED_BYTES_MAX: u64 = 4 << 20;

/// What is written in one transaction, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Appended; each `id` is larger than all before.
    pub journal: Vec<JournalRow>,
    /// Put in place of the rows with the same `id`.
    pub queues: Vec<QueueRow>,
    /// Appended; the key rows of their slots are removed.
    pub tombstones: Vec<TombstoneRow>,
    /// Put in place of the rows with the same `queue` and `slot`.
    pub keys: Vec<KeyRow>,
    /// For each queue, tombstones up to this event are removed: the oldest [`REMOVED_ROWS_MAX`] of them,
    /// so that one write stays short. What is left does no harm and goes with a later write that says so.
    pub outlived: Vec<(QueueId, Rv)>,
    /// For each queue, journal rows with a `last_rv` up to this one are removed: the oldest ones, up to
    /// [`REMOVED_ROWS_MAX`] and about [`REMOVED_BYTES_MAX`] of events, at least one. What is left goes with
    /// a later write that says so.
    pub trimmed: Vec<(QueueId, Rv)>,
    /// Of these queues, up to so many key rows, tombstones and journal rows each are removed, and at most
    /// [`REMOVED_ROWS_MAX`]. Nothing happens to a queue that has none.
    pub swept: Vec<(QueueId, u32)>,
    /// Of these queues the rows in [`queues`](Self::queues) are removed, if they are deleted. The store keeps
    /// the [`Numbers`] that they have reached.
    pub forgotten: Vec<QueueId>,
    /// Whether the store is closed in good order, if that changes.
    pub clean: Option<bool>,
}

impl Writes {
    /// Leaves out the rows of checkpoints that are of other queues than `stays` says.
    pub(super) fn retain(&mut self, stays: impl Fn(QueueId) -> bool) {
        self.queues.retain(|row| stays(row.id));
        self.tombstones.retain(|row| stays(row.queue));
        self.keys.retain(|row| stays(row.queue));
        self.outlived.retain(|(queue, _)| stays(*queue));
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Rows of the journal, newest first, and below which event to go on if there are more.
pub type History = (Vec<JournalRow>, Option<Rv>);

/// How much of the journal a stretch of a queue's rows takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The last event of its last row.
    pub last_rv: Rv,
    /// When that event happened.
    pub at: Time,
    /// Bytes of the events of all its rows.
    pub bytes: u64,
}

/// How large a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes among them that are free and will be used again.
    pub free: u64,
}

/// What the store says of itself when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Whether it was closed in good order.
    pub clean: bool,
    /// The `id` that the next journal row gets.
    pub next_row: u64,
    /// The largest numbers of queues, of those included whose rows were removed.
    pub numbers: Numbers,
}

/// The largest numbers that queues have had so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The largest id.
    pub queue: u32,
    /// The largest version.
    pub version: u64,
    /// The largest event of a deleted queue. New queues start above it, so that no queue ever counts an
    /// event that another one of its name has counted.
    pub floor: Rv,
}

/// Why a store fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No room is left.
    #[error("the disk is full")]
    Full {
        /// What the system said.
        #[source]
        source: Option<Source>,
    },
    /// A row or a file is not what was written.
    #[error("the store is damaged: {found}")]
    Damaged {
        /// What is wrong, and where.
        found: String,
    },
    /// The files are not those that were opened.
    #[error("{what}")]
    Replaced {
        /// What became of which file.
        what: String,
    },
    /// Another process holds the store.
    #[error("{} is in use by {holder}: {}", .at.display(), .holder.advice())]
    Locked {
        /// The folder of the store.
        at: PathBuf,
        /// Who has it.
        holder: Holder,
    },
    /// A newer program has written the store.
    #[error(
        "{} is of version {found} and this program knows versions up to {known}: start a newer one, or \
         restore the backup from before the upgrade",
        .at.display()
    )]
    Newer {
        /// The folder of the store.
        at: PathBuf,
        /// The version of the store.
        found: i64,
        /// The newest version that is known.
        known: i64,
    },
    /// Anything else.
    #[error("the store failed to {doing}")]
    Failed {
        /// What it was doing, as in "write" or "open the file x".
        doing: String,
        /// What the system said.
        #[source]
        source: Option<Source>,
    },
}

/// Who has a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The process that writes it.
    Process(u32),
    /// One that writes it, and does not tell who it is.
    Unknown,
    /// One that looks at it and wants it to stay as it is.
    Onlooker,
}

impl Holder {
    /// What whoever wants the store too has to know.
    fn advice(self) -> &'static str {
        match self {
            Self::Process(_) | Self::Unknown => "a store has one server",
            Self::Onlooker => "start again when that has ended",
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Unknown => f.write_str("another process"),
            Self::Onlooker => f.write_str("a command that looks at it, as `deltaq check` does"),
        }
    }
}

/// What a driver said.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// The one writer of a store.
pub trait Store: fmt::Debug + Send + 'static {
    /// Writes everything durably, or nothing. After an error it is not known which, and nothing more
    /// can be written until [`reopen`](Self::reopen).
    fn write(&mut self, writes: Writes) -> impl Future<Output = Result<(), Error>> + Send;

    /// Whether a queue has left rows, but its own.
    fn has_rows(&mut self, queue: QueueId) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Opens the store anew, makes what it can read durable, and proves by a write that it takes more.
    fn reopen(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Does a small part of the upkeep that keeps the files from growing without bound, if there is
    /// any to do; tells the size.
    fn upkeep(&mut self) -> impl Future<Output = Result<Size, Error>> + Send;

    /// Gives the store up, and waits until its files are in the shape in which the next start is quick.
    /// Nothing is lost if that can't be reached.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Reads what is written. Pages of one queue fit together as long as nothing is written of it.
pub trait Reader: fmt::Debug + Send + Sync + 'static {
    /// All queues, also what is left of deleted ones, by `id`.
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueRow>, Error>>;

    /// All tombstones of a queue.
    fn tombstones(&self, queue: QueueId) -> BoxFuture<'_, Result<Vec<TombstoneRow>, Error>>;

    /// Up to `limit` keys of a queue from `slot` on, by slot. They are read from the call on, while the
    /// caller does something else.
    fn keys(&self, queue: QueueId, slot: Slot, limit: usize) -> BoxFuture<'_, Result<Vec<KeyRow>, Error>>;

    /// The next rows of a queue's journal with a `last_rv` above `after`, oldest first: at least one
    /// if there is any, more up to `bytes` of events. They are read from the call on, too.
    fn journal(
        &self,
        queue: QueueId,
        after: Rv,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<JournalRow>, Error>>;

    /// The newest rows of a queue's journal with a `first_rv` up to `from`, newest first: two if there are
    /// as many, more up to about `bytes` of events; and from where to go on, if there is more: from the
    /// last of these rows, so that it can be seen that the next one follows.
    fn history(&self, queue: QueueId, from: Rv, bytes: usize) -> BoxFuture<'_, Result<History, Error>>;

    /// How much of a queue's journal is kept, oldest first, in segments of up to `bytes` each (a
    /// larger row is a stretch by itself).
    fn segments(&self, queue: QueueId, bytes: u64) -> BoxFuture<'_, Result<Vec<Segment>, Error>>;
}
