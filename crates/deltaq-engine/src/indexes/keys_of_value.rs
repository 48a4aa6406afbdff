//! The keys that have a value, in key order.

use std::ops::Bound;

use crate::id::Slot;
use crate::text_order::TextOrder;

/// Maximum number of slots in a plain list.
const LIST_MAX: usize = 512;
/// A [`TextOrder`] with fewer slots becomes a plain list again.
const ORDER_MIN: usize = LIST_MAX / 4;

/// The slots of the keys that have a value. Most values have few keys, so the size of this type determines how much
/// memory an index takes.
#[derive(Debug)]
pub(super) enum KeysOfValue {
    One(Slot),
    /// In slot order. A change then reads no keys, and a query sorts at most [`LIST_MAX`] keys.
    #[expect(clippy::box_collection, reason = "a Vec in the enum adds 16 bytes to each value")]
    List(Box<Vec<Slot>>),
    /// In the order of the keys.
    Order(Box<TextOrder>),
}

impl KeysOfValue {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::List(list) => list.len(),
            Self::Order(order) => order.len(),
        }
    }

    /// Adds a key that does not have the value yet.
    pub(super) fn insert<'k>(&mut self, key: &str, slot: Slot, key_of: impl Fn(Slot) -> &'k str) {
        match self {
            Self::One(other) => {
                let mut slots = vec![*other, slot];
                slots.sort_unstable();
                *self = Self::List(Box::new(slots));
            }
            Self::List(list) => {
                list.insert(list.partition_point(|other| *other < slot), slot);
                if list.len() > LIST_MAX {
                    list.sort_unstable_by(|a, b| key_of(*a).cmp(key_of(*b)));
                    *self = Self::Order(Box::new(TextOrder::from_sorted(list, key_of)));
                }
            }
            Self::Order(order) => order.insert(key, slot, key_of),
        }
    }

    /// Removes a key. The key must have the value and must not be the only one.
    pub(super) fn remove<'k>(&mut self, key: &str, slot: Slot, key_of: impl Fn(Slot) -> &'k str) {
        match self {
            Self::One(_) => {}
            Self::List(list) => {
                if let Ok(position) = list.binary_search(&slot) {
                    list.remove(position);
                }
                match list.as_slice() {
                    [only] => *self = Self::One(*only),
                    few if few.len() < list.capacity() / 4 => list.shrink_to_fit(),
                    _ => {}
                }
            }
            Self::Order(order) => {
                order.remove(key, &key_of);
                if order.len() < ORDER_MIN {
                    let mut list: Vec<Slot> = order.from(Bound::Unbounded, key_of).collect();
                    list.sort_unstable();
                    *self = Self::List(Box::new(list));
                }
            }
        }
    }

    /// The slots of the keys from `from` on, in key order.
    pub(super) fn from<'k>(
        &self,
        from: Bound<&str>,
        key_of: impl Fn(Slot) -> &'k str,
    ) -> impl Iterator<Item = Slot> {
        let (list, order) = match self {
            Self::One(slot) => (std::slice::from_ref(slot), None),
            Self::List(list) => (list.as_slice(), None),
            Self::Order(order) => (&[][..], Some(order)),
        };
        let keyed = list.iter().map(|slot| (key_of(*slot), *slot));
        let mut keyed: Vec<(&str, Slot)> = keyed
            .filter(|(key, _)| match from {
                Bound::Unbounded => true,
                Bound::Included(from) => *key >= from,
                Bound::Excluded(from) => *key > from,
            })
            .collect();
        keyed.sort_unstable();
        let ordered = order.map(|order| order.from(from, key_of));
        keyed.into_iter().map(|(_, slot)| slot).chain(ordered.into_iter().flatten())
    }

    /// Whether the slots are in order and stored in the variant for their number.
    pub(super) fn is_whole<'k>(&self, key_of: impl Fn(Slot) -> &'k str) -> bool {
        match self {
            Self::One(_) => true,
            Self::List(list) => (2..=LIST_MAX).contains(&list.len()) && list.is_sorted_by(|a, b| a < b),
            Self::Order(order) => order.len() >= ORDER_MIN && order.is_whole(key_of),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_keys_of_a_value_equal_those_of_a_sorted_map() {
        let mut random = fastrand::Rng::with_seed(240);
        let keys: Vec<String> = (0..1_000_u32).map(|key| key.wrapping_mul(0x9e37_79b9).to_string()).collect();
        let key_of = |slot: Slot| keys[slot.index()].as_str();
        let mut model = BTreeMap::from([(key_of(Slot::MIN), Slot::MIN)]);
        let mut keys_of_value = KeysOfValue::One(Slot::MIN);
        let (mut orders, mut lists) = (0, 0);
        for step in 0..30_000 {
            let share_of_inserts = [0.9, 0.0, 0.6, 0.0][step / 2_500 % 4];
            let slot = Slot::new(random.u32(0..1_000));
            let key = key_of(slot);
            if random.f64() < share_of_inserts {
                if model.insert(key, slot).is_none() {
                    keys_of_value.insert(key, slot, key_of);
                }
            } else if model.len() > 1 && model.remove(key).is_some() {
                keys_of_value.remove(key, slot, key_of);
            }
            match keys_of_value {
                KeysOfValue::One(_) => {}
                KeysOfValue::List(_) => lists += 1,
                KeysOfValue::Order(_) => orders += 1,
            }
            if step % 100 == 0 {
                assert!(keys_of_value.is_whole(key_of));
                assert_eq!(keys_of_value.len(), model.len());
                for from in [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)] {
                    let slots = model.range::<str, _>((from, Bound::Unbounded)).map(|(_, slot)| *slot);
                    assert!(keys_of_value.from(from, key_of).eq(slots), "step {step}, {from:?}");
                }
            }
        }
        assert!(orders > 5_000 && lists > 5_000, "{orders} {lists}");
    }
}
