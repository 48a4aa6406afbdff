//! Lists of a queue's content: items and the objects of a view, in pages.
//!
//! A page is read in one critical section, so the number of examined keys and the size of the page are bounded.
//! Objects are shared, not copied, and a page is rendered after the lock is released.

use std::ops::Bound;

use deltaq_engine::Queue;
use deltaq_engine::explain::Explanation;
use deltaq_engine::groups::{GroupList, GroupSort};
use deltaq_engine::id::{Rv, Slot, Source, Token};
use deltaq_engine::key::Key;
use deltaq_engine::schedule::{Place, Turn};
use deltaq_engine::snapshot::KeyState;
use deltaq_engine::table::Entry;
use deltaq_engine::time::Time;
use deltaq_engine::view::{View, ViewObject};

use crate::queue::Handle;
use crate::{Error, KeyFilter, Moment};

/// Maximum number of keys that a page examines. A page may have fewer entries than its limit, because a filter skips
/// keys.
const EXAMINED_MAX: usize = 5_000;
/// Approximate size of a delta in a reply, without its object, in bytes.
const DELTA_BYTES: usize = 256;

/// A state of an item. Lists are ordered by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListedState {
    /// Ready keys, in queue order.
    Ready,
    /// Delayed keys, by due time.
    Delayed,
    /// Leased keys, by deadline.
    Leased,
    /// Parked keys, in key order.
    Parked,
}

impl ListedState {
    /// All states, in the order of lists.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Delayed, Self::Leased, Self::Parked];
}

/// The position of an item in a list. The state determines which fields order the items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemPosition {
    /// The state.
    pub state: ListedState,
    /// The due time or deadline.
    pub at: Time,
    /// The arrival of a ready key minus its head start.
    pub arrival: i64,
    /// The number of the event that made the key ready, delayed or leased.
    pub rv: Rv,
    /// The key.
    pub key: Option<Key>,
}

impl ItemPosition {
    /// The position before the first item in this state.
    #[must_use]
    pub fn start(state: ListedState) -> Self {
        Self { state, at: Time::default(), arrival: Turn::START.arrival, rv: Rv::ZERO, key: None }
    }
}

/// Which items a list contains.
#[derive(Debug)]
pub struct ItemFilter {
    /// The states, in the order of lists.
    pub states: Vec<ListedState>,
    /// Only keys that this worker holds.
    pub worker: Option<String>,
    /// Only keys with this prefix.
    pub prefix: String,
    /// Only keys that this source owns.
    pub source: Option<String>,
    /// Only keys whose last failure had this error. The empty text selects keys without an error.
    pub error: Option<String>,
}

/// Which objects of a view a list contains.
#[derive(Debug, Default)]
pub struct ViewFilter {
    /// Only these keys.
    pub keys: KeyFilter,
    /// Only keys that this source owns.
    pub source: Option<String>,
}

/// The limits of a page. The page ends at the first limit that is reached.
#[derive(Clone, Copy, Debug)]
pub struct PageLimit {
    /// Maximum number of entries.
    pub entries: usize,
    /// Approximate size in bytes. The last entry may exceed it.
    pub bytes: usize,
}

/// A page of a list.
#[derive(Debug)]
pub struct ListPage<T, P> {
    /// The entries.
    pub entries: Vec<T>,
    /// The position of the last examined key; `None` on the last page.
    pub next: Option<P>,
    /// The queue's newest event when the page was read.
    pub resource_version: Rv,
    /// When the page was read.
    pub moment: Moment,
}

