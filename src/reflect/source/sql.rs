//! The rows of a query, in SQLite or PostgreSQL. Nothing is written: the connections are read only.
//!
//! With a column that grows with each change (`since`), the rows that have changed are read between two lists. Rows with the last
//! value are read again, because a later transaction may add rows with the same value; those that were sent are left out. Only a list
//! sees that a row is gone.

mod postgres;
mod sqlite;

use std::collections::BTreeSet;

use deltaq_client::Event;
use serde_json::value::RawValue;
use tokio::time::timeout;

use self::postgres::Postgres;
use self::sqlite::Sqlite;
use super::{Error, Followed, Output};
use crate::config::reflect;
use crate::duration::DurationText;
use crate::reflect::backoff::jittered;

/// A query.
#[derive(Debug)]
pub(in crate::reflect) struct Sql {
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
    rows: BTreeSet<Box<str>>,
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
    pub(super) fn new(sql: &reflect::Sql, source: &reflect::Source) -> Result<Self, Error> {
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
    pub(super) fn follows(&self) -> bool {
        self.since.is_some()
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        output.send(Event::Init).await?;
        self.reached = self.read(output, Event::InitApply, Reached::default()).await?;
        output.send(Event::InitDone).await
    }

    /// Sends the rows that have changed, once per interval.
    pub(super) async fn follow(&mut self, output: &Output) -> Result<Followed, Error> {
        loop {
            tokio::time::sleep(jittered(self.interval.get())).await;
            self.reached = self.read(output, Event::Apply, self.reached.clone()).await?;
        }
    }

    /// Reads the rows from a value on, and returns how far that has got.
    async fn read(
        &self,
        output: &Output,
        event: fn(Box<RawValue>) -> Event,
        from: Reached,
    ) -> Result<Reached, Error> {
        let mut rows = Rows { output, event, sent: from.clone(), reached: from };
        let read = async {
            match &self.database {
                Database::Sqlite(sqlite) => sqlite.read(&mut rows).await,
                Database::Postgres(postgres) => postgres.read(&mut rows).await,
            }
        };
        let read = timeout(self.timeout.get(), read).await;
        read.map_err(|_| Error::new(format!("the query has not ended within {} (timeout)", self.timeout)))??;
        Ok(rows.reached)
    }
}

/// Takes the rows of one read.
pub(super) struct Rows<'a> {
    output: &'a Output,
    event: fn(Box<RawValue>) -> Event,
    /// How far the read before has got.
    sent: Reached,
    reached: Reached,
}

impl Rows<'_> {
    /// The value from which on rows are read.
    fn from(&self) -> Option<&Value> {
        self.sent.value.as_ref()
    }

    /// Sends a row, unless the read before has sent it. Rows come in the order of their values.
    async fn take(&mut self, text: String, value: Option<Value>) -> Result<(), Error> {
        let is_repeated = value == self.sent.value && self.sent.rows.contains(text.as_str());
        if value.is_some() {
            if self.reached.value != value {
                self.reached = Reached { value, rows: BTreeSet::new() };
            }
            self.reached.rows.insert(text.as_str().into());
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
