//! Reads of a queue through its indexes.

use std::ops::Bound;

use super::effects::Garbage;
use super::id::{Rv, Slot};
use super::indexes::{IndexStatus, NoIndex};
use super::queue::Queue;
use super::room::Room;
use super::table::Entry;
use super::time::Time;

impl Queue {
    /// Continues to build incomplete indexes, for at most `budget` small objects. Returns whether nothing is left to build.
    pub fn build_indexes(&mut self, budget: usize) -> bool {
        let (state, indexes) = self.state_and_indexes();
        indexes.build(state, budget);
        !indexes.is_building()
    }

    /// Drops the contents of the indexes if they have grown and there is no room for what the queue holds. `room` records what
    /// the queue holds and returns the room. [`room_for_indexes`](Self::room_for_indexes) lets them be built again.
    pub fn limit_indexes(&mut self, room: impl FnOnce(&Self) -> Room) -> Option<Garbage> {
        if !self.volatile.indexes.have_grown() {
            return None;
        }
        let Room { held, limit, .. } = room(self);
        let keys_bytes = self.state().held_bytes;
        (held > limit).then(|| self.volatile.indexes.drop_contents(keys_bytes))
    }

    /// Whether the indexes may be built. Indexes that were dropped wait until there is room for a quarter more than they had, or for
    /// less if the queue has shrunk.
    pub fn room_for_indexes(&mut self, room: impl FnOnce() -> Room) -> bool {
        let keys_bytes = self.state().held_bytes;
        let Some(wanted) = self.volatile.indexes.wanted_bytes(keys_bytes) else { return true };
        let has_room = room().check(wanted.max(1)).is_ok();
        if has_room {
            self.volatile.indexes.resume();
        }
        has_room
    }

    /// Whether the indexes were dropped, because there was no room for them.
    #[must_use]
    pub fn indexes_lack_room(&self) -> bool {
        self.volatile.indexes.wanted_bytes(0).is_some()
    }

    /// Whether an index is not complete.
    #[must_use]
    pub fn is_building_indexes(&self) -> bool {
        self.volatile.indexes.is_building()
    }

    /// The indexes, in the order of their names.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexStatus> {
        self.volatile.indexes.statuses()
    }

    /// Checks that an index can be read.
    ///
    /// # Errors
    /// [`NoIndex`].
    pub fn check_index(&self, index: &str) -> Result<(), NoIndex> {
        self.volatile.indexes.check_readable(index)
    }

    /// The keys whose known objects have a value in an index, from the key `from` on, in key order.
    ///
    /// # Errors
    /// [`NoIndex`].
    pub fn entries_with_value(
        &self,
        index: &str,
        value: &str,
        from: Bound<&str>,
    ) -> Result<impl Iterator<Item = &Entry>, NoIndex> {
        let slots = self.volatile.indexes.keys_of(self.table(), index, value, from)?;
        Ok(slots.filter_map(|slot| self.table().at(slot)))
    }

    /// The values of an index from the value `from` on, in the order of their bytes, with the number of keys of each.
    ///
    /// # Errors
    /// [`NoIndex`].
    pub fn index_values(
        &self,
        index: &str,
        from: Bound<&str>,
    ) -> Result<impl Iterator<Item = (&str, usize)>, NoIndex> {
        self.volatile.indexes.values_from(index, from)
    }

    /// The keys in the state "delayed" after `after`, by the earliest time at which they may be due, and leased keys with a delay.
    pub fn delayed_after(&self, after: (Time, Rv)) -> impl Iterator<Item = (Time, Rv, Slot)> {
        let mut delays = self.schedule().delayed_after(after).peekable();
        let mut windows = self.schedule().windows_after(after).peekable();
        std::iter::from_fn(move || match (delays.peek(), windows.peek()) {
            (Some(delay), Some(window)) if delay < window => delays.next(),
            (_, Some(_)) => windows.next(),
            (_, None) => delays.next(),
        })
    }

    /// Checks the invariants of the indexes.
    pub(super) fn check_indexes(&self) -> Result<(), String> {
        self.volatile.indexes.check(self.state())
    }
}
