//! The change feed of a view: each key of the view once, ordered by version, and the tombstones of keys that left the
//! view.
//!
//! The position of a reader is one event number: the reader has everything up to that event. Its next rows are the
//! keys and tombstones with larger versions. A reader that lags gets each key once, with its newest object, so a slow
//! reader costs the queue nothing.
//!
//! A reader gets a tombstone only if the view had the key at its position, because it has no other keys unless it says so. So a
//! tombstone has the event with which its key entered. A key that leaves and enters again keeps the tombstone of its last absence: a
//! reader whose page ends during the absence gets it, so that no reader has a key that the view lacked at its position. Earlier
//! absences are forgotten, and a reader whose position is in one of them is assumed to have the key.
//!
//! A feed is not a function of the events alone: it begins when the first reader asks for it, and old tombstones are
//! dropped. Its horizon is the event from which on it is complete.

mod backfill;
mod tombstones;

use std::collections::BTreeMap;
use std::ops::Bound;

pub use self::backfill::Backfill;
use self::tombstones::Tombstones;
pub use self::tombstones::{Tombstone, TombstoneLimits};
use super::apply::Applied;
use super::birth::Birth;
use super::event::{Event, EventKind};
use super::id::{Rv, Slot, Source};
use super::key::Key;
use super::lives::Stray;
use super::object::Object;
use super::state::State;
use super::table::{Entry, Paged};
use super::time::Time;
use super::view::{VersionChange, View, ViewObject};

/// Maximum number of keys that are examined for a page. A page may have fewer rows, because a filter skips keys.
const EXAMINED_MAX: usize = 2_000;
/// Approximate size of a row in bytes, excluding its object.
const ROW_BYTES: usize = 256;

/// The feeds of a queue that have readers.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    latest: Option<Box<Feed>>,
    known: Option<Box<Feed>>,
}

/// The feed of one view.
///
/// Invariant: `index` has the version and the slot of each key of the view whose slot is below `indexed`. The tombstone of a
/// key of the view says that the key has returned.
#[derive(Debug)]
pub(super) struct Feed {
    index: BTreeMap<Rv, Slot>,
    /// The event at which the key at a slot entered the view. Smaller than the feed's first event if that is unknown.
    entered: Paged<Rv>,
    tombstones: Tombstones,
    limits: TombstoneLimits,
    /// The oldest event from which a reader can continue. From an older event, a reader may miss the removal of a key.
    horizon: Rv,
    /// Number of slots that are indexed; all slots once the feed is complete.
    indexed: usize,
}

/// What a feed must record about a key before an event changes the key.
#[derive(Debug)]
pub(super) struct LastObject {
    latest: Option<(Object, bool)>,
    known: Option<(Object, bool)>,
}

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// The key entered the view after the reader's version.
    Added,
    /// The key has changed.
    Updated,
    /// The key left the view.
    Deleted,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What happened to the key.
    pub kind: RowKind,
    /// The key.
    pub key: Key,
    /// The version: the event that changed the key.
    pub rv: Rv,
    /// The object; for a deleted key, its last object. `None` if the object is unknown.
    pub object: Option<Object>,
    /// The source that owns the key.
    pub source: Option<Source>,
    /// Whether the object of a deleted key may be older than its last state.
    pub final_state_unknown: bool,
    /// When the key entered the view, if the queue keeps births for the view and this one is known.
    pub birth: Option<Birth>,
}

/// A reader of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The reader has everything up to this event.
    pub after: Rv,
    /// Set while the reader gets the initial list: the queue's newest event when the list began. The rows of live
    /// keys are then all [`RowKind::Added`], and keys that left before are not in the list.
    pub listing_since: Option<Rv>,
    /// Whether the reader may have keys that the view did not have at its position, until it has caught up: from before its initial
    /// list, or from a page of a list that it read after the first page. It gets every deletion.
    pub has_others: bool,
    /// Set while the reader catches up in several pages.
    pub lag: Option<Lag>,
}

/// The first of the pages in which a reader catches up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The position from which the reader got deletions.
    pub from: Rv,
    /// The newest event when the page was read.
    pub seen: Rv,
}

impl Position {
    /// The position of a reader that has everything up to this event.
    #[must_use]
    pub const fn after(after: Rv) -> Self {
        Self { after, listing_since: None, has_others: false, lag: None }
    }

    /// The position of a reader in an initial list that began at the event `since`.
    #[must_use]
    pub const fn listing(after: Rv, since: Rv) -> Self {
        Self { listing_since: Some(since), ..Self::after(after) }
    }

    /// The event from which on the reader gets deletions.
    fn deletions_after(self) -> Rv {
        self.listing_since.unwrap_or_default().max(self.after)
    }

