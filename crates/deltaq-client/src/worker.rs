//! Workers: take keys from a queue, run a handler for each, and settle their leases.
//!
//! A worker takes up to [`Worker::batch`] keys with one pop, and runs up to [`Worker::concurrency`] handlers at once.
//! Whenever a third of a lease has passed, the worker extends it, whether its key waits or a handler works on it.
//! Settles are sent with the next pop. While a pop waits for keys, or with [`Worker::settle_at_once`], they are sent
//! alone.
//!
//! Invariant: a handler runs only while the worker holds its lease, as far as the worker can know. After that,
//! [`Job::is_lost`] is true.

mod breaker;
mod calls;
mod job;
mod leases;
mod logged;
mod run;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deltaq_types::SettledDocument;
use tokio_util::sync::CancellationToken;

pub use self::job::{Job, Loss, Outcome};
use crate::error::Error;
use crate::middleware::{Boxed, Middleware};
use crate::queue::Queue;

/// Maximum number of keys in one pop.
const POP_MAX: u64 = 1_000;
/// Timeout for the last calls of a worker that is stopping.
pub(crate) const LAST_CALLS: Duration = Duration::from_secs(5);

/// Middleware around the handler of a worker: [`Worker::middleware`].
pub type HandlerMiddleware = Middleware<Job, Outcome>;

