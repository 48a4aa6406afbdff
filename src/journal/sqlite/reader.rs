//! Reads beside the writer, each on a connection of its own that can't write.
//!
//! Readers never wait for the writer nor it for them, but for as long as a statement runs, the WAL can't
//! be started over. So reads are pages, and each page is one short statement or two.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use sqlx::Connection;
use sqlx::sqlite::{Sqlite as Database, SqliteArguments, SqliteConnection, SqliteRow};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

use super::error::{WAY_OUT, database};
use super::files::Paths;
use super::write::{bound, key_id};
use super::{connect, rows, sql};
use crate::engine::delta::Rv;
use crate::engine::schedule::Slot;
use crate::journal::store::{
    Error, History, JournalRow, KeyRow, QueueId, QueueRow, Reader, Segment, TombstoneRow,
};

/// Most statements that read at once; others wait for their turn.
const LANES_MAX: usize = 4;

pub(super) type Query = sqlx::query::Query<'static, Database, SqliteArguments>;

/// Reads a store, whoever writes it.
pub struct SqliteReader(Arc<Lanes>);

/// The connections of a reader.
pub(super) struct Lanes {
    paths: Paths,
    places: Semaphore,
    /// Connections that nobody uses now. Invariant: at most [`LANES_MAX`] with those that are used.
    idle: Mutex<Vec<SqliteConnection>>,
    /// Whether it has one connection for good, because no other would see the same.
    is_snapshot: bool,
}

impl fmt::Debug for SqliteReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteReader").field("paths", &self.0.paths).finish_non_exhaustive()
    }
}

/// A connection for one reader. It goes back only if it served without an error: one that was left in
/// the middle of a statement is closed.
struct Lane<'a> {
    lanes: &'a Lanes,
    connection: SqliteConnection,
    _place: SemaphorePermit<'a>,
}

impl Lane<'_> {
    fn done(self) {
        self.lanes.put_back(self.connection);
    }
}

impl SqliteReader {
    /// Reads a store that was found to be good; connections are opened when they are needed.
    pub(super) fn new(paths: Paths) -> Self {
        Self::over(paths, LANES_MAX, Vec::new(), false)
    }

    /// Reads all on one connection, within its transaction.
    pub(super) fn snapshot(paths: Paths, connection: SqliteConnection) -> Self {
        Self::over(paths, 1, vec![connection], true)
    }

    fn over(paths: Paths, places: usize, idle: Vec<SqliteConnection>, is_snapshot: bool) -> Self {
        let (places, idle) = (Semaphore::new(places), Mutex::new(idle));
        Self(Arc::new(Lanes { paths, places, idle, is_snapshot }))
    }

    /// Waits until the connections that nobody uses are closed.
    pub(super) async fn close(self) {
        let idle = std::mem::take(&mut *self.0.idle());
        for connection in idle {
            // Reading is all it did.
            let _ = connection.close().await;
        }
    }

    /// Checks every page and every index, and tells what is wrong; nothing if all is well. It reads the
    /// whole file.
    pub(super) async fn integrity_check(&self) -> Result<Vec<String>, Error> {
        let mut lane = self.0.lane().await?;
        let found = connect::findings(&mut lane.connection, sql::INTEGRITY_CHECK).await;
        if found.is_ok() || self.0.is_snapshot {
            lane.done();
        }
        found
    }

    /// Rows of a query until `take` has enough and says false.
    pub(super) async fn some<K: Default>(
        &self,
        doing: &str,
        query: Query,
        take: impl FnMut(&mut K, SqliteRow) -> Result<bool, sqlx::Error>,
    ) -> Result<K, Error> {
        self.0.some(doing, query, take).await
    }
}

