//! Texts in order, such as the keys of a queue. They are stored as a sorted list of slots, in chunks.
//!
//! The list holds slots, and the caller gives the text of a slot. A `BTreeMap` from keys to slots would need less code,
//! but takes 27 more bytes per key, and made batches that add new keys 10 % slower. A slot is stored with a few bytes of
//! its text, so that most comparisons read no text: each text is in another place of the memory.

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
    /// Length of the prefix of `lower_bound` that the texts had in common when the chunk was made.
    prefix_len: usize,
    places: Vec<Place>,
}

/// A slot in the order of texts.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// [`Chunk::head`] of the text.
    head: u32,
    slot: Slot,
}

impl TextOrder {
    /// Creates the order from slots that are already sorted.
    pub(super) fn from_sorted<'t>(sorted: &[Slot], text_of: impl Fn(Slot) -> &'t str) -> Self {
        let chunk =
            |part: &[Slot]| part.first().map(|first| Chunk::new(text_of(*first).into(), part, &text_of));
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
            return self.chunks.push(Chunk::begin(text, slot));
        };
        let position = chunk.position(text, &text_of);
        chunk.places.insert(position, Place { head: chunk.head(text), slot });
        if chunk.places.len() > CHUNK_LEN {
            self.split(index, position, &text_of);
        }
    }

    /// Removes a text.
    pub(super) fn remove<'t>(&mut self, text: &str, text_of: impl Fn(Slot) -> &'t str) {
        let index = self.chunk_of(text);
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let position = chunk.position(text, &text_of);
        if !chunk.has(position, text, &text_of) {
            return;
        }
        chunk.places.remove(position);
        self.len -= 1;
        if chunk.places.is_empty() {
            self.chunks.remove(index);
        } else if chunk.places.len() < SMALL_CHUNK_LEN {
            self.join_with_next(index, &text_of);
        }
    }

    /// The slots of all texts from `from` on.
    pub(super) fn from<'t>(
        &self,
        from: Bound<&str>,
        text_of: impl Fn(Slot) -> &'t str,
    ) -> impl Iterator<Item = Slot> {
        let place = |text| {
            let index = self.chunk_of(text);
            let chunk = self.chunks.get(index);
            let position = chunk.map_or(0, |chunk| chunk.position(text, &text_of));
            (index, position, chunk.is_some_and(|chunk| chunk.has(position, text, &text_of)))
        };
        let (index, skipped) = match from {
            Bound::Unbounded => (0, 0),
            Bound::Included(text) => {
                let (index, position, _) = place(text);
                (index, position)
            }
            Bound::Excluded(text) => {
                let (index, position, is_there) = place(text);
                (index, position + usize::from(is_there))
            }
        };
        let chunks = self.chunks.get(index..).unwrap_or_default();
        chunks.iter().flat_map(|chunk| &chunk.places).map(|place| place.slot).skip(skipped)
    }

    /// Whether the invariant holds.
    pub(super) fn is_whole<'t>(&self, text_of: impl Fn(Slot) -> &'t str) -> bool {
        let all = || self.from(Bound::Unbounded, &text_of);
        let is_found = |slot| self.from(Bound::Included(text_of(slot)), &text_of).next() == Some(slot);
        let has_heads =
            |chunk: &Chunk| chunk.places.iter().all(|place| place.head == chunk.head(text_of(place.slot)));
        self.chunks.iter().all(|chunk| (1..=CHUNK_LEN).contains(&chunk.places.len()) && has_heads(chunk))
            && all().count() == self.len
            && all().zip(all().skip(1)).all(|(a, b)| text_of(a) < text_of(b))
            && all().all(is_found)
    }

    /// The index of the chunk that a text belongs to.
    fn chunk_of(&self, text: &str) -> usize {
        self.chunks.partition_point(|chunk| chunk.lower_bound.as_str() <= text).saturating_sub(1)
    }

    /// Splits a chunk near the position of its newest text, because texts often arrive in order.
    fn split<'t>(&mut self, index: usize, newest: usize, text_of: &impl Fn(Slot) -> &'t str) {
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let at = newest.clamp(SMALL_CHUNK_LEN, CHUNK_LEN - SMALL_CHUNK_LEN);
        let slots: Vec<Slot> = chunk.places.drain(at..).map(|place| place.slot).collect();
        chunk.places.shrink_to_fit();
        chunk.set_prefix(text_of);
        if let Some(first) = slots.first() {
            let next = Chunk::new(text_of(*first).into(), &slots, text_of);
            self.chunks.insert(index + 1, next);
        }
    }

    fn join_with_next<'t>(&mut self, index: usize, text_of: &impl Fn(Slot) -> &'t str) {
        let len = |index: usize| self.chunks.get(index).map(|chunk| chunk.places.len());
        if let (Some(len), Some(next_len)) = (len(index), len(index + 1))
            && len + next_len <= CHUNK_LEN / 2
        {
            let next = self.chunks.remove(index + 1);
            if let Some(chunk) = self.chunks.get_mut(index) {
                for Place { slot, .. } in next.places {
                    chunk.places.push(Place { head: chunk.head(text_of(slot)), slot });
                }
            }
        }
    }
}

