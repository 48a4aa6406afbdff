//! All queues of this server, by name.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::handle::{Handle, Surroundings};
use super::metrics::Metrics;
use super::{Error, Incarnation, Name, timers};
use crate::clock::Clock;
use crate::engine::Queue;
use crate::engine::config::Config;
use crate::engine::delta::Rv;
use crate::engine::refusal::Refusal;
use crate::engine::time::Time;
use crate::journal::record::Identity;
use crate::journal::recovery::{Loaded, Progress};
use crate::journal::store::QueueId;
use crate::journal::{self, Commit, Journal, Live, Naming};
use crate::lifecycle::Shutdown;

/// What the registry allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Whether a produce or pop creates a queue that is not there.
    pub auto_create: bool,
    /// Most queues.
    pub max_queues: usize,
    /// Most pops that wait at one queue.
    pub max_waiters: usize,
}

/// All queues of this server. The one place that takes a queue to be local.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    defaults: Arc<Config>,
    clock: Clock,
    journal: Option<Journal>,
    /// How many failures of the journal are made good.
    handled: AtomicU64,
    /// After how many of them each queue was loaded again that can be.
    looked_after: AtomicU64,
    /// Whether the store had not been closed in good order.
    unclean: AtomicBool,
    progress: Arc<Progress>,
    /// Whether all queues of the store are loaded.
    ready: AtomicBool,
    shutdown: Shutdown,
    metrics: Metrics,
    queues: RwLock<Queues>,
    has_timers: bool,
}

#[derive(Debug, Default)]
struct Queues {
    live: BTreeMap<Name, Arc<Handle>>,
    /// The largest event of a deleted queue: new queues start above it.
    floor: Rv,
    version: u64,
}

impl Registry {
    /// No queues yet. `defaults` are the settings of a queue that says nothing else; a service
    /// without `journal` keeps everything in memory only.
    #[must_use]
    pub fn new(
        limits: Limits,
        defaults: Config,
        clock: Clock,
        journal: Option<Journal>,
        shutdown: Shutdown,
        metrics: Metrics,
    ) -> Self {
        let floor = journal.as_ref().map_or(0, Journal::floor);
        Self {
            limits,
            defaults: Arc::new(defaults),
            clock,
            handled: AtomicU64::new(0),
            looked_after: AtomicU64::new(0),
            unclean: AtomicBool::new(false),
            progress: Arc::default(),
            ready: AtomicBool::new(journal.is_none()),
            journal,
            shutdown,
            metrics,
            queues: RwLock::new(Queues { floor, ..Queues::default() }),
            has_timers: true,
        }
    }

    /// In none of its queues anything happens by itself.
    #[must_use]
    pub fn without_timers(self) -> Self {
        Self { has_timers: false, ..self }
    }

    /// The settings of a queue that says nothing else.
    #[must_use]
    pub fn defaults(&self) -> &Arc<Config> {
        &self.defaults
    }

