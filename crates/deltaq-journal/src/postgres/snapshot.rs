//! A snapshot of a PostgreSQL store. All rows are read on one connection, in one read-only transaction.
//!
//! A server can continue to use the store. The host may be a standby.

use std::fmt;

use deltaq_runtime::causes::with_causes;
use futures_util::TryStreamExt as _;
use futures_util::future::LocalBoxFuture;
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use super::connect::{self, simple};
use super::error::database;
use super::reader::PostgresReader;
use super::{Settings, migrate, rows, sql};
use crate::snapshot::{Finding, Found, Link, Placed, Snapshot, Visiting, Visitor};
use crate::store::{Error, Holder, Opening, QueueId, QueueRow, Reader, RunRow, SharedText};

/// A store at one instant.
pub struct PostgresSnapshot {
    reader: PostgresReader,
    partition: i16,
    opening: Opening,
}

impl fmt::Debug for PostgresSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSnapshot").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl PostgresSnapshot {
    /// Opens a snapshot of a partition; `None` if the database has no such partition.
    ///
    /// # Errors
    /// [`Error::Newer`]; [`Error::Damaged`] if nothing can be read; [`Error::Failed`].
    pub async fn take(settings: &Settings, partition: i16) -> Result<Option<Self>, Error> {
        let mut connection = connect::any(settings).await?;
        simple(&mut connection, "begin to read", sql::BEGIN_SNAPSHOT).await?;
        if migrate::version(&mut connection, settings.name()).await? == 0 {
            return Ok(None);
        }
        let Some(opening) = connect::state(&mut connection, partition).await? else { return Ok(None) };
        let reader = PostgresReader::snapshot(settings.clone(), partition, connection);
        Ok(Some(Self { reader, partition, opening }))
    }

    /// The indexes that are missing or unusable.
    async fn indexes(&self, connection: &mut PgConnection) -> Result<Vec<String>, Error> {
        let failed = |error| database("read the indexes", error);
        let found =
            sqlx::query(sql::INDEXES).persistent(false).fetch_all(connection).await.map_err(failed)?;
        let read = |row: &PgRow| Ok((row.try_get::<String, _>(0)?, row.try_get::<bool, _>(1)?));
        let found: Vec<_> = found.iter().map(read).collect::<Result<_, _>>().map_err(failed)?;
        let expected = sql::INDEX_NAMES.iter();
        let missing = expected.filter_map(|name| match found.iter().find(|(other, _)| other == name) {
            None => Some(format!("index {name} is missing")),
            Some((_, false)) => Some(format!("index {name} is invalid: REINDEX INDEX deltaq.{name}")),
            Some((_, true)) => None,
        });
        Ok(missing.collect())
    }

    /// Compares the rows of each table with the entries of its index.
    async fn counts(&self, connection: &mut PgConnection) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for (table, text) in sql::COUNTS {
            let mut counts = [0_i64; 2];
            for (count, ways) in counts.iter_mut().zip([sql::WITHOUT_INDEXES, sql::BY_INDEXES]) {
                let begin = format!("{}; {ways}", sql::SAVEPOINT);
                simple(connection, "count rows", begin).await?;
                let query = sqlx::query_scalar(text).bind(self.partition).persistent(false);
                let counted = query.fetch_one(&mut *connection).await;
                simple(connection, "count rows", sql::ROLLBACK_TO_SAVEPOINT).await?;
                *count =
                    counted.map_err(|error| database(format!("count the rows of table {table}"), error))?;
            }
            let [rows, entries] = counts;
            if rows != entries {
                found.push(format!("table {table}: it has {rows} rows, and its index finds {entries}: REINDEX TABLE deltaq.{table}"));
            }
        }
        Ok(found)
    }

    /// Visits all rows of a table without using its indexes, which may be damaged. The row's id is in column
    /// `columns`, and its queue in column `queue`.
    async fn scan<T>(
        &self,
        (table, text): (&str, &'static str),
        queue: Option<usize>,
        read: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
        mut visit: impl FnMut(Found<T>),
    ) -> Result<(), Error> {
        let doing = format!("read table {table}");
        let mut connection = self.reader.held().await?;
        simple(&mut connection, &doing, format!("{}; {}", sql::SAVEPOINT, sql::WITHOUT_INDEXES)).await?;
        let scanned = async {
            let mut found = sqlx::query(text).bind(self.partition).persistent(false).fetch(&mut *connection);
            while let Some(row) = found.try_next().await? {
                let id = row.try_get(row.len() - 1)?;
                let queue = queue.and_then(|queue| rows::queue(&row, queue).ok());
                visit(Found { id, queue, row: read(&row).map_err(|error| unreadable(&error)) });
            }
            Ok(())
        };
        let scanned: Result<(), sqlx::Error> = scanned.await;
        // After an error, the transaction accepts no further statements.
        simple(&mut connection, &doing, sql::ROLLBACK_TO_SAVEPOINT).await?;
        scanned.map_err(|error| database(doing, error))
    }
}

