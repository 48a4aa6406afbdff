//! Pages are complete and consecutive.

use super::*;

pub(crate) async fn runs_come_in_pages_newest_first(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let count = PAGE_RUNS as u64 + 10;
    let rows: Vec<_> = (0..count).map(|number| run_row(2, number, &format!("key {number}"))).collect();
    // Between the runs of two other queues.
    let all = rows.iter().cloned().chain([run_row(1, 5, "a"), run_row(u32::MAX, 0, "a")]).collect();
    store.write(Writes { runs: all, ..Writes::default() }).await.unwrap();
    let page = async |numbers| reader.runs(QueueId(2), numbers).await.unwrap();
    let newest_first =
        |numbers: std::ops::Range<usize>| rows[numbers].iter().rev().cloned().collect::<Vec<_>>();
    assert_eq!(page(0..u64::MAX).await, newest_first(10..PAGE_RUNS + 10));
    assert_eq!(page(0..10).await, newest_first(0..10));
    assert_eq!(page(4..6).await, newest_first(4..6));
    assert_eq!(page(count..u64::MAX).await, []);
    assert_eq!(page(0..0).await, []);
    assert_eq!(runs(&reader, u32::MAX).await.len(), 1);
    let oldest = async |queue| reader.oldest_run(QueueId(queue)).await.unwrap();
    assert_eq!([oldest(1).await, oldest(2).await, oldest(3).await], [Some(5), Some(0), None]);
    store.close().await;
}

pub(crate) async fn the_journal_comes_in_pages(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let mut rows = Vec::new();
    for n in 1..=10_u64 {
        let bytes = if n == 5 { 1_000 } else { 100 };
        let row = journal_row(1, n * 2 - 1..=n * 2, "a");
        rows.push(JournalRow { events: "e".repeat(bytes), ..row });
    }
    let mut all = rows.clone();
    all.insert(5, journal_row(2, 1..=1, "a"));
    store.write(journal(all)).await.unwrap();
    let page = async |after, bytes| reader.journal(QueueId(1), Rv::new(after), bytes).await.unwrap();
    assert_eq!(page(0, 300).await, rows[..3]);
    assert_eq!(page(6, 300).await, rows[3..4], "the next one is too large");
    assert_eq!(page(8, 300).await, rows[4..5], "one comes whatever its size");
    assert_eq!(page(10, 299).await, rows[5..7]);
    assert_eq!(page(10, 0).await, rows[5..6]);
    assert_eq!(page(14, usize::MAX).await, rows[7..]);
    assert_eq!(page(20, usize::MAX).await, []);
    assert_eq!(page(u64::MAX, usize::MAX).await, []);
    store.close().await;
}

pub(crate) async fn the_journal_starts_within_a_row(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let rows = vec![journal_row(1, 4..=6, "a"), journal_row(1, 7..=9, "a"), journal_row(1, 10..=10, "a")];
    store.write(journal(rows.clone())).await.unwrap();
    for (after, first) in [(0, 0), (3, 0), (4, 0), (5, 0), (6, 1), (7, 1), (8, 1), (9, 2), (10, 3), (11, 3)] {
        assert_eq!(
            reader.journal(QueueId(1), Rv::new(after), usize::MAX).await.unwrap(),
            rows[first..],
            "after {after}"
        );
    }
    store.close().await;
}

pub(crate) async fn history_is_paged_newest_first(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let rows: Vec<_> = (1..=30).map(|n| journal_row(1, n * 2 - 1..=n * 2, "a")).collect();
    let bytes = rows.iter().map(|row| row.events.len()).max().unwrap();
    store.write(journal(rows.clone())).await.unwrap();
    let wanted: Vec<_> = rows.iter().rev().cloned().collect();
    for (some, expected) in [(bytes * 4, 2..=15), (bytes * 100, 1..=1), (0, 29..=29)] {
        let (mut found, mut from, mut pages): (Vec<JournalRow>, _, _) = (Vec::new(), Rv::MAX, 0);
        loop {
            let (page, next) = reader.history(QueueId(1), from, some).await.unwrap();
            assert!(page.iter().map(|row| row.events.len()).sum::<usize>() <= (some + bytes).max(2 * bytes));
            // Each page begins with the last row of the page before.
            assert_eq!(found.pop(), page.first().filter(|_| pages > 0).cloned());
            found.extend(page);
            pages += 1;
            let Some(next) = next else { break };
            assert_eq!(found.last().map(|row| row.first_rv), Some(next));
            from = next;
        }
        assert_eq!(found, wanted);
        assert!(expected.contains(&pages), "{pages} pages of {some} bytes");
    }
    for (from, first) in [(11, 24), (12, 24), (13, 23), (1, 29), (0, 30)] {
        let page = reader.history(QueueId(1), Rv::new(from), usize::MAX).await.unwrap();
        assert_eq!(page, (wanted[first..].to_vec(), None), "from {from}");
    }
    assert_eq!(reader.history(QueueId(2), Rv::MAX, usize::MAX).await.unwrap(), (Vec::new(), None));
    // Numbers may skip between two rows.
    let skipped = JournalRow { prev_rv: Rv::new(60), ..journal_row(1, 100..=101, "a") };
    store.write(journal(vec![skipped.clone()])).await.unwrap();
    for (from, first) in
        [(60, &wanted[0]), (80, &wanted[0]), (99, &wanted[0]), (100, &skipped), (101, &skipped)]
    {
        let (page, _) = reader.history(QueueId(1), Rv::new(from), 0).await.unwrap();
        assert_eq!(page.first(), Some(first), "from {from}");
    }
    for after in [60, 80, 100] {
        assert_eq!(
            reader.journal(QueueId(1), Rv::new(after), 0).await.unwrap(),
            std::slice::from_ref(&skipped),
            "after {after}"
        );
    }
    store.close().await;
}

pub(crate) async fn segments_cover_the_journal(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let sizes = [100_usize, 100, 50, 1_000, 10, 240, 1, 250, 3];
    let rows = (1..).zip(sizes).map(|(n, bytes)| {
        let row = journal_row(1, n * 5 - 4..=n * 5, "a");
        JournalRow { events: "é".repeat(bytes / 2) + &"e".repeat(bytes % 2), ..row }
    });
    let mut rows: Vec<_> = rows.collect();
    rows.push(journal_row(2, 1..=1, "a"));
    store.write(journal(rows)).await.unwrap();
    let segment =
        |n: u64, bytes| Segment { last_rv: Rv::new(n * 5), at: Time::from_micros(1_000 + n * 5), bytes };
    assert_eq!(
        reader.segments(QueueId(1), 250).await.unwrap(),
        [segment(3, 250), segment(4, 1_000), segment(6, 250), segment(7, 1), segment(8, 250), segment(9, 3)]
    );
    assert_eq!(reader.segments(QueueId(1), u64::MAX).await.unwrap(), [segment(9, 1_754)]);
    assert_eq!(reader.segments(QueueId(1), 0).await.unwrap().len(), 9);
    store.close().await;
}
