//! Runs one source: a list, a pause, the next list, and a longer pause after a failure.

mod place;
mod wording;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use deltaq_client::types::{KeyPart, ObjectDocument, QueueDocument, QueueSettings};
use deltaq_client::{Client, Reflector, ReflectorBackoff, ReflectorError, ReflectorOptions, Report, Step};
use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use serde_json::value::RawValue;
use tokio::time::Instant;

use self::wording::of_source;
use super::Error;
use super::health::Health;
use super::heartbeat::Heartbeat;
use super::metrics::{SourceMetrics, Summary};
use super::source::{self, Keys, NextList, Output, Source, jittered};
use crate::settings;

/// Minimum requested wait that replaces the backoff. A shorter wait, such as 0 or a time that has passed, is ignored.
const ASKED_MIN: Duration = Duration::from_secs(1);

/// A source that has not started. Its files are read when it starts, so a missing file is a failure of this source
/// only.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    name: String,
    settings: settings::Source,
    client: Client,
    health: Arc<Health>,
}

/// A source, with everything that is needed to send its lists.
#[derive(Debug)]
struct Task {
    name: String,
    settings: settings::Source,
    source: Source,
    client: Client,
    /// `None` before the first list and after a failure, so that the next call asks the server for its sequence number.
    reflector: Option<Reflector>,
    health: Arc<Health>,
    backoff: ReflectorBackoff,
    /// The time at which the next list must be complete, regardless of what the source reports about its changes.
    relist_at: Instant,
    /// The pointers of the queue's key; empty if the queue does not exist yet.
    key: Vec<String>,
    /// Whether the queue has the setting `version`.
    has_versions: bool,
    /// The keys of the last list that the queue has accepted, if they were compared.
    known: Option<Keys>,
}

impl Plan {
    pub(super) fn new(
        name: &str,
        settings: &settings::Source,
        client: Client,
        metrics: Arc<SourceMetrics>,
        clock: Clock,
    ) -> Self {
        let heartbeat = Heartbeat::new(name, settings.kind_name(), settings.interval.get(), clock.clone());
        let health = Arc::new(Health::new(name, settings.queue.as_str(), heartbeat, metrics, clock));
        Self { name: name.to_owned(), settings: settings.clone(), client, health }
    }

    fn begin(self) -> Result<Task, Error> {
        let Self { name, settings, client, health } = self;
        // The new task has not read the parts that an earlier task could not read either. A list follows once it can
        // read them.
        health.begins();
        let (source, backoff) = (Source::new(&settings, &name)?, ReflectorBackoff::default());
        let (relist_at, key) = (Instant::now(), Vec::new());
        let (reflector, has_versions, known) = (None, false, None);
        Ok(Task {
            name,
            settings,
            source,
            client,
            reflector,
            health,
            backoff,
            relist_at,
            key,
            has_versions,
            known,
        })
    }

