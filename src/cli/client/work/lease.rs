//! The lease of a running command.

use std::time::Duration;

use deltaq_client::Error;
use deltaq_types::{LeaseOutcome, LeasesBody, SettleResult, SettledList};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::worker::{Item, Worker, pause_of, pauses};

/// Time before the end of a lease at which its command is stopped, if the lease could not be extended.
const MARGIN_MAX: Duration = Duration::from_secs(5);

/// Why a lease is no longer held.
#[derive(Debug)]
pub(super) enum Lost {
    /// The server says so.
    Ended(String),
    /// The server did not reply until shortly before the end of the lease. The time is the end.
    NoContact(Instant),
}

/// The times of a lease.
struct Times {
    extend_at: Instant,
    /// The time by which a command without an extension must be stopped.
    stop_at: Instant,
    end: Instant,
}

impl Times {
    fn new(from: Instant, length: Duration) -> Self {
        let end = from + length;
        Self { extend_at: from + length / 3, stop_at: end - MARGIN_MAX.min(length / 6), end }
    }
}

impl Worker<'_> {
    /// Extends the lease of an item at each third of its length. Returns when the lease is lost.
    pub(super) async fn keep(&self, item: &Item) -> Lost {
        let length = Duration::from_millis(item.popped.lease.expires_in_ms);
        let mut times = Times::new(item.received_at, length);
        loop {
            sleep_until(times.extend_at).await;
            let sent_at = Instant::now();
            let extended = timeout_at(times.stop_at, self.extend(item)).await;
            match extended {
                Ok(Ok(length)) => times = Times::new(sent_at, length),
                Ok(Err(Refused::Ended(why))) => return Lost::Ended(why),
                Ok(Err(Refused::Later(pause))) => {
                    // Two attempts fit in the rest of a lease of any length.
                    let rest = times.stop_at.saturating_duration_since(Instant::now());
                    sleep(pause.min(rest / 3).max(Duration::from_millis(20))).await;
                    times.extend_at = Instant::now();
                }
                Err(_) => return Lost::NoContact(times.end),
            }
            if Instant::now() >= times.stop_at {
                return Lost::NoContact(times.end);
            }
        }
    }

    async fn extend(&self, item: &Item) -> Result<Duration, Refused> {
        let body = LeasesBody {
            lease_id: Some(item.popped.lease.id.clone()),
            lease_duration: self.lease.as_deref().map(Into::into),
            ..LeasesBody::default()
        };
        let call = self.call("extend").map_err(|failure| Refused::Ended(failure.to_string()))?.json(&body);
        let extended: Result<SettledList, Error> = self.session.client.fetch_results(call).await;
        let extended = match extended {
            Ok(extended) => extended,
            Err(error) => {
                return Err(
                    pause_of(&error, &mut pauses()).map_or(Refused::Ended(error.to_string()), Refused::Later)
                );
            }
        };
        match extended.settled.first() {
            Some(lease) if lease.result != SettleResult::Stale => {
                Ok(Duration::from_millis(lease.expires_in_ms.unwrap_or_default()))
            }
            lease => {
                let outcome = lease.and_then(|lease| lease.outcome).unwrap_or(LeaseOutcome::Unknown);
                Err(Refused::Ended(format!("the lease has ended ({})", outcome.as_str())))
            }
        }
    }
}

/// Why a lease was not extended.
enum Refused {
    /// It has ended.
    Ended(String),
    /// The call may succeed after this time.
    Later(Duration),
}
