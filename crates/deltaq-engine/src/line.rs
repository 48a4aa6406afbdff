//! A sorted map for keys that arrive and leave almost in order, such as the positions of ready keys.
//!
//! Appending and removing at the ends take a few instructions, and nothing moves when the map grows. In a `BTreeMap` each
//! operation searches from the root, and a node that is filled in order stays half empty.

use std::collections::VecDeque;
use std::ops::Bound;

/// Maximum number of entries in a chunk.
const CHUNK_LEN: usize = 256;
/// A chunk smaller than this is joined with a neighbour if both together have at most half of [`CHUNK_LEN`].
const SMALL_CHUNK_LEN: usize = CHUNK_LEN / 8;

/// Maximum number of places that an empty map keeps. Most queues have a key now and then.
const KEPT_LEN: usize = 4;

/// A sorted map. Keys and values are numbers, and are copied.
///
/// Invariants: no chunk is empty, except a small one that is the only one; the keys of a chunk are below the `lower_bound` of the next chunk and, except in the first
/// chunk, not below their own; `len` is the number of all entries.
#[derive(Clone, Debug)]
pub(crate) struct Line<K, V> {
    chunks: VecDeque<Chunk<K, V>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk<K, V> {
    lower_bound: K,
    entries: VecDeque<(K, V)>,
}

impl<K, V> Default for Line<K, V> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), len: 0 }
    }
}

impl<K: Ord + Copy, V: Copy> Line<K, V> {
    /// Number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The entry with the smallest key.
    pub(crate) fn first(&self) -> Option<(K, V)> {
        self.chunks.front()?.entries.front().copied()
    }

