//! All queues of this server, by name.

mod followers;
mod kubernetes;
mod leaving;
mod measure;
mod pushers;
mod queues;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use deltaq_engine::command::{Call, Expected, Replace};
use deltaq_engine::config::Config;
use deltaq_engine::id::Rv;
use deltaq_engine::lives::Birth;
use deltaq_engine::time::Time;
use deltaq_engine::{NoNumbers, Queue, Seed};
use deltaq_journal::record::Identity;
use deltaq_journal::recovery::{Loaded, Progress};
use deltaq_journal::store::{Epoch, QueueId};
use deltaq_journal::{self, Commit, Journal, Live, QueueMeta};
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use tokio::sync::Notify;

use self::pushers::Pushers;
use self::queues::Queues;
use super::grants::{Everyone, Grants};
use super::metrics::Metrics;
use super::queue::{Context, Document, Handle, calendar};
use super::{Error, Incarnation, Memory, Name, lives, task};
use crate::author::author;
use crate::calls::commands::DryRun;
use crate::queue::feed_readers::{LongReads, WatchLimits};
use crate::queue::shared_pages::PageRoom;
use crate::series::{Minutes, SeriesPart};

/// The limits on queues.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Whether the first produce call creates a queue.
    pub auto_create: bool,
    /// Maximum number of queues.
    pub max_queues: usize,
    /// Maximum number of waiting pops of a queue.
    pub max_waiters: usize,
    /// The limits of the change feeds of a queue.
    pub watch: WatchLimits,
}

/// The caller that creates a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Creator {
    /// The name of its token; `None` on a server without tokens.
    pub token: Option<Arc<str>>,
    /// Whether other tokens must find room for their queues.
    pub shares: bool,
}

/// The produce call that creates a queue, unless the queue exists.
#[derive(Clone, Copy, Debug)]
pub enum FirstCall<'c> {
    /// Add, Update or Delete, and what they expect.
    Produce(&'c [Call], &'c [Expected]),
    /// A Replace.
    Replace(&'c Replace),
    /// A Resync.
    Resync,
    /// A seed.
    Seed(&'c [Seed]),
}

/// All queues of this server. No other code assumes that a queue is local.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    defaults: Arc<Config>,
    clock: Clock,
    journal: Option<Journal>,
    /// The epoch of the journal in which every queue is intact.
    recovered: AtomicU64,
    /// The epoch of the journal in which every queue that can be loaded is intact.
    reloaded: AtomicU64,
    progress: Arc<Progress>,
    /// Whether all queues of the store are loaded.
    ready: AtomicBool,
    shutdown: Shutdown,
    metrics: Metrics,
    queues: RwLock<Queues>,
    /// Wakes the recovery when a panic has lost the state of a queue.
    panicked: Arc<Notify>,
    /// Wakes the task that runs the followers.
    followers_changed: Notify,
    /// The pushers of the queues.
    pub(super) pushers: Pushers,
    grants: Arc<dyn Grants>,
    long_reads: Arc<LongReads>,
    page_room: PageRoom,
    memory: Arc<Memory>,
    /// The minutes that are complete, for the series of the queues.
    minutes: Mutex<Minutes>,
    /// The memory that the series of the queues may take.
    series_part: SeriesPart,
    /// Maximum number of followers that one token may set up.
    max_followers_per_token: usize,
    has_tasks: bool,
    /// Whether this server has given up the partition.
    has_left: AtomicBool,
    /// All lives begin above this number.
    issued: Rv,
}

impl Registry {
    /// Creates a registry without queues. `defaults` are the settings of new queues. Without a `journal`, everything
    /// is kept only in memory.
    #[must_use]
    pub fn new(
        limits: Limits,
        defaults: Config,
        clock: Clock,
        journal: Option<Journal>,
        shutdown: Shutdown,
        metrics: Metrics,
    ) -> Self {
        let last_deleted = journal.as_ref().map_or(Rv::ZERO, Journal::floor);
        let Epoch(epoch) =
            journal.as_ref().map(|journal| journal.health().borrow().epoch).unwrap_or_default();
        let memory = Arc::<Memory>::default();
        Self {
            limits,
            defaults: Arc::new(defaults),
            clock,
            recovered: AtomicU64::new(epoch),
            reloaded: AtomicU64::new(epoch),
            progress: Arc::default(),
            ready: AtomicBool::new(journal.is_none()),
            journal,
            shutdown,
            metrics,
            queues: RwLock::new(Queues { last_deleted, ..Queues::default() }),
            panicked: Arc::default(),
            followers_changed: Notify::new(),
            pushers: Pushers::default(),
            grants: Arc::new(Everyone),
            long_reads: Arc::default(),
            page_room: PageRoom::default(),
            minutes: Mutex::default(),
            series_part: memory.series.join(),
            memory,
            max_followers_per_token: usize::MAX,
            has_tasks: true,
            has_left: AtomicBool::new(false),
            issued: Rv::ZERO,
        }
    }

