//! Texts in order, such as the keys of a queue. They are stored as a sorted list of slots, in chunks.
//!
//! The list holds only slots, and the caller gives the text of a slot. A `BTreeMap` from keys to slots would need
//! less code, but takes 27 more bytes per key, and made batches that add new keys 10 % slower. Storing the first
//! bytes of each text next to its slot would save some lookups of entries, but doubles the code.

use std::ops::Bound;

use smol_str::SmolStr;

use super::id::Slot;

/// Maximum number of texts in a chunk.
const CHUNK_LEN: usize = 512;
/// A chunk smaller than this is joined with the next one if both together have at most half of [`CHUNK_LEN`].
const SMALL_CHUNK_LEN: usize = CHUNK_LEN / 8;

/// Slots in the order of their texts. `text_of` returns the text of a slot.
///
/// Invariant: no chunk is empty. The texts of a chunk are below the `lower_bound` of the next chunk, and, except in the first
/// chunk, not below their own.
#[derive(Debug, Default)]
pub(super) struct TextOrder {
    chunks: Vec<Chunk>,
    len: usize,
}

#[derive(Debug)]
struct Chunk {
    lower_bound: SmolStr,
    slots: Vec<Slot>,
}

impl TextOrder {
    /// Creates the order from slots that are already sorted.
    pub(super) fn from_sorted<'t>(sorted: &[Slot], text_of: impl Fn(Slot) -> &'t str) -> Self {
        let chunk = |part: &[Slot]| {
            part.first().map(|first| Chunk { lower_bound: text_of(*first).into(), slots: part.to_vec() })
        };
        Self { chunks: sorted.chunks(CHUNK_LEN).filter_map(chunk).collect(), len: sorted.len() }
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Inserts a text that is not present yet.
    pub(super) fn insert<'t>(&mut self, text: &str, slot: Slot, text_of: impl Fn(Slot) -> &'t str) {
        let index = self.chunk_of(text);
        self.len += 1;
        let Some(chunk) = self.chunks.get_mut(index) else {
            return self.chunks.push(Chunk { lower_bound: text.into(), slots: vec![slot] });
        };
        let position = chunk.position(text, &text_of);
        chunk.slots.insert(position, slot);
        if chunk.slots.len() > CHUNK_LEN {
            self.split(index, position, &text_of);
        }
    }

    /// Removes a text.
    pub(super) fn remove<'t>(&mut self, text: &str, text_of: impl Fn(Slot) -> &'t str) {
        let index = self.chunk_of(text);
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let position = chunk.position(text, &text_of);
        if chunk.slots.get(position).is_none_or(|slot| text_of(*slot) != text) {
            return;
        }
        chunk.slots.remove(position);
        self.len -= 1;
        if chunk.slots.is_empty() {
            self.chunks.remove(index);
        } else if chunk.slots.len() < SMALL_CHUNK_LEN {
            self.join_with_next(index);
        }
    }

    /// The slots of all texts from `from` on.
    pub(super) fn from<'t>(
        &self,
        from: Bound<&str>,
        text_of: impl Fn(Slot) -> &'t str,
    ) -> impl Iterator<Item = Slot> {
        let (index, skipped) = match from {
            Bound::Unbounded => (0, 0),
            Bound::Included(text) => self.place(text, |other| other < text, text_of),
            Bound::Excluded(text) => self.place(text, |other| other <= text, text_of),
        };
        let chunks = self.chunks.get(index..).unwrap_or_default();
        chunks.iter().flat_map(|chunk| &chunk.slots).copied().skip(skipped)
    }

    /// Whether the invariant holds.
    pub(super) fn is_whole<'t>(&self, text_of: impl Fn(Slot) -> &'t str) -> bool {
        let all = || self.from(Bound::Unbounded, &text_of);
        let is_found = |slot| self.from(Bound::Included(text_of(slot)), &text_of).next() == Some(slot);
        self.chunks.iter().all(|chunk| (1..=CHUNK_LEN).contains(&chunk.slots.len()))
            && all().count() == self.len
            && all().zip(all().skip(1)).all(|(a, b)| text_of(a) < text_of(b))
            && all().all(is_found)
    }

    /// The index of the chunk that a text belongs to.
    fn chunk_of(&self, text: &str) -> usize {
        self.chunks.partition_point(|chunk| chunk.lower_bound.as_str() <= text).saturating_sub(1)
    }

    /// The index of the chunk of `text`, and the number of leading texts in the chunk for which `is_before` holds.
    fn place<'t>(
        &self,
        text: &str,
        is_before: impl Fn(&str) -> bool,
        text_of: impl Fn(Slot) -> &'t str,
    ) -> (usize, usize) {
        let index = self.chunk_of(text);
        let slots = self.chunks.get(index).map_or(&[][..], |chunk| &chunk.slots);
        (index, slots.partition_point(|slot| is_before(text_of(*slot))))
    }

    /// Splits a chunk near the position of its newest text, because texts often arrive in order.
    fn split<'t>(&mut self, index: usize, newest: usize, text_of: &impl Fn(Slot) -> &'t str) {
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let at = newest.clamp(SMALL_CHUNK_LEN, CHUNK_LEN - SMALL_CHUNK_LEN);
        let slots = chunk.slots.split_off(at);
        chunk.slots.shrink_to_fit();
        if let Some(first) = slots.first() {
            let lower_bound = text_of(*first).into();
            self.chunks.insert(index + 1, Chunk { lower_bound, slots });
        }
    }

    fn join_with_next(&mut self, index: usize) {
        let len = |index: usize| self.chunks.get(index).map(|chunk| chunk.slots.len());
        if let (Some(len), Some(next_len)) = (len(index), len(index + 1))
            && len + next_len <= CHUNK_LEN / 2
        {
            let next = self.chunks.remove(index + 1);
            if let Some(chunk) = self.chunks.get_mut(index) {
                chunk.slots.extend(next.slots);
            }
        }
    }
}