impl Lanes {
    fn idle(&self) -> MutexGuard<'_, Vec<SqliteConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_back(&self, connection: SqliteConnection) {
        self.idle().push(connection);
    }

    async fn lane(&self) -> Result<Lane<'_>, Error> {
        let failed = |said: tokio::sync::AcquireError| Error::Failed {
            doing: "read".to_owned(),
            source: Some(said.into()),
        };
        let place = self.places.acquire().await.map_err(failed)?;
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None if self.is_snapshot => {
                let doing = "read on: a statement before was left in its middle".to_owned();
                return Err(Error::Failed { doing, source: None });
            }
            None => connect::reader(&self.paths.database).await?,
        };
        Ok(Lane { lanes: self, connection, _place: place })
    }

    /// All rows of a query.
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

    /// Rows of a query until `take` has enough and says false.
    async fn some<K: Default>(
        &self,
        doing: &str,
        query: Query,
        mut take: impl FnMut(&mut K, SqliteRow) -> Result<bool, sqlx::Error>,
    ) -> Result<K, Error> {
        let failed = |said| match said {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Error::Damaged {
                found: format!("a value of another kind was found when it was to {doing}. {WAY_OUT}"),
            },
            said => database(doing, said),
        };
        let mut lane = self.lane().await?;
        let mut kept = K::default();
        let mut read = Ok(());
        {
            let mut stream = query.fetch(&mut lane.connection);
            while let Some(row) = stream.try_next().await.transpose() {
                match row.and_then(|row| take(&mut kept, row)) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(said) => {
                        read = Err(failed(said));
                        break;
                    }
                }
            }
        }
        if read.is_ok() || self.is_snapshot {
            lane.done();
        }
        read.map(|()| kept)
    }

    async fn read_journal(&self, queue: QueueId, after: Rv, bytes: usize) -> Result<Vec<JournalRow>, Error> {
        let query = sqlx::query(sql::MEASURE_JOURNAL).bind(queue.0).bind(bound(after));
        let range = self.some("measure the journal", query, |range: &mut Range, row| {
            let (first_rv, row_bytes) = rows::extent(&row)?;
            let fits = range.is_empty() || range.bytes.saturating_add(row_bytes) <= bytes as u64;
            if fits {
                range.add(first_rv, row_bytes);
            }
            Ok(fits)
        });
        let Some((first, last)) = range.await?.ends else { return Ok(Vec::new()) };
        let query = sqlx::query(sql::READ_JOURNAL).bind(queue.0).bind(bound(first)).bind(bound(last));
        self.all("read the journal", query, rows::journal_row).await
    }

    async fn read_history(&self, queue: QueueId, from: Rv, bytes: usize) -> Result<History, Error> {
        let query = sqlx::query(sql::MEASURE_HISTORY).bind(queue.0).bind(bound(from));
        let range = self.some("measure the journal", query, |range: &mut Range, row| {
            let (first_rv, row_bytes) = rows::extent(&row)?;
            range.has_more = range.rows >= 2 && range.bytes >= bytes as u64;
            if !range.has_more {
                range.add(first_rv, row_bytes);
            }
            Ok(!range.has_more)
        });
        let range = range.await?;
        let Some((newest, oldest)) = range.ends else { return Ok((Vec::new(), None)) };
        let query = sqlx::query(sql::READ_HISTORY).bind(queue.0).bind(bound(oldest)).bind(bound(newest));
        let rows = self.all("read the journal", query, rows::journal_row).await?;
        Ok((rows, range.has_more.then_some(oldest)))
    }

    async fn read_segments(&self, queue: QueueId, bytes: u64) -> Result<Vec<Segment>, Error> {
        let query = sqlx::query(sql::SEGMENTS).bind(queue.0);
        self.some("measure the journal", query, |segments: &mut Vec<Segment>, row| {
            let next = rows::stretch(&row)?;
            match segments.last_mut() {
                Some(last) if last.bytes.saturating_add(next.bytes) <= bytes => {
                    *last = Segment { bytes: last.bytes + next.bytes, ..next };
                }
                _ => segments.push(next),
            }
            Ok(true)
        })
        .await
    }
}

/// Rows of a queue's journal that lie together.
#[derive(Default)]
struct Range {
    /// The `first_rv` of the row that was seen first and of the one that was seen last.
    ends: Option<(Rv, Rv)>,
    rows: u64,
    /// Bytes of their events.
    bytes: u64,
    /// Whether there is at least one row behind.
    has_more: bool,
}

impl Range {
    fn is_empty(&self) -> bool {
        self.ends.is_none()
    }

    fn add(&mut self, first_rv: Rv, bytes: u64) {
        let (first, _) = self.ends.unwrap_or((first_rv, first_rv));
        self.ends = Some((first, first_rv));
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Reads a page from now on, while whoever wants it does something else.
fn ahead<T: Send + 'static>(
    doing: &'static str,
    page: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> BoxFuture<'static, Result<T, Error>> {
    #[expect(clippy::disallowed_methods, reason = "whoever waits for the page has the task")]
    let page = AbortOnDropHandle::new(tokio::spawn(page));
    Box::pin(async move {
        page.await.unwrap_or_else(|ended| {
            Err(Error::Failed { doing: doing.to_owned(), source: Some(ended.into()) })
        })
    })
}

impl Reader for SqliteReader {
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueRow>, Error>> {
        Box::pin(self.0.all("read the queues", sqlx::query(sql::READ_QUEUES), rows::queue_row))
    }

    fn tombstones(&self, queue: QueueId) -> BoxFuture<'_, Result<Vec<TombstoneRow>, Error>> {
        let query = sqlx::query(sql::READ_TOMBSTONES).bind(queue.0);
        Box::pin(self.0.all("read the tombstones", query, move |row| rows::tombstone(queue, row)))
    }

    fn keys(&self, queue: QueueId, slot: Slot, limit: usize) -> BoxFuture<'_, Result<Vec<KeyRow>, Error>> {
        let query = sqlx::query(sql::READ_KEYS).bind(key_id(queue, slot)).bind(key_id(queue, Slot::MAX));
        let query = query.bind(bound(limit as u64));
        let lanes = self.0.clone();
        ahead("read the keys", async move {
            lanes.all("read the keys", query, move |row| rows::key_row(queue, row)).await
        })
    }

    fn journal(
        &self,
        queue: QueueId,
        after: Rv,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<JournalRow>, Error>> {
        let lanes = self.0.clone();
        ahead("read the journal", async move { lanes.read_journal(queue, after, bytes).await })
    }

    fn history(&self, queue: QueueId, from: Rv, bytes: usize) -> BoxFuture<'_, Result<History, Error>> {
        Box::pin(self.0.read_history(queue, from, bytes))
    }

    fn segments(&self, queue: QueueId, bytes: u64) -> BoxFuture<'_, Result<Vec<Segment>, Error>> {
        Box::pin(self.0.read_segments(queue, bytes))
    }
}
