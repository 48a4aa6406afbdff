//! The state of a queue in parts: what a checkpoint keeps, and what recovery starts from.
//!
//! It is not a format: how the parts are written is up to the journal.

use std::sync::Arc;

use super::command::Outcome;
use super::config::Config;
use super::delta::{Delta, Rv};
use super::key::Key;
use super::known::Known;
use super::queue::{Initial, LastReplace};
use super::rate_limit::BucketLevel;
use super::schedule::{ScheduleState, Slot};
use super::time::Time;

/// All of a queue that is not about one key.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueState {
    /// The newest event.
    pub rv: Rv,
    /// When it happened.
    pub last_at: Time,
    /// The settings.
    pub config: Arc<Config>,
    /// Whether the queue came into being by a produce or pop, and was never configured.
    pub auto_created: bool,
    /// Whether the queue counts as populated.
    pub populated: bool,
    /// Nothing is handed out.
    pub paused: bool,
    /// The queue drains.
    pub closed: bool,
    /// Where the queue is with its initial list.
    pub initial: Initial,
    /// How the latest settled leases ended, oldest first.
    pub settled: Vec<(Rv, Outcome)>,
    /// How full the token bucket is.
    pub bucket: Option<BucketLevel>,
    /// When the next periodic Resync is due.
    pub next_resync: Option<Time>,
    /// How the latest Replace went.
    pub last_replace: Option<LastReplace>,
}

/// All that a queue holds of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyState {
    /// The key.
    pub key: Key,
    /// The newest event of the key.
    pub rv: Rv,
    /// The last acknowledged object.
    pub known: Option<Known>,
    /// Deltas that are not handed out, oldest first.
    pub waiting: Vec<Delta>,
    /// Deltas in the hands of a worker, oldest first.
    pub leased: Vec<Delta>,
    /// Where the key stands in the schedule.
    pub schedule_state: ScheduleState,
    /// The delta of the initial list that is not acknowledged yet.
    pub initial_pending: Option<Rv>,
}

/// A key that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The key.
    pub key: Key,
    /// The slot that it had.
    pub slot: Slot,
    /// The event that removed it.
    pub rv: Rv,
}

/// What has changed since the checkpoint before, as of one instant.
#[derive(Clone, Debug, Default)]
pub struct CheckpointChunk {
    /// Keys that are gone. They must be written before, or together with, `keys`; and after the `keys`
    /// of all earlier slices.
    pub gone: Vec<Gone>,
    /// Keys that have changed, and their slots.
    pub keys: Vec<(Slot, KeyState)>,
    /// Whether the checkpoint has been over all keys.
    pub ended: bool,
}
