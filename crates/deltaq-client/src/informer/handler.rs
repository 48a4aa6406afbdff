//! The interface between an informer and its handlers.

use std::fmt;
use std::sync::Arc;

use super::store::{Object, SyncSignal};

/// A handler of the changes of a store. Each handler runs in its own task, one call at a time. It may be slow,
/// because waiting changes of the same key are merged.
pub trait Handler<T: Send + Sync + 'static>: Send + 'static {
    /// Called for an object that is new to the handler. `is_in_initial_list` is true if the object was in the first
    /// list, or in the store when the handler was added.
    fn on_add(&mut self, object: Arc<Object<T>>, is_in_initial_list: bool)
    -> impl Future<Output = ()> + Send;

    /// Called for an object that has changed, and also for unchanged objects after a resync and after a new list (410).
    fn on_update(&mut self, old: Arc<Object<T>>, new: Arc<Object<T>>) -> impl Future<Output = ()> + Send;

    /// Called for an object that was deleted.
    fn on_delete(&mut self, deleted: Deleted<T>) -> impl Future<Output = ()> + Send;
}

/// A deleted object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted<T> {
    /// The last state of the object.
    Final(Arc<Object<T>>),
    /// The informer missed the deletion, or the server does not have the last state.
    FinalStateUnknown(DeletedFinalStateUnknown<T>),
}

/// A deletion that the informer missed, as client-go's type of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedFinalStateUnknown<T> {
    /// The key.
    pub key: Arc<str>,
    /// The last state in the store. The object may have changed since.
    pub object: Arc<Object<T>>,
}

impl<T> Deleted<T> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.object().key
    }

    /// The last known state.
    #[must_use]
    pub const fn object(&self) -> &Arc<Object<T>> {
        match self {
            Self::Final(object) => object,
            Self::FinalStateUnknown(deleted) => &deleted.object,
        }
    }
}

/// The registration of a handler with an informer.
pub struct Registration {
    synced: SyncSignal,
    remove: Box<dyn Fn() + Send + Sync>,
}

impl Registration {
    pub(super) fn new(synced: SyncSignal, remove: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { synced, remove }
    }

    /// Whether the handler has returned from `on_add` for all objects of the first list or, if the handler was added
    /// later, for all objects that were in the store.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced.has_synced()
    }

    /// The signal of [`Registration::has_synced`], for [`wait_for_cache_sync`](super::wait_for_cache_sync).
    #[must_use]
    pub fn synced(&self) -> SyncSignal {
        self.synced.clone()
    }

    /// Removes the handler. A call that is running continues, and no other call follows. Dropping a registration does
    /// not remove the handler.
    pub fn remove(&self) {
        (self.remove)();
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("has_synced", &self.has_synced()).finish_non_exhaustive()
    }
}
