//! What the users of an informer implement and get.

use std::fmt;
use std::sync::Arc;

use super::store::{Object, SyncSignal};

/// A handler of the changes of a store. Each handler runs in a task of its own, one call after the other, and may take its time: changes of a
/// key that wait for it are merged.
pub trait Handler<T: Send + Sync + 'static>: Send + 'static {
    /// An object is new to the handler. `is_in_initial_list`: it was in the first list, or in the store when the handler was added.
    fn on_add(&mut self, object: Arc<Object<T>>, is_in_initial_list: bool)
    -> impl Future<Output = ()> + Send;

    /// An object has changed. Also called for objects that have not changed: at a resync, and after a new list (410).
    fn on_update(&mut self, old: Arc<Object<T>>, new: Arc<Object<T>>) -> impl Future<Output = ()> + Send;

    /// An object is gone.
    fn on_delete(&mut self, deleted: Deleted<T>) -> impl Future<Output = ()> + Send;
}

/// An object that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted<T> {
    /// Its last state.
    Final(Arc<Object<T>>),
    /// The deletion itself was missed, or the server does not have the last state.
    FinalStateUnknown(DeletedFinalStateUnknown<T>),
}

/// A deletion that was missed, as client-go's type of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedFinalStateUnknown<T> {
    /// The key.
    pub key: Arc<str>,
    /// The last state that the store had. The object may have changed since.
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

/// A handler of an informer.
pub struct Registration {
    synced: SyncSignal,
    remove: Box<dyn Fn() + Send + Sync>,
}

impl Registration {
    pub(super) fn new(synced: SyncSignal, remove: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { synced, remove }
    }

    /// Whether the handler has returned from `on_add` of all objects of the first list or, if the handler was added later, of the store.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced.has_synced()
    }

    /// The signal of [`Registration::has_synced`], for [`wait_for_cache_sync`](super::wait_for_cache_sync).
    #[must_use]
    pub fn synced(&self) -> SyncSignal {
        self.synced.clone()
    }

    /// Removes the handler: after the call that is under way it gets nothing more. A registration that is only dropped changes nothing.
    pub fn remove(&self) {
        (self.remove)();
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("has_synced", &self.has_synced()).finish_non_exhaustive()
    }
}
