//! Converts changes of rows to events.
//!
//! An update names only what it has changed, so the earlier state of the row completes it: the old row if the log has it, else
//! what was sent before, else the newest object of the queue, else the row itself.

use std::collections::HashMap;

use deltaq_client::Event;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::value::RawValue;

use super::pgoutput::{Cell, Change, Row};
use super::rows::{completed, convert, missing, object, of_identity, patched};
use super::session::Session;
use super::table::{Identity, Table};
use super::transactions::Point;
use crate::json;
use crate::source::{Error, Output};

/// The states that are kept until the queue has stored what was sent, and their size in bytes. This also limits what waits for the queue.
const SENT_MAX: usize = 10_000;
const SENT_BYTES_MAX: usize = 32 << 20;
/// How many changes are completed at a time, with objects of the queue.
const PART: usize = 32;
/// How many objects of the queue are read at the same time.
const LOOKUPS_MAX: usize = 16;

/// The states of rows by their keys; `None` if the row was deleted.
type States = HashMap<String, Option<Box<RawValue>>>;

/// Sends the changes of a table.
pub(super) struct Changes<'c> {
    table: &'c Table,
    output: &'c Output,
    /// What was sent, and may not be in the queue yet.
    sent: States,
    sent_bytes: usize,
    /// The point behind the last change that was sent.
    done: &'c mut Point,
}

/// A change whose rows are JSON.
enum Converted {
    Insert(Box<RawValue>),
    Update { new: Box<RawValue>, cells: Row, old: Option<(Box<RawValue>, bool)> },
    Delete { old: Box<RawValue>, is_whole: bool },
}

impl<'c> Changes<'c> {
    pub(super) fn new(table: &'c Table, output: &'c Output, done: &'c mut Point) -> Self {
        Self { table, output, sent: States::new(), sent_bytes: 0, done }
    }

