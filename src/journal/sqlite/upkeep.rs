//! Bounds the files: copies the WAL into the database (a WAL checkpoint) and frees unused pages.
//!
//! A passive checkpoint runs on a connection of its own and does not block commits. But the WAL starts over only
//! when all of it is copied and no reader uses it, and under a steady load the passive checkpoint never quite
//! catches up. So when the WAL is large and little is left to copy, the writer runs a restart checkpoint between
//! two commits; the next commit then writes to the beginning of the WAL.
//!
//! If commits arrive faster than the disk can copy them, they have to wait in the end.
//!
//! A statement that reads for long (a backup) prevents the WAL from starting over. The WAL then grows until the
//! statement ends, and is truncated afterwards.

use std::fs;
use std::pin::Pin;
use std::task::Poll;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row};

use super::connect::PAGE_BYTES;
use super::error::database;
use super::files::Paths;
use super::{connect, sql};
use crate::journal::store::{Error, Size};

/// A passive checkpoint starts when this much of the WAL is not copied.
const COPY_BYTES: u64 = 8 << 20;
/// From this size on, the WAL should start over.
const RESTART_BYTES: u64 = 32 << 20;
/// The writer copies this much at most, which takes a few milliseconds.
const REST_BYTES_MAX: u64 = 2 << 20;
/// From this size on, the writer waits longer for readers.
const PATIENT_BYTES: u64 = 48 << 20;
/// From this size on, the writer copies any amount, because commits arrive faster than copies.
const HASTY_BYTES: u64 = 60 << 20;
/// A restart checkpoint that failed is repeated when the WAL has grown by this much.
const RETRY_BYTES: u64 = 4 << 20;
/// The writer runs a maintenance step whenever it has written about this much.
const STEP_BYTES: u64 = 4 << 20;
/// Up to this many free bytes are kept for later writes.
const FREE_BYTES_MIN: u64 = 16 << 20;

/// The connection and the result of its checkpoint.
type Copied = (SqliteConnection, Result<(), sqlx::Error>);
type Copying = Pin<Box<dyn Future<Output = Copied> + Send>>;

/// The connection for passive checkpoints.
enum Beside {
    Idle(SqliteConnection),
    Copying(Copying),
    /// A placeholder during a transition.
    Gone,
}

/// The sizes of the WAL and of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measure {
    /// Bytes of the WAL that are in use.
    wal: u64,
    /// Bytes among them that are copied.
    copied: u64,
    /// Free bytes of the database.
    free: u64,
    /// Bytes of the database.
    all: u64,
}

/// The next maintenance step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Run a passive checkpoint.
    Copy,
    /// Run a restart checkpoint on the writer's connection.
    Restart {
        /// Whether to wait longer for readers.
        patiently: bool,
    },
    /// Free unused pages.
    Shrink,
    Nothing,
}

/// The state of the maintenance.
pub(super) struct Upkeep {
    beside: Beside,
    free: u64,
    /// How much of the WAL was copied when the last passive checkpoint began.
    copied_before: u64,
    /// No checkpoint runs before the WAL has grown to this size, because readers block it.
    blocked_until: u64,
    /// An upper estimate of the bytes written to the WAL since the last step.
    written: u64,
}

impl Upkeep {
    /// Uses `connection` for passive checkpoints.
    pub(super) fn new(connection: SqliteConnection) -> Self {
        Self { beside: Beside::Idle(connection), free: 0, copied_before: 0, blocked_until: 0, written: 0 }
    }

    /// Counts bytes that are about to be written. Returns whether a step is due, so that the WAL stays bounded
    /// however rarely the writer is idle.
    pub(super) fn note_bytes(&mut self, bytes: u64) -> bool {
        self.written = self.written.saturating_add(bytes);
        self.written >= STEP_BYTES
    }

    /// Runs a step, if there is one to run.
    pub(super) async fn step(&mut self, paths: &Paths, writer: &mut SqliteConnection) -> Result<Size, Error> {
        self.written = 0;
        // The file is truncated when the WAL starts over, so its size bounds that of the WAL.
        if fs::metadata(&paths.wal).map_or(0, |file| file.len()) < HASTY_BYTES {
            self.collect().await?;
        } else {
            // Commits arrive faster than the disk can copy them, so they wait.
            self.collect_at_last().await?;
        }
        if let Beside::Idle(connection) = &mut self.beside {
            let now = measure(connection).await.map_err(|said| database("measure the database", said))?;
            self.free = now.free;
            if now.wal < RESTART_BYTES {
                self.blocked_until = 0;
            }
            match plan(now, self.blocked_until) {
                Step::Copy => self.copy(now).await?,
                Step::Restart { patiently } => {
                    let restarted = restart(writer, patiently).await;
                    restarted.map_err(|said| database("start the WAL over", said))?;
                    // If a reader has blocked it, a repetition would soon be blocked again. If it has succeeded,
                    // the next commit shows it.
                    self.blocked_until = now.wal + RETRY_BYTES;
                }
                Step::Shrink => {
                    let shrunk = sqlx::query(sql::VACUUM_STEP).execute(writer).await;
                    shrunk.map_err(|said| database("shrink the database", said))?;
                }
                Step::Nothing => {}
            }
        }
        Ok(Size { bytes: paths.bytes(), free: self.free })
    }

