//! One index: its values in order, and the keys of each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use smol_str::SmolStr;

use super::keys_of_value::KeysOfValue;
use super::values::Values;
use crate::id::Slot;
use crate::table::{Paged, Table};
use crate::text_order::TextOrder;

/// Approximate size of a value in bytes, excluding its keys and a text that is not stored inline.
const VALUE_BYTES: usize = 64;
/// Approximate size of a key of a value in bytes.
const KEY_OF_VALUE_BYTES: usize = 16;

/// A value with at least one key. A text of up to 23 bytes is stored inline.
#[derive(Debug)]
struct IndexedValue {
    text: SmolStr,
    keys: KeysOfValue,
}

/// An index of the known objects.
///
/// Invariant: the index has exactly the values of the known objects whose slots are below `covered`.
#[derive(Debug, Default)]
pub(super) struct Index {
    values: Paged<Option<IndexedValue>>,
    /// The free places in `values`.
    free: Vec<Slot>,
    /// The places in `values`, in the order of the texts.
    order: TextOrder,
    /// Number of keys with at least one value.
    keys: usize,
    /// Number of keys of all values.
    keys_of_values: usize,
    /// The length of the texts that are not stored inline.
    text_bytes: usize,
    /// Number of values in all objects that exceed a limit of the indexes.
    omitted: usize,
    /// Number of slots that are indexed; all slots once the index is complete.
    covered: usize,
}

/// The content of an index, for comparisons: the keys of each value, the number of keys, and the number of omitted
/// values.
type Content<'i> = (BTreeMap<&'i str, Vec<&'i str>>, usize, usize);

impl Index {
    /// An index without values. It is complete if the queue has no keys.
    pub(super) fn begin(is_complete: bool) -> Self {
        Self { covered: if is_complete { usize::MAX } else { 0 }, ..Self::default() }
    }

    pub(super) fn covered(&self) -> usize {
        self.covered
    }

    pub(super) fn set_covered(&mut self, covered: usize) {
        self.covered = covered;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.covered == usize::MAX
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    pub(super) fn omitted(&self) -> usize {
        self.omitted
    }

    /// Approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.values.len() * VALUE_BYTES + self.keys_of_values * KEY_OF_VALUE_BYTES + self.text_bytes
    }

    /// Replaces the values of the key at a slot. The entry at the slot may be removed already.
    pub(super) fn change(
        &mut self,
        table: &Table,
        key: &str,
        slot: Slot,
        old: &Values<'_>,
        new: &Values<'_>,
    ) {
        if slot.index() >= self.covered {
            return;
        }
        self.keys -= usize::from(!old.texts.is_empty());
        self.keys += usize::from(!new.texts.is_empty());
        self.omitted -= old.omitted;
        self.omitted += new.omitted;
        if old.texts == new.texts {
            return;
        }
        let key_of = |other: Slot| if other == slot { key } else { table.key_at(other).unwrap_or_default() };
        for text in old.texts.iter().filter(|text| new.texts.binary_search(text).is_err()) {
            self.remove(text, key, slot, key_of);
        }
        for text in new.texts.iter().filter(|text| old.texts.binary_search(text).is_err()) {
            self.insert(text, key, slot, key_of);
        }
    }

