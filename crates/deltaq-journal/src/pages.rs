//! Shared code of the readers of all stores: pages of a queue's journal, and reading ahead.

use deltaq_engine::id::Rv;
use futures_util::future::BoxFuture;
use tokio_util::task::AbortOnDropHandle;

use super::store::{Error, Segment};

/// Consecutive rows of a queue's journal.
#[derive(Default)]
pub(super) struct JournalRange {
    /// The `prev_rv` of the first row and of the last row.
    pub(super) ends: Option<(Rv, Rv)>,
    pub(super) rows: u64,
    /// Bytes of the events of all rows.
    pub(super) bytes: u64,
    /// Whether at least one more row follows.
    pub(super) has_more: bool,
}

impl JournalRange {
    /// Adds the next older row to a page of the history, unless the page is full. A page is full if it has at least
    /// two rows and `bytes` bytes. Returns whether the row was added.
    pub(super) fn add_older(&mut self, prev_rv: Rv, row_bytes: u64, bytes: usize) -> bool {
        self.has_more = self.rows >= 2 && self.bytes >= bytes as u64;
        if !self.has_more {
            self.add(prev_rv, row_bytes);
        }
        !self.has_more
    }

    /// Adds the next row if the page is empty or the row fits into `bytes`. Returns whether the row was added.
    pub(super) fn add_newer(&mut self, prev_rv: Rv, row_bytes: u64, bytes: usize) -> bool {
        let fits = self.ends.is_none() || self.bytes.saturating_add(row_bytes) <= bytes as u64;
        if fits {
            self.add(prev_rv, row_bytes);
        }
        fits
    }

    fn add(&mut self, prev_rv: Rv, bytes: u64) {
        let (first, _) = self.ends.unwrap_or((prev_rv, prev_rv));
        self.ends = Some((first, prev_rv));
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Adds the next row to the last segment, or begins a new segment if the last one would exceed `bytes`.
pub(super) fn add_to_segments(segments: &mut Vec<Segment>, next: Segment, bytes: u64) {
    match segments.last_mut() {
        Some(last) if last.bytes.saturating_add(next.bytes) <= bytes => {
            *last = Segment { bytes: last.bytes + next.bytes, ..next };
        }
        _ => segments.push(next),
    }
}

/// Starts reading a page at once, while the caller does other work.
pub(super) fn ahead<T: Send + 'static>(
    doing: &'static str,
    page: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> BoxFuture<'static, Result<T, Error>> {
    #[expect(clippy::disallowed_methods, reason = "the returned future owns the task")]
    let page = AbortOnDropHandle::new(tokio::spawn(page));
    Box::pin(async move {
        page.await.unwrap_or_else(|ended| {
            Err(Error::Failed { doing: doing.to_owned(), source: Some(ended.into()) })
        })
    })
}
