//! Keeps the files from growing without bound: copies the WAL into the database, and gives pages back
//! that nobody uses.
//!
//! Copying goes on beside the writer, on a connection of its own, and doesn't hold commits up. But the WAL
//! starts over only when all of it is copied and nobody reads in it, and while commits keep coming the
//! copy never quite catches up. So when the WAL is large and little is left to copy, the writer copies
//! that little itself, between two commits; the next commit then writes at the front of the WAL again.
//!
//! Commits that come faster than the disk takes the copies have to wait for them in the end.
//!
//! A reader that stays within one statement for long (a backup) keeps the WAL from starting over. It then
//! grows, for as long as the reader stays, and is cut when it has started over.

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

/// From so much on, what the WAL has and the database hasn't is copied.
const COPY_BYTES: u64 = 8 << 20;
/// From so much on the WAL is to start over.
const RESTART_BYTES: u64 = 32 << 20;
/// So much may be left to copy for the writer: a few milliseconds.
const REST_BYTES_MAX: u64 = 2 << 20;
/// From so much on the writer waits longer for readers to leave the WAL.
const PATIENT_BYTES: u64 = 48 << 20;
/// From so much on the writer copies whatever is left, because commits come faster than copies.
const HASTY_BYTES: u64 = 60 << 20;
/// What did not start the WAL over is tried again when it has grown by so much.
const RETRY_BYTES: u64 = 4 << 20;
/// After a write of about so many bytes the writer itself takes a step.
const STEP_BYTES: u64 = 4 << 20;
/// Fewer free pages than this are kept for what comes.
const FREE_BYTES_MIN: u64 = 16 << 20;

/// The connection comes back with how it went.
type Copied = (SqliteConnection, Result<(), sqlx::Error>);
type Copying = Pin<Box<dyn Future<Output = Copied> + Send>>;

/// The connection beside the writer.
enum Beside {
    Idle(SqliteConnection),
    Copying(Copying),
    /// Only between two of the others.
    Gone,
}

/// How the WAL and the database are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measure {
    /// Bytes of the WAL that count.
    wal: u64,
    /// How many of them the database has.
    copied: u64,
    /// Bytes of the database that are free.
    free: u64,
    /// Bytes of the database.
    all: u64,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Copy beside the writer.
    Copy,
    /// Copy the rest on the writer's connection and start the WAL over.
    Restart {
        /// Whether to wait longer for readers.
        patiently: bool,
    },
    /// Give pages back.
    Shrink,
    Nothing,
}

/// What the upkeep knows from one call to the next.
pub(super) struct Upkeep {
    beside: Beside,
    free: u64,
    /// How much of the WAL was copied when the last copy began.
    copied_before: u64,
    /// What could be done about the WAL is done: there is nothing more before it has grown to this.
    blocked_until: u64,
    /// About how many bytes the WAL took since the last step; rather too many.
    written: u64,
}

impl Upkeep {
    /// Starts with a connection that can write.
    pub(super) fn new(connection: SqliteConnection) -> Self {
        Self { beside: Beside::Idle(connection), free: 0, copied_before: 0, blocked_until: 0, written: 0 }
    }

    /// Notes that so many bytes are to be written; tells whether a step is due: however seldom the upkeep is asked
    /// for, the WAL stays bounded.
    pub(super) fn note_bytes(&mut self, bytes: u64) -> bool {
        self.written = self.written.saturating_add(bytes);
        self.written >= STEP_BYTES
    }

    /// Takes a step, if there is one to take.
    pub(super) async fn step(&mut self, paths: &Paths, writer: &mut SqliteConnection) -> Result<Size, Error> {
        self.written = 0;
        // The file is cut when the WAL starts over, so it is this large only while the WAL is.
        if fs::metadata(&paths.wal).map_or(0, |file| file.len()) < HASTY_BYTES {
            self.collect().await?;
        } else {
            // Commits come faster than the disk takes them: they wait for it.
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
                    // If it came to nothing, because of a reader, it won't soon come to anything; and if
                    // it did, it shows with the next commit, whenever that comes.
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

    /// Begins to copy what the WAL has. SQLite's thread goes on with it while nobody asks.
    async fn copy(&mut self, now: Measure) -> Result<(), Error> {
        if now.copied > 0 && now.copied == self.copied_before {
            // The last copy got nowhere, because of a reader: this one wouldn't either.
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
        // The first look sends the statement off.
        self.collect().await
    }

    /// Looks whether a copy has come to its end.
    async fn collect(&mut self) -> Result<(), Error> {
        let Beside::Copying(copying) = &mut self.beside else { return Ok(()) };
        let looked = std::future::poll_fn(|context| Poll::Ready(copying.as_mut().poll(context))).await;
        if let Poll::Ready(copied) = looked { self.copied(copied) } else { Ok(()) }
    }

    /// Waits until a copy has come to its end.
    async fn collect_at_last(&mut self) -> Result<(), Error> {
        let Beside::Copying(copying) = &mut self.beside else { return Ok(()) };
        let copied = copying.await;
        self.copied(copied)
    }

    fn copied(&mut self, (connection, copied): Copied) -> Result<(), Error> {
        self.beside = Beside::Idle(connection);
        copied.map_err(|said| database("copy the WAL into the database", said))
    }

    /// Waits for what is under way, and closes the connection.
    pub(super) async fn close(self) {
        let connection = match self.beside {
            Beside::Idle(connection) => connection,
            Beside::Copying(copying) => copying.await.0,
            Beside::Gone => return,
        };
        // It has nothing that could be lost.
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
        // It is -1 while there is no WAL.
        row.try_get_unchecked::<i64, usize>(column).map(|number| u64::try_from(number).unwrap_or_default())
    };
    Ok(Measure {
        wal: number(0, 1)? * connect::FRAME_BYTES,
        copied: number(0, 2)? * connect::FRAME_BYTES,
        free: number(1, 0)? * PAGE_BYTES,
        all: number(2, 0)? * PAGE_BYTES,
    })
}

/// Copies the rest of the WAL and lets the next commit write at its front, unless a reader is in the way.
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
