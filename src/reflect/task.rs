//! One source: a list, a pause, the next list, and a longer pause after a failure.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use deltaq_client::types::KeyPart;
use deltaq_client::{Client, Reflector, ReflectorError, ReflectorOptions, Report, Step};
use futures_util::future::{Either, select};
use tokio::sync::Mutex;

use super::Error;
use super::backoff::{Backoff, jittered};
use super::health::Health;
use super::metrics::{SourceMetrics, Summary};
use super::source::{self, Followed, Output, Source};
use crate::clock::Clock;
use crate::config::reflect;
use crate::lifecycle::Shutdown;

/// A source with everything that its lists need.
#[derive(Debug)]
pub(super) struct Task {
    name: String,
    settings: reflect::Source,
    source: Source,
    client: Client,
    /// `None` before the first list and after a failure, so that the next call asks the server for its sequence number.
    reflector: Option<Reflector>,
    health: Arc<Health>,
    backoff: Backoff,
    /// Whether the queue exists, as far as this task knows.
    is_created: bool,
    /// Whether the source has the pointers of the queue's key.
    has_key: bool,
}

impl Task {
    pub(super) fn new(
        name: &str,
        settings: &reflect::Source,
        client: Client,
        metrics: Arc<SourceMetrics>,
        clock: Clock,
    ) -> Result<Self, Error> {
        let source = Source::new(settings)?;
        let health = Arc::new(Health::new(name, settings.queue.as_str(), metrics, clock.clone()));
        let (name, settings, backoff) = (name.to_owned(), settings.clone(), Backoff::new(clock));
        let (is_created, has_key) = (false, false);
        Ok(Self { name, settings, source, client, reflector: None, health, backoff, is_created, has_key })
    }

    /// Sends one list.
    pub(super) async fn once(mut self) -> (String, Result<Summary, Error>) {
        let result = self.list().await;
        (self.name, result)
    }

