//! One queue that runs: its lock, its waiters, its commits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};

use super::metrics::{Numbers, QueueMetrics};
use super::waiters::{Delivery, Waiter, Waiters};
use super::{Error, Incarnation, LeaseId, Name};
use crate::clock::Clock;
use crate::engine::Queue;
use crate::engine::command::{Call, Item, Outcome, Pop, Produced, Progress, Settle, Settled};
use crate::engine::config::Config;
use crate::engine::delta::Rv;
use crate::engine::refusal::Refusal;
use crate::engine::time::Time;
use crate::journal::{Commit, Journal};
use crate::lifecycle::Shutdown;

/// How long a sliced command may hold a queue's lock at a stretch.
const SLICE: Duration = Duration::from_millis(1);
/// How many keys a sliced command looks at before it looks at the clock.
pub(super) const SLICE_KEYS: usize = 256;

/// A queue that runs. Cheap to clone through its `Arc`.
#[derive(Debug)]
pub struct Handle {
    name: Name,
    incarnation: Incarnation,
    created_at: Time,
    max_waiters: usize,
    clock: Clock,
    journal: Option<Arc<dyn Journal>>,
    shutdown: Shutdown,
    metrics: QueueMetrics,
    inner: Mutex<Inner>,
    /// Wakes the timer when the next deadline has moved closer, or the queue is gone.
    pub(super) timer: Notify,
    /// Changes whenever the queue becomes synced or drained.
    landmarks: watch::Sender<Landmarks>,
    /// Wakes sliced commands that wait for another one to end.
    sliced_ended: Notify,
}

/// States that callers wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Landmarks {
    synced: bool,
    drained: bool,
    deleted: bool,
}

#[derive(Debug)]
struct Inner {
    queue: Queue,
    waiters: Waiters,
    deleted: bool,
    auto_created: bool,
    /// The commit of the newest events; what reads wait for.
    commit: Commit,
    /// What the timer sleeps until.
    armed: Option<Time>,
    /// What callers were told last.
    landmarks: Landmarks,
}

/// What must be done once the lock is free again.
#[derive(Default)]
#[must_use]
struct Aftermath {
    deliveries: Vec<(oneshot::Sender<Delivery>, Delivery)>,
    waits: Vec<Duration>,
    works: Vec<Duration>,
}

/// The parts that a handle needs from the service around it.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) clock: Clock,
    pub(super) journal: Option<Arc<dyn Journal>>,
    pub(super) shutdown: Shutdown,
    pub(super) max_waiters: usize,
    pub(super) metrics: QueueMetrics,
}

/// What a queue is, for its document.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its name.
    pub name: Name,
    /// Which of the queues of this name it is.
    pub incarnation: Incarnation,
    /// Whether it came into being by a produce or pop, and was never configured.
    pub auto_created: bool,
    /// When it came into being.
    pub created_at: Time,
    /// Its settings.
    pub config: Arc<Config>,
    /// Its state at a glance.
    pub status: crate::engine::Status,
    /// Pops that wait.
    pub waiters: usize,
}

/// A pop with all that comes with it.
#[derive(Debug)]
pub struct PopCall {
    /// What is asked for.
    pub pop: Pop,
    /// Leases to settle first.
    pub settles: Vec<Settle>,
    /// How long to wait for a key.
    pub wait: Duration,
}

/// The answer to a pop: what was settled stands, whatever became of the pop.
#[derive(Debug)]
pub struct PopAnswer {
    /// What became of each settle.
    pub settled: Vec<Settled>,
    /// Keys, none when the wait ended, or the reason why there are none.
    pub items: Result<Delivered, Error>,
}

/// Keys that were handed out. Unless [`confirm`](Self::confirm)ed, dropping it gives them back as if
/// they had not been.
#[derive(Debug, Default)]
pub struct Delivered {
    /// The keys.
    pub items: Vec<Item>,
    commit: Commit,
    give_back: Option<Weak<Handle>>,
}

impl Delivered {
    /// The keys have reached the caller, as far as can be told.
    pub fn confirm(&mut self) {
        self.give_back = None;
    }
}

