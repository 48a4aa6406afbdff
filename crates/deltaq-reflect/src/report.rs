//! Reports to a queue whether it is in step with a source. The list of the sources and the console show the problem.

use std::time::Duration;

use deltaq_client::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

/// The maximum length of a problem in bytes.
const PROBLEM_BYTES_MAX: usize = 2_000;
/// Timeout of a call.
const CALL_MAX: Duration = Duration::from_secs(10);
/// The wait after a failed call.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How often a persistent problem is reported again. A queue forgets it when it is loaded again.
const REPEAT_EVERY: Duration = Duration::from_mins(5);

/// What prevents a queue from being in step with a source.
#[derive(Debug, Default)]
pub(super) struct Problems {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// Whether an attempt has ended.
    is_known: bool,
    /// The error of the last attempt, if it has failed.
    failure: Option<String>,
    /// The part of the source that can't be read, if there is one.
    degraded: Option<String>,
    /// The objects that the queue refuses, if there are any.
    left_out: Option<String>,
    /// The objects of the last list that are older than the state of their keys in the queue, if there are any.
    stale: Option<String>,
    /// The slot that keeps back too much of the database's log, if there is one.
    slot: Option<String>,
}

impl Problems {
    pub(super) fn failed(&self, failure: Option<String>) {
        self.change(|state| (state.failure, state.is_known) = (failure, true));
    }

    pub(super) fn degraded(&self, degraded: Option<String>) {
        self.change(|state| state.degraded = degraded);
    }

    pub(super) fn left_out(&self, left_out: Option<String>) {
        self.change(|state| state.left_out = left_out);
    }

    pub(super) fn stale(&self, stale: Option<String>) {
        self.change(|state| state.stale = stale);
    }

    pub(super) fn slot(&self, slot: Option<String>) {
        self.change(|state| state.slot = slot);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        let before = state.clone();
        change(&mut state);
        if *state != before {
            self.changed.notify_one();
        }
    }

    /// The current problem; empty if the queue is in step. `None` before the first attempt has ended.
    fn now(&self) -> Option<String> {
        let State { is_known, failure, degraded, left_out, stale, slot } = &*self.state.lock();
        let all: Vec<&str> =
            [failure, degraded, left_out, stale, slot].into_iter().flatten().map(String::as_str).collect();
        let mut text = all.join("; ");
        text.truncate(text.floor_char_boundary(PROBLEM_BYTES_MAX));
        is_known.then_some(text)
    }

    /// Reports the current problem. Returns the problem, or `None` if the queue may not have received it.
    pub(super) async fn report(&self, client: &Client, queue: &str, source: &str) -> Option<String> {
        let problem = self.now()?;
        let queue = client.queue(queue);
        let reported = Some(problem.as_str()).filter(|problem| !problem.is_empty());
        match timeout(CALL_MAX, queue.report_source(source, reported)).await {
            Ok(Ok(())) => Some(problem),
            // A queue that does not exist shows no problem, and the problem can't be reported with a token that lacks
            // the grant.
            Ok(Err(error)) if error.code().is_some() && !error.is_temporary() => {
                debug!(source, %error, "the queue takes no report");
                Some(problem)
            }
            Ok(Err(error)) => {
                debug!(source, %error, "a report has failed");
                None
            }
            Err(_) => None,
        }
    }

    /// Reports each new problem and its end. A persistent problem is reported again from time to time.
    pub(super) async fn report_all(&self, client: &Client, queue: &str, source: &str) {
        let (mut reported, mut reported_at) = (None, Instant::now());
        loop {
            let now = self.now();
            let is_new = now.is_some() && now != reported;
            let is_due =
                now.is_some_and(|problem| !problem.is_empty()) && reported_at.elapsed() >= REPEAT_EVERY;
            if is_new || is_due {
                reported = self.report(client, queue, source).await;
                reported_at = Instant::now();
                if reported.is_none() {
                    sleep(AGAIN_AFTER).await;
                }
            } else {
                let left = REPEAT_EVERY.saturating_sub(reported_at.elapsed());
                // Without a problem there is nothing to repeat.
                let wait = if left.is_zero() { REPEAT_EVERY } else { left };
                let _changed_or_due = timeout(wait, self.changed.notified()).await;
            }
        }
    }
}
