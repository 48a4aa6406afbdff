//! Named indexes of the known objects (client-go's Indexer). An index maps each value to the keys that have it.
//!
//! Indexes are derived from the settings and the known objects, so no event and no row contains them. A new index is
//! built a few table slots at a time while commands continue, and so is every index after a restart. An index stores
//! no copies of objects: when a key loses values, they are read from its old object.

mod index;
mod keys_of_value;
mod values;

use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use self::index::Index;
use self::values::{Values, values};
use super::apply::{Applied, Scope};
use super::effects::Garbage;
use super::event::{Ending, Event, EventKind};
use super::id::Slot;
use super::index_settings::IndexSetting;
use super::object::Object;
use super::pointer::Pointer;
use super::state::State;
use super::table::{Entry, Table};

/// Number of object bytes that take about as long to index as a slot.
const BYTES_OF_A_SLOT: usize = 1_024;

/// Indexes without room are built again once there is room for more than they had: the inverse of the additional part.
const GROWTH: usize = 4;

/// The indexes of a queue.
///
/// Invariant: they have the names and pointers of the settings, in the same order.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    names: Vec<Arc<str>>,
    pointers: Vec<Pointer>,
    contents: Vec<Index>,
    /// The size in bytes when it was last compared with the room for it.
    compared_bytes: usize,
    /// What the indexes want before they are built, because there was no room for them.
    wanted: Option<Wanted>,
    /// What they last wanted since they were complete.
    last_wanted_bytes: usize,
}

/// What indexes want that were dropped.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// The bytes that they want while the queue is as large as it was.
    bytes: usize,
    /// The bytes of the queue's keys when the indexes were dropped.
    keys_bytes: usize,
}

/// The known object of a key before an event.
#[derive(Debug)]
pub(super) struct KnownBefore(Option<Object>);

/// The status and size of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexStatus {
    /// The name.
    pub name: Arc<str>,
    /// The pointer to the values, as text.
    pub pointer: Arc<str>,
    /// Whether the index has all known objects.
    pub is_ready: bool,
    /// Number of different values.
    pub values: usize,
    /// Number of keys with at least one value.
    pub keys: usize,
    /// Number of values that are not indexed, because they are too long or beyond the limit of an array.
    pub omitted: usize,
}

/// Why an index can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoIndex {
    /// The queue has no index of this name.
    Unknown {
        /// The names of its indexes.
        names: Vec<Arc<str>>,
    },
    /// The index is not complete.
    Building,
    /// The index was dropped, because there was no room for it.
    NoRoom,
}

impl Indexes {
    /// Creates the indexes that the settings define. They are complete if the queue has no keys.
    pub(super) fn of(state: &State) -> Self {
        let mut indexes = Self::default();
        drop(indexes.configure(state));
        indexes
    }

    /// Applies new settings by beginning new indexes. Returns the indexes that are dropped.
    fn configure(&mut self, state: &State) -> Vec<Index> {
        let old = std::mem::take(self);
        let (compared_bytes, wanted, last_wanted_bytes) =
            (old.compared_bytes, old.wanted, old.last_wanted_bytes);
        let settings = state.config.indexes.iter().map(|setting| (&setting.name, &setting.pointer));
        let is_same = settings.eq(old.names.iter().zip(&old.pointers));
        let mut old: Vec<_> = old.names.into_iter().zip(old.pointers).zip(old.contents).collect();
        for IndexSetting { name, pointer } in state.config.indexes.iter() {
            let kept = old.iter().position(|((old, at), _)| old == name && at.text == pointer.text);
            let new = || Index::begin(state.table.slots() == 0);
            let index = kept.map_or_else(new, |kept| old.swap_remove(kept).1);
            self.names.push(name.clone());
            self.pointers.push(pointer.clone());
            self.contents.push(index);
        }
        self.compared_bytes = compared_bytes.min(self.bytes());
        if is_same {
            (self.wanted, self.last_wanted_bytes) = (wanted, last_wanted_bytes);
        }
        old.into_iter().map(|(_, index)| index).collect()
    }

