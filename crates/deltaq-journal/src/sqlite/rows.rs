//! Converts SQLite's rows into the store's rows. Columns are read by their position in the statement.

use std::sync::Arc;

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, TypeInfo as _, ValueRef as _};

use crate::compression::{expand, expand_to};
use crate::store::{
    Epoch, JournalRow, Position, QueueId, QueueRow, RunRow, Segment, SeriesRow, SharedText,
    parse_texts_column,
};
use crate::text_id::{NoTextId, TextId};

/// A row, or an error for a value whose type does not fit its column.
type Read<T> = Result<T, sqlx::Error>;

/// Reads a column without checking its declared type, because computed columns have none.
fn column<'r, T: Decode<'r, sqlx::Sqlite>>(row: &'r SqliteRow, index: usize) -> Read<T> {
    row.try_get_unchecked(index)
}

/// An unsigned number that was stored bit for bit.
pub(super) fn number(row: &SqliteRow, index: usize) -> Read<u64> {
    column(row, index).map(i64::cast_unsigned)
}

/// Like [`number`], for a column that may be null.
pub(super) fn optional_number(row: &SqliteRow, index: usize) -> Read<Option<u64>> {
    Ok(column::<Option<i64>>(row, index)?.map(i64::cast_unsigned))
}

pub(super) fn rv(row: &SqliteRow, index: usize) -> Read<Rv> {
    number(row, index).map(Rv::new)
}

fn shared(row: &SqliteRow, index: usize) -> Read<Arc<str>> {
    column::<&str>(row, index).map(Arc::from)
}

/// The list of texts to which a row refers.
fn texts(row: &SqliteRow, index: usize) -> Read<Vec<SharedText>> {
    parse_texts_column(column(row, index)?).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn time(row: &SqliteRow, index: usize) -> Read<Time> {
    number(row, index).map(Time::from_micros)
}

pub(super) fn series_row(row: &SqliteRow) -> Read<SeriesRow> {
    let short = |index| -> Read<u32> { column(row, index) };
    Ok(SeriesRow { hour: short(0)?, queue: QueueId(short(1)?), content: column(row, 2)? })
}

pub(super) fn journal_row(row: &SqliteRow) -> Read<JournalRow> {
    // What has to be added to the bytes of `events`, as they are stored, to get those of the row.
    let added: i64 = column(row, 9)?;
    let (events, text_bytes) = if row.try_get_raw(10)?.type_info().name() == "BLOB" {
        let compressed: &[u8] = column(row, 10)?;
        let row_bytes = (compressed.len() as u64).saturating_add_signed(added);
        let events = expand(compressed, row_bytes).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let text_bytes = row_bytes - events.len() as u64;
        (events, text_bytes)
    } else {
        (column(row, 10)?, added.cast_unsigned())
    };
    Ok(JournalRow {
        queue: QueueId(column(row, 0)?),
        epoch: Epoch(number(row, 1)?),
        prev_rv: rv(row, 2)?,
        first_rv: rv(row, 3)?,
        last_rv: rv(row, 4)?,
        at: time(row, 5)?,
        format: column(row, 6)?,
        checksum: column(row, 7)?,
        texts: texts(row, 8)?,
        text_bytes,
        events,
    })
}

pub(super) fn run_row(row: &SqliteRow) -> Read<RunRow> {
    let named = |error| {
        let place = number(row, 1).map_or_else(|_| "a run".to_owned(), |number| format!("run {number}"));
        sqlx::Error::Decode(format!("{place}: {error}").into())
    };
    Ok(RunRow {
        queue: QueueId(column(row, 0)?),
        number: number(row, 1)?,
        format: column(row, 2)?,
        checksum: column(row, 3)?,
        texts: texts(row, 4)?,
        entries: expand_to(column(row, 6)?, number(row, 5)?).map_err(named)?,
    })
}

pub(super) fn queue_row(row: &SqliteRow) -> Read<QueueRow> {
    Ok(QueueRow {
        id: QueueId(column(row, 0)?),
        version: number(row, 1)?,
        name: shared(row, 2)?,
        incarnation: column(row, 3)?,
        created_at: time(row, 4)?,
        deleted: column(row, 5)?,
        rv: rv(row, 6)?,
        first_run: number(row, 7)?,
        next_run: number(row, 8)?,
        format: column(row, 9)?,
        checksum: column(row, 10)?,
        state: column(row, 11)?,
    })
}

/// The size of one row.
pub(super) fn segment(row: &SqliteRow) -> Read<Segment> {
    Ok(Segment { last_rv: rv(row, 0)?, at: time(row, 1)?, bytes: number(row, 2)? })
}

/// The event before a row, and the bytes of its events.
pub(super) fn extent(row: &SqliteRow) -> Read<(Rv, u64)> {
    Ok((rv(row, 0)?, number(row, 1)?))
}

fn text_id(row: &SqliteRow) -> Read<TextId> {
    column::<&str>(row, 0)?.parse().map_err(|error: NoTextId| sqlx::Error::Decode(error.into()))
}

/// A text.
pub(super) fn shared_text(row: &SqliteRow) -> Read<SharedText> {
    Ok(SharedText { id: text_id(row)?, text: shared(row, 1)? })
}

/// A text, or an empty one if its bytes are no text.
pub(super) fn any_text(row: &SqliteRow) -> Read<SharedText> {
    Ok(SharedText { id: text_id(row)?, text: shared(row, 1).unwrap_or_default() })
}

/// The id of a text and its bytes.
pub(super) fn text_size(row: &SqliteRow) -> Read<(TextId, u64)> {
    Ok((text_id(row)?, number(row, 1)?))
}

/// The position of a row, and the texts to which it refers.
pub(super) fn reference(row: &SqliteRow) -> Read<(Position, Vec<SharedText>)> {
    Ok(((column(row, 0)?, column(row, 1)?), texts(row, 2)?))
}