    /// Whether the view had a key at the position that it had from `entered` until `left`.
    fn is_within(self, entered: Rv, left: Rv) -> bool {
        let at = self.deletions_after();
        entered <= at && at < left
    }

    /// Whether a key that the view had from `entered` until `left` was neither there at the reader's first page nor when it began.
    fn is_missed(self, entered: Rv, left: Rv) -> bool {
        self.lag.is_some_and(|lag| entered > lag.from && left <= lag.seen)
    }
}

/// The limits of a page. The page ends at the first limit that is reached.
#[derive(Clone, Copy, Debug)]
pub struct RowLimit {
    /// Maximum number of rows.
    pub rows: usize,
    /// Approximate size in bytes. The last row may exceed it.
    pub bytes: usize,
}

/// The next rows for a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowPage {
    /// The rows, by version.
    pub rows: Vec<Row>,
    /// The reader's next position: the reader has everything up to this event.
    pub next: Rv,
    /// Whether there are no more rows.
    pub is_last: bool,
    /// The [lag](Position::lag) of the reader at its next position.
    pub lag: Option<Lag>,
}

/// Why a feed has no rows for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRows {
    /// The feed does not exist or is not complete.
    NotBuilt,
    /// Some changes since the reader's position have been dropped. The feed is complete from `horizon` on.
    Expired {
        /// The oldest event from which a reader can continue.
        horizon: Rv,
    },
    /// The reader's position is not an event number of the queue.
    Stray {
        /// The reason.
        stray: Stray,
        /// The newest event of the queue.
        newest: Rv,
    },
}

impl Feeds {
    /// Size in bytes of the deleted keys in all feeds, with their last objects.
    pub(super) fn tombstone_bytes(&self) -> usize {
        let feeds = [self.latest.as_deref(), self.known.as_deref()];
        feeds.into_iter().flatten().map(|feed| feed.tombstones.size().1).sum()
    }

    pub(super) fn of(&self, view: View) -> Option<&Feed> {
        match view {
            View::Latest => self.latest.as_deref(),
            View::Known => self.known.as_deref(),
        }
    }

    pub(super) fn of_mut(&mut self, view: View) -> &mut Option<Box<Feed>> {
        match view {
            View::Latest => &mut self.latest,
            View::Known => &mut self.known,
        }
    }

    /// What the feeds must record before this event is applied; `None` if there are no feeds.
    pub(super) fn before(&self, state: &State, event: &Event) -> Option<LastObject> {
        if self.latest.is_none() && self.known.is_none() {
            return None;
        }
        let deleted = event.kind.object().map(|object| (object.clone(), event.kind.is_final_state_unknown()));
        let Some(entry) = event.kind.key().and_then(|key| state.table.get(key.as_str())) else {
            return Some(LastObject { latest: deleted, known: None });
        };
        let acknowledged = match &event.kind {
            EventKind::Progressed { through, .. } => entry.leased.iter().find(|delta| delta.rv == *through),
            _ => entry.leased.newest(),
        };
        let leased = acknowledged.map(|delta| (delta.object.clone(), delta.final_state_unknown));
        let latest = deleted.or_else(|| entry.newest_object().map(|object| (object.clone(), false)));
        Some(LastObject { latest, known: leased })
    }

    /// Updates the feeds with the effects of an event.
    pub(super) fn note(&mut self, state: &State, event: &Event, applied: &Applied, last: LastObject) {
        let (Some(slot), Some(key)) = (applied.slot, event.kind.key()) else { return };
        let views = [
            (View::Latest, applied.latest, &mut self.latest, last.latest),
            (View::Known, applied.known, &mut self.known, last.known),
        ];
        for (view, change, feed, last) in views {
            if let Some(feed) = feed.as_mut().filter(|_| change.before != change.after) {
                let birth = || state.birth(view, slot);
                feed.note(event, change, (slot, key), last, birth);
            }
        }
    }
}

impl Feed {
    pub(super) fn begin(limits: TombstoneLimits, horizon: Rv) -> Self {
        Self {
            index: BTreeMap::new(),
            entered: Paged::default(),
            tombstones: Tombstones::default(),
            limits,
            horizon,
            indexed: 0,
        }
    }

    fn note(
        &mut self,
        event: &Event,
        change: VersionChange,
        (slot, key): (Slot, &Key),
        last: Option<(Object, bool)>,
        birth: impl Fn() -> Option<Birth>,
    ) {
        if slot.index() < self.indexed {
            if let Some(rv) = change.before {
                self.index.remove(&rv);
            }
            if let Some(rv) = change.after {
                self.index.insert(rv, slot);
            }
        }
        match (change.before, change.after) {
            (None, Some(rv)) => {
                self.set_entered(slot, rv);
                self.tombstones.enter(key, rv);
            }
            (Some(_), None) => {
                let (object, final_state_unknown) = last.unzip();
                let final_state_unknown = final_state_unknown.unwrap_or(true);
                let (key, at, entered, birth) = (key.clone(), event.at, self.entered(slot), birth());
                let tombstone =
                    Tombstone { object, final_state_unknown, birth, ..Tombstone::new(key, at, entered) };
                self.tombstones.leave(event.rv, tombstone);
                self.trim(event.at);
            }
            _ => {}
        }
    }

