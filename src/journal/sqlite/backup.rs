//! A copy of a store that may be in use.

use std::fs::{self, File};
use std::path::Path;

use sqlx::{ConnectOptions, Connection};

use super::error::{WAY_OUT, database, file};
use super::files::{self, Paths};
use super::{Snapshot, connect, mark, sql};
use crate::journal::store::Error;

/// Writes a copy of the store in `folder` to the file `to`, as it is at one instant, and checks it; tells
/// its size in bytes, and lets look at the copy, held against what the store had acknowledged. As
/// `deltaq.db` in an empty folder the copy is a store.
///
/// A server may use the store meanwhile. Its commits go on, but until the copy is complete its WAL grows.
///
/// # Errors
/// [`Error::Failed`] if there is a file `to` already, or none to copy, or the copy can't be read;
/// [`Error::Full`] if there is no room for it. No part of a copy is left behind then.
pub async fn backup(folder: &Path, to: &Path) -> Result<(u64, Snapshot), Error> {
    let paths = Paths::new(folder)?;
    paths.expect_regular()?;
    // Before the copy, which then must hold what it says.
    let mark = mark::read_beside_server(&paths.mark);
    let to = std::path::absolute(to).map_err(|said| file("find", to, said))?;
    let mut source = connect::reader(&paths.database).await?;
    if !connect::is_store(&mut source, &paths).await? {
        let doing = format!("find a store in {}", paths.folder.display());
        return Err(Error::Failed { doing, source: None });
    }
    connect::refuse_newer(&mut source, &paths).await?;
    // SQLite writes into a file that is empty and refuses any other. So the copy is never open to others,
    // nor takes the place of anything.
    files::create(&to)?;
    let copied = async {
        let bytes = copy(source, &to).await?;
        Ok((bytes, Snapshot::of_copy(Paths { database: to.clone(), ..paths }, mark).await?))
    };
    let copied = copied.await;
    if copied.is_err() {
        // The reason why there is no copy is worth more than the reason why a part of it stays.
        let _ = fs::remove_file(&to);
    }
    copied
}

async fn copy(mut source: sqlx::SqliteConnection, to: &Path) -> Result<u64, Error> {
    let name = to.to_str().ok_or_else(|| file("name", to, std::io::ErrorKind::InvalidFilename.into()))?;
    let copied = sqlx::query(sql::VACUUM_INTO).bind(name.to_owned()).execute(&mut source).await;
    copied.map_err(|said| database(format!("copy the database to {name}"), said))?;
    let _ = source.close().await;
    let failed = |said| file("sync", to, said);
    let copy = File::open(to).map_err(failed)?;
    copy.sync_all().map_err(failed)?;
    to.parent().map_or(Ok(()), files::sync_folder)?;
    // Nobody else has the copy: without looking for others SQLite makes no files beside it.
    let mut check = connect::reading(to)
        .immutable(true)
        .connect()
        .await
        .map_err(|said| database("open the copy", said))?;
    let found = connect::findings(&mut check, sql::SHORT_CHECK).await?;
    let _ = check.close().await;
    if !found.is_empty() {
        let found = format!("the copy has the damage that the store has: {}. {WAY_OUT}", found.join("; "));
        return Err(Error::Damaged { found });
    }
    copy.metadata().map(|found| found.len()).map_err(failed)
}
