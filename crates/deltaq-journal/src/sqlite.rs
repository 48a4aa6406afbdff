//! The SQLite store: one database in its own folder, used by one server at a time.
//!
//! The store neither caches nor interprets rows. One connection writes, one copies the WAL into the database in the
//! background, and up to four read.
//!
//! Invariant: everything acknowledged is in the files at the store's paths. The store checks this after every commit
//! and compares the files with the high-water mark at every start. SQLite itself would keep writing to a file that
//! was moved away, and would open a file that was restored to an older state without an error.

mod backup;
mod connect;
mod error;
mod files;
mod mark;
mod reader;
mod rows;
mod snapshot;
mod sql;
mod sync;
#[cfg(test)]
mod tests;
mod texts;
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
use self::error::database;
use self::files::{FileIdentities, Folder, Lock, Paths};
use self::mark::{HighWaterMark, Reached};
pub use self::reader::SqliteReader;
pub use self::snapshot::SqliteSnapshot;
pub use self::sync::Sync;
use self::upkeep::Upkeep;
use self::write::Packed;
use super::store::{
    Epoch, Error, Opening, Position, QueueId, REMEDY, References, Referring, Size, Store, Writes,
};
use super::text_id::TextId;

/// Timeout for closing a failed connection. After this time, the connection counts as stuck.
const CLOSING_MAX: Duration = Duration::from_secs(10);

/// The writer of a SQLite store.
pub struct Sqlite {
    paths: Paths,
    sync: Sync,
    /// `None` after failed connections were closed and before new ones are open.
    connections: Option<Connections>,
    /// Whether the last write is known to have succeeded. Otherwise the connection may be inside a transaction that
    /// is still running.
    is_sound: bool,
    /// Whether the failure was a full disk. SQLite reports a full disk before it syncs, so everything that can be
    /// read is on the disk. Copying the WAL to be certain would need space that is not free.
    is_full: bool,
    /// An error of maintenance that ran during a write. The next call of `upkeep` returns it.
    upkeep_error: Option<Error>,
    /// Completes when the failed connections are closed.
    closing: Option<BoxFuture<'static, ()>>,
    epoch: Epoch,
    /// Whether an attempt to begin the next epoch failed with an unknown outcome.
    is_epoch_in_doubt: bool,
    mark: HighWaterMark,
    opened: FileIdentities,
    /// The last field, so that the lock is released last.
    _lock: Lock,
}

struct Connections {
    writer: SqliteConnection,
    upkeep: Upkeep,
}

impl Connections {
    async fn close(self) {
        // Everything acknowledged is durable already.
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
    /// Opens the store in a folder, creates it if it is missing, and locks it until it is dropped. Nothing is changed
    /// before all checks have passed, so that files can be restored after a refusal. The only exception is an
    /// interrupted creation, which is rolled back.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds it; [`Error::Newer`]; [`Error::Damaged`] if the database fails
    /// its check or lacks acknowledged rows; [`Error::Full`]; [`Error::Failed`].
    pub async fn open(folder: &Path, sync: Sync) -> Result<(Self, Arc<SqliteReader>, Opening), Error> {
        let paths = Paths::new(folder)?;
        paths.make_folder()?;
        paths.expect_regular()?;
        let folder = Folder::open(&paths.folder)?;
        let lock = Lock::take(&paths, &folder)?;
        paths.tighten()?;
        let boot = mark::boot_id();
        let mark = mark::read(&paths.mark)?;
        connect::roll_back(&paths).await?;
        let found = connect::inspect(&paths).await?;
        // A backup has no mark. The original store may have been used after the backup was taken, so its numbers must
        // not be reused, even if the store was closed at the time of the backup.
        let is_backup = mark.is_none() && found.is_some();
        if let Some(mark) = mark {
            let here = found.map_or(Reached::default(), |found| found.reached);
            mark::refuse_loss(&paths.mark, &mark, here, &boot)?;
        }

        connect::create_if_missing(&paths)?;
        let mut writer = connect::writer(&paths, sync).await?;
        connect::migrate(&mut writer, found.is_none()).await?;
        let mut state = connect::state(&mut writer).await?;
        state.opening.clean &= !is_backup;
        state.opening.epoch = connect::next_epoch(&mut writer, state.opening.epoch, false).await?;
        let mark = HighWaterMark::start(folder, state.reached, sync, boot)?;
        let upkeep = Upkeep::new(connect::writer(&paths, sync).await?);
        files::sync_folder(&paths.folder)?;
        let opened = FileIdentities::remember(&paths)?;
        let reader = Arc::new(SqliteReader::new(&paths)?);
        let connections = Some(Connections { writer, upkeep });
        let store = Self {
            paths,
            sync,
            connections,
            is_sound: true,
            is_full: false,
            upkeep_error: None,
            closing: None,
            epoch: state.opening.epoch,
            is_epoch_in_doubt: false,
            mark,
            opened,
            _lock: lock,
        };
        Ok((store, reader, state.opening))
    }

    /// The connection that writes, unless a write has failed.
    fn sound(&mut self, doing: &str) -> Result<&mut SqliteConnection, Error> {
        match self.connections.as_mut().filter(|_| self.is_sound) {
            Some(connections) => Ok(&mut connections.writer),
            None => Err(Error::Failed { doing: doing.to_owned(), source: None }),
        }
    }

    /// Closes the connections. The outcome of the last write is not settled until they are closed, because a
    /// connection that hangs in the write may still complete it. So no other connection is opened before.
    async fn close_connections(&mut self) -> Result<(), Error> {
        if let Some(connections) = self.connections.take() {
            self.closing = Some(Box::pin(connections.close()));
        }
        if let Some(closing) = &mut self.closing {
            tokio::time::timeout(CLOSING_MAX, closing).await.map_err(|error| Error::Failed {
                doing: "complete its last write: the disk does not respond".to_owned(),
                source: Some(error.into()),
            })?;
        }
        self.closing = None;
        Ok(())
    }

    /// Opens new connections, for [`reopen`](Store::reopen).
    async fn open_again(&mut self) -> Result<(), Error> {
        self.is_sound = false;
        self.opened.check()?;
        self.opened.forget_wal(&self.paths);
        self.close_connections().await?;
        let mut writer = connect::writer(&self.paths, self.sync).await?;
        // The path may lead to another database by now.
        self.opened.check()?;
        let reached = settle(&mut writer, self.mark.reached(), self.is_full).await?;
        let in_doubt = std::mem::replace(&mut self.is_epoch_in_doubt, true);
        match connect::next_epoch(&mut writer, self.epoch, in_doubt).await {
            Ok(epoch) => (self.epoch, self.is_epoch_in_doubt) = (epoch, false),
            Err(error) => {
                // Another process has the store. Its epoch must not be mistaken for the epoch of this attempt.
                self.is_epoch_in_doubt &= !matches!(error, Error::Fenced { .. });
                return Err(error);
            }
        }
        self.mark.set(reached)?;
        let upkeep = Upkeep::new(connect::writer(&self.paths, self.sync).await?);
        self.opened.remember_wal(&self.paths)?;
        self.connections = Some(Connections { writer, upkeep });
        self.upkeep_error = None;
        self.is_sound = true;
        Ok(())
    }
}

impl Store for Sqlite {
    async fn write(&mut self, writes: Writes) -> Result<(), Error> {
        if writes.is_empty() {
            return Ok(());
        }
        writes.check_numbers()?;
        let Some(connections) = self.connections.as_mut().filter(|_| self.is_sound) else {
            let doing = "write: an earlier write failed, and the store was not reopened".to_owned();
            return Err(Error::Failed { doing, source: None });
        };
        let before = self.mark.reached();
        let row = before.row + writes.journal.len() as u64;
        let version = writes.queues.iter().map(|row| row.version).fold(before.version, u64::max);
        let Connections { writer, upkeep } = connections;
        let packed = Packed::of(writes);
        // A maintenance failure does not fail the commit. The next call of `upkeep` returns the error.
        let copied = upkeep.before_write(packed.wal_bytes(), &self.paths, writer).await;
        self.upkeep_error = copied.err().or(self.upkeep_error.take());
        // If this future is dropped after this point, the outcome of the write is unknown.
        self.is_sound = false;
        let written = write::commit(writer, packed, before.row + 1).await;
        self.is_full = matches!(written, Err(Error::Full { .. }));
        written?;
        self.opened.check()?;
        // The mark is written after the commit, because it must never be ahead of the durable rows.
        self.mark.set(Reached { row, version })?;
        self.is_sound = true;
        Ok(())
    }