    pub(super) fn trim(&mut self, now: Time) {
        if let Some(dropped) = self.tombstones.trim(self.limits, now) {
            self.horizon = self.horizon.max(dropped);
        }
    }

    fn entered(&self, slot: Slot) -> Rv {
        self.entered.get(slot.index()).copied().unwrap_or_default()
    }

    fn set_entered(&mut self, slot: Slot, rv: Rv) {
        while self.entered.len() <= slot.index() {
            self.entered.push(Rv::ZERO);
        }
        if let Some(entered) = self.entered.get_mut(slot.index()) {
            *entered = rv;
        }
    }

    /// Indexes the next slots, at most `budget`. Returns whether all are indexed.
    pub(super) fn index_more(&mut self, state: &State, view: View, budget: usize) -> bool {
        let slots = state.table.slots();
        let stop = self.indexed.saturating_add(budget).min(slots);
        for slot in (self.indexed..stop).filter_map(Slot::at) {
            if let Some(rv) = state.table.at(slot).and_then(|entry| entry.version_in(view)) {
                self.index.insert(rv, slot);
            }
        }
        while self.entered.len() < stop {
            self.entered.push(Rv::ZERO);
        }
        if stop == slots {
            // From now on, keys in new slots are indexed when they enter the view.
            self.indexed = usize::MAX;
        } else {
            self.indexed = stop;
        }
        self.is_complete()
    }

    /// Whether the key left the view after this event and has not entered it again. The feed reaches back to the event.
    pub(super) fn has_left_after(&self, key: &Key, rv: Rv) -> bool {
        self.tombstones.of(key).is_some_and(|left| left > rv)
    }

    /// The rows of the keys that the view had at this event and that have left it since, whether they have come back or not; or the
    /// oldest event for which they are known.
    pub(super) fn left_since(&self, since: Rv, includes: impl Fn(&Key) -> bool) -> Result<Vec<Row>, Rv> {
        if since < self.horizon {
            return Err(self.horizon);
        }
        let (tombstones, position) = (&self.tombstones, Position::after(since));
        let left = tombstones
            .after(since)
            .filter(|(rv, left)| includes(&left.key) && tombstones.concerns(*rv, left, position));
        Ok(left.map(|(rv, left)| tombstone_row(rv, left)).collect())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.indexed == usize::MAX
    }

    pub(super) fn size(&self) -> FeedSize {
        let (tombstones, tombstone_bytes) = self.tombstones.size();
        FeedSize { keys: self.index.len(), tombstones, tombstone_bytes, horizon: self.horizon }
    }

    /// Checks the invariants.
    pub(super) fn check(&self, state: &State, view: View) -> Result<(), String> {
        let indexed = state.table.by_slot().filter(|(slot, _)| slot.index() < self.indexed);
        let expected = indexed.filter_map(|(slot, entry)| Some((entry.version_in(view)?, slot)));
        if expected.collect::<BTreeMap<_, _>>() != self.index {
            return Err(String::from("the index has other keys or versions"));
        }
        let entry = |key: &Key| state.table.get(key.as_str());
        self.tombstones.check(|key| entry(key).is_some_and(|entry| entry.version_in(view).is_some()))
    }

    pub(super) fn check_position(&self, state: &State, position: Position) -> Result<(), NoRows> {
        if !self.is_complete() {
            return Err(NoRows::NotBuilt);
        }
        let complete_to = position.deletions_after();
        // A first list starts from the number 0, which is older than all events.
        if complete_to != Rv::ZERO {
            let stray = |stray| NoRows::Stray { stray, newest: state.rv };
            state.lives.check(complete_to, state.rv).map_err(stray)?;
        }
        if complete_to < self.horizon {
            return Err(NoRows::Expired { horizon: self.horizon });
        }
        Ok(())
    }

