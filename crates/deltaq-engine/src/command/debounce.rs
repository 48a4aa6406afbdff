//! Decisions on debounce windows: which change waits for its key to be quiet, and for how long.

use std::time::Duration;

use super::Call;
use crate::config::{Debounce, Quiet};
use crate::delta::DeltaKind;
use crate::id::Slot;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::schedule::{ScheduleState, Window};
use crate::time::Time;

impl Queue {
    /// Refuses a call with its own debounce in mode events, where each delta is delivered on its own.
    pub(super) fn check_debounce(&self, call: &Call) -> Result<(), Refusal> {
        if call.debounce.is_some() && self.state().config.rules().keeps_every_delta {
            return Err(self.wrong_mode("debounce", "a queue of mode events delivers every delta by itself"));
        }
        Ok(())
    }

    /// The window of a key with the change of a call; `None` if the change does not wait for its key to be quiet.
    pub(super) fn window_of_call(&self, now: Time, slot: Option<Slot>, call: &Call) -> Option<Box<Window>> {
        let setting = self.state().config.debounce.as_ref();
        if call.debounce.is_none() && setting.is_none() {
            return None;
        }
        let is_exempt = |setting: &&Debounce| {
            call.rate_limited || (call.kind == DeltaKind::Deleted && setting.delivers_deletes_now)
        };
        let of_setting = || setting.filter(|setting| !is_exempt(setting)).map(Debounce::times);
        self.window(now, slot, call.debounce.or_else(of_setting)?, call.delay)
    }

    /// The window of a key with a change of a list.
    pub(super) fn window_of_list(
        &self,
        now: Time,
        slot: Option<Slot>,
        kind: DeltaKind,
    ) -> Option<Box<Window>> {
        self.window(now, slot, self.quiet_of_list(kind)?, None)
    }

    /// How long a change of a list waits for its key to be quiet.
    pub(super) fn quiet_of_list(&self, kind: DeltaKind) -> Option<Quiet> {
        let setting = self.state().config.debounce.as_ref().filter(|setting| setting.debounces_lists)?;
        (kind != DeltaKind::Deleted || !setting.delivers_deletes_now).then(|| setting.times())
    }

    /// A closed queue has no windows, because it drains.
    fn window(
        &self,
        now: Time,
        slot: Option<Slot>,
        quiet: Quiet,
        delay: Option<Duration>,
    ) -> Option<Box<Window>> {
        if quiet.quiet.is_zero() || self.state().closed {
            return None;
        }
        let state = slot.map(|slot| &self.state().entry(slot).schedule_state);
        if state.is_some_and(|state| !state.may_be_debounced() || is_over(state, now)) {
            return None;
        }
        let open = state.and_then(ScheduleState::window).map(|open| open.times);
        let (first, delay) = (open.map_or(now, |open| open.first), delay.unwrap_or_default());
        // A change with a delay is delivered at the later one of both times.
        let quiet_until = now.plus(quiet.quiet.max(delay));
        let latest = first.plus(quiet.max_wait).max(now.plus(delay));
        Some(Box::new(Window {
            first,
            quiet_until: open.map_or(quiet_until, |open| open.quiet_until.max(quiet_until)),
            latest: open.map_or(latest, |open| open.latest.min(latest)),
        }))
    }
}

/// Whether the window of a key has ended and its timer is about to fire.
fn is_over(state: &ScheduleState, now: Time) -> bool {
    state.is_debouncing() && state.window().is_some_and(|open| open.times.due() <= now)
}
