//! Rows are removed as requested, in short steps, and no other rows.

use super::*;

pub(crate) async fn removed_runs_are_removed(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let numbers = async |queue| runs(&reader, queue).await.iter().map(|run| run.number).collect::<Vec<_>>();
    let rows = [1, 2].into_iter().flat_map(|queue| (0..6).map(move |number| run_row(queue, number, "a")));
    store.write(Writes { runs: rows.collect(), ..Writes::default() }).await.unwrap();
    let remove = |removed_runs| Writes { removed_runs, ..Writes::default() };
    store.write(remove(vec![(QueueId(1), 0..2), (QueueId(7), 0..9)])).await.unwrap();
    assert_eq!((numbers(1).await, numbers(2).await), (vec![5, 4, 3, 2], vec![5, 4, 3, 2, 1, 0]));
    let removed_runs = vec![(QueueId(1), 0..3), (QueueId(2), 4..5), (QueueId(2), 3..3)];
    store.write(remove(removed_runs)).await.unwrap();
    assert_eq!((numbers(1).await, numbers(2).await), (vec![5, 4, 3], vec![5, 3, 2, 1, 0]));
    store.close().await;
}

pub(crate) async fn trimmed_rows_are_removed(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let rows = vec![
        journal_row(1, 1..=3, "a"),
        journal_row(2, 1..=1, "a"),
        journal_row(1, 4..=6, "a"),
        journal_row(1, 7..=7, "a"),
    ];
    store.write(journal(rows)).await.unwrap();
    let trim = |rv| Writes { trimmed: vec![(QueueId(1), Rv::new(rv))], ..Writes::default() };
    // A row stays while any of its events is retained.
    store.write(trim(2)).await.unwrap();
    assert_eq!(rvs(&reader, 1).await, [3, 6, 7]);
    store.write(trim(5)).await.unwrap();
    assert_eq!(rvs(&reader, 1).await, [6, 7]);
    store.write(trim(u64::MAX)).await.unwrap();
    assert_eq!(rvs(&reader, 1).await, [0; 0]);
    assert_eq!(rvs(&reader, 2).await, [1]);
    store.close().await;
}

/// The writer forgets the rows that it has asked to trim, so none of them may stay: a row that stays is not removed before the next
/// start.
pub(crate) async fn a_trim_within_the_bounds_removes_all_its_rows(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let most = u64::from(REMOVED_ROWS_MAX);
    let rows = |queue, count: u64| {
        let events = "e".repeat(usize::try_from(REMOVED_BYTES_MAX / count).unwrap());
        let row = move |rv| JournalRow { events: events.clone(), ..journal_row(queue, rv..=rv, "a") };
        (1..=count + 1).map(row).collect::<Vec<_>>()
    };
    // As many rows as one write removes, and as many bytes; few large rows; a single one that is larger.
    for (queue, count) in [(1, most), (2, 8), (3, 1)] {
        store.write(journal(rows(queue, count))).await.unwrap();
        let trimmed = vec![(QueueId(queue), Rv::new(count))];
        store.write(Writes { trimmed, ..Writes::default() }).await.unwrap();
        assert_eq!(rvs(&reader, queue).await, [count + 1], "all {count} rows at once");
    }
    // The bounds are those of a queue, not of a write.
    for queue in [4, 5] {
        store.write(journal(rows(queue, most))).await.unwrap();
    }
    let trimmed = [4, 5].map(|queue| (QueueId(queue), Rv::new(most))).to_vec();
    store.write(Writes { trimmed, ..Writes::default() }).await.unwrap();
    for queue in [4, 5] {
        assert_eq!(rvs(&reader, queue).await, [most + 1], "queue {queue}");
    }
    store.close().await;
}

