//! The partitions of the queues. Each partition has its own registry, journal and store. The hash of the group of a
//! queue's name determines its partition, so that a queue and its followers can have the same owner.
//!
//! A standalone server has one partition and always owns it. Nodes that share a database have several partitions, and
//! each partition is owned by at most one node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use deltaq_engine::config::Config;
use deltaq_journal::partition_of;
use deltaq_runtime::clock::Clock;
use deltaq_types::Kubernetes;
use tokio::sync::{Notify, watch};

use super::metrics::Metrics;
use super::queue::Handle;
use super::registry::{Limits, Registry};
use super::{Error, FollowError, Name};

/// How long a waiting call goes on before it looks again whether the ownership is still certain.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The owner of a partition, as far as this node knows.
#[derive(Clone, Debug)]
pub enum Owner {
    /// No node, or an unknown node.
    Nobody,
    /// This node.
    This(Arc<Registry>),
    /// Another node.
    Other(Arc<Peer>),
}

/// Another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// The address of its API, without a path.
    pub url: String,
}

/// A node, as its heartbeats show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// The node.
    pub peer: Peer,
    /// Whether it is this node.
    pub is_this: bool,
    /// Whether it takes partitions.
    pub has_joined: bool,
    /// Whether it is stopping.
    pub is_leaving: bool,
    /// The number of its partitions.
    pub partitions: usize,
    /// The number of its queues.
    pub queues: u64,
    /// The time since its last heartbeat, when this node read it.
    pub heartbeat_age: Duration,
    /// How far its wall clock is ahead of the clock of the database, in milliseconds.
    pub clock_ahead_ms: i64,
}

/// All nodes, as of a heartbeat of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// The nodes, by name.
    pub nodes: Vec<NodeState>,
    /// The number of partitions without an owner.
    pub without_owner: usize,
    /// When this node read them, in microseconds of [`Clock::uptime_us`].
    pub read_us: u64,
}

/// All partitions, of which this node owns some.
#[derive(Debug)]
pub struct Partitions {
    limits: Limits,
    defaults: Arc<Config>,
    metrics: Metrics,
    owners: Box<[ArcSwap<Owner>]>,
    /// Wakes the calls that wait for an owner.
    changed: Notify,
    /// The time until which the ownership is certain, in microseconds of [`Clock::uptime_us`].
    sure_until_us: AtomicU64,
    /// Whether this node has failed to load partitions and owns none.
    is_unfit: AtomicBool,
    /// Why this node takes no partitions yet.
    refusal: ArcSwapOption<String>,
    nodes: ArcSwap<Nodes>,
    /// The names of the nodes that are stopping.
    leaving: watch::Sender<BTreeSet<String>>,
}

impl Partitions {
    /// Creates `count` partitions without owners. No partition may be used before [`trust`](Self::trust) is called.
    #[must_use]
    pub fn new(count: usize, limits: Limits, defaults: Arc<Config>, metrics: Metrics) -> Self {
        let owners = (0..count.max(1)).map(|_| ArcSwap::from_pointee(Owner::Nobody)).collect();
        Self {
            limits,
            defaults,
            metrics,
            owners,
            changed: Notify::new(),
            sure_until_us: AtomicU64::new(0),
            is_unfit: AtomicBool::new(false),
            refusal: ArcSwapOption::empty(),
            nodes: ArcSwap::default(),
            leaving: watch::Sender::default(),
        }
    }

    /// The only partition of a standalone server.
    #[must_use]
    pub fn single(registry: Arc<Registry>) -> Self {
        let (limits, defaults) = (registry.limits().clone(), registry.defaults().clone());
        let partitions = Self::new(1, limits, defaults, registry.metrics().clone());
        partitions.set_owner(0, Owner::This(registry));
        partitions.trust(u64::MAX);
        partitions
    }

