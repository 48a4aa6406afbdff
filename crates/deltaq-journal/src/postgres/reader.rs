//! Reads committed rows, either on its own connections to the writer's server or in one transaction.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::id::Rv;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::{MappedMutexGuard, MutexGuard, Semaphore};

use super::Settings;
use super::connect::{CONNECT_MAX, simple};
use super::error::{database, within};
use super::owner::Tenure;
use super::write::Query;
use super::{rows, sql};
use crate::pages::{JournalRange, add_to_segments, ahead};
use crate::shared_texts::SharedTexts;
use crate::store::{
    Error, History, JournalRow, PAGE_RUNS, QueueId, QueueRow, Reader, RunRow, SERIES_ROWS_MAX, Segment,
    SeriesRow, SharedText, bound,
};

/// Maximum number of concurrent read statements. Further statements wait.
const CONNECTIONS_MAX: usize = 4;
/// Timeout of a read.
const READ_MAX: Duration = Duration::from_mins(2);
/// Number of rows that are measured in the first step. Each further step measures four times as many.
const MEASURED_ROWS: i64 = 256;

/// Reads a partition while its writer works.
pub struct PostgresReader(Arc<Connections>);

/// The connections of a reader.
struct Connections {
    settings: Settings,
    partition: i16,
    source: Source,
    texts: SharedTexts,
}

enum Source {
    /// Connections that are opened on demand. Each statement sees the newest commits.
    Live(Live),
    /// One connection in one transaction. Every statement sees the same commits. `None` once it is closed.
    Snapshot(tokio::sync::Mutex<Option<PgConnection>>),
}

struct Live {
    permits: Semaphore,
    state: Mutex<Target>,
}

struct Target {
    /// The writer's host. Another host may be a standby that lags, or a primary that was replaced.
    host: usize,
    tenure: Tenure,
    /// An open connection that no read is using. It was opened in this tenure.
    idle: Option<PgConnection>,
}

impl fmt::Debug for PostgresReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresReader").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl PostgresReader {
    /// Reads from the writer's host. Connections are opened on demand.
    pub(super) fn new(settings: Settings, partition: i16, host: usize, tenure: Tenure) -> Self {
        let permits = Semaphore::new(CONNECTIONS_MAX);
        let state = Mutex::new(Target { host, tenure, idle: None });
        let source = Source::Live(Live { permits, state });
        Self(Arc::new(Connections { settings, partition, source, texts: SharedTexts::default() }))
    }

    /// Reads on one connection, within its transaction.
    pub(super) fn snapshot(settings: Settings, partition: i16, connection: PgConnection) -> Self {
        let source = Source::Snapshot(tokio::sync::Mutex::new(Some(connection)));
        Self(Arc::new(Connections { settings, partition, source, texts: SharedTexts::default() }))
    }

    /// The connection of a snapshot.
    pub(super) async fn held(&self) -> Result<MappedMutexGuard<'_, PgConnection>, Error> {
        match &self.0.source {
            Source::Snapshot(connection) => held(connection).await,
            Source::Live(_) => Err(not_open()),
        }
    }

    /// Moves with the writer to another connection, and possibly to another host.
    pub(super) fn move_to(&self, host: usize, tenure: Tenure) {
        if let Source::Live(live) = &self.0.source {
            *live.state.lock() = Target { host, tenure, idle: None };
        }
    }

    /// Closes the idle connection. Later reads of a live reader open new connections.
    pub async fn close(&self) {
        let unused = match &self.0.source {
            Source::Live(live) => live.state.lock().idle.take(),
            Source::Snapshot(connection) => connection.lock().await.take(),
        };
        if let Some(connection) = unused {
            // A connection that only reads has nothing to lose.
            let _ = connection.close().await;
        }
    }
}

async fn held(
    connection: &tokio::sync::Mutex<Option<PgConnection>>,
) -> Result<MappedMutexGuard<'_, PgConnection>, Error> {
    MutexGuard::try_map(connection.lock().await, Option::as_mut).map_err(|_closed| not_open())
}

fn not_open() -> Error {
    Error::Failed { doing: "read a snapshot that is not open".to_owned(), source: None }
}

