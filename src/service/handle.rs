//! One queue that runs: its lock, its waiters, its commits.

mod lock;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::metrics::{QueueMetrics, Sample};
use super::popping::Served;
use super::time::{Moment, QueueClock};
use super::turns::{Admitting, Turns};
use super::waiters::{Delivery, Waiters};
use super::{Error, Incarnation, LeaseId, Name};
use crate::clock::Clock;
use crate::engine::config::Config;
use crate::engine::delta::Rv;
use crate::engine::event::Event;
use crate::engine::time::Time;
use crate::engine::{Durations, Garbage, Queue};
use crate::journal::recovery::Loaded;
use crate::journal::store::QueueId;
use crate::journal::{self, Commit, Journal, Naming};
use crate::lifecycle::Shutdown;

/// Up to this many keys, debug builds check every invariant of a queue after every change.
const CHECKED_KEYS_MAX: usize = 64;

/// A queue that runs. Cheap to clone through its `Arc`.
#[derive(Debug)]
pub struct Handle {
    naming: Naming,
    pub(super) max_waiters: usize,
    clock: Clock,
    time: QueueClock,
    /// Where events go, and what the queue is called there; none in a service without a journal.
    journal: Option<(Journal, QueueId)>,
    shutdown: Shutdown,
    metrics: Arc<QueueMetrics>,
    inner: Mutex<Inner>,
    /// The settings, beside the lock: whoever brings objects needs them before, and would take it twice.
    config: Mutex<Arc<Config>>,
    /// How often the lock was not free when it was asked for, and was got later.
    asked: AtomicU64,
    got: AtomicU64,
    /// Wakes the timer when the next deadline has moved closer, or the queue is gone or closed by a panic.
    pub(super) timer: Notify,
    /// Changes whenever the queue becomes synced or drained, or gone.
    landmarks: watch::Sender<Landmarks>,
    /// Wakes sliced commands that wait for another one to end.
    pub(super) sliced_ended: Notify,
    /// Turns of those whose objects are admitted.
    admitting: Admitting,
}

/// States that callers wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Landmarks {
    synced: bool,
    drained: bool,
    /// It is deleted, or closed by a panic: nothing will be reached any more.
    gone: bool,
}

/// What the lock guards.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) queue: Queue,
    pub(super) waiters: Waiters,
    /// Who was waiting and is to be answered when the lock is free.
    pub(super) served: Vec<Served>,
    /// Leases that a repeated pop was answered with: the first answer can't give them back any more.
    /// Some are settled already.
    pub(super) repeated: HashSet<Rv>,
    /// Leases whose keys did not reach their caller, for the next change to give back: while the journal is down, none is
    /// made.
    pub(super) unreached: Vec<Rv>,
    /// How often the queue was loaded from the journal again.
    pub(super) generation: u64,
    pub(super) deleted: bool,
    /// What was pushed to the journal and is not known to be durable: the last event of each commit.
    pub(super) pending: VecDeque<(Rv, Commit)>,
    /// Why the queue must be loaded again: something that it holds is not durable and never will be.
    pub(super) lost: Option<journal::Error>,
    /// How often the journal had failed when it was last seen to take events.
    failures: u64,
    /// The newest event that the journal was given.
    pub(super) pushed: Rv,
    /// The commit of the newest events; what reads wait for.
    pub(super) commit: Commit,
    /// What the timer sleeps until.
    armed: Option<Time>,
    /// What callers were told last.
    landmarks: Landmarks,
    /// What [`Handle::config`] shows whenever the lock is free: kept here, too, to see without that one's lock whether
    /// it is still so.
    shown_config: Arc<Config>,
}

/// What must be done once the lock is free again.
#[derive(Default)]
#[must_use]
pub(super) struct Aftermath {
    served: Vec<Served>,
    commit: Commit,
    waits: Durations,
    works: Durations,
    spent: Vec<Garbage>,
}

/// What the timer has to wait for.
pub(super) struct Tick {
    /// A periodic Resync is to be run first.
    pub(super) resync_due: bool,
    /// When the next thing is due.
    pub(super) next: Option<Time>,
    /// A lease is due, but not committed: nothing happens before.
    pub(super) commit: Option<Commit>,
}

/// The parts that a handle needs from the service around it.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) clock: Clock,
    pub(super) journal: Option<(Journal, QueueId)>,
    pub(super) shutdown: Shutdown,
    pub(super) max_waiters: usize,
    pub(super) metrics: Arc<QueueMetrics>,
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
    /// When that was.
    pub moment: Moment,
    /// Pops that wait.
    pub waiters: usize,
}

