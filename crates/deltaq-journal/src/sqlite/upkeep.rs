//! Bounds the files: copies the WAL into the database (a WAL checkpoint) and frees unused pages.
//!
//! A passive checkpoint runs on its own connection while commits continue. Under a steady load it never quite catches
//! up, and the WAL starts over only when all of it is copied and no reader is using it. So when the WAL is long and
//! little of it is left to copy, the writer's connection runs a restart checkpoint between two commits. This
//! checkpoint copies the rest, and the next commit writes to the beginning of the WAL.
//!
//! If commits arrive faster than the disk copies them, they wait for the passive checkpoint. A long read statement,
//! such as a backup, prevents the WAL from starting over. The WAL then grows until the statement ends, and is
//! truncated afterwards.
//!
//! SQLite's own automatic checkpoint is not used, because it runs within a commit, which then takes as long as the
//! copy. Scheduling the copies from measured lengths, with nine limits, led to the same maximum size of the WAL with
//! twice the code.

use std::fs;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row};

use super::connect::{FRAME_BYTES, PAGE_BYTES};
use super::error::database;
use super::files::Paths;
use super::sql;
use crate::store::{Error, Size};

/// A passive checkpoint starts after this many bytes were written to the WAL. A larger value would leave more for the
/// writer to copy. A smaller value would copy frequently changed pages more often.
const COPY_BYTES: u64 = 8 << 20;
/// The length from which on the WAL should start over. A larger value takes more disk space. With a smaller value,
/// the WAL waits for readers more often.
const RESTART_BYTES: u64 = 32 << 20;
/// Maximum number of bytes that the writer copies unless the WAL is very long, which takes a few milliseconds. If a passive checkpoint leaves more,
/// another one starts at once, because it has less to copy and so leaves less.
const REST_BYTES_MAX: u64 = 1 << 20;
/// If the WAL's file is at least this long, commits wait for a running passive checkpoint, and for readers.
const WAIT_BYTES: u64 = 64 << 20;
/// The WAL of a store without writes is emptied after this many steps, which is about as many seconds.
const QUIET_STEPS: u32 = 10;
/// Up to this many free bytes are kept for later writes.
const FREE_BYTES_MIN: u64 = 16 << 20;

/// The length of the WAL after a passive checkpoint, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    wal: u64,
    /// Number of bytes that are not copied.
    rest: u64,
}

/// The connection for passive checkpoints.
enum Copier {
    Idle(SqliteConnection),
    Copying(BoxFuture<'static, (SqliteConnection, Result<Copied, sqlx::Error>)>),
    /// A placeholder during a transition.
    Taken,
}

/// The state of the maintenance.
pub(super) struct Upkeep {
    copier: Copier,
    /// An upper estimate of the bytes written to the WAL since the last passive checkpoint started.
    written: u64,
    /// Whether the WAL should start over. A reader may have prevented that so far.
    is_long: bool,
    /// Number of bytes that the last passive checkpoint did not copy.
    rest: u64,
    /// Whether the last passive checkpoint left too much to copy, but less than the one before it.
    catches_up: bool,
    /// Steps since the last write.
    quiet_steps: u32,
}

impl Upkeep {
    /// Uses `connection` for passive checkpoints.
    pub(super) fn new(connection: SqliteConnection) -> Self {
        Self {
            copier: Copier::Idle(connection),
            written: 0,
            is_long: false,
            rest: u64::MAX,
            catches_up: false,
            quiet_steps: 0,
        }
    }

    /// Copies the WAL as it grows. The writer calls this before it writes `bytes`, so that the WAL stays bounded even
    /// if the writer is never idle.
    pub(super) async fn before_write(
        &mut self,
        bytes: u64,
        paths: &Paths,
        writer: &mut SqliteConnection,
    ) -> Result<(), Error> {
        self.quiet_steps = 0;
        self.written = self.written.saturating_add(bytes);
        if self.written < COPY_BYTES && !self.catches_up {
            return Ok(());
        }
        // The file is truncated when the WAL starts over, so the size of the file limits the size of the WAL.
        let waits = fs::metadata(&paths.wal).map_or(0, |file| file.len()) >= WAIT_BYTES;
        self.finish_copy(waits, writer).await?;
        self.start_copy(writer).await
    }

    /// Runs a step of the maintenance that does not depend on writes, if one is due. Returns the size of the store.
    pub(super) async fn step(&mut self, paths: &Paths, writer: &mut SqliteConnection) -> Result<Size, Error> {
        self.finish_copy(false, writer).await?;
        self.quiet_steps = self.quiet_steps.saturating_add(1);
        if self.quiet_steps >= QUIET_STEPS {
            self.empty_wal(paths, writer).await?;
        } else if self.is_long {
            self.start_copy(writer).await?;
        }
        let (free, all) = pages(writer).await.map_err(|error| database("measure the database", error))?;
        if free > FREE_BYTES_MIN.max(all / 8) {
            let shrunk = sqlx::query(sql::VACUUM_STEP).execute(writer).await;
            shrunk.map_err(|error| database("shrink the database", error))?;
        }
        Ok(Size { bytes: paths.bytes(), free })
    }

