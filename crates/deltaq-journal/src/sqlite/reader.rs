//! Reads committed rows on read-only connections.
//!
//! Readers and the writer never wait for each other. However, the WAL can't start over while a statement is reading.
//! So reads are split into pages, and each page takes one or two short statements.

use deltaq_engine::id::Rv;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use sqlx::Connection as _;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    Sqlite as Database, SqliteArguments, SqliteConnection, SqlitePool, SqlitePoolOptions, SqliteRow,
};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::error::database;
use super::files::{FileIdentities, Paths};
use super::{connect, rows, sql};
use crate::pages::{JournalRange, add_to_segments, ahead};
use crate::shared_texts::SharedTexts;
use crate::store::{
    Error, History, JournalRow, PAGE_RUNS, QueueId, QueueRow, REMEDY, Reader, RunRow, SERIES_ROWS_MAX,
    Segment, SeriesRow, SharedText, bound,
};

/// Maximum number of concurrent read statements. Further statements wait.
const CONNECTIONS_MAX: u32 = 4;
/// Maximum time that a read waits for a connection. The time limit of its request is much shorter.
const ACQUIRE_MAX: Duration = Duration::from_hours(1);

pub(super) type Query = sqlx::query::Query<'static, Database, SqliteArguments>;

/// Reads a store while its writer works, or a snapshot of a store.
pub struct SqliteReader(Arc<ReadPool>);

/// The connections of a reader, and the texts that it has loaded.
struct ReadPool {
    source: Source,
    texts: SharedTexts,
}

enum Source {
    /// Connections that are opened on demand, and the database to which the path must then lead. Each statement sees the
    /// newest commits.
    Live(SqlitePool, FileIdentities),
    /// One connection in one transaction. Every statement sees the same commits. `None` once it is closed.
    Snapshot(Mutex<Option<SqliteConnection>>),
}

/// A connection that is in use.
enum Reading<'a> {
    Pooled(PoolConnection<Database>),
    Snapshot(MappedMutexGuard<'a, SqliteConnection>),
}

impl Deref for Reading<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        match self {
            Self::Pooled(connection) => connection,
            Self::Snapshot(connection) => connection,
        }
    }
}

impl DerefMut for Reading<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        match self {
            Self::Pooled(connection) => connection,
            Self::Snapshot(connection) => connection,
        }
    }
}

impl fmt::Debug for SqliteReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteReader").finish_non_exhaustive()
    }
}

impl SqliteReader {
    /// Reads a store that has already been checked. Connections are opened on demand.
    pub(super) fn new(paths: &Paths) -> Result<Self, Error> {
        let options = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(ACQUIRE_MAX)
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None);
        let pool = options.connect_lazy_with(connect::reading(&paths.database));
        let source = Source::Live(pool, FileIdentities::remember_database(paths)?);
        Ok(Self(Arc::new(ReadPool { source, texts: SharedTexts::default() })))
    }

    /// Reads on one connection, within its transaction.
    pub(super) fn snapshot(connection: SqliteConnection) -> Self {
        let source = Source::Snapshot(Mutex::new(Some(connection)));
        Self(Arc::new(ReadPool { source, texts: SharedTexts::default() }))
    }

    /// Closes all connections.
    pub(super) async fn close(self) {
        match &self.0.source {
            Source::Live(pool, _) => pool.close().await,
            Source::Snapshot(connection) => {
                if let Some(connection) = connection.lock().await.take() {
                    // A connection that only reads has nothing to lose.
                    let _ = connection.close().await;
                }
            }
        }
    }

    /// Checks every page and every index of the database. Returns the damage; empty for an intact database.
    pub(super) async fn integrity_check(&self) -> Result<Vec<String>, Error> {
        connect::findings(&mut *self.0.connection().await?, sql::INTEGRITY_CHECK).await
    }

    /// Reads rows of a query until `take` returns false.
    pub(super) async fn some<K: Default>(
        &self,
        doing: &str,
        query: Query,
        take: impl FnMut(&mut K, SqliteRow) -> Result<bool, sqlx::Error>,
    ) -> Result<K, Error> {
        self.0.some(doing, query, take).await
    }
}

