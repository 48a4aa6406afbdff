//! Lost, restored and moved files; failed writes.

use deltaq_engine::id::Rv;

use super::*;

/// A store with rows 1 to 9, and a copy of its folder from the time of row 5.
async fn with_older_copy(sync: Sync) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let older = scratch.0.join("older");
    let (mut store, _, _) = scratch.open_with(sync).await;
    store.write(rows(1..=5)).await.unwrap();
    copy_folder(&scratch.data(), &older);
    store.write(rows(6..=9)).await.unwrap();
    store.close().await;
    (scratch, older)
}

/// Restores database and WAL from the copy.
fn put_back(scratch: &Scratch, older: &Path) {
    for name in ["deltaq.db", "deltaq.db-wal"] {
        fs::copy(older.join(name), scratch.file(name)).unwrap();
    }
    let _ = fs::remove_file(scratch.file("deltaq.db-shm"));
}

#[tokio::test]
async fn a_store_that_lost_what_was_acknowledged_is_refused_until_the_mark_is_removed() {
    let (scratch, older) = with_older_copy(Sync::Full).await;
    put_back(&scratch, &older);
    for _ in 0..2 {
        let message = scratch.refusal(Sync::Full).await;
        assert!(message.contains("4 journal rows that were acknowledged are missing"), "{message}");
        assert!(message.contains("remove") && message.contains("deltaq.mark"), "{message}");
    }
    fs::remove_file(scratch.file("deltaq.mark")).unwrap();
    let (mut store, reader, _) = scratch.open().await;
    assert_eq!((store.last_row(), last_rv(&reader).await), (5, Some(5)));
    store.write(rows(6..=6)).await.unwrap();
    store.close().await;
    let (store, _, _) = scratch.open().await;
    store.close().await;
}

#[tokio::test]
async fn a_lost_wal_or_database_is_refused_and_can_be_put_back() {
    for name in ["deltaq.db-wal", "deltaq.db"] {
        let scratch = Scratch::new();
        let (mut store, _, _) = scratch.open().await;
        store.write(rows(1..=5)).await.unwrap();
        // The files as a killed process leaves them.
        let killed = scratch.0.join("killed");
        copy_folder(&scratch.data(), &killed);
        store.close().await;
        fs::remove_dir_all(scratch.data()).unwrap();
        fs::rename(&killed, scratch.data()).unwrap();
        fs::remove_file(scratch.file("deltaq.db-shm")).unwrap();

        let aside = scratch.0.join("aside");
        fs::rename(scratch.file(name), &aside).unwrap();
        for _ in 0..2 {
            let refused = Sqlite::open(&scratch.data(), Sync::Full).await.map(drop);
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{name}: {refused:?}");
        }
        if name == "deltaq.db" {
            // SQLite would remove a WAL without its database.
            fs::remove_file(scratch.file("deltaq.mark")).unwrap();
            let message = scratch.refusal(Sync::Full).await;
            assert!(message.contains("missing or empty, but its WAL exists"), "{message}");
        }
        fs::rename(&aside, scratch.file(name)).unwrap();
        let (store, reader, _) = scratch.open().await;
        assert_eq!(last_rv(&reader).await, Some(5), "{name} is back");
        store.close().await;
    }
}

#[tokio::test]
async fn an_empty_folder_with_a_mark_is_refused() {
    let (scratch, _) = with_older_copy(Sync::Full).await;
    fs::remove_file(scratch.file("deltaq.db")).unwrap();
    let message = scratch.refusal(Sync::Full).await;
    assert!(message.contains("9 journal rows"), "{message}");
    assert!(!scratch.file("deltaq.db").exists(), "nothing is made in its place");
}

#[tokio::test]
async fn a_restored_older_list_of_queues_is_detected() {
    let scratch = Scratch::new();
    let older = scratch.0.join("older");
    let (mut store, _, _) = scratch.open().await;
    store.write(rows(1..=5)).await.unwrap();
    copy_folder(&scratch.data(), &older);
    store.write(Writes { queues: vec![queue_row(1, 3, "one")], ..Writes::default() }).await.unwrap();
    store.close().await;
    put_back(&scratch, &older);
    let message = scratch.refusal(Sync::Full).await;
    assert!(message.contains("3 changes to the list of queues"), "{message}");
}

