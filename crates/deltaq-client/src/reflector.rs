//! Keeps a queue in step with a source, as client-go's Reflector keeps a store.
//!
//! A source is a stream of [`Event`]s: a whole list, then changes. The list becomes one Replace; a long list is sent
//! while the stream yields it. Changes that are ready at the same time become one batch. If the stream fails in the
//! middle of a list, the Replace is aborted, and the server changes nothing.
//!
//! [`Reflector::run`] sends one stream and returns the first error. [`Reflector::keep_running`] starts a new stream
//! whenever one ends, after the same pauses as client-go's Reflector.

mod batch;
mod list;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::pin::{Pin, pin};
use std::time::Duration;

use deltaq_types::{Produced, ReplaceCounts, Replaced};
use futures_util::future::{Either, select};
use futures_util::stream::{Peekable, Stream, StreamExt as _};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout_at};

use self::batch::Batch;
use crate::call::Body;
use crate::client::Client;
use crate::error::Error;
use crate::log::chain;
use crate::queue::{Producer, ReplaceOptions};
use crate::retry::ReflectorBackoff;

/// How often a reflector checks whether the queue still has everything that was sent.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// An event of a source, as kube-rs's `watcher::Event`. A list is [`Init`](Self::Init), any number of
/// [`InitApply`](Self::InitApply), [`InitDone`](Self::InitDone).
#[derive(Debug)]
pub enum Event {
    /// A list begins. An earlier list that has not ended is dropped.
    Init,
    /// An object of the list.
    InitApply(Box<RawValue>),
    /// The list is complete.
    InitDone,
    /// An object is new or has changed.
    Apply(Box<RawValue>),
    /// An object was deleted. Only its key is required; other members should be those of its last state.
    Delete(Box<RawValue>),
    /// The object of a key was deleted, and its last state is unknown.
    DeleteKey(String),
}

/// The options of a [`Reflector`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// The queue.
    pub queue: String,
    /// The name of the source. It owns the keys that it sends to the queue.
    pub source: String,
    /// Whether unchanged objects of a list are left out.
    pub only_changed: bool,
    /// Refuse lists that would delete more than this percentage of the source's keys. With `None` here and in
    /// [`max_deletes`](Self::max_deletes), the limit of the queue applies.
    pub max_delete_percent: Option<f64>,
    /// Refuse lists that would delete more keys than this.
    pub max_deletes: Option<u64>,
    /// Whether an empty list may delete all keys of the source.
    pub allow_empty: bool,
    /// Whether the last of several objects with the same key is kept. Otherwise such a list is refused.
    pub keep_last: bool,
    /// Whether invalid objects are left out: their keys are neither changed nor deleted, and the reply names the first 10. At most a tenth of a
    /// list is left out; a single invalid object in a list of several always is, and a list whose only object is invalid is refused. Without
    /// this option, one invalid object stops the source.
    pub skip_invalid: bool,
    /// Whether calls have sequence numbers, so that a repeated call is applied once. The token then also needs the
    /// grant `read`.
    pub sequence: bool,
    /// Whether the queue must exist. Otherwise the first list creates it, with the default settings.
    pub must_exist: bool,
    /// Maximum number of changes in one call, up to 10,000.
    pub batch: usize,
}

impl ReflectorOptions {
    /// The usual options for sending a source to a queue: unchanged objects are left out, and calls have sequence
    /// numbers.
    #[must_use]
    pub fn new(queue: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            queue: queue.into(),
            source: source.into(),
            only_changed: true,
            max_delete_percent: None,
            max_deletes: None,
            allow_empty: false,
            keep_last: false,
            skip_invalid: true,
            sequence: true,
            must_exist: false,
            batch: 1_000,
        }
    }
}

/// What a reflector has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of lists that the server has accepted.
    pub lists: u64,
    /// Number of objects in these lists.
    pub listed: u64,
    /// The sums of the counts of these lists.
    pub counts: ReplaceCounts,
    /// Number of calls with changes.
    pub batches: u64,
    /// Number of objects that were sent as new or changed.
    pub applied: u64,
    /// Number of objects that were sent as deleted.
    pub deleted: u64,
    /// Number of deltas that lists and changes have queued.
    pub queued: u64,
    /// The version of the queue after the last call.
    pub resource_version: u64,
}

/// A step of a reflector, for logs and metrics.
#[derive(Debug)]
pub enum Step<'a> {
    /// The server has accepted a list.
    List {
        /// The objects in the list.
        objects: u64,
        /// The reply.
        replaced: &'a Replaced,
    },
    /// The server has accepted changes.
    Changes {
        /// The changes in the call.
        changes: usize,
        /// The reply.
        produced: &'a Produced,
    },
    /// [`Reflector::keep_running`] starts a new stream after a pause.
    Restart {
        /// Why the stream ended; `None` if it ended without an error.
        error: Option<&'a ReflectorError>,
        /// The pause.
        pause: Duration,
    },
}