impl Handle {
    /// A queue that was created or loaded; it is durable once `commit` has come.
    pub(super) fn new(naming: Naming, mut queue: Queue, commit: Commit, around: Surroundings) -> Self {
        let pushed = queue.resource_version();
        let config = queue.config().clone();
        let mut pending = VecDeque::new();
        if around.journal.is_some() {
            queue.journaled();
            queue.set_committed(pushed);
            pending.push_back((pushed, commit.clone()));
        }
        Self {
            naming,
            max_waiters: around.max_waiters,
            time: QueueClock::new(around.clock.clone(), queue.last_at()),
            clock: around.clock,
            journal: around.journal,
            shutdown: around.shutdown,
            metrics: around.metrics,
            config: Mutex::new(config.clone()),
            inner: Mutex::new(Inner {
                queue,
                waiters: Waiters::default(),
                served: Vec::new(),
                repeated: HashSet::new(),
                unreached: Vec::new(),
                generation: 0,
                deleted: false,
                pending,
                lost: None,
                failures: 0,
                pushed,
                commit,
                armed: None,
                landmarks: Landmarks::default(),
                shown_config: config,
            }),
            asked: AtomicU64::new(0),
            got: AtomicU64::new(0),
            timer: Notify::new(),
            landmarks: watch::Sender::default(),
            sliced_ended: Notify::new(),
            admitting: Admitting::default(),
        }
    }

    /// A queue that was loaded from the journal: live leases get their time again, a Replace that was
    /// cut off is noted, and after an unclean end the numbers skip ahead.
    pub(super) fn loaded(
        naming: Naming,
        loaded: Loaded,
        failures: u64,
        unclean: bool,
        around: Surroundings,
    ) -> Self {
        let commit = around.journal.as_ref().map(|(journal, _)| journal.resume(&loaded, failures));
        let last_rv = loaded.last_rv;
        let handle = Self::new(naming, loaded.queue, Commit::done(), around);
        let mut inner = handle.lock();
        inner.opened(last_rv, failures, commit.unwrap_or_default());
        inner.queue.recover(handle.now(), unclean);
        let events = inner.queue.take_events();
        if let Some((journal, id)) = handle.journal.as_ref().filter(|_| !events.is_empty()) {
            inner.push(journal, *id, events);
        }
        drop(inner);
        handle
    }

    /// Where its events go, and what it is called there.
    pub(super) fn journal(&self) -> Option<&(Journal, QueueId)> {
        self.journal.as_ref()
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.naming.name
    }

    /// The id of the lease with this token.
    #[must_use]
    pub fn lease_id(&self, token: Rv) -> LeaseId {
        LeaseId { incarnation: self.naming.incarnation, token }
    }

    /// The token of a lease's id; 0, which no lease has, for an id that is not of this queue.
    #[must_use]
    pub fn token(&self, id: &str) -> Rv {
        let own = LeaseId::parse(id).filter(|id| id.incarnation == self.naming.incarnation);
        own.map_or(0, |id| id.token)
    }

