//! Converts PostgreSQL's rows into the store's rows. Columns are read by their position in the statement.

use std::sync::Arc;

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use sqlx::postgres::{PgRow, Postgres as Database};
use sqlx::{Decode, Row};

use crate::compression::expand_to;
use crate::store::{
    Epoch, JournalRow, Position, QueueId, QueueRow, RunRow, Segment, SeriesRow, SharedText,
    parse_texts_column,
};
use crate::text_id::{NoTextId, TextId};

/// A row, or an error for a value that does not fit its column.
type Read<T> = Result<T, sqlx::Error>;

fn column<'r, T: Decode<'r, Database>>(row: &'r PgRow, index: usize) -> Read<T> {
    row.try_get_unchecked(index)
}

/// An unsigned number that was stored bit for bit.
pub(super) fn number(row: &PgRow, index: usize) -> Read<u64> {
    column(row, index).map(i64::cast_unsigned)
}

/// Like [`number`], for a column that may be null.
pub(super) fn optional_number(row: &PgRow, index: usize) -> Read<Option<u64>> {
    Ok(column::<Option<i64>>(row, index)?.map(i64::cast_unsigned))
}

pub(super) fn rv(row: &PgRow, index: usize) -> Read<Rv> {
    number(row, index).map(Rv::new)
}

/// A number below 2^32 in a column of 64 bits.
fn short(row: &PgRow, index: usize) -> Read<u32> {
    number(row, index)?.try_into().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

pub(super) fn series_row(row: &PgRow) -> Read<SeriesRow> {
    Ok(SeriesRow { hour: short(row, 0)?, queue: queue(row, 1)?, content: column(row, 2)? })
}

pub(super) fn queue(row: &PgRow, index: usize) -> Read<QueueId> {
    short(row, index).map(QueueId)
}

/// A number of 32 bits that was stored bit for bit.
fn bits(row: &PgRow, index: usize) -> Read<u32> {
    column(row, index).map(i32::cast_unsigned)
}

fn text(bytes: &[u8]) -> Read<&str> {
    std::str::from_utf8(bytes).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

fn shared(row: &PgRow, index: usize) -> Read<Arc<str>> {
    text(column(row, index)?).map(Arc::from)
}

fn owned(row: &PgRow, index: usize) -> Read<String> {
    text(column(row, index)?).map(str::to_owned)
}

/// The list of texts to which a row refers.
fn texts(row: &PgRow, index: usize) -> Read<Vec<SharedText>> {
    parse_texts_column(column(row, index)?).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn text_id(row: &PgRow) -> Read<TextId> {
    column::<&str>(row, 0)?.parse().map_err(|error: NoTextId| sqlx::Error::Decode(error.into()))
}

/// A text.
pub(super) fn shared_text(row: &PgRow) -> Read<SharedText> {
    Ok(SharedText { id: text_id(row)?, text: shared(row, 1)? })
}

/// A text, or an empty one if its bytes are no text.
pub(super) fn any_text(row: &PgRow) -> Read<SharedText> {
    Ok(SharedText { id: text_id(row)?, text: shared(row, 1).unwrap_or_default() })
}

/// The id of a text and its bytes.
pub(super) fn text_size(row: &PgRow) -> Read<(TextId, u64)> {
    Ok((text_id(row)?, number(row, 1)?))
}

/// The position of a row, and the texts to which it refers.
pub(super) fn reference(row: &PgRow) -> Read<(Position, Vec<SharedText>)> {
    Ok(((column(row, 0)?, column(row, 1)?), texts(row, 2)?))
}

fn time(row: &PgRow, index: usize) -> Read<Time> {
    number(row, index).map(Time::from_micros)
}

pub(super) fn journal_row(row: &PgRow) -> Read<JournalRow> {
    Ok(JournalRow {
        queue: queue(row, 0)?,
        epoch: Epoch(number(row, 1)?),
        prev_rv: rv(row, 2)?,
        first_rv: rv(row, 3)?,
        last_rv: rv(row, 4)?,
        at: time(row, 5)?,
        format: bits(row, 6)?,
        checksum: bits(row, 7)?,
        texts: texts(row, 8)?,
        text_bytes: number(row, 9)?,
        events: owned(row, 10)?,
    })
}

pub(super) fn run_row(row: &PgRow) -> Read<RunRow> {
    let named = |error| {
        let place = number(row, 1).map_or_else(|_| "a run".to_owned(), |number| format!("run {number}"));
        sqlx::Error::Decode(format!("{place}: {error}").into())
    };
    Ok(RunRow {
        queue: queue(row, 0)?,
        number: number(row, 1)?,
        format: bits(row, 2)?,
        checksum: bits(row, 3)?,
        texts: texts(row, 4)?,
        entries: expand_to(column(row, 6)?, number(row, 5)?).map_err(named)?,
    })
}

pub(super) fn queue_row(row: &PgRow) -> Read<QueueRow> {
    Ok(QueueRow {
        id: queue(row, 0)?,
        version: number(row, 1)?,
        name: shared(row, 2)?,
        incarnation: short(row, 3)?,
        created_at: time(row, 4)?,
        deleted: column(row, 5)?,
        rv: rv(row, 6)?,
        first_run: number(row, 7)?,
        next_run: number(row, 8)?,
        format: bits(row, 9)?,
        checksum: bits(row, 10)?,
        state: owned(row, 11)?,
    })
}

/// The size of one row.
pub(super) fn segment(row: &PgRow) -> Read<Segment> {
    Ok(Segment { last_rv: rv(row, 0)?, at: time(row, 1)?, bytes: number(row, 2)? })
}

/// The event before a row, and the bytes of its events.
pub(super) fn extent(row: &PgRow) -> Read<(Rv, u64)> {
    Ok((rv(row, 0)?, number(row, 1)?))
}
