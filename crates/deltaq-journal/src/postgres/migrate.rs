//! Creates and migrates the tables.
//!
//! All migrations run in one transaction, under a transaction-level lock. So servers that start at the same time wait
//! for each other, and a pooler that gives each transaction another session does no harm. sqlx's own migrator can't
//! be used, because it takes a session-level lock.

use sqlx::Row as _;
use sqlx::postgres::PgConnection;

use super::connect::{SHORT_MAX, simple};
use super::error::{database, within};
use super::sql;
use crate::store::Error;

/// All migrations, oldest first. A released migration never changes.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "store", include_str!("../../migrations/postgres/0001_store.sql")),
    (2, "nodes", include_str!("../../migrations/postgres/0002_nodes.sql")),
    (3, "loads", include_str!("../../migrations/postgres/0003_loads.sql")),
    (4, "admission", include_str!("../../migrations/postgres/0004_admission.sql")),
    (5, "series", include_str!("../../migrations/postgres/0005_series.sql")),
];

/// Migrates the database to the newest version. `name` is the name of the database.
pub(super) async fn migrate(connection: &mut PgConnection, name: &str) -> Result<(), Error> {
    if version(connection, name).await? == newest() {
        return Ok(());
    }
    let doing = "migrate the database";
    simple(connection, doing, sql::begin() + sql::LOCK_MIGRATIONS).await?;
    // Another server may have migrated the database in the meantime.
    let found = version(connection, name).await?;
    for (version, name, text) in MIGRATIONS.iter().filter(|(version, ..)| *version > found) {
        tracing::info!(version, name, "migrating the database");
        within(SHORT_MAX, doing, sqlx::raw_sql(*text).execute(&mut *connection)).await?;
        let migrated = sqlx::query(sql::MIGRATED).bind(version).bind(name).persistent(false);
        within(SHORT_MAX, doing, migrated.execute(&mut *connection)).await?;
    }
    simple(connection, doing, "COMMIT").await?;
    Ok(())
}

fn newest() -> i64 {
    MIGRATIONS.last().map_or(0, |(version, ..)| *version)
}

/// The version of the tables: 0 if there are none. A version that this program does not know is an error.
pub(super) async fn version(connection: &mut PgConnection, name: &str) -> Result<i64, Error> {
    let known = newest();
    let doing = "read the version of the tables";
    let failed = |error| database(doing, error);
    let row = simple(connection, doing, sql::HAS_MIGRATIONS).await?;
    let has_migrations = row.map(|row| row.try_get::<bool, _>(0)).transpose().map_err(failed)?;
    if has_migrations != Some(true) {
        return Ok(0);
    }
    let row = simple(connection, doing, sql::VERSION).await?;
    let found = row.map(|row| row.try_get::<i64, _>(0)).transpose().map_err(failed)?.unwrap_or_default();
    if found > known {
        Err(Error::Newer { at: format!("the database {name}"), found, known })
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_migration_in_the_folder_is_run_and_says_what_it_is_for() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/postgres");
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let named = MIGRATIONS.iter().map(|(version, name, _)| format!("{version:04}_{name}.sql"));
        let found = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned());
        assert_eq!(named.collect::<Vec<_>>(), found.collect::<Vec<_>>());
        assert!(MIGRATIONS.iter().all(|(_, _, text)| text.starts_with("-- ")), "each says what it is for");
    }
}
