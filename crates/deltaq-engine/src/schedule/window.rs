//! Debounce windows: a key whose producers want it to be quiet before it is delivered.
//!
//! A window waits in the index `windows` only while nothing else holds its key: not during a lease, and not during a backoff
//! or a floor. At the end of these the window either is over, and the key becomes ready, or enters the index.
//!
//! A change that prolongs a window does not move it in the index. The position of a window there is only a lower bound of the
//! time at which it ends. When it comes first too early, it is put into the index once more ([`Schedule::place_again`]).

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::{EventId, Place, Schedule, ScheduleState};
use crate::id::{Rv, Slot};
use crate::key::Key;
use crate::time::Time;

/// The times of a debounce window. The window ends at the earlier one of `quiet_until` and `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// When the oldest debounced change arrived that is not delivered.
    pub first: Time,
    /// The time until which the key must be quiet: the latest one that a change of the window asks for.
    pub quiet_until: Time,
    /// The time at which the window ends even if the key is not quiet: the earliest one that a change of the window allows.
    pub latest: Time,
}

impl Window {
    /// When the window ends.
    #[must_use]
    pub fn due(&self) -> Time {
        self.quiet_until.min(self.latest)
    }
}

/// The open window of a key.
#[derive(Clone, Copy, Debug, Eq, Serialize, Deserialize)]
pub struct OpenWindow {
    /// The times.
    #[serde(flatten)]
    pub times: Window,
    /// The event that opened the window.
    pub rv: Rv,
    /// The time of the window in the index, if the index has it. It is not part of the state: it depends on when the index was
    /// looked at.
    #[serde(skip)]
    pub(super) indexed: Option<Time>,
}

impl PartialEq for OpenWindow {
    fn eq(&self, other: &Self) -> bool {
        (self.times, self.rv) == (other.times, other.rv)
    }
}

impl OpenWindow {
    /// A window that no index has.
    #[must_use]
    pub const fn new(times: Window, rv: Rv) -> Self {
        Self { times, rv, indexed: None }
    }

    /// Whether the index has the window at an earlier time than that at which it ends.
    pub(crate) fn comes_too_early(&self) -> bool {
        self.indexed.is_some_and(|indexed| indexed < self.times.due())
    }
}

impl ScheduleState {
    /// The open debounce window.
    #[must_use]
    pub fn window(&self) -> Option<&OpenWindow> {
        self.backoff().window.as_deref()
    }

    /// Whether a change of the key may open or prolong a window. A ready key is delivered as it is, and so is a leased key
    /// behind which a change waits that is not debounced.
    #[must_use]
    pub fn may_be_debounced(&self) -> bool {
        match &self.place {
            Place::Ready(_) => false,
            Place::Leased(lease) => lease.new_change.is_none(),
            Place::Idle | Place::Parked => true,
        }
    }

    /// Whether the key waits for the end of its window and of nothing else.
    #[must_use]
    pub fn is_debouncing(&self) -> bool {
        self.window().is_some() && self.place == Place::Idle && !self.is_held_back()
    }

    /// Whether the key waits for the end of a backoff or a floor, which its window does not end.
    fn is_held_back(&self) -> bool {
        self.floor().is_some() || self.delay().is_some_and(|delay| delay.after_failure)
    }

