//! Converts errors of PostgreSQL into errors of a store. Their texts stay in `source`.

use std::time::Duration;

use crate::store::{Error, REMEDY};

// SQLSTATE, <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
const DISK_FULL: &str = "53100";
const DATA_CORRUPTED: &str = "XX001";
const INDEX_CORRUPTED: &str = "XX002";
const WRONG_PASSWORD: &str = "28P01";

/// The error of an operation on the database; `doing` names the operation.
pub(super) fn database(doing: impl Into<String>, error: sqlx::Error) -> Error {
    if let sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) = &error {
        let doing = doing.into();
        return Error::Damaged { found: format!("failed to {doing}: {error}. {REMEDY}") };
    }
    let code = match &error {
        sqlx::Error::Database(error) => error.code().map(std::borrow::Cow::into_owned),
        _ => None,
    };
    match code.as_deref() {
        Some(DISK_FULL) => Error::Full { source: Some(error.into()) },
        Some(code @ (DATA_CORRUPTED | INDEX_CORRUPTED)) => {
            let doing = doing.into();
            Error::Damaged {
                found: format!("PostgreSQL reports damage ({code}): failed to {doing}: {error}. {REMEDY}"),
            }
        }
        _ => Error::Failed { doing: doing.into(), source: Some(cause(error)) },
    }
}

/// An error of PostgreSQL, without the location in its source code.
#[derive(Debug, thiserror::Error)]
#[error("PostgreSQL says: {text} ({code}){}", hint(.code))]
pub(super) struct Reported {
    text: String,
    /// The SQLSTATE.
    pub(super) code: String,
}

fn hint(code: &str) -> &'static str {
    if code == WRONG_PASSWORD { "; the password comes from PGPASSWORD, PGPASSFILE or ~/.pgpass" } else { "" }
}

fn cause(error: sqlx::Error) -> Box<dyn std::error::Error + Send + Sync> {
    let sqlx::Error::Database(database) = &error else { return error.into() };
    let (text, code) = (database.message().to_owned(), database.code().unwrap_or_default().into_owned());
    Reported { text, code }.into()
}

/// Waits for a reply from the database, but at most for the time `longest`. The outcome of an operation that takes
/// longer is unknown.
pub(super) async fn within<T>(
    longest: Duration,
    doing: &str,
    operation: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(longest, operation).await {
        Ok(done) => done.map_err(|error| database(doing, error)),
        Err(elapsed) => Err(Error::Failed {
            doing: format!("{doing}: the database did not respond within {} s", longest.as_secs()),
            source: Some(elapsed.into()),
        }),
    }
}
