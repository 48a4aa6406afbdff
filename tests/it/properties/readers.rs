//! Readers of the change feeds beside the random commands, checked against the naive history of each view: a list of all changes.
//!
//! A page must hold exactly what the history says: for each key that has changed since the reader's position, its last change.

use std::collections::BTreeMap;

use deltaq::engine::Queue;
use deltaq::engine::delta::DeltaKind;
use deltaq::engine::event::{Appended, Ending, Event, EventKind, Origin};
use deltaq::engine::feed::{Backfill, NoRows, Position, Row, RowKind, RowLimit, TombstoneLimits};
use deltaq::engine::id::Rv;
use deltaq::engine::key::Key;
use deltaq::engine::view::{Passage, View};
use fastrand::Rng;

use super::Hits;
use super::same::same;
use super::world::Difference;

const READERS: usize = 3;
const BYTES_MAX: usize = 1 << 20;

/// One change of a view.
#[derive(Clone, Debug)]
struct Change {
    rv: Rv,
    key: Key,
    /// The new object; `None` if the key left the view.
    object: Option<String>,
    passage: Option<Passage>,
    /// For a key that left: its last object, and whether that may be outdated.
    last: Option<(String, bool)>,
    at: u64,
}

/// A view as of the last event, with the number of the last change of each key.
#[derive(Debug, Default)]
struct NaiveView {
    changes: Vec<Change>,
    content: BTreeMap<Key, String>,
}

/// The tombstones that a feed must have.
#[derive(Debug)]
struct NaiveFeed {
    limits: TombstoneLimits,
    horizon: Rv,
    /// The keys that left, oldest first: the event, its time, the key, and whether the object may be missing.
    left: Vec<(Rv, u64, Key, bool)>,
    /// Number of changes that are contained.
    changes: usize,
}

/// A reader with its copy of the view.
#[derive(Clone, Debug)]
struct Reader {
    position: Position,
    copy: BTreeMap<Key, String>,
    /// The newest event when the reader read last.
    seen: Rv,
}

#[derive(Debug, Default)]
pub(super) struct Readers {
    views: [NaiveView; 2],
    feeds: [Option<NaiveFeed>; 2],
    of_view: [Vec<Reader>; 2],
    pub(super) hits: Hits,
}

impl Readers {
    /// Notes an event, which `queue` has just applied.
    pub(super) fn note(&mut self, event: &Event, queue: &Queue) -> Result<(), Difference> {
        let Some(key) = event.kind.key() else { return Ok(()) };
        let entry = queue.table().get(key.as_str());
        let newest = entry.and_then(|entry| entry.waiting.newest().or(entry.leased.newest()));
        let known = entry.and_then(|entry| entry.known.as_deref());
        let latest = match newest {
            Some(delta) if delta.kind == DeltaKind::Deleted => None,
            Some(delta) => Some(&delta.object),
            None => known.map(|known| &known.object),
        };
        let is_new_change = match &event.kind {
            EventKind::Appended(Appended { origin, .. }) => *origin != Origin::Resync,
            EventKind::Seeded { .. } => true,
            _ => false,
        };
        let is_new_known = matches!(
            &event.kind,
            EventKind::Seeded { .. } | EventKind::Settled { ending: Ending::Acked, .. }
        );
        let known = known.map(|known| &known.object);
        for (view, now, is_change) in
            [(View::Latest, latest, is_new_change), (View::Known, known, is_new_known)]
        {
            let now = now.map(|object| object.as_str().to_owned());
            let naive = &mut self.views[view as usize];
            let before = naive.content.get(key).cloned();
            let passage = match (&before, &now) {
                (None, Some(_)) => Some(Passage::Entered),
                (Some(_), None) => Some(Passage::Left),
                _ => None,
            };
            same("the passage of the event", event.views.of(view), passage)?;
            let differs = before != now;
            if !(differs || (is_change && now.is_some())) {
                continue;
            }
            let last = event.kind.object().map(|object| object.as_str().to_owned());
            let is_unknown = event.kind.is_final_state_unknown();
            let last = last.filter(|_| view == View::Latest).map(|last| (last, is_unknown));
            let last = last.or_else(|| before.filter(|_| view == View::Latest).map(|last| (last, false)));
            let last = last.filter(|_| now.is_none());
            match &now {
                Some(object) => naive.content.insert(key.clone(), object.clone()),
                None => naive.content.remove(key),
            };
            let at = event.at.as_micros();
            naive.changes.push(Change { rv: event.rv, key: key.clone(), object: now, passage, last, at });
        }
        Ok(())
    }

    /// The changes after the newest event of `queue` are undone.
    pub(super) fn roll_back(&mut self, queue: &Queue) {
        let rv = queue.resource_version();
        for naive in &mut self.views {
            naive.changes.retain(|change| change.rv <= rv);
            naive.content.clear();
            for change in &naive.changes {
                match &change.object {
                    Some(object) => naive.content.insert(change.key.clone(), object.clone()),
                    None => naive.content.remove(&change.key),
                };
            }
        }
        self.feeds = [None, None];
        for readers in &mut self.of_view {
            readers.retain(|reader| reader.seen <= rv);
        }
    }

