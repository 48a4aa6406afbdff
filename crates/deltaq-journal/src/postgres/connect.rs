//! Opens connections, and begins epochs.

use std::time::Duration;

use deltaq_engine::time::Time;
use deltaq_runtime::causes::with_causes;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, RawSql, Row as _};
use tokio::time::error::Elapsed;

use super::Settings;
use super::error::{Reported, database, within};
use super::owner::{Member, Tenure};
use super::{rows, sql};
use crate::store::{Epoch, Error, Numbers, Opening, REMEDY};

const BEGIN_EPOCH: &str = "begin an epoch";
/// SQLSTATE of what may pass (<https://www.postgresql.org/docs/current/errcodes-appendix.html>): a pooler gets no connection to the
/// database; the database starts, stops or recovers; it has no free connection. PgBouncer reports every refusal of the database as
/// 08P01, also one that does not pass; the log then shows its text.
const PASSING: [&str; 3] = ["08", "57P", "53300"];
/// Timeout for one host to accept a connection.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Timeout of a short statement. It is longer than the wait for a lock.
pub(super) const SHORT_MAX: Duration = Duration::from_secs(7);

/// The failures that an acknowledged commit survives, as reported by the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The version of the database.
    pub version: String,
    /// Whether commits survive a power loss of the database: `fsync` and `synchronous_commit` are on.
    pub is_durable: bool,
    /// Whether a commit waits until a standby has it. Such a commit survives a failover.
    pub is_replicated: bool,
}

/// Connects to the first host that accepts writes, starting with the host at index `first`. Returns the host's index.
pub(super) async fn writable(settings: &Settings, first: usize) -> Result<(PgConnection, usize), Error> {
    let mut problems = Vec::new();
    let mut last = None;
    for number in 0..settings.hosts.len() {
        let number = (first + number) % settings.hosts.len();
        let Some(options) = settings.hosts.get(number) else { continue };
        match connect(options).await {
            Ok(connection) => return Ok((connection, number)),
            Err(error) => {
                problems.push(format!("{}: {}", options.get_host(), with_causes(&error)));
                last = Some(error);
            }
        }
    }
    match last {
        Some(error) if settings.hosts.len() == 1 => Err(error),
        _ => Err(Error::Failed {
            doing: format!("find a host of {} that accepts writes; {}", settings.name(), problems.join("; ")),
            source: None,
        }),
    }
}

/// Why no host of the settings can be used now, although the settings may be right: each host is down, starts, is a standby, or has no
/// free connection. `None` if a host accepts writes, or refuses the connection for good.
pub async fn away(settings: &Settings) -> Option<String> {
    let mut problems = Vec::new();
    for options in &settings.hosts {
        let connected = tokio::time::timeout(CONNECT_MAX, options.connect()).await;
        let problem = match connected {
            Err(_elapsed) => "it does not respond".to_owned(),
            Ok(Err(error)) if is_passing(&error) => with_causes(&error),
            Ok(Err(_)) => return None,
            Ok(Ok(mut connection)) => {
                let row =
                    simple(&mut connection, "ask whether the database accepts writes", sql::IS_READ_ONLY)
                        .await;
                match row.map(|row| row.and_then(|row| row.try_get::<bool, _>(0).ok())) {
                    Ok(Some(true)) => "it is read-only, for example a standby".to_owned(),
                    Ok(_) => return None,
                    Err(error) => with_causes(&error),
                }
            }
        };
        problems.push(format!("{}: {problem}", options.get_host()));
    }
    Some(problems.join("; "))
}

/// Whether a failed connection may succeed later without a change of the settings.
fn is_passing(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => !with_causes(error).contains("certificate"),
        sqlx::Error::Database(error) => error.code().is_some_and(|code| is_passing_code(&code)),
        _ => false,
    }
}

fn is_passing_code(code: &str) -> bool {
    PASSING.iter().any(|passing| code.starts_with(passing))
}

/// Whether an operation has failed because its connection broke, or because the database did not respond or refused it for
/// the moment.
#[must_use]
pub fn is_broken(error: &Error) -> bool {
    let Error::Failed { source: Some(source), .. } = error else { return false };
    let is_refused = source.downcast_ref::<Reported>().is_some_and(|error| is_passing_code(&error.code));
    source.is::<Elapsed>() || is_refused || source.downcast_ref().is_some_and(is_passing)
}

/// Connects to the first host that responds, which may be a standby.
pub(super) async fn any(settings: &Settings) -> Result<PgConnection, Error> {
    let mut last = None;
    for options in &settings.hosts {
        match connected(options).await {
            Ok(connection) => return Ok(connection),
            Err(error) => last = Some(error),
        }
    }
    let doing = "connect to the database".to_owned();
    Err(last.unwrap_or(Error::Failed { doing, source: None }))
}

