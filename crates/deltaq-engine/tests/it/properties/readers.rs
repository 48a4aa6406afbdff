//! Readers of the change feeds beside the random commands, checked against the naive history of each view: a list of all changes.
//!
//! A page must hold exactly what the history says: for each key that has changed since the reader's position, its last change. But a
//! deletion is there only for a key that the reader has.

use std::collections::BTreeMap;

use deltaq_engine::Queue;
use deltaq_engine::event::Event;
use deltaq_engine::feed::{Backfill, NoRows, Position, Row, RowKind, RowLimit, RowPage, TombstoneLimits};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::view::{Passage, View};
use fastrand::Rng;

use super::Hits;
use super::births::NaiveBirths;
use super::same::same;
use super::world::Difference;
use crate::view_history::{Change, NaiveView, ViewHistory};

const READERS: usize = 3;
const BYTES_MAX: usize = 1 << 20;

/// The tombstones that a feed must have.
#[derive(Debug)]
struct NaiveFeed {
    limits: TombstoneLimits,
    horizon: Rv,
    /// The keys that left, oldest first.
    left: Vec<Left>,
    /// Number of changes that are contained.
    changes: usize,
}

/// The tombstone of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Left {
    rv: Rv,
    at: u64,
    key: Key,
    /// Whether the key has entered the view again.
    has_returned: bool,
    /// Whether the object may be missing.
    is_backfilled: bool,
}

/// A reader with its copy of the view.
#[derive(Clone, Debug)]
struct Reader {
    position: Position,
    copy: BTreeMap<Key, String>,
    /// Whether the reader has exactly the keys of the view at its position.
    is_exact: bool,
    /// Whether the reader has not read the second page of its list yet.
    lists: bool,
    /// The newest event when the reader read last.
    seen: Rv,
}

#[derive(Debug, Default)]
pub(super) struct Readers {
    views: ViewHistory,
    births: NaiveBirths,
    feeds: [Option<NaiveFeed>; 2],
    of_view: [Vec<Reader>; 2],
    pub(super) hits: Hits,
}

impl Readers {
    /// Notes an event, which `queue` has just applied.
    pub(super) fn note(&mut self, event: &Event, queue: &Queue) -> Result<(), Difference> {
        self.births.note(event, queue)?;
        self.views.note(event, queue)
    }

    /// The changes after the newest event of `queue` are undone.
    pub(super) fn roll_back(&mut self, queue: &Queue) {
        let rv = queue.resource_version();
        self.views.roll_back(rv);
        self.births.roll_back(rv);
        self.feeds = [None, None];
        for readers in &mut self.of_view {
            readers.retain(|reader| reader.seen <= rv);
        }
    }

