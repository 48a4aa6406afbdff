//! What a run came to.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::load::Tally;

/// What all connections did together while they were measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// How long that was.
    pub lasted: Duration,
    /// Requests that were answered.
    pub requests: u64,
    /// Objects that were added, or popped and acknowledged.
    pub objects: u64,
    /// The same, by the groups of connections.
    pub groups: Vec<u64>,
    latencies: Option<Histogram<u64>>,
}

/// How long operations took, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "each name says it")]
pub struct Latencies {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

impl Measured {
    pub(super) fn add(&mut self, tally: Option<Tally>) {
        let Some(tally) = tally else { return };
        self.requests += tally.requests;
        self.objects += tally.objects;
        if let Some(group) = self.groups.get_mut(tally.group) {
            *group += tally.objects;
        }
        match &mut self.latencies {
            // Both grow by themselves, so that nothing can be too large.
            Some(sum) => sum.add(&tally.latencies).unwrap_or_default(),
            None => self.latencies = Some(tally.latencies),
        }
    }

    /// How often a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn rate(&self, count: u64) -> f64 {
        count as f64 / self.lasted.as_secs_f64()
    }

    /// How long an operation took.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        let Some(all) = &self.latencies else { return Latencies::default() };
        let at = |quantile| all.value_at_quantile(quantile);
        Latencies { p50: at(0.5), p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max: all.max() }
    }
}
