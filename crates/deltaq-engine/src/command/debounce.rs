//! Decisions on debounce windows: which change waits for its key to be quiet, and for how long.

use std::time::Duration;

use super::Call;
use crate::config::{Debounce, Quiet};
use crate::delta::DeltaKind;
use crate::event::Due;
use crate::id::Slot;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::schedule::Window;
use crate::table::Entry;
use crate::time::Time;

impl Queue {
    /// Refuses a call with its own debounce in mode events, where each delta is delivered on its own.
    pub(super) fn check_debounce(&self, call: &Call) -> Result<(), Refusal> {
        if call.debounce.is_some() && self.state().config.rules().keeps_every_delta {
            return Err(self.wrong_mode("debounce", "a queue of mode events delivers every delta by itself"));
        }
        Ok(())
    }

    /// When the change of a call is due; `None` if at once. `wait` is its delay.
    #[inline]
    pub(super) fn due_of_call(
        &mut self,
        now: Time,
        slot: Option<Slot>,
        call: &Call,
        wait: Option<Duration>,
    ) -> Option<Due> {
        if (call.debounce.is_some() || self.state().config.debounce.is_some())
            && let Some(due) = self.window_of_call(now, slot, call)
        {
            return Some(due);
        }
        wait.filter(|wait| !wait.is_zero()).map(|wait| Due::At(now.plus(wait)))
    }

    /// The window of a key with the change of a call; `None` if the change does not wait for its key to be quiet.
    #[inline(never)]
    fn window_of_call(&mut self, now: Time, slot: Option<Slot>, call: &Call) -> Option<Due> {
        let delay = call.delay.unwrap_or_default();
        // In mode keys a delay is an add of its own.
        let is_own_add = self.state().config.rules().delays_are_adds && !delay.is_zero();
        if call.rate_limited || is_own_add {
            return None;
        }
        let is_exempt = |setting: &&Debounce| call.kind == DeltaKind::Deleted && setting.delivers_deletes_now;
        let setting = self.state().config.debounce.as_ref().filter(|setting| !is_exempt(setting));
        let quiet = call.debounce.or_else(|| setting.map(Debounce::times))?;
        self.window(now, slot, call.kind, quiet, delay)
    }

    /// The window of a key with a change of a list; `None` if the change does not wait.
    pub(super) fn due_of_list(&mut self, now: Time, slot: Option<Slot>, kind: DeltaKind) -> Option<Due> {
        self.window(now, slot, kind, self.quiet_of_list(kind)?, Duration::ZERO)
    }

    /// How long a change of a list waits for its key to be quiet.
    pub(super) fn quiet_of_list(&self, kind: DeltaKind) -> Option<Quiet> {
        let setting = self.state().config.debounce.as_ref().filter(|setting| setting.debounces_lists)?;
        (kind != DeltaKind::Deleted || !setting.delivers_deletes_now).then(|| setting.times())
    }

    /// A closed queue has no windows, because it drains.
    fn window(
        &mut self,
        now: Time,
        slot: Option<Slot>,
        kind: DeltaKind,
        quiet: Quiet,
        delay: Duration,
    ) -> Option<Due> {
        if quiet.quiet.is_zero() || self.state().closed {
            return None;
        }
        let entry = slot.map(|slot| self.state().entry(slot));
        let state = entry.map(|entry| &entry.schedule_state);
        // A window that is over and whose timer is about to fire takes no change.
        let is_over =
            state.is_some_and(|state| state.has_idle_window() && state.due().is_some_and(|due| due <= now));
        if is_over || state.is_some_and(|state| !state.may_be_debounced()) {
            return None;
        }
        let open = state.and_then(|state| state.window()).map(|open| open.times);
        // A change with a delay is delivered at the later one of both times.
        let quiet_until = now.plus(quiet.quiet.max(delay));
        let latest = |first: Time| first.plus(quiet.max_wait).max(now.plus(delay));
        let is_repeated = kind == DeltaKind::Deleted && entry.is_some_and(Entry::waits_as_deleted);
        let window = match open {
            None => Window { first: now, quiet_until, latest: latest(now) },
            Some(open) if is_repeated => open,
            Some(open) => Window {
                first: open.first,
                quiet_until: open.quiet_until.max(quiet_until),
                latest: open.latest.min(latest(open.first)),
            },
        };
        self.volatile.effects.counters.debounced += 1;
        Some(Due::Window(Box::new(window)))
    }
}
