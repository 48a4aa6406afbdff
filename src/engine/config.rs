//! The settings of one queue, validated.

use std::sync::Arc;
use std::time::Duration;

use super::delta::Cap;
use super::key::KeySpec;
use super::rate_limit::RateLimiter;
use crate::admission::Admission;

/// What a pop hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All deltas since the last acknowledgement (DeltaFIFO).
    Delta,
    /// One delta, the newest (FIFO).
    Latest,
    /// The key alone (workqueue).
    Keys,
}

impl Mode {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::Latest => "latest",
            Self::Keys => "keys",
        }
    }
}

/// How long events are kept after they are no longer needed to restore the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Oldest event kept, by age; `None` leaves it to `bytes`.
    pub age: Option<Duration>,
    /// Most bytes of events kept; `None` is as many as the queue's state takes, and 64 MiB at least.
    pub bytes: Option<u64>,
}

/// All settings of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What a pop hands out.
    pub mode: Mode,
    /// Where an object carries its key.
    pub key: KeySpec,
    /// Whether acknowledged objects are kept.
    pub known_objects: bool,
    /// Whether Replace queues `Replaced`; else `Sync`, as older client-go did.
    pub emit_replaced: bool,
    /// How long a lease lasts when the pop does not say.
    pub lease: Duration,
    /// Failures after which a key is parked; 0 is never.
    pub max_failures: u32,
    /// How long a failed key waits.
    pub rate_limiter: RateLimiter,
    /// How often all known objects are handed out again; `None` is never.
    pub resync_period: Option<Duration>,
    /// Most keys in the queue, known ones included.
    pub max_keys: usize,
    /// Longest object, in bytes of JSON.
    pub max_object_bytes: usize,
    /// Most deltas that wait for one key before the oldest are merged.
    pub max_deltas_per_key: usize,
    /// Most bytes of objects that wait for one key before the oldest are merged.
    pub max_bytes_per_key: usize,
    /// Replace refuses to delete more than this percentage of a source's keys, unless it says otherwise.
    pub max_delete_percent: Option<f64>,
    /// Replace refuses to delete more than this many keys, unless it says otherwise.
    pub max_deletes: Option<u64>,
    /// How long events are kept.
    pub retention: Retention,
    /// What is asked of objects before they are taken, and done to them.
    pub admission: Option<Arc<Admission>>,
}

impl Config {
    /// The bounds of a waiting list of deltas.
    #[must_use]
    pub fn cap(&self) -> Cap {
        Cap { deltas: self.max_deltas_per_key, bytes: self.max_bytes_per_key }
    }

    /// Whether at most one delta of a key waits.
    #[must_use]
    pub fn latest_only(&self) -> bool {
        self.mode == Mode::Latest
    }

    /// The first of the fields that can't change while the queue holds keys and differs in `next`.
    #[must_use]
    pub fn immutable_difference(&self, next: &Self) -> Option<&'static str> {
        if self.mode != next.mode {
            Some("mode")
        } else if self.key != next.key {
            Some("key")
        } else if self.known_objects != next.known_objects {
            Some("known_objects")
        } else {
            None
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Delta,
            key: KeySpec::default(),
            known_objects: true,
            emit_replaced: true,
            lease: Duration::from_secs(30),
            max_failures: 20,
            rate_limiter: RateLimiter::default(),
            resync_period: None,
            max_keys: 10_000_000,
            max_object_bytes: 1 << 20,
            max_deltas_per_key: 1_000,
            max_bytes_per_key: 16 << 20,
            max_delete_percent: None,
            max_deletes: None,
            retention: Retention { age: None, bytes: None },
            admission: None,
        }
    }
}
