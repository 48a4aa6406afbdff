//! Options of the writer: how much it does at a time.

use std::ops::RangeInclusive;

/// The journal is trimmed in segments of about this many bytes.
pub(super) const SEGMENT_BYTES: u64 = 256 << 10;

/// The sizes of the writer's steps, and the limit on uncommitted bytes. Tests use small sizes, so that little work
/// takes many steps.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// A checkpoint begins when the journal has grown by this many bytes, or by half the size of the live state if
    /// that is larger. The checkpoint then completes before the journal exceeds its retention.
    pub growth_bytes_min: u64,
    /// The smallest and the largest size of a checkpoint chunk, in bytes. A chunk has at least one run.
    pub chunk_bytes: RangeInclusive<usize>,
    /// A run with this many bytes is full. A single entry may be larger.
    pub run_bytes: usize,
    /// The runs of a queue may have twice this many bytes, or twice as many as its state has if that is more. Then the next
    /// checkpoint contains the whole state.
    pub state_bytes_min: u64,
    /// Maximum number of keys that are captured at a time, under their queue's lock.
    pub captured: usize,
    /// Maximum number of keys that are examined at a time. Examining a key costs much less than capturing it.
    pub examined: usize,
    /// The journal is trimmed in segments of about this many bytes.
    pub segment_bytes: u64,
    /// Unused texts are removed when at least this many bytes of new texts were written.
    pub text_bytes_min: u64,
    /// Changes are refused while at least this many bytes wait to be committed.
    pub uncommitted_bytes_max: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            growth_bytes_min: 64 << 20,
            chunk_bytes: 16 << 10..=8 << 20,
            run_bytes: 64 << 10,
            state_bytes_min: 8 << 10,
            captured: 256,
            examined: 8_192,
            segment_bytes: SEGMENT_BYTES,
            text_bytes_min: 16 << 20,
            uncommitted_bytes_max: 256 << 20,
        }
    }
}