    /// Sends one list.
    pub(super) async fn once(self) -> (String, Result<Summary, Error>) {
        let Self { name, settings, client, health } = self.clone();
        let listed = match self.begin() {
            Ok(mut task) => {
                task.source.set_once();
                Box::pin(task.list()).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &listed {
            health.problems.failed(Some(with_causes(error)));
        }
        health.problems.report(&client, settings.queue.as_str(), &name).await;
        if matches!(listed, Ok(Summary::Unchanged)) {
            health.contacts.report(&client, settings.queue.as_str(), &name, None).await;
        }
        (name, listed)
    }

    /// Drops what the source has made in its database. Returns the name of its slot, and whether there was one; `None` if it is no source
    /// with a slot.
    pub(super) async fn drop_slot(self) -> (String, Result<Option<(String, bool)>, Error>) {
        let dropped = match Source::new(&self.settings, &self.name) {
            Ok(source) => source.drop_slot().await,
            Err(error) => Err(error),
        };
        (self.name, dropped.map_err(Error::from))
    }

    /// Sends lists and changes until the shutdown begins, and reports problems to the queue.
    pub(super) async fn run(self, shutdown: &Shutdown) {
        let (queue, name) = (self.settings.queue.clone(), self.name.clone());
        let (client, health) = (self.client.clone(), Arc::clone(&self.health));
        let threshold = self.settings.stale_after();
        tokio::select! {
            () = self.reflect(shutdown) => {}
            () = health.problems.report_all(&client, queue.as_str(), &name) => {}
            () = health.contacts.report_all(&client, queue.as_str(), &name, threshold) => {}
            () = health.heartbeat.beat(&client, queue.as_str()) => {}
        }
        health.heartbeat.stop(&client, queue.as_str()).await;
    }

    /// Sends lists and changes until the shutdown begins. After a panic, the source starts again, and the others
    /// continue.
    async fn reflect(self, shutdown: &Shutdown) {
        let mut backoff = ReflectorBackoff::default();
        loop {
            let (plan, of) = (self.clone(), shutdown.clone());
            let running = async move {
                let mut task = plan.begin()?;
                Box::pin(task.run(&of)).await;
                Ok(())
            };
            let error = match shutdown.spawn("source", running).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(_) if shutdown.is_draining() => return,
                Err(_) => source::Error::new("a defect of deltaq: the task of the source panicked").into(),
            };
            let pause = backoff.after_failure(None);
            self.health.failed(&error, pause);
            tokio::select! {
                () = shutdown.draining().cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

impl Task {
    /// Sends lists and changes until the shutdown begins.
    async fn run(&mut self, shutdown: &Shutdown) {
        tokio::select! {
            () = shutdown.draining().cancelled() => return,
            () = self.resume() => {}
        }
        self.run_lists(shutdown).await;
        self.keep_place().await;
    }

    async fn run_lists(&mut self, shutdown: &Shutdown) {
        while !shutdown.is_draining() {
            let listed = tokio::select! {
                // A list that is interrupted changes nothing.
                () = shutdown.draining().cancelled() => return,
                listed = self.listed() => listed,
            };
            let pause = match listed {
                Ok(()) if self.source.streams() => Box::pin(self.stream(shutdown)).await,
                Ok(()) => Ok(self.interval()),
                Err(error) => Err(error),
            };
            let has_failed = pause.is_err();
            let pause = pause.unwrap_or_else(|error| self.failed(&error));
            self.health.heartbeat.next_list(Some(pause));
            let (source, health) = (&self.source, &self.health);
            let rest = async {
                if has_failed {
                    // A slot grows while the queue takes nothing.
                    source.look_at_slot(health).await;
                }
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                () = shutdown.draining().cancelled() => return,
                () = rest => {}
            }
            self.health.heartbeat.next_list(None);
        }
    }

    /// The pause before the next list of a source that can't report its changes. Such a source works as long as its
    /// lists are accepted.
    fn interval(&mut self) -> Duration {
        self.backoff = ReflectorBackoff::default();
        jittered(self.settings.interval.get())
    }

    /// Sends a list, unless the source can continue after the last one.
    async fn listed(&mut self) -> Result<(), Error> {
        if Instant::now() >= self.relist_at {
            self.source.forget();
        }
        if self.source.has_position() {
            return Ok(());
        }
        Box::pin(self.list()).await.map(drop)
    }

    /// Counts and logs a failure, and returns the pause after it.
    fn failed(&mut self, error: &Error) -> Duration {
        let pause = match error {
            Error::Source(error) => after_source(&mut self.backoff, error.asked_wait()),
            Error::Queue { source, .. } => self.backoff.after_failure(source.retry_after()),
        };
        self.health.failed(error, pause);
        pause
    }

    /// Sends one complete list, or nothing if the source has not changed.
    async fn list(&mut self) -> Result<Summary, Error> {
        self.prepare().await?;
        let keys_before = self.keys_before().await?;
        // Otherwise, the queue may lack changes that the source has sent.
        let is_followed_up = self.reflector.is_some();
        let mut reflector = self.reflector.take().unwrap_or_else(|| self.reflector());
        let (mut output, events) = Output::channel(Arc::clone(&self.health), &self.key);
        if keys_before > 0 {
            output.keep_end();
        }
        if !self.keeps_last() {
            output.leave_out_equals();
        }
        let mut known = self.known.take();
        let queue = self.client.queue(self.settings.queue.as_str());
        let objects_before = || queue.latest().source(self.name.as_str()).limit(1_000).stream().map(object);
        let produced = async {
            let listed = self.source.list_checked(&output, keys_before, &mut known, objects_before);
            if let Err(error) = Box::pin(listed).await {
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
        let missed = self.source.accepted(report.counts.replaced);
        (self.reflector, self.known) = (Some(reflector), known);
        let summary = summary(&report);
        if matches!(summary, Summary::Sent { .. }) {
            self.relist_at = Instant::now() + jittered(self.settings.relist());
        }
        self.health.listed(summary);
        if missed > 0 && is_followed_up {
            self.health.missed(missed);
        }
        if self.source.lacks_key() {
            self.prepare().await?;
        }
        Ok(summary)
    }

    /// Sends the changes of the source until a list is needed, and returns the pause before it. At a shutdown,
    /// changes that have been read are still sent.
    async fn stream(&mut self, shutdown: &Shutdown) -> Result<Duration, Error> {
        let mut reflector = self.reflector.take().unwrap_or_else(|| self.reflector());
        let step_max = self.source.step_max();
        let (mut output, events) = Output::channel(Arc::clone(&self.health), &self.key);
        output.look_in(self.client.queue(self.settings.queue.as_str()));
        output.stop_with(shutdown.draining().clone());
        let stopped = async {
            shutdown.draining().cancelled().await;
            tokio::time::sleep(step_max).await;
        };
        if self.has_versions {
            output.delete_by_key();
        }
        let (relist_at, began) = (self.relist_at, Instant::now());
        let source = &mut self.source;
        let produced = async {
            let ended = tokio::select! {
                () = stopped => Ok(NextList::Now),
                () = tokio::time::sleep_until(relist_at) => Err(None),
                end = source.stream(&output) => end.map_err(Some),
            };
            let end = match ended {
                Ok(end) => end,
                // A list follows now, even if the source could continue with changes.
                Err(None) => {
                    source.forget();
                    NextList::Now
                }
                Err(Some(error)) => {
                    output.fail(error).await;
                    NextList::AfterPause
                }
            };
            drop(output);
            end
        };
        let (sent, end) = {
            let (sent, produced) = (pin!(reflector.run(events)), pin!(produced));
            match select(sent, produced).await {
                Either::Left((sent, _)) => (sent, NextList::AfterPause),
                Either::Right((end, sent)) => (sent.await, end),
            }
        };
        self.backoff.worked(began.elapsed());
        match sent {
            Ok(_) => {
                self.reflector = Some(reflector);
                Ok(match end {
                    NextList::Now => Duration::ZERO,
                    NextList::AfterPause => self.backoff.after_failure(None),
                    NextList::AfterInterval => self.interval(),
                })
            }
            Err(error) => {
                let is_of_source = matches!(error, ReflectorError::Source(_));
                // The queue has everything that was sent before the source failed.
                if is_of_source {
                    self.reflector = Some(reflector);
                } else {
                    self.source.forget();
                }
                Err(self.error(error))
            }
        }
    }

    fn reflector(&self) -> Reflector {
        let settings = &self.settings;
        let mut options = ReflectorOptions::new(settings.queue.as_str(), self.name.as_str());
        options.max_deletes = settings.max_deletes;
        options.max_delete_percent = settings.max_delete_percent;
        options.allow_empty = settings.allow_empty;
        options.must_exist = self.has_settings();
        options.keep_last = self.keeps_last();
        let health = Arc::clone(&self.health);
        Reflector::new(self.client.clone(), options).on_step(move |step| match step {
            Step::Changes { changes, produced } => {
                health.changed(*changes, produced);
            }
            Step::List { replaced, .. } => {
                health.list_left_out(replaced.invalid, &replaced.invalid_objects);
            }
            Step::Restart { .. } => {}
        })
    }

    /// Whether the last of several objects with the same key counts.
    const fn keeps_last(&self) -> bool {
        self.settings.last_duplicate || self.source.may_repeat()
    }

    /// Whether the source creates its queue with settings. No other call may then create it, with the default settings.
    fn has_settings(&self) -> bool {
        self.settings.create.is_some() || self.source.has_queue_settings()
    }

    /// Checks the queue before each list, because it may have been deleted. Creates it with the settings of the
    /// source if it does not exist, and refuses a queue that is its own source.
    async fn prepare(&mut self) -> Result<(), Error> {
        let has_settings = self.has_settings();
        let queue = self.client.queue(self.settings.queue.as_str());
        let found = match queue.get().await {
            Err(error) if error.code() != Some("queue-not-found") => return Err(self.queue_error(error)),
            Err(_) if !has_settings => {
                self.key.clear();
                return Ok(());
            }
            Err(_) => {
                let mut settings = self.source.queue_settings().await?;
                for (name, value) in self.settings.create.iter().flatten() {
                    let value = serde_json::to_value(value);
                    let value = value.map_err(|error| source::Error::because("create is not JSON", error))?;
                    settings.insert(name.clone(), value);
                }
                let created = match queue.put_settings(&settings).if_absent().await {
                    // Another program has created the queue in the meantime.
                    Err(error) if error.code() == Some("precondition-failed") => queue.get().await,
                    created => created,
                };
                created.map_err(|error| self.queue_error(error))?
            }
            Ok(found) => {
                self.check_settings(&found)?;
                found
            }
        };
        if self.source.may_be_queue(&found.name) {
            self.source.refuse_circle(&found.incarnation).await?;
        }
        self.health.contacts.found_queue(&found.incarnation);
        self.key = found.settings.key.iter().map(pointer).collect();
        self.has_versions = found.settings.version.is_some();
        self.source.set_key(self.key.clone());
        Ok(())
    }

    /// Refuses a queue whose keys or mode are not those that the source would create. The other settings may have been
    /// changed since on purpose.
    fn check_settings(&self, found: &QueueDocument) -> Result<(), Error> {
        let not_json = |error| source::Error::because("the settings are not JSON", error);
        let has = serde_json::to_value(&found.settings).map_err(not_json)?;
        for (name, wanted) in self.settings.create.iter().flatten() {
            if !matches!(name.as_str(), "key" | "mode" | "known_objects") {
                continue;
            }
            let wanted = serde_json::to_value(wanted).map_err(not_json)?;
            let mut with = has.clone();
            if let Some(value) = with.get_mut(name) {
                *value = wanted.clone();
            }
            let is_same =
                serde_json::from_value::<QueueSettings>(with).is_ok_and(|with| with == found.settings);
            if !is_same {
                let (queue, has) = (&self.settings.queue, has.get(name).cloned().unwrap_or_default());
                let why = format!(
                    "the queue {queue} exists with {name} {has}, and create asks for {name} {wanted}: change create, or delete the queue"
                );
                return Err(source::Error::new(why).into());
            }
        }
        Ok(())
    }

    /// The number of keys that a list of the source could delete; 0 if the list need not be compared with them.
    async fn keys_before(&mut self) -> Result<u64, Error> {
        if self.key.is_empty() || !self.source.may_be_cut() {
            return Ok(0);
        }
        let source = self.client.queue(self.settings.queue.as_str()).source(&self.name).await;
        Ok(source.map_err(|error| self.queue_error(error))?.map_or(0, |source| source.keys))
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
        Error::Queue { queue: self.settings.queue.as_str().to_owned(), source: of_source(source) }
    }
}

/// The pause after a failure of a source that has asked for this wait.
fn after_source(backoff: &mut ReflectorBackoff, asked: Option<Duration>) -> Duration {
    match asked {
        // A server that is starting asks for less than the backoff. Its wait does not double the backoff.
        Some(asked) if asked >= ASKED_MIN => jittered(asked).max(asked),
        asked => backoff.after_failure(asked),
    }
}

/// An object that the queue has.
fn object(document: Result<ObjectDocument, deltaq_client::Error>) -> Result<Box<RawValue>, source::Error> {
    let failed = |error| source::Error::because("the keys of the queue can't be compared", error);
    let document = document.map_err(failed)?;
    RawValue::from_string(document.object.as_str().to_owned())
        .map_err(|error| source::Error::because("an object of the queue is not JSON", error))
}

/// The pointer to a part of a key.
fn pointer(part: &KeyPart) -> String {
    match part {
        KeyPart::Required(pointer) => pointer.clone(),
        KeyPart::Detailed(part) => part.pointer.clone(),
    }
}

fn summary(report: &Report) -> Summary {
    if report.lists == 0 {
        return Summary::Unchanged;
    }
    Summary::Sent { objects: report.listed, counts: report.counts }
}

#[cfg(test)]
mod tests {
    use deltaq_client::ClientOptions;

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test(start_paused = true)]
    async fn a_source_that_asks_for_next_to_nothing_gets_the_backoff() {
        for asked in [None, Some(0), Some(1), Some(999)] {
            let asked = asked.map(Duration::from_millis);
            let mut backoff = ReflectorBackoff::default();
            for least_ms in [400, 4_000, 8_000, 12_000] {
                let pause = after_source(&mut backoff, asked);
                assert!(pause >= Duration::from_millis(least_ms), "{asked:?}: {pause:?}");
                tokio::time::advance(Duration::from_secs(16)).await;
            }
        }
        // A source that starts asks for less than the backoff.
        let (mut backoff, second) = (ReflectorBackoff::default(), Duration::from_secs(1));
        for _ in 0..9 {
            let pause = after_source(&mut backoff, Some(second));
            assert!((second..second.mul_f64(1.1)).contains(&pause), "{pause:?}");
        }
    }

    #[test]
    fn a_task_after_a_panic_is_in_step_once_a_list_is_accepted() {
        let settings = "[sources.s]\nqueue = \"q\"\n[sources.s.files]\npath = \"/nowhere\"\n";
        let settings: settings::Reflect = toml::from_str(settings).unwrap();
        let options = ClientOptions::new("http://127.0.0.1:9");
        let (mut metrics, client) = (Metrics::new(), Client::new(options).unwrap());
        let plan = Plan::new("s", &settings.sources["s"], client, metrics.add("s", "q"), Clock::system());
        let broken = source::Error::new("a file is broken").into();
        plan.clone().begin().unwrap().health.degraded(&broken);
        plan.clone().begin().unwrap().health.listed(Summary::Unchanged);
        assert!(
            metrics.page().contains("deltaq_reflect_up{source=\"s\",queue=\"q\"} 1\n"),
            "{}",
            metrics.page()
        );
    }

    #[test]
    fn a_refused_list_is_told_in_objects() {
        let reported = |detail: &str, line: Option<u64>, index: u64| {
            let problem = serde_json::json!({
                "type": "", "title": "", "status": 422, "detail": detail, "code": "duplicate-key", "retryable": false,
                "request_id": "", "index": index, "line": line
            });
            let problem = serde_json::from_value(problem).unwrap();
            let deltaq_client::Error::Problem(problem) = of_source(deltaq_client::Error::Problem(problem))
            else {
                panic!("a problem")
            };
            problem.detail
        };
        assert_eq!(reported("line 3: no key", Some(3), 2), "object 3 of the list: no key");
        // The lines of a slow list are filled with empty ones.
        assert_eq!(reported("line 2049: no key", Some(2_049), 2), "object 3 of the list: no key");
        assert_eq!(reported("object 2: no key", None, 2), "object 3 of the list: no key");
        assert_eq!(
            reported("lines 1 and 3 have the same key a", Some(3), 2),
            "objects 1 and 3 have the same key a"
        );
        let filled = reported("lines 1 and 2049 have the same key a", Some(2_049), 2);
        assert_eq!(filled, "object 3 of the list and one before it have the same key a");
    }
}