impl Connections {
    /// Reads all rows of a query.
    async fn all<T>(
        &self,
        doing: &str,
        query: impl Fn() -> Query,
        read: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, Error> {
        self.fold(doing, query, |kept: &mut Vec<T>, row| {
            kept.push(read(&row)?);
            Ok(())
        })
        .await
    }

    /// Reads all rows of a query into a value.
    async fn fold<K: Default>(
        &self,
        doing: &str,
        query: impl Fn() -> Query,
        add: impl Fn(&mut K, PgRow) -> Result<(), sqlx::Error>,
    ) -> Result<K, Error> {
        let live = match &self.source {
            Source::Live(live) => live,
            Source::Snapshot(connection) => {
                return fold_in_transaction(&mut *held(connection).await?, doing, query, add).await;
            }
        };
        let Ok(_permit) = live.permits.acquire().await else {
            return Err(Error::Failed { doing: doing.to_owned(), source: None });
        };
        let (idle, tenure) = {
            let mut state = live.state.lock();
            (state.idle.take(), state.tenure)
        };
        if let Some(mut connection) = idle {
            // The database may have closed an idle connection. The read is then retried on a new connection.
            if let Ok(kept) = self.fold_on(&mut connection, doing, &query, &add).await {
                live.put_back(connection, &tenure);
                return Ok(kept);
            }
        }
        let (mut connection, tenure) = self.connect(live).await?;
        let kept = self.fold_on(&mut connection, doing, &query, &add).await?;
        live.put_back(connection, &tenure);
        Ok(kept)
    }

    async fn fold_on<K: Default>(
        &self,
        connection: &mut PgConnection,
        doing: &str,
        query: impl Fn() -> Query,
        add: impl Fn(&mut K, PgRow) -> Result<(), sqlx::Error>,
    ) -> Result<K, Error> {
        let prepares = self.settings.prepares;
        if !prepares {
            // A pooler must not change the connection between preparing the statement and running it.
            simple(connection, doing, sql::begin()).await?;
        }
        let read = async {
            let mut kept = K::default();
            let mut found = query().persistent(prepares).fetch(&mut *connection);
            while let Some(row) = found.try_next().await? {
                add(&mut kept, row)?;
            }
            Ok(kept)
        };
        let kept = within(READ_MAX, doing, read).await?;
        if !prepares {
            simple(connection, doing, "COMMIT").await?;
        }
        Ok(kept)
    }

    /// Opens a connection to the database of the writer.
    async fn connect(&self, live: &Live) -> Result<(PgConnection, Tenure), Error> {
        let (host, tenure) = {
            let state = live.state.lock();
            (state.host, state.tenure)
        };
        let doing = "open a connection that reads";
        let Some(options) = self.settings.hosts.get(host) else {
            return Err(Error::Failed { doing: doing.to_owned(), source: None });
        };
        let mut connection = within(CONNECT_MAX, doing, options.connect()).await?;
        let row = simple(&mut connection, doing, sql::reads(self.partition)).await?;
        let found = row.map(|row| Ok((rows::number(&row, 0)?, row.try_get(1)?, row.try_get(2)?))).transpose();
        let found = found.map_err(|error| database(doing, error))?;
        if found != Some((tenure.epoch.0, tenure.writer, false)) {
            let doing = "read: the database is not the one that the writer uses".to_owned();
            return Err(Error::Failed { doing, source: None });
        }
        Ok((connection, tenure))
    }

    fn query(&self, text: &'static str, queue: QueueId) -> Query {
        sqlx::query(text).bind(self.partition).bind(i64::from(queue.0))
    }

    /// Measures the rows of a page until `add` returns false. `first` finds the first rows, and `more` finds the rows
    /// after them.
    async fn measure(
        &self,
        queue: QueueId,
        [first, more]: [&'static str; 2],
        from: Rv,
        add: impl Fn(&mut JournalRange, Rv, u64) -> bool,
    ) -> Result<JournalRange, Error> {
        let (mut range, mut text, mut from, mut most) = (JournalRange::default(), first, from, MEASURED_ROWS);
        loop {
            let query = || self.query(text, queue).bind(bound(from)).bind(most);
            let found = self.all("measure the journal", query, rows::extent).await?;
            let is_end = !found.iter().all(|(prev_rv, bytes)| add(&mut range, *prev_rv, *bytes));
            match found.last() {
                Some((last, _)) if !is_end && bound(found.len() as u64) == most => from = *last,
                _ => return Ok(range),
            }
            (text, most) = (more, most.saturating_mul(4));
        }
    }

    /// Reads texts by their ids, which are separated by commas.
    async fn read_texts(&self, ids: String) -> Result<Vec<SharedText>, Error> {
        let ids: Vec<String> = ids.split(',').map(str::to_owned).collect();
        let query = || sqlx::query(sql::READ_TEXTS).bind(self.partition).bind(ids.clone());
        self.all("read texts", query, rows::shared_text).await
    }

    async fn read_runs(&self, queue: QueueId, numbers: Range<u64>) -> Result<Vec<RunRow>, Error> {
        let query = || {
            let query = self.query(sql::READ_RUNS, queue).bind(bound(numbers.start)).bind(bound(numbers.end));
            query.bind(bound(PAGE_RUNS as u64))
        };
        let read = || self.all("read the runs", query, rows::run_row);
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
        let texts = [sql::MEASURE_JOURNAL, sql::MEASURE_MORE_JOURNAL];
        let add = |range: &mut JournalRange, prev_rv, row_bytes| range.add_newer(prev_rv, row_bytes, bytes);
        let range = self.measure(queue, texts, after, add).await?;
        let Some((first, last)) = range.ends else { return Ok(Vec::new()) };
        let query = || self.query(sql::READ_JOURNAL, queue).bind(bound(first)).bind(bound(last));
        self.all("read the journal", query, rows::journal_row).await
    }

    async fn read_history(&self, queue: QueueId, from: Rv, bytes: usize) -> Result<History, Error> {
        let texts = [sql::MEASURE_HISTORY, sql::MEASURE_MORE_HISTORY];
        let add = |range: &mut JournalRange, prev_rv, row_bytes| range.add_older(prev_rv, row_bytes, bytes);
        let range = self.measure(queue, texts, from, add).await?;
        let Some((newest, oldest)) = range.ends else { return Ok((Vec::new(), None)) };
        let query = || self.query(sql::READ_HISTORY, queue).bind(bound(oldest)).bind(bound(newest));
        let read = || self.all("read the journal", query, rows::journal_row);
        let rows = self.texts.with_rows(read, |ids| self.read_texts(ids)).await?;
        let next = rows.last().filter(|_| range.has_more).map(|row| row.first_rv);
        Ok((rows, next))
    }
}

impl Live {
    /// Keeps one connection for the next read, unless the writer has reconnected in the meantime.
    fn put_back(&self, connection: PgConnection, tenure: &Tenure) {
        let mut state = self.state.lock();
        if state.tenure.epoch == tenure.epoch && state.idle.is_none() {
            state.idle = Some(connection);
        }
    }
}

/// Reads all rows of a query into a value, in a transaction that remains usable after an error. The table may be of
/// any size.
async fn fold_in_transaction<K: Default>(
    connection: &mut PgConnection,
    doing: &str,
    query: impl Fn() -> Query,
    add: impl Fn(&mut K, PgRow) -> Result<(), sqlx::Error>,
) -> Result<K, Error> {
    simple(connection, doing, sql::SAVEPOINT).await?;
    let read = async {
        let mut kept = K::default();
        let mut found = query().persistent(false).fetch(&mut *connection);
        while let Some(row) = found.try_next().await? {
            add(&mut kept, row)?;
        }
        Ok(kept)
    };
    let kept = read.await;
    simple(connection, doing, sql::ROLLBACK_TO_SAVEPOINT).await?;
    kept.map_err(|error| database(doing, error))
}

impl Reader for PostgresReader {
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueRow>, Error>> {
        let query = || sqlx::query(sql::READ_QUEUES).bind(self.0.partition);
        Box::pin(self.0.all("read the queues", query, rows::queue_row))
    }

    fn runs(&self, queue: QueueId, numbers: Range<u64>) -> BoxFuture<'_, Result<Vec<RunRow>, Error>> {
        let reader = self.0.clone();
        ahead("read the runs", async move { reader.read_runs(queue, numbers).await })
    }

    fn oldest_run(&self, queue: QueueId) -> BoxFuture<'_, Result<Option<u64>, Error>> {
        let query = move || self.0.query(sql::OLDEST_RUN, queue);
        Box::pin(self.0.fold("look for the oldest run", query, |oldest: &mut Option<u64>, row| {
            *oldest = rows::optional_number(&row, 0)?;
            Ok(())
        }))
    }