impl Handle {
    /// The items after `after`.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn items(
        &self,
        filter: &ItemFilter,
        after: ItemPosition,
        limit: PageLimit,
    ) -> Result<ListPage<KeyState, ItemPosition>, Error> {
        self.read(|queue, moment| item_page(queue, filter, after, limit, moment)).await
    }

    /// A key that is ready, delayed, leased or parked, or has failures; and the queue's newest event.
    ///
    /// # Errors
    /// Same as [`items`](Self::items).
    pub async fn item(&self, key: &Key) -> Result<(Option<(KeyState, Moment)>, Rv), Error> {
        let is_item = |entry: &&Entry| {
            let state = &entry.schedule_state;
            state.has_work() || state.failures > 0
        };
        let item = self.read(|queue, moment| {
            let entry = queue.table().get(key.as_str()).filter(is_item);
            let group = queue.table().find(key.as_str()).and_then(|slot| queue.group_of(slot));
            (entry.map(|entry| (entry.state(group), moment)), queue.resource_version())
        });
        item.await
    }

    /// The key, if [`items`](Self::items) lists it; and the queue's newest event.
    ///
    /// # Errors
    /// Same as [`items`](Self::items).
    pub async fn listed_item(
        &self,
        key: &Key,
        filter: &ItemFilter,
    ) -> Result<(Option<(KeyState, Moment)>, Rv), Error> {
        let is_listed = |entry: &&Entry| {
            let mut states = filter.states.iter().copied();
            states.any(|state| is_in(entry, state) && filter.includes(entry, state))
        };
        let item = self.read(|queue, moment| {
            let entry = queue.table().get(key.as_str()).filter(is_listed);
            let group = queue.table().find(key.as_str()).and_then(|slot| queue.group_of(slot));
            (entry.map(|entry| (entry.state(group), moment)), queue.resource_version())
        });
        item.await
    }

    /// Why a key is not delivered.
    ///
    /// # Errors
    /// Same as [`items`](Self::items).
    pub async fn explain(&self, key: &Key) -> Result<(Explanation, Moment), Error> {
        self.read(|queue, moment| (queue.explain(moment.now, key), moment)).await
    }

    /// The objects of a view after the key `after`, in key order.
    ///
    /// # Errors
    /// Same as [`items`](Self::items).
    pub async fn view_objects(
        &self,
        view: View,
        filter: &ViewFilter,
        after: Option<String>,
        limit: PageLimit,
    ) -> Result<ListPage<ViewObject, Key>, Error> {
        self.read(|queue, moment| view_page(queue, view, filter, after.as_deref(), limit, moment)).await
    }

    /// The first groups, and the queue's newest event; `None` without the setting `groups`.
    ///
    /// # Errors
    /// Same as [`items`](Self::items).
    pub async fn groups(&self, sort: GroupSort, most: usize) -> Result<(Option<GroupList>, Rv), Error> {
        self.read(|queue, moment| (queue.groups(moment.now, sort, most), queue.resource_version())).await
    }

    /// The object of a key in a view, and the queue's newest event.
    ///
    /// # Errors
    /// Same as [`items`](Self::items).
    pub async fn view_object(&self, view: View, key: &Key) -> Result<(Option<ViewObject>, Rv), Error> {
        let object =
            |queue: &Queue| Some(queue.with_birth(view, queue.table().get(key.as_str())?.object_in(view)?));
        self.read(|queue, _| (object(queue), queue.resource_version())).await
    }
}

impl ViewFilter {
    /// The lower bound of the keys of a page: `after`, or the prefix if it is larger.
    pub(crate) fn from<'k>(&'k self, after: Option<&'k str>) -> Bound<&'k str> {
        let prefix = self.keys.prefix.as_str();
        after.filter(|after| *after >= prefix).map_or(Bound::Included(prefix), Bound::Excluded)
    }

    /// Whether the list has this object.
    #[must_use]
    pub fn includes(&self, object: &ViewObject) -> bool {
        let is_owned = |wanted: &str| object.owner.as_deref() == Some(wanted);
        self.keys.includes(&object.key) && self.source.as_deref().is_none_or(is_owned)
    }
}

fn item_page(
    queue: &Queue,
    filter: &ItemFilter,
    after: ItemPosition,
    limit: PageLimit,
    moment: Moment,
) -> ListPage<KeyState, ItemPosition> {
    let mut entries = Vec::new();
    let (mut examined, mut bytes) = (0, 0);
    let (mut next, mut has_more) = (None, false);
    let first = after.state;
    let mut after = Some(after);
    'states: for state in filter.states.iter().copied().filter(|state| *state >= first) {
        let from = after.take().filter(|after| after.state == state);
        let from = from.unwrap_or_else(|| ItemPosition::start(state));
        for (slot, position) in in_state(queue, &from) {
            has_more = entries.len() == limit.entries || examined == EXAMINED_MAX || bytes >= limit.bytes;
            if has_more {
                break 'states;
            }
            examined += 1;
            if let Some(entry) = queue.table().at(slot).filter(|entry| filter.includes(entry, state)) {
                let deltas = entry.waiting.len() + entry.leased.len();
                bytes += entry.waiting.bytes() + entry.leased.bytes() + deltas * DELTA_BYTES;
                entries.push(entry.state(queue.group_of(slot)));
            }
            next = Some(position);
        }
    }
    let next = next.filter(|_| has_more);
    ListPage { entries, next, resource_version: queue.resource_version(), moment }
}

