//! The journal's interface for callers.

use std::ops::Deref;
use std::sync::Arc;

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_runtime::clock::Clock;

use super::commit_queue::CommitQueue;
use super::store::Reader;

/// A handle to the journal: its [`CommitQueue`] and its reader. Clones share one journal.
#[derive(Clone, Debug)]
pub struct Journal {
    pub(super) commit_queue: Arc<CommitQueue>,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) floor: Rv,
    pub(super) clock: Clock,
    /// The database's clock when the journal was opened, and the monotonic clock at the same instant.
    pub(super) database_clock: Option<(Time, u64)>,
}

impl Journal {
    /// Reads the committed rows.
    #[must_use]
    pub fn reader(&self) -> &Arc<dyn Reader> {
        &self.reader
    }

    /// The largest event number of any queue that was deleted when the store was opened. New queues start above it.
    #[must_use]
    pub fn floor(&self) -> Rv {
        self.floor
    }

    /// The current time by the clock that all writers of the store share: the clock of the database or, if the store
    /// has none, the clock of the machine.
    #[must_use]
    pub fn wall(&self) -> Time {
        match self.database_clock {
            Some((wall, monotonic_us)) => wall.plus(self.clock.since(monotonic_us)),
            None => Time::from_micros(self.clock.wall_us()),
        }
    }
}

impl Deref for Journal {
    type Target = CommitQueue;

    fn deref(&self) -> &CommitQueue {
        &self.commit_queue
    }
}
