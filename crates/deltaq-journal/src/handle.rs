//! The journal as its callers see it.

use std::ops::Deref;
use std::sync::Arc;

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_runtime::clock::Clock;

use super::commit_queue::CommitQueue;
use super::store::Reader;

/// A handle on the journal: its [`CommitQueue`], and what can be read. Clones share one journal.
#[derive(Clone, Debug)]
pub struct Journal {
    pub(super) commit_queue: Arc<CommitQueue>,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) floor: Rv,
    pub(super) clock: Clock,
    /// What the clock of the database showed, and the monotonic clock then.
    pub(super) database_clock: Option<(Time, u64)>,
}

impl Journal {
    /// Reads the committed rows.
    #[must_use]
    pub fn reader(&self) -> &Arc<dyn Reader> {
        &self.reader
    }

    /// The largest event of any deleted queue when the store was opened. New queues start above it.
    #[must_use]
    pub fn floor(&self) -> Rv {
        self.floor
    }

    /// The present time by the clock that all writers of the store share: that of the database or, if the store has none, that of the
    /// machine.
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
