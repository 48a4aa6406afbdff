//! Writes rows in one transaction.

use std::mem::take;

use futures_util::StreamExt as _;
use sqlx::sqlite::{Sqlite as Database, SqliteArguments, SqliteConnection};
use sqlx::{Either, Executor as _};

use super::connect::{self, FRAME_BYTES, PAGE_BYTES};
use super::error::database;
use super::sql;
use crate::compression::compress;
use crate::store::{
    Error, JournalRow, QueueId, QueueRow, REMOVED_BYTES_MAX, REMOVED_ROWS_MAX, REMOVED_RUNS_MAX, RunRow,
    SeriesRow, SharedText, Writes, bound, texts_column,
};
use crate::text_id::TextId;

/// Bytes of the id of a text in a list of ids.
const TEXT_ID_BYTES: usize = 65;
/// Approximate number of WAL bytes that it takes to remove rows of a queue, or to free the pages of texts.
const REMOVAL_BYTES: u64 = 1 << 20;

/// Events of a row are compressed from this many bytes on. Shorter ones gain little, and SQL can read them.
const COMPRESSED_BYTES_MIN: usize = 1 << 10;

type Query = sqlx::query::Query<'static, Database, SqliteArguments>;

/// A write whose rows are compressed.
#[derive(Debug)]
pub(super) struct Packed {
    /// The write without the rows that are in `journal` and in `runs`.
    writes: Writes,
    journal: Vec<(JournalRow, Option<Vec<u8>>)>,
    runs: Vec<(RunRow, Vec<u8>)>,
}

impl Packed {
    pub(super) fn of(mut writes: Writes) -> Self {
        let events =
            |row: &JournalRow| (row.events.len() >= COMPRESSED_BYTES_MIN).then(|| compress(&row.events));
        let journal = take(&mut writes.journal).into_iter().map(|row| (events(&row), row));
        let journal = journal.map(|(events, row)| (row, events)).collect();
        let runs = take(&mut writes.runs).into_iter().map(|row| (compress(&row.entries), row));
        let runs = runs.map(|(entries, row)| (row, entries)).collect();
        Self { writes, journal, runs }
    }

    /// An upper estimate of the bytes that the write adds to the WAL: each row changes its own page, a page of each index that has
    /// it, and the pages that its text fills.
    pub(super) fn wal_bytes(&self) -> u64 {
        let Self { writes, journal, runs } = self;
        let ids = |texts: &[SharedText]| texts.len() * TEXT_ID_BYTES;
        let indexes = |texts: &[SharedText]| 2 + u64::from(!texts.is_empty());
        let journal = journal.iter().map(|(row, events)| {
            let events = events.as_ref().map_or(row.events.len(), Vec::len);
            frames(events + ids(&row.texts), indexes(&row.texts))
        });
        let runs =
            runs.iter().map(|(row, entries)| frames(entries.len() + ids(&row.texts), indexes(&row.texts)));
        let queues = writes.queues.iter().map(|row| frames(row.name.len() + row.state.len(), 2));
        let texts = writes.texts.iter().map(|shared| frames(shared.text.len() + TEXT_ID_BYTES, 2));
        let series = writes.series.iter().map(|row| frames(row.content.len(), 1));
        let rows = journal.chain(runs).chain(queues).chain(texts).chain(series);
        let runs = writes.removed_runs.iter().map(|(_, numbers)| numbers.end.saturating_sub(numbers.start));
        let removed = (writes.forgotten.len() + writes.unused_texts.len()) as u64;
        let removed = removed + runs.map(|runs| runs.min(REMOVED_RUNS_MAX.into())).sum::<u64>();
        let removals =
            usize::from(!writes.removed_runs.is_empty()) + writes.trimmed.len() + writes.emptied.len();
        let removals = removals
            + usize::from(!writes.unused_texts.is_empty())
            + usize::from(writes.series_hours.is_some());
        rows.sum::<u64>() + removed * frames(0, 2) + removals as u64 * REMOVAL_BYTES
    }
}

/// The bytes of a row's pages in the WAL. Its text fills pages in addition to those that it shares with other rows.
fn frames(text_bytes: usize, pages: u64) -> u64 {
    (pages + (text_bytes as u64).div_ceil(PAGE_BYTES)) * FRAME_BYTES
}

