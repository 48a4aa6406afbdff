//! Converts errors of SQLite and of the file system into errors of a store. Their texts stay in `source`.

use std::io;
use std::path::Path;

use crate::store::{Error, REMEDY};

// SQLite's result codes, <https://www.sqlite.org/rescode.html>. The lower eight bits are the primary code.
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const NOT_A_DATABASE: i32 = 26;
/// The shared-memory file of the WAL could not grow.
const IOERR_SHMSIZE: i32 = 10 + (19 << 8);

/// The error of an operation on the database; `doing` names the operation.
pub(super) fn database(doing: impl Into<String>, error: sqlx::Error) -> Error {
    if let sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) = &error {
        let doing = doing.into();
        return Error::Damaged { found: format!("failed to {doing}: {error}. {REMEDY}") };
    }
    let code = match &error {
        sqlx::Error::Database(error) => error.code().and_then(|code| code.parse::<i32>().ok()),
        _ => None,
    };
    match code {
        Some(code) if code & 0xff == FULL || code == IOERR_SHMSIZE => {
            Error::Full { source: Some(error.into()) }
        }
        Some(code) if code & 0xff == CORRUPT || code & 0xff == NOT_A_DATABASE => {
            let doing = doing.into();
            Error::Damaged {
                found: format!("SQLite reports damage (code {code}): failed to {doing}. {REMEDY}"),
            }
        }
        _ => Error::Failed { doing: doing.into(), source: Some(error.into()) },
    }
}

/// The error of an operation on a file; `doing` names the operation.
pub(super) fn file(doing: &str, path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::Full { source: Some(error.into()) }
        }
        _ => Error::Failed { doing: format!("{doing} {}", path.display()), source: Some(error.into()) },
    }
}
