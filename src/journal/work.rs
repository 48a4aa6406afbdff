//! A batch taken apart: what is written for it, and what the books say once it is.

use std::collections::{BTreeMap, HashMap};

use super::books::Book;
use super::gather::Op;
use super::record;
use super::store::{JournalRow, QueueId, QueueRow, Stretch, Writes};
use crate::engine::config::Retention;
use crate::engine::delta::Rv;
use crate::engine::event::{Event, EventKind};

/// What the writer knows, by queue.
pub(super) type Books = BTreeMap<QueueId, Book>;

/// The ops of a batch, by kind.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Rows of queues that came into being or are gone, in that order.
    queues: Vec<QueueRow>,
    opened: Vec<Book>,
    /// For each queue, the last event before and all its events: one row of the journal, if it is not
    /// too long.
    appended: Vec<(QueueId, Rv, Vec<Event>)>,
    /// Invariant: where each queue is in `appended`.
    places: HashMap<QueueId, usize>,
    retentions: Vec<(QueueId, Retention)>,
    deleted: Vec<QueueId>,
    pub(super) released: Vec<QueueId>,
    rows: Vec<(QueueId, Stretch)>,
}

impl Work {
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
            Op::Create { book, state } => {
                self.queues.push(record::queue_row(&book.identity, &state));
                self.opened.push(*book);
            }
            Op::Open(book) => self.opened.push(*book),
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
        self.opened.iter().map(Book::lag_bytes).sum()
    }

    /// Enters it all in the books, once it is durable. Tells which queues are gone.
    pub(super) fn enter(self, books: &mut Books, stretch_bytes: u64) -> Vec<QueueId> {
        books.extend(self.opened.into_iter().map(|book| (book.identity.id, book)));
        for (queue, retention) in self.retentions {
            books.entry(queue).and_modify(|book| book.retention = retention);
        }
        for (queue, row) in self.rows {
            books.entry(queue).and_modify(|book| book.add(row, stretch_bytes));
        }
        for queue in self.deleted.iter().chain(&self.released) {
            books.remove(queue);
        }
        self.deleted
    }
}

fn stretch(row: &JournalRow) -> Stretch {
    Stretch { last_rv: row.last_rv, at: row.at, bytes: row.events.len() as u64 }
}
