//! What tokens permit, as far as running queues depend on it.

use std::fmt;

/// The current grants of all tokens.
pub trait Grants: fmt::Debug + Send + Sync + 'static {
    /// Whether the token of this name may read a queue.
    fn may_read(&self, token: &str, queue: &str) -> bool;

    /// Whether there are several tokens.
    fn are_several(&self) -> bool {
        false
    }
}

/// The grants of a server without tokens.
#[derive(Debug)]
pub(crate) struct Everyone;

impl Grants for Everyone {
    fn may_read(&self, _token: &str, _queue: &str) -> bool {
        true
    }
}