async fn connected(options: &PgConnectOptions) -> Result<PgConnection, Error> {
    let doing = "connect to the database";
    within(CONNECT_MAX, doing, options.connect()).await.map_err(|error| match error {
        Error::Failed { source: Some(source), .. } if with_causes(&*source).contains("invalid peer certificate") => {
            let remedy = "sslrootcert must name the certificate of its authority, and sslmode=verify-full needs its host name";
            Error::Failed { doing: format!("{doing}, because its certificate is not trusted ({remedy})"), source: Some(source) }
        }
        error => error,
    })
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Error> {
    let mut connection = connected(options).await?;
    let row = simple(&mut connection, "ask whether the database accepts writes", sql::IS_READ_ONLY).await?;
    let is_read_only = row.map(|row| row.try_get::<bool, _>(0)).transpose();
    if is_read_only.map_err(|error| database("ask whether the database accepts writes", error))?
        == Some(false)
    {
        return Ok(connection);
    }
    let doing = "write to the database: it is read-only, for example a standby".to_owned();
    Err(Error::Failed { doing, source: None })
}

/// Runs statements without parameters in one round trip. Returns the first row of all results.
pub(super) async fn simple(
    connection: &mut PgConnection,
    doing: &str,
    text: impl Into<String>,
) -> Result<Option<PgRow>, Error> {
    within(SHORT_MAX, doing, connection.fetch_optional(statements(text.into()))).await
}

/// Like [`simple`], but returns all rows.
pub(super) async fn simple_rows(
    connection: &mut PgConnection,
    doing: &str,
    text: String,
) -> Result<Vec<PgRow>, Error> {
    within(SHORT_MAX, doing, connection.fetch_all(statements(text))).await
}

/// Like [`simple_rows`], but returns the error of the database as it is, if the database has answered.
pub(super) async fn answered_rows(
    connection: &mut PgConnection,
    doing: &str,
    text: String,
) -> Result<Result<Vec<PgRow>, sqlx::Error>, Error> {
    within(SHORT_MAX, doing, async { Ok(connection.fetch_all(statements(text)).await) }).await
}

fn statements(text: String) -> RawSql {
    // Every such text is from the module `sql` and consists of constants and numbers.
    sqlx::raw_sql(AssertSqlSafe(text))
}

/// Takes over the partition, which is created if it is missing.
pub(super) async fn first_epoch(
    connection: &mut PgConnection,
    partition: i16,
) -> Result<(Tenure, Opening), Error> {
    let writer = random()?;
    let row = simple(connection, BEGIN_EPOCH, sql::first_epoch(partition, writer)).await?;
    let row = row.ok_or_else(|| missing(partition))?;
    opened(connection, partition, writer, &row).await
}

/// Takes over the partition unless another node owns it.
pub(super) async fn claim(
    connection: &mut PgConnection,
    partition: i16,
    member: &Member,
) -> Result<Option<(Tenure, Opening)>, Error> {
    let writer = random()?;
    match simple(connection, BEGIN_EPOCH, sql::claim(partition, writer, member)).await? {
        Some(row) => opened(connection, partition, writer, &row).await.map(Some),
        None => Ok(None),
    }
}

/// Reads the state of the partition whose epoch began with `row`.
async fn opened(
    connection: &mut PgConnection,
    partition: i16,
    writer: i64,
    row: &PgRow,
) -> Result<(Tenure, Opening), Error> {
    let doing = BEGIN_EPOCH;
    let failed = |error| database(doing, error);
    let epoch = Epoch(rows::number(row, 0).map_err(failed)?);
    let before = (Epoch(epoch.0.saturating_sub(1)), row.try_get::<i64, _>(1).map_err(failed)?);
    let server = row.try_get::<i64, _>(2).map_err(failed)?;
    let opening = state(connection, partition).await?.ok_or_else(|| missing(partition))?;
    if opening.epoch != epoch {
        return Err(Error::Fenced { own: epoch, found: opening.epoch });
    }
    Ok((Tenure { writer, epoch, server, before }, opening))
}

/// Fails if nodes share the database.
pub(super) async fn check_alone(connection: &mut PgConnection, name: &str) -> Result<(), Error> {
    let doing = "look for nodes";
    let row = simple(connection, doing, sql::SHARING).await?;
    let read = |row: PgRow| Ok((row.try_get::<Option<String>, _>(0)?, row.try_get::<i64, _>(1)?));
    let found = row.ok_or(sqlx::Error::RowNotFound).and_then(read);
    let (nodes, partitions) = found.map_err(|error| database(doing, error))?;
    if nodes.is_none() && partitions <= 1 {
        return Ok(());
    }
    let nodes = nodes
        .map_or_else(|| format!("it has {partitions} partitions"), |nodes| format!("its nodes: {nodes}"));
    let doing = format!(
        "use the database {name} alone, because it is for several nodes ({nodes}); give this server a --node-name and --advertise"
    );
    Err(Error::Failed { doing, source: None })
}

/// The state that the partition's row records; `None` if there is no such partition.
pub(super) async fn state(connection: &mut PgConnection, partition: i16) -> Result<Option<Opening>, Error> {
    let doing = "read the state of the partition";
    let read = |row: &PgRow| {
        let queue = rows::queue(row, 2)?.0;
        let numbers = Numbers { queue, version: rows::number(row, 3)?, floor: rows::rv(row, 4)? };
        let wall = Some(Time::from_micros(rows::number(row, 5)?));
        Ok(Opening { clean: row.try_get(0)?, numbers, epoch: Epoch(rows::number(row, 1)?), wall })
    };
    let row = simple(connection, doing, sql::state(partition)).await?;
    row.as_ref().map(read).transpose().map_err(|error| database(doing, error))
}

/// Begins the next epoch of the writer. Before it returns, every earlier write of this writer has succeeded or can no longer succeed.
pub(super) async fn next_epoch(
    connection: &mut PgConnection,
    partition: i16,
    tenure: &Tenure,
) -> Result<Tenure, Error> {
    let doing = BEGIN_EPOCH;
    match simple(connection, doing, sql::next_epoch(partition, tenure)).await? {
        Some(row) => {
            let read = || Ok((Epoch(rows::number(&row, 0)?), row.try_get::<i64, _>(1)?));
            let (epoch, server) = read().map_err(|error| database(doing, error))?;
            Ok(Tenure { epoch, server, ..*tenure })
        }
        None => Err(match owner(connection, partition).await {
            Ok((found, server)) if server != tenure.server && found < tenure.epoch => Error::RolledBack {
                found: format!(
                    "the takeover of epoch {}, as after a failover to a replica that lags",
                    tenure.epoch.0
                ),
            },
            Ok((found, _)) => Error::Fenced { own: tenure.epoch, found },
            Err(error) => error,
        }),
    }
}

/// The error of a write in the epoch `own` that has found another owner of the partition, or another server. On
/// another server, the attempt to begin the next epoch shows who owns the partition.
pub(super) async fn refused(
    connection: &mut PgConnection,
    partition: i16,
    tenure: &Tenure,
    own: Epoch,
) -> Error {
    match owner(connection, partition).await {
        Ok((found, server)) if server == tenure.server && found != own => Error::Fenced { own, found },
        Ok(_) => {
            let doing = "write: the connection leads to another server, as after a failover behind a pooler";
            Error::Failed { doing: doing.to_owned(), source: None }
        }
        Err(error) => error,
    }
}

/// The epoch of the partition, and the server.
async fn owner(connection: &mut PgConnection, partition: i16) -> Result<(Epoch, i64), Error> {
    let doing = "read the epoch";
    let row = simple(connection, doing, sql::owner(partition)).await?.ok_or_else(|| missing(partition))?;
    let read = || Ok((Epoch(rows::number(&row, 0)?), row.try_get::<i64, _>(1)?));
    read().map_err(|error| database(doing, error))
}

/// Queries which failures an acknowledged commit survives.
pub(super) async fn protection(connection: &mut PgConnection) -> Result<Protection, Error> {
    let doing = "read the settings of the database";
    let row = simple(connection, doing, sql::PROTECTION).await?;
    let read = |row: PgRow| {
        let synchronous: String = row.try_get(2)?;
        let waits = !matches!(synchronous.as_str(), "off" | "local");
        Ok(Protection {
            version: row.try_get(0)?,
            is_durable: row.try_get(1)? && synchronous != "off",
            is_replicated: row.try_get(3)? && waits,
        })
    };
    let read = row.ok_or(sqlx::Error::RowNotFound).and_then(read);
    read.map_err(|error| database(doing, error))
}

fn missing(partition: i16) -> Error {
    Error::Damaged { found: format!("the row of partition {partition} is missing. {REMEDY}") }
}

/// A random number.
pub(super) fn random() -> Result<i64, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Error::Failed {
        doing: "get a random number".to_owned(),
        source: Some(Box::new(error)),
    })?;
    Ok(i64::from_le_bytes(bytes))
}
