//! Determines which partition of a store a queue is in.

use deltaq_types::name::Name;

/// The partition of the queue of this name in a store with `count` partitions.
#[must_use]
pub fn partition_of(name: &Name, count: usize) -> usize {
    match count {
        0 | 1 => 0,
        count => crc32c::crc32c(name.group().as_bytes()) as usize % count,
    }
}
