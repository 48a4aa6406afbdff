//! Opens the journal at the location in the settings.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use deltaq_journal::postgres::{self, Postgres, Protection};
use deltaq_journal::recovery::Contents;
use deltaq_journal::sqlite::{self, Sqlite};
use deltaq_journal::store::{Opening, Reader, Store};
use deltaq_journal::writer;
use deltaq_journal::{Journal, WriterOptions};
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_types::{Durability, StoreKind};
use tokio::task::JoinHandle;

use super::{Error, disk, waiting};
use crate::config::{self, Storage};
use crate::http::StoreInfo;

/// The partition of a standalone server, which has the whole database.
const PARTITION: i16 = 0;

/// The location of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A data directory.
    Folder(PathBuf),
    /// A database, as `user@host/database`.
    Database(String),
}

impl Place {
    /// The absolute path of the folder, or the name of the database.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Folder(path) => std::path::absolute(path).as_ref().unwrap_or(path).display().to_string(),
            Self::Database(name) => name.clone(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Folder(_) => "data directory",
            Self::Database(_) => "database",
        };
        write!(f, "{kind} {}", self.name())
    }
}

/// The open journal.
pub(super) struct Opened {
    pub(super) journal: Option<Journal>,
    pub(super) writing: Option<JoinHandle<writer::Ended>>,
    pub(super) contents: Contents,
    /// `None` without a journal.
    pub(super) place: Option<Place>,
    pub(super) store: StoreInfo,
}

/// The parts of the server that the journal needs.
pub(super) struct Parts<'a> {
    pub(super) storage: &'a Storage,
    pub(super) clock: &'a Clock,
    pub(super) metrics: &'a Metrics,
    pub(super) shutdown: &'a Shutdown,
}

/// Opens the store that the settings name, and starts the writer.
pub(super) async fn open(parts: Parts<'_>) -> Result<Opened, Error> {
    let storage = parts.storage;
    if storage.in_memory {
        let (contents, store) = (Contents::default(), StoreInfo::MEMORY);
        return Ok(Opened { journal: None, writing: None, contents, place: None, store });
    }
    if storage.store.is_some() {
        let (settings, place) = database(storage)?;
        let opened = Postgres::open(settings, PARTITION).await;
        let failed = |source| Error::Store { place: place.clone(), source };
        let (store, reader, opening) = opened.map_err(failed)?;
        let info = in_postgres(store.protection(), &place);
        return parts.start((store, reader as Arc<dyn Reader>, opening), place, info).await;
    }
    let (sync, durability) = match storage.sync {
        config::Sync::Full => (sqlite::Sync::Full, Durability::Full),
        config::Sync::Normal => (sqlite::Sync::Normal, Durability::Normal),
    };
    let place = Place::Folder(storage.data_dir.clone());
    let opened = Sqlite::open(&storage.data_dir, sync).await;
    let (store, reader, opening) = opened.map_err(|source| Error::Store { place: place.clone(), source })?;
    let info = StoreInfo { kind: StoreKind::Sqlite, durability, is_replicated: None, is_awaited: false };
    parts.start((store, reader as Arc<dyn Reader>, opening), place, info).await
}

/// The database that the settings name.
pub(super) fn database(storage: &Storage) -> Result<(postgres::Settings, Place), Error> {
    let url = storage.store.as_deref().unwrap_or_default();
    let settings = postgres::Settings::parse(url).map_err(|source| Error::Database { source })?;
    let place = Place::Database(settings.name().to_owned());
    Ok((settings, place))
}

/// Waits until the database that the settings name can be used. Without a database, there is nothing to wait for. `waits` is called
/// before each wait.
pub(super) async fn until_reached(
    storage: &Storage,
    waits: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    if storage.in_memory || storage.store.is_none() {
        return Ok(());
    }
    let (settings, _) = database(storage)?;
    waiting::until_reached(&settings, waits).await
}

/// Whether opening the store has failed because its database went away.
pub(super) async fn is_lost(storage: &Storage, error: &Error) -> bool {
    let (Some(_), Error::Store { source, .. }) = (&storage.store, error) else { return false };
    match database(storage) {
        Ok((settings, _)) => postgres::is_broken(source) || postgres::away(&settings).await.is_some(),
        Err(_) => false,
    }
}

pub(super) fn writer_options(storage: &Storage) -> WriterOptions {
    WriterOptions { uncommitted_bytes_max: storage.max_uncommitted_bytes, ..WriterOptions::default() }
}

impl Parts<'_> {
    async fn start<S: Store>(
        self,
        opened: (S, Arc<dyn Reader>, Opening),
        place: Place,
        store: StoreInfo,
    ) -> Result<Opened, Error> {
        let Self { storage, clock, metrics, shutdown } = self;
        let options = writer_options(storage);
        let observer = Arc::new(metrics.of_journal());
        let opened = writer::open(opened, clock.clone(), observer, shutdown.cut().clone(), options).await;
        let failed = |source| Error::Recovery { place: place.clone(), source };
        let (journal, writer, contents) = opened.map_err(failed)?;
        let writing = shutdown.spawn_on_own_thread("journal writer", writer.run());
        let writing = Some(writing.map_err(|source| Error::Thread { purpose: "the journal", source })?);
        if let Place::Folder(folder) = &place {
            let (low, of_disk) = (storage.min_free_bytes, metrics.of_disk());
            let watch = disk::watch(folder.clone(), low, journal.clone(), of_disk, shutdown.clone());
            shutdown.spawn("disk watch", watch);
        }
        Ok(Opened { journal: Some(journal), writing, contents, place: Some(place), store })
    }
}

/// Describes which failures commits in the database survive. Logs a warning if they do not survive a power loss.
pub(super) fn in_postgres(protection: &Protection, place: &Place) -> StoreInfo {
    let Protection { version, is_durable, is_replicated } = protection;
    tracing::info!(database = place.name(), version, is_durable, is_replicated, "using PostgreSQL");
    if !is_durable {
        tracing::warn!(
            "fsync or synchronous_commit of the database is off: a power loss of its machine loses acknowledged changes"
        );
    }
    let durability = if *is_durable { Durability::Full } else { Durability::Normal };
    StoreInfo {
        kind: StoreKind::Postgres,
        durability,
        is_replicated: Some(*is_replicated),
        is_awaited: false,
    }
}
