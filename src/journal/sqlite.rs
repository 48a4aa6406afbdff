//! The store in SQLite: one database in a folder of its own, with one server at a time.
//!
//! It is not where anything is cached or decided; rows go in and come out as they are. One connection
//! writes, one copies the WAL into the database beside it, up to four read.
//!
//! Invariant: what was acknowledged is in the files that the paths lead to. It is checked after every
//! commit and held against the mark at every start, because SQLite itself goes on with a file that was
//! moved away under it, and opens one that was put back to an older state like any other.

mod backup;
mod connect;
mod error;
mod files;
mod mark;
mod reader;
mod rows;
mod snapshot;
mod sql;
#[cfg(test)]
mod tests;
mod upkeep;
mod write;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row};

pub use self::backup::backup;
use self::error::{WAY_OUT, database};
use self::files::{Lock, Opened, Paths};
use self::mark::{Mark, Reached};
pub use self::reader::SqliteReader;
pub use self::snapshot::{Found, Link, Placed, Remark, Snapshot, plain};
use self::upkeep::Upkeep;
use super::store::{Error, Opening, QueueId, Size, Store, Writes};

/// How long a connection that failed may take to end before it counts as stuck.
const CLOSING_MAX: Duration = Duration::from_secs(10);

/// When a commit counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When it is on the disk: it outlasts a loss of power.
    Full,
    /// When the system has it: it outlasts the end of the process, but a loss of power may take the
    /// newest commits, in order.
    Normal,
}

impl Sync {
    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Normal => "normal",
        }
    }
}

/// The writer of a store in SQLite.
pub struct Sqlite {
    paths: Paths,
    sync: Sync,
    /// None between the end of those that failed and the opening of others.
    connections: Option<Connections>,
    /// Whether the last write is known to have come to a good end. Otherwise the connection may stand in
    /// the middle of a transaction, and more may still happen on it.
    is_sound: bool,
    /// Whether the failure was a want of room. That is told before anything is synced, so the disk holds
    /// what can be read; and to make sure of it by copying the WAL would take more room than there is.
    is_full: bool,
    /// What went wrong in an upkeep that nobody had asked for.
    untold: Option<Error>,
    /// Connections on their way to their end.
    closing: Option<BoxFuture<'static, ()>>,
    mark: Mark,
    opened: Opened,
    /// Last, so that it is given up last.
    _lock: Lock,
}

struct Connections {
    writer: SqliteConnection,
    upkeep: Upkeep,
}

impl Connections {
    async fn close(self) {
        // What was acknowledged is durable, and nothing else counts.
        let _ = self.writer.close().await;
        self.upkeep.close().await;
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("paths", &self.paths).field("sync", &self.sync).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens the store in a folder, makes it if there is none, and holds it until it is dropped. Nothing
    /// is changed before all checks have passed, so that files can be put back after a refusal; but what
    /// a start left half done is taken back.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds it; [`Error::Newer`]; [`Error::Damaged`] if the check of
    /// the database finds something, or less is there than was acknowledged; and [`Error::Full`] and
    /// [`Error::Failed`].
    pub async fn open(folder: &Path, sync: Sync) -> Result<(Self, Arc<SqliteReader>, Opening), Error> {
        let paths = Paths::new(folder)?;
        paths.make_folder()?;
        paths.expect_regular()?;
        let lock = Lock::take(&paths)?;
        paths.tighten()?;
        let boot = mark::boot_id();
        let mark = mark::read(&paths.mark)?;
        connect::roll_back(&paths).await?;
        let found = connect::inspect(&paths).await?;
        if let Some(mark) = mark {
            let here = found.map_or(Reached::default(), |found| found.reached);
            mark::hold_against(&paths.mark, &mark, here, &boot)?;
        }

        connect::create_if_missing(&paths)?;
        let mut writer = connect::writer(&paths, sync).await?;
        connect::migrate(&mut writer, found.is_none()).await?;
        let state = connect::state(&mut writer).await?;
        let mark = Mark::start(&paths.mark, state.reached, sync, boot)?;
        let upkeep = Upkeep::new(connect::writer(&paths, sync).await?);
        files::sync_folder(&paths.folder)?;
        let opened = Opened::remember(&paths)?;
        let reader = Arc::new(SqliteReader::new(paths.clone()));
        let connections = Some(Connections { writer, upkeep });
        let store = Self {
            paths,
            sync,
            connections,
            is_sound: true,
            is_full: false,
            untold: None,
            closing: None,
            mark,
            opened,
            _lock: lock,
        };
        Ok((store, reader, state.opening))
    }

    /// Closes what is open. Only then is the outcome of the last write settled: a connection that hangs
    /// in it may still come to its end, so nothing is opened beside it.
    async fn close_connections(&mut self) -> Result<(), Error> {
        if let Some(connections) = self.connections.take() {
            self.closing = Some(Box::pin(connections.close()));
        }
        if let Some(closing) = &mut self.closing {
            tokio::time::timeout(CLOSING_MAX, closing).await.map_err(|said| Error::Failed {
                doing: "end its last write: the disk does not answer".to_owned(),
                source: Some(said.into()),
            })?;
        }
        self.closing = None;
        Ok(())
    }

    /// Opens everything anew, as [`reopen`](Store::reopen) does.
    async fn open_again(&mut self) -> Result<(), Error> {
        self.is_sound = false;
        self.opened.check()?;
        self.opened.forget_wal(&self.paths);
        self.close_connections().await?;
        let mut writer = connect::writer(&self.paths, self.sync).await?;
        let reached = settle(&mut writer, self.mark.reached(), self.is_full).await?;
        self.mark.set(&self.paths.mark, reached)?;
        let upkeep = Upkeep::new(connect::writer(&self.paths, self.sync).await?);
        self.opened = Opened::remember(&self.paths)?;
        self.connections = Some(Connections { writer, upkeep });
        self.untold = None;
        self.is_sound = true;
        Ok(())
    }
}

impl Store for Sqlite {
    async fn write(&mut self, writes: Writes) -> Result<(), Error> {
        if writes.is_empty() {
            return Ok(());
        }
        write::check(&writes)?;
        let Some(connections) = self.connections.as_mut().filter(|_| self.is_sound) else {
            let doing = "write, because it did so before and was not opened again".to_owned();
            return Err(Error::Failed { doing, source: None });
        };
        let before = self.mark.reached();
        let row = writes.journal.iter().map(|row| row.id).fold(before.row, u64::max);
        let version = writes.queues.iter().map(|row| row.version).fold(before.version, u64::max);
        if connections.upkeep.note_bytes(write::bytes(&writes)) {
            // No commit fails for this; whoever asks for the upkeep next is told.
            let stepped = connections.upkeep.step(&self.paths, &mut connections.writer).await;
            self.untold = stepped.err().or(self.untold.take());
        }
        // Also for whoever drops this future: the write may or may not happen then.
        self.is_sound = false;
        let written = write::commit(&mut connections.writer, writes, row + 1).await;
        let written = written.map_err(|said| database("write", said));
        self.is_full = matches!(written, Err(Error::Full { .. }));
        written?;
        // Only now: the mark must not say more than is durable.
        self.mark.set(&self.paths.mark, Reached { row, version })?;
        self.opened.check()?;
        self.is_sound = true;
        Ok(())
    }

