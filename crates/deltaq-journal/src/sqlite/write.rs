//! Writes rows in one transaction.

use std::sync::Arc;

use futures_util::StreamExt as _;
use sqlx::sqlite::{Sqlite as Database, SqliteArguments, SqliteConnection};
use sqlx::{Either, Executor as _};

use super::connect::{self, FRAME_BYTES, PAGE_BYTES};
use super::error::database;
use super::sql;
use crate::store::{
    Error, JournalRow, KeyRow, QueueId, QueueRow, REMOVED_BYTES_MAX, REMOVED_ROWS_MAX, SharedText,
    TombstoneRow, Writes, bound, texts_column,
};
use crate::text_id::TextId;

/// Bytes of the id of a text in a list of ids.
const TEXT_ID_BYTES: usize = 65;
/// Approximate number of WAL bytes that it takes to remove rows of a queue, or to free the pages of texts.
const REMOVAL_BYTES: u64 = 1 << 20;

type Query = sqlx::query::Query<'static, Database, SqliteArguments>;

/// The id of a slot's row in `keys`, made of the bits of queue and slot. Half of the queues have negative ids, but
/// the ids of each queue increase with its slots.
pub(super) fn key_id(queue: QueueId, slot: u32) -> i64 {
    (u64::from(queue.0) << 32 | u64::from(slot)).cast_signed()
}

/// The slot of a row in `keys`.
pub(super) fn slot_of(id: i64) -> u32 {
    let low = id.cast_unsigned() & u64::from(u32::MAX);
    // The value has 32 bits.
    u32::try_from(low).unwrap_or_default()
}

/// An upper estimate of the bytes that the write adds to the WAL: each row changes its own page, a page of each index that has
/// it, and the pages that its text fills.
pub(super) fn bytes(writes: &Writes) -> u64 {
    let len = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
    let ids = |texts: &[SharedText]| texts.len() * TEXT_ID_BYTES;
    let key = |row: &KeyRow| {
        let columns = len(&row.known_object) + len(&row.owner) + row.item.as_ref().map_or(0, String::len);
        frames(row.key.len() + columns + ids(&row.texts), 1 + u64::from(!row.texts.is_empty()))
    };
    let journal = writes
        .journal
        .iter()
        .map(|row| frames(row.events.len() + ids(&row.texts), 2 + u64::from(!row.texts.is_empty())));
    let queues = writes.queues.iter().map(|row| frames(row.name.len() + row.state.len(), 2));
    // The key row at the slot is removed too.
    let tombstones = writes.tombstones.iter().map(|row| frames(row.key.len(), 3));
    let texts = writes.texts.iter().map(|shared| frames(shared.text.len() + TEXT_ID_BYTES, 2));
    let rows = journal.chain(writes.keys.iter().map(key)).chain(queues).chain(tombstones).chain(texts);
    let removed = (writes.forgotten.len() + writes.unused_texts.len()) as u64;
    let removals = writes.expired_tombstones.len() + writes.trimmed.len() + writes.emptied.len();
    let removals = removals + usize::from(!writes.unused_texts.is_empty());
    rows.sum::<u64>() + removed * frames(0, 2) + removals as u64 * REMOVAL_BYTES
}

/// The bytes of a row's pages in the WAL. Its text fills pages in addition to those that it shares with other rows.
fn frames(text_bytes: usize, pages: u64) -> u64 {
    (pages + (text_bytes as u64).div_ceil(PAGE_BYTES)) * FRAME_BYTES
}

/// Writes all rows or none. The ids of the journal rows begin at `first_row`. After an error, the connection may
/// still be inside the transaction.
pub(super) async fn commit(
    connection: &mut SqliteConnection,
    writes: Writes,
    first_row: u64,
) -> Result<(), Error> {
    let own = writes.epoch;
    let failed = |error| database("write", error);
    let short = writes.journal.len().checked_sub(1).and_then(|index| sql::SHORT.get(index));
    if let Some(text) = short.filter(|_| writes.is_only_journal()) {
        let query = (first_row..).zip(writes.journal).fold(sqlx::query(text.as_str()), bind_journal);
        let inserted = run(connection, query.bind(own.0.cast_signed())).await.map_err(failed)?;
        return if inserted > 0 {
            Ok(())
        } else {
            Err(Error::Fenced { own, found: connect::epoch(connection).await.map_err(failed)? })
        };
    }
    run(connection, sqlx::query(sql::BEGIN)).await.map_err(failed)?;
    let found = connect::epoch(connection).await.map_err(failed)?;
    if found != own {
        return Err(Error::Fenced { own, found });
    }
    write_all(connection, writes, first_row).await.map_err(failed)?;
    run(connection, sqlx::query(sql::COMMIT)).await.map_err(failed)?;
    Ok(())
}

