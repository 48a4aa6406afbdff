//! Writes rows. Nearly every write is one statement; the others are one transaction.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use sqlx::Executor as _;
use sqlx::postgres::{PgArguments, PgConnection, Postgres as Database};

use super::connect::{self, simple};
use super::error::database;
use super::owner::Tenure;
use super::rows::number;
use super::sql;
use crate::compression::compress;
use crate::store::{
    Epoch, Error, JournalRow, QueueId, QueueRow, REMOVED_BYTES_MAX, REMOVED_ROWS_MAX, REMOVED_RUNS_MAX,
    RunRow, SeriesRow, SharedText, Writes, bound, texts_column,
};
use crate::text_id::TextId;

pub(super) type Query = sqlx::query::Query<'static, Database, PgArguments>;

/// The connection of a writer, for one write.
pub(super) struct Session<'a> {
    pub(super) connection: &'a mut PgConnection,
    pub(super) partition: i16,
    pub(super) tenure: Tenure,
    /// Whether statements stay prepared. If not, a pooler may give each transaction another connection. Every
    /// statement then needs a transaction, because preparing and running it are two steps.
    pub(super) prepares: bool,
}

impl Session<'_> {
    /// Writes all rows or none. After an error, the connection may still be inside the transaction.
    pub(super) async fn commit(&mut self, writes: Writes) -> Result<(), Error> {
        if self.prepares && writes.is_only_journal() {
            let inserted = self.run("write", journal(self, writes.epoch, &writes.journal)).await?;
            return if inserted > 0 { Ok(()) } else { Err(self.refused(writes.epoch).await) };
        }
        let doing = "begin to write";
        let row = simple(self.connection, doing, sql::begin_write(self.partition)).await?;
        let read =
            |row| Ok((number(&row, 0)?, number(&row, 1)?.cast_signed(), number(&row, 2)?.cast_signed()));
        let found = row.map(read).transpose().map_err(|error| database(doing, error))?;
        if found != Some((writes.epoch.0, self.tenure.writer, self.tenure.server)) {
            // The lock must not outlive this write.
            simple(self.connection, doing, "ROLLBACK").await?;
            return Err(self.refused(writes.epoch).await);
        }
        self.write_all(writes).await?;
        simple(self.connection, "commit", "COMMIT").await?;
        Ok(())
    }

    async fn refused(&mut self, own: Epoch) -> Error {
        connect::refused(self.connection, self.partition, &self.tenure, own).await
    }

    /// Runs one statement and returns the number of changed rows.
    async fn run(&mut self, doing: &str, query: Query) -> Result<u64, Error> {
        let query = query.persistent(self.prepares);
        let done = self.connection.execute(query).await;
        done.map(|done| done.rows_affected()).map_err(|error| database(doing, error))
    }

    /// A statement with the partition as its first parameter.
    fn query(&self, text: &'static str) -> Query {
        sqlx::query(text).bind(self.partition)
    }

    async fn write_all(&mut self, writes: Writes) -> Result<(), Error> {
        let Writes {
            epoch,
            texts: shared,
            journal: added,
            queues,
            runs,
            removed_runs,
            trimmed,
            emptied,
            forgotten,
            unused_texts,
            series,
            series_hours,
            clean,
        } = writes;
        if !shared.is_empty() {
            self.run(
                "write the texts",
                bind_texts(self.query(sql::TEXTS), &last_of_each(&shared, |shared| shared.id)),
            )
            .await?;
        }
        if !added.is_empty() {
            self.run("write the journal", journal(self, epoch, &added)).await?;
        }
        if !queues.is_empty() {
            let query = bind_queues(self.query(sql::QUEUES), &last_of_each(&queues, |row| row.id));
            self.run("write the queues", query).await?;
        }
        if !runs.is_empty() {
            self.run("write the runs", bind_runs(self.query(sql::RUNS), &runs)).await?;
        }
        if !removed_runs.is_empty() {
            let query = self.query(sql::REMOVED_RUNS);
            self.run("remove runs", bind_removed_runs(query, &removed_runs)).await?;
        }
        if !trimmed.is_empty() {
            let query = bind_pairs(self.query(sql::TRIMMED), &trimmed, bound);
            let query = query.bind(i64::from(REMOVED_ROWS_MAX)).bind(bound(REMOVED_BYTES_MAX));
            self.run("trim the journal", query).await?;
        }
        if !emptied.is_empty() {
            for (text, most) in
                [(sql::EMPTIED_RUNS, REMOVED_RUNS_MAX), (sql::EMPTIED_JOURNAL, REMOVED_ROWS_MAX)]
            {
                let query = bind_pairs(self.query(text), &emptied, |rows| rows.min(most).into());
                self.run("remove rows of deleted queues", query).await?;
            }
        }
        if !forgotten.is_empty() {
            self.run("retain the numbers of queues", self.query(sql::KEEP_NUMBERS)).await?;
            let query = self.query(sql::FORGOTTEN).bind(column(&forgotten, |queue| *queue));
            self.run("remove deleted queues", query).await?;
        }
        if !unused_texts.is_empty() {
            let unused: Vec<_> = unused_texts.iter().map(TextId::to_string).collect();
            self.run("remove texts", self.query(sql::UNUSED_TEXTS).bind(unused)).await?;
        }
        self.write_series(&series, series_hours).await?;
        if let Some(clean) = clean {
            self.run("mark the store as closed or open", self.query(sql::CLEAN).bind(clean)).await?;
        }
        Ok(())
    }

    async fn write_series(&mut self, rows: &[SeriesRow], hours: Option<Range<u32>>) -> Result<(), Error> {
        if !rows.is_empty() {
            self.run("write the series", bind_series(self.query(sql::SERIES), rows)).await?;
        }
        if let Some(hours) = hours {
            let query = self.query(sql::SERIES_OUTSIDE).bind(i64::from(hours.start));
            self.run("remove old series", query.bind(i64::from(hours.end))).await?;
        }
        Ok(())
    }
}

