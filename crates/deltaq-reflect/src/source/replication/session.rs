//! A connection to the database whose settings decide how values are written as text.
//!
//! The copy and the stream use the same settings, so that a row has the same text in both. All settings end with the
//! transaction, even in a pooler.

use std::future::Future;

use deltaq_types::duration::DurationText;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _};
use tokio::time::timeout;

use crate::source::Error;
use crate::source::sql::{failed, postgres_options};

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// How values are written, and what may not end a transaction that waits for the queue. A policy for rows would hide rows
/// from the copy but not from the stream, so it is an error.
const SETTINGS: &str = "SET LOCAL standard_conforming_strings = on; SET LOCAL extra_float_digits = 3; \
    SET LOCAL DateStyle = 'ISO, MDY'; SET LOCAL IntervalStyle = 'postgres'; SET LOCAL TimeZone = 'UTC'; \
    SET LOCAL bytea_output = 'hex'; SET LOCAL xmloption = 'content'; SET LOCAL search_path = pg_catalog; \
    SET LOCAL row_security = off; SET LOCAL statement_timeout = 0; \
    SET LOCAL idle_in_transaction_session_timeout = 0";

/// A connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: PgConnection,
    timeout: DurationText,
}

/// The classes of errors that a repeated statement has again: what the server can't do, values, constraints, names and types, and defects.
const PERMANENT: [&str; 5] = ["0A", "22", "23", "42", "XX"];

/// An error of a statement.
pub(super) fn refused(error: sqlx::Error) -> Error {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    let is_permanent = code.is_some_and(|code| PERMANENT.iter().any(|class| code.starts_with(class)));
    let error = failed("the database refuses a step of the replication", error);
    if is_permanent { error.permanent() } else { error }
}

impl Session {
    pub(super) async fn open(url: &str, limit: DurationText) -> Result<Self, Error> {
        // The password file may have been replaced.
        // A large transaction takes long, and its statement says nothing about it.
        let options = postgres_options(url)?.disable_statement_logging();
        let connection = within(limit, options.connect()).await?;
        let connection = connection.map_err(|error| failed("can't connect to the database", error))?;
        Ok(Self { connection, timeout: limit })
    }

    /// Begins a transaction that writes nothing, with one snapshot.
    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        self.run(&format!("{BEGIN}; {SETTINGS}")).await
    }

    pub(super) async fn commit(&mut self) -> Result<(), Error> {
        self.run("COMMIT").await
    }

    /// Runs statements without a result.
    pub(super) async fn run(&mut self, statements: &str) -> Result<(), Error> {
        let run = self.connection.execute(sqlx::raw_sql(AssertSqlSafe(statements.to_owned())));
        within(self.timeout, run).await?.map(drop).map_err(refused)
    }

    /// The rows of a query with parameters that are texts.
    pub(super) async fn rows(&mut self, query: &str, parameters: &[&str]) -> Result<Vec<PgRow>, Error> {
        within(self.timeout, self.rows_without_limit(query, parameters)).await?
    }

    /// The same for a query that may take long.
    pub(super) async fn rows_without_limit(
        &mut self,
        query: &str,
        parameters: &[&str],
    ) -> Result<Vec<PgRow>, Error> {
        let mut bound = sqlx::query(AssertSqlSafe(query.to_owned())).persistent(false);
        for parameter in parameters {
            bound = bound.bind(*parameter);
        }
        bound.fetch_all(&mut self.connection).await.map_err(refused)
    }

    /// The only row of a query.
    pub(super) async fn row(&mut self, query: &str, parameters: &[&str]) -> Result<PgRow, Error> {
        let rows = self.rows(query, parameters).await?;
        rows.into_iter().next().ok_or_else(|| Error::new("the database has returned no row"))
    }

    /// The only row of a query without parameters, which takes one round trip instead of two.
    pub(super) async fn plain_row(&mut self, query: &str) -> Result<PgRow, Error> {
        let rows = self.connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(query.to_owned())));
        let row = within(self.timeout, rows).await?.map_err(refused)?.pop();
        row.ok_or_else(|| Error::new("the database has returned no row"))
    }

    /// Begins such a transaction with a query, in one round trip.
    pub(super) async fn begin_with(&mut self, query: &str) -> Result<PgRow, Error> {
        self.plain_row(&format!("{BEGIN}; {SETTINGS}; {query}")).await
    }

    /// The limit of each statement.
    pub(super) const fn limit(&self) -> DurationText {
        self.timeout
    }

    /// Ends the connection. Everything has been read, so a failure is none of the source.
    pub(super) async fn close(self) {
        let limit = self.timeout;
        let _ended = within(limit, self.connection.close()).await;
    }
}

/// Waits for the database, not longer than the limit.
pub(super) async fn within<T>(limit: DurationText, answer: impl Future<Output = T>) -> Result<T, Error> {
    let answer = timeout(limit.get(), answer).await;
    answer.map_err(|_| Error::new(format!("the database has not answered within {limit} (timeout)")))
}

/// A value of a row.
pub(super) fn get<'r, T>(row: &'r PgRow, index: usize) -> Result<T, Error>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(index).map_err(refused)
}
