//! The rows of a query, in SQLite or PostgreSQL. Nothing is written: the connections are read-only.
//!
//! With a column that grows with each change (`since`), changed rows are read between two lists. Rows with the last
//! value are read again, because a later transaction may add rows with the same value; rows that were already sent
//! are left out. A value that is a time ahead of the database's clock would hide all changes until that time. So it
//! does not count as the last value, and its rows are read again. Deleted rows, and changes of rows without a value
//! (NULL), are found only by a list.
//!
//! Texts of times in several forms, or numbers beside texts, have no order in time. Then each read returns all rows with
//! a value, and those that were already sent are left out.

mod moment;
mod order;
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

use self::order::Order;
use self::postgres::Postgres;
pub(super) use self::postgres::options as postgres_options;
use self::sqlite::Sqlite;
use super::{Error, NextList, Output, jittered};
use crate::{json, settings};

/// A query of a database.
#[derive(Debug)]
pub(crate) struct Sql {
    database: Database,
    since: Option<String>,
    interval: DurationText,
    timeout: DurationText,
    /// How far changes have been read.
    reached: Reached,
    /// Hashes of the rows without a value in the last list.
    without_value: HashSet<u64>,
    /// The list that was read last and that the queue has not accepted yet. It may be read once more.
    listed: Option<Read>,
}

#[derive(Debug)]
enum Database {
    Sqlite(Box<Sqlite>),
    Postgres(Box<Postgres>),
}

/// The largest value of the column `since` that was read and is not a time ahead of the clock, and the rows with this
/// value or a later one.
#[derive(Debug, Clone, Default)]
pub(super) struct Reached {
    value: Option<Value>,
    /// Hashes of the texts of these rows. There may be many. If `is_scattered`, those of all rows with a value.
    rows: HashSet<u64>,
    /// Whether a row that changes later may have a smaller value.
    is_scattered: bool,
}

/// A value of the column `since`, as the database returns it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Integer(i64),
    Real(f64),
    /// A text. In PostgreSQL, a value of any type as text.
    Text(String),
}

impl Value {
    fn number(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "it is compared with a clock")]
            Self::Integer(number) => Some(*number as f64),
            Self::Real(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

/// The value of a row in the column `since`, and what the database says about it.
#[derive(Debug, Default)]
pub(super) struct Since {
    value: Option<Value>,
    /// Whether the database has no type for the times in this column.
    is_untyped: bool,
    /// Whether the value is smaller than the one that earlier reads had reached.
    is_behind: bool,
}

impl Sql {
    pub(super) fn new(sql: &settings::Sql, source: &settings::Source) -> Result<Self, Error> {
        // The line break ends a comment at the end of the query.
        let query = format!("{}\n", sql.query.trim().trim_end_matches(';'));
        let database = match sql.database.strip_prefix("sqlite:") {
            Some(path) => Database::Sqlite(Box::new(Sqlite::new(path, query, sql.since.as_deref()))),
            None => Database::Postgres(Box::new(Postgres::new(&sql.database, query, sql.since.as_deref())?)),
        };
        let (interval, timeout) = (source.interval, source.timeout);
        let since = sql.since.clone();
        Ok(Self {
            database,
            since,
            interval,
            timeout,
            reached: Reached::default(),
            without_value: HashSet::new(),
            listed: None,
        })
    }

    /// Whether the source can report changes.
    pub(super) fn streams(&self) -> bool {
        self.since.is_some()
    }

    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        output.send(Event::Init).await?;
        self.listed = None;
        let read = self.read(output, Event::InitApply, None, &self.reached).await?;
        if read.reached.is_scattered && !self.reached.is_scattered {
            output.scattered();
        }
        self.listed = Some(read);
        output.send(Event::InitDone).await
    }

    /// Records that the queue has accepted the last list. Returns how many of the rows that this list has changed
    /// should have been found by the reads before it.
    pub(super) fn accepted(&mut self, changed: u64) -> u64 {
        let Some(Read { reached, without_value, unseen, .. }) = self.listed.take() else { return 0 };
        let before = std::mem::replace(&mut self.reached, reached);
        self.without_value = without_value;
        // Otherwise, no read was expected to send the other rows.
        if before.value.is_some() { changed.saturating_sub(unseen) } else { 0 }
    }

    /// Sends the changed rows, once per interval.
    pub(super) async fn stream(&mut self, output: &Output) -> Result<NextList, Error> {
        loop {
            tokio::time::sleep(jittered(self.interval.get())).await;
            // If a read is interrupted, `reached` stays as it was, and the following list sends the rest.
            let read = self.read(output, Event::Apply, Some(&self.reached), &self.reached).await?;
            let must_list = read.reached.is_scattered && !self.reached.is_scattered;
            self.reached = read.reached;
            output.read();
            if must_list {
                output.scattered();
                return Ok(NextList::Now);
            }
        }
    }

    /// Reads all rows, or those that follow an earlier read. Returns how far this read has got. `before` is how far
    /// the earlier read had got.
    async fn read(
        &self,
        output: &Output,
        event: fn(Box<RawValue>) -> Event,
        from: Option<&Reached>,
        before: &Reached,
    ) -> Result<Read, Error> {
        let (timeout, left) = (self.timeout, self.timeout.get());
        let value = from.and_then(|from| from.value.clone()).filter(|_| !before.is_scattered);
        let mut order = Order::default();
        if let Some(value) = &value {
            order.note(value, moment::now());
        }
        let reached = Reached { value, ..Reached::default() };
        let read = Read { reached, all: HashSet::new(), without_value: HashSet::new(), unseen: 0 };
        let mut rows = Rows {
            output,
            order,
            event,
            from,
            before,
            without_value: &self.without_value,
            read,
            now: moment::now(),
            is_first: true,
            timeout,
            left,
        };
        match &self.database {
            Database::Sqlite(sqlite) => sqlite.read(&mut rows).await?,
            Database::Postgres(postgres) => postgres.read(&mut rows).await?,
        }
        let (mut read, is_scattered) = (rows.read, rows.order.is_scattered());
        read.reached.is_scattered = is_scattered;
        let all = std::mem::take(&mut read.all);
        if is_scattered {
            read.reached.rows = all;
        }
        Ok(read)
    }
}