impl Chunk {
    /// A chunk of one text, to which any other may be added.
    fn begin(text: &str, slot: Slot) -> Self {
        let mut chunk = Self { lower_bound: text.into(), prefix_len: 0, places: Vec::new() };
        chunk.places.push(Place { head: chunk.head(text), slot });
        chunk
    }

    /// A chunk of slots that are sorted.
    fn new<'t>(lower_bound: SmolStr, slots: &[Slot], text_of: &impl Fn(Slot) -> &'t str) -> Self {
        let places = slots.iter().map(|slot| Place { head: 0, slot: *slot }).collect();
        let mut chunk = Self { lower_bound, prefix_len: usize::MAX, places };
        chunk.set_prefix(text_of);
        chunk
    }

    /// Takes the longest prefix that all texts from the lower bound on have in common.
    fn set_prefix<'t>(&mut self, text_of: &impl Fn(Slot) -> &'t str) {
        let last = self.places.last().map_or("", |last| text_of(last.slot));
        let pairs = self.lower_bound.bytes().zip(last.bytes());
        let prefix_len = pairs.take_while(|(a, b)| a == b).count();
        if prefix_len == self.prefix_len {
            return;
        }
        self.prefix_len = prefix_len;
        let mut places = std::mem::take(&mut self.places);
        for place in &mut places {
            place.head = self.head(text_of(place.slot));
        }
        self.places = places;
    }

    /// A number in the order of texts: the first bytes behind the prefix. Texts without the prefix are below or above all
    /// that have it. Different texts may have the same number.
    #[inline]
    fn head(&self, text: &str) -> u32 {
        let prefix = self.lower_bound.as_bytes().get(..self.prefix_len).unwrap_or_default();
        match text.as_bytes().strip_prefix(prefix) {
            Some(rest) => {
                rest.iter().chain(&[0; 4]).take(4).fold(0, |head, byte| head << 8 | u32::from(*byte))
            }
            None if text.as_bytes() < prefix => 0,
            None => u32::MAX,
        }
    }

    /// The position of the first text that is not below `text`.
    fn position<'t>(&self, text: &str, text_of: &impl Fn(Slot) -> &'t str) -> usize {
        let head = self.head(text);
        let is_below = |place: &Place| place.head < head || place.head == head && text_of(place.slot) < text;
        if self.places.last().is_some_and(is_below) {
            return self.places.len();
        }
        self.places.partition_point(is_below)
    }

    /// Whether `text` is at this position.
    fn has<'t>(&self, position: usize, text: &str, text_of: &impl Fn(Slot) -> &'t str) -> bool {
        self.places.get(position).is_some_and(|place| text_of(place.slot) == text)
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