#[tokio::test]
async fn with_normal_sync_a_power_loss_may_take_the_newest_rows() {
    let (scratch, older) = with_older_copy(Sync::Normal).await;
    put_back(&scratch, &older);
    let message = scratch.refusal(Sync::Normal).await;
    assert!(message.contains("4 journal rows"), "the machine was not started anew: {message}");
    // The same mark, written before a reboot.
    let other = "00000000-0000-0000-0000-000000000000".to_owned();
    let reached = Reached { row: 9, version: 0 };
    let folder = || Folder::open(&scratch.data()).unwrap();
    drop(HighWaterMark::start(folder(), reached, Sync::Full, other.clone()).unwrap());
    let message = scratch.refusal(Sync::Normal).await;
    assert!(message.contains("4 journal rows"), "those rows were synced: {message}");
    drop(HighWaterMark::start(folder(), reached, Sync::Normal, other).unwrap());
    let (store, reader, _) = scratch.open().await;
    assert_eq!(last_rv(&reader).await, Some(5));
    store.close().await;
    let (store, _, _) = scratch.open().await;
    store.close().await;
}

#[tokio::test]
async fn the_mark_outlasts_the_removal_of_all_rows() {
    let (scratch, older) = with_older_copy(Sync::Full).await;
    for _ in 0..2 {
        let (mut store, reader, _) = scratch.open().await;
        store.write(Writes { trimmed: vec![(QueueId(1), Rv::new(9))], ..Writes::default() }).await.unwrap();
        assert_eq!((store.last_row(), last_rv(&reader).await), (9, None));
        store.close().await;
    }
    let (mut store, _, _) = scratch.open().await;
    // A row that is written and removed in one write also counts.
    store.write(Writes { emptied: vec![(QueueId(1), 9)], ..rows(10..=10) }).await.unwrap();
    assert_eq!(store.last_row(), 10);
    store.close().await;
    put_back(&scratch, &older);
    let message = scratch.refusal(Sync::Full).await;
    assert!(message.contains("5 journal rows that were acknowledged are missing"), "{message}");
}

#[tokio::test]
async fn a_changed_mark_is_damage() {
    let (scratch, _) = with_older_copy(Sync::Full).await;
    for text in ["", "garbage", "deltaq-mark 1 row=1"] {
        fs::write(scratch.file("deltaq.mark"), text).unwrap();
        let message = scratch.refusal(Sync::Full).await;
        assert!(
            message.contains("deltaq.mark is damaged") && message.contains("remove this file"),
            "{message}"
        );
    }
    fs::remove_file(scratch.file("deltaq.mark")).unwrap();
    let (store, reader, _) = scratch.open().await;
    assert_eq!(last_rv(&reader).await, Some(9));
    store.close().await;
}

/// Opening a pipe for reading blocks until it has a writer.
#[tokio::test]
async fn a_pipe_in_place_of_a_file_is_refused_at_once() {
    for name in ["deltaq.db", "deltaq.lock", "deltaq.mark"] {
        let (scratch, _) = with_older_copy(Sync::Full).await;
        fs::remove_file(scratch.file(name)).unwrap();
        let made = std::process::Command::new("mkfifo").arg(scratch.file(name)).status().unwrap();
        assert!(made.success());
        let message = scratch.refusal(Sync::Full).await;
        assert!(message.contains(name) && message.contains("not a regular file"), "{message}");
        let message = SqliteSnapshot::take(&scratch.data()).await.map(drop).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("not a regular file"), "{message}");
    }
}

#[tokio::test]
async fn a_mark_that_is_removed_or_replaced_under_the_open_store_is_written_again() {
    for replaced in [false, true] {
        let (scratch, older) = with_older_copy(Sync::Full).await;
        let (mut store, _, _) = scratch.open().await;
        fs::remove_file(scratch.file("deltaq.mark")).unwrap();
        if replaced {
            fs::write(scratch.file("deltaq.mark"), "of another store").unwrap();
        }
        store.write(rows(10..=10)).await.unwrap();
        store.write(rows(11..=11)).await.unwrap();
        store.close().await;
        let (store, _, _) = scratch.open().await;
        assert_eq!(store.last_row(), 11);
        store.close().await;
        put_back(&scratch, &older);
        let message = scratch.refusal(Sync::Full).await;
        assert!(message.contains("6 journal rows that were acknowledged are missing"), "{message}");
    }
}

