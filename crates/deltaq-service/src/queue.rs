//! A running queue: its settings, its clock, its state behind a lock, and the reads on it.

pub(crate) mod admission;
pub(crate) mod contacts;
pub(crate) mod delivery;
pub(crate) mod feed_readers;
pub(crate) mod follow_task;
pub(crate) mod hook_log;
pub(crate) mod lease_waits;
pub(crate) mod leftovers;
mod line_limit;
pub(crate) mod push_task;
pub(crate) mod reflectors;
pub(crate) mod shared_pages;
pub(crate) mod source_reports;
pub(crate) mod waiters;

mod change;
mod commits;
mod work_times;
mod worker_counts;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use deltaq_engine::config::Config;
use deltaq_engine::id::{Rv, Source, Token};
use deltaq_engine::lives::{Birth, LifeId, Lives};
use deltaq_engine::time::Time;
use deltaq_engine::{NoNumbers, Queue};
use deltaq_journal::recovery::Loaded;
use deltaq_journal::store::{Epoch, QueueId};
use deltaq_journal::{Commit, Journal, QueueMeta};
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

pub(super) use self::change::{Locked, Loss};
pub use self::worker_counts::RecentLeases;

use self::admission::{CompiledRules, QueueAdmission};
use self::commits::Commits;
use self::delivery::Delivery;
use self::feed_readers::{FeedReaders, LongReads, WatchLimits};
use self::follow_task::{FollowReport, FollowTask};
use self::hook_log::HookLog;
use self::leftovers::Leftovers;
use self::line_limit::LineLimit;
use self::push_task::PushTask;
use self::reflectors::Reflectors;
use self::shared_pages::PageRoom;
use self::source_reports::SourceReports;
use self::worker_counts::WorkerCounts;
use super::grants::Grants;
use super::memory::HeldBytes;
use super::metrics::{HookReport, LostPosition, PushReport, QueueMetrics, Sample, Waiting};
use super::series::QueueSeries;
use super::time::{Moment, QueueClock};
use super::{Error, Incarnation, JournalError, LeaseId, Memory, Name};

/// Maximum number of keys that a part of a read visits under the lock.
pub(super) const PART_KEYS: usize = 1_000;

/// A running queue, shared through its `Arc`.
#[derive(Debug)]
pub struct Handle {
    meta: QueueMeta,
    /// The name of the token that created the queue.
    creator: Option<Arc<str>>,
    pub(super) context: Context,
    time: QueueClock,
    state: Mutex<Locked>,
    /// The engine's settings as of the last change. Readers need no lock.
    config: ArcSwap<Config>,
    lives: ArcSwap<Lives>,
    /// The requests of destructors, and the wake-up of the queue's task.
    pub(super) leftovers: Arc<Leftovers>,
    /// Wakes the callers that [wait](Self::wait_until) for a state of the queue when the state may have been reached.
    ///
    /// Other wake-ups are separate. The queue's task (`leftovers`), the task of its feeds and the task of a follower are each woken alone, and a
    /// wake-up that arrives while a task works takes effect afterwards. Readers of a feed are woken one view at a time, and waiting pops one at
    /// a time. A long command is woken only by the end of another long command, because it runs a step at each wake-up.
    reached: Notify,
    /// Wakes long commands that wait for another long command to end.
    pub(super) long_command_ended: Notify,
    admission: CompiledRules,
    /// The readers of the change feeds.
    pub(super) feed_readers: FeedReaders,
    /// The task of a follower.
    pub(super) follow_task: FollowTask,
    /// The task that pushes the keys.
    push_task: PushTask,
    /// What became of the deliveries of the hook.
    hook_log: HookLog,
    /// The problems that sources have reported.
    pub(super) source_reports: SourceReports,
    /// The reflectors that have sent heartbeats.
    pub(super) reflectors: Reflectors,
    parked_lines: LineLimit,
    index_lines: LineLimit,
    /// What the queue holds. Changed only under the queue's lock.
    held_bytes: HeldBytes,
    /// What happened in each minute.
    pub(super) series: Mutex<QueueSeries>,
    /// The leases of each worker that have ended lately.
    pub(super) worker_counts: WorkerCounts,
}

