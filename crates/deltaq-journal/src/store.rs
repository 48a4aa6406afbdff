//! The interface to a database, which writes a set of rows atomically and durably, and reads rows.
//!
//! A store does not interpret rows: `record` converts events and states into rows and back. One test suite checks
//! every store against the rules in this module.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_runtime::causes::with_causes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::text_id::{NoTextId, TextId};

/// Identifies a queue for the lifetime of the store. A recreated queue has a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueId(pub u32);

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The tenure of a store's writer. It increases each time the store is opened or reopened. It is stored in the
/// database, so that a writer that has lost the store to another process is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A large text that rows share. The store has it once, and each row that contains it has a reference in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedText {
    /// Its id.
    pub id: TextId,
    /// The text; empty in a row whose texts were not loaded, and if the store has lost the text: it is missing, or differs
    /// from what was written.
    #[serde(skip)]
    pub text: Arc<str>,
}

/// The ids of texts as the text of the column `texts`; `None` if there are none.
pub(super) fn texts_column(texts: &[SharedText]) -> Option<String> {
    let ids: Vec<String> = texts.iter().map(|shared| shared.id.to_string()).collect();
    (!ids.is_empty()).then(|| ids.join(","))
}

/// Reads the column `texts`.
pub(super) fn parse_texts_column(column: Option<&str>) -> Result<Vec<SharedText>, NoTextId> {
    let ids = column.into_iter().flat_map(|ids| ids.split(','));
    ids.map(|id| Ok(SharedText { id: id.parse()?, text: Arc::default() })).collect()
}

/// Some or all of the events of one queue in one commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalRow {
    /// The queue.
    pub queue: QueueId,
    /// The epoch of the writer. It never decreases from one row of a queue to the next.
    pub epoch: Epoch,
    /// The last event of the queue's previous row. It identifies the row within its queue, because at most one row
    /// follows an event. If it differs from the last event of the row before, rows are missing.
    pub prev_rv: Rv,
    /// The first event in the row.
    pub first_rv: Rv,
    /// The last event in the row.
    pub last_rv: Rv,
    /// When the last event happened.
    pub at: Time,
    /// The format version of `events`.
    pub format: u32,
    /// The texts to which `events` refer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<SharedText>,
    /// Bytes of these texts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub text_bytes: u64,
    /// A JSON array of events, oldest first.
    pub events: String,
    /// The checksum of all other fields.
    pub checksum: u32,
}

impl JournalRow {
    /// Bytes of the events, including the texts to which they refer.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.events.len() as u64 + self.text_bytes
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A part of a checkpoint: keys that have changed, and keys that were removed. Of all entries of a slot, the one in the
/// run with the largest number counts, and within a run the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRow {
    /// The queue.
    pub queue: QueueId,
    /// The number of the run. The runs of a queue are numbered without gaps.
    pub number: u64,
    /// The format version of `entries`.
    pub format: u32,
    /// The texts to which `entries` refer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<SharedText>,
    /// A JSON array of entries, oldest first.
    pub entries: String,
    /// The checksum of all other fields.
    pub checksum: u32,
}

impl RunRow {
    /// Bytes of the entries, including the texts to which they refer.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let texts: usize = self.texts.iter().map(|shared| shared.text.len()).sum();
        (self.entries.len() + texts) as u64
    }
}

/// A queue at its last checkpoint, or a deleted queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueRow {
    /// The queue.
    pub id: QueueId,
    /// The number of this queue's creation or, if it is deleted, of its deletion. All creations and deletions of
    /// queues share one sequence of numbers.
    pub version: u64,
    /// The name. It is unique among the queues that are not deleted.
    pub name: Arc<str>,
    /// Distinguishes the queue from earlier queues of the same name. Lease ids contain it.
    pub incarnation: u32,
    /// When the queue was created.
    pub created_at: Time,
    /// Whether the queue is deleted. If so, only `name` and `rv` have a meaning.
    pub deleted: bool,
    /// The event at which the checkpoint began. A replay starts after it.
    pub rv: Rv,
    /// The number of the first run of the checkpoint. Earlier runs are obsolete.
    pub first_run: u64,
    /// The number after the last run of the checkpoint. Later runs belong to a checkpoint that was not completed.
    pub next_run: u64,
    /// The state of the queue that does not belong to one key, as JSON.
    pub state: String,
    /// The format version of `state`.
    pub format: u32,
    /// The checksum of all other fields.
    pub checksum: u32,
}

