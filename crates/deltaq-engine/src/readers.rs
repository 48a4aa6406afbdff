//! Reads of a queue through its change feeds.

use super::effects::Garbage;
use super::feed::{Backfill, Feed, FeedSize, NoRows, Position, Row, RowLimit, RowPage, TombstoneLimits};
use super::id::Rv;
use super::key::Key;
use super::queue::Queue;
use super::time::Time;
use super::view::{View, ViewObject};

impl Queue {
    /// Creates the feed of a view if it does not exist, and indexes up to `budget` slots of the queue.
    pub fn build_feed(&mut self, view: View, limits: TombstoneLimits, budget: usize) -> bool {
        let (state, feeds) = self.state_and_feeds();
        let feed = feeds.of_mut(view).get_or_insert_with(|| Box::new(Feed::begin(limits, state.rv)));
        feed.is_complete() || feed.index_more(state, view, budget)
    }

    /// Removes the feed of a view. The caller drops the feed after releasing the lock.
    pub fn remove_feed(&mut self, view: View) -> Option<Garbage> {
        let (_, feeds) = self.state_and_feeds();
        feeds.of_mut(view).take().map(Garbage::new)
    }

    /// Whether a view has a feed, complete or not.
    #[must_use]
    pub fn has_feed(&self, view: View) -> bool {
        self.feeds().of(view).is_some()
    }

    /// Whether the key left the view after this event, to which the feed reaches back, and has not entered it again.
    #[must_use]
    pub fn has_left_after(&self, view: View, key: &Key, rv: Rv) -> bool {
        self.feeds().of(view).is_some_and(|feed| feed.has_left_after(key, rv))
    }

    /// The size of the feed of a view; `None` without a feed.
    #[must_use]
    pub fn feed_size(&self, view: View) -> Option<FeedSize> {
        self.feeds().of(view).map(Feed::size)
    }

    /// The next rows for a reader. The rows depend on all events so far: a key is missing from a page if a newer
    /// event has moved it to a later page. So the reader must not get the rows before the newest event is durable.
    ///
    /// # Errors
    /// [`NoRows`].
    pub fn rows(
        &self,
        view: View,
        position: Position,
        includes: impl Fn(&Key) -> bool,
        limit: RowLimit,
    ) -> Result<RowPage, NoRows> {
        let feed = self.feeds().of(view).ok_or(NoRows::NotBuilt)?;
        feed.check_position(self.state(), position)?;
        Ok(feed.page(self.state(), view, position, includes, limit))
    }

    /// The event since which the queue is the resource that its setting `kubernetes` describes.
    #[must_use]
    pub fn resource_since(&self) -> Option<Rv> {
        self.state().births_since().map(|since| since.rv)
    }

    /// The rows of the keys that the view had at the event `since` and that have left it since, whether they have come back or not.
    ///
    /// # Errors
    /// The oldest event for which the feed knows them.
    pub fn left_since(&self, view: View, since: Rv, includes: impl Fn(&Key) -> bool) -> Result<Vec<Row>, Rv> {
        match self.feeds().of(view).filter(|feed| feed.is_complete()) {
            Some(feed) => feed.left_since(since, includes),
            None => Err(self.resource_version()),
        }
    }

    /// Drops the tombstones that are too old.
    pub fn trim_feeds(&mut self, now: Time) {
        let (_, feeds) = self.state_and_feeds();
        for view in View::ALL {
            if let Some(feed) = feeds.of_mut(view) {
                feed.trim(now);
            }
        }
    }

    /// Checks the invariants of the feeds.
    pub(super) fn check_feeds(&self) -> Result<(), String> {
        for view in View::ALL {
            if let Some(feed) = self.feeds().of(view) {
                feed.check(self.state(), view)
                    .map_err(|rule| format!("feed of {}: {rule}", view.as_str()))?;
            }
        }
        Ok(())
    }

    /// Extends the feed of a view backwards with the recorded events, which must reach the feed's horizon.
    pub fn backfill_feed(&mut self, backfill: Backfill) {
        let view = backfill.view();
        let (state, feeds) = self.state_and_feeds();
        if let Some(feed) = feeds.of_mut(view) {
            feed.backfill(state, backfill);
        }
    }

    /// Adds the birth to an object of the view, if the queue keeps births for the view.
    #[must_use]
    pub fn with_birth(&self, view: View, object: ViewObject) -> ViewObject {
        if self.state().births.is_none() {
            return object;
        }
        let slot = self.state().table.find(object.key.as_str());
        ViewObject { birth: slot.and_then(|slot| self.state().birth(view, slot)), ..object }
    }
}
