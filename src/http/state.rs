//! What the handlers share.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::lifecycle::Shutdown;
use crate::service::Registry;

/// What handlers share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AppState {
    /// All queues.
    pub registry: Arc<Registry>,
    /// Bounds of the HTTP layer.
    pub limits: Arc<HttpLimits>,
    /// The clock of the process.
    pub clock: Clock,
    /// The stage of the process.
    pub shutdown: Shutdown,
    /// When the process started, in microseconds since the Unix epoch.
    pub started_us: u64,
    /// What an answer outlives.
    pub durability: Durability,
    /// Whether `/metrics` is served here too.
    pub serves_metrics: bool,
}

/// What an answer outlives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: queues end with the process.
    Memory,
    /// The process; a power loss may take the last moments.
    Normal,
    /// A power loss.
    Full,
}

impl Durability {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Normal => "normal",
            Self::Full => "full",
        }
    }
}

/// Bounds of the HTTP layer; each is a setting.
#[derive(Clone, Debug)]
pub struct HttpLimits {
    /// Names besides loopback's that `Host` may have.
    pub allowed_hosts: Vec<String>,
    /// Longest pause between two pieces of a body.
    pub body_read_timeout: Duration,
    /// Longest body that is not a stream of objects, in bytes.
    pub max_body_bytes: usize,
    /// Largest head of a request, in bytes.
    pub max_header_bytes: usize,
    /// Longest `wait`.
    pub max_wait: Duration,
    /// Most objects in one produce call.
    pub max_batch: usize,
    /// Most objects in one Replace or seed.
    pub max_replace_objects: usize,
    /// Most bytes of objects in one answer.
    pub max_reply_bytes: usize,
}
