//! Writes are complete, atomic and permanent.

use super::*;

pub(crate) async fn a_new_store_is_empty_and_clean(place: &impl Place) {
    let (mut store, reader, opening) = place.open().await;
    assert_eq!(opening, Opening { clean: true, numbers: Numbers::default(), epoch: Epoch(1), ..opening });
    assert_eq!(reader.queues().await.unwrap(), []);
    assert_eq!(runs(&reader, 1).await, []);
    assert_eq!(reader.oldest_run(QueueId(1)).await.unwrap(), None);
    assert_eq!(all_rows(&reader, 1).await, []);
    assert_eq!(reader.history(QueueId(1), Rv::MAX, 100).await.unwrap(), (Vec::new(), None));
    assert_eq!(reader.segments(QueueId(1), 100).await.unwrap(), []);
    store.write(Writes::default()).await.unwrap();
    store.close().await;
}

pub(crate) async fn written_rows_are_read_and_survive_a_restart(place: &impl Place) {
    let writes = Writes {
        journal: vec![journal_row(1, 1..=4, "a"), journal_row(2, 1..=1, "b")],
        queues: vec![queue_row(1, 1, "one"), QueueRow { deleted: true, ..queue_row(2, 2, "two") }],
        runs: vec![run_row(1, 1 << 40, "b"), run_row(1, 0, "a"), run_row(2, 1, "c")],
        clean: Some(false),
        ..Writes::default()
    };
    let (mut store, reader, _) = place.open().await;
    store.write(writes.clone()).await.unwrap();
    let check = async |reader: &Arc<dyn Reader>| {
        assert_eq!(reader.queues().await.unwrap(), writes.queues);
        assert_eq!(runs(reader, 1).await, writes.runs[..2]);
        assert_eq!(runs(reader, 2).await, writes.runs[2..]);
        assert_eq!(all_rows(reader, 1).await, writes.journal[..1]);
        assert_eq!(all_rows(reader, 2).await, writes.journal[1..]);
    };
    check(&reader).await;
    store.close().await;
    let (mut store, reader, opening) = place.open().await;
    assert_eq!(opening, Opening { clean: false, epoch: Epoch(2), ..opening });
    check(&reader).await;
    store.write(Writes { clean: Some(true), ..Writes::default() }).await.unwrap();
    store.close().await;
    let (store, _, opening) = place.open().await;
    assert!(opening.clean);
    store.close().await;
}

pub(crate) async fn a_queue_row_replaces_the_row_of_its_id(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let first = vec![queue_row(1, 1, "one"), queue_row(2, 2, "two")];
    store.write(Writes { queues: first.clone(), ..Writes::default() }).await.unwrap();
    // A deletion in the same write frees the name.
    let deleted = QueueRow { deleted: true, ..queue_row(1, 3, "one") };
    let again = QueueRow { first_run: 7, next_run: 9, ..queue_row(3, 4, "one") };
    let queues = vec![deleted.clone(), again.clone()];
    store.write(Writes { queues, ..Writes::default() }).await.unwrap();
    assert_eq!(reader.queues().await.unwrap(), [deleted, first[1].clone(), again.clone()]);
    let later = QueueRow { first_run: 9, next_run: 1 << 60, rv: Rv::new(99), ..again };
    store.write(Writes { queues: vec![later.clone()], ..Writes::default() }).await.unwrap();
    assert_eq!(reader.queues().await.unwrap()[2], later);
    store.close().await;
}

pub(crate) async fn runs_are_only_added(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let first = run_row(1, 4, "a");
    store.write(Writes { runs: vec![first.clone()], ..Writes::default() }).await.unwrap();
    let again = vec![run_row(1, 5, "b"), run_row(1, 4, "b")];
    store.write(Writes { runs: again.clone(), ..Writes::default() }).await.unwrap_err();
    store.reopen().await.unwrap();
    assert_eq!(runs(&reader, 1).await, std::slice::from_ref(&first));
    store.write(Writes { runs: again[..1].to_vec(), ..Writes::default() }).await.unwrap();
    assert_eq!(runs(&reader, 1).await, [again[0].clone(), first]);
    store.close().await;
}

pub(crate) async fn the_fields_are_written_in_order(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    // A row of the same write can be removed.
    let writes = Writes {
        journal: journal_rows(1, 3),
        runs: vec![run_row(1, 4, "old"), run_row(1, 5, "new"), run_row(2, 0, "emptied")],
        removed_runs: vec![(QueueId(1), 0..5)],
        trimmed: vec![(QueueId(1), Rv::new(2))],
        emptied: vec![(QueueId(2), 10)],
        ..Writes::default()
    };
    store.write(writes.clone()).await.unwrap();
    assert_eq!(runs(&reader, 1).await, writes.runs[1..2]);
    assert_eq!(runs(&reader, 2).await, []);
    assert_eq!(all_rows(&reader, 1).await, writes.journal[2..]);
    store.close().await;
}

pub(crate) async fn writes_are_atomic(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let first = Writes { queues: vec![queue_row(1, 1, "one")], ..journal(journal_rows(1, 2)) };
    store.write(first.clone()).await.unwrap();
    // Two live queues with the same name: only the last field of the write is wrong.
    let wrong = Writes { queues: vec![queue_row(2, 2, "one")], ..journal(vec![journal_row(1, 3..=3, "a")]) };
    store.write(wrong).await.unwrap_err();
    let good = journal(vec![journal_row(1, 3..=3, "a")]);
    store.write(good.clone()).await.expect_err("nothing can be written before the store is opened again");
    store.reopen().await.unwrap();
    assert_eq!(all_rows(&reader, 1).await, first.journal);
    assert_eq!(reader.queues().await.unwrap(), first.queues);
    store.write(good).await.unwrap();
    assert_eq!(rvs(&reader, 1).await, [1, 2, 3]);
    // Two rows of a queue can't follow the same event.
    for rows in [[4..=4, 4..=9], [4..=4, 3..=9]] {
        let rows = rows.map(|rvs| journal_row(1, rvs, "a")).to_vec();
        store.write(journal(rows)).await.unwrap_err();
        store.reopen().await.unwrap();
        assert_eq!(rvs(&reader, 1).await, [1, 2, 3]);
    }
    store.close().await;
}

