//! Tests of the SQLite store alone. The suite contains the rules of every store.

mod files;
mod losses;
mod upkeep;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::journal::store::suite::{Owner, Place, journal_row, queue_row};
use crate::journal::store::{Holder, JournalRow, QueueId, Reader, suite};

/// A folder that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("deltaq-sqlite-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    /// The data directory, which the store creates.
    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.data().join(name)
    }

    async fn open(&self) -> (Owner<Sqlite>, Arc<SqliteReader>, Opening) {
        self.open_with(Sync::Full).await
    }

    async fn open_with(&self, sync: Sync) -> (Owner<Sqlite>, Arc<SqliteReader>, Opening) {
        let (store, reader, opening) = Sqlite::open(&self.data(), sync).await.unwrap();
        (Owner::new(store, &opening), reader, opening)
    }

    /// Why the store can't be opened.
    async fn refusal(&self, sync: Sync) -> String {
        Sqlite::open(&self.data(), sync).await.expect_err("the store must be refused").to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place for Scratch {
    type Store = Sqlite;

    async fn open(&self) -> (Owner<Sqlite>, Arc<dyn Reader>, Opening) {
        let (store, reader, opening) = self.open().await;
        (store, reader, opening)
    }
}

suite::suite!(Scratch::new());

/// One row of a queue for each id.
fn rows(ids: std::ops::RangeInclusive<u64>) -> Writes {
    let journal = ids.map(|id| journal_row(id, 1, id..=id, "a")).collect();
    Writes { journal, ..Writes::default() }
}

async fn last_rv(reader: &SqliteReader) -> Option<u64> {
    reader.journal(QueueId(1), 0, usize::MAX).await.unwrap().last().map(|row| row.last_rv)
}

fn copy_folder(from: &Path, to: &Path) {
    let _ = fs::create_dir(to);
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
