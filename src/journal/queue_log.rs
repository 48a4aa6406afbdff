//! What the writer keeps of each queue: how far its rows reach, and how much of its journal is kept.

use std::collections::VecDeque;

use super::record::Identity;
use super::recovery::Loaded;
use super::store::{QueueId, Segment};
use crate::engine::config::Retention;
use crate::engine::delta::Rv;
use crate::engine::time::Time;
use crate::name::{Incarnation, Name};

/// The journal is trimmed in segments of about this many bytes.
pub(super) const SEGMENT_BYTES: u64 = 256 << 10;
/// Without a setting, a queue's journal keeps at least this many bytes, and as many as its live state.
pub(super) const KEPT_BYTES_MIN: u64 = 64 << 20;

/// What a queue is called, which of its name it is, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueMeta {
    /// Its name.
    pub name: Name,
    /// Which of the queues of its name it is.
    pub incarnation: Incarnation,
    /// When it came into being.
    pub created_at: Time,
}

impl QueueMeta {
    /// With what the store adds to it.
    pub(super) fn identity(self, id: QueueId, version: u64) -> Identity {
        let Self { name, incarnation, created_at } = self;
        Identity { id, version, name, incarnation, created_at }
    }
}

/// What the writer knows of a queue.
#[derive(Debug)]
pub(super) struct QueueLog {
    pub(super) identity: Identity,
    /// The event from which a replay would start.
    pub(super) checkpoint_rv: Rv,
    /// The newest event that is committed.
    pub(super) last_rv: Rv,
    /// Bytes of the queue's state as of its last checkpoint.
    pub(super) live_bytes: u64,
    pub(super) retention: Retention,
    kept: VecDeque<Segment>,
    /// Invariant: the sum over `kept`.
    kept_bytes: u64,
}

impl QueueLog {
    /// The log of a queue without a journal, as of `rv`.
    pub(super) fn new(identity: Identity, rv: Rv, retention: Retention) -> Self {
        Self {
            identity,
            checkpoint_rv: rv,
            last_rv: rv,
            live_bytes: 0,
            retention,
            kept: VecDeque::new(),
            kept_bytes: 0,
        }
    }

    /// The log of a queue as it was loaded.
    pub(super) fn of(loaded: &Loaded) -> Self {
        let retention = loaded.queue.config().retention;
        let mut log = Self::new(loaded.identity.clone(), loaded.checkpoint_rv, retention);
        log.last_rv = loaded.last_rv;
        log.live_bytes = loaded.queue.live_bytes();
        log.kept = loaded.kept.iter().copied().collect();
        log.kept_bytes = log.kept.iter().map(|stretch| stretch.bytes).sum();
        log
    }

    /// Bytes of events that a replay would apply, about.
    pub(super) fn lag_bytes(&self) -> u64 {
        let behind = self.kept.iter().filter(|stretch| stretch.last_rv > self.checkpoint_rv);
        behind.map(|stretch| stretch.bytes).sum()
    }

    /// Events that a replay would apply.
    pub(super) fn lag(&self) -> u64 {
        self.last_rv.saturating_sub(self.checkpoint_rv)
    }

    /// A row was committed.
    pub(super) fn add(&mut self, row: Segment, segment_bytes: u64) {
        self.last_rv = row.last_rv;
        self.kept_bytes += row.bytes;
        match self.kept.back_mut() {
            Some(last) if last.bytes + row.bytes <= segment_bytes => {
                *last = Segment { bytes: last.bytes + row.bytes, ..row };
            }
            _ => self.kept.push_back(row),
        }
    }

    /// The last event of the oldest stretch, if neither a replay nor the retention needs it.
    pub(super) fn expendable(&self, now: Time) -> Option<Rv> {
        let oldest = self.kept.front().filter(|oldest| oldest.last_rv <= self.checkpoint_rv)?;
        let limit = self.retention.bytes.unwrap_or(KEPT_BYTES_MIN.max(self.live_bytes));
        let too_much = self.kept_bytes - oldest.bytes >= limit;
        let too_old = self.retention.age.is_some_and(|age| oldest.at.plus(age) < now);
        (too_much || too_old).then_some(oldest.last_rv)
    }

    /// The oldest stretch, up to `last_rv`, is no longer there.
    pub(super) fn trimmed(&mut self, last_rv: Rv) {
        if let Some(oldest) = self.kept.pop_front_if(|oldest| oldest.last_rv == last_rv) {
            self.kept_bytes -= oldest.bytes;
        }
    }
}
