//! Opens connections, and checks and migrates the database.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::time::Duration;

use deltaq_engine::id::Rv;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, SqlSafeStr};

use super::error::{database, file};
use super::files::Paths;
use super::mark::Reached;
use super::sql;
use super::sync::Sync;
use crate::store::{Epoch, Error, Numbers, Opening, REMEDY};

/// The application id in the header of the database: "delq".
const APPLICATION_ID: i64 = 1_684_368_497;

/// Size of a database page in bytes, fixed when the database is created.
pub(super) const PAGE_BYTES: u64 = 4_096;
/// Size of a page in the WAL in bytes, including its header.
pub(super) const FRAME_BYTES: u64 = PAGE_BYTES + 24;

/// The WAL file is truncated to this size when it starts over. A smaller file keeps its size, because overwriting a
/// file costs less than growing it.
const WAL_FILE_BYTES_MAX: u64 = 48 << 20;

/// All migrations, oldest first. A released migration never changes.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "store", include_str!("../../migrations/sqlite/0001_store.sql")),
    (2, "compressed_events", include_str!("../../migrations/sqlite/0002_compressed_events.sql")),
    (3, "series", include_str!("../../migrations/sqlite/0003_series.sql")),
];

/// The state that the database records about itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) opening: Opening,
    pub(super) reached: Reached,
}

/// The options of all connections.
fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(false)
        .busy_timeout(Duration::from_secs(5))
        .thread_name(|_| "deltaq-sqlite".to_owned())
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
}

/// The options of a read-only connection.
pub(super) fn reading(path: &Path) -> SqliteConnectOptions {
    options(path).read_only(true).row_buffer_size(1_024)
}

/// Opens a read-only connection.
pub(super) async fn reader(path: &Path) -> Result<SqliteConnection, Error> {
    reading(path).connect().await.map_err(|error| database(format!("open {}", path.display()), error))
}

/// Opens a connection that writes to an existing file. The connection does not run automatic WAL checkpoints.
pub(super) async fn writer(paths: &Paths, sync: Sync) -> Result<SqliteConnection, Error> {
    let synchronous = match sync {
        Sync::Full => SqliteSynchronous::Full,
        Sync::Normal => SqliteSynchronous::Normal,
    };
    let options = options(&paths.database)
        .synchronous(synchronous)
        .pragma("cache_size", "-65536")
        .pragma("wal_autocheckpoint", "0")
        .pragma("journal_size_limit", WAL_FILE_BYTES_MAX.to_string());
    options.connect().await.map_err(|error| database(format!("open {}", paths.database.display()), error))
}

/// Rolls back an interrupted start. A start that was creating the database, or switching a backup to WAL mode, leaves
/// a rollback journal. Only a connection with write access applies it.
pub(super) async fn roll_back(paths: &Paths) -> Result<(), Error> {
    if fs::metadata(&paths.rollback).map_or(0, |found| found.len()) == 0 || !paths.database.exists() {
        return Ok(());
    }
    let mut connection = writer(paths, Sync::Full).await?;
    let read = sqlx::query(sql::TABLES).execute(&mut connection).await;
    let _ = connection.close().await;
    read.map(drop).map_err(|error| database("roll back an interrupted start", error))
}

/// Reads the state of a store without changing it. `None` if there is no store yet.
pub(super) async fn inspect(paths: &Paths) -> Result<Option<State>, Error> {
    let path = &paths.database;
    let bytes = |path| fs::metadata(path).map_or(0, |found| found.len());
    if bytes(path) == 0 {
        if bytes(&paths.wal) == 0 {
            return Ok(None);
        }
        let found = format!(
            "{} is missing or empty, but its WAL exists. Put the file back, or replace both by a backup",
            path.display()
        );
        return Err(Error::Damaged { found });
    }
    let mut connection = reader(path).await?;
    let answer = inspect_with(&mut connection, paths).await;
    // A connection that only reads has nothing to lose.
    let _ = connection.close().await;
    answer
}

async fn inspect_with(connection: &mut SqliteConnection, paths: &Paths) -> Result<Option<State>, Error> {
    if !is_store(connection, paths).await? {
        return Ok(None);
    }
    refuse_newer(connection, paths).await?;
    let found = findings(connection, sql::SHORT_CHECK).await?;
    if !found.is_empty() {
        let found = format!("{}: {}. {REMEDY}", paths.database.display(), found.join("; "));
        return Err(Error::Damaged { found });
    }
    state(connection).await.map(Some)
}

/// Whether the file contains a store. A database of another program is an error.
pub(super) async fn is_store(connection: &mut SqliteConnection, paths: &Paths) -> Result<bool, Error> {
    let doing = || format!("read {}", paths.database.display());
    let row = sqlx::query(sql::TABLES).fetch_one(connection).await;
    let row = row.map_err(|error| database(doing(), error))?;
    let numbers =
        |index| row.try_get_unchecked::<i64, usize>(index).map_err(|error| database(doing(), error));
    match (numbers(0)?, numbers(1)?) {
        (_, APPLICATION_ID) => Ok(true),
        (0, _) => Ok(false),
        _ => {
            let found = format!("{} is a database of another program", paths.database.display());
            Err(Error::Damaged { found })
        }
    }
}

/// The version of a store after all migrations.
pub(super) fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |(version, ..)| *version)
}

