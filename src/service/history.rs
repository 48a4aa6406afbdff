//! What has happened to a key, read from the journal.

use super::Error;
use super::handle::Handle;
use crate::engine::delta::Rv;
use crate::engine::event::Event;
use crate::engine::key::Key;
use crate::journal;
use crate::journal::record::Decoder;

/// About how many bytes of the journal are searched for a page, which may stay empty.
const SEARCHED_BYTES: usize = 16 << 20;

/// A page of a key's history.
#[derive(Debug)]
pub struct History {
    /// What happened, newest first.
    pub events: Vec<Event>,
    /// The next page tells of events before this one; none if nothing older is kept.
    pub next: Option<Rv>,
    /// The queue's newest event as the page was read.
    pub resource_version: Rv,
}

impl Handle {
    /// Up to `limit` events of `key`, those before `before` only. A service without a journal keeps no
    /// history.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Broken`] if the journal is damaged.
    pub async fn history(&self, key: &Key, before: Option<Rv>, limit: usize) -> Result<History, Error> {
        let resource_version = self.read(|queue, _| queue.resource_version()).await?;
        let mut history = History { events: Vec::new(), next: None, resource_version };
        let Some((journal, id)) = self.journal() else { return Ok(history) };
        let before = before.unwrap_or(resource_version + 1).min(resource_version + 1);
        let rows = journal.reader().history(*id, key.as_str(), before, SEARCHED_BYTES).await;
        let (rows, below) = rows.map_err(|error| {
            tracing::error!(queue = %self.name(), %error, "a history can't be read");
            journal::Error::from(&error)
        })?;
        let mut decoder = Decoder::new();
        for row in &rows {
            let events = decoder.events(row).map_err(|error| {
                tracing::error!(queue = %self.name(), %error, "the journal is damaged");
                Error::Broken
            })?;
            for event in events.into_iter().rev() {
                if event.rv < before && event.what.key() == Some(key) {
                    if history.events.len() == limit {
                        history.next = history.events.last().map(|last| last.rv);
                        return Ok(history);
                    }
                    history.events.push(event);
                }
            }
        }
        history.next = below;
        Ok(history)
    }
}
