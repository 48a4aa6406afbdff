//! How much the writer does at a time.

use std::ops::RangeInclusive;

/// The journal is trimmed in segments of about this many bytes.
pub(super) const SEGMENT_BYTES: u64 = 256 << 10;

/// The sizes of the writer's steps, and the bound on uncommitted events. Tests make them small, so that
/// little work takes many steps.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// A checkpoint begins when the journal has grown by this many bytes, or by half of the live state if
    /// that is more. The checkpoint then completes before the journal exceeds its retention.
    pub growth_bytes_min: u64,
    /// The smallest and the largest size of a checkpoint chunk, in short rows. A long row counts as several.
    pub rows: RangeInclusive<usize>,
    /// Most keys that are captured at a time, under their queue's lock.
    pub captured: usize,
    /// Most keys that are examined at a time. To examine a key costs much less than to capture it.
    pub examined: usize,
    /// The journal is trimmed in segments of about this many bytes.
    pub segment_bytes: u64,
    /// Changes are refused while at least this many bytes wait to be committed.
    pub uncommitted_bytes_max: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            growth_bytes_min: 64 << 20,
            rows: 64..=8_192,
            captured: 256,
            examined: 8_192,
            segment_bytes: SEGMENT_BYTES,
            uncommitted_bytes_max: 256 << 20,
        }
    }
}
