//! The calls of a worker. Each repeats itself while its error may pass.

use std::time::Duration;

use deltaq_types::duration::format;
use deltaq_types::{LeasesBody, PopBody, Popped, SettleBody, SettleCall, SettledDocument, SettledList};
use reqwest::Method;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use super::{Notice, Worker};
use crate::call::Call;
use crate::error::Error;
use crate::queue::random_id;
use crate::retry::{Backoff, pauses_without_queue};

/// The longest pause before the first repetition.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause before any repetition.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A pop. Its repetition returns the same leases.
#[derive(Debug)]
pub(super) struct Pop {
    id: String,
    pub(super) settle: Vec<SettleCall>,
}

/// The end of an extension.
#[derive(Debug)]
pub(super) struct Extended {
    pub(super) sent_at: Instant,
    pub(super) result: Result<SettledList, Error>,
}

impl Pop {
    pub(super) fn new(settle: Vec<SettleCall>) -> Result<Self, Error> {
        Ok(Self { id: random_id()?, settle })
    }

    /// The request; `wait` is how long the server waits for keys.
    fn call(&self, worker: &Worker, wait: Duration) -> Call {
        let call = worker.queue.call(Method::POST, ["pop"]);
        call.query("wait", Some(format(wait)))
            .query("max", Some(worker.batch))
            .query("worker", Some(&worker.name))
            .query("id", Some(&self.id))
            .query("lease_duration", worker.lease_duration.map(format))
            .query("with", worker.with_known.then_some("known"))
            .wait(wait)
            .json(&PopBody { settle: self.settle.clone() })
    }
}

impl Worker {
    /// Pops until there is a reply that is no passing failure, with the time at which it arrived. While the queue does not exist, the
    /// worker asks again.
    pub(super) async fn pop(&self, pop: &Pop) -> Result<(Popped, Instant), Error> {
        let mut pauses = pauses_without_queue().enumerate();
        loop {
            match self.pop_once(pop, self.wait).await {
                Err(error) if is_without_queue(&error) => {}
                popped => return popped,
            }
            let Some((asked, pause)) = pauses.next() else { continue };
            if asked == 0 {
                self.notice(&Notice::QueueNotFound { queue: self.queue.name() });
            }
            sleep(pause).await;
        }
    }

    /// The last pop of a worker that stops, which waits for no key. A queue that does not exist has none.
    pub(super) async fn last_pop(&self, pop: &Pop) -> Result<(Popped, Instant), Error> {
        match self.pop_once(pop, Duration::ZERO).await {
            Err(error) if is_without_queue(&error) => {
                let nothing = Popped { items: Vec::new(), settled: Vec::new(), closed: false, paused: false };
                Ok((nothing, Instant::now()))
            }
            popped => popped,
        }
    }

    async fn pop_once(&self, pop: &Pop, wait: Duration) -> Result<(Popped, Instant), Error> {
        let popped = self.repeat(|| pop.call(self, wait)).await?;
        Ok((popped, Instant::now()))
    }

    /// Settles leases. A queue that is gone has none of them.
    pub(super) async fn settle(&self, settle: Vec<SettleCall>) -> Result<Vec<SettledDocument>, Error> {
        let body = SettleBody { settle };
        let settled = self.repeat(|| self.queue.call(Method::POST, ["settle"]).json(&body)).await;
        let settled: SettledList = match settled {
            Err(error) if is_without_queue(&error) => return Ok(Vec::new()),
            settled => settled?,
        };
        Ok(settled.settled)
    }

    /// Extends leases once. A server that does not reply in `patience` counts as silent.
    pub(super) async fn extend(&self, lease_ids: Vec<String>, patience: Duration) -> Extended {
        let lease_duration = self.lease_duration.map(|length| format(length).into());
        let body = LeasesBody { lease_ids: Some(lease_ids), lease_duration, ..LeasesBody::default() };
        let sent_at = Instant::now();
        let call = self.queue.call(Method::POST, ["extend"]).json(&body);
        let client = self.queue.client();
        let result = timeout(patience, client.fetch_results(call)).await;
        let silence = || Err(Error::Silence { address: client.address(), silence: patience });
        Extended { sent_at, result: result.unwrap_or_else(|_| silence()) }
    }

    /// Sends a call until its outcome is known. No call of a worker changes its effect by repetition.
    async fn repeat<T: DeserializeOwned>(&self, call: impl Fn() -> Call) -> Result<T, Error> {
        let mut backoff = Backoff::new(PAUSE, PAUSE_MAX);
        loop {
            let error = match self.queue.client().fetch_results(call()).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if !error.is_temporary() {
                return Err(error);
            }
            let pause = backoff.after_failure(&error);
            self.notice(&Notice::Retry { error: &error, pause });
            sleep(pause).await;
        }
    }

    pub(super) fn notice(&self, notice: &Notice<'_>) {
        (self.observer)(notice);
    }
}

pub(super) fn is_without_queue(error: &Error) -> bool {
    error.code() == Some("queue-not-found")
}
