//! The slot of a database that keeps its log for a source.

/// Where the slot of a source stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotState<'s> {
    pub(super) name: &'s str,
    /// The command that ends it.
    pub(super) drop: &'s str,
    /// How much of the database's log the queue does not have yet.
    pub(super) lag_bytes: u64,
    /// How much of its log the database keeps for the slot, and how much it may keep.
    pub(super) kept_bytes: u64,
    pub(super) limit_bytes: u64,
}
