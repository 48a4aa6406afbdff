//! SQLite.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use serde_json::{Number, Value as Json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Executor as _, Row as _, SqlSafeStr as _,
    Statement as _, TypeInfo as _, ValueRef as _,
};
use tokio_util::sync::CancellationToken;

use super::{Error, Rows, Since, Start, Value, failed, halves, quoted};

/// Number of steps of a query between two checks whether its result is still needed. They take about a millisecond.
const STEPS: i32 = 100_000;
/// Maximum time that a read waits for a writer.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// A query in a file.
#[derive(Debug)]
pub(super) struct Sqlite {
    options: SqliteConnectOptions,
    path: String,
    query: String,
    since: Option<String>,
}

impl Sqlite {
    pub(super) fn new(path: &str, query: String, since: Option<&str>) -> Self {
        let options = SqliteConnectOptions::new().filename(path).read_only(true).busy_timeout(BUSY_MAX);
        Self { options, path: path.to_owned(), query, since: since.map(str::to_owned) }
    }

    pub(super) async fn read(&self, rows: &mut Rows<'_>) -> Result<(), Error> {
        let what = format!("can't open {}", self.path);
        let mut connection: SqliteConnection =
            rows.wait(self.options.connect()).await?.map_err(|error| failed(&what, error))?;
        // The library runs the query on a thread, which would continue when the future is dropped.
        let unwanted = CancellationToken::new();
        let _ends_query = unwanted.clone().drop_guard();
        let mut handle = rows.wait(connection.lock_handle()).await?.map_err(|error| failed(&what, error))?;
        handle.set_progress_handler(STEPS, move || !unwanted.is_cancelled());
        drop(handle);
        let of = format!("the query of {} has failed", self.path);
        if let Some(since) = &self.since {
            let query = connection.prepare(AssertSqlSafe(self.query.clone()).into_sql_str());
            let query = rows.wait(query).await?.map_err(|error| failed(&of, error))?;
            let names: Vec<_> = query.columns().iter().map(sqlx::Column::name).collect();
            check(&names, since).map_err(|why| Error::new(format!("{of}: {why}")))?;
        }
        let mut query = sqlx::query(AssertSqlSafe(self.statement(rows.start())));
        query = match rows.mark().filter(|_| self.since.is_some()) {
            None => query,
            Some(Value::Integer(value)) => query.bind(*value),
            Some(Value::Real(value)) => query.bind(*value),
            Some(Value::Text(value)) => query.bind(value.clone()),
        };
        let mut found = query.fetch(&mut connection);
        while let Some(row) = rows.wait(found.try_next()).await?.map_err(|error| failed(&of, error))? {
            let (object, since) = self.object(&row).map_err(|why| Error::new(format!("{of}: {why}")))?;
            rows.take(object, since).await?;
        }
        Ok(())
    }

    /// The query. With a column `since`, each row has a further column: whether its value is not less than that which
    /// earlier reads had reached. A parameter without a value is NULL.
    fn statement(&self, start: Start) -> String {
        let Some(since) = self.since.as_deref().map(quoted) else { return self.query.clone() };
        let from = match start {
            Start::All => String::new(),
            Start::AnyValue => format!("WHERE {since} IS NOT NULL"),
            Start::Value => format!("WHERE {since} >= ?1"),
        };
        format!("SELECT *, {since} >= ?1 FROM ({}) {from} ORDER BY {since}", self.query)
    }

    /// The row as an object, and its value in the column `since`.
    fn object(&self, row: &SqliteRow) -> Result<(String, Since), String> {
        let mut since = Since { is_untyped: true, ..Since::default() };
        let (mut members, mut names) = (Vec::new(), HashSet::new());
        for (index, column) in row.columns().iter().enumerate() {
            let name = column.name();
            if self.since.is_some() && index + 1 == row.len() {
                since.is_behind = matches!(member(row, index), Ok((_, Some(Value::Integer(0)))));
                break;
            }
            let (text, known) = member(row, index).map_err(|error| format!("column {name:?}: {error}"))?;
            if self.since.as_deref().is_some_and(|since| since.eq_ignore_ascii_case(name)) {
                since.value = known;
            }
            if !names.insert(name) {
                return Err(two_columns(name));
            }
            members.push(format!("{}:{text}", Json::from(name)));
        }
        Ok((format!("{{{}}}", members.join(",")), since))
    }
}

/// Refuses a query if a column name is not unique or not a column of the query. SQLite treats the name of an absent
/// column as a text, and renames one of two columns with the same name, even if they differ in case.
fn check(names: &[&str], since: &str) -> Result<(), String> {
    let has = |names: &[&str], name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if !has(names, since) {
        return Err(format!("it has no column {since:?} (since)"));
    }
    let twin = names.iter().enumerate().find(|(at, name)| has(names.get(..*at).unwrap_or_default(), name));
    match twin {
        None => Ok(()),
        Some((_, name)) => Err(two_columns(name)),
    }
}

fn two_columns(name: &str) -> String {
    format!("there are two columns {name:?}; give one of them another name with AS")
}

/// A value of a row as JSON, and as a value of the column `since`. A blob becomes hexadecimal text, and a number that
/// is not finite becomes text, as PostgreSQL writes them.
fn member(row: &SqliteRow, index: usize) -> Result<(String, Option<Value>), sqlx::Error> {
    let raw = row.try_get_raw(index)?;
    let kind = raw.type_info().name().to_owned();
    if raw.is_null() {
        return Ok(("null".to_owned(), None));
    }
    if kind == "INTEGER" {
        let number = row.try_get_unchecked::<i64, _>(index)?;
        return Ok((number.to_string(), Some(Value::Integer(number))));
    }
    if kind == "REAL" {
        let number = row.try_get_unchecked::<f64, _>(index)?;
        let infinite = if number > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" };
        let text = Number::from_f64(number).map_or_else(|| infinite.to_owned(), |finite| finite.to_string());
        return Ok((text, Some(Value::Real(number))));
    }
    let mut bytes = row.try_get_unchecked::<Vec<u8>, _>(index)?;
    if kind == "BLOB" {
        bytes = bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}")).into_bytes();
    }
    let parts = bytes.utf8_chunks().map(|part| {
        let quoted = Json::from(part.valid()).to_string();
        let plain = quoted.get(1..quoted.len() - 1).unwrap_or_default();
        [plain, &halves(part.invalid())].concat()
    });
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((format!("\"{}\"", parts.collect::<String>()), Some(Value::Text(text))))
}