    /// Starts a passive checkpoint. The connection's thread runs it while this future is not polled.
    async fn copy(&mut self, now: Measure) -> Result<(), Error> {
        if now.copied > 0 && now.copied == self.copied_before {
            // A reader blocked the last checkpoint and would block this one too.
            self.blocked_until = now.wal + COPY_BYTES;
        }
        self.copied_before = now.copied;
        let Beside::Idle(mut connection) = std::mem::replace(&mut self.beside, Beside::Gone) else {
            return Ok(());
        };
        self.beside = Beside::Copying(Box::pin(async move {
            let copied = sqlx::query(sql::CHECKPOINT).execute(&mut connection).await;
            (connection, copied.map(drop))
        }));
        // The first poll sends the statement.
        self.collect().await
    }

    /// Checks whether the passive checkpoint has ended.
    async fn collect(&mut self) -> Result<(), Error> {
        let Beside::Copying(copying) = &mut self.beside else { return Ok(()) };
        let looked = std::future::poll_fn(|context| Poll::Ready(copying.as_mut().poll(context))).await;
        if let Poll::Ready(copied) = looked { self.copied(copied) } else { Ok(()) }
    }

    /// Waits until the passive checkpoint has ended.
    async fn collect_at_last(&mut self) -> Result<(), Error> {
        let Beside::Copying(copying) = &mut self.beside else { return Ok(()) };
        let copied = copying.await;
        self.copied(copied)
    }

    fn copied(&mut self, (connection, copied): Copied) -> Result<(), Error> {
        self.beside = Beside::Idle(connection);
        copied.map_err(|said| database("copy the WAL into the database", said))
    }

    /// Waits for the passive checkpoint and closes the connection.
    pub(super) async fn close(self) {
        let connection = match self.beside {
            Beside::Idle(connection) => connection,
            Beside::Copying(copying) => copying.await.0,
            Beside::Gone => return,
        };
        // The connection has nothing to lose.
        let _ = connection.close().await;
    }
}

fn plan(now: Measure, blocked_until: u64) -> Step {
    let Measure { wal, copied, free, all } = now;
    let rest = wal.saturating_sub(copied);
    if wal >= RESTART_BYTES && wal >= blocked_until && (rest <= REST_BYTES_MAX || wal >= HASTY_BYTES) {
        Step::Restart { patiently: wal >= PATIENT_BYTES }
    } else if wal >= blocked_until && (rest >= COPY_BYTES || (wal >= RESTART_BYTES && rest > 0)) {
        Step::Copy
    } else if free > FREE_BYTES_MIN.max(all / 8) {
        Step::Shrink
    } else {
        Step::Nothing
    }
}

async fn measure(connection: &mut SqliteConnection) -> Result<Measure, sqlx::Error> {
    let rows = sqlx::query(sql::MEASURE).fetch_all(connection).await?;
    let number = |row: usize, column: usize| {
        let row = rows.get(row).ok_or(sqlx::Error::RowNotFound)?;
        // The number is -1 while there is no WAL.
        row.try_get_unchecked::<i64, usize>(column).map(|number| u64::try_from(number).unwrap_or_default())
    };
    Ok(Measure {
        wal: number(0, 1)? * connect::FRAME_BYTES,
        copied: number(0, 2)? * connect::FRAME_BYTES,
        free: number(1, 0)? * PAGE_BYTES,
        all: number(2, 0)? * PAGE_BYTES,
    })
}

/// Copies the rest of the WAL, so that the next commit writes to its beginning, unless a reader blocks it.
async fn restart(writer: &mut SqliteConnection, patiently: bool) -> Result<(), sqlx::Error> {
    let text = if patiently { sql::RESTART_PATIENTLY } else { sql::RESTART };
    sqlx::query(text).execute(writer).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_plan_follows_from_the_sizes() {
        for (wal, copied, free, all, blocked_until, step) in [
            (0, 0, 0, 0, 0, Step::Nothing),
            (7, 0, 0, 100, 0, Step::Nothing),
            (8, 0, 0, 100, 0, Step::Copy),
            (20, 13, 0, 100, 0, Step::Nothing),
            (31, 31, 0, 100, 0, Step::Nothing),
            (32, 27, 0, 100, 0, Step::Copy),
            (32, 30, 0, 100, 0, Step::Restart { patiently: false }),
            (48, 47, 0, 100, 0, Step::Restart { patiently: true }),
            (48, 47, 0, 100, 56, Step::Nothing),
            (58, 10, 0, 100, 0, Step::Copy),
            (60, 10, 0, 100, 0, Step::Restart { patiently: true }),
            (60, 10, 0, 100, 68, Step::Nothing),
            (1, 0, 16, 20, 0, Step::Nothing),
            (1, 0, 17, 20, 0, Step::Shrink),
            (1, 0, 25, 200, 0, Step::Nothing),
            (1, 0, 26, 200, 0, Step::Shrink),
            (60, 10, 26, 200, 68, Step::Shrink),
        ] {
            let now = Measure { wal: wal * MIB, copied: copied * MIB, free: free * MIB, all: all * MIB };
            assert_eq!(plan(now, blocked_until * MIB), step, "{now:?} {blocked_until}");
        }
    }
}
