//! The number of queues that pops have created and to which nothing was ever produced.
//!
//! A worker may start before its producer, so a pop may create its queue. A caller that may only consume must not use up
//! `max_queues` in this way, so the registry counts the queues to which nothing was ever produced, and bounds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of unused queues. Clones are the same number.
#[derive(Clone, Debug, Default)]
pub(super) struct UnusedQueues(Arc<AtomicUsize>);

/// One unused queue, which counts until this value is dropped.
#[derive(Debug)]
pub(super) struct UnusedQueue(UnusedQueues);

impl UnusedQueues {
    /// The number of unused queues.
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Counts one more queue.
    pub(super) fn add(&self) -> UnusedQueue {
        self.0.fetch_add(1, Ordering::AcqRel);
        UnusedQueue(self.clone())
    }
}

impl Drop for UnusedQueue {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
