//! Texts that rows share are stored once, and stay as long as a row refers to them.

use super::*;

fn text(content: &str) -> SharedText {
    SharedText { id: TextId::of(content), text: content.into() }
}

/// A row that refers to texts.
fn referring(queue: u32, rv: u64, texts: &[SharedText]) -> JournalRow {
    let text_bytes = texts.iter().map(|shared| shared.text.len() as u64).sum();
    JournalRow { texts: texts.to_vec(), text_bytes, ..journal_row(queue, rv..=rv, "a") }
}

fn referring_run(queue: u32, number: u64, texts: &[SharedText]) -> RunRow {
    RunRow { texts: texts.to_vec(), ..run_row(queue, number, "a") }
}

pub(crate) async fn texts_are_stored_once_and_loaded_with_their_rows(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let texts = ["{}", "\0é🦀", &"x".repeat(3 << 20)].map(text);
    let first = Writes {
        texts: texts.to_vec(),
        runs: vec![run_row(1, 2, "b"), referring_run(1, 1, &texts[1..])],
        ..journal(vec![referring(1, 1, &texts), journal_row(1, 2..=2, "a")])
    };
    store.write(first.clone()).await.unwrap();
    let again = Writes { texts: texts[..1].to_vec(), ..journal(vec![referring(2, 1, &texts[..1])]) };
    store.write(again.clone()).await.unwrap();
    let check = async |reader: &Arc<dyn Reader>| {
        assert_eq!(all_rows(reader, 1).await, first.journal);
        assert_eq!(runs(reader, 1).await, first.runs);
        assert_eq!(all_rows(reader, 2).await, again.journal);
        let (history, _) = reader.history(QueueId(1), Rv::MAX, usize::MAX).await.unwrap();
        assert_eq!(history, [first.journal[1].clone(), first.journal[0].clone()]);
        let rows = [all_rows(reader, 1).await, all_rows(reader, 2).await];
        assert!(Arc::ptr_eq(&rows[0][0].texts[0].text, &rows[1][0].texts[0].text), "one text in memory");
    };
    check(&reader).await;
    store.reopen().await.unwrap();
    check(&reader).await;
    store.close().await;
    let (store, reader, _) = place.open().await;
    check(&reader).await;
    store.close().await;
}

/// Otherwise a page of short rows with long texts would take much memory, and the journal would keep too much.
pub(crate) async fn pages_count_the_bytes_of_texts(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let long = text(&"y".repeat(1_000));
    let rows: Vec<_> = (1..=6).map(|rv| referring(1, rv, std::slice::from_ref(&long))).collect();
    let row_bytes = rows[0].bytes();
    assert!(row_bytes > 1_000);
    store.write(Writes { texts: vec![long], ..journal(rows.clone()) }).await.unwrap();
    let two = usize::try_from(2 * row_bytes).unwrap();
    assert_eq!(reader.journal(QueueId(1), Rv::ZERO, two).await.unwrap(), rows[..2]);
    let (page, next) = reader.history(QueueId(1), Rv::MAX, two + 1).await.unwrap();
    assert_eq!((page.len(), next), (3, Some(Rv::new(4))));
    let segments = reader.segments(QueueId(1), 2 * row_bytes).await.unwrap();
    assert_eq!(segments.iter().map(|segment| segment.bytes).collect::<Vec<_>>(), [2 * row_bytes; 3]);
    store.close().await;
}

