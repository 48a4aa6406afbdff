//! The rows of a query, in SQLite or PostgreSQL. Nothing is written: the connections are read only.
//!
//! With a column that grows with each change (`since`), the rows that have changed are read between two lists. Rows with the last
//! value are read again, because a later transaction may add rows with the same value; those that were sent are left out. Only a list
//! sees that a row is gone, and the changes of rows without a value (NULL).

mod postgres;
mod sqlite;

use std::collections::HashSet;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use deltaq_client::Event;
use deltaq_types::duration::DurationText;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use self::postgres::Postgres;
use self::sqlite::Sqlite;
use super::{Error, NextList, Output, jittered};
use crate::settings;

/// A query.
#[derive(Debug)]
pub(crate) struct Sql {
    database: Database,
    since: Option<String>,
    interval: DurationText,
    timeout: DurationText,
    /// How far the changes were read.
    reached: Reached,
}

#[derive(Debug)]
enum Database {
    Sqlite(Box<Sqlite>),
    Postgres(Box<Postgres>),
}

/// The largest value of the column `since` that was read, and the rows that had it.
#[derive(Debug, Clone, Default)]
pub(super) struct Reached {
    value: Option<Value>,
    /// Hashes of the texts of these rows, which may be many.
    rows: HashSet<u64>,
}

/// A value of the column `since`, as the database has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Integer(i64),
    Real(f64),
    /// A text, and in PostgreSQL a value of any type as text.
    Text(String),
}

impl Sql {
    pub(super) fn new(sql: &settings::Sql, source: &settings::Source) -> Result<Self, Error> {
        // A line break ends a comment at the end of the query.
        let query = format!("{}\n", sql.query.trim().trim_end_matches(';'));
        let database = match sql.database.strip_prefix("sqlite:") {
            Some(path) => Database::Sqlite(Box::new(Sqlite::new(path, query, sql.since.as_deref()))),
            None => Database::Postgres(Box::new(Postgres::new(&sql.database, query, sql.since.as_deref())?)),
        };
        let (interval, timeout) = (source.interval, source.timeout);
        Ok(Self { database, since: sql.since.clone(), interval, timeout, reached: Reached::default() })
    }

    /// Whether the source can tell changes.
    pub(super) fn streams(&self) -> bool {
        self.since.is_some()
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        output.send(Event::Init).await?;
        self.reached = self.read(output, Event::InitApply, None).await?;
        output.send(Event::InitDone).await
    }

    /// Sends the rows that have changed, once per interval.
    pub(super) async fn stream(&mut self, output: &Output) -> Result<NextList, Error> {
        loop {
            tokio::time::sleep(jittered(self.interval.get())).await;
            self.reached = self.read(output, Event::Apply, Some(self.reached.clone())).await?;
            output.read();
        }
    }

    /// Reads all rows, or those that follow on an earlier read, and returns how far that has got.
    async fn read(
        &self,
        output: &Output,
        event: fn(Box<RawValue>) -> Event,
        from: Option<Reached>,
    ) -> Result<Reached, Error> {
        let reached = from.clone().unwrap_or_default();
        let (timeout, left) = (self.timeout, self.timeout.get());
        let mut rows = Rows { output, event, from, reached, timeout, left };
        match &self.database {
            Database::Sqlite(sqlite) => sqlite.read(&mut rows).await?,
            Database::Postgres(postgres) => postgres.read(&mut rows).await?,
        }
        Ok(rows.reached)
    }
}

/// Where the rows of a read begin.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start<'v> {
    /// With all rows.
    All,
    /// With all rows that have a value of the column `since`.
    AnyValue,
    /// With this value.
    Value(&'v Value),
}

/// Takes the rows of one read.
pub(super) struct Rows<'a> {
    output: &'a Output,
    event: fn(Box<RawValue>) -> Event,
    /// How far the read before has got; `None` reads all rows.
    from: Option<Reached>,
    reached: Reached,
    timeout: DurationText,
    /// How much longer the database may take. The time in which the queue takes the rows does not count.
    left: Duration,
}

impl Rows<'_> {
    /// Where the rows begin.
    fn start(&self) -> Start<'_> {
        match &self.from {
            None => Start::All,
            Some(Reached { value: None, .. }) => Start::AnyValue,
            Some(Reached { value: Some(value), .. }) => Start::Value(value),
        }
    }

    /// Waits for the database.
    async fn wait<T>(&mut self, answer: impl Future<Output = T>) -> Result<T, Error> {
        let began = Instant::now();
        let answer = timeout(self.left, answer).await;
        self.left = self.left.saturating_sub(began.elapsed());
        answer.map_err(|_| Error::new(format!("the query has not ended within {} (timeout)", self.timeout)))
    }

    /// Sends a row, unless the read before has sent it. Rows come in the order of their values.
    async fn take(&mut self, text: String, value: Option<Value>) -> Result<(), Error> {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let row = hasher.finish();
        let is_sent = |from: &Reached| value == from.value && from.rows.contains(&row);
        let is_repeated = self.from.as_ref().is_some_and(is_sent);
        if value.is_some() {
            if self.reached.value != value {
                self.reached = Reached { value, rows: HashSet::new() };
            }
            self.reached.rows.insert(row);
        }
        if is_repeated {
            return Ok(());
        }
        let object =
            RawValue::from_string(text).map_err(|error| Error::because("a row is not JSON", error))?;
        self.output.send((self.event)(object)).await
    }
}

/// A name in SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The error of a database, without a value of the data.
fn failed(what: &str, error: sqlx::Error) -> Error {
    match error.as_database_error() {
        // The text of the library also names a line, which is one of the source code of PostgreSQL.
        Some(of_database) => Error::because(what, of_database.message()),
        None => Error::because(what, error),
    }
}
