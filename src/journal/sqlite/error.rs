//! From what SQLite and the system say to what a store says. Their words stay in `source`.

use std::io;
use std::path::Path;

use crate::journal::store::Error;

// Result codes of SQLite, <https://www.sqlite.org/rescode.html>: the lower eight bits are the primary code.
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const NOT_A_DATABASE: i32 = 26;
/// The file beside the WAL that all connections share could not grow.
const IOERR_SHMSIZE: i32 = 10 + (19 << 8);

/// What became of `doing` something with the database.
pub(super) fn database(doing: impl Into<String>, error: sqlx::Error) -> Error {
    if let sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) = &error {
        let doing = doing.into();
        return Error::Damaged { found: format!("{error}, when it was to {doing}. {WAY_OUT}") };
    }
    let code = match &error {
        sqlx::Error::Database(said) => said.code().and_then(|code| code.parse::<i32>().ok()),
        _ => None,
    };
    match code {
        Some(code) if code & 0xff == FULL || code == IOERR_SHMSIZE => {
            Error::Full { source: Some(error.into()) }
        }
        Some(code) if code & 0xff == CORRUPT || code & 0xff == NOT_A_DATABASE => {
            let doing = doing.into();
            Error::Damaged {
                found: format!("SQLite found it (code {code}) when it was to {doing}. {WAY_OUT}"),
            }
        }
        _ => Error::Failed { doing: doing.into(), source: Some(error.into()) },
    }
}

/// What became of `doing` something with a file.
pub(super) fn file(doing: &str, path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::Full { source: Some(error.into()) }
        }
        _ => Error::Failed { doing: format!("{doing} {}", path.display()), source: Some(error.into()) },
    }
}

/// What can be done about damage.
pub(super) const WAY_OUT: &str = "Restore a backup; `deltaq check` tells what can still be read";
