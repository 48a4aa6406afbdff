//! The size of the files stays bounded.

use deltaq_engine::id::Rv;

use super::*;
use KeyRow;

const MIB: u64 = 1 << 20;

fn bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// A journal row with this many bytes of events.
fn large(id: u64, bytes: usize) -> Writes {
    let row = JournalRow { events: "e".repeat(bytes), ..journal_row(1, id..=id) };
    Writes { journal: vec![row], ..Writes::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wal_stays_bounded_under_readers() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open_with(Sync::Normal).await;
    let read = |_| {
        let reader = Arc::clone(&reader);
        async move {
            for after in (0..100).cycle() {
                reader.journal(QueueId(1), Rv::new(after), 100_000).await.unwrap();
            }
        }
    };
    let reads: tokio::task::JoinSet<()> = (0..2).map(read).collect();
    let mut most = 0;
    for id in 1..=3_000 {
        // `upkeep` is never called.
        store.write(large(id, 100_000)).await.unwrap();
        most = most.max(bytes(&scratch.file("deltaq.db-wal")));
    }
    drop(reads);
    assert!(most > 30 * MIB && most < 120 * MIB, "the WAL had {} MiB of 290", most / MIB);
    store.close().await;
}

#[tokio::test]
async fn a_long_reader_blocks_no_write_and_the_wal_shrinks_afterwards() {
    let scratch = Scratch::new();
    let (mut store, _, _) = scratch.open_with(Sync::Normal).await;
    store.write(large(1, 100)).await.unwrap();
    let paths = Paths::new(&scratch.data()).unwrap();
    let mut staying = connect::reader(&paths.database).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM journal").execute(&mut staying).await.unwrap();
    for id in 2..=100 {
        store.write(large(id, 1_000_000)).await.unwrap();
        store.upkeep().await.unwrap();
    }
    let wal = scratch.file("deltaq.db-wal");
    assert!(bytes(&wal) > 90 * MIB, "what the reader needs stays");
    staying.close().await.unwrap();
    // The maintenance of an idle store is enough; the next write truncates the file.
    for id in 101..10_000 {
        store.upkeep().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        if id % 100 == 0 {
            store.write(large(id, 100)).await.unwrap();
        }
        if bytes(&wal) < 50 * MIB {
            break;
        }
    }
    assert!(bytes(&wal) < 50 * MIB, "{} MiB", bytes(&wal) / MIB);
    store.close().await;
}

#[tokio::test]
async fn unused_pages_are_freed() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open_with(Sync::Normal).await;
    let item = "i".repeat(100_000);
    for round in 0..8 {
        let row = |slot| KeyRow { item: Some(item.clone()), ..key_row(1, slot, "a", 1) };
        let keys = (round * 100..round * 100 + 100).map(row).collect();
        store.write(Writes { keys, ..Writes::default() }).await.unwrap();
        store.upkeep().await.unwrap();
    }
    store.write(Writes { emptied: vec![(QueueId(1), 700)], ..Writes::default() }).await.unwrap();
    let (mut size, mut most, mut steps) = (store.upkeep().await.unwrap(), 0, 0);
    while steps < 100_000 && (most < 60 * MIB || size.free > 16 * MIB) {
        store.write(Writes { clean: Some(true), ..Writes::default() }).await.unwrap();
        size = store.upkeep().await.unwrap();
        most = most.max(size.free);
        steps += 1;
    }
    assert!(most > 60 * MIB, "{} MiB were free", most / MIB);
    assert!(size.free <= 16 * MIB, "{} MiB are free", size.free / MIB);
    assert_eq!(reader.keys(QueueId(1), 0, 1_000).await.unwrap().len(), 100);
    // Copies the whole WAL.
    store.reopen().await.unwrap();
    assert!(bytes(&scratch.file("deltaq.db")) < 30 * MIB, "{} MiB", bytes(&scratch.file("deltaq.db")) / MIB);
    store.close().await;
    let (store, _, _) = scratch.open().await;
    store.close().await;
}
