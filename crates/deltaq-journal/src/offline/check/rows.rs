//! Checks every row on its own: its columns, checksum, format, text and references.

use deltaq_engine::object;
use deltaq_types::name::Name;

use super::{Examiner, Known, Severity};
use crate::record::RunEntry;
use crate::snapshot::{Found, Placed};
use crate::store::{Error, QueueId, QueueRow, RunRow};

impl Examiner<'_> {
    pub(super) async fn check_rows(&mut self) {
        let snapshot = self.snapshot;
        let read = snapshot.texts(&mut |found| self.text(found)).await;
        self.ended("texts", &read);
        let read = snapshot.queues(&mut |found| self.queue(found)).await;
        self.ended("queues", &read);
        let read = snapshot.journal(&mut |found| self.journal_row(found)).await;
        self.ended("journal", &read);
        let read = snapshot.runs(&mut |found| self.run(found)).await;
        self.ended("runs", &read);
        if read.is_ok() {
            self.report_missing_runs();
        }
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
            runs: row.first_run..row.next_run,
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

    fn run(&mut self, found: Found<RunRow>) {
        let place = self.snapshot.place("runs", found.id);
        let queue = found.queue.unwrap_or(QueueId(0));
        let is_obsolete = |known: &Known, number| known.is_deleted || number < known.runs.start;
        let number = found.row.as_ref().map_or(u64::MAX, |row| row.number);
        let known = self.queues.get(&queue);
        let severity = match known {
            Some(known) if is_obsolete(known, number) => Severity::History,
            _ => Severity::State,
        };
        let is_known = known.is_some();
        if let Some(known) = self.queues.get_mut(&queue) {
            // An unreadable run is reported on its own.
            known.found_runs += u64::from(found.row.is_err() || known.runs.contains(&number));
        }
        let entries = found.row.and_then(|mut row| {
            self.replace_texts((queue, &place, severity), &mut row.texts)?;
            self.decoder.run(&row).map_err(|error| error.to_string())
        });
        let entries = match entries {
            Ok(entries) => entries,
            Err(what) => return self.damage(Some(queue), severity, &format!("{place}: {what}")),
        };
        self.orphan(queue, &place, is_known);
        for entry in entries {
            let rv = match entry {
                RunEntry::Removed(removed) => removed.rv,
                RunEntry::Key(_, state) => {
                    self.report.entries += 1;
                    let checked = state.known.as_ref().map(|known| object::check(known.object.as_str()));
                    if let Some(Err(error)) = checked {
                        let what = format!("{place}: known object of key {:?}: {error}", state.key.as_str());
                        self.damage(Some(queue), severity, &what);
                    }
                    state.rv
                }
            };
            self.queues.entry(queue).and_modify(|known| known.newest_rv = known.newest_rv.max(rv));
        }
    }

    /// The runs of a checkpoint are numbered without gaps.
    fn report_missing_runs(&mut self) {
        let missing = self.queues.iter().filter(|(_, known)| !known.is_deleted).map(|(queue, known)| {
            let expected = known.runs.end.saturating_sub(known.runs.start);
            (*queue, expected.saturating_sub(known.found_runs))
        });
        for (queue, missing) in missing.filter(|(_, missing)| *missing > 0).collect::<Vec<_>>() {
            self.damage(Some(queue), Severity::State, &format!("table runs: {missing} runs are missing"));
        }
    }

    fn orphan(&mut self, queue: QueueId, place: &str, is_known: bool) {
        if !is_known {
            let what = format!("{place}: it belongs to queue {queue}, which table queues lacks");
            self.damage(None, Severity::State, &what);
        }
    }
}
