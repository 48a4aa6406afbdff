//! Connections to the database, and what is looked at before anything is written to it.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, SqlSafeStr};

use super::error::{WAY_OUT, database, file};
use super::files::Paths;
use super::mark::Reached;
use super::{Sync, sql};
use crate::journal::store::{Error, Numbers, Opening};

/// What a store of this program bears in its head: "delq".
const APPLICATION_ID: i64 = 1_684_368_497;

/// Bytes of a page of the database; fixed when it is made.
pub(super) const PAGE_BYTES: u64 = 4_096;
/// Bytes of a page in the WAL, with its head.
pub(super) const FRAME_BYTES: u64 = PAGE_BYTES + 24;

/// The WAL file is cut to this size when it has grown beyond it. Below it stays as long as it was, since
/// writing over what is there takes less than making a file longer.
const WAL_FILE_BYTES_MAX: u64 = 48 << 20;

/// All migrations that ever were, oldest first. One that was released is never changed.
const MIGRATIONS: &[(i64, &str, &str)] =
    &[(1, "store", include_str!("../../../migrations/sqlite/0001_store.sql"))];

/// What a store says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) opening: Opening,
    pub(super) reached: Reached,
}

/// Options that all connections share.
fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(false)
        .busy_timeout(Duration::from_secs(5))
        .thread_name(|_| "deltaq-sqlite".to_owned())
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
}

/// Options of a connection that can't write.
pub(super) fn reading(path: &Path) -> SqliteConnectOptions {
    options(path).read_only(true).row_buffer_size(1_024)
}

/// Opens a connection that only reads.
pub(super) async fn reader(path: &Path) -> Result<SqliteConnection, Error> {
    reading(path).connect().await.map_err(|said| database(format!("open {}", path.display()), said))
}

/// Opens a connection that writes; the file must be there. Checkpoints are left to the upkeep.
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
    options.connect().await.map_err(|said| database(format!("open {}", paths.database.display()), said))
}

/// A start that was cut off while it made the database, or turned a backup into one with a WAL, leaves
/// what SQLite takes that back with. Only a connection that may write does.
pub(super) async fn roll_back(paths: &Paths) -> Result<(), Error> {
    if fs::metadata(&paths.rollback).map_or(0, |found| found.len()) == 0 || !paths.database.exists() {
        return Ok(());
    }
    let mut connection = writer(paths, Sync::Full).await?;
    let read = sqlx::query(sql::TABLES).execute(&mut connection).await;
    let _ = connection.close().await;
    read.map(drop).map_err(|said| database("take back what a start left half done", said))
}

/// Looks at a store without changing it: none if there is nothing yet.
pub(super) async fn inspect(paths: &Paths) -> Result<Option<State>, Error> {
    let path = &paths.database;
    let bytes = |path| fs::metadata(path).map_or(0, |found| found.len());
    if bytes(path) == 0 {
        if bytes(&paths.wal) == 0 {
            return Ok(None);
        }
        let found = format!(
            "{} is missing or empty, but its WAL is there. Put it back, or restore a backup in place of both",
            path.display()
        );
        return Err(Error::Damaged { found });
    }
    let mut connection = reader(path).await?;
    let answer = inspect_with(&mut connection, paths).await;
    // Reading is all it did, so there is nothing that closing could fail to do.
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
        let found = format!("{}: {}. {WAY_OUT}", paths.database.display(), found.join("; "));
        return Err(Error::Damaged { found });
    }
    state(connection).await.map(Some)
}

/// Whether there is a store in the file; an error if there is something else.
pub(super) async fn is_store(connection: &mut SqliteConnection, paths: &Paths) -> Result<bool, Error> {
    let doing = || format!("read {}", paths.database.display());
    let row = sqlx::query(sql::TABLES).fetch_one(connection).await;
    let row = row.map_err(|said| database(doing(), said))?;
    let numbers = |index| row.try_get_unchecked::<i64, usize>(index).map_err(|said| database(doing(), said));
    match (numbers(0)?, numbers(1)?) {
        (_, APPLICATION_ID) => Ok(true),
        (0, _) => Ok(false),
        _ => {
            let found = format!("{} is a database of another program", paths.database.display());
            Err(Error::Damaged { found })
        }
    }
}