#[tokio::test]
async fn a_file_that_is_moved_from_an_open_store_is_detected_at_the_next_write() {
    for name in ["deltaq.db", "deltaq.db-wal", "deltaq.lock"] {
        for replaced in [false, true] {
            let scratch = Scratch::new();
            let (mut store, _, _) = scratch.open().await;
            store.write(rows(1..=1)).await.unwrap();
            let (file, aside) = (scratch.file(name), scratch.0.join("aside"));
            fs::rename(&file, &aside).unwrap();
            if replaced {
                fs::copy(&aside, &file).unwrap();
            }
            let refused = store.write(rows(2..=2)).await;
            let word = if replaced { "replaced" } else { "removed" };
            let message = refused.expect_err(name).to_string();
            assert!(message.contains(word) && message.contains(name), "{message}");
            assert!(store.write(rows(3..=3)).await.is_err(), "{name}");
            assert!(matches!(store.reopen().await, Err(Error::Replaced { .. })), "{name}");
            // The same file is put back, and nothing is lost.
            fs::rename(&aside, &file).unwrap();
            store.reopen().await.unwrap();
            store.write(rows(3..=3)).await.unwrap();
            store.close().await;
            let (store, reader, _) = scratch.open().await;
            assert_eq!((last_rv(&reader).await, store.last_row()), (Some(3), 3), "{name}");
            store.close().await;
        }
    }
}

/// All files of a folder.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

#[tokio::test]
async fn no_file_is_written_into_a_folder_that_takes_the_place_of_the_data_directory() {
    for (has_mark, wrote) in [(true, true), (true, false), (false, true), (false, false)] {
        let scratch = Scratch::new();
        let (mut store, reader, _) = scratch.open().await;
        store.write(rows(1..=1)).await.unwrap();
        let (other, aside) = (scratch.0.join("other"), scratch.0.join("aside"));
        let (mut second, _, _) = Sqlite::open(&other, Sync::Full).await.unwrap();
        let writes = Writes { epoch: second.epoch, ..rows(1..=5) };
        second.write(writes).await.unwrap();
        if !has_mark {
            fs::remove_file(other.join("deltaq.mark")).unwrap();
        }
        fs::rename(scratch.data(), &aside).unwrap();
        // With a WAL, as a killed process leaves it.
        copy_folder(&other, &scratch.data());
        second.close().await;
        let before = contents(&scratch.data());
        if wrote {
            let refused = store.write(rows(2..=2)).await;
            assert!(matches!(refused, Err(Error::Replaced { .. })), "{refused:?}");
        }
        assert!(matches!(store.reopen().await, Err(Error::Replaced { .. })));
        assert!(
            reader.journal(QueueId(1), Rv::ZERO, usize::MAX).await.is_err(),
            "they are rows of another store"
        );
        store.close().await;
        assert_eq!(contents(&scratch.data()), before, "has_mark {has_mark}, wrote {wrote}");
        let (moved, reader, _) = Sqlite::open(&aside, Sync::Full).await.unwrap();
        assert_eq!(last_rv(&reader).await, Some(if wrote { 2 } else { 1 }));
        moved.close().await;
    }
}

#[tokio::test]
async fn the_mark_stays_in_a_folder_that_is_renamed() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.data()).unwrap();
    let (first, second) = (Reached { row: 1, version: 1 }, Reached { row: 2, version: 1 });
    let folder = Folder::open(&scratch.data()).unwrap();
    let mut mark = HighWaterMark::start(folder, first, Sync::Full, String::new()).unwrap();
    let aside = scratch.0.join("aside");
    fs::rename(scratch.data(), &aside).unwrap();
    fs::create_dir(scratch.data()).unwrap();
    let read = || mark::read(&aside.join("deltaq.mark")).unwrap().map(|record| record.reached);
    mark.set(second).unwrap();
    assert_eq!(read(), Some(second));
    fs::remove_file(aside.join("deltaq.mark")).unwrap();
    mark.set(first).unwrap();
    assert_eq!(read(), Some(first), "it is written again where it was");
    assert_eq!(contents(&scratch.data()), []);
    fs::remove_dir_all(&aside).unwrap();
    assert!(mark.set(second).is_err(), "there is no folder for it");
    assert_eq!(contents(&scratch.data()), []);
}

#[tokio::test]
async fn reopening_continues_after_a_failed_write() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open().await;
    store.write(rows(1..=2)).await.unwrap();
    let other = Paths::new(&scratch.data()).unwrap();
    for id in 3..6 {
        // The second row exists already, so the first row is rolled back.
        let twice =
            Writes { journal: [rows(id..=id).journal, rows(2..=2).journal].concat(), ..Writes::default() };
        // As a single statement, and as a transaction of several statements.
        let clean = (id % 2 == 0).then_some(false);
        let twice = Writes { clean, ..twice };
        let failed = store.write(twice).await;
        assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?}");
        store.reopen().await.unwrap();
        assert_eq!(last_rv(&reader).await, Some(id - 1));
        // The failed transaction holds no lock.
        let mut connection = connect::writer(&other, Sync::Full).await.unwrap();
        sqlx::query(sql::BEGIN).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        store.write(rows(id..=id)).await.unwrap();
    }
    store.close().await;
    let (store, reader, _) = scratch.open().await;
    assert_eq!(last_rv(&reader).await, Some(5));
    store.close().await;
}

