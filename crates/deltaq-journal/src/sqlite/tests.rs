//! Tests specific to the SQLite store.

mod files;
mod losses;
mod upkeep;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;

use super::*;
use crate::snapshot::Snapshot as _;
use crate::store::{Holder, JournalRow, QueueId, QueueRow, Reader, RunRow};

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

    async fn open(&self) -> (Owner, Arc<SqliteReader>, Opening) {
        self.open_with(Sync::Full).await
    }

    async fn open_with(&self, sync: Sync) -> (Owner, Arc<SqliteReader>, Opening) {
        let (store, reader, opening) = Sqlite::open(&self.data(), sync).await.unwrap();
        (Owner { store, epoch: opening.epoch }, reader, opening)
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

/// A store in the epoch of its opening, as a writer uses it.
struct Owner {
    store: Sqlite,
    epoch: Epoch,
}

impl Owner {
    async fn write(&mut self, writes: Writes) -> Result<(), Error> {
        self.store.write(Writes { epoch: self.epoch, ..writes }).await
    }

    async fn reopen(&mut self) -> Result<(), Error> {
        self.epoch = self.store.reopen().await?;
        Ok(())
    }

    /// The id of the last journal row.
    fn last_row(&self) -> u64 {
        self.store.mark.reached().row
    }

    async fn upkeep(&mut self) -> Result<Size, Error> {
        self.store.upkeep().await
    }

    async fn close(self) {
        self.store.close().await;
    }
}

pub(super) fn journal_row(queue: u32, rvs: std::ops::RangeInclusive<u64>) -> JournalRow {
    JournalRow {
        queue: QueueId(queue),
        epoch: Epoch(1),
        prev_rv: Rv::new(rvs.start() - 1),
        first_rv: Rv::new(*rvs.start()),
        last_rv: Rv::new(*rvs.end()),
        at: Time::from_micros(1_000 + rvs.end()),
        format: 1,
        texts: Vec::new(),
        text_bytes: 0,
        events: "[]".to_owned(),
        checksum: 4,
    }
}

pub(super) fn run_row(queue: u32, number: u64, entries: &str) -> RunRow {
    let (queue, entries) = (QueueId(queue), entries.to_owned());
    RunRow { queue, number, format: 1, texts: Vec::new(), entries, checksum: 5 }
}

fn queue_row(id: u32, version: u64, name: &str) -> QueueRow {
    QueueRow {
        id: QueueId(id),
        version,
        name: name.into(),
        incarnation: 1,
        created_at: Time::from_micros(7),
        deleted: false,
        rv: Rv::new(3),
        first_run: 0,
        next_run: 0,
        state: "{}".to_owned(),
        format: 1,
        checksum: 6,
    }
}

/// One row of a queue for each event.
fn rows(rvs: std::ops::RangeInclusive<u64>) -> Writes {
    let journal = rvs.map(|rv| journal_row(1, rv..=rv)).collect();
    Writes { journal, ..Writes::default() }
}

async fn last_rv(reader: &SqliteReader) -> Option<u64> {
    reader.journal(QueueId(1), Rv::ZERO, usize::MAX).await.unwrap().last().map(|row| row.last_rv.get())
}

fn copy_folder(from: &Path, to: &Path) {
    let _ = fs::create_dir(to);
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