    /// Lets the readers read.
    pub(super) fn step(&mut self, engine: &mut Queue, events: &[Event]) -> Result<(), Difference> {
        let rv = engine.resource_version();
        let mut rng = Rng::with_seed(rv.get() ^ (events.len() as u64) << 20);
        self.births.compare(engine)?;
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
            let position = if rng.bool() { Position::listing(Rv::ZERO, now) } else { Position::after(now) };
            // A reader that begins at the present version has listed the view.
            let is_listing = position.listing_since.is_some();
            let copy = if is_listing { BTreeMap::new() } else { self.views.of(view).content.clone() };
            let mut copy = copy;
            // The second page of a list is read later, and may have newer keys.
            let lists = !is_listing && rng.u8(..3) == 0;
            let position = Position { has_others: lists, ..position };
            copy.retain(|key, _| !lists || is_on_first_page(key));
            self.of_view[at].push(Reader {
                position,
                copy,
                is_exact: !is_listing && !lists,
                lists,
                seen: now,
            });
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
        if std::mem::take(&mut reader.lists) {
            let rest = self.views.of(view).content.iter().filter(|(key, _)| !is_on_first_page(key));
            reader.copy.extend(rest.map(|(key, object)| (key.clone(), object.clone())));
            reader.seen = engine.resource_version();
        }
        if rng.u8(..4) == 0 {
            // A reader that comes back has only its version.
            reader.position.lag = None;
        }
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
            if deletions_after(reader.position) < feed.horizon {
                let newest = deletions_after(reader.position);
                return Err(format!("rows for {newest}, behind the horizon {}", feed.horizon));
            }
            let rv = engine.resource_version();
            self.take(view, &mut reader, &page, limit, rv)?;
            (reader.position.after, reader.position.lag, reader.seen) = (page.next, page.lag, rv);
            if page.is_last {
                reader.position = Position::after(page.next);
                same("the copy of a reader", &reader.copy, &self.views.of(view).content)?;
                let empty = page.rows.is_empty();
                self.of_view[at][chosen] = reader;
                self.hit(if empty { "a reader has everything" } else { "a reader catches up" });
                return Ok(());
            }
            self.hit("a reader reads a part");
        }
        self.of_view[at][chosen] = reader;
        Ok(())
    }

    /// Checks a page, and changes the copy of its reader.
    fn take(
        &mut self,
        view: View,
        reader: &mut Reader,
        page: &RowPage,
        limit: RowLimit,
        newest: Rv,
    ) -> Result<(), Difference> {
        let history = self.views.of(view);
        let position = reader.position;
        let expected = history.rows(position, newest);
        let next = if page.is_last { newest } else { page.next };
        same("next", page.next, next)?;
        let live = |change: &&&Change| change.object.is_some() && change.rv <= next;
        let is_live = |row: &&Row| row.kind != RowKind::Deleted;
        same("live rows", page.rows.iter().filter(is_live).count(), expected.iter().filter(live).count())?;
        let lefts =
            history.changes.iter().filter(|change| change.rv > position.after && change.object.is_none());
        let is_long = expected.len() + lefts.count() > limit.rows;
        let is_sorted = page.rows.is_sorted_by(|a, b| a.rv < b.rv);
        let is_within = page.rows.iter().all(|row| row.rv > position.after && row.rv <= next);
        if !is_sorted
            || !is_within
            || page.rows.len() > limit.rows
            || !(page.is_last || is_long && page.rows.len() == limit.rows)
        {
            return Err(format!("a page that does not fit its reader: {page:?}"));
        }
        let mut rows = expected.iter().filter(live);
        let mut hits = Vec::new();
        for row in &page.rows {
            if row.kind == RowKind::Deleted {
                hits.push(self.check_deletion(view, reader, row, next)?);
                reader.copy.remove(&row.key);
            } else {
                let change = rows.next().ok_or("no change")?;
                history.compare(row, change, position, false)?;
                same("birth", row.birth, self.births.of(view, &row.key))?;
                let object = row.object.as_ref().ok_or("a row without an object")?;
                reader.copy.insert(row.key.clone(), object.as_str().to_owned());
            }
        }
        // Of several absences, the feed remembers the last one.
        let has_left = |key: &&Key| {
            !position.has_others && !history.has_at(key, next) && history.entries_after(key, next) < 2
        };
        if let Some(key) = reader.copy.keys().find(has_left) {
            return Err(format!("the reader keeps the key {key}, which has left: {page:?}"));
        }
        let is_gone = |change: &&&Change| change.object.is_none() && change.rv <= next;
        if expected.iter().filter(is_gone).any(|gone| page.rows.iter().all(|row| row.rv != gone.rv)) {
            hits.push("a reader is spared a deletion");
        }
        let is_all = expected.iter().all(|change| change.rv <= next);
        reader.is_exact = page.is_last || (reader.is_exact && is_all);
        for what in hits {
            self.hit(what);
        }
        Ok(())
    }

    /// Checks that a reader has the key that a row deletes, or that the feed can't know that it does not. Returns what happened.
    fn check_deletion(
        &self,
        view: View,
        reader: &Reader,
        row: &Row,
        next: Rv,
    ) -> Result<&'static str, Difference> {
        let history = self.views.of(view);
        let position = reader.position;
        let of_key =
            || history.changes.iter().filter(|change| change.key == row.key && change.passage.is_some());
        let change = of_key().find(|change| change.rv == row.rv).ok_or("no change")?;
        let feed = self.feeds[view as usize].as_ref().ok_or("rows without a feed")?;
        let is_absence = history.last_change(&row.key).rv != row.rv;
        history.compare(row, change, position, is_absence || feed.is_backfilled(row.rv))?;
        if let Some(birth) = row.birth {
            same("birth", Some(birth), self.births.of_left(view, &row.key, row.rv))?;
        }
        if is_absence && of_key().any(|other| other.rv > row.rv && other.rv <= next) {
            return Err(format!("the row of an absence that ended in the page: {row:?}"));
        }
        if reader.copy.contains_key(&row.key) {
            return Ok(if is_absence { "a page ends during an absence" } else { "a reader loses a key" });
        }
        if position.has_others {
            return Ok("a deletion of a key that the reader may have");
        }
        let begin = deletions_after(position);
        let in_view = history.has_at(&row.key, begin);
        let entries = of_key().filter(|other| other.passage == Some(Passage::Entered) && other.rv <= begin);
        let entered = entries.map(|entered| entered.rv).max();
        let left = of_key().find(|other| other.rv > begin).ok_or("no change")?;
        // A key that came after the reader had begun, and was gone before its first page.
        let is_missed = position.lag.is_some_and(|lag| {
            let is_new =
                !history.has_at(&row.key, lag.from) && history.entries_after(&row.key, lag.from) == 1;
            is_new && entered > Some(lag.from) && left.rv <= lag.seen
        });
        let is_older_absence = !in_view && entered.is_some() && history.entries_after(&row.key, begin) > 1;
        let is_unsure = in_view && !reader.is_exact && !is_missed;
        if is_unsure || is_older_absence {
            return Ok("a deletion of a key that the reader may have");
        }
        Err(format!("the reader never had the key of {row:?}, at {position:?}"))
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
        let after = deletions_after(position);
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

