//! The local copy of a view: one writer, any number of readers.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::timeout;

/// The values of an object in an index.
pub(super) type IndexFunction<T> = Arc<dyn Fn(&T) -> Vec<String> + Send + Sync>;
/// The objects of a view by key.
type Objects<T> = HashMap<Arc<str>, Arc<Object<T>>>;

/// An object of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<T> {
    /// The key.
    pub key: Arc<str>,
    /// The version of the key in the view.
    pub resource_version: u64,
    /// The owner of the key.
    pub source: Option<String>,
    /// The object.
    pub object: T,
}

/// A change of a key in the store.
pub(super) struct Change<T> {
    pub(super) key: Arc<str>,
    pub(super) old: Option<Arc<Object<T>>>,
    /// The new object; `None` if the key was removed.
    pub(super) new: Option<Arc<Object<T>>>,
    /// The last state of a removed key; `None` if it is unknown.
    pub(super) last: Option<Arc<Object<T>>>,
}

/// A reader of the local copy of a view. Clones read the same copy.
pub struct Store<T> {
    state: Arc<RwLock<Contents<T>>>,
    has_synced: watch::Receiver<bool>,
}

/// The writer of the local copy.
pub(super) struct Writer<T> {
    state: Arc<RwLock<Contents<T>>>,
    has_synced: watch::Sender<bool>,
}

struct Contents<T> {
    objects: Objects<T>,
    indexes: HashMap<String, Index<T>>,
}

struct Index<T> {
    function: IndexFunction<T>,
    keys: HashMap<String, BTreeSet<Arc<str>>>,
}

/// A signal that becomes true once, and stays true.
#[derive(Clone, Debug)]
pub struct SyncSignal(watch::Receiver<bool>);

/// Waits until all signals are true, as client-go's WaitForCacheSync does. Returns false if an informer ends first,
/// or if `patience` runs out.
pub async fn wait_for_cache_sync(signals: impl IntoIterator<Item = SyncSignal>, patience: Duration) -> bool {
    let all = async {
        for signal in signals {
            if !signal.wait().await {
                return false;
            }
        }
        true
    };
    timeout(patience, all).await.unwrap_or(false)
}

impl SyncSignal {
    pub(super) const fn new(receiver: watch::Receiver<bool>) -> Self {
        Self(receiver)
    }

    /// Whether the signal is true.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the signal is true. Returns false if the informer ends first.
    pub async fn wait(mut self) -> bool {
        self.0.wait_for(|has_synced| *has_synced).await.is_ok()
    }
}

impl<T> Store<T> {
    /// The object of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Object<T>>> {
        self.state.read().objects.get(key).cloned()
    }

    /// All objects, in no particular order.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        self.state.read().objects.values().cloned().collect()
    }

    /// The keys of all objects, in no particular order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.state.read().objects.keys().map(ToString::to_string).collect()
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Whether the store has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects that have a value in an index, by key. An index that does not exist has no values.
    #[must_use]
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Arc<Object<T>>> {
        let state = self.state.read();
        let keys = state.indexes.get(name).and_then(|index| index.keys.get(value));
        keys.into_iter().flatten().filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// The values of an index, in no particular order.
    #[must_use]
    pub fn index_values(&self, name: &str) -> Vec<String> {
        let state = self.state.read();
        state.indexes.get(name).map(|index| index.keys.keys().cloned().collect()).unwrap_or_default()
    }

    /// Whether the store has all objects of the first list.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        *self.has_synced.borrow()
    }

    /// The signal of [`Store::has_synced`], for [`wait_for_cache_sync`].
    #[must_use]
    pub fn synced(&self) -> SyncSignal {
        SyncSignal(self.has_synced.clone())
    }
}

impl<T> Writer<T> {
    pub(super) fn new() -> Self {
        let state = Contents { objects: HashMap::new(), indexes: HashMap::new() };
        Self { state: Arc::new(RwLock::new(state)), has_synced: watch::Sender::new(false) }
    }

    pub(super) fn reader(&self) -> Store<T> {
        Store { state: self.state.clone(), has_synced: self.has_synced.subscribe() }
    }

    pub(super) fn add_index(&self, name: String, function: IndexFunction<T>) {
        let mut state = self.state.write();
        let mut index = Index { function, keys: HashMap::new() };
        state.objects.values().for_each(|object| index.insert(object));
        state.indexes.insert(name, index);
    }

    /// All objects, and whether the first list is complete.
    pub(super) fn snapshot(&self) -> (Vec<Arc<Object<T>>>, bool) {
        (self.state.read().objects.values().cloned().collect(), *self.has_synced.borrow())
    }

    /// Sets the object of a key.
    pub(super) fn apply(&self, object: Arc<Object<T>>) -> Change<T> {
        let key = object.key.clone();
        let mut state = self.state.write();
        let old = state.remove(&key);
        state.indexes.values_mut().for_each(|index| index.insert(&object));
        state.objects.insert(key.clone(), object.clone());
        Change { key, old, new: Some(object), last: None }
    }

    /// Removes a key; `None` if the store does not have it.
    pub(super) fn delete(&self, key: Arc<str>, last: Option<Arc<Object<T>>>) -> Option<Change<T>> {
        let old = self.state.write().remove(&key)?;
        Some(Change { key, old: Some(old), new: None, last })
    }

    /// Replaces all objects with those of a list. Returns the changes: every listed object, and the removed keys,
    /// whose final state is unknown. Readers wait only while the objects are exchanged.
    pub(super) fn replace(&self, objects: Objects<T>) -> Vec<Change<T>> {
        let before = self.state.read();
        let change = |key: &Arc<str>, old: Option<&Arc<Object<T>>>, new: Option<&Arc<Object<T>>>| Change {
            key: key.clone(),
            old: old.cloned(),
            new: new.cloned(),
            last: None,
        };
        let gone = before.objects.iter().filter(|(key, _)| !objects.contains_key(*key));
        let gone = gone.map(|(key, old)| change(key, Some(old), None));
        let listed = objects.iter().map(|(key, new)| change(key, before.objects.get(key), Some(new)));
        let changes = gone.chain(listed).collect();
        let functions = before.indexes.iter().map(|(name, index)| (name.clone(), index.function.clone()));
        let functions: Vec<_> = functions.collect();
        drop(before);
        let indexes = functions.into_iter().map(|(name, function)| {
            let mut index = Index { function, keys: HashMap::new() };
            for object in objects.values() {
                index.insert(object);
            }
            (name, index)
        });
        let state = Contents { indexes: indexes.collect(), objects };
        let _former = std::mem::replace(&mut *self.state.write(), state);
        self.has_synced.send_replace(true);
        changes
    }
}

impl<T> Contents<T> {
    fn remove(&mut self, key: &str) -> Option<Arc<Object<T>>> {
        let object = self.objects.remove(key)?;
        self.indexes.values_mut().for_each(|index| index.remove(&object));
        Some(object)
    }
}

impl<T> Index<T> {
    fn insert(&mut self, object: &Arc<Object<T>>) {
        for value in (self.function)(&object.object) {
            self.keys.entry(value).or_default().insert(object.key.clone());
        }
    }

    fn remove(&mut self, object: &Object<T>) {
        for value in (self.function)(&object.object) {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(&object.key);
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), has_synced: self.has_synced.clone() }
    }
}

impl<T> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("len", &self.len()).finish_non_exhaustive()
    }
}