/// The parts of the service that a queue uses.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) clock: Clock,
    /// The journal, and the queue's id in the journal; `None` in a service without a journal.
    pub(super) journal: Option<(Journal, QueueId)>,
    pub(super) shutdown: Shutdown,
    pub(super) max_waiters: usize,
    pub(super) watch: WatchLimits,
    pub(super) metrics: Arc<QueueMetrics>,
    pub(super) grants: Arc<dyn Grants>,
    pub(super) long_reads: Arc<LongReads>,
    pub(super) page_room: PageRoom,
    pub(super) memory: Arc<Memory>,
    /// Wakes the recovery when a panic has lost the state of a queue.
    pub(super) panicked: Arc<Notify>,
}

impl Context {
    /// The present time of the clock that all servers of the queue share.
    fn calendar(&self) -> Time {
        calendar(self.journal.as_ref().map(|(journal, _)| journal), &self.clock)
    }
}

/// The present time of the clock that all servers of a store share; without a store, of the machine's clock.
pub(super) fn calendar(journal: Option<&Journal>, clock: &Clock) -> Time {
    journal.map_or_else(|| Time::from_micros(clock.wall_us()), Journal::wall)
}

/// The queue and its settings, as shown to callers.
#[derive(Clone, Debug)]
pub struct Document {
    /// The queue's name.
    pub name: Name,
    /// Distinguishes this queue from earlier and later queues of the same name.
    pub incarnation: Incarnation,
    /// The current life of the queue.
    pub life: LifeId,
    /// Whether a produce call created the queue and it has not been configured since.
    pub auto_created: bool,
    /// When the queue was created, by the wall clock.
    pub created_at: Time,
    /// The settings.
    pub config: Arc<Config>,
    /// A summary of the state.
    pub status: deltaq_engine::Status,
    /// When the state was read.
    pub moment: Moment,
    /// Number of waiting pops.
    pub waiters: usize,
    /// Number of deltas that were queued since the queue was loaded.
    pub changes: u64,
    /// The progress of a follower; `None` for other queues.
    pub follow: Option<FollowReport>,
    /// What the task that pushes the keys does; `None` for a queue that does not push.
    pub push: Option<PushReport>,
    /// What became of the deliveries of a hook; `None` for a queue without one.
    pub hook: Option<HookReport>,
    /// The followers, in the order of their names.
    pub followers: Vec<Name>,
}

impl Handle {
    /// Creates the handle of a created or loaded queue, which is durable once `commit` is done.
    pub(super) fn new(meta: QueueMeta, mut queue: Queue, commit: Commit, context: Context) -> Self {
        let mut commits = Commits::new(queue.resource_version());
        if context.journal.is_some() {
            queue.journaled();
            queue.set_committed(queue.resource_version());
            commits.resume(queue.resource_version(), Epoch::default(), commit.clone());
            commits.newest = commit;
        }
        let held_bytes = context.memory.of_queue(queue.creator());
        held_bytes.set(queue.held_bytes(), || context.grants.are_several());
        Self {
            meta,
            creator: queue.creator().cloned(),
            time: QueueClock::new(context.clock.clone(), context.calendar(), queue.last_at()),
            context,
            config: ArcSwap::new(queue.config().clone()),
            lives: ArcSwap::from_pointee(queue.lives().clone()),
            state: Mutex::new(Locked::new(queue, commits)),
            leftovers: Arc::default(),
            reached: Notify::new(),
            long_command_ended: Notify::new(),
            admission: CompiledRules::default(),
            feed_readers: FeedReaders::default(),
            follow_task: FollowTask::default(),
            push_task: PushTask::default(),
            hook_log: HookLog::default(),
            source_reports: SourceReports::default(),
            reflectors: Reflectors::default(),
            parked_lines: LineLimit::default(),
            index_lines: LineLimit::default(),
            held_bytes,
            series: Mutex::default(),
            worker_counts: WorkerCounts::default(),
        }
    }

    /// Creates the handle of a queue that was loaded from the journal. A new life begins, live leases get their full
    /// length again, and an unfinished Replace is recorded as aborted.
    ///
    /// # Errors
    /// The queue has no numbers left.
    pub(super) fn loaded(
        meta: QueueMeta,
        loaded: Loaded,
        epoch: Epoch,
        birth: Birth,
        context: Context,
    ) -> Result<Self, NoNumbers> {
        let commit = context.journal.as_ref().map(|(journal, _)| journal.resume(&loaded, epoch));
        let last_rv = loaded.last_rv;
        let handle = Self::new(meta, loaded.queue, Commit::done(), context);
        let mut state = handle.lock();
        state.queue.set_committed(last_rv);
        state.commits.resume(last_rv, epoch, commit.unwrap_or_default());
        state.queue.recover(handle.now(), birth)?;
        handle.set_lives(&state.queue);
        // The queue has no waiting pops, no task and no readers yet, so only the events matter.
        let _effects = state.take_effects(handle.journal());
        drop(state);
        Ok(handle)
    }