/// What a read has found.
#[derive(Debug)]
struct Read {
    reached: Reached,
    /// Hashes of all rows with a value.
    all: HashSet<u64>,
    without_value: HashSet<u64>,
    /// Number of rows that no read before this one could have sent: changed rows without a value, and rows with a
    /// later value than was reached.
    unseen: u64,
}

/// Where a read begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    /// At all rows.
    All,
    /// At all rows that have a value in the column `since`.
    AnyValue,
    /// At the value that earlier reads had reached.
    Value,
}

/// Receives the rows of one read.
pub(super) struct Rows<'a> {
    output: &'a Output,
    order: Order,
    event: fn(Box<RawValue>) -> Event,
    /// How far the previous read had got; `None` to read all rows.
    from: Option<&'a Reached>,
    /// The same, but also set for a read of all rows.
    before: &'a Reached,
    /// Hashes of the rows without a value in the previous list.
    without_value: &'a HashSet<u64>,
    read: Read,
    /// The clock of the database, in seconds since 1970.
    now: f64,
    is_first: bool,
    timeout: DurationText,
    /// The remaining time for the database. Time that the queue takes to accept rows does not count.
    left: Duration,
}

impl Rows<'_> {
    /// Where the read begins.
    const fn start(&self) -> Start {
        match self.from {
            None => Start::All,
            Some(Reached { value: None, .. } | Reached { is_scattered: true, .. }) => Start::AnyValue,
            Some(Reached { value: Some(_), .. }) => Start::Value,
        }
    }

    /// The value that earlier reads had reached.
    const fn mark(&self) -> Option<&Value> {
        self.before.value.as_ref()
    }

    /// Sets the clock of the database.
    const fn set_clock(&mut self, now: f64) {
        self.now = now;
    }

    /// Waits for a reply of the database.
    async fn wait<T>(&mut self, answer: impl Future<Output = T>) -> Result<T, Error> {
        let began = Instant::now();
        let answer = timeout(self.left, answer).await;
        self.left = self.left.saturating_sub(began.elapsed());
        answer.map_err(|_| Error::new(format!("the query has not ended within {} (timeout)", self.timeout)))
    }

    /// Sends a row, unless the previous read has sent it. Rows arrive in the order of their values.
    async fn take(&mut self, text: String, since: Since) -> Result<(), Error> {
        let Since { value, is_untyped, is_behind } = since;
        let object =
            RawValue::from_string(text).map_err(|error| Error::because("a row is not JSON", error))?;
        if std::mem::take(&mut self.is_first) {
            refuse_twins(&object)?;
        }
        let mut hasher = DefaultHasher::new();
        object.get().hash(&mut hasher);
        let row = hasher.finish();
        let is_repeated = self.from.is_some_and(|from| from.rows.contains(&row));
        let known = if value.is_none() { self.without_value } else { &self.before.rows };
        // The reads before this one have returned all rows, so this row has changed after them.
        let is_behind = is_behind && !self.before.is_scattered;
        self.read.unseen += u64::from(!is_behind && !known.contains(&row));
        if let Some(value) = value {
            if is_untyped {
                self.order.note(&value, self.now);
            }
            self.read.all.insert(row);
            let reached = &mut self.read.reached;
            if !moment::is_ahead(&value, reached.value.as_ref(), self.now)
                && reached.value.as_ref() != Some(&value)
            {
                *reached = Reached { value: Some(value), ..Reached::default() };
            }
            reached.rows.insert(row);
        } else {
            self.read.without_value.insert(row);
        }
        if is_repeated {
            return Ok(());
        }
        self.output.send((self.event)(object)).await
    }
}

/// Refuses rows with two columns of the same name, because a member would be lost.
fn refuse_twins(row: &RawValue) -> Result<(), Error> {
    let mut names = HashSet::new();
    let members = json::members(row).map_err(|error| Error::because("a row is not JSON", error))?;
    match members.iter().find(|(name, _)| !names.insert(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Error::new(format!(
            "the query has failed: there are two columns {name:?}; give one of them another name with AS"
        ))),
    }
}

/// Bytes that are not UTF-8 as halves of surrogates in JSON. The queue leaves out an object with such a text, and names
/// its key.
fn halves(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}\\udc{byte:02x}"))
}

/// A text without a backslash as an SQL literal.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as a quoted SQL identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The error of a database, without any value of the data.
pub(super) fn failed(what: &str, error: sqlx::Error) -> Error {
    match error.as_database_error() {
        // The library's text also names a line, which is a line of PostgreSQL's source code.
        Some(of_database) => {
            // PostgreSQL's errors of class 22 quote the value that they refuse.
            let is_of_data = of_database.code().is_some_and(|code| code.len() == 5 && code.starts_with("22"));
            let message = of_database.message();
            let said = if is_of_data { message.split(": \"").next().unwrap_or_default() } else { message };
            Error::because(what, said)
        }
        None => Error::because(what, error),
    }
}