type Observer = Arc<dyn Fn(&Notice<'_>) + Send + Sync>;

/// A worker of a queue.
#[derive(Clone)]
pub struct Worker {
    queue: Queue,
    name: String,
    concurrency: usize,
    batch: Option<u64>,
    lease_duration: Option<Duration>,
    wait: Duration,
    group: Option<String>,
    with_known: bool,
    with_diff: bool,
    settles_at_once: bool,
    until_empty: bool,
    grace: Duration,
    breaker: Option<usize>,
    middleware: Vec<HandlerMiddleware>,
    observer: Option<Observer>,
}

/// Something that a worker does not report through its handler. For logs and metrics.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A call has failed. It is repeated after a pause, without a limit on the number of attempts.
    Retry {
        /// The error.
        error: &'a Error,
        /// How often the call has failed.
        failures: u32,
        /// The pause.
        pause: Duration,
    },
    /// The queue does not exist yet. The worker asks again after 1 s, then after waits that double up to 15 s. This
    /// notice is sent only once.
    QueueNotFound {
        /// The name of the queue.
        queue: &'a str,
    },
    /// A lease was lost before its handler had ended.
    LeaseLost {
        /// The key.
        key: &'a str,
        /// The id of the lease.
        lease_id: &'a str,
        /// The reason.
        loss: Loss,
    },
    /// The server has settled a lease, or the lease had already ended, so that the outcome of the handler has no
    /// effect ([`SettleResult::Stale`](deltaq_types::SettleResult::Stale)).
    Settled(&'a SettledDocument),
    /// A handler panicked. Its key is nacked.
    Panicked {
        /// The key.
        key: &'a str,
        /// The message of the panic.
        message: &'a str,
    },
    /// Keys in a row have failed, so the worker pauses ([`Worker::breaker`]).
    Paused {
        /// The failures since the last success.
        failures: u32,
        /// How long the worker waits before it tries one key.
        pause: Duration,
        /// The error of the last failure.
        error: Option<&'a str>,
    },
    /// The key that was tried after a pause has succeeded, so the worker goes on.
    Resumed,
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerReport {
    /// Leases that were acknowledged or settled as done.
    pub acknowledged: u64,
    /// Leases that were nacked.
    pub nacked: u64,
    /// Leases that were rejected.
    pub rejected: u64,
    /// Leases that were released.
    pub released: u64,
    /// Leases that had ended before they were settled, or that were lost before their handler ended.
    pub lost: u64,
    /// Leases whose settles the server had not confirmed when the worker ended. They expire unless the server has
    /// settled them.
    pub unconfirmed: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Pauses by [`Worker::breaker`].
    pub pauses: u64,
}

impl Queue {
    /// A worker of this queue, which runs one handler at a time.
    #[must_use]
    pub fn worker(&self) -> Worker {
        Worker {
            queue: self.clone(),
            name: format!("{}-{:06x}", std::process::id(), fastrand::u32(..1 << 24)),
            concurrency: 1,
            batch: None,
            lease_duration: None,
            wait: Duration::from_secs(20),
            group: None,
            with_known: false,
            with_diff: false,
            settles_at_once: false,
            until_empty: false,
            grace: Duration::from_secs(30),
            breaker: None,
            middleware: Vec::new(),
            observer: None,
        }
    }
}

impl Worker {
    /// The name of the worker, shown with its leases; by default the process and a random part.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Number of handlers that run at the same time, at least 1; 1 by default.
    #[must_use]
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers.max(1);
        self
    }

    /// Maximum number of keys in one pop, from 1 to 1,000; [`Worker::concurrency`] by default. Keys that wait for a handler are
    /// leased as well.
    #[must_use]
    pub fn batch(mut self, keys: u64) -> Self {
        self.batch = Some(keys.max(1));
        self
    }

    /// Maximum number of keys in one pop.
    fn keys_of_pop(&self) -> u64 {
        self.batch.unwrap_or_else(|| POP_MAX.min(u64::try_from(self.concurrency).unwrap_or(POP_MAX)))
    }

    /// The length of the leases, from 1s to 12h; by default the setting of the queue.
    #[must_use]
    pub const fn lease_duration(mut self, lease: Duration) -> Self {
        self.lease_duration = Some(lease);
        self
    }

    /// How long a pop waits for keys: 20 s by default, and at most `server.max_wait`.
    #[must_use]
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Takes only keys of this group, outside its turns; the empty text is the group without a name.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Adds to each item the object that was acknowledged last.
    #[must_use]
    pub const fn with_known(mut self) -> Self {
        self.with_known = true;
        self
    }

    /// Adds to each item the difference from the object that was acknowledged last to the newest one.
    #[must_use]
    pub const fn with_diff(mut self) -> Self {
        self.with_diff = true;
        self
    }

    /// Settles each key as soon as its handler has ended instead of with the next pop, and takes a key only when a handler is free for it.
    /// [`Worker::batch`] has no effect then. This suits handlers that take longer than a call.
    #[must_use]
    pub const fn settle_at_once(mut self) -> Self {
        self.settles_at_once = true;
        self
    }

    /// Ends the worker when the queue has no ready key. A queue that does not exist is then an error.
    #[must_use]
    pub const fn until_empty(mut self) -> Self {
        self.until_empty = true;
        self
    }

    /// How long running handlers may take to finish after the worker is notified to stop; 30 s by default.
    #[must_use]
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The number of failures in a row, of different keys, that pause the worker, from 1 to 1,000; by default, nothing
    /// pauses it. A nack is a failure, also by an error or a panic; a key that is done or rejected ends the row. After a
    /// pause of 1 s the worker tries one key; each further failure doubles the pause, up to 1 minute, and a success ends
    /// it.
    #[must_use]
    pub fn breaker(mut self, failures: usize) -> Self {
        self.breaker = Some(failures.clamp(1, breaker::LIMIT_MAX));
        self
    }

    /// Adds a function around the handler, inside those that were added before.
    #[must_use]
    pub fn middleware(mut self, middleware: HandlerMiddleware) -> Self {
        self.middleware.push(middleware);
        self
    }

    /// Calls a function with each notice. The function must not block. Without one, notices, failures of handlers and parked keys are
    /// written to the [`Log`](crate::Log) of the client.
    #[must_use]
    pub fn on_notice(mut self, observer: impl Fn(&Notice<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Works until `stop` is cancelled, or until the queue is closed and has no keys. Calls with errors that may
    /// pass, and pops from a queue that does not exist, are repeated without limit.
    ///
    /// After `stop`, no handler is started. Keys whose handlers have not begun are released. Running handlers may
    /// finish, and their leases are extended in the meantime. Handlers that still run after [`Worker::grace`] are
    /// aborted, and their keys are released.
    ///
    /// A handler that panics is a nack with the message of the panic. If a lease is lost, [`Job::lost`] wakes the
    /// handler, and the outcome of the handler has no effect.
    ///
    /// # Errors
    /// The server refuses the worker, for example its token. Running handlers finish first, as after `stop`.
    pub async fn run<H, F>(&self, stop: CancellationToken, handler: H) -> Result<WorkerReport, Error>
    where
        H: Fn(Job) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: Into<Outcome>,
    {
        let handler = Arc::new(handler);
        let middleware = self.middleware.clone();
        let around = move |job: Job| -> Boxed<Outcome> {
            let handler = handler.clone();
            let inner = move |job| -> Boxed<Outcome> { Box::pin(async move { handler(job).await.into() }) };
            if middleware.is_empty() {
                inner(job)
            } else {
                HandlerMiddleware::wrap(&middleware, inner).run(job)
            }
        };
        run::Run::new(self, Arc::new(around)).run(stop).await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.queue)
            .field("name", &self.name)
            .field("concurrency", &self.concurrency)
            .field("batch", &self.keys_of_pop())
            .field("lease_duration", &self.lease_duration)
            .field("wait", &self.wait)
            .field("grace", &self.grace)
            .field("breaker", &self.breaker)
            .field("middleware", &self.middleware)
            .field("group", &self.group)
            .field("with_known", &self.with_known)
            .field("with_diff", &self.with_diff)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
