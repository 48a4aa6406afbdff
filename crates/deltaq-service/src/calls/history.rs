//! The history of a key, read from the journal.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use deltaq_engine::delta::DeltaKind;
use deltaq_engine::event::{Appended, Event, EventKind};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_journal::record::{self, Decoder, PastEvents, lost_object};
use deltaq_journal::store::JournalRow;
use deltaq_runtime::causes::with_causes;

use crate::Error;
use crate::queue::Handle;

/// Approximate number of journal bytes that are searched for a page. A page may be empty.
const SEARCHED_BYTES: u64 = 16 << 20;
/// Approximate number of journal bytes that are searched for the past objects of keys.
const SEARCHED_BYTES_OF_OBJECTS: u64 = 64 << 20;
/// Approximate number of journal bytes that are in memory at once.
const READ_BYTES: usize = 2 << 20;

/// A page of a key's history.
#[derive(Debug)]
pub struct History {
    /// The events of the key, newest first.
    pub events: Vec<PastEvent>,
    /// The next page has events before this number; `None` if no older events are kept.
    pub next: Option<Rv>,
    /// The queue's newest event when the page was read.
    pub resource_version: Rv,
}

/// An event of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct PastEvent {
    /// The event.
    pub event: Event,
    /// Whether the store has lost the event's object, so that the event has an empty one.
    pub is_object_lost: bool,
}

impl Handle {
    /// Up to `limit` events of `key` before the event `before`. A service without a journal keeps no history.
    ///
    /// # Errors
    /// Same as [`read`](Self::read); [`Error::PastUnreadable`] if the newest events can't be read.
    pub async fn history(&self, key: &Key, before: Option<Rv>, limit: usize) -> Result<History, Error> {
        let resource_version = self.read(|queue, _| queue.resource_version()).await?;
        let mut history = History { events: Vec::new(), next: None, resource_version };
        let Some((journal, id)) = self.journal() else { return Ok(history) };
        let top = resource_version.next();
        let before = before.unwrap_or(top).min(top);
        let log = |error: &dyn std::error::Error| {
            tracing::error!(queue = %self.name(), error = with_causes(error), "a history can't be read");
        };
        let unreadable = |error: &dyn std::error::Error| {
            log(error);
            Error::PastUnreadable
        };
        let _only_one_of_token = self.context.long_reads.turn().await;
        let (mut from, mut seen) = (before, (before == top).then_some((top, resource_version)));
        let mut searched = 0;
        loop {
            let _one_of_few = self.context.long_reads.part().await;
            let rows = journal.reader().history(*id, from, READ_BYTES).await;
            let (rows, below) = rows.map_err(|error| unreadable(&error))?;
            searched += rows.iter().map(JournalRow::bytes).sum::<u64>();
            let (key, rest) = (key.clone(), limit.saturating_sub(history.events.len()));
            // This searches megabytes of JSON, so it must not run on a thread that serves requests.
            let search = move || search(&rows, &key, before, rest, seen);
            let found = tokio::task::spawn_blocking(search).await.map_err(|_panic| Error::PastUnreadable)?;
            history.events.extend(found.events);
            history.next = found.next.or(below);
            found.lost.iter().for_each(|error| log(error));
            if let Some(error) = found.error {
                let error = unreadable(&error);
                // Events that are newer than the damage are returned.
                history.next = found.next;
                return if history.events.is_empty() { Err(error) } else { Ok(history) };
            }
            let is_full = found.next.is_some() || history.events.len() >= limit || searched >= SEARCHED_BYTES;
            let Some(below) = below.filter(|_| !is_full) else { return Ok(history) };
            // The row that begins at `below` is not read again.
            (from, seen) = (Rv::new(below.get().saturating_sub(1)), found.seen);
        }
    }
}

/// What the journal has of the former objects of keys.
#[derive(Debug, Default)]
pub struct FormerObjects {
    /// The newest former object of each key that was wanted.
    pub wanted: HashMap<Key, FormerObject>,
    /// The keys of which the journal does not have enough.
    pub unknown: HashSet<Key>,
}

/// A former object of a key.
#[derive(Clone, Debug)]
pub struct FormerObject {
    /// The object.
    pub object: Object,
    /// The event that gave the key this object.
    pub rv: Rv,
    /// Whether the key had a wanted object at the event from which it was searched. `false` if the journal does not reach back so far.
    pub was_wanted: bool,
}

