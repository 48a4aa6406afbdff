//! The rows of series, of which there is one for each queue and hour.

use deltaq_journal::store::{SERIES_ROWS_MAX, SeriesRow};

use super::*;

fn series_row(hour: u32, queue: u32, content: &[u8]) -> SeriesRow {
    SeriesRow { hour, queue: QueueId(queue), content: content.to_vec() }
}

/// All rows of series, newest first, by pages.
async fn all_series(reader: &Arc<dyn Reader>) -> Vec<SeriesRow> {
    let (mut found, mut before): (Vec<SeriesRow>, _) = (Vec::new(), None);
    loop {
        let page = reader.series(before).await.unwrap();
        assert!(page.len() <= SERIES_ROWS_MAX);
        let Some(last) = page.last() else { return found };
        before = Some((last.hour, last.queue));
        found.extend(page);
    }
}

pub(crate) async fn a_row_of_series_replaces_that_of_its_queue_and_hour(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let contents: [&[u8]; 3] = [&[1], &[1, 0, 255, 10], &[]];
    let rows = vec![
        series_row(500_000, 2, contents[0]),
        series_row(500_000, 0, contents[1]),
        series_row(499_999, u32::MAX, contents[2]),
    ];
    store.write(Writes { series: rows.clone(), ..Writes::default() }).await.unwrap();
    assert_eq!(all_series(&reader).await, rows, "the newest hour first, and the largest id first");
    let newer = series_row(500_000, 2, b"newer");
    // Beside an event, as a commit writes it.
    let journal = vec![journal_row(1, 1..=1, "a")];
    store.write(Writes { series: vec![newer.clone()], journal, ..Writes::default() }).await.unwrap();
    store.close().await;
    let (store, reader, _) = place.open().await;
    assert_eq!(all_series(&reader).await, [newer, rows[1].clone(), rows[2].clone()]);
    assert_eq!(rvs(&reader, 1).await, [1]);
    store.close().await;
}

pub(crate) async fn rows_of_series_of_other_hours_are_removed(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let count = u32::try_from(SERIES_ROWS_MAX).unwrap() + 7;
    let rows: Vec<_> = (0..count).map(|hour| series_row(hour, hour % 3, &[1, 2, 3])).collect();
    store.write(Writes { series: rows.clone(), ..Writes::default() }).await.unwrap();
    assert_eq!(all_series(&reader).await.len(), rows.len());
    // The rows of the same write are removed too.
    let series = vec![series_row(5, 9, &[1]), series_row(40, 9, &[1])];
    store.write(Writes { series, series_hours: Some(10..40), ..Writes::default() }).await.unwrap();
    let kept: Vec<u32> = all_series(&reader).await.iter().map(|row| row.hour).collect();
    assert_eq!(kept, (10..40).rev().collect::<Vec<_>>());
    store.close().await;
}

pub(crate) async fn rows_of_series_of_an_earlier_epoch_are_fenced(place: &impl Place) {
    let (store, _, first) = place.open().await;
    store.close().await;
    let (mut store, reader, _) = place.open().await;
    store.epoch = first.epoch;
    let fenced = store.write(Writes { series: vec![series_row(1, 1, &[1])], ..Writes::default() }).await;
    assert!(matches!(&fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    assert_eq!(all_series(&reader).await, []);
    store.reopen().await.unwrap();
    store.close().await;
}