/// Refuses a store that knows migrations which this program doesn't.
pub(super) async fn refuse_newer(connection: &mut SqliteConnection, paths: &Paths) -> Result<(), Error> {
    let known = MIGRATIONS.last().map_or(0, |(version, ..)| *version);
    let found = sqlx::query_scalar::<_, i64>(sql::VERSION).fetch_one(connection).await;
    let found = found.map_err(|said| database("read the version of the store", said))?;
    if found > known { Err(Error::Newer { at: paths.folder.clone(), found, known }) } else { Ok(()) }
}

/// What a check of the database finds.
pub(super) async fn findings(
    connection: &mut SqliteConnection,
    check: &'static str,
) -> Result<Vec<String>, Error> {
    let rows = sqlx::query_scalar::<_, String>(check).fetch_all(connection).await;
    let rows = rows.map_err(|said| database("check the database", said))?;
    // A finding begins with the name of the schema and may span lines.
    Ok(rows.iter().filter(|row| *row != "ok").map(|row| row.trim().replace('\n', ", ")).collect())
}

/// Brings the store to the newest layout. What is new gets its layout first, while it has no tables.
pub(super) async fn migrate(connection: &mut SqliteConnection, is_new: bool) -> Result<(), Error> {
    if is_new {
        let laid_out = sqlx::raw_sql(sql::LAYOUT).execute(&mut *connection).await;
        laid_out.map_err(|said| database("lay out the database", said))?;
    }
    let mode = sqlx::query_scalar::<_, String>(sql::WAL).fetch_one(&mut *connection).await;
    let mode = mode.map_err(|said| database("open a WAL", said))?;
    if mode != "wal" {
        let doing = format!("open a WAL: the file system takes a journal of kind {mode} only");
        return Err(Error::Failed { doing, source: None });
    }
    let migrator = Migrator::with_migrations(migrations().collect());
    migrator.run(&mut *connection).await.map_err(|said| match said {
        sqlx::migrate::MigrateError::Execute(said) => database("migrate the store", said),
        said => Error::Failed { doing: "migrate the store".to_owned(), source: Some(said.into()) },
    })
}

/// What leads from nothing to the newest layout, step by step.
pub(super) fn migrations() -> impl Iterator<Item = Migration> {
    MIGRATIONS.iter().map(|(version, name, text)| {
        Migration::new(*version, Cow::Borrowed(*name), MigrationType::Simple, text.into_sql_str(), false)
    })
}

/// Reads what the store says of itself.
pub(super) async fn state(connection: &mut SqliteConnection) -> Result<State, Error> {
    let failed = |said| database("read the state of the store", said);
    let row = sqlx::query(sql::STATE).fetch_optional(connection).await.map_err(failed)?;
    let Some(row) = row else {
        return Err(Error::Damaged { found: format!("the row of table store is missing. {WAY_OUT}") });
    };
    state_of(&row).map_err(failed)
}

fn state_of(row: &SqliteRow) -> Result<State, sqlx::Error> {
    let number = |index| row.try_get_unchecked::<i64, usize>(index).map(i64::cast_unsigned);
    let next_row = number(1)?;
    let queue = row.try_get_unchecked(2)?;
    let numbers = Numbers { queue, version: number(3)?, floor: number(4)? };
    let opening = Opening { clean: number(0)? != 0, next_row, numbers };
    Ok(State { opening, reached: Reached { row: next_row.saturating_sub(1), version: numbers.version } })
}

/// Makes the file of a new database, closed to others: SQLite gives the files beside it the same mode.
pub(super) fn create_if_missing(paths: &Paths) -> Result<(), Error> {
    match fs::exists(&paths.database) {
        Ok(true) => Ok(()),
        Ok(false) => super::files::create(&paths.database),
        Err(said) => Err(file("look at", &paths.database, said)),
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