/// Runs one statement and returns the number of changed rows.
///
/// If the connection's thread dies during the statement, no result arrives, and `execute` would return success. So
/// this waits for the first result. Waiting for the end of the stream as well would wake the writer a second time.
async fn run(connection: &mut SqliteConnection, statement: Query) -> Result<u64, sqlx::Error> {
    let mut answers = connection.fetch_many(statement);
    while let Some(answer) = answers.next().await {
        if let Either::Left(done) = answer? {
            return Ok(done.rows_affected());
        }
    }
    Err(sqlx::Error::WorkerCrashed)
}

async fn write_all(
    connection: &mut SqliteConnection,
    writes: Writes,
    first_row: u64,
) -> Result<(), sqlx::Error> {
    let Writes {
        epoch: _,
        texts,
        journal,
        queues,
        tombstones,
        keys,
        expired_tombstones,
        trimmed,
        emptied,
        forgotten,
        unused_texts,
        clean,
    } = writes;
    let next_row = first_row + journal.len() as u64;
    in_chunks(connection, &sql::TEXTS, texts, bind_text).await?;
    in_chunks(connection, &sql::JOURNAL, (first_row..).zip(journal).collect(), bind_journal).await?;
    in_chunks(connection, &sql::QUEUES, queues, bind_queue).await?;
    let gone = tombstones.iter().map(|row| key_id(row.queue, row.slot)).collect();
    in_chunks(connection, &sql::KEYS_GONE, gone, Query::bind).await?;
    in_chunks(connection, &sql::TOMBSTONES, tombstones, bind_tombstone).await?;
    in_chunks(connection, &sql::KEYS, keys, bind_key).await?;
    for (queue, rv) in expired_tombstones {
        let query = sqlx::query(sql::EXPIRED_TOMBSTONES).bind(queue.0).bind(bound(rv)).bind(REMOVED_ROWS_MAX);
        run(connection, query).await?;
    }
    if !(trimmed.is_empty() && emptied.is_empty()) {
        // Without this, the store would lose the largest id when the last row is removed.
        run(connection, sqlx::query(sql::NEXT_ROW).bind(next_row.cast_signed())).await?;
    }
    for (queue, rv) in trimmed {
        let query = sqlx::query(sql::TRIMMED).bind(queue.0).bind(bound(rv));
        let query = query.bind(REMOVED_ROWS_MAX).bind(bound(REMOVED_BYTES_MAX));
        run(connection, query).await?;
    }
    for (queue, rows) in emptied {
        empty(connection, queue, rows.min(REMOVED_ROWS_MAX)).await?;
    }
    if !forgotten.is_empty() {
        run(connection, sqlx::query(sql::KEEP_NUMBERS)).await?;
    }
    in_chunks(connection, &sql::FORGOTTEN, forgotten, |query, queue| query.bind(queue.0)).await?;
    let unused = unused_texts.iter().map(TextId::to_string).collect();
    in_chunks(connection, &sql::UNUSED_TEXTS, unused, Query::bind).await?;
    if let Some(clean) = clean {
        run(connection, sqlx::query(sql::CLEAN).bind(clean)).await?;
    }
    Ok(())
}

/// Whether the queue has rows other than its own row.
pub(super) async fn has_rows(connection: &mut SqliteConnection, queue: QueueId) -> Result<bool, sqlx::Error> {
    let query = sqlx::query_scalar(sql::HAS_ROWS).bind(queue.0);
    query.bind(key_id(queue, 0)).bind(key_id(queue, u32::MAX)).fetch_one(connection).await
}

async fn empty(connection: &mut SqliteConnection, queue: QueueId, rows: u32) -> Result<(), sqlx::Error> {
    let keys = sqlx::query(sql::EMPTIED_KEYS).bind(key_id(queue, 0)).bind(key_id(queue, u32::MAX)).bind(rows);
    run(connection, keys).await?;
    for text in [sql::EMPTIED_TOMBSTONES, sql::EMPTIED_JOURNAL] {
        run(connection, sqlx::query(text).bind(queue.0).bind(rows)).await?;
    }
    Ok(())
}

async fn in_chunks<T>(
    connection: &mut SqliteConnection,
    texts: &'static [String; sql::CHUNKS.len()],
    rows: Vec<T>,
    bind: impl Fn(Query, T) -> Query,
) -> Result<(), sqlx::Error> {
    let mut rows = rows.into_iter();
    for (text, size) in texts.iter().zip(sql::CHUNKS) {
        while rows.len() >= size {
            let query = rows.by_ref().take(size).fold(sqlx::query(text.as_str()), &bind);
            run(connection, query).await?;
        }
    }
    Ok(())
}

