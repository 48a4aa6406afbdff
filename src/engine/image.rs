//! A copy of all that the events determine, to compare one queue with another.

use super::delta::Rv;
use super::queue::Queue;
use super::snapshot::{KeyState, QueueState};

/// All state of a queue that is a function of its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    queue: QueueState,
    /// In key order: slots are no function of the events.
    keys: Vec<KeyState>,
    line: Vec<Rv>,
}

impl Queue {
    /// A copy of all that the events determine.
    #[must_use]
    pub fn image(&self) -> Image {
        Image {
            queue: self.queue_state(),
            keys: self.entries_after(None).map(|(_, entry)| entry.state()).collect(),
            line: self.schedule.ready().map(|(rv, _)| rv).collect(),
        }
    }
}