impl Drop for Delivered {
    fn drop(&mut self) {
        if let Some(handle) = self.give_back.take().and_then(|handle| handle.upgrade()) {
            let tokens: Vec<Rv> = self.items.iter().map(|item| item.token).collect();
            let _gone = handle.change(|queue, now| queue.give_back(now, &tokens));
        }
    }
}

impl Handle {
    pub(super) fn new(
        name: Name,
        incarnation: Incarnation,
        queue: Queue,
        auto_created: bool,
        around: Surroundings,
    ) -> Self {
        Self {
            name,
            incarnation,
            created_at: Time::from_micros(around.clock.now_us()),
            max_waiters: around.max_waiters,
            clock: around.clock,
            journal: around.journal,
            shutdown: around.shutdown,
            metrics: around.metrics,
            inner: Mutex::new(Inner {
                queue,
                waiters: Waiters::default(),
                deleted: false,
                auto_created,
                commit: Commit::done(),
                armed: None,
                landmarks: Landmarks::default(),
            }),
            timer: Notify::new(),
            landmarks: watch::Sender::default(),
            sliced_ended: Notify::new(),
        }
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The id of the lease with this token.
    #[must_use]
    pub fn lease_id(&self, token: Rv) -> LeaseId {
        LeaseId { incarnation: self.incarnation, token }
    }

    /// The token of a lease's id; 0, which no lease has, for an id that is not of this queue.
    #[must_use]
    pub fn token(&self, id: &str) -> Rv {
        let own = LeaseId::parse(id).filter(|id| id.incarnation == self.incarnation);
        own.map_or(0, |id| id.token)
    }

    /// Which of the queues of its name it is.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The present time, as the engine counts it.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_micros(self.clock.now_us())
    }

