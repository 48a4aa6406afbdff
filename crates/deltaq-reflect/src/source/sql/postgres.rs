//! PostgreSQL. The database itself writes the rows as JSON, so numbers keep every digit.

use deltaq_types::range::plain_host;
use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _, ValueRef as _};
use tracing::subscriber::{NoSubscriber, with_default};

use super::{Error, Rows, Since, Start, Value, failed, halves, quoted};

/// One snapshot for the whole read, and no writes. Backslashes in the text of a compared value must not be escapes,
/// and a float must keep every digit. Poolers refuse `extra_float_digits` at the start of a connection. All these
/// settings end with the transaction, even in a pooler. A database with the encoding `SQL_ASCII` has texts of any bytes,
/// and would refuse the query because of one that is not UTF-8.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL standard_conforming_strings = on; SET LOCAL extra_float_digits = 3; \
    SELECT set_config('client_encoding', 'SQL_ASCII', true) WHERE current_setting('server_encoding') = 'SQL_ASCII'; SAVEPOINT begun";
/// Ends a query whose client is gone. Servers before version 14, and servers on some systems, refuse this setting.
const END_WITH_CLIENT: &str = "SET LOCAL client_connection_check_interval = '1s'";
const GO_ON: &str = "ROLLBACK TO SAVEPOINT begun";
/// The time of the transaction, in seconds since 1970.
const NOW: &str = "SELECT extract(epoch FROM now())::float8";

/// The types `text`, `character` and `character varying`.
const TEXTS: &str = "25, 1042, 1043";

/// A query in a database.
#[derive(Debug)]
pub(super) struct Postgres {
    url: String,
    query: String,
    since: Option<String>,
}

impl Postgres {
    pub(super) fn new(url: &str, query: String, since: Option<&str>) -> Result<Self, Error> {
        options(url)?;
        Ok(Self { url: url.to_owned(), query, since: since.map(str::to_owned) })
    }

    pub(super) async fn read(&self, rows: &mut Rows<'_>) -> Result<(), Error> {
        // The password file may have been replaced.
        let options = options(&self.url)?;
        let mut connection: PgConnection = rows
            .wait(options.connect())
            .await?
            .map_err(|error| failed("can't connect to the database", error))?;
        let of = "the query has failed";
        rows.wait(connection.execute(BEGIN)).await?.map_err(|error| failed(of, error))?;
        if rows.wait(connection.execute(END_WITH_CLIENT)).await?.is_err() {
            rows.wait(connection.execute(GO_ON)).await?.map_err(|error| failed(of, error))?;
        }
        if self.since.is_some() {
            let now = sqlx::query_scalar(NOW).persistent(false).fetch_one(&mut connection);
            let now = rows.wait(now).await?.map_err(|error| failed(of, error))?;
            rows.set_clock(now);
        }
        // The text differs for each value, so the statement must not stay prepared.
        let statement = self.statement(rows.start(), rows.mark());
        let query = sqlx::query(AssertSqlSafe(statement)).persistent(false);
        {
            let mut found = query.fetch(&mut connection);
            while let Some(row) = rows.wait(found.try_next()).await?.map_err(|error| failed(of, error))? {
                let object = bytes(&row, 0)?.unwrap_or_default().utf8_chunks();
                let object = object.map(|part| [part.valid(), &halves(part.invalid())].concat()).collect();
                let value = bytes(&row, 1)?.map(|value| String::from_utf8_lossy(value).into_owned());
                let flag = |at: usize| row.try_get::<Option<bool>, _>(at).map_err(|error| failed(of, error));
                let (is_behind, is_untyped) = (flag(2)? == Some(false), flag(3)? == Some(true));
                rows.take(object, Since { value: value.map(Value::Text), is_untyped, is_behind }).await?;
            }
        }
        // All rows have arrived, so a failure to end the connection is no failure of the read. A server that has closed it
        // first can no longer be sent the end of TLS.
        let _ended = rows.wait(connection.close()).await;
        Ok(())
    }

    /// A query that returns each row as JSON, the value of the column `since` as text, whether it is not less than the
    /// `mark`, and whether the column has text. The text of a compared value is converted to the type of the column.
    ///
    /// `r.*` is the row even if one of its columns is named `r`; `r` alone would be that column.
    fn statement(&self, start: Start, mark: Option<&Value>) -> String {
        let query = &self.query;
        let Some(since) = self.since.as_deref().map(quoted) else {
            return format!(
                "SELECT row_to_json(r.*)::text, NULL::text, NULL::bool, NULL::bool FROM ({query}) AS r"
            );
        };
        let reaches = match mark {
            Some(Value::Text(value)) => format!("r.{since} >= '{}'", value.replace('\'', "''")),
            _ => "NULL::bool".to_owned(),
        };
        let from = match start {
            Start::Value => format!("WHERE {reaches}"),
            Start::AnyValue => format!("WHERE r.{since} IS NOT NULL"),
            Start::All => String::new(),
        };
        format!(
            "SELECT row_to_json(r.*)::text, r.{since}::text, {reaches}, pg_typeof(r.{since})::oid::int IN ({TEXTS}) \
             FROM ({query}) AS r {from} ORDER BY r.{since} NULLS FIRST"
        )
    }
}

/// The bytes of a text, which may not be UTF-8.
fn bytes(row: &PgRow, index: usize) -> Result<Option<&[u8]>, Error> {
    let of = "the query has failed";
    let value = row.try_get_raw(index).map_err(|error| failed(of, error))?;
    if value.is_null() {
        return Ok(None);
    }
    value.as_bytes().map(Some).map_err(|error| Error::because(of, error))
}

/// The options of a URL, completed from the environment and the password file.
pub(in crate::source) fn options(url: &str) -> Result<PgConnectOptions, Error> {
    // The driver logs lines of the password file that it can't parse, with the password.
    let options = with_default(NoSubscriber::new(), || plain_host(url).parse::<PgConnectOptions>());
    let options = options.map_err(|error| failed("the URL of the database is not valid", error))?;
    Ok(options.application_name("deltaq-reflect").extra_float_digits(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_names_are_quoted() {
        let postgres =
            Postgres::new("postgres://a@h/d", "SELECT 1 -- all\n".to_owned(), Some("at\"x")).unwrap();
        let value = Value::Text("it's".to_owned());
        assert_eq!(
            postgres.statement(Start::Value, Some(&value)),
            "SELECT row_to_json(r.*)::text, r.\"at\"\"x\"::text, r.\"at\"\"x\" >= 'it''s', \
             pg_typeof(r.\"at\"\"x\")::oid::int IN (25, 1042, 1043) \
             FROM (SELECT 1 -- all\n) AS r WHERE r.\"at\"\"x\" >= 'it''s' ORDER BY r.\"at\"\"x\" NULLS FIRST"
        );
    }
}
