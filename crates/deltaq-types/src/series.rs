//! Series: what happened in each minute of the last 24 hours.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DrainReason, Timestamp};

/// The series of a queue, or the sums over several queues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesDocument {
    /// The queue; null for the sums over all queues that the token may read.
    #[schema(required = true)]
    pub queue: Option<String>,
    /// Number of queues in the sums.
    pub queues: u64,
    /// When the first point begins, a whole minute.
    pub from_at: Timestamp,
    /// When the last point ends: the end of the last minute that is complete.
    pub until_at: Timestamp,
    /// The length of a point, in milliseconds: whole minutes. The last point may be shorter.
    pub step_ms: u64,
    /// From when on everything is known. Earlier points of a queue are gaps, and earlier sums lack the hours of queues that were
    /// dropped because the series took too much memory.
    pub complete_from_at: Timestamp,
    /// The points, oldest first, without a hole: point `n` begins `n` steps after `from_at`.
    pub points: Vec<SeriesPoint>,
    /// An estimate of when no key is ready or leased.
    pub drain: DrainEstimate,
}

/// A point of a series. If no server ran in it, it is a gap: `minutes` is 0 and the members after it are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesPoint {
    /// When the point begins.
    pub at: Timestamp,
    /// In how many minutes of the point a server ran, and everything is known.
    pub minutes: u64,
    /// What happened.
    #[schema(required = true)]
    pub counts: Option<SeriesCounts>,
    /// Counts for each of `minutes`.
    #[schema(required = true)]
    pub per_minute: Option<SeriesRates>,
    /// The state at the end of the last minute in which a server ran.
    #[schema(required = true)]
    pub gauges: Option<SeriesGauges>,
    /// The durations of the leases that ended in the point; null if none did.
    #[schema(required = true)]
    pub processing: Option<ProcessingTime>,
}

/// What happened in a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeriesCounts {
    /// Queued changes: the sum of the five types.
    pub changes: u64,
    /// Queued changes of the type `Added`.
    pub added: u64,
    /// Queued changes of the type `Updated`.
    pub updated: u64,
    /// Queued changes of the type `Deleted`.
    pub deleted: u64,
    /// Queued changes of the type `Replaced`.
    pub replaced: u64,
    /// Queued changes of the type `Sync`.
    pub sync: u64,
    /// Deliveries of keys.
    pub deliveries: u64,
    /// Acknowledged leases.
    pub acks: u64,
    /// Failures: the sum of nacks, rejects and expired leases.
    pub failures: u64,
    /// Leases that ended with a nack.
    pub nacks: u64,
    /// Leases that ended with a reject.
    pub rejects: u64,
    /// Leases that expired.
    pub expired: u64,
    /// Leases that were released.
    pub released: u64,
    /// Settles of leases that had already ended.
    pub stale: u64,
    /// How often a key was parked.
    pub parked: u64,
    /// How often a key was requeued with a delay.
    pub retries: u64,
    /// Changes and listed objects that changed nothing.
    pub ignored: u64,
    /// Changes that were merged into newer ones.
    pub coalesced: u64,
    /// Changes that a debounce window has held back.
    pub debounced: u64,
}

/// Counts of a point for each of its minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SeriesRates {
    /// Queued changes.
    pub changes: f64,
    /// Deliveries of keys.
    pub deliveries: f64,
    /// Acknowledged leases.
    pub acks: f64,
    /// Failures.
    pub failures: f64,
}

/// The state of a queue at the end of a point. For several queues: the sums, and the largest ages and lags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeriesGauges {
    /// Ready keys.
    pub ready: u64,
    /// Keys that wait for a delay or backoff.
    pub delayed: u64,
    /// Keys that a worker holds.
    pub leased: u64,
    /// Parked keys.
    pub parked: u64,
    /// Known objects.
    pub known: u64,
    /// Bytes that the queue takes in memory (approximate).
    pub held_bytes: u64,
    /// How long the first ready key has waited; 0 without one, and while the queue is paused.
    pub oldest_ready_age_ms: u64,
    /// How long the oldest change has waited for its acknowledgement. Parked keys do not count.
    pub oldest_unacknowledged_age_ms: u64,
    /// Events that a follower is behind; null if no queue follows another.
    #[schema(required = true)]
    pub lag_events: Option<u64>,
    /// How long a follower has been behind; null if no queue follows another.
    #[schema(required = true)]
    pub lag_ms: Option<u64>,
}

/// How long leases lasted. Quantiles are computed from the merged histograms of all minutes and queues, and are at most an eighth off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessingTime {
    /// Number of leases.
    pub leases: u64,
    /// Half of the leases were not longer.
    pub p50_ms: f64,
    /// 99 % of the leases were not longer.
    pub p99_ms: f64,
}

/// How long it takes until no key is ready or leased, if the number of these keys goes on to shrink as in the last minutes. Delayed and parked keys do
/// not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrainEstimate {
    /// The time; 0 if no key is ready or leased, and null if there is no estimate.
    #[schema(required = true)]
    pub empties_in_ms: Option<u64>,
    /// Why there is no estimate; null if there is one.
    #[schema(required = true)]
    pub reason: Option<DrainReason>,
    /// Ready and leased keys now.
    pub waiting: u64,
    /// By how many keys a minute the lowest numbers of the two halves of the minutes shrank; negative if they grew, and null if it is not known.
    #[schema(required = true)]
    pub shrinks_per_minute: Option<f64>,
    /// Over how many minutes this was measured, at most 10; 0 if it is not known.
    pub measured_minutes: u64,
}
