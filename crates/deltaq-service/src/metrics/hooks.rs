//! What became of the deliveries of a queue with a hook.

use std::sync::Arc;

use deltaq_types::DeliveryReason;

/// What became of the deliveries of a queue with a hook.
#[derive(Clone, Debug, Default)]
pub struct HookReport {
    /// Deliveries that were applied.
    pub applied: u64,
    /// Deliveries whose id had been applied.
    pub duplicate: u64,
    /// Deliveries that were not newer than the newest state of their key.
    pub stale: u64,
    /// Deliveries that were not applied, in the order of [`DeliveryReason::ALL`].
    pub rejected: [u64; DeliveryReason::ALL.len()],
    /// When the last delivery was applied, in microseconds since 1970.
    pub last_applied_us: Option<u64>,
    /// The last delivery that was not applied although it concerns the queue.
    pub last_rejected: Option<Rejected>,
    /// Number of kept deliveries, without those that `only` leaves out.
    pub kept: usize,
}

/// A delivery that was not applied.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// When, in microseconds since 1970.
    pub at_us: u64,
    /// Why, as a word.
    pub reason: DeliveryReason,
    /// Why, as a sentence.
    pub detail: Arc<str>,
}

/// What became of a delivery that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookResult {
    /// It was applied.
    Applied,
    /// Its id had been applied.
    Duplicate,
    /// It was not newer than the newest state of its key.
    Stale,
}
