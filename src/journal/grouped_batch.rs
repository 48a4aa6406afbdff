//! A batch taken apart: what is written for it, and what the logs say once it is.

use std::collections::{BTreeMap, HashMap};

use super::commit_queue::Op;
use super::queue_log::QueueLog;
use super::record;
use super::store::{JournalRow, QueueId, QueueRow, Segment, Writes};
use crate::engine::config::Retention;
use crate::engine::delta::Rv;
use crate::engine::event::{Event, EventKind};

/// What the writer knows, by queue.
pub(super) type QueueLogs = BTreeMap<QueueId, QueueLog>;

/// The ops of a batch, by kind.
#[derive(Debug, Default)]
pub(super) struct GroupedBatch {
    /// Rows of queues that came into being or are gone, in that order.
    queues: Vec<QueueRow>,
    opened: Vec<QueueLog>,
    /// For each queue, the last event before and all its events: one row of the journal, if it is not
    /// too long.
    appended: Vec<(QueueId, Rv, Vec<Event>)>,
    /// Invariant: where each queue is in `appended`.
    places: HashMap<QueueId, usize>,
    retentions: Vec<(QueueId, Retention)>,
    deleted: Vec<QueueId>,
    pub(super) released: Vec<QueueId>,
    rows: Vec<(QueueId, Segment)>,
}

impl GroupedBatch {
    pub(super) fn of(ops: Vec<Op>) -> Self {
        let mut work = Self::default();
        for op in ops {
            work.take(op);
        }
        work
    }

    /// Number of events.
    pub(super) fn events(&self) -> usize {
        self.appended.iter().map(|(.., events)| events.len()).sum()
    }

    fn take(&mut self, op: Op) {
        match op {
            Op::Create { log, state } => {
                self.queues.push(record::queue_row(&log.identity, &state));
                self.opened.push(*log);
            }
            Op::Open(log) => self.opened.push(*log),
            Op::Append { queue, prev_rv, events } => {
                let settings = events.iter().rev().find_map(|event| match &event.kind {
                    EventKind::Configured { config } => Some(config.retention),
                    _ => None,
                });
                self.retentions.extend(settings.map(|retention| (queue, retention)));
                let before = self.places.get(&queue).and_then(|place| self.appended.get_mut(*place));
                if let Some((.., before)) = before {
                    before.extend(events);
                } else {
                    self.places.insert(queue, self.appended.len());
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

    /// What is to be written; `next_row` numbers the rows of the journal and moves on.
    pub(super) fn writes(&mut self, next_row: &mut u64) -> Writes {
        let mut writes = Writes { queues: std::mem::take(&mut self.queues), ..Writes::default() };
        for (queue, prev_rv, events) in &self.appended {
            let rows = record::journal_rows(*queue, *next_row, *prev_rv, events);
            *next_row += rows.len() as u64;
            self.rows.extend(rows.iter().map(|row| (*queue, stretch(row))));
            writes.journal.extend(rows);
        }
        writes
    }

    /// Bytes of events that were replayed for queues that are opened: the journal has grown by them.
    pub(super) fn replayed_bytes(&self) -> u64 {
        self.opened.iter().map(QueueLog::lag_bytes).sum()
    }

    /// Enters it all in the logs, once it is durable. Tells which queues are gone.
    pub(super) fn enter(self, logs: &mut QueueLogs, segment_bytes: u64) -> Vec<QueueId> {
        logs.extend(self.opened.into_iter().map(|log| (log.identity.id, log)));
        for (queue, retention) in self.retentions {
            logs.entry(queue).and_modify(|log| log.retention = retention);
        }
        for (queue, row) in self.rows {
            logs.entry(queue).and_modify(|log| log.add(row, segment_bytes));
        }
        for queue in self.deleted.iter().chain(&self.released) {
            logs.remove(queue);
        }
        self.deleted
    }
}

fn stretch(row: &JournalRow) -> Segment {
    Segment { last_rv: row.last_rv, at: row.at, bytes: row.events.len() as u64 }
}