/// Whether a reader that lists the view in two pages has the key on the first one.
fn is_on_first_page(key: &Key) -> bool {
    key.as_str() < "d"
}

/// The event from which on a reader gets deletions.
fn deletions_after(position: Position) -> Rv {
    position.listing_since.unwrap_or_default().max(position.after)
}

impl NaiveView {
    /// Whether the view had the key as of an event.
    fn has_at(&self, key: &Key, rv: Rv) -> bool {
        let mut before = self.changes.iter().rev().filter(|change| change.rv <= rv && change.key == *key);
        before.next().is_some_and(|change| change.object.is_some())
    }

    /// How often the key entered the view after an event.
    fn entries_after(&self, key: &Key, rv: Rv) -> usize {
        let is_entry = |change: &&Change| change.passage == Some(Passage::Entered) && change.key == *key;
        self.changes.iter().filter(is_entry).filter(|change| change.rv > rv).count()
    }
}

impl NaiveFeed {
    /// Applies the changes since the last call.
    fn follow(&mut self, view: &NaiveView) {
        for change in &view.changes[self.changes..] {
            match change.passage {
                Some(Passage::Entered) => {
                    // The absence before this one is forgotten.
                    let is_forgotten = |left: &Left| left.key == change.key && left.has_returned;
                    let has_new = self.left.iter().any(|left| left.key == change.key && !left.has_returned);
                    self.left.retain(|left| !(has_new && is_forgotten(left)));
                    for left in self.left.iter_mut().filter(|left| left.key == change.key) {
                        left.has_returned = true;
                    }
                }
                Some(Passage::Left) => {
                    self.left.push(Left::of(change, false, false));
                    self.trim(change.at);
                }
                None => {}
            }
        }
        self.changes = view.changes.len();
    }

    fn trim(&mut self, now: u64) {
        let age = u64::try_from(self.limits.age.as_micros()).expect("short");
        while let Some(Left { rv, at, .. }) = self.left.first()
            && (self.left.len() > self.limits.count || at + age < now)
        {
            self.horizon = self.horizon.max(*rv);
            self.left.remove(0);
        }
    }

    fn backfill(&mut self, after: Rv, view: &NaiveView, now: u64) {
        let is_new = |change: &&Change| change.rv > after && change.rv <= self.horizon;
        let mut gone: BTreeMap<&Key, &Change> = BTreeMap::new();
        let mut absences: BTreeMap<&Key, &Change> = BTreeMap::new();
        for change in view.changes.iter().filter(is_new) {
            match change.passage {
                Some(Passage::Left) => drop(gone.insert(&change.key, change)),
                Some(Passage::Entered) => {
                    absences.extend(gone.remove(&change.key).map(|left| (&change.key, left)));
                }
                None => {}
            }
        }
        let known =
            |left: &[Left], key: &Key| view.content.contains_key(key) || left.iter().any(|of| of.key == *key);
        for (key, change) in gone {
            if known(&self.left, key) {
                absences.insert(key, change);
            } else {
                self.left.push(Left::of(change, false, true));
            }
        }
        for (key, change) in absences {
            if !self.left.iter().any(|left| left.key == *key && left.has_returned) {
                self.left.push(Left::of(change, true, true));
            }
        }
        self.left.sort();
        self.horizon = after;
        self.trim(now);
    }

    /// Whether the tombstone of this version was found in the journal.
    fn is_backfilled(&self, rv: Rv) -> bool {
        self.left.iter().any(|left| left.rv == rv && left.is_backfilled)
    }
}

impl Left {
    fn of(change: &Change, has_returned: bool, is_backfilled: bool) -> Self {
        Self { rv: change.rv, at: change.at, key: change.key.clone(), has_returned, is_backfilled }
    }
}