fn bind_text(query: Query, SharedText { id, text }: SharedText) -> Query {
    query.bind(id.to_string()).bind(text)
}

fn bind_journal(query: Query, (id, row): (u64, JournalRow)) -> Query {
    let JournalRow {
        queue,
        epoch,
        prev_rv,
        first_rv,
        last_rv,
        at,
        format,
        texts,
        text_bytes,
        events,
        checksum,
    } = row;
    let query = query
        .bind(id.cast_signed())
        .bind(queue.0)
        .bind(epoch.0.cast_signed())
        .bind(prev_rv.get().cast_signed());
    let query = query.bind(first_rv.get().cast_signed()).bind(last_rv.get().cast_signed());
    let query = query.bind(at.as_micros().cast_signed()).bind(format).bind(checksum);
    query.bind(texts_column(&texts)).bind(text_bytes.cast_signed()).bind(events)
}

fn bind_queue(query: Query, row: QueueRow) -> Query {
    let QueueRow { id, version, name, incarnation, created_at, deleted, rv, state, format, checksum } = row;
    let query = query.bind(id.0).bind(version.cast_signed()).bind(name).bind(incarnation);
    let query = query.bind(created_at.as_micros().cast_signed()).bind(deleted).bind(rv.get().cast_signed());
    query.bind(format).bind(checksum).bind(state)
}

fn bind_tombstone(query: Query, row: TombstoneRow) -> Query {
    let TombstoneRow { queue, slot, key, rv, checksum } = row;
    query.bind(queue.0).bind(slot).bind(rv.get().cast_signed()).bind(checksum).bind(key)
}

fn bind_key(query: Query, row: KeyRow) -> Query {
    let KeyRow { queue, slot, key, rv, known_rv, known_object, owner, texts, item, format, checksum } = row;
    let query = query.bind(key_id(queue, slot)).bind(rv.get().cast_signed());
    let query = query.bind(known_rv.map(|rv| rv.get().cast_signed())).bind(format).bind(checksum);
    query.bind(key).bind(owner).bind(texts_column(&texts)).bind(item).bind(known_object)
}

#[cfg(test)]
mod tests {
    use deltaq_engine::id::Rv;
    use sqlx::Connection as _;

    use super::*;
    use crate::sqlite::tests::{journal_row, key_row};

    #[tokio::test]
    async fn no_answer_is_no_success() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        // A text without a statement returns no result, like a statement during which SQLite's thread dies.
        assert!(sqlx::query("").execute(&mut connection).await.is_ok());
        let silent = run(&mut connection, sqlx::query("")).await;
        assert!(matches!(silent, Err(sqlx::Error::WorkerCrashed)), "{silent:?}");
        // A row is not the result of its statement.
        run(&mut connection, sqlx::query("SELECT 1 UNION SELECT 2")).await.unwrap();
        assert!(run(&mut connection, sqlx::query("SELECT abs(-9223372036854775808)")).await.is_err());
    }

    #[test]
    fn slots_come_back_from_ids_that_ascend_within_a_queue() {
        for queue in [0, 1, u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX].map(QueueId) {
            let slots = [0, 1, u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX];
            let ids = slots.map(|slot| key_id(queue, slot));
            assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
            assert_eq!(ids.map(slot_of), slots);
        }
    }

    #[test]
    fn whatever_makes_the_wal_grow_counts() {
        let none = Writes::default();
        assert_eq!(bytes(&none), 0);
        let journal = vec![JournalRow { events: "e".repeat(10_000), ..journal_row(1, 1..=1) }];
        assert!(bytes(&Writes { journal, ..none.clone() }) >= 10_000);
        // Keys that are far apart take a page each.
        let keys = (0..100).map(|slot| key_row(1, slot * 1_000, "a", 1)).collect();
        assert!(bytes(&Writes { keys, ..none.clone() }) >= 100 * PAGE_BYTES);
        let queue = QueueId(1);
        for removal in [
            Writes { expired_tombstones: vec![(queue, Rv::new(1))], ..none.clone() },
            Writes { trimmed: vec![(queue, Rv::new(1))], ..none.clone() },
            Writes { emptied: vec![(queue, 1)], ..none.clone() },
        ] {
            assert!(bytes(&removal) >= REMOVAL_BYTES, "{removal:?}");
        }
    }
}