pub(crate) async fn one_write_takes_many_rows(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let mut next = 1;
    for count in [1, 7, 8, 9, 63, 64, 65, 200] {
        let rows: Vec<_> = (next..next + count).map(|rv| journal_row(1, rv..=rv, "a")).collect();
        next += count;
        store.write(journal(rows)).await.unwrap();
    }
    assert_eq!(rvs(&reader, 1).await, (1..next).collect::<Vec<_>>());
    let writes = Writes {
        queues: (1..=100).map(|id| queue_row(id, id.into(), &format!("queue {id}"))).collect(),
        runs: (0..150).rev().map(|number| run_row(1, number, &format!("key {number}"))).collect(),
        ..Writes::default()
    };
    store.write(writes.clone()).await.unwrap();
    assert_eq!(reader.queues().await.unwrap(), writes.queues);
    assert_eq!(runs(&reader, 1).await, writes.runs);
    store.close().await;
}

pub(crate) async fn texts_are_returned_unchanged(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let texts = ["", "\0", "a\0b\u{1}", "\"\\'%_`", "näïve 🦀\u{10ffff}", "\r\n\t", "x'00'", "1e5", "NULL"];
    let large = "z".repeat(3 << 20);
    let mut writes = Writes::default();
    for (index, text) in (0_u32..).zip(texts.iter().copied().chain([large.as_str()])) {
        let rv = u64::from(index) + 1;
        let row = journal_row(1, rv..=rv, "");
        writes.journal.push(JournalRow { events: text.to_owned(), at: Time::from_micros(u64::MAX), ..row });
        writes.runs.insert(0, RunRow { entries: text.to_owned(), ..run_row(u32::MAX, rv, "") });
        // A name is short.
        let row = queue_row(index, rv, if text.len() > 1_000 { "large" } else { text });
        writes.queues.push(QueueRow {
            state: text.to_owned(),
            created_at: Time::from_micros(u64::MAX),
            ..row
        });
    }
    store.write(writes.clone()).await.unwrap();
    assert_eq!(all_rows(&reader, 1).await, writes.journal);
    assert_eq!(runs(&reader, u32::MAX).await, writes.runs);
    assert_eq!(reader.queues().await.unwrap(), writes.queues);
    store.close().await;
}

pub(crate) async fn reopening_keeps_all_rows(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    store.reopen().await.unwrap();
    let writes = Writes {
        queues: vec![queue_row(1, 1, "one")],
        runs: vec![run_row(1, 0, "a")],
        ..journal(journal_rows(1, 2))
    };
    store.write(writes.clone()).await.unwrap();
    for _ in 0..2 {
        store.reopen().await.unwrap();
        assert_eq!(reader.queues().await.unwrap(), writes.queues);
        assert_eq!(runs(&reader, 1).await, writes.runs);
        assert_eq!(all_rows(&reader, 1).await, writes.journal);
    }
    store.write(journal(vec![journal_row(1, 3..=3, "a")])).await.unwrap();
    assert_eq!(rvs(&reader, 1).await, [1, 2, 3]);
    store.close().await;
}

pub(crate) async fn upkeep_returns_the_size(place: &impl Place) {
    let (mut store, _, _) = place.open().await;
    let before = store.upkeep().await.unwrap();
    // A store may compress texts, so these are random.
    let mut random = fastrand::Rng::with_seed(1);
    let rows = (0..100).map(|number| {
        let entries = std::iter::repeat_with(|| random.alphanumeric()).take(20_000).collect();
        RunRow { entries, ..run_row(1, number, "a") }
    });
    store.write(Writes { runs: rows.collect(), ..Writes::default() }).await.unwrap();
    let after = store.upkeep().await.unwrap();
    assert!(after.bytes >= before.bytes + 900_000, "{before:?} {after:?}");
    assert!(after.free <= after.bytes);
    store.close().await;
}

/// A writer that has lost the store to another writer must not write.
pub(crate) async fn a_write_of_an_earlier_epoch_is_fenced(place: &impl Place) {
    let (mut store, _, first) = place.open().await;
    store.write(journal(vec![journal_row(1, 1..=1, "a")])).await.unwrap();
    store.close().await;
    let (mut store, reader, second) = place.open().await;
    assert!(second.epoch > first.epoch);
    let row = journal(vec![journal_row(1, 2..=2, "a")]);
    // As a single statement, and as a transaction of several statements.
    for writes in [row.clone(), Writes { clean: Some(true), ..row.clone() }] {
        store.epoch = first.epoch;
        let fenced = store.write(writes).await;
        assert!(matches!(&fenced, Err(Error::Fenced { own, .. }) if *own == first.epoch), "{fenced:?}");
        assert_eq!(rvs(&reader, 1).await, [1], "nothing is written");
        store.reopen().await.unwrap();
        assert!(store.epoch > second.epoch);
    }
    store.write(row).await.unwrap();
    assert_eq!(rvs(&reader, 1).await, [1, 2]);
    store.close().await;
}
