//! The kinds of stores that the commands work on: a data directory with a SQLite store. No other file of this module
//! names a kind.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Error;
use crate::journal::snapshot::Snapshot;
use crate::journal::sqlite::{self, Sqlite, SqliteSnapshot, Sync};
use crate::journal::store::{self, Opening, Reader, Store};

/// Opens a snapshot of a store.
pub(super) async fn snapshot(folder: &Path) -> Result<Box<dyn Snapshot>, store::Error> {
    Ok(Box::new(SqliteSnapshot::take(folder).await?))
}

/// Opens a snapshot of a backup.
pub(super) async fn snapshot_of_backup(file: &Path) -> Result<Box<dyn Snapshot>, store::Error> {
    Ok(Box::new(SqliteSnapshot::of_backup(file).await?))
}

/// Copies a store to a file. Returns the bytes of the copy and a snapshot of it.
pub(super) async fn backup(folder: &Path, to: &Path) -> Result<(u64, Box<dyn Snapshot>), store::Error> {
    let (bytes, copy) = sqlite::backup(folder, to).await?;
    Ok((bytes, Box::new(copy)))
}

/// Opens a store as its only writer.
pub(super) async fn open(folder: &Path) -> Result<(impl Store, Arc<dyn Reader>, Opening), store::Error> {
    let (store, reader, opening) = Sqlite::open(folder, Sync::Full).await?;
    Ok((store, reader as Arc<dyn Reader>, opening))
}

/// Checks that a folder may contain a store.
///
/// # Errors
/// [`Error`] describes what is there instead.
pub(super) fn check_folder(folder: &Path) -> Result<(), Error> {
    let at = || folder.to_owned();
    let unreadable = |source| Error::Unreadable { at: at(), source };
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(Error::NotAFolder { at: at() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Missing { at: at() }),
        Err(error) => return Err(unreadable(error)),
    }
    let database = folder.join("deltaq.db");
    // Opening a pipe could block for ever.
    if fs::metadata(&database).is_ok_and(|found| !found.is_file()) {
        return Err(Error::NoStore { at: at() });
    }
    match File::open(&database) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(Error::Unreadable { at: database, source }),
    }
    let is_there = |name: &&str| fs::metadata(folder.join(name)).is_ok_and(|found| found.len() > 0);
    if let Some(beside) = ["deltaq.db-wal", "deltaq.mark"].into_iter().find(is_there) {
        return Err(Error::DatabaseMissing { at: at(), beside });
    }
    match fs::read_dir(folder).map_err(unreadable)?.next() {
        None => Err(Error::Empty { at: at() }),
        Some(_) => Err(Error::NoStore { at: at() }),
    }
}