    /// The same registry, but its queues have no tasks, so nothing happens in them by itself.
    #[must_use]
    pub fn without_tasks(self) -> Self {
        Self { has_tasks: false, ..self }
    }

    /// The same registry, whose queues share this memory.
    #[must_use]
    pub fn with_memory(self, memory: Arc<Memory>) -> Self {
        Self { series_part: memory.series.join(), memory, ..self }
    }

    /// The settings of new queues.
    #[must_use]
    pub fn defaults(&self) -> &Arc<Config> {
        &self.defaults
    }

    /// The limits on queues.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The metrics of all queues.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The queue of this name, if there is one.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<Arc<Handle>> {
        self.queues.read().live.get(name).cloned()
    }

    /// The queue of this name.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`].
    pub fn get(&self, name: &Name) -> Result<Arc<Handle>, Error> {
        self.find(name).ok_or(Error::QueueNotFound)
    }

    /// The queue of this name. If it does not exist, it is created with the default settings for its first produce
    /// call. A call that an empty queue would refuse does not create a queue.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`] if calls do not create queues, a refusal of the engine, or the errors of
    /// [`create`](Self::create).
    pub fn get_or_create(
        &self,
        name: &Name,
        first: FirstCall<'_>,
        creator: &Creator,
    ) -> Result<Arc<Handle>, Error> {
        if let Some(handle) = self.find(name) {
            return Ok(handle);
        }
        let mut queue = self.empty_queue()?;
        queue.set_room(self.memory.of_queue(creator.token.as_ref()).room(creator.shares));
        match first {
            FirstCall::Produce(calls, expected) => queue.check_calls(calls, expected)?,
            FirstCall::Replace(replace) => queue.check_replace(replace)?,
            FirstCall::Resync => queue.check_resync()?,
            FirstCall::Seed(seeds) => queue.check_seed(seeds)?,
        }
        self.create_by_call(name, self.defaults.clone(), creator, true).map(|(handle, _)| handle)
    }

    /// A dry run of a Replace that would create its queue.
    ///
    /// # Errors
    /// Same as [`get_or_create`](Self::get_or_create).
    pub fn dry_run(&self, replace: Replace) -> Result<DryRun, Error> {
        let queue = self.empty_queue()?;
        queue.check_replace(&replace)?;
        Ok(DryRun { queue, replace })
    }

    /// An empty queue with the default settings, if calls create queues.
    fn empty_queue(&self) -> Result<Queue, Error> {
        if !self.limits.auto_create {
            return Err(Error::QueueNotFound);
        }
        Ok(Queue::new(self.defaults.clone(), Rv::ZERO, self.calendar()))
    }

    /// The queue of this name, which is created with `config` if it does not exist, and whether this call created it.
    ///
    /// # Errors
    /// [`Error::TooManyQueues`] and [`Error::Draining`].
    pub fn create(
        &self,
        name: &Name,
        config: Arc<Config>,
        creator: &Creator,
    ) -> Result<(Arc<Handle>, bool), Error> {
        self.create_by_call(name, config, creator, false)
    }

    fn create_by_call(
        &self,
        name: &Name,
        config: Arc<Config>,
        creator: &Creator,
        is_produce_call: bool,
    ) -> Result<(Arc<Handle>, bool), Error> {
        let mut queues = self.queues.write();
        if let Some(handle) = queues.live.get(name) {
            return Ok((handle.clone(), false));
        }
        if self.shutdown.is_draining() {
            return Err(Error::Draining);
        }
        if queues.live.len() >= self.limits.max_queues {
            return Err(Error::TooManyQueues { limit: self.limits.max_queues, share: None });
        }
        queues.check_share(creator, self.limits.max_queues)?;
        self.check_follow(&queues, name, &config)?;
        queues.resources.check(name, &config)?;
        let epoch = self.check_journal()?;
        let created_at = self.calendar();
        let birth = self.birth();
        let before = if queues.last_deleted == Rv::ZERO {
            birth.floor
        } else {
            birth.first_after(queues.last_deleted)
        };
        let queue = Queue::new(config, before, created_at).in_life(birth.id);
        let mut queue = queue.created_by(creator.token.clone()).with_follow_set_by(author().token);
        if is_produce_call {
            queue = queue.auto_created();
        }
        let meta = QueueMeta { name: name.clone(), incarnation: Incarnation(fastrand::u32(..)), created_at };
        let (journal, commit) = match &self.journal {
            Some(journal) => {
                let (id, commit) = journal.create(meta.clone(), queue.queue_state(), epoch);
                (Some((journal.clone(), id)), commit)
            }
            None => (None, Commit::done()),
        };
        let handle = Arc::new(Handle::new(meta, queue, commit, self.context(name, journal)));
        self.start(&mut queues, &handle);
        Ok((handle, true))
    }

    /// Deletes the queue and its state; waiting pops fail. With `forces`, its followers are detached first. The
    /// detachments and the deletion are durable once the commit is done.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::Followed`] without `forces` if there are followers, or [`Error::Journal`]
    /// while the journal does not accept events.
    pub fn delete(&self, name: &Name, forces: bool) -> Result<Commit, Error> {
        self.delete_if(name, forces, |_| Ok(()))
    }

    /// Like [`delete`](Self::delete), if `check` permits it, which gets the current settings.
    ///
    /// # Errors
    /// The error of `check`, and those of [`delete`](Self::delete).
    pub fn delete_if<E: From<Error>>(
        &self,
        name: &Name,
        forces: bool,
        check: impl FnOnce(&Config) -> Result<(), E>,
    ) -> Result<Commit, E> {
        let mut queues = self.queues.write();
        let handle = queues.live.get(name).ok_or(Error::QueueNotFound)?.clone();
        check(&handle.config())?;
        let epoch = self.check_journal()?;
        let followers = queues.followers_of(name);
        if !forces && !followers.is_empty() {
            return Err(Error::Followed { followers, hidden: 0 }.into());
        }
        // This finds a queue that currently can't be changed before the first change is made.
        drop(handle.open()?);
        // The journal writes a deletion after all earlier changes, so the detachments are durable before it.
        drop(self.detach_now(&mut queues, name)?);
        let (last_rv, commit) = handle.delete(epoch)?;
        self.metrics.forget(handle.metrics());
        queues.remove(&handle);
        queues.unfollow(name, handle.config().follow.as_deref());
        queues.last_deleted = queues.last_deleted.max(last_rv);
        Ok(commit)
    }

    /// Replaces the settings of a queue with the result of `edit`, which gets the current settings.
    ///
    /// # Errors
    /// The error of `edit`, a refusal of the engine, [`Error::Follow`], [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn configure<E: From<Error>>(
        &self,
        handle: &Arc<Handle>,
        edit: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> Result<(), E> {
        let (configured, commit) = self.configure_now(&mut self.queues.write(), handle, edit);
        commit.wait().await.map_err(Error::from)?;
        configured
    }

    fn configure_now<E: From<Error>>(
        &self,
        queues: &mut Queues,
        handle: &Arc<Handle>,
        edit: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> (Result<(), E>, Commit) {
        let before = handle.config().follow.clone();
        let configured = handle.configure(|config| -> Result<Config, E> {
            let next = edit(config)?;
            if (&next.follow, next.mode) != (&config.follow, config.mode) {
                self.check_follow(queues, handle.name(), &next)?;
            }
            queues.check_followers(handle.name(), &next)?;
            queues.resources.check(handle.name(), &next)?;
            Ok(next)
        });
        self.note_follow(queues, handle, before.as_deref());
        configured
    }

    /// The document of a queue.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn document(&self, handle: &Handle) -> Result<Document, Error> {
        let mut document = handle.document().await?;
        document.followers = self.followers_of(handle.name());
        if document.config.follow.is_some() {
            let position = handle.read(|queue, _| queue.follow_position()).await?;
            document.follow = self.follow_report(handle, position);
        }
        Ok(document)
    }

    /// A life that begins now.
    pub(super) fn birth(&self) -> Birth {
        let birth = lives::birth(self.calendar());
        // This process knows that these numbers are in use, even if the store has lost them and the clock is behind.
        let is_below = self.issued <= birth.floor;
        if is_below { birth } else { Birth { floor: birth.first_after(self.issued), ..birth } }
    }

    /// The present time of the clock that all servers of the store share.
    fn calendar(&self) -> Time {
        calendar(self.journal.as_ref(), &self.clock)
    }

    /// Adds a loaded queue and starts its task.
    ///
    /// # Errors
    /// The queue has no numbers left.
    pub(super) fn adopt(&self, journal: &Journal, loaded: Loaded, epoch: Epoch) -> Result<(), NoNumbers> {
        let Identity { id, name, incarnation, created_at, .. } = loaded.identity.clone();
        let context = self.context(&name, Some((journal.clone(), id)));
        let meta = QueueMeta { name, incarnation, created_at };
        let handle = Arc::new(Handle::loaded(meta, loaded, epoch, self.birth(), context)?);
        self.start(&mut self.queues.write(), &handle);
        Ok(())
    }

    /// Removes a queue whose creation was not durable.
    pub(super) fn discard(&self, handle: &Handle) {
        let mut queues = self.queues.write();
        queues.remove(handle);
        queues.unfollow(handle.name(), handle.config().follow.as_deref());
        self.metrics.forget(handle.metrics());
        if let Some((journal, id)) = handle.journal() {
            journal.detach(*id);
        }
        handle.discard();
    }

    fn context(&self, name: &Name, journal: Option<(Journal, QueueId)>) -> Context {
        Context {
            clock: self.clock.clone(),
            journal,
            shutdown: self.shutdown.clone(),
            max_waiters: self.limits.max_waiters,
            watch: self.limits.watch,
            metrics: self.metrics.of_queue(name),
            grants: self.grants.clone(),
            long_reads: self.long_reads.clone(),
            page_room: self.page_room.clone(),
            memory: self.memory.clone(),
            panicked: self.panicked.clone(),
        }
    }

    fn start(&self, queues: &mut RwLockWriteGuard<'_, Queues>, handle: &Arc<Handle>) {
        if let Some((journal, id)) = handle.journal() {
            let live: Arc<dyn Live> = handle.clone();
            journal.attach(*id, Arc::downgrade(&live));
        }
        queues.insert(handle);
        self.note_follow(queues, handle, None);
        if self.has_tasks {
            self.shutdown.spawn("queue", task::run(handle.clone()));
        }
    }

    /// Checks that queues may be created and deleted: the journal accepts events, and every queue was loaded again
    /// after the journal's last failure. Returns the epoch of the journal.
    ///
    /// # Errors
    /// [`Error::Journal`] otherwise.
    pub fn check_journal(&self) -> Result<Epoch, Error> {
        let Some(journal) = &self.journal else { return Ok(Epoch::default()) };
        let epoch = journal.admit(&author())?;
        if epoch > self.recovered() {
            return Err(deltaq_journal::Error::OutcomeUnknown.into());
        }
        Ok(epoch)
    }

    /// Checks that queues work: the journal accepts events for each queue that can be loaded. Without a journal,
    /// checks that no queue is broken by a panic.
    ///
    /// # Errors
    /// [`Error::Journal`] or [`Error::Broken`] otherwise.
    pub fn check_queues(&self) -> Result<(), Error> {
        let Some(journal) = &self.journal else {
            let is_broken = self.handles().iter().any(|handle| handle.is_broken());
            return if is_broken { Err(Error::Broken) } else { Ok(()) };
        };
        if journal.check()? > Epoch(self.reloaded.load(Ordering::Acquire)) {
            return Err(deltaq_journal::Error::OutcomeUnknown.into());
        }
        Ok(journal.check_space()?)
    }

    /// Up to `limit` queues after `after` for whose name `wanted` holds, by name.
    #[must_use]
    pub fn list(
        &self,
        after: Option<&Name>,
        limit: usize,
        wanted: impl Fn(&Name) -> bool,
    ) -> Vec<Arc<Handle>> {
        let queues = self.queues.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = queues.live.range::<Name, _>((from, Bound::Unbounded));
        let wanted = behind.filter(|(name, _)| wanted(name));
        wanted.take(limit).map(|(_, handle)| handle.clone()).collect()
    }

    /// Number of leased keys of all queues.
    #[must_use]
    pub fn leased(&self) -> usize {
        self.handles().iter().map(super::queue::Handle::leased).sum()
    }

    /// The journal; `None` if everything is kept only in memory.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Whether all queues are loaded, so that calls find them.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(super) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// The progress of the recovery at the start.
    #[must_use]
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// The number of queues.
    pub(super) fn queue_count(&self) -> usize {
        self.queues.read().live.len()
    }

    pub(super) fn handles(&self) -> Vec<Arc<Handle>> {
        self.queues.read().live.values().cloned().collect()
    }

    /// The present epoch of the journal; `None` without a journal.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        self.journal.as_ref().map(|journal| journal.health().borrow().epoch.0)
    }

    /// The free bytes of the disk with the journal; `None` if they are not known.
    #[must_use]
    pub fn disk_free(&self) -> Option<u64> {
        self.journal.as_ref().and_then(|journal| journal.disk_free())
    }

    /// The epoch of the journal in which every queue is intact.
    #[must_use]
    pub fn recovered(&self) -> Epoch {
        Epoch(self.recovered.load(Ordering::Acquire))
    }

    pub(super) fn set_recovered(&self, epoch: Epoch) {
        self.recovered.store(epoch.0, Ordering::Release);
    }

    pub(super) fn set_reloaded(&self, epoch: Epoch) {
        self.reloaded.store(epoch.0, Ordering::Release);
    }

    pub(super) fn panicked(&self) -> &Notify {
        &self.panicked
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Starts the tasks that reload failed queues, feed the followers, push keys and measure the queues.
    pub fn start_tasks(self: &Arc<Self>) {
        self.shutdown.spawn("journal follower", self.clone().follow());
        self.shutdown.spawn("followers", self.clone().run_followers());
        self.shutdown.spawn("pushers", self.clone().run_pushers());
        self.shutdown.spawn("series", self.clone().run_series());
    }
}