    /// Which of the queues of its name it is.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.naming.incarnation
    }

    /// The present time of the queue.
    #[must_use]
    pub fn now(&self) -> Time {
        self.time.now()
    }

    /// The present time of the queue, with what replies need to show its instants as wall times.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.time.moment()
    }

    /// How long it is until an instant of the queue.
    pub(super) fn until(&self, at: Time) -> Duration {
        self.time.until(at)
    }

    /// How far the queue's time is ahead of the wall clock.
    pub(super) fn lead(&self) -> Duration {
        self.time.lead()
    }

    /// The queue's settings as of now, without waiting for a commit.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The turns of those whose objects are admitted by these settings.
    #[must_use]
    pub fn admitting(&self, config: &Config) -> Arc<Turns> {
        self.admitting.turns(config.admission.as_ref())
    }

    /// Reads the queue; the answer is what is durable, or will be before it is returned.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn read<T>(&self, read: impl FnOnce(&Queue, Moment) -> T) -> Result<T, Error> {
        self.look(|inner, moment| read(&inner.queue, moment)).await
    }

    async fn look<T>(&self, look: impl FnOnce(&Inner, Moment) -> T) -> Result<T, Error> {
        let (out, commit) = {
            let _told = IfItPanics(self);
            let inner = self.open()?;
            (look(&inner, self.moment()), inner.commit.clone())
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

    /// The queue's document.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn document(&self) -> Result<Document, Error> {
        let document = |inner: &Inner, moment: Moment| Document {
            name: self.naming.name.clone(),
            incarnation: self.naming.incarnation,
            auto_created: inner.queue.is_auto_created(),
            created_at: self.naming.created_at,
            config: inner.queue.config().clone(),
            status: inner.queue.status(moment.now),
            moment,
            waiters: inner.waiters.len(),
        };
        self.look(document).await
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
            Ok(())
        });
        let (out, commit) = changed.map_err(E::from)?;
        commit.wait().await.map_err(|error| E::from(error.into()))?;
        out
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
        let come = landmarks.wait_for(|marks| reached(marks) || marks.gone);
        tokio::select! {
            biased;
            _ = come => {}
            () = tokio::time::sleep(wait) => {}
            () = self.shutdown.draining().cancelled() => {}
        }
    }

    /// Ends the queue: waiting pops are answered, everything else finds it gone. Returns its last
    /// event and the commit of its end.
    pub(super) fn delete(&self, failures: u64) -> Result<(Rv, Commit), Error> {
        let inner = self.open()?;
        let last_rv = inner.queue.resource_version();
        let commit = match &self.journal {
            Some((journal, id)) => journal.delete(*id, self.naming.clone(), last_rv, failures),
            None => Commit::done(),
        };
        self.end(inner, &Error::QueueDeleted, &commit);
        Ok((last_rv, commit))
    }

    /// Answers all who wait with `error` once it has come to stay, and drops the content.
    pub(super) fn end(&self, mut inner: MutexGuard<'_, Inner>, error: &Error, commit: &Commit) {
        inner.deleted = true;
        inner.commit = commit.clone();
        let waiters = inner.waiters.take_all();
        self.metrics.absorb(&mut inner.queue);
        let empty = Queue::new(inner.queue.config().clone(), 0, self.now());
        let content = std::mem::replace(&mut inner.queue, empty);
        drop(inner);
        for waiter in waiters {
            let _left = waiter.reply.send(Delivery { items: Err(error.clone()), commit: commit.clone() });
        }
        self.landmarks.send_replace(Landmarks { gone: true, ..Landmarks::default() });
        self.timer.notify_one();
        self.sliced_ended.notify_waiters();
        drop_elsewhere(content);
    }

    /// Lets everything happen that is due; tells what the timer has to wait for next.
    pub(super) fn tick(self: &Arc<Self>) -> Result<Tick, Error> {
        let (resync_due, commit) = self.with_inner(|inner, now| {
            inner.queue.advance(now);
            inner.queue.take_resync_due()
        })?;
        let mut inner = self.lock();
        // A lease does not expire before its own commit, so its deadline may have passed.
        let commit = inner.queue.due_uncommitted(self.now()).then_some(commit);
        // It counts as armed nonetheless, or each tick would call for the next one until the commit comes.
        inner.armed = inner.queue.next_deadline();
        let next = if commit.is_some() { None } else { inner.armed };
        Ok(Tick { resync_due, next, commit })
    }

    /// Keys in the hands of workers, after all that is due has happened.
    pub(super) fn leased(self: &Arc<Self>) -> usize {
        let leased = self.change(|queue, now| {
            queue.advance(now);
            queue.schedule().leased_len()
        });
        leased.map_or(0, |(leased, _)| leased)
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// What `/metrics` says of the queue; nothing of one that is gone.
    pub(super) fn sample(&self) -> Option<Sample> {
        let mut inner = self.lock();
        let waiters = inner.waiters.len();
        (!inner.deleted).then(|| self.metrics.sample(&mut inner.queue, waiters, self.now(), self.lead()))
    }

    /// What is measured of the queue.
    pub(super) fn metrics(&self) -> &QueueMetrics {
        &self.metrics
    }

    pub(super) fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Queue, Time) -> T,
    ) -> Result<(T, Commit), Error> {
        self.with_inner(|inner, now| change(&mut inner.queue, now))
    }

    /// The critical section of every mutation: decide and apply, serve who waits, push to the journal.
    pub(super) fn with_inner<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Inner, Time) -> T,
    ) -> Result<(T, Commit), Error> {
        let _told = IfItPanics(self);
        let mut inner = self.open_to_change()?;
        let now = self.now();
        inner.take_back(now);
        let out = change(&mut inner, now);
        // In a panic what was declared last goes first: `out` may take the lock when it is dropped.
        let mut inner = inner;
        let aftermath = self.finish(&mut inner, now);
        drop(inner);
        let commit = aftermath.commit.clone();
        self.conclude(aftermath);
        Ok((out, commit))
    }

    /// What was left to do until the lock was free.
    pub(super) fn conclude(self: &Arc<Self>, aftermath: Aftermath) {
        for (reply, answer) in aftermath.served {
            let commit = aftermath.commit.clone();
            let items = answer.map(|items| self.delivered(items, commit.clone(), true));
            // A caller that has gone drops the delivery, which gives its keys back.
            drop(reply.send(Delivery { items, commit }));
        }
        self.metrics.record(&aftermath.waits, &aftermath.works);
        if !aftermath.spent.is_empty() {
            drop_elsewhere(aftermath.spent);
        }
    }

    pub(super) fn finish(self: &Arc<Self>, inner: &mut Inner, now: Time) -> Aftermath {
        self.serve(inner, now);
        let served = std::mem::take(&mut inner.served);
        let events = inner.queue.take_events();
        if let Some((journal, id)) = self.journal.as_ref().filter(|_| !events.is_empty()) {
            inner.push(journal, *id, events);
        }
        let next = inner.queue.next_deadline();
        if next.is_some_and(|next| inner.armed.is_none_or(|armed| next < armed)) {
            inner.armed = next;
            self.timer.notify_one();
        }
        let (synced, drained) = (inner.queue.has_synced(), inner.queue.is_drained());
        let landmarks = Landmarks { synced, drained, gone: false };
        if std::mem::replace(&mut inner.landmarks, landmarks) != landmarks {
            self.landmarks.send_replace(landmarks);
        }
        if !Arc::ptr_eq(&inner.shown_config, inner.queue.config()) {
            inner.shown_config = inner.queue.config().clone();
            *self.config.lock().unwrap_or_else(PoisonError::into_inner) = inner.shown_config.clone();
        }
        let (waits, works) = inner.queue.take_durations();
        Aftermath { served, commit: inner.commit.clone(), waits, works, spent: inner.queue.take_garbage() }
    }

    /// After a change: gives keys to who waits for them.
    pub(super) fn serve(&self, inner: &mut Inner, now: Time) {
        if !self.shutdown.is_draining() {
            inner.serve(now);
        }
        debug_assert!(inner.queue.table().len() > CHECKED_KEYS_MAX || inner.queue.check() == Ok(()));
    }
}

