//! The keys of a queue with their deltas, known objects and schedule states. An entry can be looked up by key in a
//! hash table or by slot. Entries can also be read in key order.
//!
//! Slots are allocated in pages and the hash table grows in parts, because a single large array would stop the queue for
//! tens of milliseconds when it grows.

use std::hash::BuildHasher;
use std::ops::Bound;

use foldhash::fast::RandomState;

use super::id::Slot;
use super::key::Key;
use super::shards::Shards;
use super::text_order::TextOrder;

mod entry;
mod paged;

pub use entry::Entry;
pub(crate) use entry::key_bytes;
pub(crate) use paged::Paged;

/// The entries of a queue.
///
/// Invariant: `index` and `order` hold exactly the used slots of `entries`; `free` holds all other slots.
#[derive(Debug, Default)]
pub struct Table {
    entries: Paged<Option<Entry>>,
    free: Vec<Slot>,
    index: Shards<Slot>,
    order: TextOrder,
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

    /// The slot of `key`.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<Slot> {
        self.find_hashed(self.hasher.hash_one(key), key)
    }

    fn find_hashed(&self, hash: u64, key: &str) -> Option<Slot> {
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
        self.entries.get(slot.index())?.as_ref()
    }

    /// The entry at `slot`, mutable.
    pub fn at_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.entries.get_mut(slot.index())?.as_mut()
    }

    /// The slot of `key`. A new key gets an empty entry.
    ///
    /// # Panics
    /// If the table would have more than 2^32 slots.
    pub fn find_or_insert(&mut self, key: &Key) -> Slot {
        let hash = self.hasher.hash_one(key.as_str());
        if let Some(slot) = self.find_hashed(hash, key.as_str()) {
            return slot;
        }
        let entry = Entry::new(key.clone());
        let slot = if let Some(slot) = self.free.pop() {
            match self.entries.get_mut(slot.index()) {
                Some(place) => *place = Some(entry),
                None => panic!("slot {slot} is free and does not exist"),
            }
            slot
        } else {
            self.entries.push(Some(entry));
            let Some(slot) = Slot::at(self.entries.len() - 1) else {
                panic!("a queue can't hold more than 2^32 keys");
            };
            slot
        };
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.index.insert(hash, slot, |slot| hasher.hash_one(key_at(entries, *slot).as_str()));
        self.order.insert(key.as_str(), slot, |slot| key_at(entries, slot).as_str());
        slot
    }

    /// Number of slots, used or free.
    pub(super) fn slots(&self) -> usize {
        self.entries.len()
    }

    /// Puts an entry of a checkpoint into this slot. Until [`restored`](Self::restored) is called, the entry can be
    /// found only by its slot.
    pub(super) fn put(&mut self, slot: Slot, entry: Entry) {
        while self.entries.len() <= slot.index() {
            self.entries.push(None);
        }
        if let Some(place) = self.entries.get_mut(slot.index()) {
            *place = Some(entry);
        }
    }

    /// Completes the table after [`put`](Self::put). Sorting and hashing all keys at once is several times faster than
    /// inserting them one by one.
    pub(super) fn restored(&mut self) -> Result<(), String> {
        let mut keys: Vec<(Key, Slot)> =
            self.by_slot().map(|(slot, entry)| (entry.key.clone(), slot)).collect();
        let hashed = keys.iter().map(|(key, slot)| (self.hasher.hash_one(key.as_str()), *slot));
        self.index = Shards::filled(hashed.collect());
        keys.sort_unstable();
        if let Some([(key, slot), (_, other)]) = keys.array_windows().find(|[(a, _), (b, _)]| a == b) {
            return Err(format!("key {key} is in slot {slot} and in slot {other}"));
        }
        let sorted: Vec<Slot> = keys.into_iter().map(|(_, slot)| slot).collect();
        self.order = TextOrder::from_sorted(&sorted, |slot| key_at(&self.entries, slot).as_str());
        let slots = (0..).map(Slot::new).zip(self.entries.iter());
        let free = slots.filter(|(_, entry)| entry.is_none()).map(|(slot, _)| slot);
        // The last free slot is used first.
        self.free = free.collect::<Vec<Slot>>().into_iter().rev().collect();
        Ok(())
    }

    /// All entries in the order of their slots.
    pub(super) fn by_slot(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        (0..)
            .map(Slot::new)
            .zip(self.entries.iter())
            .filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    /// Whether the invariant of the table holds.
    pub(super) fn is_whole(&self) -> bool {
        let taken = self.len();
        let is_free = |slot: &Slot| self.entries.get(slot.index()).is_some_and(Option::is_none);
        self.order.len() == taken
            && self.entries.len() == taken + self.free.len()
            && self.free.iter().all(is_free)
            && self.order.is_whole(|slot| key_at(&self.entries, slot).as_str())
    }

    /// Removes the entry at `slot`.
    pub fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let key = self.at(slot)?.key.clone();
        self.order.remove(key.as_str(), |slot| key_at(&self.entries, slot).as_str());
        let entry = self.entries.get_mut(slot.index())?.take()?;
        self.index.remove(self.hasher.hash_one(key.as_str()), |other| *other == slot);
        if self.is_empty() {
            // An empty queue releases its memory. Nothing refers to a slot whose entry is removed.
            *self = Self { hasher: self.hasher.clone(), ..Self::default() };
        } else {
            self.free.push(slot);
        }
        Some(entry)
    }

    /// All entries from `from` on, in key order.
    pub fn from(&self, from: Bound<&str>) -> impl Iterator<Item = (Slot, &Entry)> {
        let slots = self.order.from(from, |slot| key_at(&self.entries, slot).as_str());
        slots.filter_map(|slot| Some((slot, self.at(slot)?)))
    }

    /// The key at `slot`.
    pub(super) fn key_at(&self, slot: Slot) -> Option<&str> {
        self.at(slot).map(|entry| entry.key.as_str())
    }
}

/// The key at a used slot.
fn key_at(entries: &Paged<Option<Entry>>, slot: Slot) -> &Key {
    match entries.get(slot.index()) {
        Some(Some(entry)) => &entry.key,
        _ => panic!("slot {slot} has no entry"),
    }
}