impl Snapshot for PostgresSnapshot {
    /// A server's session has no mark that every database user can see.
    fn server(&self) -> Option<Holder> {
        None
    }

    /// A server does not prevent a consistent snapshot.
    fn refuse_server(&self) -> Result<(), Error> {
        Ok(())
    }

    fn place(&self, table: &str, id: i64) -> String {
        format!("table {table}, ctid ({},{})", id >> 16, id & 0xffff)
    }

    fn opening(&self) -> Option<&Opening> {
        Some(&self.opening)
    }

    fn reader(&self) -> &dyn Reader {
        &self.reader
    }

    fn findings(&self) -> Vec<Finding> {
        if self.opening.clean {
            return Vec::new();
        }
        let text = "the store is not closed: a server uses it, or the server was killed and its next start replays the journal";
        vec![Finding::Note(text.to_owned())]
    }

    fn integrity(&self) -> LocalBoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let mut connection = match self.reader.held().await {
                Ok(connection) => connection,
                Err(error) => return vec![with_causes(&error)],
            };
            let indexes = self.indexes(&mut connection).await;
            let counts = self.counts(&mut connection).await;
            let found = [indexes, counts].into_iter();
            let texts = found.flat_map(|found| match found {
                Ok(found) => found,
                Err(error) => vec![format!("the structure can't be checked: {}", error.without_remedy())],
            });
            texts.collect()
        })
    }

    fn texts<'a>(&'a self, visit: Visitor<'a, Found<SharedText>>) -> Visiting<'a> {
        Box::pin(self.scan(("texts", sql::SCAN_TEXTS), None, rows::any_text, visit))
    }

    fn queues<'a>(&'a self, visit: Visitor<'a, Found<QueueRow>>) -> Visiting<'a> {
        Box::pin(self.scan(("queues", sql::SCAN_QUEUES), Some(0), rows::queue_row, visit))
    }

    fn journal<'a>(&'a self, visit: Visitor<'a, Found<Placed>>) -> Visiting<'a> {
        let read = |row: &PgRow| {
            let (queue, last_rv) = (rows::queue(row, 0)?, rows::rv(row, 4)?);
            Ok(Placed { queue, last_rv, row: rows::journal_row(row).map_err(|error| unreadable(&error)) })
        };
        Box::pin(self.scan(("journal", sql::SCAN_JOURNAL), Some(0), read, visit))
    }

    fn runs<'a>(&'a self, visit: Visitor<'a, Found<RunRow>>) -> Visiting<'a> {
        Box::pin(self.scan(("runs", sql::SCAN_RUNS), Some(0), rows::run_row, visit))
    }

    fn links<'a>(&'a self, queue: QueueId, visit: Visitor<'a, Link>) -> Visiting<'a> {
        Box::pin(async move {
            let failed = |error| database("follow the journal", error);
            let mut connection = self.reader.held().await?;
            let query = sqlx::query(sql::LINKS).bind(self.partition).bind(i64::from(queue.0));
            let mut found = query.persistent(false).fetch(&mut *connection);
            while let Some(row) = found.try_next().await.map_err(failed)? {
                let rv = |index| rows::rv(&row, index).map_err(failed);
                let id = row.try_get(3).map_err(failed)?;
                visit(Link { id, prev_rv: rv(0)?, first_rv: rv(1)?, last_rv: rv(2)? });
            }
            Ok(())
        })
    }

    fn close(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move { self.reader.close().await })
    }
}

fn unreadable(error: &sqlx::Error) -> String {
    format!("a value can't be read: {error}")
}
