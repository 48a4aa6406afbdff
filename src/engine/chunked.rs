//! A sorted set in chunks, for what comes nearly in order: turns, tokens, deadlines.
//!
//! It is what `BTreeSet` is, for values that are mostly put in at the end and taken out near the beginning. Both ends
//! take a push or a pop in a ring, where a tree walks down through its nodes and shifts them; and chunks are full, where
//! the nodes of a tree that grows at its end stay half empty.

use std::collections::VecDeque;

/// Most values in a chunk: a few KiB, of which half are moved at worst to make room in the middle.
const CHUNK_LEN: usize = 128;
/// The room that an empty set may keep.
const SMALL_LEN: usize = 8;

/// A sorted set of small values. Empty ones take next to no memory.
///
/// Invariant: no chunk is empty but one that is the only one, and all values are in order, none twice.
#[derive(Debug)]
pub(super) struct Chunked<T> {
    chunks: VecDeque<VecDeque<T>>,
    len: usize,
}

impl<T: Copy + Ord> Chunked<T> {
    /// How many values are in.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The least value.
    pub(super) fn first(&self) -> Option<T> {
        self.chunks.front()?.front().copied()
    }

    /// All values, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// The least value that is not less than `from`.
    pub(super) fn next(&self, from: T) -> Option<T> {
        let chunk = self.chunks.get(self.chunk_of(&from))?;
        chunk.get(chunk.partition_point(|value| *value < from)).copied()
    }

    /// The values from `from` on, in order.
    pub(super) fn from(&self, from: T) -> impl Iterator<Item = &T> {
        let index = self.chunk_of(&from);
        let skipped = self.chunks.get(index).map_or(0, |chunk| chunk.partition_point(|value| *value < from));
        self.chunks.range(index.min(self.chunks.len())..).flatten().skip(skipped)
    }

    /// Whether the value is in.
    pub(super) fn contains(&self, value: &T) -> bool {
        let chunk = self.chunks.get(self.chunk_of(value));
        chunk.is_some_and(|chunk| chunk.binary_search(value).is_ok())
    }

    /// Puts a value in, unless it is in.
    pub(super) fn insert(&mut self, value: T) {
        let is_last = self.chunks.back().and_then(VecDeque::back).is_none_or(|last| *last < value);
        if is_last {
            self.push(value);
            return;
        }
        let index = self.chunk_of(&value);
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let Err(place) = chunk.binary_search(&value) else { return };
        chunk.insert(place, value);
        self.len += 1;
        if chunk.len() > CHUNK_LEN {
            let upper = chunk.split_off(CHUNK_LEN / 2);
            self.chunks.insert(index + 1, upper);
        }
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, value: &T) {
        let index = self.chunk_of(value);
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        if chunk.front() == Some(value) {
            chunk.pop_front();
        } else if let Ok(place) = chunk.binary_search(value) {
            chunk.remove(place);
        } else {
            return;
        }
        self.len -= 1;
        let left = chunk.len();
        if self.len == 0 {
            // A queue that is empty after each key should not allocate for each.
            if chunk.capacity() > SMALL_LEN {
                *self = Self::default();
            }
        } else if left == 0 {
            self.chunks.remove(index);
        } else if left < CHUNK_LEN / 4 {
            self.merge(index);
        }
    }

    /// Puts the chunk's values together with those of the next or of the one before, if there is room: so that what is
    /// taken out all over the set leaves no chunks with next to nothing in them.
    fn merge(&mut self, index: usize) {
        let has_room =
            |index: usize| self.chunks.get(index).is_some_and(|chunk| chunk.len() <= CHUNK_LEN / 2);
        let lower = if has_room(index + 1) {
            index
        } else if index > 0 && has_room(index - 1) {
            index - 1
        } else {
            return;
        };
        if let Some(mut upper) = self.chunks.remove(lower + 1)
            && let Some(chunk) = self.chunks.get_mut(lower)
        {
            chunk.append(&mut upper);
        }
    }

    fn push(&mut self, value: T) {
        self.len += 1;
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK_LEN => last.push_back(value),
            Some(_) => {
                let mut chunk = VecDeque::with_capacity(CHUNK_LEN);
                chunk.push_back(value);
                self.chunks.push_back(chunk);
            }
            None => {
                // Most sets are small and never have a second chunk.
                self.chunks.reserve_exact(1);
                self.chunks.push_back(VecDeque::from([value]));
            }
        }
    }

    /// The first chunk with a value that is not less; the number of chunks if there is none.
    fn chunk_of(&self, value: &T) -> usize {
        let is_below = |chunk: &VecDeque<T>| chunk.back().is_some_and(|last| last < value);
        if !self.chunks.front().is_some_and(is_below) {
            return 0;
        }
        self.chunks.partition_point(is_below)
    }
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), len: 0 }
    }
}

impl<T: Copy + Ord> FromIterator<T> for Chunked<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut values: Vec<T> = values.into_iter().collect();
        values.sort_unstable();
        let mut set = Self::default();
        for value in values {
            set.insert(value);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check(set: &Chunked<u64>, model: &BTreeSet<u64>, at: u64) {
        assert_eq!(set.len(), model.len());
        assert_eq!(set.first(), model.first().copied());
        assert!(set.iter().eq(model.iter()));
        assert!(set.from(at).eq(model.range(at..)));
        assert_eq!(set.next(at), model.range(at..).next().copied());
        assert_eq!(set.contains(&at), model.contains(&at));
        assert!(set.chunks.iter().all(|chunk| chunk.len() <= CHUNK_LEN));
        assert!(set.chunks.len() < 2 || set.chunks.iter().all(|chunk| !chunk.is_empty()));
    }

    #[test]
    fn it_is_a_sorted_set() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut set, mut model) = (Chunked::default(), BTreeSet::new());
            let span = 1 << random.u32(3..14);
            let puts_in = random.f64();
            for step in 0..4_000 {
                let value = random.u64(0..span);
                if random.f64() < puts_in {
                    set.insert(value);
                    model.insert(value);
                } else {
                    set.remove(&value);
                    model.remove(&value);
                }
                if step % 100 == 0 {
                    check(&set, &model, random.u64(0..=span));
                }
            }
            let all: Vec<u64> = model.iter().copied().collect();
            check(&all.iter().copied().rev().collect(), &model, 0);
            for value in all {
                set.remove(&value);
                model.remove(&value);
            }
            check(&set, &model, 0);
            assert!(set.chunks.iter().map(VecDeque::capacity).sum::<usize>() <= SMALL_LEN);
        }
    }

    #[test]
    fn what_comes_in_order_fills_its_chunks() {
        let mut set: Chunked<usize> = (0..10 * CHUNK_LEN).collect();
        assert_eq!(set.chunks.len(), 10);
        for value in (0..10 * CHUNK_LEN).filter(|value| value % 16 != 0) {
            set.remove(&value);
        }
        assert!(set.chunks.len() <= 4, "{} chunks for {} values", set.chunks.len(), set.len());
    }
}