#[tokio::test]
async fn reopening_settles_a_dropped_write() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open().await;
    for round in 0..50_u64 {
        let id = last_rv(&reader).await.unwrap_or_default() + 1;
        {
            let write = store.write(rows(id..=id));
            let mut write = std::pin::pin!(write);
            let looks = round % 3;
            for _ in 0..looks {
                let look =
                    std::future::poll_fn(|context| std::task::Poll::Ready(write.as_mut().poll(context)));
                if look.await.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        if store.write(rows(id..=id)).await.is_ok() {
            // The first write was never polled, or was complete when it was dropped.
            continue;
        }
        store.reopen().await.unwrap();
        let settled = last_rv(&reader).await;
        tokio::task::yield_now().await;
        assert_eq!(last_rv(&reader).await, settled, "nothing comes later");
    }
    store.close().await;
}

#[tokio::test]
async fn an_epoch_may_be_begun_again_while_its_commits_are_in_doubt() {
    let scratch = Scratch::new();
    let (store, _, _) = scratch.open().await;
    let paths = Paths::new(&scratch.data()).unwrap();
    let mut writer = connect::writer(&paths, Sync::Full).await.unwrap();
    let own = store.epoch;
    let next = Epoch(own.0 + 1);
    assert_eq!(connect::next_epoch(&mut writer, own, false).await.unwrap(), next);
    // The server learned of none of these commits.
    for _ in 0..3 {
        assert_eq!(connect::next_epoch(&mut writer, own, true).await.unwrap(), next);
    }
    assert!(matches!(connect::next_epoch(&mut writer, own, false).await, Err(Error::Fenced { .. })));
    writer.close().await.unwrap();
    store.close().await;
}

/// The lock of the folder keeps other servers out, except on file systems that lose locks.
#[tokio::test]
async fn a_store_that_another_process_has_taken_over_is_not_taken_back() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open().await;
    store.write(rows(1..=1)).await.unwrap();
    let paths = Paths::new(&scratch.data()).unwrap();
    let mut other = connect::writer(&paths, Sync::Full).await.unwrap();
    connect::next_epoch(&mut other, store.epoch, false).await.unwrap();
    other.close().await.unwrap();
    for _ in 0..2 {
        assert!(store.write(rows(2..=2)).await.is_err());
        let fenced = store.reopen().await;
        assert!(matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    }
    assert_eq!(last_rv(&reader).await, Some(1));
    store.close().await;
}

#[tokio::test]
async fn numbers_that_sqlite_cannot_order_are_refused_before_anything_happens() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open().await;
    let row = journal_row(1, 1..=1);
    let large = JournalRow { last_rv: Rv::new(1 << 63), ..row };
    let refused = store.write(Writes { journal: vec![large], ..Writes::default() }).await;
    assert!(refused.unwrap_err().to_string().contains("9223372036854775808"));
    store.write(rows(1..=1)).await.unwrap();
    assert_eq!(last_rv(&reader).await, Some(1));
    store.close().await;
}

#[tokio::test]
async fn a_full_disk_is_reported_and_writes_continue_when_there_is_room() {
    let scratch = Scratch::new();
    let (mut store, reader, _) = scratch.open().await;
    store.write(rows(1..=1)).await.unwrap();
    // SQLite's error is the same as for a full disk.
    let connections = store.store.connections.as_mut().unwrap();
    sqlx::raw_sql("PRAGMA max_page_count = 1").execute(&mut connections.writer).await.unwrap();
    let row = JournalRow { events: random_text(1 << 20), ..journal_row(1, 2..=2) };
    let large = Writes { journal: vec![row], ..Writes::default() };
    let full = store.write(large.clone()).await;
    assert!(matches!(full, Err(Error::Full { source: Some(_) })), "{full:?}");
    store.reopen().await.unwrap();
    assert_eq!(last_rv(&reader).await, Some(1));
    store.write(large).await.unwrap();
    assert_eq!(last_rv(&reader).await, Some(2));
    store.close().await;
}