impl Chunk {
    /// The position of the first text that is not below `text`.
    fn position<'t>(&self, text: &str, text_of: &impl Fn(Slot) -> &'t str) -> usize {
        if self.slots.last().is_some_and(|last| text_of(*last) < text) {
            return self.slots.len();
        }
        self.slots.partition_point(|slot| text_of(*slot) < text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::key::Key;

    /// Keys of several styles: with common prefixes, numbered, of many lengths, and beyond ASCII.
    fn key(number: u32, style: u32) -> Key {
        let text = match style {
            0 => format!("namespace-{}/pod-{}", number % 7, number.wrapping_mul(0x9e37_79b9)),
            1 => format!("{number:08}"),
            2 => "x".repeat(usize::try_from(number % 40).unwrap()) + &number.to_string(),
            _ => format!("ä{}-{number}", char::from_u32(0x100 + number % 3_000).unwrap()),
        };
        Key::new(&text).unwrap()
    }

    fn check(order: &TextOrder, model: &BTreeMap<Key, Slot>, keys: &[Key], at: &str) {
        let key_of = |slot: Slot| keys[slot.index()].as_str();
        assert!(order.is_whole(key_of));
        assert_eq!(order.len(), model.len());
        for from in [Bound::Unbounded, Bound::Included(at), Bound::Excluded(at)] {
            let slots = model.range::<str, _>((from, Bound::Unbounded)).map(|(_, slot)| *slot);
            assert!(order.from(from, key_of).eq(slots), "{from:?}");
        }
    }

    #[test]
    fn the_order_equals_that_of_a_sorted_map() {
        for (seed, style) in (0..).zip([0, 1, 2, 3]) {
            let mut random = fastrand::Rng::with_seed(seed);
            let keys: Vec<Key> = (0..6_000).map(|number| key(number, style)).collect();
            let key_of = |slot: Slot| keys[slot.index()].as_str();
            let (mut order, mut model) = (TextOrder::default(), BTreeMap::new());
            for step in 0..40_000 {
                let share_of_inserts = [0.9, 0.5, 0.1, 0.5][step / 5_000 % 4];
                let slot = Slot::new(random.u32(0..6_000));
                let key = &keys[slot.index()];
                if random.f64() < share_of_inserts {
                    if !model.contains_key(key) {
                        order.insert(key.as_str(), slot, key_of);
                        model.insert(key.clone(), slot);
                    }
                } else if model.remove(key).is_some() {
                    order.remove(key.as_str(), key_of);
                }
                if step % 1_000 == 0 {
                    check(&order, &model, &keys, key.as_str());
                }
            }
            let mut sorted: Vec<(Key, Slot)> = model.iter().map(|(key, slot)| (key.clone(), *slot)).collect();
            let slots: Vec<Slot> = sorted.iter().map(|(_, slot)| *slot).collect();
            check(&TextOrder::from_sorted(&slots, key_of), &model, &keys, "namespace-3");
            random.shuffle(&mut sorted);
            for (key, _) in sorted {
                order.remove(key.as_str(), key_of);
                model.remove(&key);
            }
            check(&order, &model, &keys, "");
            assert!(order.chunks.is_empty());
        }
    }

    #[test]
    fn removing_an_unknown_key_changes_nothing() {
        let keys: Vec<Key> = (0..10).map(|number| key(number, 1)).collect();
        let key_of = |slot: Slot| keys[slot.index()].as_str();
        let mut order = TextOrder::default();
        order.insert(keys[3].as_str(), Slot::new(3), key_of);
        order.remove(keys[2].as_str(), key_of);
        order.remove(keys[4].as_str(), key_of);
        assert!(order.from(Bound::Unbounded, key_of).eq([Slot::new(3)]));
    }

    #[test]
    fn ordered_keys_fill_their_chunks() {
        let keys: Vec<Key> = (0..20_000).map(|number| key(number, 1)).collect();
        let key_of = |slot: Slot| keys[slot.index()].as_str();
        let mut order = TextOrder::default();
        for (key, slot) in keys.iter().zip((0..).map(Slot::new)) {
            order.insert(key.as_str(), slot, key_of);
        }
        assert!(order.is_whole(key_of));
        assert!(order.chunks.len() < 50, "{}", order.chunks.len());
    }
}
