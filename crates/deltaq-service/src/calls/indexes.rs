//! Builds the indexes of a queue in parts, and reads through them.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::indexes::{IndexStatus, NoIndex};
use deltaq_engine::key::Key;
use deltaq_engine::view::{View, ViewObject};
use parking_lot::MutexGuard;

use super::lists::{ListPage, PageLimit, ViewFilter, page_of};
use crate::Error;
use crate::queue::Handle;

/// Amount of work in one critical section. A small object counts as one, and so does each of its values.
const WORK_AT_A_TIME: usize = 512;

/// An index, and a value in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The name of the index.
    pub index: Arc<str>,
    /// The value.
    pub value: String,
    /// The maximum wait for an index that is being built.
    pub wait: Duration,
}

/// A value of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexValue {
    /// The value.
    pub value: String,
    /// Number of keys with the value.
    pub keys: usize,
}

impl Handle {
    /// Builds the indexes that are not complete, a part at a time.
    pub(crate) async fn build_indexes(&self) {
        // If the queue's state is lost, building begins again once the queue is loaded.
        while let Ok(false) = self.build_part_of_indexes() {
            tokio::task::yield_now().await;
        }
        self.note_reached();
    }

    /// Returns whether nothing is left to do: all indexes are complete, or there is no room for them.
    fn build_part_of_indexes(&self) -> Result<bool, Error> {
        let mut state = self.open()?;
        if !state.queue.room_for_indexes(|| self.memory()) {
            return Ok(true);
        }
        let is_complete = state.queue.build_indexes(WORK_AT_A_TIME);
        self.limit_indexes(&mut state);
        self.note_held(&state);
        // A thread that waits for the lock gets it next.
        MutexGuard::unlock_fair(state);
        Ok(is_complete)
    }

    /// The indexes of the queue.
    ///
    /// # Errors
    /// The same errors as reads.
    pub async fn indexes(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<ListPage<IndexStatus, Arc<str>>, Error> {
        self.read(|queue, moment| {
            let mut entries = queue.indexes();
            entries.retain(|index| after.as_deref().is_none_or(|after| *index.name > *after));
            let has_more = entries.len() > limit;
            entries.truncate(limit);
            let next = entries.last().filter(|_| has_more).map(|last| last.name.clone());
            ListPage { entries, next, resource_version: queue.resource_version(), moment }
        })
        .await
    }

    /// The known objects with a value in an index, after the key `after`, in key order.
    ///
    /// # Errors
    /// [`Error::NoIndex`], [`Error::IndexBuilding`], or the errors of reads.
    pub async fn objects_with_value(
        &self,
        lookup: &Lookup,
        filter: &ViewFilter,
        after: Option<String>,
        limit: PageLimit,
    ) -> Result<ListPage<ViewObject, Key>, Error> {
        self.reach_index(&lookup.index, lookup.wait).await?;
        let from = filter.from(after.as_deref());
        let page = self.read(|queue, moment| {
            let entries = queue.entries_with_value(&lookup.index, &lookup.value, from)?;
            Ok(page_of(entries, queue, View::Known, filter, limit, moment))
        });
        page.await?.map_err(|no_index| refused(&lookup.index, no_index))
    }

    /// The values of an index that begin with `prefix`, after the value `after`, in the order of their bytes.
    ///
    /// # Errors
    /// Same as [`objects_with_value`](Self::objects_with_value).
    pub async fn index_values(
        &self,
        index: &str,
        prefix: &str,
        after: Option<String>,
        limit: usize,
        wait: Duration,
    ) -> Result<ListPage<IndexValue, String>, Error> {
        self.reach_index(index, wait).await?;
        let from = after.as_deref().map_or(Bound::Included(prefix), Bound::Excluded);
        let page = self.read(|queue, moment| {
            let values = queue.index_values(index, from)?.take_while(|(value, _)| value.starts_with(prefix));
            let values = values.take(limit.saturating_add(1));
            let mut entries: Vec<IndexValue> =
                values.map(|(value, keys)| IndexValue { value: value.to_owned(), keys }).collect();
            let has_more = entries.len() > limit;
            entries.truncate(limit);
            let next = entries.last().filter(|_| has_more).map(|last| last.value.clone());
            Ok(ListPage { entries, next, resource_version: queue.resource_version(), moment })
        });
        page.await?.map_err(|no_index| refused(index, no_index))
    }

    /// Waits until an index is complete, but at most `wait` and only until the shutdown begins.
    async fn reach_index(&self, index: &str, wait: Duration) -> Result<(), Error> {
        let built = self.wait_until(wait, |state| match state.queue.check_index(index) {
            Ok(()) => Ok(Some(())),
            Err(NoIndex::Building) => Ok(None),
            Err(other) => Err(refused(index, other)),
        });
        built.await?.ok_or_else(|| refused(index, NoIndex::Building))
    }
}

fn refused(index: &str, no_index: NoIndex) -> Error {
    match no_index {
        NoIndex::Unknown { names } => Error::NoIndex { index: index.to_owned(), names },
        NoIndex::Building => Error::IndexBuilding { index: index.to_owned() },
        NoIndex::NoRoom => Error::NoRoomForIndex { index: index.to_owned() },
    }
}
