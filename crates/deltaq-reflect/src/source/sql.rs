//! The rows of a query, in SQLite or PostgreSQL. Nothing is written: the connections are read-only.
//!
//! With a column that grows with each change (`since`), changed rows are read between two lists. Rows with the last
//! value are read again, because a later transaction may add rows with the same value; rows that were already sent
//! are left out. A value that is a time ahead of the database's clock would hide all changes until that time. So it
//! does not count as the last value, and its rows are read again. Deleted rows, and changes of rows without a value
//! (NULL), are found only by a list.

mod moment;
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
    /// Hashes of the texts of these rows. There may be many.
    rows: HashSet<u64>,
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

    /// Whether a value is smaller than another one. Texts are compared by their bytes, regardless of the collation of
    /// the database.
    fn is_before(&self, other: &Self) -> bool {
        match (self.number().zip(other.number()), self, other) {
            (Some((one, other)), ..) => one < other,
            (None, Self::Text(one), Self::Text(other)) => one < other,
            (None, one, _) => !matches!(one, Self::Text(_)),
        }
    }
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
        self.listed = Some(self.read(output, Event::InitApply, None, &self.reached).await?);
        output.send(Event::InitDone).await
    }

    /// Records that the queue has accepted the last list. Returns how many of the rows that this list has changed
    /// should have been found by the reads before it.
    pub(super) fn accepted(&mut self, changed: u64) -> u64 {
        let Some(Read { reached, without_value, unseen }) = self.listed.take() else { return 0 };
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
            self.reached = read.reached;
            output.read();
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
        let reached = Reached { value: from.and_then(|from| from.value.clone()), rows: HashSet::new() };
        let read = Read { reached, without_value: HashSet::new(), unseen: 0 };
        let mut rows = Rows {
            output,
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
        Ok(rows.read)
    }
}

/// What a read has found.
#[derive(Debug)]
struct Read {
    reached: Reached,
    without_value: HashSet<u64>,
    /// Number of rows that no read before this one could have sent: changed rows without a value, and rows with a
    /// later value than was reached.
    unseen: u64,
}

/// Where a read begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start<'v> {
    /// At all rows.
    All,
    /// At all rows that have a value in the column `since`.
    AnyValue,
    /// At this value.
    Value(&'v Value),
}

/// Receives the rows of one read.
pub(super) struct Rows<'a> {
    output: &'a Output,
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
    fn start(&self) -> Start<'_> {
        match self.from {
            None => Start::All,
            Some(Reached { value: None, .. }) => Start::AnyValue,
            Some(Reached { value: Some(value), .. }) => Start::Value(value),
        }
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
    async fn take(&mut self, text: String, value: Option<Value>) -> Result<(), Error> {
        let object =
            RawValue::from_string(text).map_err(|error| Error::because("a row is not JSON", error))?;
        if std::mem::take(&mut self.is_first) {
            refuse_twins(&object)?;
        }
        let mut hasher = DefaultHasher::new();
        object.get().hash(&mut hasher);
        let row = hasher.finish();
        let is_repeated = self.from.is_some_and(|from| from.rows.contains(&row));
        let (known, is_behind) = match (&value, &self.before.value) {
            (None, _) => (self.without_value, false),
            (Some(value), Some(before)) => (&self.before.rows, value.is_before(before)),
            (Some(_), None) => (&self.before.rows, false),
        };
        self.read.unseen += u64::from(!is_behind && !known.contains(&row));
        if let Some(value) = value {
            let reached = &mut self.read.reached;
            if !moment::is_ahead(&value, reached.value.as_ref(), self.now)
                && reached.value.as_ref() != Some(&value)
            {
                *reached = Reached { value: Some(value), rows: HashSet::new() };
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

/// A name as a quoted SQL identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The error of a database, without any value of the data.
fn failed(what: &str, error: sqlx::Error) -> Error {
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