    /// The queue's settings as of now, without waiting for a commit.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.lock().queue.config().clone()
    }

    /// Reads the queue; the answer is what is durable, or will be before it is returned.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn read<T>(&self, read: impl FnOnce(&Queue, Time) -> T) -> Result<T, Error> {
        let (out, commit) = {
            let inner = self.open()?;
            (read(&inner.queue, self.now()), inner.commit.clone())
        };
        commit.wait().await?;
        Ok(out)
    }

    /// Changes the queue in one critical section and waits for the commit.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn write<T>(self: &Arc<Self>, change: impl FnOnce(&mut Queue, Time) -> T) -> Result<T, Error> {
        let (out, commit) = self.change(change)?;
        commit.wait().await?;
        Ok(out)
    }

    /// Applies calls whose keys were read by `config`.
    ///
    /// # Errors
    /// [`Error::ConfigChanged`] if the queue has other settings for keys by now.
    pub async fn produce(self: &Arc<Self>, config: &Config, calls: &[Call]) -> Result<Produced, Error> {
        self.write(|queue, now| {
            check_same(queue, config)?;
            Ok(queue.produce(now, calls)?)
        })
        .await?
    }

    /// The queue's document.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn document(&self) -> Result<Document, Error> {
        let (document, commit) = {
            let inner = self.open()?;
            let document = Document {
                name: self.name.clone(),
                incarnation: self.incarnation,
                auto_created: inner.auto_created,
                created_at: self.created_at,
                config: inner.queue.config().clone(),
                status: inner.queue.status(self.now()),
                waiters: inner.waiters.len(),
            };
            (document, inner.commit.clone())
        };
        commit.wait().await?;
        Ok(document)
    }

    /// Changes the settings by `edit` of the present ones.
    ///
    /// # Errors
    /// What `edit` says, or the engine refuses.
    pub async fn configure<E: From<Error>>(
        self: &Arc<Self>,
        edit: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> Result<(), E> {
        let changed = self.with_inner(|inner, now| -> Result<(), E> {
            let config = edit(inner.queue.config())?;
            inner.queue.configure(now, Arc::new(config)).map_err(Error::from)?;
            inner.auto_created = false;
            Ok(())
        });
        let (out, commit) = changed.map_err(E::from)?;
        out?;
        commit.wait().await.map_err(|error| E::from(error.into()))
    }

    /// Waits until the queue has synced, at most `wait`; tells whether it has and what remains.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn wait_synced(&self, wait: Duration) -> Result<(bool, usize), Error> {
        self.wait_for(wait, |marks| marks.synced, Queue::has_synced).await;
        self.read(|queue, _| (queue.has_synced(), queue.initial_remaining())).await
    }

    /// Waits until the queue is closed and drained, at most `wait`; tells whether it is.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn wait_drained(&self, wait: Duration) -> Result<bool, Error> {
        self.wait_for(wait, |marks| marks.drained, Queue::is_drained).await;
        self.read(|queue, _| queue.is_drained()).await
    }

    async fn wait_for(&self, wait: Duration, reached: fn(&Landmarks) -> bool, already: fn(&Queue) -> bool) {
        let mut landmarks = self.landmarks.subscribe();
        if wait.is_zero() || already(&self.lock().queue) {
            return;
        }
        let come = landmarks.wait_for(|marks| reached(marks) || marks.deleted);
        tokio::select! {
            _ = come => {}
            () = tokio::time::sleep(wait) => {}
            () = self.shutdown.draining().cancelled() => {}
        }
    }

    /// Settles, then hands out keys or waits for them. The settles are decided on arrival and stand
    /// whatever becomes of the pop.
    pub async fn pop(self: &Arc<Self>, call: PopCall) -> PopAnswer {
        let draining = self.shutdown.is_draining();
        let arrived = self.with_inner(|inner, now| {
            let settled = inner.queue.settle(now, &call.settles);
            let arrival =
                if draining { Arrival::Failed(Error::Draining) } else { self.arrive(inner, now, &call) };
            (settled, arrival)
        });
        let ((settled, arrival), commit) = match arrived {
            Ok(arrived) => arrived,
            Err(error) => {
                let unknown = Settled::Stale { outcome: Outcome::Unknown };
                return PopAnswer { settled: vec![unknown; call.settles.len()], items: Err(error) };
            }
        };
        let items = match arrival {
            Arrival::Items(items, is_fresh) => Ok(self.delivered(items, commit.clone(), is_fresh)),
            Arrival::Failed(error) => Err(error),
            Arrival::Waits(waiting) => waiting.until(call.wait, &self.shutdown).await,
        };
        let items = match items {
            Ok(delivered) => delivered.commit.clone().wait().await.map(|()| delivered).map_err(Error::from),
            Err(error) => Err(error),
        };
        match commit.wait().await {
            Ok(()) => PopAnswer { settled, items },
            Err(error) => PopAnswer { settled, items: Err(error.into()) },
        }
    }

    fn arrive(self: &Arc<Self>, inner: &mut Inner, now: Time, call: &PopCall) -> Arrival {
        let again = inner.queue.repeat_pop(now, &call.pop);
        if !again.is_empty() {
            return Arrival::Items(again, false);
        }
        if inner.waiters.len() == 0 || inner.queue.is_drained() {
            match inner.queue.pop(now, &call.pop) {
                Err(refusal) => return Arrival::Failed(refusal.into()),
                Ok(items) if !items.is_empty() || call.wait.is_zero() => return Arrival::Items(items, true),
                Ok(_) => {}
            }
        } else if call.wait.is_zero() {
            return Arrival::Items(Vec::new(), true);
        }
        if inner.waiters.len() >= self.max_waiters {
            return Arrival::Failed(Error::TooManyWaiters { limit: self.max_waiters });
        }
        let (reply, answer) = oneshot::channel();
        let ticket = inner.waiters.join(Waiter { pop: call.pop.clone(), reply });
        Arrival::Waits(Waiting { handle: self.clone(), ticket, answer })
    }

    fn delivered(self: &Arc<Self>, items: Vec<Item>, commit: Commit, is_fresh: bool) -> Delivered {
        let give_back = (is_fresh && !items.is_empty()).then(|| Arc::downgrade(self));
        Delivered { items, commit, give_back }
    }

    /// Runs a command that comes in slices. It goes on to its end even if the caller is dropped.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`], [`Error::Journal`], or what the engine refuses.
    pub async fn sliced<T: Send + 'static>(
        self: &Arc<Self>,
        mut step: impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        if let Stretch::Done(out, commit) = self.slice(&mut step)? {
            commit.wait().await?;
            return Ok(out);
        }
        let handle = self.clone();
        let rest = self.shutdown.spawn("sliced command", async move {
            loop {
                tokio::task::yield_now().await;
                let turn = handle.sliced_ended.notified();
                tokio::pin!(turn);
                turn.as_mut().enable();
                match handle.slice(&mut step)? {
                    Stretch::Done(out, commit) => {
                        commit.wait().await?;
                        return Ok(out);
                    }
                    Stretch::More => {}
                    Stretch::NotYet => turn.await,
                }
            }
        });
        rest.await.unwrap_or(Err(Error::Broken))
    }

    /// Ends the queue: waiting pops are answered, everything else finds it gone. Returns the last rv.
    pub(super) fn delete(&self) -> Option<Rv> {
        let mut inner = self.lock();
        if std::mem::replace(&mut inner.deleted, true) {
            return None;
        }
        let waiters = inner.waiters.take_all();
        let last_rv = inner.queue.resource_version();
        let empty = Queue::new(inner.queue.config().clone(), last_rv, self.now());
        let content = std::mem::replace(&mut inner.queue, empty);
        drop(inner);
        for waiter in waiters {
            let _left = waiter.reply.send(Err(Error::QueueDeleted));
        }
        self.landmarks.send_replace(Landmarks { deleted: true, ..Landmarks::default() });
        self.timer.notify_one();
        self.sliced_ended.notify_waiters();
        // Dropping a million objects takes a while; no worker thread should stand still for it.
        drop(tokio::task::spawn_blocking(move || drop(content)));
        Some(last_rv)
    }

    /// Lets everything happen that is due. Tells whether a Resync is, and the next deadline.
    pub(super) fn tick(self: &Arc<Self>) -> Result<(bool, Option<Time>), Error> {
        let ticked = self.with_inner(|inner, now| {
            inner.queue.advance(now);
            inner.queue.take_resync_due()
        })?;
        let mut inner = self.lock();
        inner.armed = inner.queue.next_deadline();
        Ok((ticked.0, inner.armed))
    }

    /// Keys in the hands of workers.
    pub(super) fn leased(&self) -> usize {
        self.lock().queue.schedule().leased_len()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Hands the counters and gauges of the queue to its metrics.
    pub(super) fn publish(&self) {
        let (status, tally, waiters, numbers) = {
            let mut inner = self.lock();
            let now = self.now();
            let tally = inner.queue.take_tally();
            (inner.queue.status(now), tally, inner.waiters.len(), Numbers::of(&inner.queue, now))
        };
        self.metrics.publish(&status, &tally, waiters, &numbers);
    }

    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Queue, Time) -> T) -> Result<(T, Commit), Error> {
        self.with_inner(|inner, now| change(&mut inner.queue, now))
    }

    /// The critical section of every mutation: decide and apply, serve who waits, push to the journal.
    fn with_inner<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Inner, Time) -> T,
    ) -> Result<(T, Commit), Error> {
        let (out, commit, aftermath) = {
            let mut inner = self.open()?;
            let now = self.now();
            let out = change(&mut inner, now);
            let aftermath = self.finish(&mut inner, now);
            (out, inner.commit.clone(), aftermath)
        };
        for (reply, delivery) in aftermath.deliveries {
            // A caller that has gone drops the delivery, which gives its keys back.
            drop(reply.send(delivery));
        }
        self.metrics.record(&aftermath.waits, &aftermath.works);
        Ok((out, commit))
    }

    fn finish(self: &Arc<Self>, inner: &mut Inner, now: Time) -> Aftermath {
        let served = if self.shutdown.is_draining() { Vec::new() } else { serve(inner, now) };
        let events = inner.queue.take_events();
        if let Some(journal) = self.journal.as_ref().filter(|_| !events.is_empty()) {
            inner.commit = journal.append(&self.name, events);
        }
        let deliveries = served.into_iter().map(|(reply, answer)| {
            let delivery = answer.map(|items| self.delivered(items, inner.commit.clone(), true));
            (reply, delivery)
        });
        let deliveries = deliveries.collect();
        let next = inner.queue.next_deadline();
        if next.is_some_and(|next| inner.armed.is_none_or(|armed| next < armed)) {
            inner.armed = next;
            self.timer.notify_one();
        }
        let (synced, drained) = (inner.queue.has_synced(), inner.queue.is_drained());
        let landmarks = Landmarks { synced, drained, deleted: false };
        if std::mem::replace(&mut inner.landmarks, landmarks) != landmarks {
            self.landmarks.send_replace(landmarks);
        }
        let (waits, works) = inner.queue.take_durations();
        Aftermath { deliveries, waits, works }
    }

    /// One stretch of a sliced command.
    fn slice<T>(
        self: &Arc<Self>,
        step: &mut impl FnMut(&mut Queue, Time) -> Result<Progress<T>, Refusal>,
    ) -> Result<Stretch<T>, Error> {
        let begun = self.clock.now_us();
        let (stretch, commit) = self.change(|queue, now| {
            loop {
                match step(queue, now) {
                    Ok(Progress::More) if self.clock.since(begun) < SLICE => {}
                    progress => return progress,
                }
            }
        })?;
        if !matches!(stretch, Ok(Progress::More | Progress::NotYet)) {
            self.sliced_ended.notify_waiters();
        }
        Ok(match stretch? {
            Progress::Done(out) => Stretch::Done(out, commit),
            Progress::More => Stretch::More,
            Progress::NotYet => Stretch::NotYet,
        })
    }

    /// The lock of a queue that is there and whole: a panic in the middle of a change closes it.
    fn open(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        let inner = self.inner.lock().map_err(|_| Error::Broken)?;
        if inner.deleted { Err(Error::QueueDeleted) } else { Ok(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a sliced command got while it held the lock.
enum Stretch<T> {
    Done(T, Commit),
    More,
    NotYet,
}

/// How a pop begins.
enum Arrival {
    /// With keys, or none if it does not wait; and whether they were not handed out before.
    Items(Vec<Item>, bool),
    /// Not at all.
    Failed(Error),
    /// In the line.
    Waits(Waiting),
}

/// A place in the line of waiting pops; dropping it leaves the line.
struct Waiting {
    handle: Arc<Handle>,
    ticket: u64,
    answer: oneshot::Receiver<Delivery>,
}

impl Waiting {
    async fn until(mut self, wait: Duration, shutdown: &Shutdown) -> Delivery {
        tokio::select! {
            biased;
            answer = &mut self.answer => return answer.unwrap_or(Err(Error::QueueDeleted)),
            () = tokio::time::sleep(wait) => {}
            () = shutdown.draining().cancelled() => {}
        }
        self.leave();
        // The keys may have come between the end of the wait and leaving the line.
        self.answer.try_recv().unwrap_or_else(|_| Ok(Delivered::default()))
    }

    fn leave(&self) {
        self.handle.lock().waiters.leave(self.ticket);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.leave();
    }
}

type Served = (oneshot::Sender<Delivery>, Result<Vec<Item>, Error>);

/// Gives ready keys to the pops that wait longest; ends their wait when the queue is drained.
fn serve(inner: &mut Inner, now: Time) -> Vec<Served> {
    let mut served = Vec::new();
    while inner.queue.has_ready() || inner.queue.is_drained() {
        let Some(waiter) = inner.waiters.next() else { break };
        if !waiter.reply.is_closed() {
            let answer = inner.queue.pop(now, &waiter.pop).map_err(Error::from);
            served.push((waiter.reply, answer));
        }
    }
    served
}

fn check_same(queue: &Queue, config: &Config) -> Result<(), Error> {
    let now = queue.config();
    let same = now.key == config.key && now.mode == config.mode;
    if same { Ok(()) } else { Err(Error::ConfigChanged) }
}
