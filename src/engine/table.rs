//! Every key of a queue with all that belongs to it, found by key (hash), by slot, or in key order.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;

use foldhash::fast::RandomState;

use super::delta::{Deltas, Rv, Source};
use super::key::Key;
use super::object::Object;
use super::schedule::{Slot, Standing};
use super::shards::Shards;

/// The object that consumers acknowledged last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The object.
    pub object: Object,
    /// The delta, or the seed, that it came with.
    pub rv: Rv,
    /// Who owns the key as of this object.
    pub owner: Option<Source>,
}

/// One key and all that the queue holds of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// Deltas that are not handed out.
    pub waiting: Deltas,
    /// Deltas in the hands of a worker. Invariant: empty unless leased.
    pub leased: Deltas,
    /// The last acknowledged object.
    pub known: Option<Known>,
    /// Where the key stands in the schedule.
    pub standing: Standing,
    /// The delta of the initial list that is not acknowledged yet.
    pub mark: Option<Rv>,
}

impl Entry {
    fn new(key: Key) -> Self {
        Self {
            key,
            waiting: Deltas::default(),
            leased: Deltas::default(),
            known: None,
            standing: Standing::default(),
            mark: None,
        }
    }
}

/// The entries of a queue.
///
/// Invariant: `index` and `order` hold exactly the slots of `entries` that are taken; every other
/// slot is in `free`.
#[derive(Debug, Default)]
pub struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<Slot>,
    index: Shards<Slot>,
    order: BTreeMap<Key, Slot>,
    hasher: RandomState,
}

impl Table {
    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.len() == 0
    }

    /// Where `key` is.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<Slot> {
        let hash = self.hasher.hash_one(key);
        self.index.find(hash, |slot| self.key_at(*slot) == Some(key)).copied()
    }

    /// The entry of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.at(self.find(key)?)
    }

    /// The entry at `slot`.
    #[must_use]
    pub fn at(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot as usize)?.as_ref()
    }

    /// The entry at `slot`, to change it.
    pub fn at_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// The slot of `key`, which gets an empty entry if it has none.
    pub fn find_or_insert(&mut self, key: &Key) -> Slot {
        if let Some(slot) = self.find(key.as_str()) {
            return slot;
        }
        let entry = Entry::new(key.clone());
        let slot = if let Some(slot) = self.free.pop() {
            if let Some(place) = self.entries.get_mut(slot as usize) {
                *place = Some(entry);
            }
            slot
        } else {
            self.entries.push(Some(entry));
            Slot::try_from(self.entries.len() - 1).unwrap_or(Slot::MAX)
        };
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.index.insert(hasher.hash_one(key.as_str()), slot, |slot| {
            let entry = entries.get(*slot as usize).and_then(Option::as_ref);
            hasher.hash_one(entry.map_or("", |entry| entry.key.as_str()))
        });
        self.order.insert(key.clone(), slot);
        slot
    }

    /// Takes the entry at `slot` out.
    pub fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        let hash = self.hasher.hash_one(entry.key.as_str());
        self.index.remove(hash, |other| *other == slot);
        self.order.remove(entry.key.as_str());
        if self.is_empty() {
            // An empty queue gives its memory back; a slot never outlives its entry.
            *self = Self { hasher: self.hasher.clone(), ..Self::default() };
        } else {
            self.free.push(slot);
        }
        Some(entry)
    }

    /// All entries from `from` on, in key order.
    pub fn from(&self, from: Bound<&str>) -> impl Iterator<Item = (Slot, &Entry)> {
        self.order
            .range::<str, _>((from, Bound::Unbounded))
            .filter_map(|(_, slot)| Some((*slot, self.at(*slot)?)))
    }

    fn key_at(&self, slot: Slot) -> Option<&str> {
        self.at(slot).map(|entry| entry.key.as_str())
    }
}
