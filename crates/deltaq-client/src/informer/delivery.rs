//! The changes that wait for one handler.
//!
//! Invariant: a key waits at most once, and applying what waits for it to what the handler got last leads to the store.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::handler::{Deleted, DeletedFinalStateUnknown, Handler};
use super::store::{Change, Object, SyncSignal};

/// The changes that wait for one handler.
pub(super) struct Delivery<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Notify,
    has_synced: watch::Sender<bool>,
}

struct Waiting<T> {
    /// The keys of `order`.
    pending: HashMap<Arc<str>, Pending<T>>,
    /// Each waiting key with its number, the oldest first.
    order: VecDeque<(u64, Arc<str>)>,
    /// Number of keys that have been added to `order` so far.
    numbers: u64,
    /// The keys below this number belong to the first list; `None` until the first list is complete.
    initial_end: Option<u64>,
    is_closed: bool,
}

/// What has happened to a key since the handler was called for it.
struct Pending<T> {
    /// The object that the handler got last.
    old: Option<Arc<Object<T>>>,
    new: Option<Arc<Object<T>>>,
    /// The last state of a removed key; `None` if it is unknown.
    last: Option<Arc<Object<T>>>,
}

/// A call of the handler.
enum Event<T> {
    Add(Arc<Object<T>>, bool),
    Update(Arc<Object<T>>, Arc<Object<T>>),
    Delete(Deleted<T>),
}

impl<T: Send + Sync + 'static> Delivery<T> {
    /// Creates the delivery for a handler that begins with the objects of the store. These are its first list if the
    /// store has synced.
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

    /// Records a change of the store.
    pub(super) fn note(&self, change: &Change<T>) {
        self.waiting.lock().note(change);
        self.changed.notify_one();
    }

    /// Records that a list is complete. If it is the first list, all changes that wait now belong to it.
    pub(super) fn list_ended(&self) {
        let mut waiting = self.waiting.lock();
        let end = waiting.numbers;
        waiting.initial_end.get_or_insert(end);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Ends the delivery: the handler gets no more events.
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
                // The handler has returned from all previous events.
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

    /// Whether no change that belongs to the first list waits.
    fn has_synced(&self) -> bool {
        let first = self.order.front().map(|(number, _)| *number);
        self.initial_end.is_some_and(|end| first.is_none_or(|first| first >= end))
    }

    /// The next event for the handler. A key that was added and removed before the handler got it is skipped.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str, n: u64) -> Arc<Object<u64>> {
        Arc::new(Object { key: key.into(), resource_version: n, source: None, object: n })
    }

    fn change(key: &str, old: Option<u64>, new: Option<u64>) -> Change<u64> {
        let object = |n| object(key, n);
        Change { key: key.into(), old: old.map(object), new: new.map(object), last: None }
    }

    /// The next call, in words.
    fn next(delivery: &Delivery<u64>) -> Option<String> {
        Some(match delivery.waiting.lock().next()? {
            Event::Add(object, is_initial) => format!("add {} {} {is_initial}", object.key, object.object),
            Event::Update(old, new) => format!("update {} {} {}", new.key, old.object, new.object),
            Event::Delete(Deleted::Final(object)) => format!("delete {} {}", object.key, object.object),
            Event::Delete(Deleted::FinalStateUnknown(deleted)) => {
                format!("unknown {} {}", deleted.key, deleted.object.object)
            }
        })
    }

    #[test]
    fn changes_of_a_key_that_waits_are_merged() {
        let delivery = Delivery::new(vec![object("a", 1)], true);
        delivery.note(&change("a", Some(1), Some(2)));
        assert_eq!(next(&delivery).as_deref(), Some("add a 2 true"));
        delivery.note(&change("a", Some(2), Some(3)));
        delivery.note(&change("b", None, Some(1)));
        delivery.note(&change("a", Some(3), Some(4)));
        delivery.note(&change("b", Some(1), None));
        assert_eq!(next(&delivery).as_deref(), Some("update a 2 4"));
        assert_eq!(next(&delivery), None, "b came and went");
        delivery.note(&change("a", Some(4), Some(5)));
        delivery.note(&Change { last: Some(object("a", 6)), ..change("a", Some(5), None) });
        delivery.note(&change("c", None, Some(1)));
        assert_eq!(next(&delivery).as_deref(), Some("delete a 6"));
        assert_eq!(next(&delivery).as_deref(), Some("add c 1 false"));
        delivery.note(&change("c", Some(1), None));
        assert_eq!(next(&delivery).as_deref(), Some("unknown c 1"));
        delivery.note(&change("c", None, Some(2)));
        delivery.note(&change("c", Some(2), Some(2)));
        assert_eq!(next(&delivery).as_deref(), Some("add c 2 false"));
    }

    #[test]
    fn a_handler_has_synced_behind_the_first_list() {
        let delivery = Delivery::new(Vec::new(), false);
        let has_synced = || delivery.waiting.lock().has_synced();
        assert!(!has_synced(), "the list is not complete");
        delivery.note(&change("a", None, Some(1)));
        delivery.list_ended();
        delivery.note(&change("b", None, Some(1)));
        assert!(!has_synced(), "a waits");
        assert_eq!(next(&delivery).as_deref(), Some("add a 1 true"));
        assert!(has_synced(), "b is not in the first list");
        delivery.note(&change("a", Some(1), None));
        delivery.list_ended();
        assert!(has_synced(), "a second list changes nothing");
        assert!(Delivery::<u64>::new(Vec::new(), true).waiting.lock().has_synced(), "an empty store");
    }
}