    fn insert<'k>(&mut self, text: &str, key: &str, slot: Slot, key_of: impl Fn(Slot) -> &'k str) {
        self.keys_of_values += 1;
        if let Some(value) = self.find(text).and_then(|place| self.value_mut(place)) {
            return value.keys.insert(key, slot, key_of);
        }
        let value = IndexedValue { text: text.into(), keys: KeysOfValue::One(slot) };
        self.text_bytes += value.text_bytes();
        let value = Some(value);
        let place = if let Some(place) = self.free.pop() {
            if let Some(free) = self.values.get_mut(place.index()) {
                *free = value;
            }
            place
        } else {
            self.values.push(value);
            let Some(place) = Slot::at(self.values.len() - 1) else {
                panic!("an index can't hold more than 2^32 values");
            };
            place
        };
        let values = &self.values;
        self.order.insert(text, place, |place| text_at(values, place));
    }

    fn remove<'k>(&mut self, text: &str, key: &str, slot: Slot, key_of: impl Fn(Slot) -> &'k str) {
        let Some(place) = self.find(text) else { return };
        self.keys_of_values -= 1;
        let Some(value) = self.value_mut(place) else { return };
        if value.keys.len() > 1 {
            return value.keys.remove(key, slot, key_of);
        }
        let text_bytes = value.text_bytes();
        self.text_bytes -= text_bytes;
        let values = &self.values;
        self.order.remove(text, |place| text_at(values, place));
        if let Some(value) = self.values.get_mut(place.index()) {
            *value = None;
            self.free.push(place);
        }
        if self.order.len() == 0 {
            // An empty index releases its memory.
            (self.values, self.free) = (Paged::default(), Vec::new());
        }
    }

    fn value(&self, place: Slot) -> Option<&IndexedValue> {
        self.values.get(place.index())?.as_ref()
    }

    fn value_mut(&mut self, place: Slot) -> Option<&mut IndexedValue> {
        self.values.get_mut(place.index())?.as_mut()
    }

    fn find(&self, text: &str) -> Option<Slot> {
        let mut from = self.order.from(Bound::Included(text), |place| text_at(&self.values, place));
        from.next().filter(|place| text_at(&self.values, *place) == text)
    }

    /// The slots of the keys with a value, from the key `from` on, in key order.
    pub(super) fn keys_of(&self, table: &Table, text: &str, from: Bound<&str>) -> impl Iterator<Item = Slot> {
        let value = self.find(text).and_then(|place| self.value(place));
        let key_of = |slot| table.key_at(slot).unwrap_or_default();
        let slots = value.map(|value| value.keys.from(from, key_of));
        slots.into_iter().flatten()
    }

    /// The values from `from` on, in the order of their texts, with the number of keys of each.
    pub(super) fn values_from(&self, from: Bound<&str>) -> impl Iterator<Item = (&str, usize)> {
        let places = self.order.from(from, |place| text_at(&self.values, place));
        let values = places.filter_map(|place| self.value(place));
        values.map(|value| (value.text.as_str(), value.keys.len()))
    }

    /// Checks the invariants. `objects` has the key of each known object that is indexed, and the values of the object.
    pub(super) fn check<'o, 'j: 'o>(
        &self,
        table: &Table,
        objects: impl Iterator<Item = (&'o str, &'o Values<'j>)>,
    ) -> Result<(), String> {
        let key_of = |slot: Slot| table.key_at(slot).unwrap_or_default();
        let mut expected = Content::default();
        for (key, values) in objects {
            let (texts, keys, omitted) = &mut expected;
            values.texts.iter().for_each(|text| texts.entry(&**text).or_default().push(key));
            *keys += usize::from(!values.texts.is_empty());
            *omitted += values.omitted;
        }
        let places = self.order.from(Bound::Unbounded, |place| text_at(&self.values, place));
        let values = places.filter_map(|place| self.value(place));
        let texts = values.map(|value| {
            (value.text.as_str(), value.keys.from(Bound::Unbounded, key_of).map(key_of).collect())
        });
        let content: Content<'_> = (texts.collect(), self.keys, self.omitted);
        if content != expected {
            return Err(format!("it has {content:?} instead of {expected:?}"));
        }
        let used = || self.values.iter().flatten();
        let free: BTreeSet<Slot> = self.free.iter().copied().collect();
        let is_counted = used().map(IndexedValue::text_bytes).sum::<usize>() == self.text_bytes
            && used().map(|value| value.keys.len()).sum::<usize>() == self.keys_of_values;
        let is_whole = is_counted
            && self.order.is_whole(|place| text_at(&self.values, place))
            && used().all(|value| value.keys.is_whole(key_of))
            && used().count() == self.order.len()
            && free.len() == self.free.len()
            && self.values.len() == self.order.len() + free.len()
            && free.iter().all(|place| self.value(*place).is_none());
        if is_whole {
            Ok(())
        } else {
            Err(String::from("a value is out of order, counted wrongly, or neither used nor free"))
        }
    }
}

impl IndexedValue {
    /// The length of a text that is not stored inline.
    fn text_bytes(&self) -> usize {
        if self.text.is_heap_allocated() { self.text.len() } else { 0 }
    }
}

/// The text of the value at a place.
fn text_at(values: &Paged<Option<IndexedValue>>, place: Slot) -> &str {
    let value = values.get(place.index()).and_then(Option::as_ref);
    value.map_or("", |value| value.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_an_index_is_small() {
        assert_eq!(size_of::<Option<IndexedValue>>(), 40);
    }
}
