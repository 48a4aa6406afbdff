//! The kinds of source. Each reads its system and converts it to events; none of them uses the queue.

mod command;
mod files;
mod http;
mod kept;
mod kubernetes;
mod objects;
mod queue;
mod reading;
mod replication;
mod rest;
mod sql;

use std::collections::HashSet;
use std::error::Error as StdError;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use deltaq_client::{Event, Queue};
use futures_util::stream::unfold;
use futures_util::{Stream, TryStreamExt as _};
use parking_lot::Mutex;
use reqwest::StatusCode;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(super) use self::reading::Keys;
use self::reading::Reading;
pub(super) use self::replication::QueueState;
use super::health::Health;
use super::slot::SlotState;
use crate::{json, settings};

/// Maximum number of events that wait for the queue. A source that is faster than the queue waits.
const EVENTS_MAX: usize = 256;
/// The pause before a list is read once more, in which an interruption or a change of the source may end.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How often a list is read if the source says that it changes while its pages are read.
const READINGS_MAX: u32 = 3;

/// Why a source could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// How long the source asks to wait.
    retry_after: Option<Duration>,
    refusal: Option<Refusal>,
    /// The content type of an unsuccessful reply.
    kind: String,
}

/// The kind of a failed request, as far as it determines the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// There was no connection: the server is down, or its name is unknown.
    NoConnection,
    /// The TLS handshake failed: a certificate or an authority is invalid or has expired.
    Tls,
    /// The connection broke, or was silent for too long.
    Broken,
    /// The server replied with a status other than a success.
    Status(StatusCode),
    /// Every repetition of the step would meet the same error.
    Permanent,
}

impl Error {
    pub(super) fn new(what: impl Into<String>) -> Self {
        let what = printable(&what.into());
        Self { what, source: None, retry_after: None, refusal: None, kind: String::new() }
    }

    /// An error with its cause.
    pub(super) fn because(
        what: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { source: Some(source.into()), ..Self::new(what) }
    }

    /// The same error, with the time that the source asks to wait.
    pub(super) fn retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..self }
    }

    /// Marks an error that every repetition of the step would meet again.
    fn permanent(self) -> Self {
        Self { refusal: Some(Refusal::Permanent), ..self }
    }

    fn is_permanent(&self) -> bool {
        self.refusal == Some(Refusal::Permanent)
    }

    /// The status of an unsuccessful reply.
    fn status(&self) -> Option<StatusCode> {
        match self.refusal {
            Some(Refusal::Status(status)) => Some(status),
            _ => None,
        }
    }

    /// Whether the server refuses the credentials, or this process does not trust the server. The files of
    /// credentials may have been replaced since they were read.
    fn is_about_credentials(&self) -> bool {
        matches!(self.refusal, Some(Refusal::Tls | Refusal::Status(StatusCode::UNAUTHORIZED)))
    }

    /// Whether the server is down, is starting, or is overloaded. It has not refused the request permanently.
    fn is_passing(&self) -> bool {
        let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        match self.refusal {
            Some(Refusal::NoConnection) => true,
            Some(Refusal::Status(status)) => busy.contains(&status),
            Some(Refusal::Broken | Refusal::Tls | Refusal::Permanent) | None => false,
        }
    }

    /// Whether the same request may succeed a little later.
    fn is_repeatable(&self) -> bool {
        match self.refusal {
            Some(Refusal::NoConnection | Refusal::Broken) => true,
            Some(Refusal::Status(status)) => self.retry_after.is_some() || http::may_pass(status),
            Some(Refusal::Tls | Refusal::Permanent) | None => false,
        }
    }

    /// How long the source asks to wait.
    pub(super) const fn asked_wait(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The error of a source whose events are no longer accepted. The cause is the error of the queue.
    fn closed() -> Self {
        Self::new("the queue takes no more events")
    }
}

/// A text for a terminal or a log. Names of files and texts from servers may contain characters that move the cursor
/// or begin a new line.
fn printable(text: &str) -> String {
    let is_plain =
        |c: char| !c.is_control() && !matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let printable = |c: char| if is_plain(c) { c.to_string() } else { c.escape_unicode().to_string() };
    text.chars().map(printable).collect()
}

