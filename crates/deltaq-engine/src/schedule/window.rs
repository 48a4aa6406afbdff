//! Debounce windows: a key whose producers want it to be quiet before it is delivered.
//!
//! [`ScheduleState::due`] is the one rule for the time at which a key becomes ready. The indexes, lists, `explain` and the
//! recovery use it.
//!
//! A change that prolongs a window does not move it in its index. The position of a window there is only a lower bound of the
//! time at which its key is due. When it comes first too early, it is put into the index once more ([`Schedule::place_again`]).

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::{Delay, EventId, Place, Schedule, ScheduleState};
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
    /// The time of the window in the index; `None` while its key is leased. It is not part of the state: it depends on when the
    /// index was looked at.
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
}

/// Where the indexes have a key that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Timer {
    /// Nowhere.
    #[default]
    None,
    /// In `delayed`, at the end of a delay or a backoff.
    Delay(Time, Rv),
    /// In `windows`, at `indexed`. The key is due at `due`.
    Window { indexed: Option<Time>, due: Time, rv: Rv },
}

/// What decides when a key becomes ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) timer: Timer,
    pub(super) is_delayed: bool,
}

impl ScheduleState {
    /// The open debounce window.
    #[must_use]
    pub fn window(&self) -> Option<&OpenWindow> {
        self.backoff().window.as_deref()
    }

    /// When the key becomes ready unless something changes. `None` if it does not wait.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.due_after(self.window().map(|open| open.times.due()))
    }

    /// The rule: a change that is not debounced is due at the end of its delay. Debounced changes are due when their window ends, but
    /// not during a backoff, and deltas that have failed at the end of the backoff. A floor delays everything.
    #[must_use]
    pub fn due_after(&self, window_end: Option<Time>) -> Option<Time> {
        let backoff_end = self.backoff_end().map(|backoff| backoff.due);
        let delay = self.delay().map(|delay| delay.due);
        let due = delay.into_iter().chain(backoff_end.max(window_end)).min()?;
        Some(due.max(self.floor().unwrap_or_default()))
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

    /// Whether the key becomes ready at the end of its window, and not at the end of a backoff or a delay.
    #[must_use]
    pub fn is_debouncing(&self) -> bool {
        self.window().is_some() && self.place == Place::Idle && self.due() > self.due_after(None)
    }

    /// Whether the key is idle with a window. The end of its wait is then in the index of windows.
    pub(crate) fn has_idle_window(&self) -> bool {
        self.place == Place::Idle && self.window().is_some()
    }

    /// Whether the key has a window that holds it back no longer. A closed queue drains, so its windows are over.
    pub(crate) fn has_past_window(&self, now: Time, is_closed: bool) -> bool {
        self.window().is_some_and(|open| is_closed || open.times.due() <= now)
    }

    /// Whether the index has the window of an idle key, no later than the key is due, and no other window.
    pub(crate) fn keeps_window(&self) -> bool {
        let Some(window) = self.window() else { return true };
        match &self.place {
            Place::Idle => window.indexed.is_some() && window.indexed <= self.due(),
            Place::Leased(lease) => window.indexed.is_none() && lease.new_change.is_none(),
            Place::Ready(_) | Place::Parked => false,
        }
    }

    /// Gives a restored window the position that the rebuilt index has for it.
    pub(crate) fn restore_window(&mut self) {
        if self.has_idle_window() {
            let due = self.due();
            self.set_indexed(due);
        }
    }

    pub(super) fn wait(&self) -> Wait {
        let is_idle = self.place == Place::Idle;
        let timer = match (self.window(), self.due()) {
            (Some(open), Some(due)) if is_idle => Timer::Window { indexed: open.indexed, due, rv: open.rv },
            _ => self.backoff().first_end().map_or(Timer::None, |Delay { due, rv }| Timer::Delay(due, rv)),
        };
        Wait { timer, is_delayed: is_idle && timer != Timer::None }
    }

    fn set_indexed(&mut self, indexed: Option<Time>) {
        if let Some(window) = self.backoff.as_mut().and_then(|backoff| backoff.window.as_mut()) {
            window.indexed = indexed;
        }
    }
}

