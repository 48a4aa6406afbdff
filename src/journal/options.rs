//! How much the writer does at a time.

use std::ops::RangeInclusive;

use super::SEGMENT_BYTES;

/// The sizes of the writer's steps. Tests make them small, so that little work takes many steps.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// A checkpoint begins once the journal has grown by so many bytes, or by half of the live state: then
    /// what it is done with goes before the journal has more than its retention keeps.
    pub growth_bytes_min: u64,
    /// Least and most room of a slice of a checkpoint, in short rows; a long one takes that of several.
    pub rows: RangeInclusive<usize>,
    /// Most keys that are captured at a time, under their queue's lock.
    pub captured: usize,
    /// Most keys that are looked at for it: looking is much cheaper.
    pub looked_at: usize,
    /// The journal is trimmed in segments of about this many bytes.
    pub segment_bytes: u64,
    /// Changes are refused while about this many bytes wait to be committed.
    pub uncommitted_bytes_max: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            growth_bytes_min: 64 << 20,
            rows: 64..=8_192,
            captured: 256,
            looked_at: 8_192,
            segment_bytes: SEGMENT_BYTES,
            uncommitted_bytes_max: 256 << 20,
        }
    }
}
