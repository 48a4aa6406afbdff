//! How a source does: its log lines and its counts.

use std::sync::Arc;
use std::time::Duration;

use deltaq_client::types::ReplaceCounts;
use tracing::{info, warn};

use super::Error;
use super::metrics::{SourceMetrics, Summary};
use crate::causes::with_causes;
use crate::clock::Clock;

/// The log lines and the counts of a source.
#[derive(Debug)]
pub(super) struct Health {
    source: String,
    queue: String,
    metrics: Arc<SourceMetrics>,
    clock: Clock,
}

impl Health {
    pub(super) fn new(source: &str, queue: &str, metrics: Arc<SourceMetrics>, clock: Clock) -> Self {
        Self { source: source.to_owned(), queue: queue.to_owned(), metrics, clock }
    }

    /// A list was accepted, or has not changed.
    pub(super) fn listed(&self, summary: Summary) {
        self.metrics.list(summary, self.clock.wall_us());
        if let Summary::Sent { objects, counts } = summary {
            let (source, queue) = (&self.source, &self.queue);
            let ReplaceCounts { replaced, deleted, unchanged, .. } = counts;
            info!(source, queue, objects, replaced, deleted, unchanged, "a list was accepted");
        }
    }

    /// Changes were accepted. `queued` is the number of deltas that they made.
    pub(super) fn changed(&self, queued: u64) {
        self.metrics.changed(queued, self.clock.wall_us());
    }

    /// All parts of the source can be read again.
    pub(super) fn recovered(&self) {
        self.metrics.recovered(self.clock.wall_us());
    }

    /// A part of the source can't be read, and the rest goes on.
    pub(super) fn degraded(&self, error: &Error) {
        self.metrics.degraded(error);
        let (source, queue, error) = (&self.source, &self.queue, with_causes(error));
        warn!(source, queue, %error, "a part of the source can't be read; what it had stays in force");
    }

    /// An attempt has failed. The next one follows after the pause.
    pub(super) fn failed(&self, error: &Error, pause: Duration) {
        self.metrics.failed(error);
        let (source, queue, error) = (&self.source, &self.queue, with_causes(error));
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let again_in = crate::duration::format(Duration::from_millis(pause_ms));
        warn!(source, queue, %error, %again_in, "the source is not in step; its last list stays in force");
    }
}