    /// The number of partitions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.owners.len()
    }

    /// The partition of the queue of this name. It never changes.
    #[must_use]
    pub fn of(&self, name: &Name) -> usize {
        partition_of(name, self.count())
    }

    /// Checks that a queue can follow another queue, which requires that both are in the same partition.
    ///
    /// # Errors
    /// [`FollowError::Apart`].
    pub fn check_together(&self, queue: &Name, followed: &str) -> Result<(), Error> {
        let Ok(followed) = Name::new(followed) else { return Ok(()) };
        if self.of(queue) == self.of(&followed) {
            return Ok(());
        }
        let group = followed.group().to_owned();
        Err(Error::Follow(FollowError::Apart { queue: queue.clone(), followed, group }))
    }

    /// The owner of the partition of the queue of this name.
    #[must_use]
    pub fn owner(&self, name: &Name) -> Arc<Owner> {
        self.owners.get(self.of(name)).map_or_else(|| Arc::new(Owner::Nobody), ArcSwap::load_full)
    }

    /// Like [`owner`](Self::owner), but waits up to `limit` while there is no owner.
    pub async fn wait_for_owner(&self, name: &Name, limit: Duration) -> Arc<Owner> {
        let known = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                let owner = self.owner(name);
                if !matches!(*owner, Owner::Nobody) {
                    return owner;
                }
                changed.await;
            }
        };
        tokio::time::timeout(limit, known).await.unwrap_or_else(|_| self.owner(name))
    }

    /// Whether `peer` owns the partition of the queue of this name.
    #[must_use]
    pub fn is_owner(&self, name: &Name, peer: &Peer) -> bool {
        matches!(&*self.owner(name), Owner::Other(owner) if **owner == *peer)
    }

    /// Waits until `peer` no longer owns the partition of the queue of this name.
    pub async fn until_moved(&self, name: &Name, peer: &Peer) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.is_owner(name, peer) {
                return;
            }
            changed.await;
        }
    }

    /// The other node that owns a partition.
    #[must_use]
    pub fn peer(&self, partition: usize) -> Option<Arc<Peer>> {
        match &**self.owners.get(partition)?.load() {
            Owner::Other(peer) => Some(peer.clone()),
            Owner::This(_) | Owner::Nobody => None,
        }
    }

    /// The other nodes that own partitions, each once.
    #[must_use]
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        let mut peers: Vec<Arc<Peer>> = Vec::new();
        for owner in &self.owners {
            if let Owner::Other(peer) = &**owner.load()
                && !peers.contains(peer)
            {
                peers.push(peer.clone());
            }
        }
        peers
    }

    /// The numbers of the partitions that this node owns and has loaded.
    #[must_use]
    pub fn owned(&self) -> Vec<usize> {
        let is_owned =
            |owner: &ArcSwap<Owner>| matches!(&**owner.load(), Owner::This(registry) if registry.is_ready());
        self.owners
            .iter()
            .enumerate()
            .filter(|(_, owner)| is_owned(owner))
            .map(|(number, _)| number)
            .collect()
    }

    /// The partitions that this node owns, by number, with the epochs of their journals.
    #[must_use]
    pub fn owned_epochs(&self) -> Vec<(usize, Option<u64>)> {
        let epoch = |owner: &ArcSwap<Owner>| match &**owner.load() {
            Owner::This(registry) => Some(registry.epoch()),
            Owner::Other(_) | Owner::Nobody => None,
        };
        let owners = self.owners.iter().enumerate();
        owners.filter_map(|(number, owner)| Some((number, epoch(owner)?))).collect()
    }

    /// The free bytes of the disk with the store; `None` if the store is not on a disk of this node.
    #[must_use]
    pub fn disk_free(&self) -> Option<u64> {
        self.owners.iter().find_map(|owner| match &**owner.load() {
            Owner::This(registry) => registry.disk_free(),
            Owner::Other(_) | Owner::Nobody => None,
        })
    }

    /// Changes the owner of a partition.
    pub fn set_owner(&self, partition: usize, owner: Owner) {
        if let Some(slot) = self.owners.get(partition) {
            slot.store(Arc::new(owner));
            self.changed.notify_waiters();
        }
    }

    /// Records that no other node can own a partition of this node before `until_us`, a time of [`Clock::uptime_us`].
    pub fn trust(&self, until_us: u64) {
        self.sure_until_us.store(until_us, Ordering::Release);
    }

    /// Whether the ownership is still certain. If it is not, another node may own the partitions of this node, so this node must
    /// not serve them. The time during which the machine was suspended counts, because other nodes went on.
    #[must_use]
    pub fn is_sure(&self, clock: &Clock) -> bool {
        clock.uptime_us() < self.sure_until_us.load(Ordering::Acquire)
    }

    /// Waits until the ownership is no longer certain. Nobody is woken when the time is extended, because thousands of calls wait
    /// here on many threads.
    pub async fn until_unsure(&self, clock: &Clock) {
        loop {
            let left_us = self.sure_until_us.load(Ordering::Acquire).saturating_sub(clock.uptime_us());
            if left_us == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_micros(left_us).min(LOOK_AGAIN)).await;
        }
    }

    /// Records the names of the nodes that are stopping.
    pub fn set_leaving(&self, names: BTreeSet<String>) {
        self.leaving.send_if_modified(|known| {
            let is_new = *known != names;
            *known = names;
            is_new
        });
    }

    /// Whether this node is stopping.
    #[must_use]
    pub fn is_leaving(&self, node: &str) -> bool {
        self.leaving.borrow().contains(node)
    }

    /// Waits until this node is stopping.
    pub async fn until_leaving(&self, node: &str) {
        let mut leaving = self.leaving.subscribe();
        let _never_closed = leaving.wait_for(|leaving| leaving.contains(node)).await;
    }

    /// Records whether this node has failed to load partitions and owns none.
    pub fn set_unfit(&self, is_unfit: bool) {
        self.is_unfit.store(is_unfit, Ordering::Relaxed);
    }

    /// Whether this node has failed to load partitions and owns none.
    #[must_use]
    pub fn is_unfit(&self) -> bool {
        self.is_unfit.load(Ordering::Relaxed)
    }

    /// Records why this node takes no partitions yet; `None` once it takes them.
    pub fn set_refusal(&self, refusal: Option<String>) {
        self.refusal.store(refusal.map(Arc::new));
    }

    /// Why this node takes no partitions yet; `None` if it takes them.
    #[must_use]
    pub fn refusal(&self) -> Option<Arc<String>> {
        self.refusal.load_full()
    }

    /// Records the nodes as of a heartbeat.
    pub fn set_nodes(&self, nodes: Nodes) {
        self.nodes.store(Arc::new(nodes));
    }

    /// The nodes as of the last heartbeat of this node. A standalone server has none.
    #[must_use]
    pub fn nodes(&self) -> Arc<Nodes> {
        self.nodes.load_full()
    }

    /// The number of queues of this node.
    #[must_use]
    pub fn queue_count(&self) -> usize {
        self.registries().map(|registry| registry.queue_count()).sum()
    }

    /// The registry of the queue of this name.
    ///
    /// # Errors
    /// [`Error::NotOwner`] if this server does not own the queue's partition.
    pub fn registry(&self, name: &Name) -> Result<Arc<Registry>, Error> {
        match &*self.owner(name) {
            Owner::This(registry) => Ok(registry.clone()),
            Owner::Other(_) | Owner::Nobody => Err(Error::NotOwner),
        }
    }

    /// The queue of this name.
    ///
    /// # Errors
    /// The errors of [`registry`](Self::registry), or [`Error::QueueNotFound`].
    pub fn get(&self, name: &Name) -> Result<Arc<Handle>, Error> {
        self.registry(name)?.get(name)
    }

    /// The queue of this name, if this server has it.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<Arc<Handle>> {
        self.registry(name).ok()?.find(name)
    }

    /// The registry of an owned partition whose queues are being loaded.
    #[must_use]
    pub fn loading(&self) -> Option<Arc<Registry>> {
        self.registries().find(|registry| !registry.is_ready())
    }

    /// The registries of the partitions of this node.
    pub fn registries(&self) -> impl Iterator<Item = Arc<Registry>> {
        self.owners.iter().filter_map(|owner| match &**owner.load() {
            Owner::This(registry) => Some(registry.clone()),
            Owner::Other(_) | Owner::Nobody => None,
        })
    }

    /// Up to `limit` owned queues after `after` for whose name `wanted` holds, by name, with their registries.
    #[must_use]
    pub fn list(
        &self,
        after: Option<&Name>,
        limit: usize,
        wanted: impl Fn(&Name) -> bool,
    ) -> Vec<(Arc<Registry>, Arc<Handle>)> {
        let of = |registry: Arc<Registry>| {
            let handles = registry.list(after, limit, &wanted);
            handles.into_iter().map(move |handle| (registry.clone(), handle))
        };
        let mut found: Vec<_> = self.registries().flat_map(of).collect();
        found.sort_by(|(_, a), (_, b)| a.name().cmp(b.name()));
        found.truncate(limit);
        found
    }

    /// The queue of this node that is this resource of the Kubernetes API; of several, the first by name.
    #[must_use]
    pub fn kubernetes_queue(&self, group: &str, plural: &str) -> Option<Name> {
        self.registries().filter_map(|registry| registry.kubernetes_queue(group, plural)).min()
    }

    /// The queues of this node that are resources of the Kubernetes API, by name, and whether their objects are in
    /// namespaces.
    #[must_use]
    pub fn kubernetes_queues(&self) -> Vec<(Name, Arc<Kubernetes>, bool)> {
        let mut queues: Vec<_> =
            self.registries().flat_map(|registry| registry.kubernetes_queues()).collect();
        queues.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        queues
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

    /// All metrics in Prometheus' text format.
    #[must_use]
    pub fn render_metrics(&self) -> String {
        let samples: Vec<_> = self.registries().flat_map(|registry| registry.samples()).collect();
        self.metrics.render(&samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WatchLimits;

    #[test]
    fn queues_of_one_group_are_in_one_partition() {
        let partition = |name: &str| partition_of(&Name::new(name).unwrap(), 12);
        for group in ["prices", "shop.prices", "a-b_c", "x"] {
            for part in ["search", "cache-1", "a--b"] {
                assert_eq!(partition(&format!("{group}--{part}")), partition(group));
            }
        }
        let different = (0..100).map(|number| partition(&format!("prices-{number}")));
        assert_eq!(
            different.collect::<std::collections::BTreeSet<_>>().len(),
            12,
            "one sign is no end of a group"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_ownership_ends_while_the_machine_is_suspended() {
        let metrics = Metrics::new(10).unwrap();
        let limits =
            Limits { auto_create: true, max_queues: 1, max_waiters: 1, watch: WatchLimits::default() };
        let partitions = Partitions::new(1, limits, Arc::default(), metrics);
        let (clock, hand) = Clock::manual(1_000_000);
        partitions.trust(8_000_000);
        let unsure = partitions.until_unsure(&clock);
        tokio::pin!(unsure);
        assert!(partitions.is_sure(&clock));
        let early = tokio::time::timeout(Duration::from_mins(1), &mut unsure).await;
        assert!(early.is_err(), "the clock of the test has not moved");
        hand.advance(Duration::from_secs(2));
        assert!(partitions.is_sure(&clock));
        hand.suspend(Duration::from_secs(6));
        assert!(!partitions.is_sure(&clock));
        unsure.await;
    }
}
