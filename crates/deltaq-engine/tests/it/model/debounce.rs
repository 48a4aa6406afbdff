//! Debounced changes: each one is kept with its times, and the window of a key is computed from all of them.

use super::{Delay, Item, Micros, Model, Name, Place};

/// A debounced change: when it arrived, and its quiet time, longest wait and delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Debounced {
    pub(crate) at: Micros,
    pub(crate) quiet: Micros,
    pub(crate) max_wait: Micros,
    pub(crate) delay: Micros,
}

impl Model {
    pub(super) fn delay_elapses(&mut self, key: Name, due: Micros) {
        let (rv, at) = self.event(due);
        let stamp = (self.position(key, rv), at);
        let (keys_mode, closed) = (self.is_keys(), self.closed);
        let item = self.item(key);
        let window = item.window_due().map(|due| if closed { at } else { due });
        match item.delay {
            Some(delay) if delay.due <= at => {
                (item.delay, item.floor) = (None, None);
                if item.backs_off && window.is_some_and(|due| due > at) {
                    item.backs_off = false;
                    self.hit("a backoff ends before a window");
                    return;
                }
            }
            _ if item.is_debouncing() && window.is_some_and(|due| due <= at) => {}
            _ => (item.delay, item.floor) = (None, None),
        }
        item.debounced.clear();
        let (leased, ready) = (item.is_leased(), item.is_ready());
        if keys_mode || !item.waiting.is_empty() {
            item.wake(stamp);
        }
        self.tidy(key);
        self.hit(match (leased, ready) {
            _ if window.is_some() => "a window ends",
            (true, _) => "a delay elapses during a lease",
            (_, true) => "a delay of a ready key elapses",
            _ => "a delay elapses",
        });
    }
}

impl Item {
    pub(crate) fn has_window(&self) -> bool {
        !self.debounced.is_empty()
    }

    /// When the window ends: the earlier one of the latest time to be quiet until, and the earliest longest wait.
    pub(crate) fn window_due(&self) -> Option<Micros> {
        let first = self.debounced.first()?.at;
        let quiet = self.debounced.iter().map(|change| change.at + change.quiet.max(change.delay)).max()?;
        let latest =
            self.debounced.iter().map(|change| (first + change.max_wait).max(change.at + change.delay));
        Some(quiet.min(latest.min()?))
    }

    /// Whether the window must wait for a backoff or a floor.
    pub(crate) fn is_held_back(&self) -> bool {
        self.floor.is_some() || (self.delay.is_some() && self.backs_off)
    }

    /// Whether the window decides when the key becomes ready.
    pub(crate) fn is_debouncing(&self) -> bool {
        self.has_window() && self.place == Place::Idle && !self.is_held_back()
    }

    /// When the key becomes ready if nothing changes.
    pub(crate) fn due(&self) -> Option<Micros> {
        match (self.delay.map(|delay| delay.due), self.window_due()) {
            (Some(delay), Some(window)) if self.is_held_back() => Some(delay.max(window)),
            (Some(delay), Some(window)) => Some(delay.min(window)),
            (delay, window) => delay.or(window),
        }
    }

    /// Like `wait_until`, after a failure: a window of the key does not end the wait.
    pub(super) fn back_off(&mut self, due: Micros, rv: u64) {
        let before = self.delay;
        self.wait_until(due, rv);
        self.backs_off |= self.delay != before;
    }

    /// A debounced change that arrives behind nothing that is due. A parked key is revived.
    pub(super) fn debounce(&mut self, change: Debounced, rv: u64) {
        if self.is_parked() {
            self.place = Place::Idle;
            self.failures = 0;
            match self.floor.filter(|floor| *floor > change.at) {
                Some(floor) => self.back_off(floor, rv),
                None => self.floor = None,
            }
        }
        if !self.has_window() {
            self.window_rv = rv;
        }
        self.debounced.push(change);
    }

    /// Whether a change may be debounced: the key is neither ready, nor will it be as soon as its lease ends.
    pub(super) fn takes_debounced(&self, now: Micros) -> bool {
        let is_over = self.is_debouncing() && self.window_due().is_some_and(|due| due <= now);
        match &self.place {
            Place::Ready(_) => false,
            Place::Leased(lease) => lease.new_change.is_none(),
            Place::Idle | Place::Parked => !is_over,
        }
    }

    /// The key becomes ready at `due`, or earlier if it would have become ready anyway.
    pub(super) fn wait_until(&mut self, due: Micros, rv: u64) {
        if self.is_parked() {
            self.place = Place::Idle;
            self.failures = 0;
        }
        let due = due.max(self.floor.unwrap_or(0));
        if self.delay.is_none_or(|delay| due < delay.due) {
            self.delay = Some(Delay { due, rv });
            self.backs_off = false;
        }
    }
}