/// Why a reflector stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReflectorError {
    /// The source failed.
    #[error("the source failed")]
    Source(#[source] Box<dyn StdError + Send + Sync>),
    /// A call failed. If the outcome is unknown, the list or the changes may have been applied.
    #[error("queue {queue} has not taken what source {source_name:?} sent")]
    Send {
        /// The queue.
        queue: String,
        /// The name of the source.
        source_name: String,
        /// The error of the call.
        source: Error,
    },
    /// The stream ended in the middle of a list. Nothing of the list was applied.
    #[error("the source ended in the middle of a list")]
    IncompleteList,
    /// The stream yielded an event that is not allowed at this point: an event of a list outside a list, or a change
    /// inside a list.
    #[error("the source sent {0} where this event is not allowed")]
    OutOfOrder(&'static str),
}

type Observer = Box<dyn FnMut(&Step<'_>) + Send>;

/// Keeps a queue in step with a source.
pub struct Reflector {
    client: Client,
    options: ReflectorOptions,
    producer: Option<Producer>,
    /// When the queue is checked next.
    check_at: Instant,
    report: Report,
    observer: Option<Observer>,
}

impl Reflector {
    /// A reflector of a source. No request is sent yet.
    #[must_use]
    pub fn new(client: Client, options: ReflectorOptions) -> Self {
        let (check_at, report) = (Instant::now() + CHECK_EVERY, Report::default());
        Self { client, options, producer: None, check_at, report, observer: None }
    }

    /// Calls a function after each step. The function must not block. Without one, the errors of [`Reflector::keep_running`] are
    /// written to the [`Log`](crate::Log) of the client.
    #[must_use]
    pub fn on_step(mut self, observer: impl FnMut(&Step<'_>) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// What this reflector has sent, in all runs.
    #[must_use]
    pub const fn report(&self) -> Report {
        self.report
    }

    /// Sends the events of a stream until the stream ends. Calls are repeated as the options of the client say,
    /// except for a list of more than 4 MiB, which is not kept in memory. If the future is dropped in the middle of a
    /// list, nothing of the list is applied.
    ///
    /// Within a few seconds, and even while the stream yields nothing, the reflector notices that the queue was
    /// deleted or has lost changes because a backup was restored.
    ///
    /// # Errors
    /// The first error of the stream or of a call. After an error, the source should be listed again, because some of
    /// its changes may not have been applied.
    pub async fn run<S, E>(&mut self, events: S) -> Result<Report, ReflectorError>
    where
        S: Stream<Item = Result<Event, E>>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let events = events.map(|event| event.map_err(|error| ReflectorError::Source(error.into())));
        let mut events = pin!(events.peekable());
        let before = self.report;
        while let Some(event) = self.next(events.as_mut()).await? {
            match event {
                Event::Init => self.list(events.as_mut()).await?,
                Event::InitApply(_) => return Err(ReflectorError::OutOfOrder("InitApply")),
                Event::InitDone => return Err(ReflectorError::OutOfOrder("InitDone")),
                change => {
                    let batch = Batch::collect(change, events.as_mut(), self.options.batch);
                    self.changes(&batch).await?;
                }
            }
        }
        Ok(self.report.since(&before))
    }

    /// Runs one stream after another, forever. Each call of `start` returns a new stream, which should begin with a
    /// list. A pause follows each end of a stream and each error: the pause of [`ReflectorBackoff`], or a longer one that
    /// the server asks for. [`Step::Restart`] reports the errors. To stop, drop the future.
    pub async fn keep_running<F, S, E>(&mut self, mut start: F) -> Infallible
    where
        F: FnMut() -> S,
        S: Stream<Item = Result<Event, E>>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let mut backoff = ReflectorBackoff::default();
        loop {
            let began = Instant::now();
            let error = self.run(start()).await.err();
            backoff.worked(began.elapsed());
            let asked = match &error {
                Some(ReflectorError::Send { source, .. }) => source.retry_after(),
                _ => None,
            };
            let pause = backoff.after_failure(asked);
            self.note(&Step::Restart { error: error.as_ref(), pause });
            // After a failure, the reflector begins with the last number that the server knows.
            self.producer = self.producer.take().filter(|_| error.is_none());
            sleep(pause).await;
        }
    }

    fn note(&mut self, step: &Step<'_>) {
        if let Some(observer) = &mut self.observer {
            return observer(step);
        }
        if let Step::Restart { error: Some(error), pause } = step {
            let (queue, source) = (&self.options.queue, &self.options.source);
            let reason = chain(error);
            let line = format!("queue {queue}, source {source}: {reason}; it is read again in {pause:?}");
            self.client.rows().log.warn(&line);
        }
    }

    /// The next event of a stream. The queue is checked while the event is awaited.
    async fn next<S>(&mut self, mut events: Pin<&mut Peekable<S>>) -> Result<Option<Event>, ReflectorError>
    where
        S: Stream<Item = Result<Event, ReflectorError>>,
    {
        loop {
            if Instant::now() >= self.check_at {
                if let Some(producer) = &mut self.producer
                    && let Err(error) = producer.check_queue().await
                    && !error.is_retryable()
                {
                    // A producer that failed is not used again.
                    self.producer = None;
                    return Err(self.failed(error));
                }
                self.check_at = Instant::now() + CHECK_EVERY;
            }
            if let Ok(event) = timeout_at(self.check_at, events.next()).await {
                return event.transpose();
            }
        }
    }

    async fn list<S>(&mut self, mut events: Pin<&mut Peekable<S>>) -> Result<(), ReflectorError>
    where
        S: Stream<Item = Result<Event, ReflectorError>>,
    {
        loop {
            let options = ReplaceOptions {
                only_changed: self.options.only_changed,
                max_delete_percent: self.options.max_delete_percent,
                max_deletes: self.options.max_deletes,
                allow_empty: self.options.allow_empty,
                keep_last: self.options.keep_last,
                skip_invalid: self.options.skip_invalid,
                must_exist: self.options.must_exist,
                ..ReplaceOptions::default()
            };
            let begun = list::begin(events.as_mut()).await?;
            let (replied, objects) = if begun.is_complete {
                let body = Body::Lines(begun.lines.into());
                (self.producer().await?.replace(&options, body).await, begun.objects)
            } else {
                let (lines, body) = list::channel();
                let reply = pin!(self.producer().await?.replace(&options, body));
                let feed = pin!(list::feed(events.as_mut(), begun, lines));
                match select(reply, feed).await {
                    // The server may refuse a list before it has read all of it.
                    Either::Left((replied, _)) => (replied, 0),
                    Either::Right((Ok(Some(objects)), reply)) => (reply.await, objects),
                    Either::Right((Ok(None), _)) => continue,
                    Either::Right((Err(error), _)) => return Err(error),
                }
            };
            let replaced = replied.map_err(|error| self.failed(error))?;
            self.report.add_list(objects, &replaced);
            self.note(&Step::List { objects, replaced: &replaced });
            return Ok(());
        }
    }

    async fn changes(&mut self, batch: &Batch) -> Result<(), ReflectorError> {
        let skip_invalid = self.options.skip_invalid;
        let sent = self.producer().await?.changes(&batch.deltas(), skip_invalid).await;
        let produced = sent.map_err(|error| {
            // A producer that failed is not used again.
            self.producer = None;
            self.failed(error)
        })?;
        self.report.add_changes(batch, &produced);
        self.note(&Step::Changes { changes: batch.len(), produced: &produced });
        Ok(())
    }

    async fn producer(&mut self) -> Result<&mut Producer, ReflectorError> {
        if self.producer.is_none() {
            let queue = self.client.queue(self.options.queue.as_str());
            let source = self.options.source.clone();
            let producer = if self.options.sequence {
                queue.producer(source).await.map_err(|error| self.failed(error))?
            } else {
                queue.producer_without_sequence(source)
            };
            return Ok(self.producer.insert(producer));
        }
        self.producer.as_mut().ok_or(ReflectorError::IncompleteList)
    }

    fn failed(&self, source: Error) -> ReflectorError {
        let (queue, source_name) = (self.options.queue.clone(), self.options.source.clone());
        ReflectorError::Send { queue, source_name, source }
    }
}

impl fmt::Debug for Reflector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("options", &self.options)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl Report {
    fn add_list(&mut self, objects: u64, replaced: &Replaced) {
        let (sum, counts) = (&mut self.counts, &replaced.counts);
        self.lists += 1;
        self.listed += objects;
        sum.replaced += counts.replaced;
        sum.deleted += counts.deleted;
        sum.unchanged += counts.unchanged;
        sum.skipped += counts.skipped;
        sum.taken_over += counts.taken_over;
        sum.stale += counts.stale;
        self.queued += replaced.queued;
        self.resource_version = replaced.resource_version;
    }

    fn add_changes(&mut self, batch: &Batch, produced: &Produced) {
        self.batches += 1;
        self.applied += batch.applied();
        self.deleted += batch.len() as u64 - batch.applied();
        self.queued += produced.queued;
        self.resource_version = produced.resource_version;
    }

    /// What was sent since an earlier report.
    fn since(&self, before: &Self) -> Self {
        let (sum, earlier) = (&self.counts, &before.counts);
        Self {
            lists: self.lists - before.lists,
            listed: self.listed - before.listed,
            counts: ReplaceCounts {
                replaced: sum.replaced - earlier.replaced,
                deleted: sum.deleted - earlier.deleted,
                unchanged: sum.unchanged - earlier.unchanged,
                skipped: sum.skipped - earlier.skipped,
                taken_over: sum.taken_over - earlier.taken_over,
                stale: sum.stale - earlier.stale,
            },
            batches: self.batches - before.batches,
            applied: self.applied - before.applied,
            deleted: self.deleted - before.deleted,
            queued: self.queued - before.queued,
            resource_version: self.resource_version,
        }
    }
}
