//! Loads the texts that rows share. Rows of one process that refer to the same text share its memory.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use deltaq_engine::id::Rv;
use parking_lot::Mutex;

use super::store::{Error, JournalRow, RunRow, SharedText};
use super::text_id::TextId;

/// How many texts are read at once.
const FETCHED: usize = 64;
/// After loading at least this many bytes, and as many as were in use the last time, texts that nothing uses any more are
/// forgotten. Until then they take memory.
const FORGET_BYTES: usize = 16 << 20;

/// The position of a row in its queue, and the last event that it contains.
type Version = (u64, Rv);

/// A row that may refer to texts.
pub(super) trait Refers {
    fn texts(&mut self) -> &mut [SharedText];
    /// Identifies the row among the rows of its queue and table. A row that replaces it has another version.
    fn version(&self) -> Version;
}

impl Refers for JournalRow {
    fn texts(&mut self) -> &mut [SharedText] {
        &mut self.texts
    }

    fn version(&self) -> Version {
        (self.prev_rv.get(), self.last_rv)
    }
}

impl Refers for RunRow {
    fn texts(&mut self) -> &mut [SharedText] {
        &mut self.texts
    }

    fn version(&self) -> Version {
        (self.number, Rv::ZERO)
    }
}

/// The texts that were loaded and are in use.
#[derive(Debug, Default)]
pub(super) struct SharedTexts(Mutex<Loaded>);

#[derive(Debug, Default)]
struct Loaded {
    texts: HashMap<TextId, Weak<str>>,
    /// Bytes of the texts that were loaded since unused ones were forgotten.
    bytes: usize,
    /// Bytes of the texts that were in use then.
    in_use: usize,
}

impl SharedTexts {
    /// Forgets all texts: those in use stay where they are used, and the others are freed.
    pub(super) fn forget(&self) {
        *self.0.lock() = Loaded::default();
    }

    /// Reads rows, then the texts to which they refer. A text that the store has lost stays empty, and the decoder of the
    /// row reports it.
    ///
    /// The writer may remove a row and its text after the row was read. So if a text is not found, the rows are read
    /// again, until they no longer have a row without its text. A text is lost if its row was there before and after the
    /// text was looked for.
    pub(super) async fn with_rows<R: Refers, Rows, Texts>(
        &self,
        read: impl Fn() -> Rows,
        fetch: impl Fn(String) -> Texts,
    ) -> Result<Vec<R>, Error>
    where
        Rows: Future<Output = Result<Vec<R>, Error>>,
        Texts: Future<Output = Result<Vec<SharedText>, Error>>,
    {
        let mut earlier = HashSet::new();
        loop {
            let mut rows = read().await?;
            let lacking = self.load(&mut rows, &fetch).await?;
            if lacking.is_subset(&earlier) {
                return Ok(rows);
            }
            earlier = lacking;
        }
    }

    /// Returns the rows that lack a text.
    async fn load<R: Refers, Texts: Future<Output = Result<Vec<SharedText>, Error>>>(
        &self,
        rows: &mut [R],
        fetch: &impl Fn(String) -> Texts,
    ) -> Result<HashSet<Version>, Error> {
        let wanted: HashSet<TextId> =
            rows.iter_mut().flat_map(|row| row.texts().iter().map(|shared| shared.id)).collect();
        if wanted.is_empty() {
            return Ok(HashSet::new());
        }
        let mut found: HashMap<TextId, Arc<str>> = {
            let loaded = self.0.lock();
            let in_use = |id| Some((id, loaded.texts.get(&id)?.upgrade()?));
            wanted.iter().copied().filter_map(in_use).collect()
        };
        let others: Vec<String> =
            wanted.iter().filter(|id| !found.contains_key(id)).map(TextId::to_string).collect();
        for ids in others.chunks(FETCHED) {
            for SharedText { id, text } in fetch_readable(ids, fetch).await? {
                if TextId::of(&text) == id {
                    found.insert(id, self.share(id, text));
                }
            }
        }
        let mut lacking = HashSet::new();
        for row in rows {
            let version = row.version();
            for shared in row.texts() {
                match found.get(&shared.id) {
                    Some(text) => shared.text = text.clone(),
                    None => _ = lacking.insert(version),
                }
            }
        }
        Ok(lacking)
    }

    /// The text, shared with another reader that has loaded it in the meantime.
    fn share(&self, id: TextId, text: Arc<str>) -> Arc<str> {
        let mut loaded = self.0.lock();
        if let Some(text) = loaded.texts.get(&id).and_then(Weak::upgrade) {
            return text;
        }
        loaded.bytes += text.len();
        if loaded.bytes > FORGET_BYTES.max(loaded.in_use) {
            loaded.bytes = text.len();
            let mut in_use = 0;
            loaded.texts.retain(|_, text| {
                text.upgrade().is_some_and(|text| {
                    in_use += text.len();
                    true
                })
            });
            loaded.in_use = in_use;
        }
        loaded.texts.insert(id, Arc::downgrade(&text));
        text
    }
}

