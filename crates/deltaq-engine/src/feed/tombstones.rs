//! The keys that left a view, in the order in which they left.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::Position;
use crate::birth::Birth;
use crate::id::Rv;
use crate::key::Key;
use crate::object::Object;
use crate::time::Time;

/// Approximate size of a tombstone in bytes, excluding its key and its object.
const TOMBSTONE_BYTES: usize = 128;

/// The limits of the tombstones of a view. Tombstones that exceed a limit are dropped, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TombstoneLimits {
    /// Maximum number of tombstones.
    pub count: usize,
    /// Maximum size in bytes. Objects are dropped before tombstones.
    pub bytes: usize,
    /// Maximum age.
    pub age: Duration,
}

/// The record of a key that left a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The key.
    pub key: Key,
    /// When the key left the view.
    pub at: Time,
    /// The last object of the key, unless it is unknown.
    pub object: Option<Object>,
    /// Whether `object` may be older than the last state.
    pub final_state_unknown: bool,
    /// When the key entered the view, if the queue keeps births for the view and this one is known.
    pub birth: Option<Birth>,
    /// The event with which the key entered the view; 0 if it did so before everything that the feed knows.
    pub(super) entered: Rv,
    /// The event with which the key entered the view again.
    pub(super) returned: Option<Rv>,
    /// The event with which the key left the view the last time before, if it has a tombstone of that.
    pub(super) earlier: Option<Rv>,
}

impl Tombstone {
    /// The tombstone of a key whose last object is unknown.
    pub(super) fn new(key: Key, at: Time, entered: Rv) -> Self {
        let (object, birth, returned, earlier) = (None, None, None, None);
        Self { key, at, object, final_state_unknown: true, birth, entered, returned, earlier }
    }

    fn bytes(&self) -> usize {
        TOMBSTONE_BYTES + self.key.as_str().len() + self.object.as_ref().map_or(0, Object::bytes)
    }
}

/// The tombstones of a view. A key has one if the view lacks it, and one of its absence before that; these two are enough, because the
/// absences before count as none.
///
/// Invariant: `by_key` has the newest tombstone of each key, `bytes` is the sum of the sizes of all, and no tombstone up to
/// `without_object` has an object, nor has one of a key that has returned.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    by_rv: BTreeMap<Rv, Tombstone>,
    by_key: HashMap<Key, Rv, RandomState>,
    bytes: usize,
    without_object: Rv,
}

impl Tombstones {
    /// Adds the tombstone of a key that leaves the view.
    pub(super) fn leave(&mut self, rv: Rv, mut tombstone: Tombstone) {
        if rv <= self.without_object {
            tombstone.object = None;
        }
        self.bytes += tombstone.bytes();
        tombstone.earlier = self.by_key.insert(tombstone.key.clone(), rv);
        self.by_rv.insert(rv, tombstone);
    }

    /// Records that a key enters the view. If it has left the view before, that is from now on its last absence.
    pub(super) fn enter(&mut self, key: &Key, rv: Rv) {
        let Some(tombstone) = self.by_key.get(key).and_then(|left| self.by_rv.get_mut(left)) else { return };
        self.bytes -= tombstone.object.take().map_or(0, |object| object.bytes());
        (tombstone.returned, tombstone.final_state_unknown) = (Some(rv), true);
        let Some(earlier) = tombstone.earlier.take() else { return };
        let Some(earlier) = self.by_rv.remove(&earlier) else { return };
        self.bytes -= earlier.bytes();
        if let Some(tombstone) = self.by_key.get(key).and_then(|left| self.by_rv.get_mut(left)) {
            tombstone.entered = earlier.entered;
        }
    }

    /// The event at which the key left the view, if the view lacks it and it has a tombstone.
    pub(super) fn of(&self, key: &Key) -> Option<Rv> {
        let left = self.by_key.get(key).copied();
        left.filter(|left| self.by_rv.get(left).is_some_and(|tombstone| tombstone.returned.is_none()))
    }

    /// Whether a reader at this position may have the key, so that it must learn that the key left.
    pub(super) fn concerns(&self, rv: Rv, tombstone: &Tombstone, position: Position) -> bool {
        if position.has_others {
            return true;
        }
        let earlier = tombstone.earlier.and_then(|left| Some((self.by_rv.get(&left)?.entered, left)));
        let came_back = || {
            // The reader may have the key from before its first page.
            let began = position.lag.map_or(Rv::ZERO, |lag| lag.from);
            earlier.is_some_and(|(entered, left)| entered <= began && began < left)
        };
        let is_had =
            |(entered, left)| position.is_within(entered, left) && !position.is_missed(entered, left);
        let is_now = position.is_within(tombstone.entered, rv)
            && (!position.is_missed(tombstone.entered, rv) || came_back());
        is_now || earlier.is_some_and(is_had)
    }

    /// The oldest tombstone of a key.
    pub(super) fn oldest_of(&mut self, key: &Key) -> Option<&mut Tombstone> {
        let newest = *self.by_key.get(key)?;
        let earlier = self.by_rv.get(&newest)?.earlier.filter(|earlier| self.by_rv.contains_key(earlier));
        self.by_rv.get_mut(&earlier.unwrap_or(newest))
    }

