//! Loads the texts that rows share. Rows of one process that refer to the same text share its memory.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::store::{Error, JournalRow, KeyRow, REMEDY, SharedText};
use super::text_id::TextId;

/// How many texts are read at once.
const FETCHED: usize = 64;
/// After loading at least this many bytes, and as many as were in use the last time, texts that nothing uses any more are
/// forgotten. Until then they take memory.
const FORGET_BYTES: usize = 16 << 20;

/// A row that may refer to texts.
pub(super) trait Refers {
    fn texts(&mut self) -> &mut [SharedText];
    /// The row's name in an error.
    fn name(&self) -> String;
}

impl Refers for JournalRow {
    fn texts(&mut self) -> &mut [SharedText] {
        &mut self.texts
    }

    fn name(&self) -> String {
        format!("journal row of queue {} (events {} to {})", self.queue, self.first_rv, self.last_rv)
    }
}

impl Refers for KeyRow {
    fn texts(&mut self) -> &mut [SharedText] {
        &mut self.texts
    }

    fn name(&self) -> String {
        format!("key row {} (queue {}, key {:?})", self.slot, self.queue, self.key)
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

    /// Reads rows, then the texts to which they refer. If a text is missing, both are read again: the writer may have
    /// removed the row and the text after the row was read.
    pub(super) async fn with_rows<R: Refers, Rows, Texts>(
        &self,
        read: impl Fn() -> Rows,
        fetch: impl Fn(String) -> Texts,
    ) -> Result<Vec<R>, Error>
    where
        Rows: Future<Output = Result<Vec<R>, Error>>,
        Texts: Future<Output = Result<Vec<SharedText>, Error>>,
    {
        let mut rows = read().await?;
        if self.load(&mut rows, &fetch).await?.is_some() {
            rows = read().await?;
            if let Some(missing) = self.load(&mut rows, &fetch).await? {
                return Err(Error::Damaged { found: format!("{missing}. {REMEDY}") });
            }
        }
        Ok(rows)
    }

    /// Returns what is missing.
    async fn load<R: Refers, Texts: Future<Output = Result<Vec<SharedText>, Error>>>(
        &self,
        rows: &mut [R],
        fetch: &impl Fn(String) -> Texts,
    ) -> Result<Option<String>, Error> {
        let wanted: HashSet<TextId> =
            rows.iter_mut().flat_map(|row| row.texts().iter().map(|shared| shared.id)).collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let mut found: HashMap<TextId, Arc<str>> = {
            let loaded = self.0.lock();
            let in_use = |id| Some((id, loaded.texts.get(&id)?.upgrade()?));
            wanted.iter().copied().filter_map(in_use).collect()
        };
        let others: Vec<String> =
            wanted.iter().filter(|id| !found.contains_key(id)).map(TextId::to_string).collect();
        for ids in others.chunks(FETCHED) {
            for SharedText { id, text } in fetch(ids.join(",")).await? {
                if TextId::of(&text) != id {
                    let found = format!("text {id} differs from what was written. {REMEDY}");
                    return Err(Error::Damaged { found });
                }
                found.insert(id, self.share(id, text));
            }
        }
        for row in rows {
            let name = row.name();
            for shared in row.texts() {
                let Some(text) = found.get(&shared.id) else {
                    return Ok(Some(format!("{name} refers to text {}, which is missing", shared.id)));
                };
                shared.text = text.clone();
            }
        }
        Ok(None)
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
