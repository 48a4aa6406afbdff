//! The births of the keys of a queue with the setting `kubernetes`: the event with which each key entered the view that its clients
//! read.
//!
//! A key that was in the view when the queue got the setting was born with that event, so it needs no memory of its own. A key that
//! enters later takes 16 bytes. A queue without the setting has no births.

use super::birth::Birth;
use super::id::{Rv, Slot};
use super::table::Paged;
use super::view::View;

/// The births of a queue.
#[derive(Debug, Default)]
pub(super) struct Births {
    /// The view, and the event that has set it. `None` only in a replay, which may know births before the event that sets the view.
    pub(super) since: Option<(View, Birth)>,
    /// The births of keys that entered the view later, by slot. What a slot has of an older key or an older setting is smaller than
    /// the event that has set the view, or is replaced when the next key enters.
    pub(super) by_slot: Paged<Birth>,
    /// The largest number in `by_slot`.
    pub(super) newest: Rv,
}

impl Births {
    /// The births of a queue whose settings have been in force since this event.
    pub(super) fn of(view: Option<View>, since: Birth) -> Option<Box<Self>> {
        Some(Box::new(Self { since: Some((view?, since)), ..Self::default() }))
    }

    /// Bytes that the births of this many keys take in memory.
    pub(super) fn bytes(keys: usize) -> usize {
        keys * size_of::<Birth>()
    }

    /// Sets the birth of the key at a slot.
    pub(super) fn set(&mut self, slot: Slot, birth: Birth) {
        while self.by_slot.len() <= slot.index() {
            self.by_slot.push(Birth::default());
        }
        if let Some(place) = self.by_slot.get_mut(slot.index()) {
            *place = birth;
        }
        self.newest = self.newest.max(birth.rv);
    }

    /// The birth of a key that entered the view after the event that has set it.
    pub(super) fn own(&self, slot: Slot) -> Option<Birth> {
        let since = self.since.map_or(Rv::ZERO, |(_, since)| since.rv);
        self.by_slot.get(slot.index()).copied().filter(|birth| birth.rv > since)
    }
}
