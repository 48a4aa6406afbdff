//! The births of the keys, kept naively beside the random commands: after each event, those of all keys of the view.

use std::collections::BTreeMap;

use deltaq_engine::Queue;
use deltaq_engine::birth::Birth;
use deltaq_engine::event::{Event, EventKind};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::view::{Passage, View};

use super::same::same;
use super::world::Difference;

/// The births as of an event.
#[derive(Clone, Debug, Default)]
struct AsOf {
    rv: Rv,
    view: Option<View>,
    births: BTreeMap<Key, Birth>,
}

/// The births after each event.
#[derive(Debug, Default)]
pub(super) struct NaiveBirths {
    all: Vec<AsOf>,
}

impl NaiveBirths {
    /// Notes an event, which `queue` has just applied.
    pub(super) fn note(&mut self, event: &Event, queue: &Queue) -> Result<(), Difference> {
        let mut next = self.all.last().cloned().unwrap_or_default();
        let birth = Birth { rv: event.rv, at: event.at };
        let view = queue.config().kubernetes_view();
        if self.all.is_empty() && !matches!(event.kind, EventKind::Configured { .. }) {
            next.view = view;
        }
        if next.view != view {
            let live = queue.table().from(std::ops::Bound::Unbounded).map(|(_, entry)| entry);
            let live = live.filter(|entry| view.is_some_and(|view| entry.version_in(view).is_some()));
            next.births = live.map(|entry| (entry.key.clone(), birth)).collect();
        } else if let (Some(view), Some(key)) = (view, event.kind.key()) {
            let left = match event.views.of(view) {
                Some(Passage::Entered) => {
                    next.births.insert(key.clone(), birth);
                    None
                }
                Some(Passage::Left) => next.births.remove(key),
                None => None,
            };
            same("the birth in the event", event.views.birth, left)?;
        }
        (next.rv, next.view) = (event.rv, view);
        self.all.push(next);
        Ok(())
    }

    /// The events after this one are undone.
    pub(super) fn roll_back(&mut self, rv: Rv) {
        self.all.retain(|as_of| as_of.rv <= rv);
    }

    /// The birth of a key of the view.
    pub(super) fn of(&self, view: View, key: &Key) -> Option<Birth> {
        let newest = self.all.last().filter(|newest| newest.view == Some(view))?;
        newest.births.get(key).copied()
    }

    /// The birth with which a key left the view, if it was one.
    pub(super) fn of_left(&self, view: View, key: &Key, left: Rv) -> Option<Birth> {
        let before = self.all.iter().rev().find(|as_of| as_of.rv < left)?;
        before.births.get(key).copied().filter(|_| before.view == Some(view))
    }

    /// Compares the births of all keys of the queue.
    pub(super) fn compare(&self, queue: &Queue) -> Result<(), Difference> {
        for view in View::ALL {
            for (_, entry) in queue.table().from(std::ops::Bound::Unbounded) {
                let Some(object) = entry.object_in(view) else { continue };
                let (key, birth) = (object.key.clone(), queue.with_birth(view, object).birth);
                same("the birth of a key", (&key, birth), (&key, self.of(view, &key)))?;
            }
        }
        Ok(())
    }
}