    /// Approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.contents.iter().map(Index::bytes).sum()
    }

    /// The bytes without which the indexes are not built, if there was no room for them. A queue that has shrunk to `keys_bytes`
    /// needs less.
    pub(super) fn wanted_bytes(&self, keys_bytes: usize) -> Option<usize> {
        let wanted = self.wanted?;
        let share = wanted.bytes as u128 * keys_bytes as u128 / wanted.keys_bytes.max(1) as u128;
        Some(usize::try_from(share).unwrap_or(usize::MAX).min(wanted.bytes))
    }

    /// Lets the indexes be built again.
    pub(super) fn resume(&mut self) {
        self.wanted = None;
    }

    /// Whether the indexes have grown since the last call.
    pub(super) fn have_grown(&mut self) -> bool {
        let bytes = self.bytes();
        bytes > std::mem::replace(&mut self.compared_bytes, bytes)
    }

    /// Drops the contents of all indexes, for which there is no room. Returns what is dropped.
    pub(super) fn drop_contents(&mut self, keys_bytes: usize) -> Garbage {
        // They may have been dropped while they were built, so the next attempt wants more each time.
        let bytes = self.bytes().max(self.last_wanted_bytes);
        self.last_wanted_bytes = bytes.saturating_add(bytes / GROWTH);
        self.wanted = Some(Wanted { bytes: self.last_wanted_bytes, keys_bytes });
        self.compared_bytes = 0;
        let empty = self.contents.iter().map(|_| Index::begin(false)).collect();
        Garbage::new(std::mem::replace(&mut self.contents, empty))
    }

    /// What the indexes must record before this event is applied; `None` if they need nothing.
    pub(super) fn before(&self, state: &State, event: &Event, scope: Scope) -> Option<KnownBefore> {
        let changes_known = matches!(
            &event.kind,
            EventKind::Settled { ending: Ending::Acked, .. }
                | EventKind::Progressed { .. }
                | EventKind::Seeded { .. }
                | EventKind::Refreshed { .. }
        );
        if self.contents.is_empty() || !changes_known {
            return None;
        }
        let entry = match (scope, event.kind.key()) {
            (Scope::Slot(slot), _) => state.table.at(slot),
            (Scope::Key, Some(key)) => state.table.get(key.as_str()),
            (Scope::Queue, _) | (_, None) => return None,
        };
        Some(KnownBefore(entry.and_then(known_object).cloned()))
    }

    /// Updates the indexes with the effects of an event. Returns the indexes that are dropped.
    pub(super) fn note(
        &mut self,
        state: &State,
        event: &Event,
        applied: &Applied,
        before: Option<KnownBefore>,
    ) -> Option<Garbage> {
        if matches!(event.kind, EventKind::Configured { .. }) {
            let dropped = self.configure(state);
            return (!dropped.is_empty()).then(|| Garbage::new(dropped));
        }
        let KnownBefore(before) = before?;
        let (slot, key) = (applied.slot?, event.kind.key()?);
        let after = state.table.at(slot).and_then(known_object);
        if before.as_ref() == after {
            return None;
        }
        let texts = [before.as_ref(), after].map(|object| object.map_or("", Object::as_str));
        let ([old, new], none) = (texts.map(|text| values(text, &self.pointers)), Values::default());
        for (number, index) in self.contents.iter_mut().enumerate() {
            let (old, new) = (old.get(number).unwrap_or(&none), new.get(number).unwrap_or(&none));
            index.change(&state.table, key.as_str(), slot, old, new);
        }
        None
    }

    /// The names of the indexes that are not complete.
    pub(super) fn building(&self) -> Vec<Arc<str>> {
        let named = self.names.iter().zip(&self.contents);
        named.filter(|(_, index)| !index.is_complete()).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn is_building(&self) -> bool {
        !self.contents.iter().all(Index::is_complete)
    }

    /// Indexes the next slots: at most `budget`, fewer if their objects are large.
    pub(super) fn build(&mut self, state: &State, budget: usize) {
        let Some(first) = self.contents.iter().map(Index::covered).min().filter(|first| *first != usize::MAX)
        else {
            return;
        };
        let (slots, none) = (state.table.slots(), Values::default());
        let (mut next, mut work) = (first, 0);
        while next < slots && work < budget {
            work += 1;
            let slot = Slot::at(next);
            next += 1;
            let Some((slot, entry)) = slot.and_then(|slot| Some((slot, state.table.at(slot)?))) else {
                continue;
            };
            let Some(object) = known_object(entry) else { continue };
            let found = values(object.as_str(), &self.pointers);
            work += object.bytes() / BYTES_OF_A_SLOT
                + found.iter().map(|values| values.texts.len()).sum::<usize>();
            for (index, values) in self.contents.iter_mut().zip(&found) {
                if index.covered() <= slot.index() {
                    index.set_covered(next);
                    index.change(&state.table, entry.key.as_str(), slot, &none, values);
                }
            }
        }
        // From now on, keys in new slots are indexed when their objects become known.
        let covered = if next >= slots { usize::MAX } else { next };
        for index in
            self.contents.iter_mut().filter(|index| index.covered() < covered && !index.is_complete())
        {
            index.set_covered(covered);
        }
        if covered == usize::MAX {
            self.last_wanted_bytes = 0;
        }
    }

    fn find(&self, name: &str) -> Result<&Index, NoIndex> {
        let names = self.names.iter().position(|other| **other == *name);
        let unknown = || NoIndex::Unknown { names: self.names.clone() };
        let index = names.and_then(|number| self.contents.get(number)).ok_or_else(unknown)?;
        match self.wanted {
            _ if index.is_complete() => Ok(index),
            Some(_) => Err(NoIndex::NoRoom),
            None => Err(NoIndex::Building),
        }
    }

    pub(super) fn check_readable(&self, name: &str) -> Result<(), NoIndex> {
        self.find(name).map(drop)
    }

    /// The slots of the keys with a value in an index, from the key `from` on, in key order.
    pub(super) fn keys_of(
        &self,
        table: &Table,
        name: &str,
        value: &str,
        from: Bound<&str>,
    ) -> Result<impl Iterator<Item = Slot>, NoIndex> {
        Ok(self.find(name)?.keys_of(table, value, from))
    }

    /// The values of an index from `from` on, in the order of their texts, with the number of keys of each.
    pub(super) fn values_from(
        &self,
        name: &str,
        from: Bound<&str>,
    ) -> Result<impl Iterator<Item = (&str, usize)>, NoIndex> {
        Ok(self.find(name)?.values_from(from))
    }

    pub(super) fn statuses(&self) -> Vec<IndexStatus> {
        let named = self.names.iter().zip(&self.pointers).zip(&self.contents);
        let status = |((name, pointer), index): ((&Arc<str>, &Pointer), &Index)| IndexStatus {
            name: name.clone(),
            pointer: pointer.text.clone(),
            is_ready: index.is_complete(),
            values: index.len(),
            keys: index.keys(),
            omitted: index.omitted(),
        };
        named.map(status).collect()
    }

    /// Checks the invariants.
    pub(super) fn check(&self, state: &State) -> Result<(), String> {
        let settings = state.config.indexes.iter().map(|setting| (&setting.name, &setting.pointer));
        if !settings.eq(self.names.iter().zip(&self.pointers)) {
            return Err(String::from("the indexes differ from those of the settings"));
        }
        let objects: Vec<(Slot, &str, SmallVec<[Values<'_>; 2]>)> = state
            .entries_after(None)
            .filter_map(|(slot, entry)| {
                let object = known_object(entry)?.as_str();
                Some((slot, entry.key.as_str(), values(object, &self.pointers)))
            })
            .collect();
        for (number, (name, index)) in self.names.iter().zip(&self.contents).enumerate() {
            let covered = objects.iter().filter(|(slot, ..)| slot.index() < index.covered());
            let of_index = covered.filter_map(|(_, key, values)| Some((*key, values.get(number)?)));
            index.check(&state.table, of_index).map_err(|rule| format!("index {name}: {rule}"))?;
        }
        Ok(())
    }
}

fn known_object(entry: &Entry) -> Option<&Object> {
    entry.known.as_ref().map(|known| &known.object)
}
