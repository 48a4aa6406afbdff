//! A hash table in parts, so that growing never stops the queue for long: each part rehashes by
//! itself, and a part of a million keys holds about 16,000 of them.

use hashbrown::HashTable;

/// Bits of the hash that choose the part. The table inside uses the other end of the hash.
const PART_BITS: u32 = 6;

/// A hash table of `T`, found by hash and equality. Empty ones take no memory.
#[derive(Debug)]
pub(super) struct Shards<T> {
    parts: Vec<HashTable<T>>,
    len: usize,
}

impl<T> Shards<T> {
    /// How many values are in.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The value of this hash that `is` picks.
    pub(super) fn find(&self, hash: u64, is: impl FnMut(&T) -> bool) -> Option<&T> {
        self.parts.get(part(hash))?.find(hash, is)
    }

    /// Puts a value in that is not in yet; `hash_of` is asked again when a part grows.
    pub(super) fn insert(&mut self, hash: u64, value: T, hash_of: impl Fn(&T) -> u64) {
        if self.parts.is_empty() {
            self.parts.resize_with(1 << PART_BITS, HashTable::new);
        }
        if let Some(part) = self.parts.get_mut(part(hash)) {
            part.insert_unique(hash, value, hash_of);
            self.len += 1;
        }
    }

    /// A table of values, none twice, that are as many as they will be for now.
    pub(super) fn filled(values: Vec<(u64, T)>) -> Self {
        let mut sizes = vec![0; 1 << PART_BITS];
        for (hash, _) in &values {
            if let Some(size) = sizes.get_mut(part(*hash)) {
                *size += 1;
            }
        }
        let mut filled =
            Self { parts: sizes.into_iter().map(HashTable::with_capacity).collect(), len: values.len() };
        for (hash, value) in values {
            if let Some(part) = filled.parts.get_mut(part(hash)) {
                // There is room, so nothing is moved and no hash is asked for.
                part.insert_unique(hash, value, |_| hash);
            }
        }
        filled
    }

    /// Takes the value of this hash out that `is` picks.
    pub(super) fn remove(&mut self, hash: u64, is: impl FnMut(&T) -> bool) {
        let part = self.parts.get_mut(part(hash));
        if let Some(Ok(found)) = part.map(|part| part.find_entry(hash, is)) {
            found.remove();
            self.len -= 1;
        }
    }
}

impl<T> Default for Shards<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), len: 0 }
    }
}

/// Bits from the middle: `HashTable` takes its place from the low bits and its tag from the high ones.
fn part(hash: u64) -> usize {
    usize::try_from((hash >> 32) & ((1 << PART_BITS) - 1)).unwrap_or_default()
}