    /// Copies the lives of the loaded queue.
    pub(super) fn set_lives(&self, queue: &Queue) {
        self.lives.store(Arc::new(queue.lives().clone()));
    }

    /// The journal, and the queue's id in the journal.
    pub(super) fn journal(&self) -> Option<&(Journal, QueueId)> {
        self.context.journal.as_ref()
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.meta.name
    }

    /// The name of the token that created the queue.
    pub(super) fn creator(&self) -> Option<&Arc<str>> {
        self.creator.as_ref()
    }

    /// The lives of the queue, which change only when the queue is loaded. Readers need no lock.
    #[must_use]
    pub fn lives(&self) -> Arc<Lives> {
        self.lives.load_full()
    }

    /// The id of the lease with this token.
    #[must_use]
    pub fn lease_id(&self, token: Token) -> LeaseId {
        LeaseId { life: self.lives.load().id_of(token.rv()), token }
    }

    /// The token in a lease's id. For an id of another queue or of a lost life, the token is 0, which no lease has.
    #[must_use]
    pub fn token(&self, id: &str) -> Token {
        let lives = self.lives.load();
        let own = LeaseId::parse(id).filter(|id| lives.has(id.life, id.token.rv()));
        own.map_or_else(Token::default, |id| id.token)
    }

    /// Returns keys to the queue whose leases did not reach a worker, as if the keys had never been leased. Leases
    /// that have ended, and those that [the engine](Queue::return_undelivered) does not take back, are ignored.
    pub fn reclaim(&self, tokens: impl IntoIterator<Item = Token>) {
        self.leftovers.reclaim(tokens);
    }

