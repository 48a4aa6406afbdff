//! The result of a run.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Precision of the latencies.
const SIGNIFICANT_DIGITS: u8 = 3;

/// A completed operation.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Number of requests of the operation.
    pub requests: u64,
    /// Number of objects that were added, or popped and acknowledged.
    pub objects: u64,
    /// Start of the measured part, in microseconds of the monotonic clock.
    pub begun_us: u64,
    /// End of the measured part.
    pub ended_us: u64,
}

/// The work of all counted connections during the measurement.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Duration of the measurement.
    pub lasted: Duration,
    /// Number of answered requests.
    pub requests: u64,
    /// Number of objects that were sent, or popped and acknowledged. An operation that does both counts an object once.
    pub objects: u64,
    /// Number of objects of each group of connections.
    pub groups: Vec<u64>,
    latencies: Option<Histogram<u64>>,
}

/// Latencies of operations, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names are percentiles")]
pub struct Latencies {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

impl Measured {
    pub(super) fn new(groups: usize) -> io::Result<Self> {
        let mut latencies = Histogram::new(SIGNIFICANT_DIGITS).map_err(io::Error::other)?;
        latencies.auto(true);
        Ok(Self { groups: vec![0; groups], latencies: Some(latencies), ..Self::default() })
    }

    pub(super) fn count(&mut self, group: usize, done: &Done) {
        self.requests += done.requests;
        self.objects += done.objects;
        if let Some(group) = self.groups.get_mut(group) {
            *group += done.objects;
        }
    }

    pub(super) fn record_latency(&mut self, done: &Done) -> io::Result<()> {
        let Some(latencies) = &mut self.latencies else { return Ok(()) };
        latencies.record(done.ended_us.saturating_sub(done.begun_us)).map_err(io::Error::other)
    }

    /// Converts a count to a rate per second of the measurement.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an approximate number for display")]
    pub fn rate(&self, count: u64) -> f64 {
        count as f64 / self.lasted.as_secs_f64()
    }

    /// The latencies of the operations.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        let Some(all) = &self.latencies else { return Latencies::default() };
        let at = |quantile| all.value_at_quantile(quantile);
        Latencies { p50: at(0.5), p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max: all.max() }
    }
}