/// Fetches texts, without those that the database can't read.
async fn fetch_readable<Texts: Future<Output = Result<Vec<SharedText>, Error>>>(
    ids: &[String],
    fetch: &impl Fn(String) -> Texts,
) -> Result<Vec<SharedText>, Error> {
    match fetch(ids.join(",")).await {
        Err(Error::Damaged { .. }) => {}
        fetched => return fetched,
    }
    let mut texts = Vec::new();
    for id in ids {
        match fetch(id.clone()).await {
            Err(Error::Damaged { .. }) => {}
            fetched => texts.extend(fetched?),
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use deltaq_engine::time::Time;

    use super::super::store::{Epoch, QueueId};
    use super::*;

    fn row(prev_rv: u64, contents: &[&str]) -> JournalRow {
        let texts = contents.iter().map(|text| SharedText { id: TextId::of(text), text: Arc::default() });
        JournalRow {
            queue: QueueId(1),
            epoch: Epoch(1),
            prev_rv: Rv::new(prev_rv),
            first_rv: Rv::new(prev_rv + 1),
            last_rv: Rv::new(prev_rv + 1),
            at: Time::from_micros(1),
            format: 1,
            texts: texts.collect(),
            text_bytes: 0,
            events: String::new(),
            checksum: 0,
        }
    }

    fn contents(rows: &[JournalRow]) -> Vec<(u64, String)> {
        let texts = |row: &JournalRow| row.texts.iter().map(|shared| shared.text.to_string()).collect();
        rows.iter().map(|row| (row.prev_rv.get(), texts(row))).collect()
    }

    fn damaged() -> Error {
        Error::Damaged { found: "a page".to_owned() }
    }

    /// Reads rows `from` on, each with a text that has the number of its row. After each of the first `trims` reads, the
    /// oldest row is removed, with its text.
    async fn read_under_trims(trims: u64, lost: &[u64]) -> (Vec<(u64, String)>, u64) {
        const ROWS: u64 = 10;
        let (reads, oldest) = (Cell::new(0), Cell::new(0));
        let read = async || {
            let from = oldest.get();
            reads.set(reads.get() + 1);
            oldest.set(from + u64::from(reads.get() <= trims));
            Ok((from..ROWS).map(|number| row(number, &[&number.to_string()])).collect::<Vec<JournalRow>>())
        };
        let fetch = async |ids: String| {
            let there = (oldest.get()..ROWS).filter(|number| !lost.contains(number));
            let texts = there.map(|number| Arc::<str>::from(number.to_string()));
            let texts = texts.map(|text| SharedText { id: TextId::of(&text), text });
            Ok(texts.filter(|shared| ids.contains(&shared.id.to_string())).collect())
        };
        let rows = SharedTexts::default().with_rows(read, fetch).await.unwrap();
        (contents(&rows), reads.get())
    }

    #[tokio::test]
    async fn rows_that_are_trimmed_while_they_are_read_are_no_damage() {
        let whole = |from: u64| (from..10).map(|number| (number, number.to_string())).collect::<Vec<_>>();
        for trims in 0..10 {
            assert_eq!(read_under_trims(trims, &[]).await, (whole(trims), trims + 1));
        }
        // A lost text is found as soon as no other row has gone.
        for trims in 0..6 {
            let mut expected = whole(trims);
            expected[2].1.clear();
            let (found, reads) = read_under_trims(trims, &[trims + 2]).await;
            assert_eq!(found, expected);
            assert!(reads <= trims + 2, "{reads} reads");
        }
    }

    #[tokio::test]
    async fn only_the_texts_that_are_damaged_are_lost() {
        let fetches = RefCell::new(Vec::new());
        let read = async || Ok(vec![row(1, &["a", "b"]), row(2, &["c"]), row(3, &["d"])]);
        let fetch = async |ids: String| {
            let has = |text: &&str| ids.contains(&TextId::of(text).to_string());
            fetches.borrow_mut().push(ids.split(',').count());
            // The page of one text can't be read, another text has changed, and a third one is missing.
            if has(&"b") {
                return Err(damaged());
            }
            let there = [("a", "a"), ("c", "C")].into_iter().filter(|(text, _)| has(text));
            Ok(there.map(|(text, now)| SharedText { id: TextId::of(text), text: now.into() }).collect())
        };
        let rows: Vec<JournalRow> = SharedTexts::default().with_rows(read, fetch).await.unwrap();
        let expected = [(1, "a"), (2, ""), (3, "")].map(|(row, text)| (row, text.to_owned()));
        assert_eq!(contents(&rows), expected);
        // The database is asked for all texts at once, and then for each by itself.
        assert_eq!(fetches.borrow()[..5], [4, 1, 1, 1, 1]);
        // Another failure says nothing about the texts.
        let read = async || Ok(vec![row(1, &["a"])]);
        let fetch = async |_| Err(Error::Full { source: None });
        let failed: Result<Vec<JournalRow>, Error> = SharedTexts::default().with_rows(read, fetch).await;
        assert!(matches!(failed, Err(Error::Full { .. })));
    }
}