pub(crate) async fn references_and_texts_are_listed(place: &impl Place) {
    let (mut store, _, _) = place.open().await;
    let count = LISTED_ROWS_MAX as usize + 10;
    let texts: Vec<_> = (0..count).map(|n| text(&n.to_string())).collect();
    // Queues on both sides of the middle of their ids, and rows without texts between those that have some. The first row
    // of each queue has some.
    let middle = 1 << 31;
    let queues = [1, middle - 1, middle, middle + 1, u32::MAX];
    for (part, queue) in queues.into_iter().enumerate() {
        let own: Vec<_> = texts.iter().skip(part).step_by(queues.len()).collect();
        let rows = (1..).zip(&own).flat_map(|(n, shared)| {
            [referring(queue, 2 * n, &[(*shared).clone()]), journal_row(queue, 2 * n + 1..=2 * n + 1, "a")]
        });
        let runs = (0..).zip(&own).flat_map(|(n, shared)| {
            [referring_run(queue, 2 * n, &[(*shared).clone()]), run_row(queue, 2 * n + 1, "b")]
        });
        let own_texts = own.iter().map(|shared| (*shared).clone()).collect();
        store
            .write(Writes { texts: own_texts, runs: runs.collect(), ..journal(rows.collect()) })
            .await
            .unwrap();
    }
    let mut ids: Vec<_> = texts.iter().map(|shared| shared.id).collect();
    ids.sort_unstable();
    let tables = [Referring::Journal, Referring::Runs].into_iter();
    for (table, limit) in tables.flat_map(|table| [1, 7, LISTED_ROWS_MAX].map(|limit| (table, limit))) {
        let (mut found, mut after) = (Vec::new(), BEFORE_ALL_ROWS);
        loop {
            let page = store.references(table, after, limit).await.unwrap();
            let Some((last, _)) = page.last() else { break };
            assert!(page.len() <= limit as usize, "{table:?}");
            after = *last;
            found.extend(page.iter().flat_map(|(_, texts)| texts.iter().map(|shared| shared.id)));
        }
        found.sort_unstable();
        assert_eq!(found, ids, "{table:?}, {limit} at a time");
    }
    let mut page_after = async |after: Option<&(TextId, u64)>| {
        Store::texts(&mut *store, after.map(|(id, _)| *id), LISTED_ROWS_MAX).await.unwrap()
    };
    let first = page_after(None).await;
    let second = page_after(first.last()).await;
    let last = page_after(second.last()).await;
    assert_eq!((first.len(), last), (LISTED_ROWS_MAX as usize, Vec::new()));
    let listed: Vec<_> = first.into_iter().chain(second).collect();
    assert_eq!(listed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    let bytes: usize = texts.iter().map(|shared| shared.text.len()).sum();
    assert_eq!(listed.iter().map(|(_, bytes)| *bytes).sum::<u64>(), bytes as u64);
    store.close().await;
}

pub(crate) async fn unused_texts_are_removed(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let texts: Vec<_> = (0..100).map(|n| text(&n.to_string())).collect();
    let rows = vec![referring(1, 1, &texts[..1])];
    store.write(Writes { texts: texts.clone(), ..journal(rows.clone()) }).await.unwrap();
    let unused_texts = texts[1..].iter().map(|shared| shared.id).chain([TextId::of("none")]).collect();
    store.write(Writes { unused_texts, ..Writes::default() }).await.unwrap();
    let left = Store::texts(&mut *store, None, LISTED_ROWS_MAX).await.unwrap();
    assert_eq!(left, [(texts[0].id, 1)]);
    assert_eq!(all_rows(&reader, 1).await, rows);
    // A text can come back, in the write of its row.
    let again = referring(1, 2, &texts[7..8]);
    store.write(Writes { texts: texts[7..8].to_vec(), ..journal(vec![again.clone()]) }).await.unwrap();
    assert_eq!(all_rows(&reader, 1).await[1], again);
    store.close().await;
}

/// Damage of a text must not hide the rows of others, nor the rest of its own row.
pub(crate) async fn rows_of_a_lost_text_are_read_without_it(place: &impl Place) {
    let (mut store, reader, _) = place.open().await;
    let (gone, changed, here) = (text("gone"), text("changed"), text("here"));
    let damaged = SharedText { text: "damaged".into(), ..changed.clone() };
    let rows = [&gone, &changed, &here].map(std::slice::from_ref);
    let rows: Vec<_> = (1..).zip(rows).map(|(rv, texts)| referring(1, rv, texts)).collect();
    let run_of_all = vec![referring_run(1, 1, &[here.clone(), gone.clone(), changed.clone()])];
    let texts = vec![here.clone(), gone.clone(), damaged];
    store.write(Writes { texts, runs: run_of_all, ..journal(rows) }).await.unwrap();
    store.write(Writes { unused_texts: vec![gone.id], ..Writes::default() }).await.unwrap();
    let read = async || {
        let (history, _) = reader.history(QueueId(1), Rv::MAX, 9_000).await.unwrap();
        let (journal, runs) = (all_rows(&reader, 1).await, runs(&reader, 1).await);
        let texts = |rows: &[JournalRow]| {
            rows.iter().map(|row| row.texts[0].text.to_string()).collect::<Vec<_>>().join(",")
        };
        let run = runs[0].texts.iter().map(|shared| shared.text.to_string()).collect::<Vec<_>>().join(",");
        [texts(&journal), texts(&history), run]
    };
    assert_eq!(read().await, [",,here", "here,,", "here,,"]);
    // Another row that has the text makes it whole.
    let again = referring(2, 1, &[gone.clone(), changed.clone()]);
    store.write(Writes { texts: vec![gone, changed], ..journal(vec![again]) }).await.unwrap();
    assert_eq!(read().await, ["gone,changed,here", "here,changed,gone", "here,gone,changed"]);
    store.close().await;
}
