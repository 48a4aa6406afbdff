//! The kinds of stores that the commands work on: a data directory with a SQLite store, and a database of PostgreSQL.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deltaq_types::name::Name;

use super::Error;
use crate::partition::partition_of;
use crate::postgres::{self, Postgres, PostgresSnapshot};
use crate::snapshot::Snapshot;
use crate::sqlite::{self, Sqlite, SqliteSnapshot, Sync};
use crate::store::{self, Opening, Reader, Store};

/// The partition of the commands.
const PARTITION: i16 = 0;

/// The location of a store.
#[derive(Clone, Debug)]
pub enum Location {
    /// The data directory of a SQLite store.
    Folder(PathBuf),
    /// A database of PostgreSQL.
    Postgres(postgres::Settings),
}

impl Location {
    /// The store at this URL.
    ///
    /// # Errors
    /// The URL does not name a database of PostgreSQL.
    pub fn database(url: &str) -> Result<Self, postgres::InvalidUrl> {
        postgres::Settings::parse(url).map(Self::Postgres)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Postgres(settings) => settings.name().fmt(f),
        }
    }
}

/// Opens a snapshot of a store that has one partition, or of the first partition.
///
/// # Errors
/// An error that describes what is there instead of a store, or [`Error::Store`].
pub(super) async fn snapshot(at: &Location) -> Result<Box<dyn Snapshot>, Error> {
    let snapshot = snapshot_of(at, PARTITION).await?;
    snapshot.ok_or_else(|| Error::NoTables { at: at.to_string() })
}

/// Opens a snapshot of a partition; `None` if the store has no such partition.
///
/// # Errors
/// Same as [`snapshot`].
pub(super) async fn snapshot_of(at: &Location, partition: i16) -> Result<Option<Box<dyn Snapshot>>, Error> {
    match at {
        Location::Folder(_) if partition != PARTITION => Ok(None),
        Location::Folder(folder) => {
            check_folder(folder)?;
            Ok(Some(Box::new(SqliteSnapshot::take(folder).await?)))
        }
        Location::Postgres(settings) => {
            let snapshot = PostgresSnapshot::take(settings, partition).await?;
            Ok(snapshot.map(|snapshot| Box::new(snapshot) as Box<dyn Snapshot>))
        }
    }
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
pub async fn open_folder(folder: &Path) -> Result<(impl Store, Arc<dyn Reader>, Opening), store::Error> {
    let (store, reader, opening) = Sqlite::open(folder, Sync::Full).await?;
    Ok((store, reader as Arc<dyn Reader>, opening))
}

/// Opens a store in PostgreSQL as its only writer, and creates it if it is missing. A store that is not closed is
/// refused, because a running server would lose the store to the new writer.
pub async fn open_database(
    settings: &postgres::Settings,
) -> Result<(impl Store + use<>, Arc<dyn Reader>, Opening), Error> {
    if let Some(snapshot) = PostgresSnapshot::take(settings, PARTITION).await? {
        let is_closed = snapshot.opening().is_some_and(|opening| opening.clean);
        Box::new(snapshot).close().await;
        if !is_closed {
            return Err(Error::Open { at: settings.name().to_owned() });
        }
    }
    let (store, reader, opening) = Postgres::open(settings.clone(), PARTITION).await?;
    Ok((store, reader as Arc<dyn Reader>, opening))
}

/// Splits a store in PostgreSQL into partitions for several nodes.
pub(super) async fn split(settings: &postgres::Settings, partitions: i16) -> Result<(), store::Error> {
    let of = |name: &str| {
        let name = Name::new(name).ok();
        let number = name.map(|name| partition_of(&name, usize::from(partitions.unsigned_abs())));
        number.and_then(|number| i16::try_from(number).ok()).unwrap_or_default()
    };
    Postgres::split(settings, partitions, of).await
}

/// Checks that a whole store can be imported: there is no store, or a store without queues.
///
/// # Errors
/// [`Error::NotEmpty`], or an error that says why the place can't contain a store.
pub(super) async fn expect_empty(at: &Location) -> Result<(), Error> {
    let snapshot = match snapshot(at).await {
        Err(Error::Missing { .. } | Error::Empty { .. } | Error::NoTables { .. }) => return Ok(()),
        snapshot => snapshot?,
    };
    let queues = snapshot.reader().queues().await;
    let served = snapshot.refuse_server();
    snapshot.close().await;
    served?;
    if queues?.is_empty() { Ok(()) } else { Err(Error::NotEmpty { at: at.to_string() }) }
}

/// Checks that a folder may contain a store.
///
/// # Errors
/// [`Error`] describes what is there instead.
pub fn check_folder(folder: &Path) -> Result<(), Error> {
    let at = || folder.to_owned();
    let unreadable = |source| Error::Unreadable { at: at(), source };
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(Error::NotAFolder { at: at() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::Missing { at: at() }),
        Err(error) => return Err(unreadable(error)),
    }
    let database = folder.join("deltaq.db");
    // Opening a pipe could block forever.
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