/// What happened to a queue in the minutes of an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRow {
    /// The hour, counted from 1970.
    pub hour: u32,
    /// The queue, or [`MINUTES_RAN`].
    pub queue: QueueId,
    /// The buckets. The store does not interpret them.
    pub content: Vec<u8>,
}

/// The row of this queue has the minutes of an hour in which a server ran. No queue has this id.
pub const MINUTES_RAN: QueueId = QueueId(0);

/// Maximum number of rows of series that are read or written at a time.
pub const SERIES_ROWS_MAX: usize = 256;

/// Maximum number of journal rows that one write removes from a queue through `trimmed` or `emptied`.
pub const REMOVED_ROWS_MAX: u32 = 16_384;
/// Maximum number of runs that one write removes from a queue through `removed_runs` or `emptied`. A run is larger than a
/// journal row.
pub const REMOVED_RUNS_MAX: u32 = 64;
/// Approximate maximum number of bytes of events that one write removes from a queue through `trimmed`.
pub const REMOVED_BYTES_MAX: u64 = 4 << 20;

/// Maximum number of rows that the writer lists at a time with [`Store::references`] and [`Store::texts`].
pub const LISTED_ROWS_MAX: u32 = 250;
/// Maximum number of runs that [`Reader::runs`] returns.
pub const PAGE_RUNS: usize = 32;

/// A table whose rows may refer to texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Referring {
    /// The journal.
    Journal,
    /// The runs of the checkpoints.
    Runs,
}

/// The position of a row in the order of its table. Only the store knows its meaning.
pub type Position = (i64, i64);

/// Before all rows of a table.
pub const BEFORE_ALL_ROWS: Position = (i64::MIN, i64::MIN);

/// Rows and the texts to which they refer.
pub type References = Vec<(Position, Vec<SharedText>)>;

/// The changes of one transaction, applied in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// The epoch that the changes are based on. If it is not the store's epoch, nothing is written and the write
    /// fails with [`Error::Fenced`].
    pub epoch: Epoch,
    /// Texts to add. They replace those that the store has, because a stored text may have been damaged.
    pub texts: Vec<SharedText>,
    /// Rows to append. A second row of a queue with the same `prev_rv` is an error.
    pub journal: Vec<JournalRow>,
    /// Rows to insert or, if a row with the same `id` exists, to replace.
    pub queues: Vec<QueueRow>,
    /// Runs to append. A second run of a queue with the same number is an error.
    pub runs: Vec<RunRow>,
    /// For each queue, remove the runs with these numbers, at most [`REMOVED_RUNS_MAX`].
    pub removed_runs: Vec<(QueueId, Range<u64>)>,
    /// For each queue, remove journal rows with a `last_rv` up to this event, oldest first. At least one row is
    /// removed, and at most [`REMOVED_ROWS_MAX`] rows and about [`REMOVED_BYTES_MAX`] bytes of events.
    pub trimmed: Vec<(QueueId, Rv)>,
    /// For each queue, remove up to this many journal rows, at most [`REMOVED_ROWS_MAX`], and as many runs, at most
    /// [`REMOVED_RUNS_MAX`].
    pub emptied: Vec<(QueueId, u32)>,
    /// Remove the rows of these queues in [`queues`](Self::queues), if the queues are deleted. The store retains
    /// the [`Numbers`] that they have reached.
    pub forgotten: Vec<QueueId>,
    /// Remove these texts, to which no row refers.
    pub unused_texts: Vec<TextId>,
    /// Rows of series to insert or, if the queue has a row of the hour, to replace. At most one row per queue and hour.
    pub series: Vec<SeriesRow>,
    /// Remove the rows of series whose hours are not in this range.
    pub series_hours: Option<Range<u32>>,
    /// The new value of the store's mark for "cleanly closed"; `None` leaves it unchanged.
    pub clean: Option<bool>,
}

impl Writes {
    /// Drops the checkpoint rows of queues for which `stays` returns false.
    pub(super) fn retain(&mut self, stays: impl Fn(QueueId) -> bool) {
        self.queues.retain(|row| stays(row.id));
        self.runs.retain(|row| stays(row.queue));
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self { epoch: self.epoch, ..Self::default() }
    }

    /// Whether there is nothing to write except journal rows.
    pub(super) fn is_only_journal(&self) -> bool {
        let Self {
            epoch: _,
            texts,
            journal: _,
            queues,
            runs,
            removed_runs,
            trimmed,
            emptied,
            forgotten,
            unused_texts,
            series,
            series_hours,
            clean,
        } = self;
        let is_empty = texts.is_empty() && queues.is_empty() && runs.is_empty();
        let removes_none =
            removed_runs.is_empty() && trimmed.is_empty() && emptied.is_empty() && forgotten.is_empty();
        let has_series = !series.is_empty() || series_hours.is_some();
        is_empty && removes_none && unused_texts.is_empty() && !has_series && clean.is_none()
    }