/// Writes all rows or none. The ids of the journal rows begin at `first_row`. After an error, the connection may
/// still be inside the transaction.
pub(super) async fn commit(
    connection: &mut SqliteConnection,
    packed: Packed,
    first_row: u64,
) -> Result<(), Error> {
    let own = packed.writes.epoch;
    let failed = |error| database("write", error);
    let short = packed.journal.len().checked_sub(1).and_then(|index| sql::SHORT.get(index));
    if let Some(text) = short.filter(|_| packed.runs.is_empty() && packed.writes.is_only_journal()) {
        let query = (first_row..).zip(packed.journal).fold(sqlx::query(text.as_str()), bind_journal);
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
    write_all(connection, packed, first_row).await.map_err(failed)?;
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
    Packed { writes, journal, runs }: Packed,
    first_row: u64,
) -> Result<(), sqlx::Error> {
    let Writes {
        epoch: _,
        texts,
        journal: _,
        queues,
        runs: _,
        removed_runs,
        trimmed,
        emptied,
        forgotten,
        unused_texts,
        series,
        series_hours,
        clean,
    } = writes;
    let next_row = first_row + journal.len() as u64;
    in_chunks(connection, &sql::TEXTS, texts, bind_text).await?;
    in_chunks(connection, &sql::JOURNAL, (first_row..).zip(journal).collect(), bind_journal).await?;
    in_chunks(connection, &sql::QUEUES, queues, bind_queue).await?;
    in_chunks(connection, &sql::RUNS, runs, bind_run).await?;
    for (queue, numbers) in removed_runs {
        let query = sqlx::query(sql::REMOVED_RUNS).bind(queue.0);
        let end = numbers.end.min(numbers.start.saturating_add(REMOVED_RUNS_MAX.into()));
        run(connection, query.bind(bound(numbers.start)).bind(bound(end))).await?;
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
        empty(connection, queue, rows).await?;
    }
    if !forgotten.is_empty() {
        run(connection, sqlx::query(sql::KEEP_NUMBERS)).await?;
    }
    in_chunks(connection, &sql::FORGOTTEN, forgotten, |query, queue| query.bind(queue.0)).await?;
    let unused = unused_texts.iter().map(TextId::to_string).collect();
    in_chunks(connection, &sql::UNUSED_TEXTS, unused, Query::bind).await?;
    in_chunks(connection, &sql::SERIES, series, bind_series).await?;
    if let Some(hours) = series_hours {
        run(connection, sqlx::query(sql::SERIES_OUTSIDE).bind(hours.start).bind(hours.end)).await?;
    }
    if let Some(clean) = clean {
        run(connection, sqlx::query(sql::CLEAN).bind(clean)).await?;
    }
    Ok(())
}

/// Whether the queue has rows other than its own row.
pub(super) async fn has_rows(connection: &mut SqliteConnection, queue: QueueId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(sql::HAS_ROWS).bind(queue.0).fetch_one(connection).await
}

async fn empty(connection: &mut SqliteConnection, queue: QueueId, rows: u32) -> Result<(), sqlx::Error> {
    for (text, most) in [(sql::EMPTIED_RUNS, REMOVED_RUNS_MAX), (sql::EMPTIED_JOURNAL, REMOVED_ROWS_MAX)] {
        run(connection, sqlx::query(text).bind(queue.0).bind(rows.min(most))).await?;
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

fn bind_series(query: Query, SeriesRow { hour, queue, content }: SeriesRow) -> Query {
    query.bind(hour).bind(queue.0).bind(content)
}

fn bind_text(query: Query, SharedText { id, text }: SharedText) -> Query {
    query.bind(id.to_string()).bind(text)
}

fn bind_journal(query: Query, (id, (row, compressed)): (u64, (JournalRow, Option<Vec<u8>>))) -> Query {
    let text_bytes = match &compressed {
        Some(compressed) => row.bytes().cast_signed() - (compressed.len() as u64).cast_signed(),
        None => row.text_bytes.cast_signed(),
    };
    let JournalRow {
        queue,
        epoch,
        prev_rv,
        first_rv,
        last_rv,
        at,
        format,
        texts,
        text_bytes: _,
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
    let query = query.bind(texts_column(&texts)).bind(text_bytes);
    match compressed {
        Some(compressed) => query.bind(compressed),
        None => query.bind(events),
    }
}

fn bind_queue(query: Query, row: QueueRow) -> Query {
    let QueueRow {
        id,
        version,
        name,
        incarnation,
        created_at,
        deleted,
        rv,
        first_run,
        next_run,
        state,
        format,
        checksum,
    } = row;
    let query = query.bind(id.0).bind(version.cast_signed()).bind(name).bind(incarnation);
    let query = query.bind(created_at.as_micros().cast_signed()).bind(deleted).bind(rv.get().cast_signed());
    let query = query.bind(first_run.cast_signed()).bind(next_run.cast_signed());
    query.bind(format).bind(checksum).bind(state)
}

fn bind_run(query: Query, (row, compressed): (RunRow, Vec<u8>)) -> Query {
    let RunRow { queue, number, format, texts, entries, checksum } = row;
    let query = query.bind(queue.0).bind(number.cast_signed()).bind(format).bind(checksum);
    query.bind(texts_column(&texts)).bind(bound(entries.len() as u64)).bind(compressed)
}

#[cfg(test)]
mod tests {
    use deltaq_engine::id::Rv;
    use sqlx::Connection as _;

    use super::*;
    use crate::sqlite::tests::{journal_row, random_text, run_row};

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
    fn whatever_makes_the_wal_grow_counts() {
        let none = Writes::default();
        let bytes = |writes: &Writes| Packed::of(writes.clone()).wal_bytes();
        assert_eq!(bytes(&none), 0);
        let journal = vec![JournalRow { events: random_text(10_000), ..journal_row(1, 1..=1) }];
        assert!(bytes(&Writes { journal, ..none.clone() }) >= 10_000);
        let runs = (0..100).map(|number| run_row(1, number, "[]")).collect();
        assert!(bytes(&Writes { runs, ..none.clone() }) >= 100 * PAGE_BYTES);
        let queue = QueueId(1);
        for removal in [
            Writes { removed_runs: vec![(queue, 0..1)], ..none.clone() },
            Writes { trimmed: vec![(queue, Rv::new(1))], ..none.clone() },
            Writes { emptied: vec![(queue, 1)], ..none.clone() },
        ] {
            assert!(bytes(&removal) >= REMOVAL_BYTES, "{removal:?}");
        }
    }
}
