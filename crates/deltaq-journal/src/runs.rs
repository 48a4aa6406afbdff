//! The runs of a queue's checkpoints: their numbers and their size.

use std::ops::Range;

use super::store::{REMOVED_BYTES_MAX, REMOVED_RUNS_MAX};

/// A run takes this many bytes more than its entries, so that many small runs count as much.
const RUN_BYTES: u64 = 1_024;

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
    /// Bytes of the largest run that is known.
    largest: u64,
    /// Bytes of the entries of a whole state, in thousandths of the estimate of the engine.
    scale: u64,
}

impl Runs {
    /// The runs of a queue without checkpoints.
    pub const NONE: Self = Self::from(0);

    /// Runs that begin with this number.
    pub(super) const fn from(first: u64) -> Self {
        Self { oldest: first, first, next: first, bytes: 0, largest: 0, scale: 1_000 }
    }

    /// The numbers of the runs that are not obsolete.
    pub(super) const fn numbers(self) -> Range<u64> {
        self.first..self.next
    }

    /// Whether more than half of the bytes are outdated. `live_bytes` is the engine's estimate of a whole state.
    pub(super) fn has_much_garbage(self, live_bytes: u64, state_bytes_min: u64) -> bool {
        let live_bytes = u128::from(live_bytes) * u128::from(self.scale) / 1_000;
        u128::from(self.bytes) > 2 * live_bytes.max(state_bytes_min.into())
    }

    /// Compares the bytes of a whole state with the engine's estimate, which leaves out errors and names.
    pub(super) fn measure(&mut self, bytes: u64, live_bytes: u64) {
        self.scale = (bytes.saturating_mul(1_000) / live_bytes.max(1)).clamp(1_000, 1_000_000);
    }

    /// Makes all runs obsolete.
    pub(super) const fn begin_again(&mut self) {
        (self.first, self.bytes) = (self.next, 0);
    }

    /// Adds a run.
    pub(super) fn add(&mut self, bytes: u64) {
        self.next += 1;
        self.count(bytes);
    }

    /// Counts the bytes of a run.
    pub(super) fn count(&mut self, bytes: u64) {
        self.bytes += bytes + RUN_BYTES;
        self.largest = self.largest.max(bytes);
    }

    /// The numbers of obsolete runs that are removed next, at most `most`.
    pub(super) fn obsolete(self, most: u64) -> Option<Range<u64>> {
        let fitting = (REMOVED_BYTES_MAX / self.largest.max(1)).clamp(1, REMOVED_RUNS_MAX.into());
        let end = self.first.min(self.oldest + fitting.min(most));
        (self.oldest < end).then_some(self.oldest..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_are_removed_at_a_time() {
        let mut runs = Runs::NONE;
        for _ in 0..200 {
            runs.add(1_000);
        }
        runs.begin_again();
        assert_eq!((runs.obsolete(u64::MAX), runs.obsolete(9)), (Some(0..64), Some(0..9)));
        runs.add(1 << 20);
        assert_eq!(runs.obsolete(u64::MAX), Some(0..4));
        runs.add(1 << 30);
        assert_eq!(runs.obsolete(u64::MAX), Some(0..1));
        runs.oldest = runs.first;
        assert_eq!(runs.obsolete(u64::MAX), None);
    }

    /// The estimate knows neither the errors of failing keys nor the names of workers.
    #[test]
    fn a_state_that_is_larger_than_estimated_is_no_garbage() {
        let mut runs = Runs::NONE;
        runs.add(500_000);
        assert!(runs.has_much_garbage(100_000, 8_000));
        runs.measure(runs.bytes, 100_000);
        assert!(!runs.has_much_garbage(100_000, 8_000));
        runs.add(600_000);
        assert!(runs.has_much_garbage(100_000, 8_000), "half of it is outdated");
        assert!(!runs.has_much_garbage(200_000, 8_000), "the state has grown");
    }

    #[test]
    fn many_small_runs_are_garbage() {
        let mut runs = Runs::NONE;
        let mut count = 0;
        while !runs.has_much_garbage(200, 8 << 10) {
            runs.add(200);
            count += 1;
        }
        assert!((5..20).contains(&count), "{count} runs");
    }
}