    /// Distinguishes this queue from earlier and later queues of the same name.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.meta.incarnation
    }

    /// The current time of the queue.
    #[must_use]
    pub fn now(&self) -> Time {
        self.time.now()
    }

    /// The current time of the queue, and the offset that replies use to convert the queue's instants to wall times.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.time.moment()
    }

    /// The time until an instant of the queue.
    pub(super) fn until(&self, at: Time) -> Duration {
        self.time.until(at)
    }

    /// How far the queue's time is ahead of the wall clock.
    pub(super) fn lead(&self) -> Duration {
        self.time.lead()
    }

    /// The queue's current settings, without waiting for a commit.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// The admission rules of these settings, if they have any.
    #[must_use]
    pub fn admission(&self, config: &Config) -> Option<Arc<QueueAdmission>> {
        let schemas = &self.context.memory.schemas;
        config.admission.as_ref().map(|text| self.admission.of(self.name(), text, schemas))
    }

    /// Reads the queue. The result depends only on durable events, because the read waits for the commit of all
    /// events that it saw.
    ///
    /// Only `service` and tests call this; the other modules use the typed reads.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`], or [`Error::Reloading`] while the state has changes that are not committed and never will be.
    pub async fn read<T>(&self, read: impl FnOnce(&Queue, Moment) -> T) -> Result<T, Error> {
        self.read_state(|state, moment| read(&state.queue, moment)).await
    }

    pub(super) async fn read_state<T>(&self, read: impl FnOnce(&Locked, Moment) -> T) -> Result<T, Error> {
        let (out, commit) = {
            let state = self.open_to_read()?;
            (read(&state, self.moment()), state.commits.newest.clone())
        };
        commit.wait().await.map_err(|error| Error::from(error).of_read())?;
        Ok(out)
    }

    /// Reads the queue in parts, for reads that visit many keys. `part` is called again until it returns the result, and
    /// visits at most [`PART_KEYS`] keys. In between, a thread that waits for the lock gets it, and the other tasks of
    /// this thread run. `S` is what the parts have read so far. If the queue is loaded again between two parts, the
    /// read starts again, since the earlier parts may have seen lost events.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub(super) async fn read_in_parts<S, T>(
        &self,
        start: impl Fn() -> S,
        part: impl Fn(&mut S, &Locked) -> ControlFlow<T>,
    ) -> Result<(S, T), Error> {
        let mut so_far = start();
        let mut generation = self.open_to_read()?.generation;
        loop {
            let (read, commit) = {
                let state = self.open_to_read()?;
                if state.generation != generation {
                    generation = state.generation;
                    so_far = start();
                }
                let read = part(&mut so_far, &state);
                let commit = state.commits.newest.clone();
                MutexGuard::unlock_fair(state);
                (read, commit)
            };
            // The newest commit of the last part follows those of all parts.
            if let ControlFlow::Break(out) = read {
                commit.wait().await.map_err(|error| Error::from(error).of_read())?;
                return Ok((so_far, out));
            }
            tokio::task::yield_now().await;
        }
    }

    /// The queue's document, without the queue that it follows and without its followers.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub async fn document(&self) -> Result<Document, Error> {
        let document = |state: &Locked, moment: Moment| Document {
            name: self.meta.name.clone(),
            incarnation: self.meta.incarnation,
            life: state.queue.lives().present(),
            auto_created: state.queue.is_auto_created(),
            created_at: self.meta.created_at,
            config: state.queue.config().clone(),
            status: state.queue.status(moment.now),
            moment,
            waiters: state.waiters.len(),
            changes: state.changes,
            follow: None,
            push: state.queue.config().push.as_ref().map(|_| self.push_task.report()),
            hook: self.hook_report(&state.queue),
            followers: Vec::new(),
        };
        self.read_state(document).await
    }

    /// Waits until the queue has synced, but at most `wait`. Returns whether the queue has synced, and the number of
    /// keys of the initial list that are not acknowledged.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub async fn wait_synced(&self, wait: Duration) -> Result<(bool, usize), Error> {
        self.wait_until(wait, |state| Ok(state.queue.has_synced().then_some(()))).await?;
        self.read(|queue, _| (queue.has_synced(), queue.initial_remaining())).await
    }

    /// Closes the queue and ends waiting drains, as client-go's `ShutDown` ends a `ShutDownWithDrain`. If `at_once`
    /// is true, pops end as soon as no key is ready.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub async fn close(self: &Arc<Self>, at_once: bool) -> Result<(), Error> {
        self.switch_closed(at_once).await?;
        self.lock().closes += 1;
        self.note_reached();
        Ok(())
    }

    /// Closes the queue, then waits until it is drained or another call closes it without a drain, but at most
    /// `wait`. Returns whether it is drained.
    ///
    /// # Errors
    /// Same as [`read`](Self::read).
    pub async fn drain(self: &Arc<Self>, at_once: bool, wait: Duration) -> Result<bool, Error> {
        // A close may come before the wait begins.
        let closes = self.lock().closes;
        self.switch_closed(at_once).await?;
        let has_ended = |state: &mut Locked| state.queue.is_drained() || state.closes != closes;
        self.wait_until(wait, |state| Ok(has_ended(state).then_some(()))).await?;
        self.read(|queue, _| queue.is_drained()).await
    }

    /// Waits until `look` finds something in the state, but at most `wait` and only until the shutdown begins. `look`
    /// is called again each time the queue becomes synced or drained, is closed, completes its indexes, or reaches
    /// [`Locked::awaited`].
    pub(super) async fn wait_until<T>(
        &self,
        wait: Duration,
        mut look: impl FnMut(&mut Locked) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let end = tokio::time::sleep(wait);
        tokio::pin!(end);
        loop {
            let reached = self.reached.notified();
            tokio::pin!(reached);
            // From here on, a wake-up is not lost, even if it arrives before the await.
            reached.as_mut().enable();
            let found = look(&mut *self.open_or_shown()?)?;
            // Even a timer of length zero would let the task of the queue run first.
            if found.is_some() || wait.is_zero() {
                return Ok(found);
            }
            tokio::select! {
                biased;
                () = reached => {}
                () = &mut end => return Ok(None),
                () = self.shutdown().draining().cancelled() => return Ok(None),
            }
        }
    }

    /// Wakes the callers that wait for a state.
    pub(super) fn note_reached(&self) {
        self.reached.notify_waiters();
    }

    /// Deletes the queue: waiting pops are answered, and later calls fail. Returns its last event, and the commit of the
    /// deletion.
    pub(super) fn delete(&self, epoch: Epoch) -> Result<(Rv, Commit), Error> {
        let state = self.open()?;
        let last_rv = state.queue.resource_version();
        let commit = match self.journal() {
            Some((journal, id)) => journal.delete(*id, self.meta.clone(), last_rv, epoch),
            None => Commit::done(),
        };
        self.end(state, &Error::QueueDeleted, &Error::QueueDeleted, &commit);
        Ok((last_rv, commit))
    }

    /// Fails all waiting pops with `error` after `commit`, and later calls with `ended`. Drops the state.
    fn end(&self, mut state: MutexGuard<'_, Locked>, error: &Error, ended: &Error, commit: &Commit) {
        state.ended = Some(ended.clone());
        state.commits.newest = commit.clone();
        let waiters = state.waiters.take_all();
        state.lease_waits.wake_all();
        state.count_into(&self.context.metrics);
        let empty = Queue::new(state.queue.config().clone(), Rv::ZERO, self.now());
        let content = std::mem::replace(&mut state.queue, empty);
        self.note_held(&state);
        drop(state);
        for waiter in waiters {
            let _disconnected =
                waiter.reply.send(Delivery { items: Err(error.clone()), commit: commit.clone() });
        }
        self.note_reached();
        self.leftovers.wake();
        self.long_command_ended.notify_waiters();
        self.feed_readers.wake_all();
        self.follow_task.wake.notify_one();
        self.push_task.wake.notify_one();
        drop_in_background(content);
    }

    /// Ends a queue whose creation was not durable.
    pub(super) fn discard(&self) {
        let error = Error::Journal(JournalError::OutcomeUnknown);
        self.end(self.lock(), &error, &Error::QueueDeleted, &Commit::done());
    }

    /// Ends a queue that another node now owns.
    pub(super) fn leave(&self) {
        self.end(self.lock(), &Error::NotOwner, &Error::NotOwner, &Commit::done());
    }

    /// The number of leased keys, after all due timers have been processed.
    pub(super) fn leased(self: &Arc<Self>) -> usize {
        let leased = self.change(|state, now| {
            state.queue.advance(now);
            state.queue.schedule().leased_len()
        });
        leased.map_or(0, |(leased, _)| leased)
    }

    /// The metrics of the queue at this instant; `None` for a queue that has ended.
    pub(super) fn sample(&self) -> Option<Sample> {
        let mut state = self.lock();
        if state.ended.is_some() {
            return None;
        }
        state.count_into(&self.context.metrics);
        let waiting = Waiting { pops: state.waiters.len(), watches: self.feed_readers.counts() };
        let push = state.queue.config().push.as_ref().map(|_| self.push_task.report());
        let (moment, contact) = (self.moment(), |source: &Source| state.contact(source));
        let sample = self.context.metrics.sample(&state.queue, waiting, moment, self.lead());
        let sample = sample.with_sources(&state.queue, contact, moment);
        let sample = sample.with_reflectors(self.reflectors.sources(moment.now));
        Some(sample.with_push(push).with_hook(self.hook_report(&state.queue)))
    }

    /// When the queue was created, by the wall clock.
    pub(super) fn created_at(&self) -> Time {
        self.meta.created_at
    }

    /// Counts a watch whose position the queue never returned.
    pub fn count_lost_watch(&self) {
        self.metrics().count_lost(LostPosition::Lost);
    }

    fn hook_report(&self, queue: &Queue) -> Option<HookReport> {
        queue.config().hook.as_ref().map(|_| self.hook_log.report(queue.unapplied_deliveries()))
    }

    /// What became of the deliveries of the hook.
    pub const fn hook_log(&self) -> &HookLog {
        &self.hook_log
    }

    /// The state of the task that pushes the keys.
    pub const fn push_task(&self) -> &PushTask {
        &self.push_task
    }

    /// The metrics of the queue.
    pub(super) fn metrics(&self) -> &QueueMetrics {
        &self.context.metrics
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.context.clock
    }

    /// The shutdown of the process, or of a node's partition.
    pub fn shutdown(&self) -> &Shutdown {
        &self.context.shutdown
    }
}

/// Drops a large value on a blocking thread.
pub(super) fn drop_in_background<T: Send + 'static>(content: T) {
    drop(tokio::task::spawn_blocking(move || drop(content)));
}
