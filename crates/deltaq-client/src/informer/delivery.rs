//! What waits for one handler.
//!
//! Invariant: a key waits at most once, and applying what waits for it to what the handler got last leads to the store.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::handler::{Deleted, DeletedFinalStateUnknown, Handler};
use super::store::{Change, Object, SyncSignal};

/// What waits for one handler.
pub(super) struct Delivery<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Notify,
    has_synced: watch::Sender<bool>,
}

struct Waiting<T> {
    /// The keys of `order`.
    pending: HashMap<Arc<str>, Pending<T>>,
    /// Each waiting key with its number, oldest first.
    order: VecDeque<(u64, Arc<str>)>,
    /// Keys that have ever waited.
    numbers: u64,
    /// The keys below this number belong to the first list; `None` until that is complete.
    initial_end: Option<u64>,
    is_closed: bool,
}

/// What has happened to a key since the handler was called for it.
struct Pending<T> {
    /// What the handler has.
    old: Option<Arc<Object<T>>>,
    new: Option<Arc<Object<T>>>,
    /// The last state of a key that is gone; `None` if that is unknown.
    last: Option<Arc<Object<T>>>,
}

/// A call of the handler.
enum Event<T> {
    Add(Arc<Object<T>>, bool),
    Update(Arc<Object<T>>, Arc<Object<T>>),
    Delete(Deleted<T>),
}

impl<T: Send + Sync + 'static> Delivery<T> {
    /// The handler begins with the objects of the store, which are its first list if the store has synced.
    pub(super) fn new(objects: Vec<Arc<Object<T>>>, has_synced: bool) -> Self {
        let mut waiting = Waiting {
            pending: HashMap::new(),
            order: VecDeque::new(),
            numbers: 0,
            initial_end: None,
            is_closed: false,
        };
        for object in objects {
            waiting.note(&Change { key: object.key.clone(), old: None, new: Some(object), last: None });
        }
        waiting.initial_end = has_synced.then_some(waiting.numbers);
        Self { waiting: Mutex::new(waiting), changed: Notify::new(), has_synced: watch::Sender::new(false) }
    }

    pub(super) fn signal(&self) -> SyncSignal {
        SyncSignal::new(self.has_synced.subscribe())
    }

    /// A change of the store.
    pub(super) fn note(&self, change: &Change<T>) {
        self.waiting.lock().note(change);
        self.changed.notify_one();
    }

    /// A list is complete. What waits now belongs to the first list, if this one is the first.
    pub(super) fn list_ended(&self) {
        let mut waiting = self.waiting.lock();
        let end = waiting.numbers;
        waiting.initial_end.get_or_insert(end);
        drop(waiting);
        self.changed.notify_one();
    }

    /// The handler gets nothing more.
    pub(super) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Runs the handler until the delivery is closed.
    pub(super) async fn run(self: Arc<Self>, mut handler: impl Handler<T>) {
        loop {
            let changed = self.changed.notified();
            let (event, has_synced) = {
                let mut waiting = self.waiting.lock();
                if waiting.is_closed {
                    return;
                }
                // The handler has returned from all events before this one.
                let has_synced = waiting.has_synced();
                (waiting.next(), has_synced)
            };
            if has_synced {
                self.has_synced.send_if_modified(|synced| !std::mem::replace(synced, true));
            }
            match event {
                Some(Event::Add(object, is_initial)) => handler.on_add(object, is_initial).await,
                Some(Event::Update(old, new)) => handler.on_update(old, new).await,
                Some(Event::Delete(deleted)) => handler.on_delete(deleted).await,
                None => changed.await,
            }
        }
    }
}

impl<T> Waiting<T> {
    fn note(&mut self, change: &Change<T>) {
        let Change { key, old, new, last } = change;
        match self.pending.entry(key.clone()) {
            Entry::Occupied(mut pending) => {
                let pending = pending.get_mut();
                (pending.new, pending.last) = (new.clone(), last.clone());
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Pending { old: old.clone(), new: new.clone(), last: last.clone() });
                self.order.push_back((self.numbers, key.clone()));
                self.numbers += 1;
            }
        }
    }

    /// Whether nothing waits that belongs to the first list.
    fn has_synced(&self) -> bool {
        let first = self.order.front().map(|(number, _)| *number);
        self.initial_end.is_some_and(|end| first.is_none_or(|first| first >= end))
    }

    /// The next call of the handler. A key that came and went before the handler got it is left out.
    fn next(&mut self) -> Option<Event<T>> {
        loop {
            let (number, key) = self.order.pop_front()?;
            let Some(Pending { old, new, last }) = self.pending.remove(&key) else { continue };
            let is_initial = self.initial_end.is_none_or(|end| number < end);
            return Some(match (old, new) {
                (None, Some(new)) => Event::Add(new, is_initial),
                (Some(old), Some(new)) => Event::Update(old, new),
                (Some(old), None) => Event::Delete(match last {
                    Some(last) => Deleted::Final(last),
                    None => Deleted::FinalStateUnknown(DeletedFinalStateUnknown { key, object: old }),
                }),
                (None, None) => continue,
            });
        }
    }
}
