//! A hash table in parts. Each part grows and rehashes independently, so growing never pauses a queue for long. With
//! a million keys, a part holds about 16,000.

use hashbrown::HashTable;

/// Number of bits of the hash that choose the part. The tables in the parts use other bits.
const PART_BITS: u32 = 6;

/// A hash table of `T`, searched by hash and equality. An empty table takes no memory.
#[derive(Debug)]
pub(super) struct Shards<T> {
    parts: Vec<HashTable<T>>,
    len: usize,
}

impl<T> Shards<T> {
    /// Number of values.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The value with this hash for which `is` returns true.
    pub(super) fn find(&self, hash: u64, is: impl FnMut(&T) -> bool) -> Option<&T> {
        self.parts.get(part(hash))?.find(hash, is)
    }

    /// Inserts a value that the table does not contain. A part that grows calls `hash_of` for its values.
    pub(super) fn insert(&mut self, hash: u64, value: T, hash_of: impl Fn(&T) -> u64) {
        if self.parts.is_empty() {
            self.parts.resize_with(1 << PART_BITS, HashTable::new);
        }
        if let Some(part) = self.parts.get_mut(part(hash)) {
            part.insert_unique(hash, value, hash_of);
            self.len += 1;
        }
    }

    /// A table of distinct values, with no room to spare.
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
                // The part has room for all of its values, so it does not grow here.
                part.insert_unique(hash, value, |_| hash);
            }
        }
        filled
    }

    /// Removes the value with this hash for which `is` returns true.
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

/// The part that a hash belongs to, taken from the middle bits of the hash: `HashTable` uses the low bits as position
/// and the high bits as tag.
fn part(hash: u64) -> usize {
    usize::try_from((hash >> 32) & ((1 << PART_BITS) - 1)).unwrap_or_default()
}
