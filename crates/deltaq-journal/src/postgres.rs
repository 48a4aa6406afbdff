//! The PostgreSQL store: a partition of a database, used by one writer at a time.
//!
//! The store neither caches nor interprets rows. One connection writes, and up to four read.
//!
//! Invariant: a writer whose epoch has ended writes nothing. Every write locks the row of the partition and finds the
//! writer's own epoch in it, within the transaction that it commits. Beginning an epoch updates that row, so it waits
//! until all transactions that have locked the row have ended.
//!
//! No session has state between two transactions, so connections may go through a pooler.

mod acknowledged;
mod connect;
mod error;
mod migrate;
mod nodes;
mod owner;
mod reader;
mod rows;
mod settings;
mod snapshot;
mod split;
mod sql;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection as _, Row as _};

use self::acknowledged::{Acknowledged, Pending};
use self::connect::simple;
pub use self::connect::{Protection, away, is_broken};
use self::error::database;
pub use self::nodes::{Condition, Found, Join, Membership, Node};
use self::owner::Tenure;
pub use self::owner::{Member, Report, TTL};
pub use self::reader::PostgresReader;
pub use self::settings::{InvalidUrl, Settings};
pub use self::snapshot::PostgresSnapshot;
use self::write::Session;
use super::store::{Epoch, Error, Opening, Position, QueueId, References, Referring, Size, Store, Writes};
use super::text_id::TextId;

/// Timeout of a write. The outcome of a write that takes longer is unknown. The timeout is shorter than the time for which a node
/// answers after its last heartbeat, so if the database no longer answers, the log names the database as the cause.
const WRITE_MAX: Duration = Duration::from_secs(7);
/// Timeout for closing connections.
const CLOSING_MAX: Duration = Duration::from_secs(2);

/// The writer of a partition.
pub struct Postgres {
    settings: Settings,
    partition: i16,
    /// `None` after a failure: the connection may be within a transaction that is still running.
    connection: Option<PgConnection>,
    /// The index of the host that the connection uses.
    host: usize,
    tenure: Tenure,
    /// Whether the last failure was a full disk.
    is_full: bool,
    acknowledged: Acknowledged,
    reader: Arc<PostgresReader>,
    /// Whether the partition was claimed and must therefore be released.
    is_claimed: bool,
    protection: Protection,
}

/// A partition that was just opened.
pub type Opened = (Postgres, Arc<PostgresReader>, Opening);

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("settings", &self.settings)
            .field("partition", &self.partition)
            .field("tenure", &self.tenure)
            .finish_non_exhaustive()
    }
}

impl Postgres {
    /// Opens a partition, and creates the tables and the partition if they are missing. If another writer has the
    /// partition open, that writer loses it, and its next write fails with [`Error::Fenced`].
    ///
    /// # Errors
    /// [`Error::Newer`]; [`Error::Full`]; [`Error::Damaged`]; [`Error::Failed`] if no host of the settings can be reached and
    /// accepts writes, or if nodes share the database.
    pub async fn open(settings: Settings, partition: i16) -> Result<Opened, Error> {
        let (mut connection, host) = connect::writable(&settings, 0).await?;
        migrate::migrate(&mut connection, settings.name()).await?;
        connect::check_alone(&mut connection, settings.name()).await?;
        let protection = connect::protection(&mut connection).await?;
        let (tenure, opening) = connect::first_epoch(&mut connection, partition).await?;
        let parts = Parts { settings, partition, connection, host, tenure, protection };
        Ok(parts.open(opening, false))
    }

    /// Like [`open`](Self::open), for a node: returns `None` if another node owns the partition. Closing the store releases the
    /// partition.
    ///
    /// # Errors
    /// Same as [`open`](Self::open).
    pub async fn claim(settings: Settings, partition: i16, member: &Member) -> Result<Option<Opened>, Error> {
        let (mut connection, host) = connect::writable(&settings, 0).await?;
        let protection = connect::protection(&mut connection).await?;
        let claimed = connect::claim(&mut connection, partition, member).await?;
        Ok(claimed.map(|(tenure, opening)| {
            Parts { settings, partition, connection, host, tenure, protection }.open(opening, true)
        }))
    }

    /// Splits a closed store that has one partition into `partitions` partitions, for at most as many nodes. Each
    /// queue is moved to the partition that `partition_of` returns for its name.
    ///
    /// # Errors
    /// The store already has several partitions, a server uses it, or the database has failed. Nothing has changed.
    pub async fn split(
        settings: &Settings,
        partitions: i16,
        partition_of: impl Fn(&str) -> i16,
    ) -> Result<(), Error> {
        split::split(settings, partitions, partition_of).await
    }

    /// What an acknowledged commit survives.
    #[must_use]
    pub fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Takes the connection for an operation that leaves it in an unknown state if it fails.
    fn take(&mut self, doing: &str) -> Result<PgConnection, Error> {
        self.connection.take().ok_or_else(|| Error::Failed {
            doing: format!("{doing}: an earlier write failed, and the store was not reopened"),
            source: None,
        })
    }