    async fn has_rows(&mut self, queue: QueueId) -> Result<bool, Error> {
        let doing = "look for rows of a queue";
        let Some(connections) = self.connections.as_mut().filter(|_| self.is_sound) else {
            return Err(Error::Failed { doing: doing.to_owned(), source: None });
        };
        write::has_rows(&mut connections.writer, queue).await.map_err(|said| database(doing, said))
    }

    async fn reopen(&mut self) -> Result<(), Error> {
        let opened = self.open_again().await;
        self.is_full &= matches!(opened, Ok(()) | Err(Error::Full { .. }));
        opened
    }

    async fn upkeep(&mut self) -> Result<Size, Error> {
        if let Some(untold) = self.untold.take() {
            return Err(untold);
        }
        match &mut self.connections {
            Some(Connections { writer, upkeep }) if self.is_sound => upkeep.step(&self.paths, writer).await,
            _ => Ok(Size { bytes: self.paths.bytes(), free: 0 }),
        }
    }

    async fn close(mut self) {
        let copies = self.is_sound;
        let _given_up = tokio::time::timeout(CLOSING_MAX, async {
            if let Some(closing) = self.closing.take() {
                closing.await;
            }
            if let Some(Connections { mut writer, upkeep }) = self.connections.take() {
                upkeep.close().await;
                if copies {
                    // What is left in the WAL is as durable there, and copied by the next who opens it.
                    let _ = copy_all(&mut writer).await;
                }
                let _ = writer.close().await;
            }
        })
        .await;
    }
}

/// Makes durable what can be read, and tells how far that goes. After a failed sync the system may show
/// more than the disk holds; copied into the database and synced anew, it is there, and the WAL starts
/// from nothing.
async fn settle(
    writer: &mut SqliteConnection,
    acknowledged: Reached,
    is_full: bool,
) -> Result<Reached, Error> {
    let here = connect::state(writer).await?.reached;
    if let Some(missing) = acknowledged.missing_at(here) {
        let found = format!("{missing} that were acknowledged are missing since the last write. {WAY_OUT}");
        return Err(Error::Damaged { found });
    }
    if !is_full {
        copy_all(writer).await?;
    }
    let probed = sqlx::query(sql::PROBE).execute(writer).await;
    probed.map_err(|said| database("write on trial", said))?;
    Ok(here)
}

/// Copies the whole WAL into the database.
async fn copy_all(writer: &mut SqliteConnection) -> Result<(), Error> {
    let failed = |said| database("copy the WAL into the database", said);
    let row = sqlx::query(sql::CHECKPOINT_ALL).fetch_one(writer).await.map_err(failed)?;
    if row.try_get_unchecked::<i64, usize>(0).map_err(failed)? != 0 {
        let doing = "copy the WAL into the database: someone reads in it, as a backup does".to_owned();
        return Err(Error::Failed { doing, source: None });
    }
    Ok(())
}
