//! Converts rows to engine values. The checksum is verified first, then the format; then the text is read.

use deltaq_engine::event::{Event, EventKind};
use deltaq_engine::snapshot::QueueState;
use deltaq_types::name::{Incarnation, Name};

use super::content::{Error, FORMAT, Identity, LostObject, PastEvents, QueueRecord};
use super::names::Names;
use super::run::{self, RunEntry};
use super::shared::lost;
use super::{checksum, event};
use crate::store::{JournalRow, QueueRow, RunRow};

/// Reads rows. A recovery uses one decoder for all rows, because the decoder holds the names that many rows share.
#[derive(Debug, Default)]
pub struct Decoder {
    names: Names,
}

impl Decoder {
    /// A decoder without names.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The events of a row, oldest first: at least one, with numbers above `prev_rv` that run from `first_rv` to
    /// `last_rv` without a gap (except before a `Recovered`).
    ///
    /// # Errors
    /// [`Error`] names the row.
    pub fn events(&mut self, row: &JournalRow) -> Result<Vec<Event>, Error> {
        let PastEvents { events, lost } = self.past_events(row)?;
        match lost.first() {
            None => Ok(events),
            Some(lost) => Err(lost_object(row, lost)),
        }
    }

    /// Like [`events`](Self::events), for a reader of the past: a lost object loses nothing else of its row.
    ///
    /// # Errors
    /// [`Error`] names the row.
    pub fn past_events(&mut self, row: &JournalRow) -> Result<PastEvents, Error> {
        self.check_events(row)?;
        let past = event::decode(&row.events, &row.texts, &mut self.names).and_then(|past| {
            check_order(row, &past.events)?;
            Ok(past)
        });
        past.map_err(|reason| Error::Unreadable { row: journal_row_name(row), reason })
    }

    /// Verifies the checksum and the format of a row without reading its events.
    ///
    /// # Errors
    /// [`Error`] names the row.
    pub fn check_events(&self, row: &JournalRow) -> Result<(), Error> {
        check(row.checksum, checksum::of_journal_row(row), row.format, || journal_row_name(row))
    }

    /// The entries of a run, oldest first: at least one.
    ///
    /// # Errors
    /// [`Error`] names the row.
    pub fn run(&mut self, row: &RunRow) -> Result<Vec<RunEntry>, Error> {
        let named = || format!("run {} (queue {})", row.number, row.queue);
        check(row.checksum, checksum::of_run_row(row), row.format, named)?;
        let entries = run::decode(&row.entries, &row.texts, &mut self.names);
        entries.map_err(|reason| Error::Unreadable { row: named(), reason })
    }

    /// The queue of a row, with its state unless the queue was deleted.
    ///
    /// # Errors
    /// [`Error`] names the row.
    pub fn queue(&mut self, row: &QueueRow) -> Result<QueueRecord, Error> {
        let named = || format!("queue row {} (name {:?})", row.id, row.name);
        check(row.checksum, checksum::of_queue_row(row), row.format, named)?;
        let unreadable = |reason| Error::Unreadable { row: named(), reason };
        let identity = Identity {
            id: row.id,
            version: row.version,
            name: Name::new(&row.name).map_err(|error| unreadable(error.to_string()))?,
            incarnation: Incarnation(row.incarnation),
            created_at: row.created_at,
        };
        let state = if row.deleted { None } else { Some(self.queue_state(row).map_err(unreadable)?) };
        Ok(QueueRecord { identity, rv: row.rv, state })
    }

    fn queue_state(&mut self, row: &QueueRow) -> Result<QueueState, String> {
        let mut state: QueueState =
            serde_json::from_str(&row.state).map_err(|error| format!("state: {error}"))?;
        state.rv = row.rv;
        for record in &mut state.sources {
            self.names.share(record.source.as_mut());
        }
        let of_sources = state.sources.iter_mut().filter_map(|record| record.history.last_replace.as_mut());
        for replace in of_sources.chain(&mut state.last_replace) {
            self.names.share_some(replace.source.as_mut().map(AsMut::as_mut));
        }
        Ok(state)
    }
}

/// The error of a row whose event has lost its object.
#[must_use]
pub fn lost_object(row: &JournalRow, LostObject { rv, text }: &LostObject) -> Error {
    let reason = format!("event {rv}: {}", lost(*text));
    Error::Unreadable { row: journal_row_name(row), reason }
}

fn journal_row_name(row: &JournalRow) -> String {
    format!("journal row of queue {} (events {} to {})", row.queue, row.first_rv, row.last_rv)
}

fn check(found: u32, computed: u32, format: u32, name: impl Fn() -> String) -> Result<(), Error> {
    if found != computed {
        return Err(Error::Damaged { row: name(), found, computed });
    }
    match format {
        FORMAT => Ok(()),
        0 => Err(Error::Unreadable { row: name(), reason: "there is no format 0".to_owned() }),
        newer => Err(Error::Newer { row: name(), format: newer }),
    }
}

/// Checks the numbers of the events. Only `Recovered` skips numbers; any other gap means lost events.
fn check_order(row: &JournalRow, events: &[Event]) -> Result<(), String> {
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return Err("it holds no events".to_owned());
    };
    if (first.rv, last.rv) != (row.first_rv, row.last_rv) {
        return Err(format!("it holds events {} to {}", first.rv, last.rv));
    }
    if first.rv <= row.prev_rv {
        return Err(format!("event {} follows event {}", first.rv, row.prev_rv));
    }
    for (before, event) in events.iter().zip(events.iter().skip(1)) {
        let skips = matches!(event.kind, EventKind::Recovered { .. }) && event.rv > before.rv;
        if !event.rv.follows(before.rv) && !skips {
            return Err(format!("event {} follows event {}", event.rv, before.rv));
        }
    }
    if last.at != row.at {
        return Err(format!(
            "its last event is of the time {}, not {}",
            last.at.as_micros(),
            row.at.as_micros()
        ));
    }
    Ok(())
}