    /// Reads rows on the writer's connection. A query that the database refuses, or that takes too long, does not cost the connection.
    async fn list<T>(
        &mut self,
        doing: &str,
        query: String,
        read: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, Error> {
        let mut connection = self.take(doing)?;
        let found = connect::answered_rows(&mut connection, doing, sql::limited(&query)).await?;
        if let Ok(_) | Err(sqlx::Error::Database(_)) = &found {
            self.connection = Some(connection);
        }
        let read = |found: Vec<PgRow>| found.iter().map(read).collect::<Result<_, _>>();
        found.and_then(read).map_err(|error| database(doing, error))
    }

    /// The connection, its host and the epoch that begins with it.
    async fn open_again(&self) -> Result<(PgConnection, usize, Tenure), Error> {
        let (mut connection, host) = connect::writable(&self.settings, self.host).await?;
        let tenure = connect::next_epoch(&mut connection, self.partition, &self.tenure).await?;
        self.acknowledged.check(&mut connection, self.partition).await?;
        if self.is_full {
            simple(&mut connection, "make a test write", sql::take_room(self.partition)).await?;
            simple(&mut connection, "make a test write", sql::free_room(self.partition)).await?;
        }
        Ok((connection, host, tenure))
    }
}

/// The parts of a store that is being opened.
struct Parts {
    settings: Settings,
    partition: i16,
    connection: PgConnection,
    host: usize,
    tenure: Tenure,
    protection: Protection,
}

impl Parts {
    fn open(self, opening: Opening, is_claimed: bool) -> Opened {
        let Self { settings, partition, connection, host, tenure, protection } = self;
        if !opening.clean {
            tracing::info!(
                database = settings.name(),
                partition,
                epoch = tenure.epoch.0,
                "the partition was not closed; a server that still has it open ends with its next write"
            );
        }
        let reader = Arc::new(PostgresReader::new(settings.clone(), partition, host, tenure));
        let store = Postgres {
            settings,
            partition,
            connection: Some(connection),
            host,
            tenure,
            is_full: false,
            acknowledged: Acknowledged::default(),
            reader: reader.clone(),
            is_claimed,
            protection,
        };
        (store, reader, opening)
    }
}

impl Store for Postgres {
    async fn write(&mut self, writes: Writes) -> Result<(), Error> {
        if writes.is_empty() {
            return Ok(());
        }
        writes.check_numbers()?;
        // If this future is dropped after this point, the outcome of the write is unknown.
        let mut connection = self.take("write")?;
        let pending = Pending::of(&writes);
        let (partition, tenure, prepares) = (self.partition, self.tenure, self.settings.prepares);
        let mut session = Session { connection: &mut connection, partition, tenure, prepares };
        let written = tokio::time::timeout(WRITE_MAX, session.commit(writes)).await;
        let written = written.unwrap_or_else(|elapsed| {
            let doing = format!("write: the database did not respond within {} s", WRITE_MAX.as_secs());
            Err(Error::Failed { doing, source: Some(elapsed.into()) })
        });
        self.is_full = matches!(written, Err(Error::Full { .. }));
        written?;
        self.acknowledged.record(pending);
        self.connection = Some(connection);
        Ok(())
    }

    async fn has_rows(&mut self, queue: QueueId) -> Result<bool, Error> {
        let query = sql::has_rows(self.partition, queue);
        let found = self.list("look for rows of a queue", query, |row| row.try_get::<bool, _>(0)).await?;
        Ok(found.contains(&true))
    }

    async fn references(
        &mut self,
        table: Referring,
        after: Position,
        limit: u32,
    ) -> Result<References, Error> {
        let table = match table {
            Referring::Journal => ("journal", "prev_rv"),
            Referring::Runs => ("runs", "number"),
        };
        let query = sql::references(self.partition, table, after, limit);
        self.list("look for references to texts", query, rows::reference).await
    }

    async fn texts(&mut self, after: Option<TextId>, limit: u32) -> Result<Vec<(TextId, u64)>, Error> {
        self.list("look for texts", sql::list_texts(self.partition, after, limit), rows::text_size).await
    }

    async fn reopen(&mut self) -> Result<Epoch, Error> {
        self.connection = None;
        let opened = self.open_again().await;
        self.is_full &= matches!(opened, Ok(_) | Err(Error::Full { .. }));
        let (connection, host, tenure) = opened?;
        self.reader.move_to(host, tenure);
        (self.connection, self.host, self.tenure) = (Some(connection), host, tenure);
        Ok(tenure.epoch)
    }

    async fn upkeep(&mut self) -> Result<Size, Error> {
        let doing = "measure the database";
        let mut connection = self.take(doing)?;
        let row = simple(&mut connection, doing, sql::upkeep(self.partition)).await?;
        let signed = |row, column| Ok::<_, sqlx::Error>(rows::number(row, column)?.cast_signed());
        let read = |row| {
            Ok(((Epoch(rows::number(row, 0)?), signed(row, 1)?, signed(row, 2)?), rows::number(row, 3)?))
        };
        let found = row.as_ref().map(read).transpose().map_err(|error| database(doing, error))?;
        match found {
            Some((owner, bytes)) if owner == (self.tenure.epoch, self.tenure.writer, self.tenure.server) => {
                self.connection = Some(connection);
                Ok(Size { bytes, free: 0 })
            }
            _ => {
                Err(connect::refused(&mut connection, self.partition, &self.tenure, self.tenure.epoch).await)
            }
        }
    }

    async fn close(mut self) {
        let _given_up = tokio::time::timeout(CLOSING_MAX, async {
            if let Some(mut connection) = self.connection.take() {
                if self.is_claimed {
                    // If this fails, other nodes must wait until this node is removed.
                    let _ =
                        simple(&mut connection, "release", sql::release(self.partition, &self.tenure)).await;
                }
                // Everything acknowledged is already durable.
                let _ = connection.close().await;
            }
            self.reader.close().await;
        })
        .await;
    }
}