/// Refuses a store with migrations that this program doesn't know. Returns the version of the store.
pub(super) async fn refuse_newer(connection: &mut SqliteConnection, paths: &Paths) -> Result<i64, Error> {
    let known = newest();
    let found = sqlx::query_scalar::<_, i64>(sql::VERSION).fetch_one(connection).await;
    let found = found.map_err(|error| database("read the version of the store", error))?;
    if found > known {
        Err(Error::Newer { at: paths.folder.display().to_string(), found, known })
    } else {
        Ok(found)
    }
}

/// Runs a check of the database. Returns the damage.
pub(super) async fn findings(
    connection: &mut SqliteConnection,
    check: &'static str,
) -> Result<Vec<String>, Error> {
    let rows = sqlx::query_scalar::<_, String>(check).fetch_all(connection).await;
    let rows = rows.map_err(|error| database("check the database", error))?;
    // SQLite's text may span lines.
    Ok(rows.iter().filter(|row| *row != "ok").map(|row| row.trim().replace('\n', ", ")).collect())
}

/// Migrates the store to the newest version. The page layout of a new database must be set before its first
/// table.
pub(super) async fn migrate(connection: &mut SqliteConnection, is_new: bool) -> Result<(), Error> {
    if is_new {
        let done = sqlx::raw_sql(sql::LAYOUT).execute(&mut *connection).await;
        done.map_err(|error| database("set the page layout", error))?;
    }
    let mode = sqlx::query_scalar::<_, String>(sql::WAL).fetch_one(&mut *connection).await;
    let mode = mode.map_err(|error| database("open a WAL", error))?;
    if mode != "wal" {
        let doing = format!("open a WAL: the file system supports only the journal mode {mode}");
        return Err(Error::Failed { doing, source: None });
    }
    let migrator = Migrator::with_migrations(migrations().collect());
    migrator.run(&mut *connection).await.map_err(|error| match error {
        sqlx::migrate::MigrateError::Execute(error) => database("migrate the store", error),
        error => Error::Failed { doing: "migrate the store".to_owned(), source: Some(error.into()) },
    })
}

/// The migrations from an empty database to the newest version.
pub(super) fn migrations() -> impl Iterator<Item = Migration> {
    MIGRATIONS.iter().map(|(version, name, text)| {
        Migration::new(*version, Cow::Borrowed(*name), MigrationType::Simple, text.into_sql_str(), false)
    })
}

/// Reads the state that the database records about itself.
pub(super) async fn state(connection: &mut SqliteConnection) -> Result<State, Error> {
    let failed = |error| database("read the state of the store", error);
    let row = sqlx::query(sql::STATE).fetch_optional(connection).await.map_err(failed)?;
    let Some(row) = row else {
        return Err(Error::Damaged { found: format!("the row of table store is missing. {REMEDY}") });
    };
    state_of(&row).map_err(failed)
}

/// Begins the next epoch if the store is still in the epoch `own`. If earlier attempts are `in_doubt`, one of them
/// may have succeeded, so the store may already be in the following epoch.
pub(super) async fn next_epoch(
    connection: &mut SqliteConnection,
    own: Epoch,
    in_doubt: bool,
) -> Result<Epoch, Error> {
    let failed = |error| database("begin an epoch", error);
    let last = own.0 + u64::from(in_doubt);
    let next = sqlx::query_scalar::<_, i64>(sql::NEXT_EPOCH).bind(own.0.cast_signed());
    let next = next.bind(last.cast_signed());
    // SQLite returns the row before it commits, so the statement must run to its end. The commit may still fail
    // because the disk is full.
    let begun = next.fetch_all(&mut *connection).await.map_err(failed)?;
    match begun.first() {
        Some(next) => Ok(Epoch(next.cast_unsigned())),
        None => Err(Error::Fenced { own, found: epoch(connection).await.map_err(failed)? }),
    }
}

/// The epoch of the store.
pub(super) async fn epoch(connection: &mut SqliteConnection) -> Result<Epoch, sqlx::Error> {
    let epoch = sqlx::query_scalar::<_, i64>(sql::EPOCH).fetch_one(connection).await?;
    Ok(Epoch(epoch.cast_unsigned()))
}

fn state_of(row: &SqliteRow) -> Result<State, sqlx::Error> {
    let number = |index| row.try_get_unchecked::<i64, usize>(index).map(i64::cast_unsigned);
    let queue = row.try_get_unchecked(2)?;
    let numbers = Numbers { queue, version: number(3)?, floor: Rv::new(number(4)?) };
    let epoch = Epoch(number(5)?);
    let opening = Opening { clean: number(0)? != 0, numbers, epoch, wall: None };
    Ok(State { opening, reached: Reached { row: number(1)?.saturating_sub(1), version: numbers.version } })
}

/// Creates the file of a new database so that only its owner can read it. SQLite gives its other files the same mode.
pub(super) fn create_if_missing(paths: &Paths) -> Result<(), Error> {
    match fs::exists(&paths.database) {
        Ok(true) => Ok(()),
        Ok(false) => super::files::create(&paths.database),
        Err(error) => Err(file("look at", &paths.database, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_in_the_folder_is_run_and_says_what_it_is_for() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/sqlite");
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let named = MIGRATIONS.iter().map(|(version, name, _)| format!("{version:04}_{name}.sql"));
        let found = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned());
        assert_eq!(named.collect::<Vec<_>>(), found.collect::<Vec<_>>());
        for ((version, name, text), file) in MIGRATIONS.iter().zip(&files) {
            assert_eq!(*text, fs::read_to_string(file).unwrap());
            assert!(text.starts_with("-- "), "{version} {name} must begin with what it is for");
        }
    }
}
