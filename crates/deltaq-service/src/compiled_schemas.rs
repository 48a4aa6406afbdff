//! The memory of compiled schemas. They are derived from texts, so they can be dropped and compiled again.

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The owner of a compiled schema.
pub(crate) trait Compiled: Debug + Send + Sync {
    /// Drops the compiled schema, which is compiled again when it is needed.
    fn drop_compiled(&self);
}

/// The compiled schemas of all queues. If they take more memory than they may, the largest are dropped, so the small ones of other
/// queues stay.
#[derive(Debug)]
pub(crate) struct CompiledSchemas {
    bytes_max: usize,
    held: Mutex<Vec<(Weak<dyn Compiled>, usize)>>,
}

impl CompiledSchemas {
    /// Holds at most this many bytes, or a single schema.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, held: Mutex::default() }
    }

    /// Records that the owner has compiled a schema of this size.
    pub(crate) fn note(&self, owner: &Arc<dyn Compiled>, bytes: usize) {
        let mut held = self.held.lock();
        held.retain(|(other, _)| other.upgrade().is_some_and(|other| !Arc::ptr_eq(&other, owner)));
        let mut sum = held.iter().map(|(_, bytes)| bytes).sum::<usize>() + bytes;
        while sum > self.bytes_max
            && let Some((largest, _)) = held.iter().enumerate().max_by_key(|(_, (_, bytes))| bytes)
        {
            let (other, bytes) = held.swap_remove(largest);
            sum -= bytes;
            if let Some(other) = other.upgrade() {
                other.drop_compiled();
            }
        }
        held.push((Arc::downgrade(owner), bytes));
    }
}