impl ReadPool {
    async fn connection(&self) -> Result<Reading<'_>, Error> {
        match &self.source {
            Source::Live(pool, opened) => {
                if pool.num_idle() == 0 {
                    opened.check()?;
                }
                let connection = pool.acquire().await;
                connection
                    .map(Reading::Pooled)
                    .map_err(|error| database("open a connection that reads", error))
            }
            Source::Snapshot(connection) => {
                let connection = MutexGuard::try_map(connection.lock().await, Option::as_mut);
                connection.map(Reading::Snapshot).map_err(|_closed| Error::Failed {
                    doing: "read a snapshot that is closed".to_owned(),
                    source: None,
                })
            }
        }
    }

    /// Reads all rows of a query.
    async fn all<T>(
        &self,
        doing: &str,
        query: Query,
        read: impl Fn(&SqliteRow) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, Error> {
        self.some(doing, query, |kept: &mut Vec<T>, row| {
            kept.push(read(&row)?);
            Ok(true)
        })
        .await
    }

    /// Reads rows of a query until `take` returns false.
    async fn some<K: Default>(
        &self,
        doing: &str,
        query: Query,
        mut take: impl FnMut(&mut K, SqliteRow) -> Result<bool, sqlx::Error>,
    ) -> Result<K, Error> {
        let failed = |error| match error {
            sqlx::Error::ColumnDecode { source: error, .. } | sqlx::Error::Decode(error) => Error::Damaged {
                found: format!("it failed to {doing}: a value can't be read: {error}. {REMEDY}"),
            },
            error => database(doing, error),
        };
        let mut connection = self.connection().await?;
        let mut kept = K::default();
        let mut rows = query.fetch(&mut *connection);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            if !take(&mut kept, row).map_err(failed)? {
                break;
            }
        }
        drop(rows);
        Ok(kept)
    }

    /// Reads texts by their ids, which are separated by commas.
    async fn read_texts(&self, ids: String) -> Result<Vec<SharedText>, Error> {
        let ids = ids.split(',').collect::<serde_json::Value>().to_string();
        self.all("read texts", sqlx::query(sql::READ_TEXTS).bind(ids), rows::shared_text).await
    }

    async fn read_runs(&self, queue: QueueId, numbers: Range<u64>) -> Result<Vec<RunRow>, Error> {
        let read = || {
            let query = sqlx::query(sql::READ_RUNS).bind(queue.0);
            let query = query.bind(bound(numbers.start)).bind(bound(numbers.end));
            self.all("read the runs", query.bind(bound(PAGE_RUNS as u64)), rows::run_row)
        };
        self.texts.with_rows(read, |ids| self.read_texts(ids)).await
    }

    async fn read_journal(&self, queue: QueueId, after: Rv, bytes: usize) -> Result<Vec<JournalRow>, Error> {
        let read = || self.read_journal_rows(queue, after, bytes);
        self.texts.with_rows(read, |ids| self.read_texts(ids)).await
    }

    async fn read_journal_rows(
        &self,
        queue: QueueId,
        after: Rv,
        bytes: usize,
    ) -> Result<Vec<JournalRow>, Error> {
        let query = sqlx::query(sql::MEASURE_JOURNAL).bind(queue.0).bind(bound(after));
        let range = self.some("measure the journal", query, |range: &mut JournalRange, row| {
            let (prev_rv, row_bytes) = rows::extent(&row)?;
            Ok(range.add_newer(prev_rv, row_bytes, bytes))
        });
        let Some((first, last)) = range.await?.ends else { return Ok(Vec::new()) };
        let query = sqlx::query(sql::READ_JOURNAL).bind(queue.0).bind(bound(first)).bind(bound(last));
        self.all("read the journal", query, rows::journal_row).await
    }

    async fn read_history(&self, queue: QueueId, from: Rv, bytes: usize) -> Result<History, Error> {
        let query = sqlx::query(sql::MEASURE_HISTORY).bind(queue.0).bind(bound(from));
        let range = self.some("measure the journal", query, |range: &mut JournalRange, row| {
            let (prev_rv, row_bytes) = rows::extent(&row)?;
            Ok(range.add_older(prev_rv, row_bytes, bytes))
        });
        let range = range.await?;
        let Some((newest, oldest)) = range.ends else { return Ok((Vec::new(), None)) };
        let read = || {
            let query = sqlx::query(sql::READ_HISTORY).bind(queue.0).bind(bound(oldest)).bind(bound(newest));
            self.all("read the journal", query, rows::journal_row)
        };
        let rows = self.texts.with_rows(read, |ids| self.read_texts(ids)).await?;
        let next = rows.last().filter(|_| range.has_more).map(|row| row.first_rv);
        Ok((rows, next))
    }

    async fn read_segments(&self, queue: QueueId, bytes: u64) -> Result<Vec<Segment>, Error> {
        let query = sqlx::query(sql::SEGMENTS).bind(queue.0);
        self.some("measure the journal", query, |segments: &mut Vec<Segment>, row| {
            add_to_segments(segments, rows::segment(&row)?, bytes);
            Ok(true)
        })
        .await
    }
}

impl Reader for SqliteReader {
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueRow>, Error>> {
        Box::pin(self.0.all("read the queues", sqlx::query(sql::READ_QUEUES), rows::queue_row))
    }

    fn runs(&self, queue: QueueId, numbers: Range<u64>) -> BoxFuture<'_, Result<Vec<RunRow>, Error>> {
        let pool = self.0.clone();
        ahead("read the runs", async move { pool.read_runs(queue, numbers).await })
    }

    fn oldest_run(&self, queue: QueueId) -> BoxFuture<'_, Result<Option<u64>, Error>> {
        let query = sqlx::query(sql::OLDEST_RUN).bind(queue.0);
        Box::pin(self.0.some("look for the oldest run", query, |oldest: &mut Option<u64>, row| {
            *oldest = rows::optional_number(&row, 0)?;
            Ok(false)
        }))
    }

    fn journal(
        &self,
        queue: QueueId,
        after: Rv,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<JournalRow>, Error>> {
        let pool = self.0.clone();
        ahead("read the journal", async move { pool.read_journal(queue, after, bytes).await })
    }

    fn history(&self, queue: QueueId, from: Rv, bytes: usize) -> BoxFuture<'_, Result<History, Error>> {
        Box::pin(self.0.read_history(queue, from, bytes))
    }

    fn segments(&self, queue: QueueId, bytes: u64) -> BoxFuture<'_, Result<Vec<Segment>, Error>> {
        Box::pin(self.0.read_segments(queue, bytes))
    }

    fn series(&self, before: Option<(u32, QueueId)>) -> BoxFuture<'_, Result<Vec<SeriesRow>, Error>> {
        let (hour, queue): (i64, i64) =
            before.map_or((i64::MAX, 0), |(hour, queue)| (hour.into(), queue.0.into()));
        let query = sqlx::query(sql::READ_SERIES).bind(hour).bind(queue);
        let query = query.bind(bound(SERIES_ROWS_MAX as u64));
        Box::pin(self.0.all("read the series", query, rows::series_row))
    }

    fn forget_texts(&self) {
        self.0.texts.forget();
    }
}
