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
use crate::store::{Holder, JournalRow, QueueId, QueueRow, Reader, RunRow, SharedText};
use crate::text_id::TextId;

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

/// A text of this many bytes. Compression shortens it by an eighth at most.
pub(super) fn random_text(bytes: usize) -> String {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    std::iter::repeat_with(|| char::from(random.u8(0..128))).take(bytes).collect()
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

/// The shortest events that are compressed, and the longest that are not.
#[tokio::test]
async fn long_events_are_compressed_and_come_back() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open().await;
    let text: Arc<str> = "x".repeat(5_000).into();
    let shared = SharedText { id: TextId::of(&text), text };
    let texts = [Vec::new(), vec![shared.clone()]].into_iter().cycle();
    let events = [2, 1_023, 1_024, 1_025, 100_000, 3_000_000].into_iter();
    let row = |(rv, (bytes, texts)): (u64, (usize, Vec<SharedText>))| JournalRow {
        text_bytes: texts.iter().map(|shared| shared.text.len() as u64).sum(),
        texts,
        events: format!("[{}]", " ".repeat(bytes - 2)),
        ..journal_row(1, rv..=rv)
    };
    let rows: Vec<_> = (1..).zip(events.flat_map(|bytes| [bytes, bytes]).zip(texts)).map(row).collect();
    let texts = vec![shared];
    store.write(Writes { texts, journal: rows.clone(), ..Writes::default() }).await.unwrap();
    let bytes = rows.iter().map(JournalRow::bytes).collect::<Vec<_>>();
    let segments = reader.segments(QueueId(1), 0).await.unwrap();
    assert_eq!(segments.iter().map(|segment| segment.bytes).collect::<Vec<_>>(), bytes);
    assert_eq!(reader.journal(QueueId(1), Rv::ZERO, usize::MAX).await.unwrap(), rows);
    let (history, _) = reader.history(QueueId(1), Rv::MAX, usize::MAX).await.unwrap();
    assert_eq!(history, rows.iter().rev().cloned().collect::<Vec<_>>());
    let mut connection = connect::reader(&scratch.file("deltaq.db")).await.unwrap();
    let stored =
        "SELECT count(*), sum(length(CAST(events AS BLOB))) FROM journal WHERE typeof(events) = 'blob'";
    let (count, stored): (i64, i64) = sqlx::query_as(stored).fetch_one(&mut connection).await.unwrap();
    assert!(count == 8 && stored < 2_000, "{count} rows with {stored} bytes");
    connection.close().await.unwrap();
    // A range of bytes is about the events as they are read.
    let first = reader.journal(QueueId(1), Rv::new(8), 100_000).await.unwrap();
    assert_eq!(first.len(), 1);
    store.close().await;
    let mut connection =
        SqliteConnection::connect(scratch.file("deltaq.db").to_str().unwrap()).await.unwrap();
    for damage in ["events = zeroblob(9)", "events = substr(events, 2)", "text_bytes = text_bytes - 1"] {
        let change = format!("UPDATE journal SET {damage} WHERE last_rv = 11");
        sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&mut connection).await.unwrap();
        let (store, reader, _) = scratch.open().await;
        let read = reader.journal(QueueId(1), Rv::new(10), usize::MAX).await;
        assert!(matches!(read, Err(Error::Damaged { .. })), "{damage}: {read:?}");
        store.close().await;
    }
    connection.close().await.unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    let _ = fs::create_dir(to);
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