/// Has the timer find that a panic has closed the queue, and tell all who wait at it.
struct IfItPanics<'h>(&'h Handle);

impl Drop for IfItPanics<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.timer.notify_one();
        }
    }
}

impl Inner {
    /// Gives events to the journal; they are pending until their commit has come.
    fn push(&mut self, journal: &Journal, id: QueueId, events: Vec<Event>) {
        let prev_rv = std::mem::replace(&mut self.pushed, self.queue.resource_version());
        self.commit = journal.append(id, prev_rv, events, self.failures);
        match self.pending.back_mut() {
            Some((rv, commit)) if commit.is_same(&self.commit) => *rv = self.pushed,
            _ => self.pending.push_back((self.pushed, self.commit.clone())),
        }
    }

    /// The queue is as it was loaded, as of `rv`; the journal had failed so often before, and hears of it
    /// with the commit.
    pub(super) fn opened(&mut self, rv: Rv, failures: u64, commit: Commit) {
        self.queue.set_committed(rv);
        self.failures = failures;
        self.pushed = rv;
        self.pending = VecDeque::from([(rv, commit)]);
        self.commit = Commit::done();
    }

    /// Fails if the queue is gone, or holds what is not durable and never will be.
    fn check(&mut self) -> Result<(), Error> {
        if self.deleted {
            return Err(Error::QueueDeleted);
        }
        self.follow_commits();
        self.lost.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Notes which commits have come, and whether one has failed.
    fn follow_commits(&mut self) {
        while let Some((rv, outcome)) = self.pending.front().map(|(rv, commit)| (*rv, commit.outcome())) {
            match outcome {
                None => return,
                Some(Ok(())) => self.queue.set_committed(rv),
                Some(Err(error)) => self.lost = Some(error),
            }
            self.pending.pop_front();
        }
    }
}

/// Dropping a million objects takes a while; no thread that serves requests should stand still for it.
pub(super) fn drop_elsewhere<T: Send + 'static>(content: T) {
    drop(tokio::task::spawn_blocking(move || drop(content)));
}