    /// The value of `key`.
    pub(crate) fn get(&self, key: K) -> Option<V> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        chunk.entries.get(chunk.find(key).ok()?).map(|(_, value)| *value)
    }

    /// Sets the value of `key`. Returns the former value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (index, chunks) = (self.chunk_of(key), self.chunks.len());
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.append(key, value);
            return None;
        };
        if self.len == 0 {
            chunk.lower_bound = key;
        }
        let position = match chunk.find(key) {
            Ok(position) => {
                return chunk.entries.get_mut(position).map(|entry| std::mem::replace(&mut entry.1, value));
            }
            Err(position) => position,
        };
        let is_full = chunk.entries.len() == CHUNK_LEN;
        if is_full && position == CHUNK_LEN && index + 1 == chunks {
            self.append(key, value);
            return None;
        }
        chunk.entries.insert(position, (key, value));
        self.len += 1;
        if is_full {
            self.split(index);
        }
        None
    }

    /// Removes `key`. Returns its value.
    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let index = self.chunk_of(key);
        let chunk = self.chunks.get_mut(index)?;
        let position = chunk.find(key).ok()?;
        let entries = &mut chunk.entries;
        let (_, value) = if position == 0 { entries.pop_front() } else { entries.remove(position) }?;
        self.len -= 1;
        let (left, is_large) = (entries.len(), entries.capacity() > KEPT_LEN);
        if left < SMALL_CHUNK_LEN && self.chunks.len() > 1 {
            if left == 0 {
                self.chunks.remove(index);
            } else {
                self.join(index);
            }
        } else if left == 0 && is_large {
            self.chunks.clear();
        }
        Some(value)
    }

    /// All entries from `from` on, in the order of keys.
    pub(crate) fn from(&self, from: Bound<K>) -> impl Iterator<Item = (K, V)> {
        let (index, skipped) = match from {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) => self.place(key, |other| *other < key),
            Bound::Excluded(key) => self.place(key, |other| *other <= key),
        };
        self.chunks
            .range(index.min(self.chunks.len())..)
            .flat_map(|chunk| &chunk.entries)
            .copied()
            .skip(skipped)
    }

    /// The entries from the first one for which `is_wanted` holds. It must hold for all entries after that one.
    pub(crate) fn starting_at(&self, is_wanted: impl Fn(&(K, V)) -> bool) -> impl Iterator<Item = (K, V)> {
        let is_over = |chunk: &Chunk<K, V>| chunk.entries.back().is_none_or(|last| !is_wanted(last));
        let index = self.chunks.partition_point(is_over);
        let chunk = self.chunks.get(index);
        let skipped = chunk.map(|chunk| chunk.entries.partition_point(|entry| !is_wanted(entry)));
        let skipped = skipped.unwrap_or_default();
        self.chunks
            .range(index.min(self.chunks.len())..)
            .flat_map(|chunk| &chunk.entries)
            .copied()
            .skip(skipped)
    }

    /// All entries, in the order of keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, V)> {
        self.from(Bound::Unbounded)
    }

    /// The index of the chunk that a key belongs to.
    fn chunk_of(&self, key: K) -> usize {
        // Most keys belong to the first or the last chunk.
        match self.chunks.len() {
            0 | 1 => 0,
            count if self.chunks.back().is_some_and(|last| last.lower_bound <= key) => count - 1,
            _ if self.chunks.get(1).is_some_and(|second| key < second.lower_bound) => 0,
            _ => self.chunks.partition_point(|chunk| chunk.lower_bound <= key).saturating_sub(1),
        }
    }

    /// The index of the chunk of `key`, and the number of leading entries in the chunk for which `is_before` holds.
    fn place(&self, key: K, is_before: impl Fn(&K) -> bool) -> (usize, usize) {
        let index = self.chunk_of(key);
        let count =
            self.chunks.get(index).map(|chunk| chunk.entries.partition_point(|(key, _)| is_before(key)));
        (index, count.unwrap_or_default())
    }

    /// Begins a new chunk at the end.
    fn append(&mut self, key: K, value: V) {
        if self.chunks.is_empty() {
            // Most maps never get a second chunk.
            self.chunks.reserve_exact(1);
        }
        self.chunks.push_back(Chunk { lower_bound: key, entries: VecDeque::from([(key, value)]) });
        self.len += 1;
    }

    fn split(&mut self, index: usize) {
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let entries = chunk.entries.split_off(CHUNK_LEN / 2);
        chunk.entries.shrink_to_fit();
        if let Some((lower_bound, _)) = entries.front().copied() {
            self.chunks.insert(index + 1, Chunk { lower_bound, entries });
        }
    }

    /// Joins a small chunk with its neighbours, if they are small, too.
    fn join(&mut self, index: usize) {
        for index in [index, index.saturating_sub(1)] {
            let len = |index: usize| self.chunks.get(index).map(|chunk| chunk.entries.len());
            if let (Some(len), Some(next_len)) = (len(index), len(index + 1))
                && len + next_len <= CHUNK_LEN / 2
                && let Some(next) = self.chunks.remove(index + 1)
                && let Some(chunk) = self.chunks.get_mut(index)
            {
                chunk.entries.extend(next.entries);
            }
        }
    }
}

impl<K: Ord + Copy, V: Copy> Chunk<K, V> {
    /// The position of `key`, or the position at which it would be inserted.
    fn find(&self, key: K) -> Result<usize, usize> {
        let ends = (self.entries.front(), self.entries.back());
        let (Some((first, _)), Some((last, _))) = ends else { return Err(0) };
        // Most keys are first or last.
        if *last < key {
            Err(self.entries.len())
        } else if *first == key {
            Ok(0)
        } else if key < *first {
            Err(0)
        } else {
            self.entries.binary_search_by(|(other, _)| other.cmp(&key))
        }
    }
}

