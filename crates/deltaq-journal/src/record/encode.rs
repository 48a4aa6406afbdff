//! Converts engine values to rows.

use deltaq_engine::event::Event;
use deltaq_engine::id::{Rv, Slot};
use deltaq_engine::key::Key;
use deltaq_engine::snapshot::{KeyState, QueueState, RemovedKey};

use super::content::{FORMAT, Identity};
use super::json::Json;
use super::{checksum, event, key};
use crate::store::{Epoch, JournalRow, KeyRow, QueueId, QueueRow, TombstoneRow};

/// Maximum bytes of events in one journal row, unless a single event is larger.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// The rows for the next events of a queue, each with at most [`ROW_BYTES_MAX`] bytes of events. `prev_rv` is the
/// queue's last event before `events`.
#[must_use]
pub fn journal_rows(queue: QueueId, epoch: Epoch, prev_rv: Rv, events: &[Event]) -> Vec<JournalRow> {
    split(queue, epoch, prev_rv, events, ROW_BYTES_MAX)
}

/// The row of a key at its slot in the queue's table.
#[must_use]
pub fn key_row(queue: QueueId, slot: Slot, state: &KeyState) -> KeyRow {
    let known = state.known.as_ref();
    let mut row = KeyRow {
        queue,
        slot: slot.get(),
        key: state.key.as_str().into(),
        rv: state.rv,
        known_rv: known.map(|known| known.rv),
        known_object: known.map(|known| known.object.as_str().into()),
        owner: known.and_then(|known| known.owner.as_ref()).map(|owner| owner.shared().clone()),
        item: key::encode(state),
        format: FORMAT,
        checksum: 0,
    };
    row.checksum = checksum::of_key_row(&row);
    row
}

/// The row that records that a key was removed.
#[must_use]
pub fn tombstone(queue: QueueId, removed: &RemovedKey) -> TombstoneRow {
    let key = removed.key.as_str().into();
    let mut row = TombstoneRow { queue, slot: removed.slot.get(), key, rv: removed.rv, checksum: 0 };
    row.checksum = checksum::of_tombstone(&row);
    row
}

/// The row of a queue.
#[must_use]
pub fn queue_row(identity: &Identity, state: &QueueState) -> QueueRow {
    let mut json = Json::default();
    json.push_value(state);
    any_queue_row(identity, state.rv, json.into_string(), false)
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
    any_queue_row(identity, last_rv, "{}".to_owned(), true)
}

fn any_queue_row(identity: &Identity, rv: Rv, state: String, deleted: bool) -> QueueRow {
    let mut row = QueueRow {
        id: identity.id,
        version: identity.version,
        name: identity.name.as_str().into(),
        incarnation: identity.incarnation.0,
        created_at: identity.created_at,
        deleted,
        rv,
        state,
        format: FORMAT,
        checksum: 0,
    };
    row.checksum = checksum::of_queue_row(&row);
    row
}

pub(super) fn split(
    queue: QueueId,
    epoch: Epoch,
    prev_rv: Rv,
    events: &[Event],
    bytes_max: usize,
) -> Vec<JournalRow> {
    let mut rows = Vec::new();
    let bytes: usize = events.iter().map(event::bytes_about).sum();
    let mut json = Json::with_capacity(bytes.min(bytes_max));
    let (mut first, mut prev_rv) = (0, prev_rv);
    let mut close = |json: Json, part: &[Event]| {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { return };
        rows.push(journal_row(queue, epoch, prev_rv, first.rv, last, json));
        prev_rv = last.rv;
    };
    for (index, event) in events.iter().enumerate() {
        let before = json.len();
        json.push(if index == first { "[" } else { "," });
        event::encode(event, &mut json);
        if index > first && json.len() + "]".len() > bytes_max {
            // The event that exceeds the limit becomes the first event of the next row.
            let next = json.split_off_array(before);
            close(std::mem::replace(&mut json, next), events.get(first..index).unwrap_or_default());
            first = index;
        }
    }
    close(json, events.get(first..).unwrap_or_default());
    rows
}

fn journal_row(
    queue: QueueId,
    epoch: Epoch,
    prev_rv: Rv,
    first_rv: Rv,
    last: &Event,
    mut json: Json,
) -> JournalRow {
    json.push("]");
    let events = json.into_string();
    let (last_rv, at) = (last.rv, last.at);
    let mut row =
        JournalRow { queue, epoch, prev_rv, first_rv, last_rv, at, format: FORMAT, events, checksum: 0 };
    row.checksum = checksum::of_journal_row(&row);
    row
}
