//! A list that is being received. It takes effect as a whole, once it is complete.

use std::collections::HashMap;
use std::sync::Arc;

use super::Row;
use super::store::Object;

/// The objects of a list so far.
pub(super) struct Listing<T> {
    objects: HashMap<Arc<str>, Arc<Object<T>>>,
}

impl<T> Listing<T> {
    pub(super) fn apply(&mut self, row: Row<T>) {
        match row {
            Row::Present(object) => {
                self.objects.insert(object.key.clone(), object);
            }
            Row::Absent { key, .. } => {
                self.objects.remove(&key);
            }
        }
    }

    pub(super) fn into_objects(self) -> HashMap<Arc<str>, Arc<Object<T>>> {
        self.objects
    }
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { objects: HashMap::new() }
    }
}
