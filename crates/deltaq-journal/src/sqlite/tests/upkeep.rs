//! The size of the files stays bounded.

use deltaq_engine::id::Rv;

use super::*;

const MIB: u64 = 1 << 20;

fn bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// A journal row with this many bytes of events.
fn large(id: u64, bytes: usize) -> Writes {
    let row = JournalRow { events: random_text(bytes), ..journal_row(1, id..=id) };
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

async fn wait_until_empty(store: &mut Owner, wal: &Path) {
    for _ in 0..10_000 {
        if bytes(wal) == 0 {
            return;
        }
        store.upkeep().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the WAL has {} bytes", bytes(wal));
}

#[tokio::test]
async fn the_wal_of_a_quiet_store_is_emptied() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open_with(Sync::Normal).await;
    let wal = scratch.file("deltaq.db-wal");
    for id in 1..=3 {
        store.write(large(id, 1_000_000)).await.unwrap();
        let written = bytes(&wal);
        assert!(written > MIB / 2);
        for _ in 0..9 {
            store.upkeep().await.unwrap();
        }
        assert_eq!(bytes(&wal), written, "it is not quiet for long enough");
        wait_until_empty(&mut store, &wal).await;
        assert_eq!(last_rv(&reader).await, Some(id));
    }
    // A reader prevents it for as long as it reads.
    let paths = Paths::new(&scratch.data()).unwrap();
    let mut staying = connect::reader(&paths.database).await.unwrap();
    for id in 4..=44 {
        store.write(large(id, 1_000_000)).await.unwrap();
        if id == 4 {
            sqlx::raw_sql("BEGIN; SELECT count(*) FROM journal").execute(&mut staying).await.unwrap();
        }
    }
    for _ in 0..20 {
        store.upkeep().await.unwrap();
    }
    assert!(bytes(&wal) > 30 * MIB, "the reader needs it");
    staying.close().await.unwrap();
    wait_until_empty(&mut store, &wal).await;
    assert_eq!(last_rv(&reader).await, Some(44));
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
    for id in 2..=110 {
        store.write(large(id, 1_000_000)).await.unwrap();
        store.upkeep().await.unwrap();
    }
    let wal = scratch.file("deltaq.db-wal");
    assert!(bytes(&wal) > 90 * MIB, "what the reader needs stays");
    staying.close().await.unwrap();
    // The maintenance of an idle store is enough; the next write truncates the file.
    for id in 111..10_000 {
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

/// The WAL is copied in time only if the estimate of a write is not too low.
#[tokio::test]
async fn a_write_adds_no_more_to_the_wal_than_is_estimated() {
    let text = |number: usize, bytes: usize| {
        let text: Arc<str> = format!("{number}{}", "x".repeat(bytes)).into();
        SharedText { id: TextId::of(&text), text }
    };
    let (short, long) =
        ((0..200).map(|number| text(number, 5_000)), (0..40).map(|number| text(number, 90_000)));
    let (short, long) = (short.collect::<Vec<_>>(), long.collect::<Vec<_>>());
    let ids = |texts: &[SharedText]| texts.iter().map(|shared| shared.id).collect::<Vec<_>>();
    let journal = |rows: std::ops::RangeInclusive<u64>, texts: &[SharedText], bytes: usize| {
        let row = |rv| JournalRow {
            texts: texts.to_vec(),
            events: random_text(bytes),
            ..journal_row(u32::try_from(rv % 5).unwrap(), rv..=rv)
        };
        Writes { journal: rows.map(row).collect(), ..Writes::default() }
    };
    let runs = |numbers: std::ops::Range<u64>, bytes: usize, texts: &[SharedText]| {
        let row = |number| {
            let queue = u32::try_from(number % 7).unwrap();
            RunRow { texts: texts.to_vec(), ..run_row(queue, number, &random_text(bytes)) }
        };
        Writes { runs: numbers.map(row).collect(), ..Writes::default() }
    };
    let queues = |deleted| {
        let row = |id: u32| QueueRow { deleted, ..queue_row(id, id.into(), &id.to_string()) };
        Writes { queues: (1..=200).map(row).collect(), ..Writes::default() }
    };
    let writes = [
        journal(1..=1, &[], 10),
        journal(2..=200, &[], 10),
        journal(201..=300, &short, 10),
        journal(301..=330, &short[..1], 100_000),
        runs(0..100, 10, &[]),
        runs(100..200, 9_000, &short[..40]),
        queues(false),
        Writes { texts: short.clone(), ..Writes::default() },
        Writes { texts: long.clone(), ..Writes::default() },
        Writes {
            texts: long.iter().map(|shared| SharedText { text: "y".into(), ..shared.clone() }).collect(),
            ..Writes::default()
        },
        Writes { texts: long.clone(), ..Writes::default() },
        Writes { unused_texts: ids(&short), ..Writes::default() },
        Writes { unused_texts: ids(&long), ..Writes::default() },
        Writes { removed_runs: (0..7).map(|queue| (QueueId(queue), 90..150)).collect(), ..Writes::default() },
        queues(true),
        Writes { forgotten: (1..=200).map(QueueId).collect(), ..Writes::default() },
        Writes { trimmed: (0..5).map(|queue| (QueueId(queue), Rv::new(200))).collect(), ..Writes::default() },
        Writes { emptied: (0..7).map(|queue| (QueueId(queue), 1_000)).collect(), ..Writes::default() },
    ];
    let scratch = Scratch::new();
    let wal = scratch.file("deltaq.db-wal");
    let (mut store, _, _) = scratch.open_with(Sync::Normal).await;
    for (index, writes) in writes.into_iter().enumerate() {
        // The WAL starts over.
        store.reopen().await.unwrap();
        let (before, estimate) = (bytes(&wal), Packed::of(writes.clone()).wal_bytes());
        store.write(writes).await.unwrap();
        let added = bytes(&wal) - before;
        assert!((1..=estimate).contains(&added), "write {index} added {added} bytes, estimated {estimate}");
    }
    store.close().await;
}

/// Otherwise one damaged row would keep all unused texts.
#[tokio::test]
async fn a_text_without_an_id_hides_no_other() {
    let scratch = Scratch::new();
    let (mut store, _, _) = scratch.open_with(Sync::Normal).await;
    let text: Arc<str> = "{}".into();
    let id = TextId::of(&text);
    store.write(Writes { texts: vec![SharedText { id, text }], ..Writes::default() }).await.unwrap();
    let mut connection =
        SqliteConnection::connect(scratch.file("deltaq.db").to_str().unwrap()).await.unwrap();
    for wrong in ["", "no id", "0123"] {
        sqlx::query("INSERT INTO texts VALUES (?1, 'x'), (?2, 'x'), (CAST(?2 || ?2 AS BLOB), 'x')")
            .bind(format!("0{wrong}"))
            .bind(format!("{}{wrong}", id.to_string().to_uppercase()))
            .execute(&mut connection)
            .await
            .unwrap();
    }
    connection.close().await.unwrap();
    assert_eq!(Store::texts(&mut store.store, None, 9).await.unwrap(), [(id, 2)]);
    store.close().await;
}

#[tokio::test]
async fn unused_pages_are_freed() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open_with(Sync::Normal).await;
    for id in 1..=900 {
        store.write(large(id, 100_000)).await.unwrap();
        store.upkeep().await.unwrap();
    }
    store.write(Writes { emptied: vec![(QueueId(1), 800)], ..Writes::default() }).await.unwrap();
    let (mut size, mut most, mut steps) = (store.upkeep().await.unwrap(), 0, 0);
    while steps < 100_000 && (most < 60 * MIB || size.free > 16 * MIB) {
        store.write(Writes { clean: Some(true), ..Writes::default() }).await.unwrap();
        size = store.upkeep().await.unwrap();
        most = most.max(size.free);
        steps += 1;
    }
    assert!(most > 60 * MIB, "{} MiB were free", most / MIB);
    assert!(size.free <= 16 * MIB, "{} MiB are free", size.free / MIB);
    assert_eq!(reader.journal(QueueId(1), Rv::ZERO, usize::MAX).await.unwrap().len(), 100);
    // Copies the whole WAL.
    store.reopen().await.unwrap();
    assert!(bytes(&scratch.file("deltaq.db")) < 30 * MIB, "{} MiB", bytes(&scratch.file("deltaq.db")) / MIB);
    store.close().await;
    let (store, _, _) = scratch.open().await;
    store.close().await;
}