    /// Lets the readers read.
    pub(super) fn step(&mut self, engine: &mut Queue, events: &[Event]) -> Result<(), Difference> {
        let rv = engine.resource_version();
        let mut rng = Rng::with_seed(rv.get() ^ (events.len() as u64) << 20);
        for view in View::ALL {
            self.maintain(view, engine, &mut rng);
            if rng.u8(..3) == 0 {
                self.read(view, engine, events, &mut rng)
                    .map_err(|difference| format!("a reader of the view {}: {difference}", view.as_str()))?;
            }
        }
        Ok(())
    }

    fn hit(&mut self, what: &'static str) {
        *self.hits.entry(what).or_default() += 1;
    }

    /// Builds and drops the feed, and mirrors its tombstones.
    fn maintain(&mut self, view: View, engine: &mut Queue, rng: &mut Rng) {
        let at = view as usize;
        if !engine.has_feed(view) {
            self.feeds[at] = None;
        }
        if let Some(feed) = &mut self.feeds[at] {
            feed.follow(&self.views[at]);
        }
        match rng.u8(..100) {
            0 => {
                drop(engine.remove_feed(view));
                self.feeds[at] = None;
                self.hit("a feed is dropped");
            }
            1..30 => {
                let limits = TombstoneLimits {
                    count: rng.usize(..6),
                    bytes: BYTES_MAX,
                    age: std::time::Duration::from_micros(if rng.bool() { 3_000 } else { 1 << 40 }),
                };
                let changes = self.views[at].changes.len();
                let horizon = engine.resource_version();
                let begun = NaiveFeed { limits, horizon, left: Vec::new(), changes };
                let feed = self.feeds[at].get_or_insert(begun);
                engine.build_feed(view, feed.limits, rng.usize(1..4));
            }
            _ => {}
        }
        if self.of_view[at].len() < READERS {
            let now = engine.resource_version();
            let position = if rng.bool() {
                Position { after: Rv::ZERO, listing_since: Some(now) }
            } else {
                Position { after: now, listing_since: None }
            };
            // A reader that begins at the present version has listed the view.
            let is_listing = position.listing_since.is_some();
            let copy = if is_listing { BTreeMap::new() } else { self.views[at].content.clone() };
            self.of_view[at].push(Reader { position, copy, seen: now });
        }
    }

    fn read(
        &mut self,
        view: View,
        engine: &mut Queue,
        events: &[Event],
        rng: &mut Rng,
    ) -> Result<(), Difference> {
        let at = view as usize;
        let chosen = rng.usize(..self.of_view[at].len());
        let mut reader = self.of_view[at][chosen].clone();
        for _ in 0..rng.usize(1..4) {
            let limit = RowLimit { rows: rng.usize(1..5), bytes: usize::MAX };
            let page = match engine.rows(view, reader.position, |_| true, limit) {
                Ok(page) => page,
                Err(NoRows::NotBuilt) => return Ok(()),
                Err(NoRows::Ahead { newest }) => return Err(format!("ahead of {newest}")),
                Err(NoRows::Expired { horizon }) => {
                    return self.expired(view, chosen, horizon, engine, events, rng);
                }
            };
            let feed = self.feeds[at].as_ref().ok_or("rows without a feed")?;
            let newest = reader.position.listing_since.unwrap_or_default().max(reader.position.after);
            if newest < feed.horizon {
                return Err(format!("rows for {newest}, behind the horizon {}", feed.horizon));
            }
            let expected = self.views[at].rows(reader.position);
            let rows = expected.len().min(limit.rows);
            same("rows", page.rows.len(), rows)?;
            for (row, change) in page.rows.iter().zip(&expected) {
                feed.compare(row, change, reader.position, &self.views[at])?;
                match &row.object {
                    Some(object) if row.kind != RowKind::Deleted => {
                        reader.copy.insert(row.key.clone(), object.as_str().to_owned());
                    }
                    _ => {
                        reader.copy.remove(&row.key);
                    }
                }
            }
            same("is_last", page.is_last, expected.len() < limit.rows)?;
            let rv = engine.resource_version();
            let next = if page.is_last { rv } else { page.rows.last().map_or(rv, |row| row.rv) };
            same("next", page.next, next)?;
            (reader.position.after, reader.seen) = (page.next, rv);
            if page.is_last {
                reader.position.listing_since = None;
                same("the copy of a reader", &reader.copy, &self.views[at].content)?;
                let empty = expected.is_empty();
                self.of_view[at][chosen] = reader;
                self.hit(if empty { "a reader has everything" } else { "a reader catches up" });
                return Ok(());
            }
            self.hit("a reader reads a part");
        }
        self.of_view[at][chosen] = reader;
        Ok(())
    }

