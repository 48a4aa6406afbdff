//! What a run came to.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::load::Done;

/// How exact latencies are kept.
const SIGNIFICANT_DIGITS: u8 = 3;

/// What all connections did together while they were measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// How long that was.
    pub lasted: Duration,
    /// Requests that were answered.
    pub requests: u64,
    /// Objects that were sent, or popped and acknowledged, or both where an operation does both.
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
    pub(super) fn new(groups: usize) -> io::Result<Self> {
        let mut latencies = Histogram::new(SIGNIFICANT_DIGITS).map_err(io::Error::other)?;
        latencies.auto(true);
        Ok(Self { groups: vec![0; groups], latencies: Some(latencies), ..Self::default() })
    }

    pub(super) fn add(&mut self, group: usize, done: &Done) {
        self.requests += done.requests;
        self.objects += done.objects;
        if let Some(group) = self.groups.get_mut(group) {
            *group += done.objects;
        }
    }

    pub(super) fn took(&mut self, micros: u64) -> io::Result<()> {
        self.latencies.as_mut().map_or(Ok(()), |latencies| latencies.record(micros).map_err(io::Error::other))
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
