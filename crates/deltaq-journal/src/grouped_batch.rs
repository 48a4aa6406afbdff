//! A batch grouped by kind and queue: the rows to write, and the data to record once they are durable.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use deltaq_engine::config::Config;
use deltaq_engine::event::{Event, EventKind};
use deltaq_engine::id::Rv;

use super::queue_log::QueueLog;
use super::record::{self, SHARED_BYTES_MIN};
use super::store::{Epoch, JournalRow, QueueId, QueueRow, Segment, Writes};
use super::turns::Op;

/// The writer's log of each queue.
pub(super) type QueueLogs = BTreeMap<QueueId, QueueLog>;

/// The operations of a batch, grouped.
#[derive(Debug, Default)]
pub(super) struct GroupedBatch {
    /// Rows of created and deleted queues, in the order of their operations.
    queues: Vec<QueueRow>,
    opened: Vec<QueueLog>,
    /// For each queue, the event before the batch and all events in the batch. They become one journal row,
    /// unless the row would be too long.
    appended: Vec<(QueueId, Rv, Vec<Event>)>,
    /// Invariant: the index of each queue in `appended`.
    index: HashMap<QueueId, usize>,
    settings: Vec<(QueueId, Arc<Config>)>,
    deleted: Vec<QueueId>,
    /// Queues that are about to be loaded again.
    pub(super) released: Vec<QueueId>,
    /// The size of each journal row, and the number of its events.
    rows: Vec<(QueueId, Segment, u64)>,
}

impl GroupedBatch {
    pub(super) fn of(ops: Vec<Op>) -> Self {
        let mut batch = Self::default();
        for op in ops {
            batch.push(op);
        }
        batch
    }

    /// Number of events.
    pub(super) fn events(&self) -> usize {
        self.appended.iter().map(|(.., events)| events.len()).sum()
    }

    fn push(&mut self, op: Op) {
        match op {
            Op::Create { log, state } => {
                self.queues.push(record::queue_row(&log.identity, &state, log.runs.numbers()));
                self.opened.push(*log);
            }
            Op::Open(log) => self.opened.push(*log),
            Op::Append { queue, prev_rv, events } => {
                let settings = events.iter().rev().find_map(|event| match &event.kind {
                    EventKind::Configured { config, .. } => Some(config.clone()),
                    _ => None,
                });
                self.settings.extend(settings.map(|config| (queue, config)));
                let earlier = self.index.get(&queue).and_then(|index| self.appended.get_mut(*index));
                if let Some((.., earlier)) = earlier {
                    earlier.extend(events);
                } else {
                    self.index.insert(queue, self.appended.len());
                    self.appended.push((queue, prev_rv, events));
                }
            }
            Op::Release(queue) => self.released.push(queue),
            Op::FoundDeleted(queues) => self.deleted.extend(queues),
            Op::Delete { identity, last_rv } => {
                self.queues.push(record::deleted_queue_row(&identity, last_rv));
                self.deleted.push(identity.id);
            }
        }
    }

    /// Whether any event has a large object.
    pub(super) fn has_large_objects(&self) -> bool {
        let events = self.appended.iter().flat_map(|(.., events)| events);
        events.filter_map(|event| event.kind.object()).any(|object| object.bytes() >= SHARED_BYTES_MIN)
    }

    /// Whether the batch may change which queues follow each other.
    pub(super) fn changes_followers(&self) -> bool {
        let is_stable = self.opened.is_empty() && self.settings.is_empty() && self.deleted.is_empty();
        !(is_stable && self.released.is_empty())
    }

    /// The rows to write in `epoch`.
    pub(super) fn writes(&mut self, epoch: Epoch, logs: &QueueLogs) -> Writes {
        let mut writes = Writes { queues: std::mem::take(&mut self.queues), ..Writes::default() };
        for (queue, prev_rv, events) in &self.appended {
            let shares = logs.get(queue).is_some_and(|log| log.shares);
            let rows = record::journal_rows(*queue, epoch, *prev_rv, events, shares);
            self.rows.extend(rows.iter().map(|row| (*queue, segment(row), events_of(row))));
            writes.journal.extend(rows);
        }
        writes
    }

    /// Bytes of events that were replayed to load the queues of this batch. The next checkpoint must cover these
    /// events.
    pub(super) fn replayed_bytes(&self) -> u64 {
        self.opened.iter().map(QueueLog::lag_bytes).sum()
    }

    /// Records the batch in the logs, once it is durable. Returns the deleted queues.
    pub(super) fn record(self, logs: &mut QueueLogs, segment_bytes: u64) -> Vec<QueueId> {
        logs.extend(self.opened.into_iter().map(|log| (log.identity.id, log)));
        for (queue, config) in self.settings {
            logs.entry(queue).and_modify(|log| log.configure(&config));
        }
        for (queue, row, events) in self.rows {
            logs.entry(queue).and_modify(|log| log.add(row, events, segment_bytes));
        }
        for queue in self.deleted.iter().chain(&self.released) {
            logs.remove(queue);
        }
        self.deleted
    }
}

/// Number of events in a new row. Only the first event of a row may skip numbers, because a queue begins a new life
/// when it is loaded.
fn events_of(row: &JournalRow) -> u64 {
    row.last_rv.since(row.first_rv) + 1
}

fn segment(row: &JournalRow) -> Segment {
    Segment { last_rv: row.last_rv, at: row.at, bytes: row.bytes() }
}
