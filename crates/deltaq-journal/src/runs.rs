//! The runs of a queue's checkpoints: their numbers and their size.

use std::ops::Range;

use super::store::REMOVED_RUNS_MAX;

/// The runs of a queue's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The smallest number that a run in the store may have.
    pub(super) oldest: u64,
    /// The number of the first run that is not obsolete.
    pub(super) first: u64,
    /// The number of the next run.
    pub(super) next: u64,
    /// Bytes of the runs that are not obsolete.
    pub(super) bytes: u64,
}

impl Runs {
    /// The runs of a queue without checkpoints.
    pub const NONE: Self = Self { oldest: 0, first: 0, next: 0, bytes: 0 };

    /// The numbers of the runs that are not obsolete.
    pub(super) const fn numbers(self) -> Range<u64> {
        self.first..self.next
    }

    /// Whether more than half of the bytes are outdated, if the state of the queue has `live_bytes`.
    pub(super) const fn has_much_garbage(self, live_bytes: u64, garbage_bytes_min: u64) -> bool {
        let live_bytes = if live_bytes > garbage_bytes_min { live_bytes } else { garbage_bytes_min };
        self.bytes > live_bytes.saturating_mul(2)
    }

    /// Makes all runs obsolete.
    pub(super) const fn begin_again(&mut self) {
        (self.first, self.bytes) = (self.next, 0);
    }

    /// Adds a run.
    pub(super) const fn add(&mut self, bytes: u64) {
        self.next += 1;
        self.bytes += bytes;
    }

    /// The numbers of obsolete runs that are removed next.
    pub(super) fn obsolete(self) -> Option<Range<u64>> {
        let end = self.first.min(self.oldest + u64::from(REMOVED_RUNS_MAX));
        (self.oldest < end).then_some(self.oldest..end)
    }
}
