//! The memory that a queue may still take. The caller of the engine knows it, because all queues share it.

use std::sync::Arc;

/// The memory that a queue shares with others. By default there is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The bytes that the queues of the token hold, or all queues without a token.
    pub held: usize,
    /// The bytes that these queues may hold.
    pub limit: usize,
    /// The bytes that the queues of all tokens may hold.
    pub max: usize,
    /// The name of the token that shares the memory with others.
    pub token: Option<Arc<str>>,
}

impl Default for Room {
    fn default() -> Self {
        Self { held: 0, limit: usize::MAX, max: usize::MAX, token: None }
    }
}