impl ItemFilter {
    fn includes(&self, entry: &Entry, state: ListedState) -> bool {
        let worker = entry.schedule_state.lease().and_then(|lease| lease.worker.as_deref());
        let is_wanted = self.worker.as_deref().is_none_or(|wanted| worker == Some(wanted))
            && entry.key.as_str().starts_with(&self.prefix)
            && self
                .error
                .as_deref()
                .is_none_or(|wanted| entry.schedule_state.last_error().unwrap_or_default() == wanted)
            && self
                .source
                .as_deref()
                .is_none_or(|wanted| entry.owner().is_some_and(|owner| owner.as_str() == wanted));
        // A leased or ready key may also have a delay.
        is_wanted && (state != ListedState::Delayed || entry.schedule_state.is_delayed())
    }
}

/// Whether the list of a state has the key. A leased or ready key that also has a delay is not in the list of delayed keys.
fn is_in(entry: &Entry, state: ListedState) -> bool {
    let schedule = &entry.schedule_state;
    match state {
        ListedState::Ready => matches!(schedule.place, Place::Ready(_)),
        ListedState::Delayed => schedule.is_delayed(),
        ListedState::Leased => matches!(schedule.place, Place::Leased(_)),
        ListedState::Parked => schedule.place == Place::Parked,
    }
}

/// The keys in a state after `from`, in the order of the state, with their positions.
fn in_state<'q>(
    queue: &'q Queue,
    from: &'q ItemPosition,
) -> Box<dyn Iterator<Item = (Slot, ItemPosition)> + 'q> {
    let schedule = queue.schedule();
    let start = ItemPosition::start(from.state);
    match from.state {
        ListedState::Ready => {
            let ready = queue.ready_after(Turn { arrival: from.arrival, rv: from.rv });
            let position =
                move |turn: Turn| ItemPosition { arrival: turn.arrival, rv: turn.rv, ..start.clone() };
            Box::new(ready.map(move |(turn, slot)| (slot, position(turn))))
        }
        ListedState::Delayed => {
            let delayed = queue.delayed_after((from.at, from.rv));
            Box::new(delayed.map(move |(at, rv, slot)| (slot, ItemPosition { at, rv, ..start.clone() })))
        }
        ListedState::Leased => {
            let leased = schedule.leased_after((from.at, Token::new(from.rv)));
            Box::new(
                leased.map(move |(at, token, slot)| {
                    (slot, ItemPosition { at, rv: token.rv(), ..start.clone() })
                }),
            )
        }
        ListedState::Parked => {
            let after = from.key.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
            let parked = schedule.parked_from(after);
            Box::new(
                parked
                    .map(move |(key, slot)| (slot, ItemPosition { key: Some(key.clone()), ..start.clone() })),
            )
        }
    }
}

fn view_page(
    queue: &Queue,
    view: View,
    filter: &ViewFilter,
    after: Option<&str>,
    limit: PageLimit,
    moment: Moment,
) -> ListPage<ViewObject, Key> {
    let sorted = queue.table().from(filter.from(after)).map(|(_, entry)| entry);
    page_of(sorted, queue, view, filter, limit, moment)
}

/// A page of the objects of entries, which are in key order and begin at [`ViewFilter::from`].
pub(crate) fn page_of<'q>(
    sorted: impl Iterator<Item = &'q Entry>,
    queue: &Queue,
    view: View,
    filter: &ViewFilter,
    limit: PageLimit,
    moment: Moment,
) -> ListPage<ViewObject, Key> {
    let prefix = filter.keys.prefix.as_str();
    let (mut entries, mut last, mut has_more) = (Vec::new(), None, false);
    let (mut examined, mut bytes) = (0, 0);
    for entry in sorted.take_while(|entry| entry.key.as_str().starts_with(prefix)) {
        has_more = entries.len() == limit.entries || examined == EXAMINED_MAX || bytes >= limit.bytes;
        if has_more {
            break;
        }
        examined += 1;
        last = Some(&entry.key);
        let is_owned = || {
            filter.source.is_none() || entry.owner_in(view).map(Source::as_str) == filter.source.as_deref()
        };
        let is_wanted = filter.keys.includes(&entry.key) && is_owned();
        if let Some(found) = is_wanted.then(|| entry.object_in(view)).flatten() {
            bytes += found.object.bytes() + DELTA_BYTES;
            entries.push(queue.with_birth(view, found));
        }
    }
    let next = last.filter(|_| has_more).cloned();
    ListPage { entries, next, resource_version: queue.resource_version(), moment }
}