    /// Refuses numbers from 2^63 on, because databases use signed integers and would order them differently. Times
    /// are exempt: no statement orders by them, and the largest time is a valid value.
    pub(super) fn check_numbers(&self) -> Result<(), Error> {
        let journal = self
            .journal
            .iter()
            .flat_map(|row| [row.epoch.0, row.prev_rv.get(), row.first_rv.get(), row.last_rv.get()]);
        let queues =
            self.queues.iter().flat_map(|row| [row.version, row.rv.get(), row.first_run, row.next_run]);
        let runs = self.runs.iter().map(|row| row.number);
        match journal.chain(queues).chain(runs).find(|number| *number > i64::MAX as u64) {
            None => Ok(()),
            Some(number) => Err(Error::Failed { doing: format!("write the number {number}"), source: None }),
        }
    }
}

/// Converts a number to an upper bound for columns whose numbers are below 2^63.
pub(super) fn bound(number: impl Into<u64>) -> i64 {
    i64::try_from(number.into()).unwrap_or(i64::MAX)
}

/// Journal rows, newest first, and the event at which the next page starts if there is one.
pub type History = (Vec<JournalRow>, Option<Rv>);

/// The size of consecutive rows of a queue's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The last event of the last row.
    pub last_rv: Rv,
    /// The time of that event.
    pub at: Time,
    /// [Bytes](JournalRow::bytes) of all rows.
    pub bytes: u64,
}

/// The size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes of all files.
    pub bytes: u64,
    /// Size of the free pages in bytes. Later writes reuse them.
    pub free: u64,
}

/// The result of opening a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Whether the store was cleanly closed.
    pub clean: bool,
    /// The largest numbers of queues, including the queues whose rows were removed.
    pub numbers: Numbers,
    /// The epoch that begins with this opening.
    pub epoch: Epoch,
    /// The time of the database's clock at the opening, which new lives use; `None` if the store has no clock.
    pub wall: Option<Time>,
}

/// The largest numbers that queues have had so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The largest id.
    pub queue: u32,
    /// The largest version.
    pub version: u64,
    /// The largest event of a deleted queue. New queues start above it, so that a recreated queue never reuses
    /// a fencing token.
    pub floor: Rv,
}

/// Why an operation on a store failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No room is left.
    #[error("the disk is full")]
    Full {
        /// The system's error.
        #[source]
        source: Option<Source>,
    },
    /// Another writer has opened the store. Nothing was written.
    #[error("another process has taken over the store: this one is in epoch {own}, the store is in epoch {found}", own = .own.0, found = .found.0)]
    Fenced {
        /// The epoch that the write is based on.
        own: Epoch,
        /// The epoch of the store.
        found: Epoch,
    },
    /// A row or a file differs from what was written.
    #[error("the store is damaged: {found}")]
    Damaged {
        /// The damage and its place.
        found: String,
    },
    /// The store is missing acknowledged writes, for example after a failover to a lagging replica.
    #[error("the store has lost acknowledged changes: {found}")]
    RolledBack {
        /// What is missing.
        found: String,
    },
    /// The paths no longer refer to the files that were opened.
    #[error("{what}")]
    Replaced {
        /// The file, and what happened to it.
        what: String,
    },
    /// Another process holds the store.
    #[error("{} is in use by {holder}: {}", .at.display(), .holder.advice())]
    Locked {
        /// The folder of the store.
        at: PathBuf,
        /// The process that holds the store.
        holder: Holder,
    },
    /// A newer program has migrated the store.
    #[error(
        "{at} has version {found}, and this program supports versions up to {known}: start a newer program, or \
         restore the backup from before the upgrade"
    )]
    Newer {
        /// The folder or the database of the store.
        at: String,
        /// The version of the store.
        found: i64,
        /// The newest version that this program supports.
        known: i64,
    },
    /// Any other failure.
    #[error("the store failed to {doing}")]
    Failed {
        /// The operation, as in "write" or "open the file x".
        doing: String,
        /// The system's error.
        #[source]
        source: Option<Source>,
    },
}

/// The remedy for damage, at the end of the text of most [`Error::Damaged`].
pub(super) const REMEDY: &str = "Restore a backup; `deltaq check` lists what can still be read";