/// The destination of the events of a source.
#[derive(Debug)]
pub(super) struct Output {
    events: mpsc::Sender<Result<Event, Error>>,
    health: Arc<Health>,
    /// The pointers of the queue's key.
    key: Vec<String>,
    /// The list that is being read, if its end is held back until the list has been compared with the keys of the
    /// queue.
    reading: Option<Mutex<Reading>>,
    /// Whether deletions name only their keys. The last object of a key has the version of an earlier change, and a queue
    /// with versions would refuse a deletion with it as stale.
    deletes_by_key: bool,
    /// Hashes of the objects of the list, if an object that is equal to an earlier one is left out.
    sent: Option<Mutex<HashSet<[u64; 2]>>>,
    hashers: [RandomState; 2],
    /// The queue, for sources whose changes need its objects.
    queue: Option<Queue>,
    /// Cancelled when the process stops.
    stop: CancellationToken,
}

impl Output {
    /// Creates an output, and the stream of its events. `key` has the pointers of the queue's key.
    pub(super) fn channel(
        health: Arc<Health>,
        key: &[String],
    ) -> (Self, impl Stream<Item = Result<Event, Error>> + use<>) {
        health.began();
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let stream = unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
        let hashers = [RandomState::new(), RandomState::new()];
        let (key, deletes_by_key) = (key.to_vec(), false);
        let (queue, stop) = (None, CancellationToken::new());
        (
            Self { events, health, key, reading: None, deletes_by_key, sent: None, hashers, queue, stop },
            stream,
        )
    }

    /// Lets the source read the objects of the queue.
    pub(super) fn look_in(&mut self, queue: Queue) {
        self.queue = Some(queue);
    }

    /// The pointers of the queue's key.
    fn key(&self) -> &[String] {
        &self.key
    }

    /// The newest object of a key in the queue; `None` if the queue has none.
    async fn newest(&self, key: &str) -> Result<Option<Box<RawValue>>, Error> {
        let Some(queue) = &self.queue else { return Ok(None) };
        match queue.latest_object(key).await {
            Ok(found) => RawValue::from_string(found.object.as_str().to_owned())
                .map(Some)
                .map_err(|error| Error::because("an object of the queue is not JSON", error)),
            Err(error) if error.code().is_some_and(|code| code.ends_with("-not-found")) => Ok(None),
            Err(error) => Err(Error::because("an object of the queue can't be read", error)),
        }
    }

    /// Lets [`stopping`](Self::stopping) return when the process stops.
    pub(super) fn stop_with(&mut self, stop: CancellationToken) {
        self.stop = stop;
    }

    /// Waits until the process stops.
    async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Waits until the queue has stored everything that was sent.
    async fn settled(&self) {
        self.health.settled().await;
    }

    /// Records that the source can't report what has changed, so a list follows.
    fn needs_list(&self, why: &'static str) {
        self.health.needs_list(why);
    }

    /// Records where the slot of the source stands.
    fn slot(&self, state: &SlotState<'_>) {
        self.health.slot(state);
    }

    /// Sends objects of a list that are equal only once. A row that moves to the next page while a list is read is on
    /// both pages.
    pub(super) fn leave_out_equals(&mut self) {
        self.sent = Some(Mutex::default());
    }

    /// Sends only the keys of deletions.
    pub(super) const fn delete_by_key(&mut self) {
        self.deletes_by_key = true;
    }

    /// Whether the list has had an equal object.
    fn is_repeated(&self, event: &Event) -> bool {
        let Some(sent) = &self.sent else { return false };
        match event {
            Event::Init => sent.lock().clear(),
            Event::InitApply(object) => {
                let hashes = self.hashers.each_ref().map(|hasher| hasher.hash_one(object.get()));
                return !sent.lock().insert(hashes);
            }
            _ => {}
        }
        false
    }

    /// Holds back the end of the list.
    pub(super) fn keep_end(&mut self) {
        self.reading = Some(Mutex::new(Reading::new(&self.key)));
    }