/// A number of a row, for a column of 64 bits.
trait Number {
    fn number(self) -> i64;
}

impl Number for u32 {
    fn number(self) -> i64 {
        self.into()
    }
}

impl Number for QueueId {
    fn number(self) -> i64 {
        self.0.into()
    }
}

/// Stores the bits of the number unchanged.
impl Number for u64 {
    fn number(self) -> i64 {
        self.cast_signed()
    }
}

/// One column of the rows.
fn column<'a, T: 'a, N: Number>(rows: impl IntoIterator<Item = &'a T>, get: impl Fn(&'a T) -> N) -> Vec<i64> {
    rows.into_iter().map(|row| get(row).number()).collect()
}

/// One column of 32-bit numbers, stored bit for bit.
fn bits<'a, T: 'a>(rows: impl IntoIterator<Item = &'a T>, get: impl Fn(&T) -> u32) -> Vec<i32> {
    rows.into_iter().map(|row| get(row).cast_signed()).collect()
}

/// One column of texts.
fn texts<'a, T: 'a>(rows: impl IntoIterator<Item = &'a T>, get: impl Fn(&'a T) -> &'a str) -> Vec<&'a [u8]> {
    rows.into_iter().map(|row| get(row).as_bytes()).collect()
}

/// The last row of each identity. Earlier rows are left out, because one statement can't write the same row twice.
fn last_of_each<T, I: Eq + Hash>(rows: &[T], identity: impl Fn(&T) -> I) -> Vec<&T> {
    let last: HashMap<I, usize> =
        rows.iter().enumerate().map(|(index, row)| (identity(row), index)).collect();
    let is_last = |(index, row): &(usize, &T)| last.get(&identity(row)) == Some(index);
    rows.iter().enumerate().filter(is_last).map(|(_, row)| row).collect()
}

