//! Extends a feed with what happened before it began, using events from the journal.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{Feed, Tombstone};
use crate::delta::DeltaKind;
use crate::event::{Appended, Event, EventKind};
use crate::id::Rv;
use crate::key::Key;
use crate::object::Object;
use crate::state::State;
use crate::view::{Passage, View};

/// The keys that entered or left a view during a sequence of consecutive events.
#[derive(Debug)]
pub struct Backfill {
    view: View,
    /// The event before the first recorded event.
    after: Rv,
    /// The last recorded event.
    last: Rv,
    /// The event at which each key last entered the view.
    entered: HashMap<Key, Rv, RandomState>,
    /// The keys that left the view and have not entered it again.
    left: HashMap<Key, (Rv, Tombstone), RandomState>,
    /// The object of each key whose newest delta is a deletion.
    deletions: HashMap<Key, Deletion, RandomState>,
    /// The same for each leased key, as of the beginning of its lease.
    leased: HashMap<Key, Deletion, RandomState>,
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
            entered: HashMap::default(),
            left: HashMap::default(),
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
        match event.views.of(self.view) {
            Some(Passage::Entered) => {
                self.left.remove(key);
                self.entered.insert(key.clone(), event.rv);
            }
            Some(Passage::Left) => {
                self.entered.remove(key);
                let (object, final_state_unknown) = deletion.unzip();
                let final_state_unknown = final_state_unknown.unwrap_or(true);
                let tombstone = Tombstone { key: key.clone(), at: event.at, object, final_state_unknown };
                self.left.insert(key.clone(), (event.rv, tombstone));
            }
            None => {}
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

impl Feed {
    pub(crate) fn backfill(&mut self, state: &State, backfill: Backfill) {
        let Backfill { view, after, last, entered, left, .. } = backfill;
        if after >= self.horizon || last < self.horizon {
            return;
        }
        for (key, rv) in entered {
            let slot = state.table.find(key.as_str());
            let is_live =
                |slot: &_| state.table.at(*slot).is_some_and(|entry| entry.version_in(view).is_some());
            // The feed knows more about keys that entered the view after it began.
            if let Some(slot) = slot.filter(is_live).filter(|slot| self.entered(*slot) < rv) {
                self.set_entered(slot, rv);
            }
        }
        for (key, (rv, tombstone)) in left {
            let is_live = state.table.get(key.as_str()).is_some_and(|entry| entry.version_in(view).is_some());
            if !is_live && !self.tombstones.has(&key) {
                self.tombstones.insert(rv, tombstone);
            }
        }
        self.horizon = after;
        self.trim(state.last_at);
    }
}
