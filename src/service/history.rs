//! What has happened to a key, read from the journal.

use super::Error;
use super::handle::Handle;
use crate::causes::with_causes;
use crate::engine::delta::Rv;
use crate::engine::event::Event;
use crate::engine::key::Key;
use crate::journal::record::{self, Decoder};
use crate::journal::store::JournalRow;

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
    /// As [`read`](Self::read); [`Error::PastUnreadable`] if nothing can be told but that something is damaged.
    pub async fn history(&self, key: &Key, before: Option<Rv>, limit: usize) -> Result<History, Error> {
        let resource_version = self.read(|queue, _| queue.resource_version()).await?;
        let mut history = History { events: Vec::new(), next: None, resource_version };
        let Some((journal, id)) = self.journal() else { return Ok(history) };
        let top = resource_version + 1;
        let before = before.unwrap_or(top).min(top);
        let unreadable = |error: &dyn std::error::Error| {
            tracing::error!(queue = %self.name(), error = with_causes(error), "a history can't be read");
            Error::PastUnreadable
        };
        let rows = journal.reader().history(*id, before, SEARCHED_BYTES).await;
        let (rows, below) = rows.map_err(|error| unreadable(&error))?;
        let mut decoder = Decoder::new();
        // The first event of the rows that were seen, and the one before.
        let mut seen = (before == top).then_some((top, resource_version));
        for row in &rows {
            let events = match read(&mut decoder, row, key, seen) {
                Ok(events) => events,
                Err(error) => {
                    let error = unreadable(&error);
                    // What is newer is told all the same.
                    history.next = seen.map(|(first_rv, _)| first_rv);
                    return if history.events.is_empty() { Err(error) } else { Ok(history) };
                }
            };
            seen = Some((row.first_rv, row.prev_rv));
            for event in events.into_iter().rev() {
                if event.rv < before && event.kind.key() == Some(key) {
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

/// The events of a row, or none if they are of other keys. `seen` is the first event of the newer row
/// and the one before, which must be in this row.
fn read(
    decoder: &mut Decoder,
    row: &JournalRow,
    key: &Key,
    seen: Option<(Rv, Rv)>,
) -> Result<Vec<Event>, Unreadable> {
    if let Some((_, before)) = seen.filter(|(_, before)| row.last_rv < *before) {
        return Err(Unreadable::Gap { after: row.last_rv, before });
    }
    if !record::may_tell_of(row, key) {
        decoder.check_events(row)?;
        return Ok(Vec::new());
    }
    Ok(decoder.events(row)?)
}

/// Why a row can't be told from.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Row(#[from] record::Error),
    #[error("the events behind {after} up to {before} are missing")]
    Gap { after: Rv, before: Rv },
}