fn journal(session: &Session<'_>, epoch: Epoch, rows: &[JournalRow]) -> Query {
    session
        .query(sql::JOURNAL)
        .bind(epoch.0.cast_signed())
        .bind(session.tenure.writer)
        .bind(column(rows, |row| row.queue))
        .bind(column(rows, |row| row.epoch.0))
        .bind(column(rows, |row| row.prev_rv.get()))
        .bind(column(rows, |row| row.first_rv.get()))
        .bind(column(rows, |row| row.last_rv.get()))
        .bind(column(rows, |row| row.at.as_micros()))
        .bind(bits(rows, |row| row.format))
        .bind(bits(rows, |row| row.checksum))
        .bind(rows.iter().map(|row| texts_column(&row.texts)).collect::<Vec<_>>())
        .bind(column(rows, |row| row.text_bytes))
        .bind(texts(rows, |row| &row.events))
        .bind(session.tenure.server)
}

fn bind_texts(query: Query, rows: &[&SharedText]) -> Query {
    let ids: Vec<_> = rows.iter().map(|shared| shared.id.to_string()).collect();
    query.bind(ids).bind(texts(rows.iter().copied(), |shared| &shared.text))
}

fn bind_queues(query: Query, rows: &[&QueueRow]) -> Query {
    let rows = || rows.iter().copied();
    query
        .bind(column(rows(), |row| row.id))
        .bind(column(rows(), |row| row.version))
        .bind(texts(rows(), |row| &row.name))
        .bind(column(rows(), |row| row.incarnation))
        .bind(column(rows(), |row| row.created_at.as_micros()))
        .bind(rows().map(|row| row.deleted).collect::<Vec<_>>())
        .bind(column(rows(), |row| row.rv.get()))
        .bind(column(rows(), |row| row.first_run))
        .bind(column(rows(), |row| row.next_run))
        .bind(bits(rows(), |row| row.format))
        .bind(bits(rows(), |row| row.checksum))
        .bind(texts(rows(), |row| &row.state))
}

fn bind_runs(query: Query, rows: &[RunRow]) -> Query {
    query
        .bind(column(rows, |row| row.queue))
        .bind(column(rows, |row| row.number))
        .bind(bits(rows, |row| row.format))
        .bind(bits(rows, |row| row.checksum))
        .bind(rows.iter().map(|row| texts_column(&row.texts)).collect::<Vec<_>>())
        .bind(column(rows, |row| row.entries.len() as u64))
        .bind(rows.iter().map(|row| compress(&row.entries)).collect::<Vec<_>>())
}

fn bind_series(query: Query, rows: &[SeriesRow]) -> Query {
    let contents: Vec<&[u8]> = rows.iter().map(|row| &*row.content).collect();
    query.bind(column(rows, |row| row.hour)).bind(column(rows, |row| row.queue)).bind(contents)
}

fn bind_removed_runs(query: Query, removed: &[(QueueId, Range<u64>)]) -> Query {
    let end = |numbers: &Range<u64>| numbers.end.min(numbers.start.saturating_add(REMOVED_RUNS_MAX.into()));
    let query = query.bind(column(removed, |(queue, _)| *queue));
    let query = query.bind(column(removed, |(_, numbers)| numbers.start));
    query.bind(column(removed, |(_, numbers)| end(numbers)))
}

/// Binds queues, and a number for each.
fn bind_pairs<T: Copy>(query: Query, pairs: &[(QueueId, T)], number: impl Fn(T) -> i64) -> Query {
    let numbers: Vec<_> = pairs.iter().map(|(_, value)| number(*value)).collect();
    query.bind(column(pairs, |(queue, _)| *queue)).bind(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_an_identity_is_kept_at_its_place() {
        let rows = [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd')];
        assert_eq!(last_of_each(&rows, |row| row.0), [&(2, 'b'), &(1, 'c'), &(3, 'd')]);
        assert_eq!(last_of_each(&rows[..0], |row| row.0), [&(0, 'x'); 0]);
    }
}