    pub(super) async fn send(&self, event: Event) -> Result<(), Error> {
        let event = match event {
            Event::Delete(object) if self.deletes_by_key && !json::key(&object, &self.key).is_empty() => {
                Event::DeleteKey(json::key_text(&object, &self.key))
            }
            event => event,
        };
        match &event {
            Event::Apply(object) | Event::Delete(object) => {
                self.health.waits(json::key_text(object, &self.key));
            }
            Event::DeleteKey(key) => self.health.waits(key.clone()),
            Event::Init | Event::InitApply(_) | Event::InitDone => {}
        }
        if self.is_repeated(&event) {
            return Ok(());
        }
        if let Some(reading) = &self.reading
            && reading.lock().note(&event)
        {
            return Ok(());
        }
        self.deliver(event).await
    }

    async fn deliver(&self, event: Event) -> Result<(), Error> {
        self.events.send(Ok(event)).await.map_err(|_| Error::closed())
    }

    /// Sends the objects of a list that has begun.
    pub(super) async fn list(&self, objects: impl IntoIterator<Item = Box<RawValue>>) -> Result<(), Error> {
        for object in objects {
            self.send(Event::InitApply(object)).await?;
        }
        Ok(())
    }

    /// Records that the source was read, and that everything that has changed was sent.
    fn read(&self) {
        self.health.read();
    }

    /// Records that a part of the source can't be read, while the rest continues.
    fn degraded(&self, error: Error) {
        self.health.degraded(&error.into());
    }

    /// Records which parts of the source can't be read now.
    fn parts_fail(&self, why: String) {
        self.health.parts_fail(why);
    }

    /// Records that all parts of the source can be read again.
    fn recovered(&self) {
        self.health.recovered();
    }

    /// Records that the values of the column `since` have no order in time.
    fn scattered(&self) {
        self.health.scattered();
    }

    /// Records that a page of a list has failed. It is requested again after the pause.
    fn repeats(&self, error: Error, pause: Duration) {
        self.health.repeats(&error.into(), pause);
    }

    /// Ends the stream with an error. A list that has begun changes nothing.
    pub(super) async fn fail(&self, error: Error) {
        // If there is no receiver, the cause is the error of the queue.
        let _closed = self.events.send(Err(error)).await;
    }
}

/// When a list follows the changes of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextList {
    /// At once, because a list is needed for what has changed.
    Now,
    /// After the pause that follows a failure, because the changes have expired.
    AfterPause,
    /// After the interval, because the source can't report its changes.
    AfterInterval,
}

/// A source.
#[derive(Debug)]
pub(super) enum Source {
    Rest(Box<rest::Rest>),
    Command(command::Command),
    Files(Box<files::Files>),
    Sql(Box<sql::Sql>),
    Replication(Box<replication::Replication>),
    Queue(Box<queue::Queue>),
    Kubernetes(Box<kubernetes::Kubernetes>),
}

impl Source {
    /// The source of this name for these settings. Only its certificates and its kubeconfig are read.
    pub(super) fn new(settings: &settings::Source, name: &str) -> Result<Self, Error> {
        use settings::Kind;
        match settings.kind() {
            Some(Kind::Rest(rest)) => rest::Rest::new(rest, settings).map(|rest| Self::Rest(Box::new(rest))),
            Some(Kind::Command(command)) => Ok(Self::Command(command::Command::new(command, settings))),
            Some(Kind::Files(files)) => Ok(Self::Files(Box::new(files::Files::new(files, settings)))),
            Some(Kind::Sql(sql)) => sql::Sql::new(sql, settings).map(|sql| Self::Sql(Box::new(sql))),
            Some(Kind::Replication(of)) => {
                replication::Replication::new(of, settings, name).map(|of| Self::Replication(Box::new(of)))
            }
            Some(Kind::Deltaq(queue)) => Ok(Self::Queue(Box::new(queue::Queue::new(queue)))),
            Some(Kind::Kubernetes(kubernetes)) => {
                let kubernetes = kubernetes::Kubernetes::new(kubernetes, settings)?;
                Ok(Self::Kubernetes(Box::new(kubernetes)))
            }
            None => Err(Error::new("the source has no kind")),
        }
    }

