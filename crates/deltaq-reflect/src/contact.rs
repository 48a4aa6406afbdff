//! Tells a queue when its source was reached and had no change, and how long the source may be silent. The server takes every list
//! and every call as a contact by itself.

use std::time::Duration;

use deltaq_client::{Client, Error};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::debug;

/// The least time between two reports of a contact.
const REPORT_EVERY: Duration = Duration::from_mins(1);
/// The least time between the report of a threshold and the next report.
const THRESHOLD_PAUSE: Duration = Duration::from_secs(1);
/// Timeout of a call.
const CALL_MAX: Duration = Duration::from_secs(10);
/// The threshold of a source is this many times the longest time between two contacts.
const MISSED_MAX: u32 = 3;

/// The contacts that were not reported to the queue yet.
#[derive(Debug, Default)]
pub(super) struct Contacts {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_seen: bool,
    /// The queue whose threshold for the source has not been set; its incarnation.
    unset: Option<String>,
    /// The queue that was found last.
    queue: String,
}

/// How long a source may be silent whose contacts are at most `every` apart.
pub(super) fn stale_after(every: Duration) -> Duration {
    every.max(REPORT_EVERY).saturating_mul(MISSED_MAX)
}

impl Contacts {
    /// Notes that the source was reached and had no change.
    pub(super) fn seen(&self) {
        self.state.lock().is_seen = true;
        self.changed.notify_one();
    }

    /// Notes that the queue exists. A queue that was created anew has no threshold.
    pub(super) fn found_queue(&self, incarnation: &str) {
        let mut state = self.state.lock();
        if state.queue != incarnation {
            incarnation.clone_into(&mut state.queue);
            state.unset = Some(incarnation.to_owned());
            self.changed.notify_one();
        }
    }

    /// Reports what is new; without a threshold, only contacts.
    pub(super) async fn report(
        &self,
        client: &Client,
        queue: &str,
        source: &str,
        threshold: Option<Duration>,
    ) {
        let queue = client.queue(queue);
        let (is_seen, unset) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.is_seen), state.unset.take())
        };
        if let Some(threshold) = threshold.filter(|_| unset.is_some()) {
            let set = queue.propose_stale_after(source, threshold);
            if !is_reported(timeout(CALL_MAX, set).await.map(|reported| reported.map(drop)), source) {
                self.state.lock().unset = unset;
            }
        }
        if is_seen && !is_reported(timeout(CALL_MAX, queue.seen_source(source)).await, source) {
            self.state.lock().is_seen = true;
        }
    }

    /// Reports contacts as they happen, at most once a minute.
    pub(super) async fn report_all(&self, client: &Client, queue: &str, source: &str, threshold: Duration) {
        loop {
            self.changed.notified().await;
            let is_seen = self.state.lock().is_seen;
            self.report(client, queue, source, Some(threshold)).await;
            // A threshold must not delay the first contact.
            sleep(if is_seen { REPORT_EVERY } else { THRESHOLD_PAUSE }).await;
            // What a failed call has not reported is reported with the next contact, or now.
            if self.state.lock().unset.is_some() {
                self.changed.notify_one();
            }
        }
    }
}

/// Whether the call need not be repeated. An older server does not know it, and a token may lack the grant.
fn is_reported<T>(reported: Result<Result<(), Error>, T>, source: &str) -> bool {
    match reported {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            debug!(source, %error, "a contact was not reported");
            error.code().is_some() && !error.is_temporary()
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_leaves_room_for_reports_once_a_minute() {
        for (every_s, minutes) in [(1, 3), (60, 3), (300, 15), (3_600, 180)] {
            assert_eq!(stale_after(Duration::from_secs(every_s)), Duration::from_mins(minutes));
        }
    }
}
