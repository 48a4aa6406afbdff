//! The interfaces that the journal calls: the queues that its checkpoints capture, and the metrics.

use std::fmt;
use std::time::Duration;

use deltaq_engine::Queue;

/// A loaded queue as the journal's checkpoint sees it.
pub trait Live: fmt::Debug + Send + Sync {
    /// Calls `look` with the queue, unless the queue is deleted or must be reloaded. Returns whether `look` was called.
    fn with(&self, look: &mut dyn FnMut(&mut Queue)) -> bool;

    /// Marks the queue as lost: captured parts of it were not written, so the queue must be reloaded.
    fn lose(&self);
}

/// Receives the journal's measurements, for metrics.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A commit of this many events has succeeded.
    fn committed(&self, events: usize, took: Duration);
    /// A checkpoint has completed.
    fn checkpointed(&self, took: Duration);
    /// The total size of all files and the number of events that a replay would apply.
    fn sized(&self, bytes: u64, lag_events: u64);
}