    /// The settings that a queue needs for these objects, in addition to those that the user sets.
    pub(super) async fn queue_settings(&self) -> Result<Map<String, Value>, Error> {
        match self {
            Self::Queue(queue) => queue.queue_settings().await,
            Self::Replication(replication) => replication.queue_settings().await,
            Self::Kubernetes(_) => Ok(kubernetes::Kubernetes::queue_settings()),
            Self::Rest(_) | Self::Command(_) | Self::Files(_) | Self::Sql(_) => Ok(Map::new()),
        }
    }

    /// Whether [`queue_settings`](Self::queue_settings) has any.
    pub(super) const fn has_queue_settings(&self) -> bool {
        matches!(self, Self::Queue(_) | Self::Kubernetes(_) | Self::Replication(_))
    }

    /// Whether the source may be the queue of this name on the same server.
    pub(super) fn may_be_queue(&self, name: &str) -> bool {
        matches!(self, Self::Queue(queue) if queue.name() == name)
    }

    /// Refuses the queue that takes the objects as the source, because each change would cause another one, forever.
    pub(super) async fn refuse_circle(&self, incarnation: &str) -> Result<(), Error> {
        match self {
            Self::Queue(queue) => queue.refuse_circle(incarnation).await,
            _ => Ok(()),
        }
    }

    /// Sets the pointers of the queue's key.
    pub(super) fn set_key(&mut self, key: Vec<String>) {
        match self {
            Self::Files(files) => files.set_key(key),
            Self::Replication(replication) => replication.set_key(key),
            _ => {}
        }
    }

    /// Records that only one list is sent.
    pub(super) fn set_once(&mut self) {
        if let Self::Replication(replication) = self {
            replication.set_once();
        }
    }

    /// Whether the source needs the pointers of the queue's key but does not have them.
    pub(super) const fn lacks_key(&self) -> bool {
        matches!(self, Self::Files(files) if files.lacks_key())
    }

    /// Whether a list may contain an object twice. The last one is then kept.
    pub(super) const fn may_repeat(&self) -> bool {
        matches!(self, Self::Queue(_) | Self::Kubernetes(_))
    }

    /// Whether the source can report its changes after a list.
    pub(super) fn streams(&self) -> bool {
        match self {
            Self::Rest(_) | Self::Command(_) => false,
            Self::Sql(sql) => sql.streams(),
            Self::Files(_) | Self::Replication(_) | Self::Queue(_) | Self::Kubernetes(_) => true,
        }
    }

    /// Whether the source can continue with its changes after a failure of its own. Otherwise, a list is needed.
    pub(super) fn has_position(&self) -> bool {
        match self {
            Self::Rest(_) | Self::Command(_) | Self::Files(_) | Self::Sql(_) => false,
            Self::Replication(replication) => replication.has_position(),
            Self::Queue(queue) => queue.has_position(),
            Self::Kubernetes(kubernetes) => kubernetes.has_position(),
        }
    }