impl<K: Ord + Copy, V: Copy> FromIterator<(K, V)> for Line<K, V> {
    /// Collects entries in any order.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut sorted: Vec<(K, V)> = entries.into_iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        let mut line = Self::default();
        for (key, value) in sorted {
            line.insert(key, value);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Operations on the two maps of the test.
    const OPERATIONS: u64 = 400_000;

    impl Line<u64, u32> {
        fn is_whole(&self) -> bool {
            let bounds = self.chunks.iter().zip(self.chunks.iter().skip(1));
            let mut sorted = self.chunks.iter().skip(1);
            let is_filled = |chunk: &Chunk<_, _>| (1..=CHUNK_LEN).contains(&chunk.entries.len());
            let is_kept = |chunk: &Chunk<_, _>| self.len == 0 && chunk.entries.capacity() <= KEPT_LEN;
            self.chunks.iter().all(|chunk| is_filled(chunk) || is_kept(chunk))
                && bounds
                    .clone()
                    .all(|(chunk, next)| chunk.entries.iter().all(|(key, _)| *key < next.lower_bound))
                && sorted.all(|chunk| chunk.entries.iter().all(|(key, _)| chunk.lower_bound <= *key))
                && self.iter().zip(self.iter().skip(1)).all(|((a, _), (b, _))| a < b)
                && self.iter().count() == self.len
        }
    }

    fn check(line: &Line<u64, u32>, model: &BTreeMap<u64, u32>, at: u64) {
        assert!(line.is_whole());
        assert_eq!((line.len(), line.first()), (model.len(), model.first_key_value().map(|(k, v)| (*k, *v))));
        for from in [Bound::Unbounded, Bound::Included(at), Bound::Excluded(at)] {
            let entries = model.range((from, Bound::Unbounded)).map(|(key, value)| (*key, *value));
            assert!(line.from(from).eq(entries), "{from:?}");
        }
    }

    #[test]
    fn a_line_equals_a_sorted_map() {
        for (seed, disorder) in (0..).zip([0, 3, 300, 1_000_000]) {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut line, mut model, mut next) = (Line::default(), BTreeMap::new(), 1_000_000_u64);
            for step in 0..OPERATIONS / 4 {
                // The map fills and drains in turns.
                let share_of_inserts = [0.9, 0.5, 0.1, 0.5, 0.02][usize::try_from(step / 5_000 % 5).unwrap()];
                if random.f64() < share_of_inserts {
                    next += 1;
                    let (key, value) = (next - random.u64(0..=disorder), random.u32(..));
                    assert_eq!(line.insert(key, value), model.insert(key, value));
                } else {
                    let from_front = model.keys().nth(random.usize(..3)).copied();
                    let near = model.range(next - random.u64(0..=disorder)..).next().map(|(key, _)| *key);
                    let key = if random.bool() { from_front } else { near }.unwrap_or(next + 1);
                    assert_eq!(line.get(key), model.get(&key).copied());
                    assert_eq!(line.remove(key), model.remove(&key));
                }
                if step % 2_500 == 0 {
                    check(&line, &model, next - random.u64(0..=disorder));
                }
            }
            check(&model.clone().into_iter().collect(), &model, next);
            while let Some((key, _)) = line.first() {
                assert_eq!(line.remove(key), model.remove(&key));
            }
            assert!(model.is_empty() && line.is_whole());
        }
    }

    #[test]
    fn keys_in_order_fill_their_chunks() {
        let line: Line<u64, u32> = (0..20_000).map(|key| (key, 0)).collect();
        assert_eq!(line.chunks.len(), 20_000_usize.div_ceil(CHUNK_LEN));
    }

    #[test]
    fn a_few_old_keys_keep_little_memory() {
        let mut line: Line<u64, u32> = (0..100_000).map(|key| (key, 0)).collect();
        for key in (0..100_000).filter(|key| key % 100 != 0) {
            line.remove(key);
        }
        assert!(line.is_whole());
        let room: usize = line.chunks.iter().map(|chunk| chunk.entries.capacity()).sum();
        assert!(room <= 10 * line.len(), "{room} places for {} entries", line.len());
    }
}
