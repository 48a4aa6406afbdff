//! The rules of every store. A store implements [`Place`] and calls `suite!(its_place)` in its tests, which
//! creates one test per rule. `fake` is the store that other tests use. The tests of the server have these modules too: for the fake store, and
//! for the suite on PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test with its message")]

pub(crate) mod fake;
mod reading;
mod removing;
mod series;
mod texts;
mod writing;

use std::sync::Arc;

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_journal::TextId;
use deltaq_journal::store::{
    BEFORE_ALL_ROWS, Epoch, Error, JournalRow, LISTED_ROWS_MAX, Numbers, Opening, PAGE_RUNS, QueueId,
    QueueRow, REMOVED_BYTES_MAX, REMOVED_ROWS_MAX, REMOVED_RUNS_MAX, Reader, Referring, RunRow, Segment,
    SharedText, Size, Store, Writes,
};

pub(crate) use self::reading::*;
pub(crate) use self::removing::*;
pub(crate) use self::series::*;
pub(crate) use self::texts::*;
pub(crate) use self::writing::*;

/// Where the rows of a store are, also while the store is closed.
pub(crate) trait Place {
    /// The store.
    type Store: Store;

    /// Opens the store. The one before was closed.
    async fn open(&self) -> (Owner<Self::Store>, Arc<dyn Reader>, Opening);
}

/// A store in the epoch of its opening, as a writer uses it.
pub(crate) struct Owner<S> {
    store: S,
    pub(crate) epoch: Epoch,
}

impl<S: Store> Owner<S> {
    pub(crate) fn new(store: S, opening: &Opening) -> Self {
        Self { store, epoch: opening.epoch }
    }

    pub(crate) async fn write(&mut self, writes: Writes) -> Result<(), Error> {
        self.store.write(Writes { epoch: self.epoch, ..writes }).await
    }

    pub(crate) async fn reopen(&mut self) -> Result<(), Error> {
        self.epoch = self.store.reopen().await?;
        Ok(())
    }

    pub(crate) async fn upkeep(&mut self) -> Result<Size, Error> {
        self.store.upkeep().await
    }

    pub(crate) async fn close(self) {
        self.store.close().await;
    }
}

impl<S> std::ops::Deref for Owner<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.store
    }
}

impl<S> std::ops::DerefMut for Owner<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.store
    }
}

/// Creates a test for each rule; `$place` is an expression that creates an empty place.
macro_rules! suite {
    ($place:expr) => {
        $crate::store::suite!(@ $place;
            a_new_store_is_empty_and_clean,
            written_rows_are_read_and_survive_a_restart,
            a_queue_row_replaces_the_row_of_its_id,
            runs_are_only_added,
            the_fields_are_written_in_order,
            writes_are_atomic,
            one_write_takes_many_rows,
            texts_are_returned_unchanged,
            removed_runs_are_removed,
            trimmed_rows_are_removed,
            a_trim_within_the_bounds_removes_all_its_rows,
            one_write_removes_a_bounded_number_of_rows,
            emptying_a_queue_leaves_other_queues_alone,
            only_deleted_queues_are_forgotten,
            numbers_of_forgotten_queues_are_retained,
            a_write_of_an_earlier_epoch_is_fenced,
            reopening_keeps_all_rows,
            runs_come_in_pages_newest_first,
            the_journal_comes_in_pages,
            the_journal_starts_within_a_row,
            history_is_paged_newest_first,
            segments_cover_the_journal,
            upkeep_returns_the_size,
            texts_are_stored_once_and_loaded_with_their_rows,
            pages_count_the_bytes_of_texts,
            references_and_texts_are_listed,
            unused_texts_are_removed,
            rows_of_a_lost_text_are_read_without_it,
            a_row_of_series_replaces_that_of_its_queue_and_hour,
            rows_of_series_of_other_hours_are_removed,
            rows_of_series_of_an_earlier_epoch_are_fenced,
        );
    };
    (@ $place:expr; $($rule:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $rule() {
            $crate::store::$rule(&$place).await;
        }
    )*};
}
pub(crate) use suite;

/// A row whose events name the key.
fn journal_row(queue: u32, rvs: std::ops::RangeInclusive<u64>, key: &str) -> JournalRow {
    JournalRow {
        queue: QueueId(queue),
        epoch: Epoch(9),
        prev_rv: Rv::new(rvs.start() - 1),
        first_rv: Rv::new(*rvs.start()),
        last_rv: Rv::new(*rvs.end()),
        at: Time::from_micros(1_000 + rvs.end()),
        format: 1,
        texts: Vec::new(),
        text_bytes: 0,
        events: format!("[{{\"rv\":{},\"key\":{}}}]", rvs.end(), serde_json::Value::from(key)),
        checksum: u32::MAX - 1,
    }
}

/// This many rows of a queue, with one event each, from event 1 on.
fn journal_rows(queue: u32, count: u64) -> Vec<JournalRow> {
    (1..=count).map(|rv| journal_row(queue, rv..=rv, "a")).collect()
}

fn run_row(queue: u32, number: u64, key: &str) -> RunRow {
    let entries = format!("[{{\"slot\":1,\"key\":{},\"rv\":{number}}}]", serde_json::Value::from(key));
    RunRow { queue: QueueId(queue), number, format: 1, texts: Vec::new(), entries, checksum: u32::MAX }
}

fn queue_row(id: u32, version: u64, name: &str) -> QueueRow {
    QueueRow {
        id: QueueId(id),
        version,
        name: name.into(),
        incarnation: 1,
        created_at: Time::from_micros(7),
        deleted: false,
        rv: Rv::new(3),
        first_run: 2,
        next_run: 1 << 50,
        state: "{\"paused\":false}".to_owned(),
        format: 1,
        checksum: 6,
    }
}

fn journal(rows: Vec<JournalRow>) -> Writes {
    Writes { journal: rows, ..Writes::default() }
}

/// All runs of a queue, newest first.
async fn runs(reader: &Arc<dyn Reader>, queue: u32) -> Vec<RunRow> {
    let (mut found, mut end) = (Vec::new(), u64::MAX);
    loop {
        let page = reader.runs(QueueId(queue), 0..end).await.unwrap();
        let Some(last) = page.last() else { return found };
        end = last.number;
        found.extend(page);
    }
}

async fn all_rows(reader: &Arc<dyn Reader>, queue: u32) -> Vec<JournalRow> {
    reader.journal(QueueId(queue), Rv::ZERO, usize::MAX).await.unwrap()
}

async fn rvs(reader: &Arc<dyn Reader>, queue: u32) -> Vec<u64> {
    all_rows(reader, queue).await.iter().map(|row| row.last_rv.get()).collect()
}
