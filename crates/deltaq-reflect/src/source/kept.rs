//! What a source keeps outside of this process, or for the next one: a slot in its database, and the place where its changes go on.

use std::time::Duration;

use super::{Error, QueueState, Source};
use crate::health::Health;

/// How long a source may take to end its step when the process stops.
const STEP_MAX: Duration = Duration::from_secs(4);

impl Source {
    /// Drops what the source has made in its database. Returns the name of the slot, and whether there was one.
    pub(crate) async fn drop_slot(&self) -> Result<Option<(String, bool)>, Error> {
        match self {
            Self::Replication(replication) => replication.drop_slot().await.map(Some),
            _ => Ok(None),
        }
    }

    /// How long the source may take to end its step when the process stops.
    pub(crate) const fn step_max(&self) -> Duration {
        match self {
            Self::Replication(_) => STEP_MAX,
            _ => Duration::ZERO,
        }
    }

    /// Whether the source can continue where the last process has stopped.
    pub(crate) const fn keeps_place(&self) -> bool {
        matches!(self, Self::Replication(_))
    }

    /// Continues where the last process has stopped, if the queue is as it was then. Returns when the next list is due, in
    /// microseconds since 1970.
    pub(crate) async fn resume(&mut self, queue: &QueueState, now_us: u64) -> Result<Option<u64>, Error> {
        match self {
            Self::Replication(replication) => replication.resume(queue, now_us).await,
            _ => Ok(None),
        }
    }

    /// Notes for the next start where the changes have ended.
    pub(crate) async fn keep_place(&mut self, queue: QueueState, relist_at_us: u64) -> Result<(), Error> {
        match self {
            Self::Replication(replication) => replication.keep_place(queue, relist_at_us).await,
            _ => Ok(()),
        }
    }

    /// Records where the slot of the source stands, while the source itself is not read. What can't be read is not recorded.
    pub(crate) async fn look_at_slot(&self, health: &Health) {
        if let Self::Replication(replication) = self {
            replication.look_at_slot(health).await;
        }
    }
}