pub(crate) async fn one_write_removes_a_bounded_number_of_rows(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let most = u64::from(REMOVED_ROWS_MAX);
    let most_runs = u64::from(REMOVED_RUNS_MAX);
    let writes = Writes {
        runs: (0..most_runs + 2).map(|number| run_row(1, number, "a")).collect(),
        ..journal(journal_rows(1, most + 2))
    };
    store.write(writes).await.unwrap();
    let remove = Writes {
        trimmed: vec![(QueueId(1), Rv::new(most + 1))],
        removed_runs: vec![(QueueId(1), 0..u64::MAX)],
        ..Writes::default()
    };
    store.write(remove.clone()).await.unwrap();
    assert_eq!(rvs(&reader, 1).await, [most + 1, most + 2], "the oldest go");
    assert_eq!(runs(&reader, 1).await.len(), 2);
    store.write(remove).await.unwrap();
    assert_eq!(rvs(&reader, 1).await, [most + 2]);
    assert_eq!(runs(&reader, 1).await.len(), 2, "the numbers from 0 on are gone");
    // Three rows, each larger than the bound of one write: they are removed one by one.
    let mut random = fastrand::Rng::with_seed(1);
    let bytes = usize::try_from(REMOVED_BYTES_MAX).unwrap() * 8 / 7 + 1_000;
    let events: String = std::iter::repeat_with(|| char::from(random.u8(0..128))).take(bytes).collect();
    let large = |id| JournalRow { events: events.clone(), ..journal_row(2, id..=id, "a") };
    let next = most + 3;
    store.write(journal((next..next + 3).map(large).collect())).await.unwrap();
    let trim = Writes { trimmed: vec![(QueueId(2), Rv::new(next + 1))], ..Writes::default() };
    for left in [2, 1, 1] {
        store.write(trim.clone()).await.unwrap();
        assert_eq!(rvs(&reader, 2).await.len(), left);
    }
    store.close().await;
}

pub(crate) async fn emptying_a_queue_leaves_other_queues_alone(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let rows = |queue: u32| {
        let first = u64::from(queue) * 10;
        let runs: Vec<_> = (0..5).map(|number| run_row(queue, number, "a")).collect();
        let rows: Vec<_> = (1..=5).map(|rv| journal_row(queue, rv..=rv, "a")).collect();
        Writes { runs, queues: vec![queue_row(queue, first, &first.to_string())], ..journal(rows) }
    };
    for queue in 1..=3 {
        store.write(rows(queue)).await.unwrap();
    }
    let left = async || (runs(&reader, 2).await.len(), all_rows(&reader, 2).await.len());
    let emptied = Writes { emptied: vec![(QueueId(2), 3), (QueueId(8), 3)], ..Writes::default() };
    for count in [2, 0, 0] {
        store.write(emptied.clone()).await.unwrap();
        assert_eq!(left().await, (count, count));
    }
    for queue in [1, 3] {
        let rows = rows(queue);
        assert!(runs(&reader, queue).await.into_iter().rev().eq(rows.runs));
        assert_eq!(all_rows(&reader, queue).await, rows.journal);
    }
    assert_eq!(reader.queues().await.unwrap().len(), 3, "what is left of a queue stays");
    store.close().await;
}

pub(crate) async fn only_deleted_queues_are_forgotten(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let gone = |id: u32| QueueRow { deleted: true, ..queue_row(id, id.into(), "gone") };
    let queues: Vec<_> = (1..=20).map(gone).chain([queue_row(21, 21, "live")]).collect();
    store.write(Writes { queues: queues.clone(), ..Writes::default() }).await.unwrap();
    let forgotten = [1, 3, 21, 99].into_iter().chain(5..=20).map(QueueId).collect();
    store.write(Writes { forgotten, ..Writes::default() }).await.unwrap();
    let left = [1, 3, 20].map(|at| queues[at].clone());
    assert_eq!(reader.queues().await.unwrap(), left, "2, 4 and the one that lives");
    store.close().await;
}

/// The numbers for new queues must not decrease when the last deleted queue is forgotten.
pub(crate) async fn numbers_of_forgotten_queues_are_retained(place: &impl Place) {
    let numbers = async || {
        let (store, _, opening) = place.open().await;
        store.close().await;
        opening.numbers
    };
    let gone = |id: u32, rv| QueueRow { deleted: true, rv: Rv::new(rv), ..queue_row(id, id.into(), "gone") };
    let (mut store, _, _) = place.open().await;
    let queues = vec![gone(1, 70), QueueRow { rv: Rv::new(90), ..queue_row(2, 2, "live") }, gone(5, 30)];
    store.write(Writes { queues, ..Writes::default() }).await.unwrap();
    store.close().await;
    let expected = Numbers { queue: 5, version: 5, floor: Rv::new(70) };
    assert_eq!(numbers().await, expected, "a live queue counts on for itself");
    let (mut store, _, _) = place.open().await;
    for forgotten in [vec![QueueId(1)], vec![QueueId(5)]] {
        store.write(Writes { forgotten, ..Writes::default() }).await.unwrap();
    }
    store.close().await;
    assert_eq!(numbers().await, expected);
    let (mut store, _, _) = place.open().await;
    store.write(Writes { queues: vec![gone(6, 40)], ..Writes::default() }).await.unwrap();
    store.write(Writes { forgotten: vec![QueueId(6)], ..Writes::default() }).await.unwrap();
    store.close().await;
    assert_eq!(numbers().await, Numbers { queue: 6, version: 6, floor: Rv::new(70) }, "none of them falls");
}