impl Error {
    /// The text of the error and of its causes, without the remedy for damage.
    #[must_use]
    pub fn without_remedy(&self) -> String {
        match self {
            Self::Damaged { found } => found.trim_end_matches(REMEDY).trim_end_matches(". ").to_owned(),
            error => with_causes(error),
        }
    }
}

/// The process that holds a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The server with this process id.
    Process(u32),
    /// A server with an unknown process id.
    Unknown,
    /// A command that reads the store and excludes servers while it runs.
    Reader,
}

impl Holder {
    /// Advice for the operator.
    fn advice(self) -> &'static str {
        match self {
            Self::Process(_) | Self::Unknown => "only one server can use a store",
            Self::Reader => "start again when the command has ended",
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Unknown => f.write_str("another process"),
            Self::Reader => f.write_str("a command that reads it, such as `deltaq check`"),
        }
    }
}

/// The error of a database driver.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// The single writer of a store.
pub trait Store: fmt::Debug + Send + 'static {
    /// Writes all changes durably, or none. After [`Error::Fenced`], nothing was written; after any other error, the
    /// outcome is unknown. After an error, nothing can be written before [`reopen`](Self::reopen).
    fn write(&mut self, writes: Writes) -> impl Future<Output = Result<(), Error>> + Send;

    /// Whether the queue has any rows other than its own row.
    fn has_rows(&mut self, queue: QueueId) -> impl Future<Output = Result<bool, Error>> + Send;

    /// The next rows of a table that refer to texts, after the row at a position: their positions and the texts. At most
    /// `limit`; none at the end of the table.
    fn references(
        &mut self,
        table: Referring,
        after: Position,
        limit: u32,
    ) -> impl Future<Output = Result<References, Error>> + Send;

    /// The next texts by id, with their bytes. At most `limit`; none at the end.
    fn texts(
        &mut self,
        after: Option<TextId>,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<(TextId, u64)>, Error>> + Send;

    /// Opens the store again and settles the outcome of the failed write. Makes a test write to prove that the store
    /// accepts writes, and returns the new epoch. Everything that is readable afterwards is durable.
    fn reopen(&mut self) -> impl Future<Output = Result<Epoch, Error>> + Send;

    /// Does a small part of the maintenance that limits the size of the files, if any is due. Returns the size.
    fn upkeep(&mut self) -> impl Future<Output = Result<Size, Error>> + Send;

    /// Closes the store in a way that makes the next start quick. Nothing is lost if this fails.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Reads committed rows, with the texts to which they refer. The pages of a queue are consistent while nothing is written
/// for the queue. A page that is limited in bytes counts the bytes of texts too.
pub trait Reader: fmt::Debug + Send + Sync + 'static {
    /// All rows of queues, including deleted queues, by `id`.
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueRow>, Error>>;

    /// The runs of a queue with the largest numbers in `numbers`, newest first, at most [`PAGE_RUNS`]. The store may start
    /// to read at the call, before the future is polled.
    fn runs(&self, queue: QueueId, numbers: Range<u64>) -> BoxFuture<'_, Result<Vec<RunRow>, Error>>;

    /// The smallest number of a run of a queue, including obsolete runs.
    fn oldest_run(&self, queue: QueueId) -> BoxFuture<'_, Result<Option<u64>, Error>>;

    /// The next rows of a queue's journal with a `last_rv` above `after`, oldest first. Returns at least one row if
    /// there is one, and further rows up to `bytes` of events. The store may start to read at the call, before the
    /// future is polled.
    fn journal(
        &self,
        queue: QueueId,
        after: Rv,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<JournalRow>, Error>>;

    /// The newest rows of a queue's journal with a `first_rv` up to `from`, newest first. Returns at least two rows
    /// if there are two, and further rows up to about `bytes` of events. The next page starts with the last row of
    /// this page, so that the caller can check that the rows are consecutive.
    fn history(&self, queue: QueueId, from: Rv, bytes: usize) -> BoxFuture<'_, Result<History, Error>>;

    /// The retained part of a queue's journal as segments, oldest first. A segment has up to `bytes` bytes; a larger
    /// row is a segment by itself.
    fn segments(&self, queue: QueueId, bytes: u64) -> BoxFuture<'_, Result<Vec<Segment>, Error>>;

    /// The rows of series before a row, by hour and queue, the newest hour first and within an hour the largest id first: at most
    /// [`SERIES_ROWS_MAX`].
    fn series(&self, before: Option<(u32, QueueId)>) -> BoxFuture<'_, Result<Vec<SeriesRow>, Error>>;

    /// Frees what was kept so that rows of several queues share their texts, once the queues are loaded.
    fn forget_texts(&self) {}
}
