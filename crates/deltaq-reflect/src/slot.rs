//! The replication slot of a source. The database keeps its log until the slot has moved on.

/// Where the slot of a source stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotState<'s> {
    pub(super) name: &'s str,
    /// The command that ends it.
    pub(super) drop: &'s str,
    /// The bytes of log that the queue does not have yet.
    pub(super) lag_bytes: u64,
    /// The bytes of log that the database keeps for the slot, and their limit.
    pub(super) kept_bytes: u64,
    pub(super) limit_bytes: u64,
}
