//! All queues of this server, by name.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
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
use crate::journal::Journal;
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
    journal: Option<Arc<dyn Journal>>,
    shutdown: Shutdown,
    metrics: Metrics,
    queues: RwLock<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    live: BTreeMap<Name, Arc<Handle>>,
    /// The last event of queues that are gone: a new one of the name starts above it.
    last_rvs: HashMap<Name, Rv>,
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
        journal: Option<Arc<dyn Journal>>,
        shutdown: Shutdown,
        metrics: Metrics,
    ) -> Self {
        let (defaults, queues) = (Arc::new(defaults), RwLock::default());
        Self { limits, defaults, clock, journal, shutdown, metrics, queues }
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
        let last_rv = self.read().last_rvs.get(name).copied().unwrap_or_default();
        let queue = Queue::new(self.defaults.clone(), last_rv, Time::from_micros(self.clock.now_us()));
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
        let last_rv = queues.last_rvs.remove(name).unwrap_or_default();
        let queue = Queue::new(config, last_rv, Time::from_micros(self.clock.now_us()));
        let around = Surroundings {
            clock: self.clock.clone(),
            journal: self.journal.clone(),
            shutdown: self.shutdown.clone(),
            max_waiters: self.limits.max_waiters,
            metrics: self.metrics.of_queue(name),
        };
        let incarnation = Incarnation(fastrand::u32(..));
        let handle = Arc::new(Handle::new(name.clone(), incarnation, queue, auto_created, around));
        queues.live.insert(name.clone(), handle.clone());
        queues.version += 1;
        drop(queues);
        self.shutdown.spawn("queue timer", timers::run(handle.clone()));
        Ok((handle, true))
    }

    /// Removes the queue and all that is in it. Waiting pops are told.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`].
    pub fn delete(&self, name: &Name) -> Result<(), Error> {
        let mut queues = self.write();
        let handle = queues.live.remove(name).ok_or(Error::QueueNotFound)?;
        let last_rv = handle.delete().unwrap_or_default();
        queues.last_rvs.insert(name.clone(), last_rv);
        queues.version += 1;
        self.metrics.forget(name);
        Ok(())
    }

    /// Up to `limit` queues whose name begins with `prefix`, behind `after`, in the order of names.
    #[must_use]
    pub fn list(&self, prefix: &str, after: Option<&Name>, limit: usize) -> Vec<Arc<Handle>> {
        let queues = self.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = queues.live.range::<Name, _>((from, Bound::Unbounded));
        let wanted = behind.filter(|(name, _)| name.as_str().starts_with(prefix));
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
        let handles: Vec<Arc<Handle>> = self.read().live.values().cloned().collect();
        handles.iter().map(Handle::leased).sum()
    }

    /// All metrics in Prometheus' text format, the gauges as of now.
    #[must_use]
    pub fn render_metrics(&self) -> String {
        let handles: Vec<Arc<Handle>> = self.read().live.values().cloned().collect();
        for handle in handles {
            handle.publish();
        }
        self.metrics.render()
    }

    fn read(&self) -> RwLockReadGuard<'_, Queues> {
        self.queues.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Queues> {
        self.queues.write().unwrap_or_else(PoisonError::into_inner)
    }
}
