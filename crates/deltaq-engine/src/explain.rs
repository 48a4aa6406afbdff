//! Why a key is not delivered.

use deltaq_types::PauseReason;

use super::groups::GroupTurn;
use super::key::Key;
use super::queue::Queue;
use super::schedule::{HeadStart, Place, ScheduleState, Turn};
use super::snapshot::KeyState;
use super::time::Time;

/// Maximum number of keys that are counted ahead of a key.
pub const AHEAD_MAX: usize = 5_000;

/// The facts that determine whether a key is delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The key; `None` if the queue does not have it.
    pub key: Option<KeyState>,
    /// For a ready key: the number of ready keys of its group that are delivered before it, at most [`AHEAD_MAX`].
    pub ahead: Option<usize>,
    /// Whether more than [`AHEAD_MAX`] keys are ahead.
    pub has_more_ahead: bool,
    /// Whether the queue is paused.
    pub is_paused: bool,
    /// When the hold of the queue ends.
    pub held_until: Option<Time>,
    /// Why the queue has paused itself; `None` if it has not.
    pub pause_reason: Option<PauseReason>,
    /// Whether workers hold as many keys as the setting `max_leased` allows.
    pub is_full: bool,
    /// The turn of the key's group; `None` without the setting `groups`.
    pub group: Option<GroupTurn>,
    /// When the rate of the queue lets this ready key through after the hold, if the keys ahead are delivered as soon as they may be.
    pub next_by_rate: Option<Time>,
    /// Whether delays are frozen because the queue is closed.
    pub has_frozen_delays: bool,
    /// When the delay of a ready or leased key ends and adds the key again. Only in mode keys, where a delay is a
    /// separate add.
    pub added_again: Option<Time>,
    /// When the key becomes ready unless something changes.
    pub due: Option<Time>,
    /// When the key becomes ready at the latest, whatever debounced changes arrive; `None` without an open debounce window.
    pub latest: Option<Time>,
    /// Whether the key waits for the end of its debounce window and not of anything else.
    pub is_debouncing: bool,
    /// The head start of the changes that wait.
    pub head_start: HeadStart,
    /// Whether a new change makes a parked key ready.
    pub wakes_parked_keys: bool,
}

impl Queue {
    /// Explains whether and when this key is delivered.
    #[must_use]
    pub fn explain(&self, now: Time, key: &Key) -> Explanation {
        let now = now.max(self.last_at());
        let entry = self.table().get(key.as_str());
        let slot = self.table().find(key.as_str());
        let before = entry.and_then(|entry| match entry.schedule_state.place {
            Place::Ready(position) => {
                let before = self.state().keys_after(self.state().order_of(slot?), Turn::START);
                let before = before.take_while(|(turn, _)| turn.rv != position.rv);
                Some(before.take(AHEAD_MAX + 1).count())
            }
            _ => None,
        });
        let ahead = before.map(|before| before.min(AHEAD_MAX));
        let rules = self.state().config.rules();
        let state = entry.map(|entry| &entry.schedule_state);
        let delay = state.and_then(ScheduleState::delay);
        // In a closed queue every window is over.
        let window = state.and_then(ScheduleState::window).filter(|_| !self.state().closed);
        let held_until = self.state().hold_at(now);
        let due_after = |end: Option<Time>| state.and_then(|state| state.due_after(end));
        Explanation {
            added_again: delay.filter(|_| rules.delays_are_adds).map(|delay| delay.due),
            key: entry.map(|entry| entry.state(slot.and_then(|slot| self.group_of(slot)))),
            group: slot
                .and_then(|slot| self.state().turn_of_group(slot, ahead.unwrap_or_default() as u64, now)),
            ahead,
            has_more_ahead: before.is_some_and(|before| before > AHEAD_MAX),
            is_paused: self.state().paused,
            held_until,
            pause_reason: self.state().pause_reason,
            is_full: self.state().is_full(),
            next_by_rate: ahead
                .and_then(|ahead| self.state().next_by_rate(ahead as u64, held_until.unwrap_or(now))),
            has_frozen_delays: self.state().freezes_delays(),
            due: due_after(window.map(|open| open.times.due())),
            latest: window.and_then(|open| due_after(Some(open.times.latest))),
            is_debouncing: window.is_some() && state.is_some_and(ScheduleState::is_debouncing),
            head_start: state.map_or(HeadStart::NONE, ScheduleState::head_start),
            wakes_parked_keys: !rules.leases_oldest_delta,
        }
    }
}
