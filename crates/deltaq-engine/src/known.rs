//! Known objects: for each key, the object that consumers acknowledged last.

use super::id::{Rv, Source};
use super::limits::DELTA_BYTES;
use super::object::Object;

/// The object that consumers acknowledged last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The object.
    pub object: Object,
    /// The version: the event that made the object known, which is an ack or a seed.
    pub rv: Rv,
    /// The owner of the key as of this object.
    pub owner: Option<Source>,
}

impl Known {
    /// Bytes that the known object takes in memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.object.bytes() + DELTA_BYTES + self.owner.as_ref().map_or(0, |owner| owner.len())
    }
}

/// Sets or removes the known object of a key. `count` is the number of known objects in the queue.
pub(super) fn set_known(of_key: &mut Option<Box<Known>>, known: Option<Known>, count: &mut usize) {
    *count -= usize::from(of_key.is_some());
    *count += usize::from(known.is_some());
    match (of_key, known) {
        // Reuses the memory of the old object.
        (Some(old), Some(new)) => **old = new,
        (old, new) => *old = new.map(Box::new),
    }
}
