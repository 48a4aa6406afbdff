//! Checks every row on its own: its columns, checksum, format, text and references.

use std::collections::HashMap;
use std::sync::Arc;

use deltaq_engine::object;
use deltaq_types::name::Name;

use super::{Examiner, Known, Severity};
use crate::snapshot::{Found, Placed};
use crate::store::{Error, KeyRow, QueueId, QueueRow, TombstoneRow};

/// The keys of the current queue.
#[derive(Default)]
struct Seen {
    queue: Option<QueueId>,
    slots: HashMap<Arc<str>, u32>,
}

impl Examiner<'_> {
    pub(super) async fn check_rows(&mut self) {
        let snapshot = self.snapshot;
        let read = snapshot.texts(&mut |found| self.text(found)).await;
        self.ended("texts", &read);
        let read = snapshot.queues(&mut |found| self.queue(found)).await;
        self.ended("queues", &read);
        let read = snapshot.journal(&mut |found| self.journal_row(found)).await;
        self.ended("journal", &read);
        // Tombstones come before keys, because they decide which key rows count.
        let read = snapshot.tombstones(&mut |found| self.tombstone(found)).await;
        self.ended("tombstones", &read);
        let mut seen = Seen::default();
        let read = snapshot.keys(&mut |found| self.key(found, &mut seen)).await;
        self.ended("keys", &read);
        self.report_texts();
    }

    fn ended(&mut self, table: &str, read: &Result<(), Error>) {
        if let Err(error) = read {
            self.unreadable(&format!("table {table}"), error);
        }
    }

    fn queue(&mut self, found: Found<QueueRow>) {
        let place = self.snapshot.place("queues", found.id);
        let row = match found.row {
            Ok(row) => row,
            Err(what) => {
                // The other rows of this queue then still belong to a known queue.
                if let Some(id) = found.queue {
                    self.queues.insert(id, Known { is_damaged: true, ..Known::default() });
                }
                self.report.queues += 1;
                return self.damage(None, Severity::State, &format!("{place}: {what}"));
            }
        };
        self.report.queues += u64::from(!row.deleted);
        let decoded = self.decoder.queue(&row);
        let is_whole = decoded.is_ok();
        let twin = self
            .queues
            .values()
            .any(|other| !row.deleted && !other.is_deleted && other.name.as_deref() == Some(&*row.name));
        let name = Name::new(&row.name).map_or_else(|_| format!("{:?}", row.name), |name| name.to_string());
        let known = Known {
            name: Some(name.clone()),
            is_deleted: row.deleted,
            checkpoint_rv: row.rv,
            newest_rv: row.rv,
            ..Known::default()
        };
        let id = row.id;
        self.queues.insert(id, known);
        if let Err(error) = decoded {
            self.damage(Some(id), Severity::State, &format!("{place}: {error}"));
        }
        if twin {
            self.damage(
                Some(id),
                Severity::State,
                &format!("{place}: another queue has the name {name} too"),
            );
        }
        if let Some(known) = self.queues.get_mut(&id).filter(|_| is_whole && !row.deleted) {
            known.row = Some(row);
        }
    }

    fn journal_row(&mut self, found: Found<Placed>) {
        self.report.journal_rows += 1;
        let place = self.snapshot.place("journal", found.id);
        let Placed { queue, last_rv, row } = match found.row {
            Ok(placed) => placed,
            Err(what) => {
                self.damaged_rows.insert(found.id);
                return self.damage(None, Severity::State, &format!("{place}: {what}"));
            }
        };
        let known = self.queues.get(&queue);
        let (is_known, is_history) =
            (known.is_some(), known.is_some_and(|known| known.is_deleted || last_rv <= known.checkpoint_rv));
        let severity = if is_history { Severity::History } else { Severity::State };
        let events = row.and_then(|mut row| {
            self.replace_texts((queue, &place, severity), &mut row.texts)?;
            self.decoder.events(&row).map_err(|error| error.to_string())
        });
        match events {
            Ok(events) => {
                self.report.events += events.len() as u64;
                self.orphan(queue, &place, is_known);
            }
            Err(what) => {
                self.damaged_rows.insert(found.id);
                self.damage(Some(queue), severity, &format!("{place}: {what}"));
            }
        }
    }

    fn tombstone(&mut self, found: Found<TombstoneRow>) {
        let place = self.snapshot.place("tombstones", found.id);
        let row = match found.row {
            Ok(row) => row,
            Err(what) => return self.damage(None, Severity::State, &format!("{place}: {what}")),
        };
        let severity = self.severity_of_state(row.queue);
        match self.decoder.tombstone(&row) {
            Ok(gone) => match self.queues.get_mut(&row.queue) {
                Some(known) => {
                    known.newest_rv = known.newest_rv.max(gone.rv);
                    let removed_at = known.removed.entry(gone.key).or_default();
                    *removed_at = gone.rv.max(*removed_at);
                }
                None => self.orphan(row.queue, &place, false),
            },
            Err(error) => self.damage(Some(row.queue), severity, &format!("{place}: {error}")),
        }
    }

    fn key(&mut self, found: Found<KeyRow>, seen: &mut Seen) {
        self.report.keys += 1;
        let place = self.snapshot.place("keys", found.id);
        let queue = found.queue.unwrap_or(QueueId(0));
        let severity = self.severity_of_state(queue);
        let row = found.row.and_then(|mut row| {
            self.replace_texts((queue, &place, severity), &mut row.texts)?;
            Ok(row)
        });
        let row = match row {
            Ok(row) => row,
            Err(what) => return self.damage(Some(queue), severity, &format!("{place}: {what}")),
        };
        let state = match self.decoder.key(&row) {
            Ok((_, state)) => state,
            Err(error) => return self.damage(Some(queue), severity, &format!("{place}: {error}")),
        };
        if let Some(Err(error)) = state.known.as_ref().map(|known| object::check(known.object.as_str())) {
            let what = format!("{place}: key row {} (key {:?}): known_object: {error}", row.slot, row.key);
            self.damage(Some(queue), severity, &what);
        }
        let Some(known) = self.queues.get_mut(&queue) else { return self.orphan(queue, &place, false) };
        known.newest_rv = known.newest_rv.max(state.rv);
        if known.removed.get(&state.key).is_some_and(|removed_at| *removed_at >= state.rv) {
            return;
        }
        if seen.queue != Some(queue) {
            *seen = Seen { queue: Some(queue), slots: HashMap::new() };
        }
        if let Some(slot) = seen.slots.insert(row.key.clone(), row.slot) {
            let what = format!("{place}: key {:?} is in slot {slot} and in slot {}", row.key, row.slot);
            self.damage(Some(queue), severity, &what);
        }
    }

    /// Damage in the rows of a deleted queue is harmless, because these rows are being removed.
    fn severity_of_state(&self, queue: QueueId) -> Severity {
        let is_deleted = self.queues.get(&queue).is_some_and(|known| known.is_deleted);
        if is_deleted { Severity::History } else { Severity::State }
    }

    fn orphan(&mut self, queue: QueueId, place: &str, is_known: bool) {
        if !is_known {
            let what = format!("{place}: it belongs to queue {queue}, which table queues lacks");
            self.damage(None, Severity::State, &what);
        }
    }
}