    /// When the key becomes ready unless something changes: at the end of its delay or its window, or of both if the delay is
    /// a backoff. `None` if the key has neither.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        let delay = self.delay().map(|delay| delay.due);
        let window = self.window().map(|window| window.times.due());
        match (delay, window) {
            (Some(delay), Some(window)) if self.is_held_back() => Some(delay.max(window)),
            (Some(delay), Some(window)) => Some(delay.min(window)),
            (delay, window) => delay.or(window),
        }
    }

    /// Whether the indexed time of the window is one at which the index may have it.
    pub(crate) fn keeps_window(&self) -> bool {
        let Some(window) = self.window() else { return true };
        let in_index = window.indexed.is_some_and(|indexed| indexed <= window.times.due());
        match &self.place {
            Place::Idle => in_index != self.is_held_back(),
            Place::Leased(lease) => window.indexed.is_none() && lease.new_change.is_none(),
            Place::Ready(_) | Place::Parked => false,
        }
    }

    /// Gives a restored window the position that the rebuilt index has for it.
    pub(crate) fn restore_window(&mut self) {
        if self.window().is_some() {
            let is_indexed = self.is_debouncing();
            self.set_window(|window| window.indexed = is_indexed.then_some(window.times.due()));
        }
    }

    fn set_window(&mut self, change: impl FnOnce(&mut OpenWindow)) {
        if let Some(window) = self.backoff.as_mut().and_then(|backoff| backoff.window.as_mut()) {
            change(window);
        }
    }
}

impl Schedule {
    /// Windows in the index after `after`, by the earliest time at which they may end.
    pub(crate) fn windows_after(&self, after: (Time, Rv)) -> impl Iterator<Item = (Time, Rv, Slot)> {
        self.windows.from(Bound::Excluded((after.0, after.1, Slot::MAX))).map(|(at, ())| at)
    }

    /// The first window in the index, at the earliest time at which it may end.
    #[must_use]
    pub fn next_window(&self) -> Option<(Time, Rv, Slot)> {
        self.windows.first().map(|(first, ())| first)
    }

    /// Sets the window of a key that is neither ready nor leased with a change that ends its wait. A parked key leaves the
    /// parked ones.
    pub fn debounce(
        &mut self,
        slot: Slot,
        key: &Key,
        state: &mut ScheduleState,
        times: Window,
        event: EventId,
    ) {
        if state.place == Place::Parked {
            self.parked.remove(key.as_str());
            state.place = Place::Idle;
            state.failures = 0;
            if let Some(floor) = state.floor().filter(|floor| *floor > event.at) {
                self.back_off(slot, state, floor, event.rv);
            } else {
                state.set_floor(None);
            }
        }
        self.set_failure_expiry(slot, state, None);
        let was = state.waiting();
        let open =
            state.window().map_or(OpenWindow::new(times, event.rv), |open| OpenWindow { times, ..*open });
        if state.window().is_some() {
            state.set_window(|window| *window = open);
        } else {
            state.set_backoff(|backoff| backoff.window = Some(Box::new(open)));
        }
        self.count_waiting(was, state.waiting());
        self.index_window(slot, state);
    }

    /// Ends the window without making the key ready.
    pub(super) fn end_window(&mut self, slot: Slot, state: &mut ScheduleState) {
        if state.window().is_some() {
            let was = state.waiting();
            self.take_from_index(slot, state);
            state.set_backoff(|backoff| backoff.window = None);
            self.count_waiting(was, state.waiting());
        }
    }

    /// Puts the window into the index, or takes it out of it, according to what else holds the key. A window that is in the
    /// index no later than it ends stays where it is.
    pub(super) fn index_window(&mut self, slot: Slot, state: &mut ScheduleState) {
        let Some(open) = state.window().copied() else { return };
        let due = open.times.due();
        if !state.is_debouncing() {
            self.take_from_index(slot, state);
        } else if open.indexed.is_none_or(|indexed| indexed > due) {
            self.take_from_index(slot, state);
            self.windows.insert((due, open.rv, slot), ());
            state.set_window(|window| window.indexed = Some(due));
        }
    }

    /// Puts a window that came first in the index at the time at which it ends by now.
    pub(crate) fn place_again(&mut self, slot: Slot, state: &mut ScheduleState) {
        self.take_from_index(slot, state);
        self.index_window(slot, state);
    }

    fn take_from_index(&mut self, slot: Slot, state: &mut ScheduleState) {
        if let Some(OpenWindow { rv, indexed: Some(indexed), .. }) = state.window().copied() {
            self.windows.remove((indexed, rv, slot));
            state.set_window(|window| window.indexed = None);
        }
    }
}