    async fn has_rows(&mut self, queue: QueueId) -> Result<bool, Error> {
        let doing = "look for rows of a queue";
        write::has_rows(self.sound(doing)?, queue).await.map_err(|error| database(doing, error))
    }

    async fn references(
        &mut self,
        table: Referring,
        after: Position,
        limit: u32,
    ) -> Result<References, Error> {
        let doing = "look for references to texts";
        let found = texts::references(self.sound(doing)?, table, after, limit).await;
        found.map_err(|error| database(doing, error))
    }

    async fn texts(&mut self, after: Option<TextId>, limit: u32) -> Result<Vec<(TextId, u64)>, Error> {
        let doing = "look for texts";
        texts::all(self.sound(doing)?, after, limit).await.map_err(|error| database(doing, error))
    }

    async fn reopen(&mut self) -> Result<Epoch, Error> {
        let opened = self.open_again().await;
        self.is_full &= matches!(opened, Ok(()) | Err(Error::Full { .. }));
        opened.map(|()| self.epoch)
    }

    async fn upkeep(&mut self) -> Result<Size, Error> {
        if let Some(error) = self.upkeep_error.take() {
            return Err(error);
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
                    // Rows that remain in the WAL are durable. The next start copies them.
                    let _ = copy_all(&mut writer).await;
                }
                let _ = writer.close().await;
            }
        })
        .await;
    }
}

/// Makes everything readable durable, and returns the last durable row and version. After a failed sync, the
/// operating system may return data that is not on the disk. Copying the WAL into the database and syncing the
/// database writes that data again.
async fn settle(
    writer: &mut SqliteConnection,
    acknowledged: Reached,
    is_full: bool,
) -> Result<Reached, Error> {
    let here = connect::state(writer).await?.reached;
    if let Some(missing) = acknowledged.missing_at(here) {
        let found = format!("{missing} that were acknowledged are missing since the last write. {REMEDY}");
        return Err(Error::Damaged { found });
    }
    if !is_full {
        copy_all(writer).await?;
    }
    let probed = sqlx::query(sql::PROBE).execute(writer).await;
    probed.map_err(|error| database("make a test write", error))?;
    Ok(here)
}

/// Copies the whole WAL into the database and truncates it.
async fn copy_all(writer: &mut SqliteConnection) -> Result<(), Error> {
    let failed = |error| database("copy the WAL into the database", error);
    let row = sqlx::query(sql::CHECKPOINT_ALL).fetch_one(writer).await.map_err(failed)?;
    if row.try_get_unchecked::<i64, usize>(0).map_err(failed)? != 0 {
        let doing =
            "copy the WAL into the database: another process reads from the WAL, for example a backup"
                .to_owned();
        return Err(Error::Failed { doing, source: None });
    }
    Ok(())
}
