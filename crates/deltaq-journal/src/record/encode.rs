//! Converts events and the states of queues to rows.

use std::ops::Range;

use deltaq_engine::event::Event;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::snapshot::QueueState;

use super::content::{FORMAT, Identity};
use super::json::Json;
use super::{checksum, event};
use crate::store::{Epoch, JournalRow, QueueId, QueueRow, SharedText};

/// Maximum bytes of events in one journal row, including shared texts, unless a single event is larger.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// The rows for the next events of a queue, each with at most [`ROW_BYTES_MAX`] bytes of events. `prev_rv` is the
/// queue's last event before `events`. `shares` says whether the queue shares its large objects with others.
#[must_use]
pub fn journal_rows(
    queue: QueueId,
    epoch: Epoch,
    prev_rv: Rv,
    events: &[Event],
    shares: bool,
) -> Vec<JournalRow> {
    split((queue, epoch, prev_rv), events, shares, ROW_BYTES_MAX)
}

/// The row of a queue whose checkpoint consists of the runs with these numbers.
#[must_use]
pub fn queue_row(identity: &Identity, state: &QueueState, runs: Range<u64>) -> QueueRow {
    let mut json = Json::default();
    json.push_value(state);
    any_queue_row(identity, state.rv, runs, Some(json.into_string()))
}

/// Whether a row may contain an event of a key. False positives are possible, because the text of the key may be part
/// of an object.
#[must_use]
pub fn may_tell_of(row: &JournalRow, key: &Key) -> bool {
    let key = serde_json::Value::from(key.as_str());
    row.events.contains(&format!("\"key\":{key}"))
}

/// The row as a writer of this epoch would have written it.
#[must_use]
pub fn in_epoch(row: JournalRow, epoch: Epoch) -> JournalRow {
    let mut row = JournalRow { epoch, ..row };
    row.checksum = checksum::of_journal_row(&row);
    row
}

/// The row of a deleted queue; `last_rv` is the queue's last event, and the `version` in `identity` is that of its
/// deletion.
#[must_use]
pub fn deleted_queue_row(identity: &Identity, last_rv: Rv) -> QueueRow {
    any_queue_row(identity, last_rv, 0..0, None)
}

/// The row of a queue with this state, or of a deleted queue.
fn any_queue_row(identity: &Identity, rv: Rv, runs: Range<u64>, state: Option<String>) -> QueueRow {
    let mut row = QueueRow {
        id: identity.id,
        version: identity.version,
        name: identity.name.as_str().into(),
        incarnation: identity.incarnation.0,
        created_at: identity.created_at,
        deleted: state.is_none(),
        rv,
        first_run: runs.start,
        next_run: runs.end,
        state: state.unwrap_or_else(|| "{}".to_owned()),
        format: FORMAT,
        checksum: 0,
    };
    row.checksum = checksum::of_queue_row(&row);
    row
}

/// The rows for events after `prev_rv`, each with at most `bytes_max` bytes.
pub(super) fn split(
    (queue, epoch, mut prev_rv): (QueueId, Epoch, Rv),
    events: &[Event],
    shares: bool,
    bytes_max: usize,
) -> Vec<JournalRow> {
    let mut rows = Vec::new();
    let bytes: usize = events.iter().map(event::bytes_about).sum();
    let mut row = NewRow { json: Json::with_capacity(bytes.min(bytes_max)), ..NewRow::default() };
    let mut first = 0;
    let mut close = |row: NewRow, part: &[Event]| {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { return };
        rows.push(row.close((queue, epoch, prev_rv), first.rv, last));
        prev_rv = last.rv;
    };
    for (index, event) in events.iter().enumerate() {
        let before = row.json.len();
        let mut texts = Vec::new();
        row.json.push(if index == first { "[" } else { "," });
        event::encode(event, &mut row.json, shares.then_some(&mut texts));
        let text_bytes = texts.iter().map(|shared| shared.text.len()).sum::<usize>();
        if index > first && row.json.len() + row.text_bytes + text_bytes + "]".len() > bytes_max {
            // The event that exceeds the limit becomes the first event of the next row.
            let json = row.json.split_off_array(before);
            let next = NewRow { json, ..NewRow::default() };
            close(std::mem::replace(&mut row, next), events.get(first..index).unwrap_or_default());
            first = index;
        }
        row.texts.append(&mut texts);
        row.text_bytes += text_bytes;
    }
    close(row, events.get(first..).unwrap_or_default());
    rows
}

/// A journal row whose array of events is not closed yet.
#[derive(Default)]
struct NewRow {
    json: Json,
    texts: Vec<SharedText>,
    text_bytes: usize,
}

impl NewRow {
    fn close(self, (queue, epoch, prev_rv): (QueueId, Epoch, Rv), first_rv: Rv, last: &Event) -> JournalRow {
        let Self { mut json, texts, text_bytes } = self;
        json.push("]");
        let mut row = JournalRow {
            queue,
            epoch,
            prev_rv,
            first_rv,
            last_rv: last.rv,
            at: last.at,
            format: FORMAT,
            texts,
            text_bytes: text_bytes as u64,
            events: json.into_string(),
            checksum: 0,
        };
        row.checksum = checksum::of_journal_row(&row);
        row
    }
}