    /// A reader is too old: it lists again, or the feed learns the past from the events.
    fn expired(
        &mut self,
        view: View,
        chosen: usize,
        horizon: Rv,
        engine: &mut Queue,
        events: &[Event],
        rng: &mut Rng,
    ) -> Result<(), Difference> {
        let at = view as usize;
        let position = self.of_view[at][chosen].position;
        let feed = self.feeds[at].as_mut().ok_or("a horizon without a feed")?;
        same("horizon", horizon, feed.horizon)?;
        if rng.bool() {
            self.of_view[at].remove(chosen);
            self.hit("a reader lists again");
            return Ok(());
        }
        let after = position.listing_since.unwrap_or_default().max(position.after);
        let mut backfill = Backfill::new(view, after);
        let up_to = if rng.bool() { horizon } else { engine.resource_version() };
        for event in events.iter().filter(|event| event.rv > after && event.rv <= up_to) {
            backfill.note(event);
        }
        engine.backfill_feed(backfill);
        feed.backfill(after, &self.views[at], engine.last_at().as_micros());
        let size = engine.feed_size(view).ok_or("no feed")?;
        same("horizon after a backfill", size.horizon, feed.horizon)?;
        let is_back = size.horizon == after;
        self.hit(if is_back { "a backfill reaches a reader" } else { "a backfill exceeds the limits" });
        Ok(())
    }
}

impl NaiveView {
    fn last_change(&self, key: &Key) -> &Change {
        self.changes.iter().rev().find(|change| change.key == *key).expect("the key has changed")
    }

    fn last_entry(&self, key: &Key) -> Rv {
        let of_key = self.changes.iter().rev().filter(|change| change.key == *key);
        let mut entries = of_key.filter(|change| change.passage == Some(Passage::Entered));
        entries.next().map_or(Rv::ZERO, |change| change.rv)
    }

    /// The last change of each key since a reader's position, by number.
    fn rows(&self, position: Position) -> Vec<Change> {
        let mut last = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.rv > position.after) {
            last.insert(change.key.clone(), change);
        }
        let is_listed = |change: &&Change| {
            change.object.is_some() || position.listing_since.is_none_or(|since| change.rv > since)
        };
        let mut rows: Vec<Change> = last.into_values().filter(is_listed).cloned().collect();
        rows.sort_by_key(|change| change.rv);
        rows
    }
}

impl NaiveFeed {
    /// Applies the changes since the last call.
    fn follow(&mut self, view: &NaiveView) {
        for change in &view.changes[self.changes..] {
            match change.passage {
                Some(Passage::Entered) => self.left.retain(|(_, _, key, _)| *key != change.key),
                Some(Passage::Left) => {
                    self.left.push((change.rv, change.at, change.key.clone(), false));
                    self.trim(change.at);
                }
                None => {}
            }
        }
        self.changes = view.changes.len();
    }

    fn trim(&mut self, now: u64) {
        let age = u64::try_from(self.limits.age.as_micros()).expect("short");
        while let Some((rv, at, ..)) = self.left.first()
            && (self.left.len() > self.limits.count || at + age < now)
        {
            self.horizon = self.horizon.max(*rv);
            self.left.remove(0);
        }
    }

    fn backfill(&mut self, after: Rv, view: &NaiveView, now: u64) {
        for change in view.changes.iter().filter(|change| change.rv > after && change.rv <= self.horizon) {
            let is_last = view.last_change(&change.key).rv == change.rv;
            if is_last && change.passage == Some(Passage::Left) {
                self.left.push((change.rv, change.at, change.key.clone(), true));
            }
        }
        self.left.sort();
        self.horizon = after;
        self.trim(now);
    }

    fn compare(
        &self,
        row: &Row,
        change: &Change,
        position: Position,
        view: &NaiveView,
    ) -> Result<(), Difference> {
        same("key and version", (&row.key, row.rv), (&change.key, change.rv))?;
        let text = row.object.as_ref().map(|object| object.as_str().to_owned());
        if let Some(object) = &change.object {
            let is_new = position.listing_since.is_some() || view.last_entry(&row.key) > position.after;
            same("kind", row.kind, if is_new { RowKind::Added } else { RowKind::Updated })?;
            same("final_state_unknown", row.final_state_unknown, false)?;
            return same("object", text.as_ref(), Some(object));
        }
        same("kind", row.kind, RowKind::Deleted)?;
        let is_backfilled = self.left.iter().any(|(rv, _, _, backfilled)| *rv == row.rv && *backfilled);
        match text {
            None if is_backfilled => same("final_state_unknown", row.final_state_unknown, true),
            None => Err(String::from("a deleted key has no object")),
            Some(text) => {
                let is_unknown = row.final_state_unknown;
                // The object of a key that left the known objects is that of the deletion.
                change.last.as_ref().map_or(Ok(()), |last| same("last object", &(text, is_unknown), last))
            }
        }
    }
}