    /// What the registry allows.
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
        self.read().live.get(name).cloned()
    }

    /// The queue of this name.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`].
    pub fn get(&self, name: &Name) -> Result<Arc<Handle>, Error> {
        self.find(name).ok_or(Error::QueueNotFound)
    }

    /// The queue of this name, created with the defaults if that is allowed.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], [`Error::TooManyQueues`].
    pub fn get_or_create(&self, name: &Name) -> Result<Arc<Handle>, Error> {
        if let Some(handle) = self.find(name) {
            return Ok(handle);
        }
        if !self.limits.auto_create {
            return Err(Error::QueueNotFound);
        }
        self.create(name, self.defaults.clone(), true).map(|(handle, _)| handle)
    }

    /// Checks a command that would create the queue of this name before it does: a refused command
    /// leaves no queue behind. Returns the empty queue that it was checked on, unless there is one.
    ///
    /// # Errors
    /// What `check` refuses, or [`Error::QueueNotFound`] if nothing may be created.
    pub fn rehearse(
        &self,
        name: &Name,
        check: impl FnOnce(&Queue) -> Result<(), Refusal>,
    ) -> Result<Option<Queue>, Error> {
        if self.find(name).is_some() {
            return Ok(None);
        }
        if !self.limits.auto_create {
            return Err(Error::QueueNotFound);
        }
        let floor = self.read().floor;
        let queue = Queue::new(self.defaults.clone(), floor, Time::from_micros(self.clock.wall_us()));
        check(&queue)?;
        Ok(Some(queue))
    }

    /// The queue of this name, created with `config` if it is not there; and whether it was created.
    ///
    /// # Errors
    /// [`Error::TooManyQueues`], [`Error::Draining`].
    pub fn create(
        &self,
        name: &Name,
        config: Arc<Config>,
        auto_created: bool,
    ) -> Result<(Arc<Handle>, bool), Error> {
        let mut queues = self.write();
        if let Some(handle) = queues.live.get(name) {
            return Ok((handle.clone(), false));
        }
        if self.shutdown.is_draining() {
            return Err(Error::Draining);
        }
        if queues.live.len() >= self.limits.max_queues {
            return Err(Error::TooManyQueues { limit: self.limits.max_queues });
        }
        let failures = self.check_journal()?;
        let created_at = Time::from_micros(self.clock.wall_us());
        let mut queue = Queue::new(config, queues.floor, created_at);
        if auto_created {
            queue.set_auto_created();
        }
        let naming = Naming { name: name.clone(), incarnation: Incarnation(fastrand::u32(..)), created_at };
        let (journal, commit) = match &self.journal {
            Some(journal) => {
                let (id, commit) = journal.create(naming.clone(), queue.queue_state(), failures);
                (Some((journal.clone(), id)), commit)
            }
            None => (None, Commit::done()),
        };
        let handle = Arc::new(Handle::new(naming, queue, commit, self.around(name, journal)));
        self.run(&mut queues, &handle);
        Ok((handle, true))
    }

    /// Removes the queue and all that is in it. Waiting pops are told. It is durable once the commit
    /// has come.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], or [`Error::Journal`] while the journal takes nothing.
    pub fn delete(&self, name: &Name) -> Result<Commit, Error> {
        let mut queues = self.write();
        let handle = queues.live.get(name).ok_or(Error::QueueNotFound)?;
        let failures = self.check_journal()?;
        let (last_rv, commit) = handle.delete(failures)?;
        self.metrics.forget(handle.metrics());
        queues.live.remove(name);
        queues.floor = queues.floor.max(last_rv);
        queues.version += 1;
        Ok(commit)
    }

    /// Takes in a queue that was loaded, and lets it run.
    pub(super) fn adopt(&self, journal: &Journal, loaded: Loaded, failures: u64) {
        let Identity { id, name, incarnation, created_at, .. } = loaded.identity.clone();
        let around = self.around(&name, Some((journal.clone(), id)));
        let naming = Naming { name, incarnation, created_at };
        let handle = Arc::new(Handle::loaded(naming, loaded, failures, self.is_unclean(), around));
        self.run(&mut self.write(), &handle);
    }

    /// Removes a queue that never came to be.
    pub(super) fn discard(&self, handle: &Handle) {
        let mut queues = self.write();
        queues.live.remove(handle.name());
        queues.version += 1;
        self.metrics.forget(handle.metrics());
        if let Some((journal, id)) = handle.journal() {
            journal.detach(*id);
        }
        handle.end(handle.lock(), &Error::Journal(journal::Error::OutcomeUnknown), &Commit::done());
    }

    fn around(&self, name: &Name, journal: Option<(Journal, QueueId)>) -> Surroundings {
        Surroundings {
            clock: self.clock.clone(),
            journal,
            shutdown: self.shutdown.clone(),
            max_waiters: self.limits.max_waiters,
            metrics: self.metrics.of_queue(name),
        }
    }

    fn run(&self, queues: &mut Queues, handle: &Arc<Handle>) {
        if let Some((journal, id)) = handle.journal() {
            let live: Arc<dyn Live> = handle.clone();
            journal.attach(*id, Arc::downgrade(&live));
        }
        queues.live.insert(handle.name().clone(), handle.clone());
        queues.version += 1;
        if self.has_timers {
            self.shutdown.spawn("queue timer", timers::run(handle.clone()));
        }
    }

    /// Queues come and go only while the journal takes it, and not before all is loaded again. Tells how
    /// often the journal has failed.
    ///
    /// # Errors
    /// [`Error::Journal`] while it is not so.
    pub fn check_journal(&self) -> Result<u64, Error> {
        let Some(journal) = &self.journal else { return Ok(0) };
        let failures = journal.admit()?;
        if failures > self.handled() {
            return Err(journal::Error::OutcomeUnknown.into());
        }
        Ok(failures)
    }

    /// Whether the journal takes events for each queue that can be loaded.
    ///
    /// # Errors
    /// [`Error::Journal`] while it is not so.
    pub fn check_queues(&self) -> Result<(), Error> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if journal.check()? > self.looked_after.load(Ordering::Acquire) {
            return Err(journal::Error::OutcomeUnknown.into());
        }
        Ok(())
    }

    /// Up to `limit` queues whose name is `wanted`, behind `after`, in the order of names.
    #[must_use]
    pub fn list(
        &self,
        after: Option<&Name>,
        limit: usize,
        wanted: impl Fn(&Name) -> bool,
    ) -> Vec<Arc<Handle>> {
        let queues = self.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = queues.live.range::<Name, _>((from, Bound::Unbounded));
        let wanted = behind.filter(|(name, _)| wanted(name));
        wanted.take(limit).map(|(_, handle)| handle.clone()).collect()
    }

    /// Changes whenever a queue is created or deleted.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.read().version
    }

    /// Keys in the hands of workers, over all queues.
    #[must_use]
    pub fn leased(&self) -> usize {
        self.handles().iter().map(Handle::leased).sum()
    }

    /// The journal, unless everything is kept in memory only.
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

    /// How far the recovery at the start is.
    #[must_use]
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(super) fn handles(&self) -> Vec<Arc<Handle>> {
        self.read().live.values().cloned().collect()
    }

    /// How many failures of the journal are made good.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.handled.load(Ordering::Acquire)
    }

    pub(super) fn set_handled(&self, failures: u64) {
        self.handled.store(failures, Ordering::Release);
    }

    pub(super) fn set_looked_after(&self, failures: u64) {
        self.looked_after.store(failures, Ordering::Release);
    }

    /// Whether the store had not been closed in good order, so that queues skip numbers when they are
    /// loaded: also when they are loaded again, because what failed may have been just that.
    pub(super) fn is_unclean(&self) -> bool {
        self.unclean.load(Ordering::Acquire)
    }

    pub(super) fn set_unclean(&self) {
        self.unclean.store(true, Ordering::Release);
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// All metrics in Prometheus' text format, the gauges as of now.
    #[must_use]
    pub fn render_metrics(&self) -> String {
        let samples: Vec<_> = self.handles().iter().filter_map(|handle| handle.sample()).collect();
        self.metrics.render(&samples)
    }

    fn read(&self) -> RwLockReadGuard<'_, Queues> {
        self.queues.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Queues> {
        self.queues.write().unwrap_or_else(PoisonError::into_inner)
    }
}