    fn journal(
        &self,
        queue: QueueId,
        after: Rv,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<JournalRow>, Error>> {
        let reader = self.0.clone();
        ahead("read the journal", async move { reader.read_journal(queue, after, bytes).await })
    }

    fn history(&self, queue: QueueId, from: Rv, bytes: usize) -> BoxFuture<'_, Result<History, Error>> {
        Box::pin(self.0.read_history(queue, from, bytes))
    }

    fn segments(&self, queue: QueueId, bytes: u64) -> BoxFuture<'_, Result<Vec<Segment>, Error>> {
        let query = move || self.0.query(sql::SEGMENTS, queue);
        Box::pin(self.0.fold("measure the journal", query, move |segments: &mut Vec<Segment>, row| {
            add_to_segments(segments, rows::segment(&row)?, bytes);
            Ok(())
        }))
    }

    fn series(&self, before: Option<(u32, QueueId)>) -> BoxFuture<'_, Result<Vec<SeriesRow>, Error>> {
        let (hour, queue): (i64, i64) =
            before.map_or((i64::MAX, 0), |(hour, queue)| (hour.into(), queue.0.into()));
        let query = move || {
            let query = sqlx::query(sql::READ_SERIES).bind(self.0.partition).bind(hour).bind(queue);
            query.bind(bound(SERIES_ROWS_MAX as u64))
        };
        Box::pin(self.0.all("read the series", query, rows::series_row))
    }

    fn forget_texts(&self) {
        self.0.texts.forget();
    }
}
