//! Readers of the change feeds beside the random commands, checked against the naive history of each view: a list of all changes.
//!
//! A page must hold exactly what the history says: for each key that has changed since the reader's position, its last change.

use std::collections::BTreeMap;

use deltaq_engine::Queue;
use deltaq_engine::event::Event;
use deltaq_engine::feed::{Backfill, NoRows, Position, RowKind, RowLimit, TombstoneLimits};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::view::{Passage, View};
use fastrand::Rng;

use super::Hits;
use super::same::same;
use super::world::Difference;
use crate::view_history::{NaiveView, ViewHistory};

const READERS: usize = 3;
const BYTES_MAX: usize = 1 << 20;

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
    views: ViewHistory,
    feeds: [Option<NaiveFeed>; 2],
    of_view: [Vec<Reader>; 2],
    pub(super) hits: Hits,
}

impl Readers {
    /// Notes an event, which `queue` has just applied.
    pub(super) fn note(&mut self, event: &Event, queue: &Queue) -> Result<(), Difference> {
        self.views.note(event, queue)
    }

    /// The changes after the newest event of `queue` are undone.
    pub(super) fn roll_back(&mut self, queue: &Queue) {
        let rv = queue.resource_version();
        self.views.roll_back(rv);
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
            feed.follow(self.views.of(view));
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
                let changes = self.views.of(view).changes.len();
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
            let copy = if is_listing { BTreeMap::new() } else { self.views.of(view).content.clone() };
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
            let limit = RowLimit { rows: rng.usize(..5), bytes: usize::MAX };
            let page = match engine.rows(view, reader.position, |_| true, limit) {
                Ok(page) => page,
                Err(NoRows::NotBuilt) => return Ok(()),
                Err(NoRows::Stray { stray, newest }) => return Err(format!("{stray:?}, newest {newest}")),
                Err(NoRows::Expired { horizon }) => {
                    return self.expired(view, chosen, horizon, engine, events, rng);
                }
            };
            let feed = self.feeds[at].as_ref().ok_or("rows without a feed")?;
            let newest = reader.position.listing_since.unwrap_or_default().max(reader.position.after);
            if newest < feed.horizon {
                return Err(format!("rows for {newest}, behind the horizon {}", feed.horizon));
            }
            let views = &self.views;
            let expected = views.of(view).rows(reader.position, engine.resource_version());
            let rows = expected.len().min(limit.rows);
            same("rows", page.rows.len(), rows)?;
            for (row, change) in page.rows.iter().zip(&expected) {
                let is_backfilled = feed.is_backfilled(row.rv);
                views.of(view).compare(row, change, reader.position, is_backfilled)?;
                match &row.object {
                    Some(object) if row.kind != RowKind::Deleted => {
                        reader.copy.insert(row.key.clone(), object.as_str().to_owned());
                    }
                    _ => {
                        reader.copy.remove(&row.key);
                    }
                }
            }
            same("is_last", page.is_last, expected.len() <= limit.rows)?;
            let rv = engine.resource_version();
            let next =
                if page.is_last { rv } else { page.rows.last().map_or(reader.position.after, |row| row.rv) };
            same("next", page.next, next)?;
            (reader.position.after, reader.seen) = (page.next, rv);
            if page.is_last {
                reader.position.listing_since = None;
                same("the copy of a reader", &reader.copy, &self.views.of(view).content)?;
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
        feed.backfill(after, self.views.of(view), engine.last_at().as_micros());
        let size = engine.feed_size(view).ok_or("no feed")?;
        same("horizon after a backfill", size.horizon, feed.horizon)?;
        let is_back = size.horizon == after;
        self.hit(if is_back { "a backfill reaches a reader" } else { "a backfill exceeds the limits" });
        Ok(())
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

    /// Whether the tombstone of this version was found in the journal.
    fn is_backfilled(&self, rv: Rv) -> bool {
        self.left.iter().any(|(left, _, _, is_backfilled)| *left == rv && *is_backfilled)
    }
}