    /// Sends lists and changes until the shutdown begins.
    async fn run(&mut self, shutdown: &Shutdown) {
        while !shutdown.is_draining() {
            let listed = tokio::select! {
                // A list that is broken off changes nothing.
                () = shutdown.draining().cancelled() => return,
                listed = self.listed() => listed,
            };
            let followed = match listed {
                Ok(()) if self.source.follows() => self.follow(shutdown).await,
                Ok(()) => Ok(jittered(self.settings.interval.get())),
                Err(error) => Err(error),
            };
            let pause = followed.unwrap_or_else(|error| self.failed(&error));
            tokio::select! {
                () = shutdown.draining().cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Sends a list, unless the source can go on behind the last one.
    async fn listed(&mut self) -> Result<(), Error> {
        if self.source.has_position() {
            return Ok(());
        }
        self.list().await.map(drop)
    }

    /// Counts and logs a failure, and returns the pause after it.
    fn failed(&mut self, error: &Error) -> Duration {
        let asked = match error {
            Error::Source(error) => error.asked_wait(),
            Error::Queue { source, .. } => source.retry_after(),
        };
        let pause = self.backoff.after_failure(asked);
        self.health.failed(error, pause);
        pause
    }

    /// Sends one whole list, or nothing if it has not changed.
    async fn list(&mut self) -> Result<Summary, Error> {
        self.refuse_circle().await?;
        self.create().await?;
        let mut reflector = self.reflector.take().unwrap_or_else(|| self.reflector());
        let (output, events) = Output::channel(Arc::clone(&self.health));
        let produced = async {
            if let Err(error) = self.source.list(&output).await {
                output.fail(error).await;
            }
            drop(output);
        };
        let sent = {
            let (sent, produced) = (pin!(reflector.run(events)), pin!(produced));
            match select(sent, produced).await {
                Either::Left((sent, _)) => sent,
                Either::Right(((), sent)) => sent.await,
            }
        };
        let report = match sent {
            Ok(report) => report,
            Err(error) => {
                self.source.forget();
                return Err(self.error(error));
            }
        };
        self.source.accepted();
        self.reflector = Some(reflector);
        let summary = summary(&report);
        self.health.listed(summary);
        self.learn_key().await?;
        Ok(summary)
    }

    /// Sends the changes of the source until a list is needed, and returns the pause before it. At a shutdown the changes that were read
    /// are still sent.
    async fn follow(&mut self, shutdown: &Shutdown) -> Result<Duration, Error> {
        let mut reflector = self.reflector.take().unwrap_or_else(|| self.reflector());
        let (output, events) = Output::channel(Arc::clone(&self.health));
        let relist = self.settings.relist().map(jittered);
        let source = &mut self.source;
        let produced = async {
            let ended = tokio::select! {
                () = shutdown.draining().cancelled() => Ok(Followed::ListNow),
                () = after(relist) => Err(None),
                followed = source.follow(&output) => followed.map_err(Some),
            };
            let followed = match ended {
                Ok(followed) => followed,
                // The list comes now, whether the source could go on or not.
                Err(None) => {
                    source.forget();
                    Followed::ListNow
                }
                Err(Some(error)) => {
                    output.fail(error).await;
                    Followed::ListLater
                }
            };
            drop(output);
            followed
        };
        let (sent, followed) = {
            let (sent, produced) = (pin!(reflector.run(events)), pin!(produced));
            match select(sent, produced).await {
                Either::Left((sent, _)) => (sent, Followed::ListLater),
                Either::Right((followed, sent)) => (sent.await, followed),
            }
        };
        match sent {
            Ok(_) => {
                self.reflector = Some(reflector);
                let is_later = followed == Followed::ListLater;
                Ok(if is_later { self.backoff.after_failure(None) } else { Duration::ZERO })
            }
            Err(error) => {
                let is_of_source = matches!(error, ReflectorError::Source(_));
                // What was sent before the failure of the source is in the queue.
                if is_of_source {
                    self.reflector = Some(reflector);
                } else {
                    self.source.forget();
                }
                Err(self.error(error))
            }
        }
    }

    /// Asks for the pointers of the queue's key, if the source needs them.
    async fn learn_key(&mut self) -> Result<(), Error> {
        if !self.source.needs_key() || self.has_key {
            return Ok(());
        }
        let queue = self.client.queue(self.settings.queue.as_str()).get().await;
        let config = queue.map_err(|error| self.queue_error(error))?.config;
        self.source.set_key(config.key.iter().map(pointer).collect());
        self.has_key = true;
        Ok(())
    }

    fn reflector(&self) -> Reflector {
        let settings = &self.settings;
        let mut options = ReflectorOptions::new(settings.queue.as_str(), self.name.as_str());
        options.max_deletes = settings.max_deletes;
        options.max_delete_percent = settings.max_delete_percent;
        options.allow_empty = settings.allow_empty;
        options.keep_last = settings.last_duplicate || self.source.may_repeat();
        let health = Arc::clone(&self.health);
        Reflector::new(self.client.clone(), options).on_step(move |step| {
            if let Step::Changes { produced, .. } = step {
                health.changed(produced.queued);
            }
        })
    }

    /// Refuses a queue that is its own source. One that does not exist is none.
    async fn refuse_circle(&mut self) -> Result<(), Error> {
        let name = self.settings.queue.as_str();
        if !self.source.may_be_queue(name) {
            return Ok(());
        }
        match self.client.queue(name).get().await {
            Ok(queue) => Ok(self.source.refuse_circle(&queue.incarnation).await?),
            Err(error) if error.code() == Some("queue-not-found") => Ok(()),
            Err(error) => Err(self.queue_error(error)),
        }
    }

    /// Creates the queue with the settings of the source, unless it exists.
    async fn create(&mut self) -> Result<(), Error> {
        if self.is_created || (self.settings.create.is_none() && !self.source.has_queue_settings()) {
            return Ok(());
        }
        let queue = self.client.queue(self.settings.queue.as_str());
        match queue.get().await {
            Err(error) if error.code() == Some("queue-not-found") => {
                let mut settings = self.source.queue_settings().await?;
                for (name, value) in self.settings.create.iter().flatten() {
                    let value = serde_json::to_value(value);
                    let value = value.map_err(|error| source::Error::because("create is not JSON", error))?;
                    settings.insert(name.clone(), value);
                }
                queue.put(&settings).await.map_err(|error| self.queue_error(error))?;
            }
            exists => drop(exists.map_err(|error| self.queue_error(error))?),
        }
        self.is_created = true;
        Ok(())
    }

    fn error(&self, error: ReflectorError) -> Error {
        match error {
            ReflectorError::Send { source, .. } => self.queue_error(source),
            ReflectorError::Source(error) => match error.downcast::<source::Error>() {
                Ok(error) => Error::Source(*error),
                Err(error) => Error::Source(source::Error::because("the source failed", error)),
            },
            error => Error::Source(source::Error::because("the source failed", error)),
        }
    }

    fn queue_error(&self, source: deltaq_client::Error) -> Error {
        Error::Queue { queue: self.settings.queue.as_str().to_owned(), source }
    }
}

/// Runs a task until the shutdown begins. A panic of the task is a failure of its source alone.
pub(super) async fn supervise(task: Arc<Mutex<Task>>, shutdown: Shutdown) {
    loop {
        let (running, of) = (Arc::clone(&task), shutdown.clone());
        let ended = shutdown.spawn("source", async move { running.lock().await.run(&of).await }).await;
        if ended.is_ok() || shutdown.is_draining() {
            return;
        }
        let pause = {
            let mut task = task.lock().await;
            task.failed(&Error::Source(source::Error::new(
                "a defect of deltaq: the task of the source panicked",
            )))
        };
        tokio::select! {
            () = shutdown.draining().cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The pointer of a part of a key.
fn pointer(part: &KeyPart) -> String {
    match part {
        KeyPart::Required(pointer) => pointer.clone(),
        KeyPart::Detailed(part) => part.pointer.clone(),
    }
}

/// Ends after a time; never without one.
async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

fn summary(report: &Report) -> Summary {
    if report.lists == 0 {
        return Summary::Unchanged;
    }
    Summary::Sent { objects: report.listed, counts: report.counts }
}
