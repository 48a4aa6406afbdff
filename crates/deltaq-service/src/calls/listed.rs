//! Lists whose pages all have the version of the first one, as Kubernetes' clients expect them.
//!
//! A page is read as the queue is at that moment. So that a reader that goes on with a watch from the version of the first page has every
//! change once, a later page leaves out the keys that entered the view since, which the watch sends, and also has the keys of its range
//! that left the view since, with their last objects, which the watch sends as deleted.

use std::collections::{BTreeMap, HashMap, HashSet};

use deltaq_engine::Queue;
use deltaq_engine::feed::Row;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::schedule::Place;
use deltaq_engine::table::Entry;
use deltaq_engine::view::{View, ViewObject};

use super::lists::page_of;
use crate::queue::Handle;
use crate::{Error, KeyFilter, ListPage, ListedState, PageLimit, ViewFilter};

/// Number of keys that are counted in one critical section.
const COUNTED_AT_A_TIME: usize = 5_000;

/// An object in a list.
#[derive(Clone, Debug)]
pub struct ListedObject {
    /// The object; without members if it has left the view and is no longer kept.
    pub object: ViewObject,
    /// The state of its key; `None` if the key has no work, or has left the view.
    pub state: Option<ListedState>,
}

impl ListedObject {
    /// An object that the view does not have.
    #[must_use]
    pub const fn unseen(key: Key, object: Object) -> Self {
        Self { object: ViewObject { key, object, rv: Rv::ZERO, owner: None, birth: None }, state: None }
    }
}

impl Handle {
    /// The objects of a view after the key `after`, in key order, as a list of the version `since` has them. `None` is the first page.
    ///
    /// # Errors
    /// [`Error::Expired`] if the deletions since that version are no longer kept; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn listed_objects(
        &self,
        view: View,
        keys: &KeyFilter,
        (after, since): (Option<String>, Option<Rv>),
        limit: PageLimit,
    ) -> Result<ListPage<ListedObject, Key>, Error> {
        let filter = ViewFilter { keys: keys.clone(), source: None };
        let page = self.read(|queue, moment| {
            let sorted = queue.table().from(filter.from(after.as_deref())).map(|(_, entry)| entry);
            let page = page_of(sorted, queue, view, &filter, limit, moment);
            let is_in_page = |key: &Key| {
                filter.keys.includes(key)
                    && after.as_ref().is_none_or(|after| key.as_str() > after.as_str())
                    && page.next.as_ref().is_none_or(|next| key <= next)
            };
            let gone = since.map(|since| queue.left_since(view, since, is_in_page)).transpose();
            gone.map(|gone| completed(queue, page, since.zip(gone)))
        });
        page.await?.map_err(|horizon| Error::Expired { horizon })
    }

    /// The object of a key in a view with the state of the key, and the queue's newest event.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn listed_object(&self, view: View, key: &Key) -> Result<(Option<ListedObject>, Rv), Error> {
        self.read(|queue, _| {
            let entry = queue.table().get(key.as_str());
            let listed = entry.and_then(|entry| {
                let object = queue.with_birth(view, entry.object_in(view)?);
                Some(ListedObject { object, state: state_of(entry) })
            });
            (listed, queue.resource_version())
        })
        .await
    }

    /// Number of the objects of a view behind the key `after`.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn count_objects(&self, view: View, keys: &KeyFilter, after: String) -> Result<usize, Error> {
        let filter = ViewFilter { keys: keys.clone(), source: None };
        let (mut count, mut next) = (0, Some(after));
        while let Some(after) = next.take() {
            let (more, last) = self
                .read(|queue, _| {
                    let sorted = queue.table().from(filter.from(Some(&after))).map(|(_, entry)| entry);
                    let mut wanted = sorted.take_while(|entry| entry.key.as_str().starts_with(&keys.prefix));
                    let mut more = 0;
                    let mut last = None;
                    for entry in wanted.by_ref().take(COUNTED_AT_A_TIME) {
                        more += usize::from(entry.version_in(view).is_some());
                        last = Some(&entry.key);
                    }
                    (more, last.filter(|_| wanted.next().is_some()).map(|last| last.as_str().to_owned()))
                })
                .await?;
            count += more;
            next = last;
            tokio::task::yield_now().await;
        }
        Ok(count)
    }

    /// The keys that the view had at the event `since` and that have left it since, whether they have come back or not.
    ///
    /// # Errors
    /// [`Error::Expired`] if the deletions since are no longer kept; [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn left_since(&self, view: View, since: Rv) -> Result<HashSet<Key>, Error> {
        let left = self.read(|queue, _| queue.left_since(view, since, |_| true)).await?;
        let left = left.map_err(|horizon| Error::Expired { horizon })?;
        Ok(left.into_iter().map(|row| row.key).collect())
    }

    /// The states of keys that have work.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn states(&self, keys: impl Iterator<Item = &Key>) -> Result<Vec<Option<ListedState>>, Error> {
        self.read(|queue, _| keys.map(|key| state_of(queue.table().get(key.as_str())?)).collect()).await
    }
}

/// The page with the keys that have left the view since, and without those that have entered it.
fn completed(
    queue: &Queue,
    page: ListPage<ViewObject, Key>,
    since: Option<(Rv, Vec<Row>)>,
) -> ListPage<ListedObject, Key> {
    let ListPage { entries, next, resource_version, moment } = page;
    let listed = |object: ViewObject| {
        let state = queue.table().get(object.key.as_str()).and_then(state_of);
        ListedObject { object, state }
    };
    let Some((since, gone)) = since else {
        let entries = entries.into_iter().map(listed).collect();
        return ListPage { entries, next, resource_version, moment };
    };
    let left: HashMap<&Key, &Row> = gone.iter().map(|row| (&row.key, row)).collect();
    let was_there = |object: &ViewObject| {
        object.birth.is_none_or(|birth| birth.rv <= since) || left.contains_key(&object.key)
    };
    let live: Vec<_> = entries.into_iter().filter(was_there).collect();
    let live = live.into_iter().map(|object| (object.key.clone(), listed(object)));
    let gone = gone.iter().map(|row| {
        let Row { key, rv, object, birth, .. } = row.clone();
        let object = object.unwrap_or_else(Object::empty);
        let object = ViewObject { key: key.clone(), object, rv, owner: None, birth };
        (key, ListedObject { object, state: None })
    });
    // A key that has come back is there once, as it is now.
    let all: BTreeMap<Key, ListedObject> = gone.chain(live).collect();
    ListPage { entries: all.into_values().collect(), next, resource_version, moment }
}

/// The state of a key that has work.
fn state_of(entry: &Entry) -> Option<ListedState> {
    let schedule = &entry.schedule_state;
    match schedule.place {
        Place::Ready(_) => Some(ListedState::Ready),
        Place::Leased(_) => Some(ListedState::Leased),
        Place::Parked => Some(ListedState::Parked),
        Place::Idle if schedule.is_delayed() => Some(ListedState::Delayed),
        Place::Idle => None,
    }
}