    pub(super) fn page(
        &self,
        state: &State,
        view: View,
        position: Position,
        includes: impl Fn(&Key) -> bool,
        limit: RowLimit,
    ) -> RowPage {
        let after = position.after;
        // What was before the horizon is forgotten.
        let position = Position { lag: position.lag.filter(|lag| lag.from >= self.horizon), ..position };
        let mut live = self.index.range((Bound::Excluded(after), Bound::Unbounded)).peekable();
        let mut gone = self.tombstones.after(position.deletions_after()).peekable();
        let lag = position.lag.unwrap_or(Lag { from: position.deletions_after(), seen: state.rv });
        let mut page = NewPage {
            rows: Vec::new(),
            absences: BTreeMap::new(),
            ended: Vec::new(),
            bytes: 0,
            next: after,
            lag,
        };
        for _ in 0..EXAMINED_MAX {
            let next_live = live.peek().map(|(rv, slot)| (**rv, **slot));
            let is_live = match (next_live, gone.peek()) {
                (None, None) => return page.complete(state.rv),
                (Some((rv, _)), Some((tombstone_rv, _))) => rv < *tombstone_rv,
                (next_live, _) => next_live.is_some(),
            };
            let mut next = page.next;
            let (row, returned) = if is_live {
                live.next();
                let row = next_live.and_then(|(rv, slot)| {
                    next = rv;
                    let entry = state.table.at(slot).filter(|entry| includes(&entry.key))?;
                    let is_new = position.listing_since.is_some() || self.entered(slot) > after;
                    live_row(entry, view, is_new, state.birth(view, slot))
                });
                (row, None)
            } else {
                let tombstone = gone.next().and_then(|(rv, tombstone)| {
                    next = rv;
                    let is_wanted =
                        includes(&tombstone.key) && self.tombstones.concerns(rv, tombstone, position);
                    is_wanted.then_some((rv, tombstone))
                });
                let row = tombstone.map(|(rv, tombstone)| tombstone_row(rv, tombstone));
                (row, tombstone.and_then(|(_, tombstone)| tombstone.returned))
            };
            if row.is_some_and(|row| !page.push(row, returned, limit)) {
                return page.partial();
            }
            page.next = next;
        }
        page.partial()
    }
}

/// A page to which rows are added.
struct NewPage {
    rows: Vec<Row>,
    /// The rows of keys that have entered the view again, by the event with which they did.
    absences: BTreeMap<Rv, usize>,
    /// Those whose key has entered in the page, so that they are no rows.
    ended: Vec<usize>,
    bytes: usize,
    next: Rv,
    lag: Lag,
}

impl NewPage {
    /// Adds a row, unless the page is full.
    fn push(&mut self, row: Row, returned: Option<Rv>, limit: RowLimit) -> bool {
        let ending = self.absences.range(..=row.rv).count();
        let rows = self.rows.len() - self.ended.len() - ending;
        if rows >= limit.rows || self.bytes >= limit.bytes {
            return false;
        }
        self.end_absences(row.rv);
        self.bytes += ROW_BYTES + row.object.as_ref().map_or(0, Object::bytes);
        self.absences.extend(returned.map(|returned| (returned, self.rows.len())));
        self.rows.push(row);
        true
    }

    fn end_absences(&mut self, until: Rv) {
        while let Some(first) = self.absences.first_entry().filter(|first| *first.key() <= until) {
            self.ended.push(first.remove());
        }
    }

    /// The page of a reader that has everything up to the newest event.
    fn complete(mut self, newest: Rv) -> RowPage {
        self.next = newest;
        RowPage { is_last: true, lag: None, ..self.partial() }
    }

    /// A page that ends before the newest event.
    fn partial(mut self) -> RowPage {
        self.end_absences(self.next);
        let Self { mut rows, mut ended, next, lag, .. } = self;
        if !ended.is_empty() {
            ended.sort_unstable();
            let (mut ended, mut at) = (ended.into_iter().peekable(), 0..);
            rows.retain(|_| ended.next_if_eq(&at.next().unwrap_or_default()).is_none());
        }
        RowPage { rows, next, is_last: false, lag: Some(lag) }
    }
}

fn live_row(entry: &Entry, view: View, is_new: bool, birth: Option<Birth>) -> Option<Row> {
    let ViewObject { key, object, rv, owner, .. } = entry.object_in(view)?;
    let kind = if is_new { RowKind::Added } else { RowKind::Updated };
    Some(Row { kind, key, rv, object: Some(object), source: owner, final_state_unknown: false, birth })
}

fn tombstone_row(rv: Rv, tombstone: &Tombstone) -> Row {
    let Tombstone { key, object, final_state_unknown, birth, .. } = tombstone.clone();
    let final_state_unknown = final_state_unknown || object.is_none();
    Row { kind: RowKind::Deleted, key, rv, object, source: None, final_state_unknown, birth }
}

/// The size of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedSize {
    /// Number of indexed keys.
    pub keys: usize,
    /// Number of tombstones.
    pub tombstones: usize,
    /// Size of the tombstones in bytes.
    pub tombstone_bytes: usize,
    /// The oldest event from which a reader can continue.
    pub horizon: Rv,
}