    /// Makes the file of the WAL empty, once passive checkpoints have copied it. If a reader prevents that, the next step
    /// tries again.
    async fn empty_wal(&mut self, paths: &Paths, writer: &mut SqliteConnection) -> Result<(), Error> {
        let length = || fs::metadata(&paths.wal).map_or(0, |file| file.len());
        if length() == 0 || !matches!(self.copier, Copier::Idle(_)) {
            return Ok(());
        }
        if self.written > 0 || self.rest > REST_BYTES_MAX {
            return self.start_copy(writer).await;
        }
        checkpoint(writer, sql::EMPTY_WAL, "empty the WAL").await?;
        self.is_long &= length() > 0;
        Ok(())
    }

    /// Starts a passive checkpoint, unless one is running. The connection's thread runs it even while nothing polls
    /// it.
    async fn start_copy(&mut self, writer: &mut SqliteConnection) -> Result<(), Error> {
        self.copier = match std::mem::replace(&mut self.copier, Copier::Taken) {
            Copier::Idle(mut connection) => {
                self.written = 0;
                Copier::Copying(Box::pin(async move {
                    let copied = passive_checkpoint(&mut connection).await;
                    (connection, copied)
                }))
            }
            running => running,
        };
        // The first poll sends the statement.
        self.finish_copy(false, writer).await
    }

    /// If the passive checkpoint has ended, makes the WAL start over if it should.
    async fn finish_copy(&mut self, waits: bool, writer: &mut SqliteConnection) -> Result<(), Error> {
        let Copier::Copying(copying) = &mut self.copier else { return Ok(()) };
        let ended = if waits { Some(copying.await) } else { copying.now_or_never() };
        let Some((connection, copied)) = ended else { return Ok(()) };
        self.copier = Copier::Idle(connection);
        let copied = copied.map_err(|error| database("copy the WAL into the database", error))?;
        let was_long = std::mem::replace(&mut self.is_long, copied.wal >= RESTART_BYTES);
        let leaves_less = !was_long || copied.rest < self.rest;
        self.catches_up = self.is_long && copied.rest > REST_BYTES_MAX && leaves_less;
        self.rest = copied.rest;
        let (restart, rest_max) = if copied.wal < WAIT_BYTES {
            (sql::RESTART, REST_BYTES_MAX)
        } else {
            // Each of the writes may leave more than the usual maximum.
            (sql::RESTART_PATIENTLY, COPY_BYTES)
        };
        if self.is_long && copied.rest <= rest_max {
            // If readers block the restart, it is tried again after the next passive checkpoint.
            checkpoint(writer, restart, "start the WAL over").await?;
        }
        Ok(())
    }

    /// Waits for the passive checkpoint and closes the connection.
    pub(super) async fn close(self) {
        let connection = match self.copier {
            Copier::Idle(connection) => connection,
            Copier::Copying(copying) => copying.await.0,
            Copier::Taken => return,
        };
        // The connection has nothing to lose.
        let _ = connection.close().await;
    }
}

/// Runs a WAL checkpoint on the writer's connection, which has its usual timeout afterwards.
async fn checkpoint(writer: &mut SqliteConnection, text: &'static str, doing: &str) -> Result<(), Error> {
    let done = sqlx::query(text).execute(&mut *writer).await;
    let reset = sqlx::query(sql::USUAL_TIMEOUT).execute(writer).await;
    done.and(reset).map_err(|error| database(doing, error))?;
    Ok(())
}

async fn passive_checkpoint(connection: &mut SqliteConnection) -> Result<Copied, sqlx::Error> {
    let row = sqlx::query(sql::CHECKPOINT).fetch_one(connection).await?;
    // The numbers are -1 while there is no WAL.
    let frames =
        |column: usize| row.try_get_unchecked::<i64, _>(column).map(|frames| frames.max(0).cast_unsigned());
    let (wal, copied) = (frames(1)?, frames(2)?);
    Ok(Copied { wal: wal * FRAME_BYTES, rest: wal.saturating_sub(copied) * FRAME_BYTES })
}

/// The number of free bytes and the number of all bytes of the database.
async fn pages(connection: &mut SqliteConnection) -> Result<(u64, u64), sqlx::Error> {
    let row = sqlx::query(sql::PAGES).fetch_one(connection).await?;
    let bytes = |column: usize| {
        row.try_get_unchecked::<i64, _>(column).map(|pages| pages.cast_unsigned() * PAGE_BYTES)
    };
    Ok((bytes(0)?, bytes(1)?))
}
