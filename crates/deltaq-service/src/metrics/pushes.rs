//! What the task that pushes the keys of a queue does, and what it has done.

use std::sync::Arc;
use std::time::Duration;

use deltaq_types::PushState;

use super::durations::Distribution;

/// The upper bounds of the histogram of requests, in microseconds: from an endpoint beside the server to the longest timeout.
pub(super) const BOUNDS_US: [u64; 10] =
    [5_000, 25_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 15_000_000, 60_000_000];
/// Number of results.
const RESULTS: usize = 5;

/// What the task does, and what it has done.
#[derive(Clone, Debug)]
pub struct PushReport {
    /// What the task does.
    pub state: PushState,
    /// Number of requests without an answer.
    pub in_flight: usize,
    /// How many requests may be in flight now.
    pub allowed: usize,
    /// When the endpoint last answered with a status from 200 to 299, in microseconds since 1970.
    pub last_success_us: Option<u64>,
    /// The last failure since then.
    pub last_error: Option<Arc<str>>,
    /// The requests since this server has the queue.
    pub(super) pushes: Pushes,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushResult {
    /// The endpoint has taken the key.
    Ok,
    /// The endpoint has refused the key for good.
    Rejected,
    /// The endpoint has asked for a pause.
    Held,
    /// The endpoint answered with another status.
    Failed,
    /// There was no whole answer.
    NoAnswer,
}

impl Default for PushReport {
    fn default() -> Self {
        Self {
            state: PushState::Sending,
            in_flight: 0,
            allowed: 0,
            last_success_us: None,
            last_error: None,
            pushes: Pushes::default(),
        }
    }
}

/// The requests of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pushes {
    pub(super) results: [u64; RESULTS],
    pub(super) took: Distribution<{ BOUNDS_US.len() }>,
}

impl PushReport {
    /// Counts a request.
    pub(crate) fn count(&mut self, result: PushResult, took: Duration) {
        let [ok, rejected, held, failed, no_answer] = &mut self.pushes.results;
        *match result {
            PushResult::Ok => ok,
            PushResult::Rejected => rejected,
            PushResult::Held => held,
            PushResult::Failed => failed,
            PushResult::NoAnswer => no_answer,
        } += 1;
        self.pushes.took.record(&BOUNDS_US, took);
    }
}
