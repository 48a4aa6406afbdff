//! The keys that left a view, in the order in which they left.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use foldhash::fast::RandomState;

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
}

impl Tombstone {
    fn bytes(&self) -> usize {
        TOMBSTONE_BYTES + self.key.as_str().len() + self.object.as_ref().map_or(0, Object::bytes)
    }
}

/// The tombstones of a view.
///
/// Invariant: `by_key` has the same tombstones as `by_rv`, `bytes` is the sum of their sizes, and no tombstone up to
/// `without_object` has an object.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    by_rv: BTreeMap<Rv, Tombstone>,
    by_key: HashMap<Key, Rv, RandomState>,
    bytes: usize,
    without_object: Rv,
}

impl Tombstones {
    /// Adds the tombstone of a key that has none.
    pub(super) fn insert(&mut self, rv: Rv, mut tombstone: Tombstone) {
        if rv <= self.without_object {
            tombstone.object = None;
        }
        self.bytes += tombstone.bytes();
        self.by_key.insert(tombstone.key.clone(), rv);
        self.by_rv.insert(rv, tombstone);
    }

    /// Removes the tombstone of a key, if it has one.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(removed) = self.by_key.remove(key).and_then(|rv| self.by_rv.remove(&rv)) {
            self.bytes -= removed.bytes();
        }
    }

    /// The event at which the key left the view, if it has a tombstone.
    pub(super) fn of(&self, key: &Key) -> Option<Rv> {
        self.by_key.get(key).copied()
    }

    /// Whether the key has a tombstone.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// Drops the tombstones that exceed the limits.
    pub(super) fn trim(&mut self, limits: TombstoneLimits, now: Time) -> Option<Rv> {
        while self.bytes > limits.bytes && self.drop_oldest_object() {}
        let mut dropped = None;
        while let Some(oldest) = self.by_rv.first_entry() {
            let is_old = oldest.get().at.plus(limits.age) < now;
            if !is_old && self.by_key.len() <= limits.count && self.bytes <= limits.bytes {
                break;
            }
            let (rv, tombstone) = oldest.remove_entry();
            self.by_key.remove(&tombstone.key);
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
        if bytes != self.bytes || self.by_key.len() != self.by_rv.len() {
            return Err(String::from("the tombstones are counted wrongly"));
        }
        for (rv, tombstone) in &self.by_rv {
            let key = &tombstone.key;
            if self.by_key.get(key) != Some(rv) {
                return Err(format!("the tombstone of key {key} is not found by its key"));
            }
            if is_live(key) {
                return Err(format!("key {key} has a tombstone and is in the view"));
            }
            if *rv <= self.without_object && tombstone.object.is_some() {
                return Err(format!("the tombstone of key {key} has an object again"));
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
            tombstones
                .insert(Rv::new(number.into()), Tombstone { key, at, object, final_state_unknown: false });
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