impl Schedule {
    /// Whether an idle key has a window.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.windows.len() > 0
    }

    /// Windows in the index after `after`, by the earliest time at which their keys may be due.
    pub(crate) fn windows_after(&self, after: (Time, Rv)) -> impl Iterator<Item = (Time, Rv, Slot)> {
        self.windows.from(Bound::Excluded((after.0, after.1, Slot::MAX))).map(|(at, ())| at)
    }

    /// The first window in the index, at the earliest time at which its key may be due.
    #[must_use]
    pub fn next_window(&self) -> Option<(Time, Rv, Slot)> {
        self.windows.first().map(|(first, ())| first)
    }

    /// Sets the window of a key that is not ready, and not leased with a change that is not debounced. A parked key leaves the
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
            state.failures = 0;
        }
        self.set_failure_expiry(slot, state, None);
        self.update(slot, state, |state| {
            let is_revived = state.place == Place::Parked;
            if is_revived {
                state.place = Place::Idle;
                state.set_parked(None);
            }
            state.set_backoff(|backoff| {
                // A floor that has passed delays nothing.
                backoff.not_before = backoff.not_before.filter(|floor| !is_revived || floor.at > event.at);
                match &mut backoff.window {
                    Some(open) => open.times = times,
                    window => *window = Some(Box::new(OpenWindow::new(times, event.rv))),
                }
            });
        });
    }

    /// Ends the window without making the key ready.
    pub(super) fn end_window(&mut self, slot: Slot, state: &mut ScheduleState) {
        if state.window().is_some() {
            self.update(slot, state, |state| state.set_backoff(|backoff| backoff.window = None));
        }
    }

    /// Puts a window that has come first too early in the index at the time at which its key is due by now. Returns false if the
    /// key has none or is due.
    pub(crate) fn place_again(&mut self, slot: Slot, state: &mut ScheduleState) -> bool {
        let Timer::Window { indexed: Some(indexed), due, rv } = state.wait().timer else { return false };
        if indexed < due {
            self.windows.remove((indexed, rv, slot));
            self.windows.insert((due, rv, slot), ());
            state.set_indexed(Some(due));
        }
        indexed < due
    }

    /// Changes what decides when the key becomes ready, and moves the key in the indexes accordingly.
    pub(super) fn update<R>(
        &mut self,
        slot: Slot,
        state: &mut ScheduleState,
        change: impl FnOnce(&mut ScheduleState) -> R,
    ) -> R {
        // Few keys wait for anything.
        let was = if state.backoff.is_some() { state.wait() } else { Wait::default() };
        let changed = change(state);
        if was != Wait::default() || state.backoff.is_some() {
            self.follow_wait(slot, state, was);
        }
        changed
    }

    #[inline(never)]
    fn follow_wait(&mut self, slot: Slot, state: &mut ScheduleState, was: Wait) {
        let is = state.wait();
        if was == is {
            return;
        }
        self.idle_delayed = self.idle_delayed + usize::from(is.is_delayed) - usize::from(was.is_delayed);
        if let Timer::Window { indexed: Some(indexed), due, .. } = is.timer
            && indexed <= due
        {
            // The window is in the index early enough.
            return;
        }
        match was.timer {
            Timer::Delay(due, rv) => {
                self.delayed.remove((due, rv, slot));
            }
            Timer::Window { indexed: Some(indexed), rv, .. } => {
                self.windows.remove((indexed, rv, slot));
            }
            Timer::Window { indexed: None, .. } | Timer::None => {}
        }
        match is.timer {
            Timer::Delay(due, rv) => {
                self.delayed.insert((due, rv, slot), ());
            }
            Timer::Window { due, rv, .. } => {
                self.windows.insert((due, rv, slot), ());
                state.set_indexed(Some(due));
            }
            Timer::None => {}
        }
    }
}
