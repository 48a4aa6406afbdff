//! A copy of everything determined by the events, to compare two queues.

use super::id::Rv;
use super::queue::Queue;
use super::schedule::Turn;
use super::snapshot::{KeyState, QueueState};

/// The state of a queue that is a function of its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    queue: QueueState,
    /// In key order, because slots are not determined by the events.
    keys: Vec<KeyState>,
    ready: Vec<Rv>,
}

impl Queue {
    /// A copy of everything determined by the events.
    #[must_use]
    pub fn image(&self) -> Image {
        Image {
            queue: self.queue_state(),
            keys: self
                .state()
                .entries_after(None)
                .map(|(slot, entry)| {
                    let birth = self.state().stored_birth(slot, entry);
                    KeyState { birth, ..entry.state(self.state().schedule.group_of(slot)) }
                })
                .collect(),
            ready: self.state().ready_after(Turn::START).map(|(turn, _)| turn.rv).collect(),
        }
    }
}
