//! Debounced changes: each one is kept with its times, and the time at which a key is due is computed from everything that waits.

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
    /// The wait of a key ends, because it is due, by a promote, or because the closed queue has no windows.
    pub(super) fn delay_elapses(&mut self, key: Name, due: Micros) {
        let (rv, at) = self.event(due);
        let stamp = (self.position(key, rv), at);
        let (keys_mode, closed) = (self.is_keys(), self.closed);
        let item = self.item(key);
        let before = item.clone();
        let is_due = item.due().is_some_and(|due| due <= at);
        if closed && item.has_idle_window() && !is_due {
            item.wake(stamp);
            self.tidy(key);
            self.hit("a closed queue ends a window");
            return;
        }
        let kept = item.delay.filter(|delay| {
            // In mode keys a delay is an add of its own, which the end of a window does not deliver.
            keys_mode && before.has_idle_window() && is_due && delay.due > at
        });
        item.delay = kept;
        (item.backoff, item.floor) = (None, None);
        item.debounced.clear();
        if keys_mode || !item.waiting.is_empty() {
            item.wake(stamp);
        }
        self.tidy(key);
        self.hit(match (before.is_leased(), before.is_ready()) {
            _ if kept.is_some() => "a window ends before a delay",
            _ if before.has_window() && before.backoff.is_some() => "a window and a backoff end",
            _ if before.has_window() => "a window ends",
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

    pub(crate) fn has_idle_window(&self) -> bool {
        self.has_window() && self.place == Place::Idle
    }

    /// Whether anything waits that is not ready.
    pub(crate) fn waits(&self) -> bool {
        self.delay.is_some() || self.backoff.is_some() || self.has_window()
    }

    /// When the window ends: the earlier one of the latest time to be quiet until, and the earliest longest wait.
    pub(crate) fn window_due(&self) -> Option<Micros> {
        let first = self.debounced.first()?.at;
        let quiet = self.debounced.iter().map(|change| change.at + change.quiet.max(change.delay)).max()?;
        let latest =
            self.debounced.iter().map(|change| (first + change.max_wait).max(change.at + change.delay));
        Some(quiet.min(latest.min()?))
    }

    /// When the key becomes ready if nothing changes.
    pub(crate) fn due(&self) -> Option<Micros> {
        let mut times = Vec::new();
        // A change that is not debounced is due by itself.
        times.extend(self.delay.map(|delay| delay.due));
        // What is debounced waits for its window, and what has failed for its backoff. Both are delivered together.
        times.extend(match (self.backoff, self.window_due()) {
            (Some(backoff), Some(window)) => Some(window.max(backoff.due)),
            (Some(backoff), None) => Some(backoff.due),
            (None, window) => window,
        });
        let due = times.into_iter().min()?;
        Some(self.floor.map_or(due, |floor| due.max(floor)))
    }

    /// The key has failed, and its deltas are delivered again at `due`.
    pub(super) fn back_off(&mut self, due: Micros, rv: u64) {
        self.backoff = Some(Delay { due: due.max(self.floor.unwrap_or(0)), rv });
    }

    /// A debounced change that arrives behind nothing that is ready. A parked key is revived.
    pub(super) fn debounce(&mut self, change: Debounced, rv: u64) {
        if self.is_parked() {
            self.place = Place::Idle;
            self.failures = 0;
            self.floor = self.floor.filter(|floor| *floor > change.at);
        }
        if !self.has_window() {
            self.window_rv = rv;
        }
        self.debounced.push(change);
    }

    /// Whether a change may be debounced: the key is neither ready, nor will it be as soon as its lease ends.
    pub(super) fn takes_debounced(&self, now: Micros) -> bool {
        let is_over = self.has_idle_window() && self.due().is_some_and(|due| due <= now);
        match &self.place {
            Place::Ready(_) => false,
            Place::Leased(lease) => lease.new_change.is_none(),
            Place::Idle | Place::Parked => !is_over,
        }
    }

    /// A change of the key is due at this time. Of several times the earliest one counts.
    pub(super) fn wait_until(&mut self, due: Micros, rv: u64) {
        if self.is_parked() {
            self.place = Place::Idle;
            self.failures = 0;
        }
        let due = due.max(self.floor.unwrap_or(0));
        if self.delay.is_none_or(|delay| due < delay.due) {
            self.delay = Some(Delay { due, rv });
        }
    }
}
