//! Copies a store that may be in use.

use std::fs::{self, File};
use std::path::Path;

use sqlx::{ConnectOptions, Connection};

use super::error::{database, file};
use super::files::{self, Paths};
use super::snapshot::SqliteSnapshot;
use super::{connect, mark, sql};
use crate::store::{Error, REMEDY};

/// Copies the store in `folder`, as of one instant, to the file `to`, and checks the copy. Returns its size in bytes
/// and a snapshot of the copy that knows the store's high-water mark. To use the copy as a store, place it as
/// `deltaq.db` in an empty folder.
///
/// A server may use the store during the copy. The server continues to commit, but its WAL grows until the copy is
/// complete.
///
/// # Errors
/// [`Error::Failed`] if the file `to` exists, if there is no store, or if the copy can't be read;
/// [`Error::Full`] if the disk is full. A partial copy is removed.
pub async fn backup(folder: &Path, to: &Path) -> Result<(u64, SqliteSnapshot), Error> {
    let paths = Paths::new(folder)?;
    paths.expect_regular()?;
    // The mark is read before the copy is made, so the copy must contain everything up to the mark.
    let mark = mark::read_beside_server(&paths.mark);
    let to = std::path::absolute(to).map_err(|error| file("find", to, error))?;
    let mut source = connect::reader(&paths.database).await?;
    if !connect::is_store(&mut source, &paths).await? {
        let doing = format!("find a store in {}", paths.folder.display());
        return Err(Error::Failed { doing, source: None });
    }
    connect::refuse_newer(&mut source, &paths).await?;
    // SQLite copies only into an empty file. The file is created first, so that no other user can ever read it and no
    // existing file is overwritten.
    files::create(&to)?;
    let copied = async {
        let bytes = copy(source, &to).await?;
        Ok((bytes, SqliteSnapshot::of_copy(Paths { database: to.clone(), ..paths }, mark).await?))
    };
    let copied = copied.await;
    if copied.is_err() {
        // The first error matters more than a failure to remove the partial copy.
        let _ = fs::remove_file(&to);
    }
    copied
}

async fn copy(mut source: sqlx::SqliteConnection, to: &Path) -> Result<u64, Error> {
    let name = to.to_str().ok_or_else(|| file("name", to, std::io::ErrorKind::InvalidFilename.into()))?;
    let copied = sqlx::query(sql::VACUUM_INTO).bind(name.to_owned()).execute(&mut source).await;
    copied.map_err(|error| database(format!("copy the database to {name}"), error))?;
    let _ = source.close().await;
    let failed = |error| file("sync", to, error);
    let copy = File::open(to).map_err(failed)?;
    copy.sync_all().map_err(failed)?;
    to.parent().map_or(Ok(()), files::sync_folder)?;
    // No other process uses the copy. An immutable database needs no additional files.
    let mut check = connect::reading(to)
        .immutable(true)
        .connect()
        .await
        .map_err(|error| database("open the copy", error))?;
    let found = connect::findings(&mut check, sql::SHORT_CHECK).await?;
    let _ = check.close().await;
    if !found.is_empty() {
        let found = format!("the store is damaged, and so is the copy: {}. {REMEDY}", found.join("; "));
        return Err(Error::Damaged { found });
    }
    copy.metadata().map(|found| found.len()).map_err(failed)
}