impl Handle {
    /// The former objects of keys, since and at the event `since`, that `wants` selects. What the keys have at present does not count.
    ///
    /// # Errors
    /// Same as [`history`](Self::history).
    pub async fn former_objects(
        &self,
        keys: HashMap<Key, Rv>,
        since: Rv,
        wants: impl Fn(&Object) -> bool + Clone + Send + 'static,
    ) -> Result<FormerObjects, Error> {
        let mut former = FormerObjects { wanted: HashMap::new(), unknown: keys.keys().cloned().collect() };
        let Some((journal, id)) = self.journal() else { return Ok(former) };
        let unreadable = |error: &dyn std::error::Error| {
            tracing::error!(queue = %self.name(), error = with_causes(error), "past objects can't be read");
            Error::PastUnreadable
        };
        let newest = self.read(|queue, _| queue.resource_version()).await?;
        let _only_one_of_token = self.context.long_reads.turn().await;
        let (present, mut from, mut searched) = (Arc::new(keys), newest.next(), 0);
        while !former.unknown.is_empty() && searched < SEARCHED_BYTES_OF_OBJECTS {
            let _one_of_few = self.context.long_reads.part().await;
            let rows = journal.reader().history(*id, from, READ_BYTES).await;
            let (rows, below) = rows.map_err(|error| unreadable(&error))?;
            searched += rows.iter().map(JournalRow::bytes).sum::<u64>();
            let (present, wants) = (present.clone(), wants.clone());
            let search = move || former.search(&rows, &present, since, wants);
            let searched =
                tokio::task::spawn_blocking(search).await.map_err(|_panic| Error::PastUnreadable)?;
            former = searched.map_err(|error| unreadable(&error))?;
            // The row that begins at `below` is not read again.
            let Some(below) = below else { break };
            from = Rv::new(below.get().saturating_sub(1));
        }
        former.unknown.retain(|key| !former.wanted.contains_key(key));
        Ok(former)
    }
}

impl FormerObjects {
    /// Searches rows, newest first. `present` has the versions of the present objects. A key is unknown until its state at `since` is found.
    fn search(
        mut self,
        rows: &[JournalRow],
        present: &HashMap<Key, Rv>,
        since: Rv,
        wants: impl Fn(&Object) -> bool,
    ) -> Result<Self, record::Error> {
        let mut decoder = Decoder::new();
        for row in rows {
            if !self.unknown.iter().any(|key| record::may_tell_of(row, key)) {
                continue;
            }
            let PastEvents { events, lost } = decoder.past_events(row)?;
            for Event { rv, kind, .. } in events.into_iter().rev() {
                let EventKind::Appended(Appended { key, delta, object, .. }) = kind else { continue };
                let is_past = present.get(&key).is_some_and(|present| rv < *present);
                let is_lost = lost.iter().any(|lost| lost.rv == rv);
                if !is_past || is_lost || !self.unknown.contains(&key) {
                    continue;
                }
                let is_wanted = delta != DeltaKind::Deleted && wants(&object);
                if rv <= since {
                    self.unknown.remove(&key);
                }
                match self.wanted.get_mut(&key) {
                    Some(newer) => newer.was_wanted = is_wanted && rv <= since,
                    None if is_wanted => {
                        let was_wanted = rv <= since;
                        self.wanted.insert(key, FormerObject { object, rv, was_wanted });
                    }
                    None => {}
                }
            }
        }
        Ok(self)
    }
}

/// The result of a search in journal rows.
#[derive(Debug, Default)]
struct Found {
    /// The events of the key, newest first.
    events: Vec<PastEvent>,
    /// Why an event has no object: the newest such event.
    lost: Option<record::Error>,
    /// The beginning of the next page, if the search ended before the last row.
    next: Option<Rv>,
    /// Why the search ended early.
    error: Option<Unreadable>,
    /// The first event of the last row, and the event before it.
    seen: Option<(Rv, Rv)>,
}

/// Searches rows, newest first, for up to `limit` events of a key before `before`. `seen` is the first event of the
/// next newer row, and the event before that event.
fn search(rows: &[JournalRow], key: &Key, before: Rv, limit: usize, mut seen: Option<(Rv, Rv)>) -> Found {
    let mut decoder = Decoder::new();
    let mut found = Found::default();
    for row in rows {
        let PastEvents { events, lost } = match read(&mut decoder, row, key, seen) {
            Ok(past) => past,
            Err(error) => {
                let next = seen.map(|(first_rv, _)| first_rv);
                return Found { next, error: Some(error), ..found };
            }
        };
        seen = Some((row.first_rv, row.prev_rv));
        for event in events.into_iter().rev() {
            if event.rv < before && event.kind.key() == Some(key) {
                if found.events.len() == limit {
                    found.next = found.events.last().map(|last| last.event.rv);
                    return found;
                }
                let lost = lost.iter().find(|lost| lost.rv == event.rv);
                found.lost = found.lost.or_else(|| lost.map(|lost| lost_object(row, lost)));
                found.events.push(PastEvent { event, is_object_lost: lost.is_some() });
            }
        }
    }
    Found { seen, ..found }
}

/// The events of the key in a row, which may be none. `seen` is the first event of the next newer row, and the event
/// before it, which must be in this row.
fn read(
    decoder: &mut Decoder,
    row: &JournalRow,
    key: &Key,
    seen: Option<(Rv, Rv)>,
) -> Result<PastEvents, Unreadable> {
    if let Some((_, before)) = seen.filter(|(_, before)| row.last_rv < *before) {
        return Err(Unreadable::Gap { after: row.last_rv, before });
    }
    if !record::may_tell_of(row, key) {
        decoder.check_events(row)?;
        return Ok(PastEvents::default());
    }
    Ok(decoder.past_events(row)?)
}

/// Why the events of a row can't be read.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Row(#[from] record::Error),
    #[error("the events after {after} up to {before} are missing")]
    Gap { after: Rv, before: Rv },
}