    /// Sends changes in their order, each with the point behind it. `session` converts them.
    pub(super) async fn send(
        &mut self,
        session: &mut Session,
        changes: Vec<(Change, Point)>,
    ) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let (changes, points): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        let mut changes = self.converted(session, changes).await?.into_iter().zip(points);
        loop {
            let part: Vec<(Converted, Point)> = changes.by_ref().take(PART).collect();
            if part.is_empty() {
                break;
            }
            if self.sent.len() >= SENT_MAX || self.sent_bytes >= SENT_BYTES_MAX {
                self.output.settled().await;
                (self.sent, self.sent_bytes) = (States::new(), 0);
            }
            let mut newest = self.newest(&part).await?;
            for (change, point) in part {
                match change {
                    Converted::Insert(new) => self.apply(new).await?,
                    Converted::Delete { old, is_whole } => self.delete(old, is_whole).await?,
                    Converted::Update { new, cells, old } => {
                        self.update(session, new, &cells, old, &mut newest).await?;
                    }
                }
                *self.done = point;
            }
        }
        // Only now, because the changes need not wait for it.
        session.commit().await
    }

    async fn converted(&self, session: &mut Session, changes: Vec<Change>) -> Result<Vec<Converted>, Error> {
        let complete = |change| match change {
            Change::Update { old: Some(old), new } => {
                let new = completed(new, &old);
                Change::Update { old: Some(old), new }
            }
            change => change,
        };
        let changes: Vec<Change> = changes.into_iter().map(complete).collect();
        let mut all: Vec<&Row> = Vec::new();
        for change in &changes {
            match change {
                Change::Insert(new) => all.push(new),
                Change::Update { old, new } => {
                    all.push(new);
                    all.extend(old.as_ref().map(|old| &old.row));
                }
                Change::Delete(old) => all.push(&old.row),
                Change::Truncate => {}
            }
        }
        let mut all = convert(session, self.table, &all).await?.into_iter();
        let mut next = || all.next().ok_or_else(|| Error::new("the database has converted too few rows"));
        let mut converted = Vec::with_capacity(changes.len());
        for change in changes {
            converted.push(match change {
                Change::Insert(_) => Converted::Insert(next()?),
                Change::Update { old, new: cells } => {
                    let new = next()?;
                    let old = old.map(|old| Ok::<_, Error>((next()?, old.is_whole))).transpose()?;
                    Converted::Update { new, cells, old }
                }
                Change::Delete(old) => Converted::Delete { old: next()?, is_whole: old.is_whole },
                Change::Truncate => continue,
            });
        }
        Ok(converted)
    }

    fn key(&self, object: &RawValue) -> String {
        json::key_text(object, self.output.key())
    }

    /// The newest objects of the queue for the updates whose earlier state is not known.
    async fn newest(&self, changes: &[(Converted, Point)]) -> Result<States, Error> {
        let mut keys = Vec::new();
        for (change, _) in changes {
            if let Converted::Update { new, old, .. } = change {
                match old {
                    Some((_, true)) => {}
                    Some((old, false)) => keys.push(self.key(old)),
                    None => keys.push(self.key(new)),
                }
            }
        }
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| !self.sent.contains_key(key));
        let newest = stream::iter(keys).map(|key| async {
            let found = self.output.newest(&key).await?;
            Ok::<_, Error>((key, found))
        });
        newest.buffered(LOOKUPS_MAX).try_collect().await
    }

    async fn apply(&mut self, new: Box<RawValue>) -> Result<(), Error> {
        self.sent_bytes += new.get().len();
        self.sent.insert(self.key(&new), Some(new.clone()));
        self.output.send(Event::Apply(new)).await
    }

    async fn delete(&mut self, old: Box<RawValue>, is_whole: bool) -> Result<(), Error> {
        let key = self.key(&old);
        self.sent.insert(key.clone(), None);
        // Of a row that is not whole, only the key is known.
        let event = if is_whole { Event::Delete(old) } else { Event::DeleteKey(key) };
        self.output.send(event).await
    }

    async fn update(
        &mut self,
        session: &mut Session,
        new: Box<RawValue>,
        cells: &Row,
        old: Option<(Box<RawValue>, bool)>,
        newest: &mut States,
    ) -> Result<(), Error> {
        let key = self.key(&new);
        let key_before = old.as_ref().map_or_else(|| key.clone(), |(old, _)| self.key(old));
        let before = match &old {
            Some((old, true)) => Some(old.clone()),
            _ => match self.sent.get(&key_before) {
                Some(sent) => sent.clone(),
                None => newest.remove(&key_before).flatten(),
            },
        };
        let is_moved = key_before != key;
        if is_moved && let Some((old, is_whole)) = old {
            self.delete(old, is_whole).await?;
        }
        let lacking = missing(self.table, cells);
        let new = if lacking.is_empty() {
            new
        } else {
            let patched = before.as_ref().and_then(|before| patched(&new, before, &lacking));
            match patched {
                Some(patched) => patched,
                // The row has gone since; its deletion follows.
                None => match self.row(session, cells).await? {
                    Some(row) => row,
                    None => return Ok(()),
                },
            }
        };
        if !is_moved && before.is_some_and(|before| before.get() == new.get()) {
            return Ok(());
        }
        self.apply(new).await
    }

    /// The row as it is now.
    async fn row(&self, session: &mut Session, cells: &Row) -> Result<Option<Box<RawValue>>, Error> {
        let Identity::Columns(identity) = &self.table.identity else { return Ok(None) };
        let mut values = Vec::new();
        for name in identity {
            let at = self.table.columns.iter().position(|column| column.name == *name);
            match at.and_then(|at| cells.get(at)) {
                Some(Cell::Text(value)) => values.push(value.as_str()),
                _ => return Ok(None),
            }
        }
        // A new snapshot.
        session.commit().await?;
        session.begin().await?;
        let found = session.rows(&of_identity(self.table, identity), &values).await?;
        found.first().map(object).transpose()
    }
}