    /// Adds a tombstone that is older than the only one of its key, if there is one.
    pub(super) fn prepend(&mut self, rv: Rv, mut tombstone: Tombstone) {
        if rv <= self.without_object {
            tombstone.object = None;
        }
        self.bytes += tombstone.bytes();
        let newest = *self.by_key.entry(tombstone.key.clone()).or_insert(rv);
        if let Some(newest) = self.by_rv.get_mut(&newest) {
            newest.earlier = Some(rv);
        }
        self.by_rv.insert(rv, tombstone);
    }

    /// Drops the tombstones that exceed the limits.
    pub(super) fn trim(&mut self, limits: TombstoneLimits, now: Time) -> Option<Rv> {
        while self.bytes > limits.bytes && self.drop_oldest_object() {}
        let (mut dropped, mut count) = (None, self.by_rv.len());
        while let Some(oldest) = self.by_rv.first_entry() {
            let is_old = oldest.get().at.plus(limits.age) < now;
            if !is_old && count <= limits.count && self.bytes <= limits.bytes {
                break;
            }
            let (rv, tombstone) = oldest.remove_entry();
            if self.by_key.get(&tombstone.key) == Some(&rv) {
                self.by_key.remove(&tombstone.key);
            }
            count -= 1;
            self.bytes -= tombstone.bytes();
            dropped = Some(rv);
        }
        dropped
    }

    fn drop_oldest_object(&mut self) -> bool {
        let newer = (std::ops::Bound::Excluded(self.without_object), std::ops::Bound::Unbounded);
        let Some((rv, tombstone)) = self.by_rv.range_mut(newer).next() else { return false };
        self.bytes -= tombstone.bytes();
        tombstone.object = None;
        self.bytes += tombstone.bytes();
        self.without_object = *rv;
        true
    }

    /// The tombstones of events after `after`, oldest first.
    pub(super) fn after(&self, after: Rv) -> impl Iterator<Item = (Rv, &Tombstone)> {
        let newer = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        self.by_rv.range(newer).map(|(rv, tombstone)| (*rv, tombstone))
    }

    /// Number of tombstones, and their size in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.by_rv.len(), self.bytes)
    }

    /// Checks the invariants. `is_live` tells whether the view has the key.
    pub(super) fn check(&self, is_live: impl Fn(&Key) -> bool) -> Result<(), String> {
        let bytes: usize = self.by_rv.values().map(Tombstone::bytes).sum();
        if bytes != self.bytes {
            return Err(String::from("the tombstones are counted wrongly"));
        }
        if let Some(key) = self.by_key.iter().find(|(_, rv)| !self.by_rv.contains_key(rv)) {
            return Err(format!("the tombstone of key {} is missing", key.0));
        }
        for (rv, tombstone) in &self.by_rv {
            let key = &tombstone.key;
            let newest = self.by_key.get(key);
            let is_earlier = newest.and_then(|newest| self.by_rv.get(newest)?.earlier) == Some(*rv);
            if newest != Some(rv) && !is_earlier {
                return Err(format!("the tombstone of key {key} is not found by its key"));
            }
            if is_live(key) != tombstone.returned.is_some() && !is_earlier {
                return Err(format!(
                    "key {key} has returned, but its tombstone does not say so, or the reverse"
                ));
            }
            let is_bare = *rv <= self.without_object || tombstone.returned.is_some();
            if is_bare && tombstone.object.is_some() {
                return Err(format!("the tombstone of key {key} has an object again"));
            }
            let is_ordered =
                tombstone.entered < *rv && tombstone.returned.is_none_or(|returned| returned > *rv);
            if !is_ordered || (is_earlier && tombstone.returned.is_none()) {
                return Err(format!("the tombstone of key {key} is out of order"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_objects_are_dropped_before_the_oldest_tombstones() {
        let object = Object::from_valid(r#"{"v":1}"#);
        let mut tombstones = Tombstones::default();
        for number in 1..=3_u8 {
            let key = Key::new(&format!("k{number}")).expect("a key");
            let at = Time::from_micros(u64::from(number));
            let object = Some(object.clone());
            let tombstone =
                Tombstone { object, final_state_unknown: false, ..Tombstone::new(key, at, Rv::ZERO) };
            tombstones.leave(Rv::new(number.into()), tombstone);
        }
        let (_, all) = tombstones.size();
        let mut trim = |bytes| {
            let limits = TombstoneLimits { count: 10, bytes, age: Duration::from_hours(1) };
            let dropped = tombstones.trim(limits, Time::from_micros(9));
            assert!(tombstones.size().1 <= bytes);
            tombstones.check(|_| false).expect("sound");
            let objects: Vec<_> = tombstones.after(Rv::ZERO).map(|(_, left)| left.object.is_some()).collect();
            (dropped, objects)
        };
        assert_eq!(trim(all), (None, vec![true, true, true]));
        assert_eq!(trim(all - 1), (None, vec![false, true, true]));
        let without = all - 3 * object.bytes();
        assert_eq!(trim(without), (None, vec![false, false, false]));
        assert_eq!(trim(without - 1), (Some(Rv::new(1)), vec![false, false]));
        assert_eq!(trim(0), (Some(Rv::new(3)), vec![]));
    }
}
