//! Extends a feed with what happened before it began, using events from the journal.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::{Feed, Tombstone};
use crate::birth::Birth;
use crate::delta::DeltaKind;
use crate::event::{Appended, Event, EventKind};
use crate::id::{Rv, Slot};
use crate::key::Key;
use crate::object::Object;
use crate::state::State;
use crate::time::Time;
use crate::view::{Passage, View};

/// The keys that entered or left a view during a sequence of consecutive events.
#[derive(Debug)]
pub struct Backfill {
    view: View,
    /// The event before the first recorded event.
    after: Rv,
    /// The last recorded event.
    last: Rv,
    /// What happened to each key.
    keys: HashMap<Key, Passages, RandomState>,
    /// The object of each key whose newest delta is a deletion.
    deletions: HashMap<Key, Deletion, RandomState>,
    /// The same for each leased key, as of the beginning of its lease.
    leased: HashMap<Key, Deletion, RandomState>,
}

/// When a key left a view or entered it, in turn.
#[derive(Debug)]
struct Passages {
    /// Whether the first one is that the key left.
    begins_inside: bool,
    all: SmallVec<[Passed; 1]>,
    /// The object of the key when it left last.
    last: Option<Deletion>,
}

/// An event with which a key left a view or entered it.
#[derive(Clone, Copy, Debug)]
struct Passed {
    rv: Rv,
    at: Time,
    /// The birth of a key that left.
    birth: Option<Birth>,
}

/// What a [`Passages`] says of a key as of an event.
#[derive(Debug, Default)]
struct Past {
    /// The event with which the key entered the view; 0 if it entered before the first event, `None` if the view lacks it.
    entered: Option<Rv>,
    /// The tombstone of a key that the view lacks, and the event with which the key left.
    gone: Option<(Rv, Tombstone)>,
    /// The tombstone of the last absence before.
    absence: Option<(Rv, Tombstone)>,
}

/// The object of a deletion, and whether it may be older than the key's last state.
type Deletion = (Object, bool);

impl Backfill {
    /// Begins with the event after `after`.
    #[must_use]
    pub fn new(view: View, after: Rv) -> Self {
        Self {
            view,
            after,
            last: after,
            keys: HashMap::default(),
            deletions: HashMap::default(),
            leased: HashMap::default(),
        }
    }

    /// Records the next event of the journal, unless it is already recorded.
    pub fn note(&mut self, event: &Event) {
        if event.rv <= self.last {
            return;
        }
        self.last = event.rv;
        let Some(key) = event.kind.key() else { return };
        let deletion = self.note_deletion(&event.kind, key);
        if let Some(passage) = event.views.of(self.view) {
            let has_left = passage == Passage::Left;
            let new = || Passages { begins_inside: has_left, all: SmallVec::new(), last: None };
            let passages = self.keys.entry(key.clone()).or_insert_with(new);
            passages.all.push(Passed { rv: event.rv, at: event.at, birth: event.views.birth });
            passages.last = deletion.filter(|_| has_left);
        }
    }

    /// Tracks the deletions of a key. Returns the deletion that would apply if this event removed the key from the
    /// view.
    fn note_deletion(&mut self, kind: &EventKind, key: &Key) -> Option<Deletion> {
        let replace = |map: &mut HashMap<_, _, _>, deletion: Option<Deletion>| match deletion {
            Some(deletion) => map.insert(key.clone(), deletion),
            None => map.remove(key),
        };
        match kind {
            EventKind::Appended(Appended { delta, object, final_state_unknown, .. }) => {
                let deletion = (object.clone(), *final_state_unknown);
                let deletion = Some(deletion).filter(|_| *delta == DeltaKind::Deleted);
                replace(&mut self.deletions, deletion.clone());
                deletion.filter(|_| self.view == View::Latest)
            }
            EventKind::Leased(_) => {
                let deletion = self.deletions.get(key).cloned();
                replace(&mut self.leased, deletion);
                None
            }
            EventKind::Settled { .. } => self.leased.remove(key).filter(|_| self.view == View::Known),
            _ => None,
        }
    }

    /// The view.
    #[must_use]
    pub const fn view(&self) -> View {
        self.view
    }

    /// The last recorded event.
    #[must_use]
    pub fn last(&self) -> Rv {
        self.last
    }
}

impl Passages {
    /// What is known of the key as of this event.
    fn until(self, key: &Key, until: Rv) -> Past {
        let count = self.all.len();
        let mut past = Past { entered: self.begins_inside.then_some(Rv::ZERO), ..Past::default() };
        for (number, Passed { rv, at, birth }) in self.all.into_iter().enumerate() {
            if rv > until {
                break;
            }
            if let Some(entered) = past.entered.take() {
                let mut tombstone = Tombstone { birth, ..Tombstone::new(key.clone(), at, entered) };
                if number + 1 == count
                    && let Some((object, is_unknown)) = &self.last
                {
                    (tombstone.object, tombstone.final_state_unknown) = (Some(object.clone()), *is_unknown);
                }
                past.gone = Some((rv, tombstone));
            } else {
                past.entered = Some(rv);
                past.return_at(rv);
            }
        }
        past
    }
}

impl Past {
    /// Records that the key, which the view lacks, enters it with this event.
    fn return_at(&mut self, rv: Rv) {
        let Some((left, mut tombstone)) = self.gone.take() else { return };
        (tombstone.object, tombstone.final_state_unknown, tombstone.returned) = (None, true, Some(rv));
        if let Some((_, earlier)) = self.absence.take() {
            tombstone.entered = earlier.entered;
        }
        self.absence = Some((left, tombstone));
    }
}

impl Feed {
    pub(crate) fn backfill(&mut self, state: &State, backfill: Backfill) {
        let Backfill { view, after, last, keys, .. } = backfill;
        if after >= self.horizon || last < self.horizon {
            return;
        }
        for (key, passages) in keys {
            let slot = state.table.find(key.as_str());
            let is_live =
                |slot: &_| state.table.at(*slot).is_some_and(|entry| entry.version_in(view).is_some());
            // The feed has recorded everything from its horizon on.
            let past = passages.until(&key, self.horizon);
            self.prepend(&key, slot.filter(is_live), past);
        }
        self.horizon = after;
        self.trim(state.last_at);
    }

    /// Adds what happened to a key before everything that the feed knows of it. `slot` is that of a key of the view.
    fn prepend(&mut self, key: &Key, slot: Option<Slot>, mut past: Past) {
        let known = self.tombstones.oldest_of(key).map(|tombstone| tombstone.entered);
        match known.or_else(|| slot.map(|slot| self.entered(slot))) {
            None => {
                let gone = past.gone.into_iter();
                for (rv, tombstone) in gone.chain(past.absence.filter(|_| past.entered.is_none())) {
                    self.tombstones.prepend(rv, tombstone);
                }
            }
            Some(known) => {
                past.return_at(known);
                if let Some(entered) = past.entered.filter(|entered| *entered > known) {
                    match (self.tombstones.oldest_of(key), slot) {
                        (Some(oldest), _) => oldest.entered = entered,
                        (None, Some(slot)) => self.set_entered(slot, entered),
                        (None, None) => {}
                    }
                }
                if let Some((rv, absence)) = past.absence {
                    match self.tombstones.oldest_of(key).filter(|oldest| oldest.returned.is_some()) {
                        Some(oldest) => oldest.entered = absence.entered,
                        None => self.tombstones.prepend(rv, absence),
                    }
                }
            }
        }
    }
}
