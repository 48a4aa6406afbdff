//! The writer's log of each queue: the end of its journal, and the rows that are retained.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use deltaq_engine::config::Config;
use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_types::Retention;
use deltaq_types::name::{Incarnation, Name};

use super::options::SEGMENT_BYTES;
use super::record::Identity;
use super::recovery::Loaded;
use super::runs::Runs;
use super::store::{QueueId, REMOVED_ROWS_MAX, Segment};

/// The minimum number of bytes that a queue's journal retains by default. If the live state of the queue is larger,
/// its size counts.
pub(super) const RETAINED_BYTES_MIN: u64 = 64 << 20;

/// Maximum bytes of the segments that are trimmed at a time. One write must remove all their rows.
const TRIMMED_BYTES_MAX: u64 = 512 << 10;
/// Every journal row has more bytes of events.
const ROW_BYTES_MIN: u64 = 32;
const _: () = assert!(TRIMMED_BYTES_MAX >= SEGMENT_BYTES);
const _: () = assert!(TRIMMED_BYTES_MAX <= REMOVED_ROWS_MAX as u64 * ROW_BYTES_MIN);

/// The identity of a queue, as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueMeta {
    /// The name.
    pub name: Name,
    /// Distinguishes the queue from earlier queues of the same name.
    pub incarnation: Incarnation,
    /// When the queue was created.
    pub created_at: Time,
}

impl QueueMeta {
    /// Adds the numbers that the store uses.
    pub(super) fn identity(self, id: QueueId, version: u64) -> Identity {
        let Self { name, incarnation, created_at } = self;
        Identity { id, version, name, incarnation, created_at }
    }
}

/// The writer's log of a queue.
#[derive(Debug)]
pub(super) struct QueueLog {
    pub(super) identity: Identity,
    /// The runs of the last checkpoint.
    pub(super) runs: Runs,
    /// A replay would start after this event.
    pub(super) checkpoint_rv: Rv,
    /// The newest committed event.
    pub(super) last_rv: Rv,
    /// The size of the queue's state at its last checkpoint.
    pub(super) live_bytes: u64,
    pub(super) retention: Retention,
    /// The name of the queue that this one follows.
    pub(super) follows: Option<Arc<str>>,
    /// Whether the queue follows another or is followed, so that its rows share large objects.
    pub(super) shares: bool,
    /// The retained rows, oldest first.
    retained: VecDeque<Segment>,
    /// Invariant: the sum of the bytes of `retained`.
    retained_bytes: u64,
    /// Number of events that were replayed by the load or committed by the writer since then.
    events: u64,
}

impl QueueLog {
    /// The log of a queue that has no journal rows, as of `rv`.
    pub(super) fn new(identity: Identity, rv: Rv, config: &Config) -> Self {
        Self {
            identity,
            runs: Runs::NONE,
            checkpoint_rv: rv,
            last_rv: rv,
            live_bytes: 0,
            retention: config.retention,
            follows: followed_by(config),
            shares: false,
            retained: VecDeque::new(),
            retained_bytes: 0,
            events: 0,
        }
    }

    /// The log of a loaded queue.
    pub(super) fn of(loaded: &Loaded) -> Self {
        let mut log = Self::new(loaded.identity.clone(), loaded.checkpoint_rv, loaded.queue.config());
        log.last_rv = loaded.last_rv;
        log.runs = loaded.runs;
        log.events = loaded.queue.lives().events_between(loaded.checkpoint_rv, loaded.last_rv);
        log.live_bytes = loaded.queue.live_bytes();
        log.retained = loaded.retained.iter().copied().collect();
        log.retained_bytes = log.retained.iter().map(|segment| segment.bytes).sum();
        log
    }

    /// Takes over new settings.
    pub(super) fn configure(&mut self, config: &Config) {
        self.retention = config.retention;
        self.follows = followed_by(config);
    }

    /// Approximate number of bytes of events that a replay would apply.
    pub(super) fn lag_bytes(&self) -> u64 {
        let behind = self.retained.iter().filter(|segment| segment.last_rv > self.checkpoint_rv);
        behind.map(|segment| segment.bytes).sum()
    }

    /// Number of events that a replay would apply. Within a life, this is the difference of two event numbers. If the
    /// checkpoint belongs to an earlier life, a replay would apply all events that this log has counted.
    pub(super) fn lag(&self) -> u64 {
        self.last_rv.since(self.checkpoint_rv).min(self.events)
    }

    /// Adds a committed row with this number of events.
    pub(super) fn add(&mut self, row: Segment, events: u64, segment_bytes: u64) {
        self.last_rv = row.last_rv;
        self.events += events;
        self.retained_bytes += row.bytes;
        match self.retained.back_mut() {
            Some(last) if last.bytes + row.bytes <= segment_bytes => {
                *last = Segment { bytes: last.bytes + row.bytes, ..row };
            }
            _ => self.retained.push_back(row),
        }
    }

    /// The last event of the oldest segments that neither a replay nor the retention needs. All of them together have at
    /// most [`TRIMMED_BYTES_MAX`], or there is only one.
    pub(super) fn trimmable(&self, now: Time) -> Option<Rv> {
        let limit = self.retention.bytes.unwrap_or(RETAINED_BYTES_MIN.max(self.live_bytes));
        let mut bytes = 0;
        let oldest = self.retained.iter().take_while(|segment| {
            let is_first = bytes == 0;
            bytes += segment.bytes;
            let too_much = self.retained_bytes - bytes >= limit;
            let too_old = self.retention.age.is_some_and(|age| segment.at.plus(age.get()) < now);
            let is_needed = segment.last_rv > self.checkpoint_rv || !(too_much || too_old);
            !is_needed && (is_first || bytes <= TRIMMED_BYTES_MAX)
        });
        oldest.last().map(|segment| segment.last_rv)
    }

    /// Removes the oldest segments, up to the one that ends with `last_rv`.
    pub(super) fn trimmed(&mut self, last_rv: Rv) {
        while let Some(oldest) = self.retained.pop_front_if(|oldest| oldest.last_rv <= last_rv) {
            self.retained_bytes -= oldest.bytes;
        }
    }
}

fn followed_by(config: &Config) -> Option<Arc<str>> {
    config.follow.as_ref().map(|follow| follow.queue.clone())
}

/// Determines which of all queues share large objects.
pub(super) fn find_sharing<'a>(logs: impl Iterator<Item = &'a mut QueueLog>) {
    let mut logs: Vec<_> = logs.collect();
    let followed: HashSet<Arc<str>> = logs.iter().filter_map(|log| log.follows.clone()).collect();
    for log in &mut logs {
        log.shares = log.follows.is_some() || followed.contains(log.identity.name.as_str());
    }
}