    /// Sends one whole list, or nothing if the source reports that it has not changed.
    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        match self {
            Self::Rest(rest) => rest.list(output).await,
            Self::Command(command) => command.list(output).await,
            Self::Files(files) => files.list(output).await,
            Self::Sql(sql) => sql.list(output).await,
            Self::Replication(replication) => replication.list(output).await,
            Self::Queue(queue) => queue.list(output).await,
            Self::Kubernetes(kubernetes) => kubernetes.list(output).await,
        }
    }

    /// Whether a list may lack objects, because it is composed of states of the source at several instants, or by a
    /// program that may leave something out. All other sources read their state at one instant.
    pub(super) const fn may_be_cut(&self) -> bool {
        matches!(self, Self::Rest(_) | Self::Command(_) | Self::Files(_) | Self::Sql(_))
    }

    /// Whether the last list took several requests. A key that moved to another page between them is in none.
    const fn is_paged(&self) -> bool {
        matches!(self, Self::Rest(rest) if rest.is_paged())
    }

    /// Whether the source has said that the last list changed while it was read.
    const fn is_torn(&self) -> bool {
        matches!(self, Self::Rest(rest) if rest.is_torn())
    }

    /// Sends one whole list, like [`list`](Self::list). If the end of the list is held back, and the list has many
    /// fewer keys than the queue has from the source, or a list of several pages lacks any of them, the list is read
    /// once more, and a key is deleted only if both readings lack it. `known` are the keys of the last list if the
    /// queue has accepted it, and then those of this one. `objects_before` are the objects of the queue.
    pub(super) async fn list_checked<O: Stream<Item = Result<Box<RawValue>, Error>>>(
        &mut self,
        output: &Output,
        keys_before: u64,
        known: &mut Option<Keys>,
        objects_before: impl Fn() -> O,
    ) -> Result<(), Error> {
        self.list(output).await?;
        let Some(reading) = &output.reading else { return Ok(()) };
        let Some(mut second) = reading.lock().take() else { return Ok(()) };
        let before = known.take();
        let has_shrunk = second.has_shrunk(keys_before);
        if has_shrunk {
            output.health.shrank(keys_before, second.len());
        } else if self.is_paged() {
            let before = match before {
                Some(before) => before,
                None => Reading::keys_of(&output.key, objects_before()).await?,
            };
            if !second.lacks_any(&before) {
                *known = Some(second);
                return output.deliver(Event::InitDone).await;
            }
            output.health.lacks_keys();
        } else {
            *known = Some(second);
            return output.deliver(Event::InitDone).await;
        }
        let mut first = Keys::default();
        for readings in 2..=READINGS_MAX {
            tokio::time::sleep(READ_AGAIN_AFTER).await;
            if let Self::Rest(rest) = self {
                rest.checks_end();
            }
            self.list(output).await?;
            first = second;
            let again = reading.lock().take();
            let same = "the source said that it had not changed";
            second = again.ok_or_else(|| first.differs(keys_before, same))?;
            if !self.is_torn() || readings == READINGS_MAX {
                break;
            }
        }
        let may_keep = second.lacks_any(&first);
        *known = Some(second.clone().and(first.clone()));
        if may_keep || has_shrunk && first != second {
            let mut comparison = reading.lock().comparison(first, second);
            let mut objects = pin!(objects_before());
            while let Some(object) = objects.try_next().await? {
                if comparison.keeps(&object) {
                    output.deliver(Event::InitApply(object)).await?;
                }
            }
            let (kept, gone) = comparison.end(keys_before, has_shrunk)?;
            output.health.postpones(kept, gone);
        }
        output.deliver(Event::InitDone).await
    }

    /// Sends the changes after a list that the queue has accepted.
    pub(super) async fn stream(&mut self, output: &Output) -> Result<NextList, Error> {
        match self {
            Self::Rest(_) | Self::Command(_) => Ok(NextList::AfterPause),
            Self::Files(files) => files.stream(output).await,
            Self::Sql(sql) => sql.stream(output).await,
            Self::Replication(replication) => replication.stream(output).await,
            Self::Queue(queue) => queue.stream(output).await,
            Self::Kubernetes(kubernetes) => kubernetes.stream(output).await,
        }
    }

    /// Records that the queue has accepted the last list, which has changed this many objects. Returns how many of
    /// them the source should have sent as changes before the list.
    pub(super) fn accepted(&mut self, changed: u64) -> u64 {
        match self {
            Self::Rest(rest) => rest.accepted(),
            Self::Sql(sql) => return sql.accepted(changed),
            Self::Replication(replication) => replication.accepted(),
            Self::Command(_) | Self::Files(_) | Self::Queue(_) | Self::Kubernetes(_) => {}
        }
        0
    }

    /// Records that the queue may lack what was sent: the next step must be a whole list.
    pub(super) fn forget(&mut self) {
        match self {
            Self::Rest(rest) => rest.forget(),
            Self::Replication(replication) => replication.forget(),
            Self::Queue(queue) => queue.forget(),
            Self::Kubernetes(kubernetes) => kubernetes.forget(),
            Self::Command(_) | Self::Files(_) | Self::Sql(_) => {}
        }
    }
}

/// An interval that is up to a tenth longer or shorter, so that processes that start together do not send their lists
/// together.
pub(crate) fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(0.2_f64.mul_add(fastrand::f64(), 0.9))
}
