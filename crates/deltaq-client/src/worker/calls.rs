//! The calls of a worker. Each is repeated as long as its error may pass.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deltaq_types::duration::format;
use deltaq_types::{
    LeaseOutcome, LeasesBody, PopBody, Popped, SettleBody, SettleCall, SettleResult, SettledDocument,
    SettledList,
};
use http::Method;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use super::{Notice, Worker};
use crate::call::Call;
use crate::error::Error;
use crate::log::row;
use crate::queue::random_id;
use crate::retry::{Backoff, pauses_without_queue};

/// A pop. Repeating it returns the same leases.
#[derive(Debug)]
pub(super) struct Pop {
    id: String,
    /// Maximum number of keys.
    max: u64,
    pub(super) settle: Vec<SettleCall>,
    /// Whether a server may have received the pop, and so leased keys.
    may_be_applied: AtomicBool,
}

/// How an extension ended.
#[derive(Debug)]
pub(super) struct Extended {
    pub(super) sent_at: Instant,
    pub(super) result: Result<SettledList, Error>,
}

impl Pop {
    pub(super) fn new(max: u64, settle: Vec<SettleCall>) -> Result<Self, Error> {
        Ok(Self { id: random_id()?, max, settle, may_be_applied: AtomicBool::new(false) })
    }

    pub(super) fn may_be_applied(&self) -> bool {
        self.may_be_applied.load(Ordering::Relaxed)
    }

    /// The request of the pop; `wait` is how long the server waits for keys.
    fn call(&self, worker: &Worker, wait: Duration) -> Call {
        let call = worker.queue.call(Method::POST, ["pop"]);
        call.query("wait", Some(format(wait)))
            .query("max", Some(self.max))
            .query("worker", Some(&worker.name))
            .query("id", Some(&self.id))
            .query("lease_duration", worker.lease_duration.map(format))
            .query("group", worker.group.as_ref())
            .listed("with", "known", worker.with_known)
            .listed("with", "diff", worker.with_diff)
            .wait(wait)
            .json(&PopBody { settle: self.settle.clone() })
    }
}

impl Worker {
    /// Pops until the reply is not a temporary failure. Returns the reply and the time at which it arrived. While the
    /// queue does not exist, the worker pops again, unless it works only until the queue is empty.
    pub(super) async fn pop(&self, pop: &Pop) -> Result<(Popped, Instant), Error> {
        let wait = if self.until_empty { Duration::ZERO } else { self.wait };
        let mut pauses = pauses_without_queue().enumerate();
        loop {
            match self.pop_once(pop, wait).await {
                Err(error) if is_without_queue(&error) && !self.until_empty => {}
                popped => return popped,
            }
            let Some((asked, pause)) = pauses.next() else { continue };
            if asked == 0 {
                self.notice(&Notice::QueueNotFound { queue: self.queue.name() });
            }
            sleep(pause).await;
        }
    }

    /// The last pop of a worker that is stopping. It waits for no keys. If the queue does not exist, there are none.
    pub(super) async fn last_pop(&self, pop: &Pop) -> Result<(Popped, Instant), Error> {
        match self.pop_once(pop, Duration::ZERO).await {
            Err(error) if is_without_queue(&error) => {
                let settled = ended(&pop.settle);
                Ok((
                    Popped { items: Vec::new(), settled, closed: false, paused: false, held_until: None },
                    Instant::now(),
                ))
            }
            popped => popped,
        }
    }

    async fn pop_once(&self, pop: &Pop, wait: Duration) -> Result<(Popped, Instant), Error> {
        let popped = self.repeat(|| pop.call(self, wait), &pop.may_be_applied).await?;
        Ok((popped, Instant::now()))
    }

    /// Settles leases. If the queue was deleted, all of them have ended.
    pub(super) async fn settle(&self, settle: Vec<SettleCall>) -> Result<Vec<SettledDocument>, Error> {
        let body = SettleBody { settle };
        let settled = self
            .repeat(|| self.queue.call(Method::POST, ["settle"]).json(&body), &AtomicBool::default())
            .await;
        let settled: SettledList = match settled {
            Err(error) if is_without_queue(&error) => return Ok(ended(&body.settle)),
            settled => settled?,
        };
        Ok(settled.settled)
    }

    /// Extends leases once. If the server does not reply within `patience`, the extension has failed.
    pub(super) async fn extend(&self, lease_ids: Vec<String>, patience: Duration) -> Extended {
        let lease_duration = self.lease_duration.map(|length| format(length).into());
        let body = LeasesBody { lease_ids: Some(lease_ids), lease_duration, ..LeasesBody::default() };
        let sent_at = Instant::now();
        let call = self.queue.call(Method::POST, ["extend"]).json(&body);
        let client = self.queue.client();
        let result = timeout(patience, client.fetch_results(call)).await;
        let result = result.unwrap_or_else(|_| {
            let error = Error::Silence { address: client.address(), silence: patience };
            client.leave(self.queue.name());
            Err(error)
        });
        Extended { sent_at, result }
    }

    /// Sends a call until its outcome is known. Repeating a call of a worker never changes its effect.
    /// `may_be_applied` is true while an attempt runs, and after one whose outcome is unknown.
    async fn repeat<T: DeserializeOwned>(
        &self,
        call: impl Fn() -> Call,
        may_be_applied: &AtomicBool,
    ) -> Result<T, Error> {
        let rows = self.queue.client().rows();
        let mut backoff = Backoff::from(self.queue.client().retry());
        let mut is_unknown = may_be_applied.load(Ordering::Relaxed);
        loop {
            may_be_applied.store(true, Ordering::Relaxed);
            let error = match self.queue.client().fetch_results(call()).await {
                Ok(reply) => {
                    if rows.is_open() {
                        rows.answered(&row(&call()));
                    }
                    return Ok(reply);
                }
                Err(error) => error,
            };
            is_unknown |= error.is_outcome_unknown();
            may_be_applied.store(is_unknown, Ordering::Relaxed);
            if !error.is_temporary() {
                return Err(error);
            }
            let pause = backoff.after_failure(&error);
            if self.observer.is_none() {
                rows.failed(&row(&call()), &error, None);
            }
            self.notice(&Notice::Retry { error: &error, failures: backoff.failures(), pause });
            sleep(pause).await;
        }
    }

    pub(super) fn notice(&self, notice: &Notice<'_>) {
        match &self.observer {
            Some(observer) => observer(notice),
            None => self.log(notice),
        }
    }
}

/// The results of settles after the queue was deleted: all leases have ended.
fn ended(settles: &[SettleCall]) -> Vec<SettledDocument> {
    let stale = |settle: &SettleCall| SettledDocument {
        outcome: Some(LeaseOutcome::Unknown),
        ..SettledDocument::new(settle.lease_id.clone().unwrap_or_default(), settle.how, SettleResult::Stale)
    };
    settles.iter().map(stale).collect()
}

pub(super) fn is_without_queue(error: &Error) -> bool {
    error.code() == Some("queue-not-found")
}
