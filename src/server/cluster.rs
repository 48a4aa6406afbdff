//! A node: one of several servers that share a database. It owns a share of the partitions, and hands over partitions
//! when nodes join and leave.
//!
//! Invariant: a node serves a partition only while no other node can have claimed it. Other nodes can claim its
//! partitions no earlier than [`TTL`] after its last heartbeat, and the node serves them only within [`TRUST`]. Its
//! writes do not depend on this: each write checks the epoch of the claim in the database, and fails if it differs.

mod admission;
mod ownership;
mod partition;
mod shares;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use deltaq_journal::postgres::{Condition, Found, Member, Membership, Node, Report, TTL};
use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock::whole_us;
use deltaq_service::metrics::NodeMetrics;
use deltaq_service::{NodeState, Nodes, Owner, Partitions, Peer};
use futures_util::FutureExt as _;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::partition::Partition;
pub(in crate::server) use self::partition::{CLAIMS_MAX, Ingredients};

use self::admission::Admission;
use self::ownership::Ownership;
use self::shares::shares;

/// How often a node sends a heartbeat and reads the owners.
const PERIOD: Duration = Duration::from_millis(500);
/// How long a node may go on serving its partitions after its last confirmed heartbeat. This is less than [`TTL`], after which other nodes may
/// claim them.
const TRUST: Duration = Duration::from_secs(TTL.as_secs() - 2);
/// Maximum number of partitions that a node hands over at the same time while it keeps its other partitions.
const HANDED_OVER_MAX: usize = 2;
/// The wait after a failed claim.
const CLAIM_AGAIN: Duration = Duration::from_secs(2);
/// How long a partition that a node has failed to load stays with other nodes, if possible. After this time the node
/// tries again. Until the node is repaired, each such attempt leaves partitions without an owner for a few seconds.
const UNLOADABLE: Duration = Duration::from_mins(5);

/// Another process has taken the name of this node, so this node must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replaced;

/// The end of a claim, of a release, or of a call that finds out whether a node can be called.
enum Done {
    Claimed(usize, Result<Option<Partition>, String>),
    Released(usize),
    Called(i64, Result<(), &'static str>),
}

/// The task of a node.
#[derive(Debug)]
pub(super) struct Cluster {
    membership: Membership,
    partitions: Arc<Partitions>,
    ingredients: Arc<Ingredients>,
    metrics: NodeMetrics,
    slots: Vec<Ownership>,
    running: JoinSet<Done>,
    admission: Admission,
    /// Whether the other nodes can know that this node takes partitions.
    has_joined: bool,
    /// Whether the next heartbeat is due at once.
    hurries: bool,
    /// The partitions that this node has failed to load, and when it may try them again.
    unloadable: BTreeMap<i16, Instant>,
    /// The time since which every heartbeat has succeeded.
    steady_since: Option<Instant>,
    /// When the last heartbeat that the database has confirmed was sent, in microseconds of the machine's uptime.
    confirmed_us: u64,
    /// The server of the database that has confirmed it.
    server: Option<i64>,
    /// Cancelled when no connections are left.
    closed: CancellationToken,
}

impl Cluster {
    pub(super) fn new(
        membership: Membership,
        partitions: Arc<Partitions>,
        ingredients: Ingredients,
        closed: CancellationToken,
    ) -> Self {
        let slots = (0..partitions.count()).map(|_| Ownership::Free(Instant::now())).collect();
        let metrics = ingredients.metrics.of_node(Some(membership.name()), partitions.count());
        let confirmed_us = ingredients.clock.uptime_us();
        Self {
            membership,
            partitions,
            metrics,
            ingredients: Arc::new(ingredients),
            slots,
            running: JoinSet::new(),
            admission: Admission::default(),
            has_joined: false,
            hurries: false,
            unloadable: BTreeMap::new(),
            steady_since: None,
            confirmed_us,
            server: None,
            closed,
        }
    }

    /// Runs until the shutdown has released all partitions, or another process has the name of this node. `started`
    /// is notified when the first claims have ended.
    pub(super) async fn run(mut self, started: oneshot::Sender<()>) -> Result<(), Replaced> {
        let shutdown = self.ingredients.shutdown.clone();
        let (mut started, mut next) = (Some(started), Instant::now());
        loop {
            let leaves = shutdown.is_draining();
            tokio::select! {
                biased;
                () = shutdown.cut().cancelled() => break,
                Some(Ok(done)) = self.running.join_next() => self.end(done),
                () = tokio::time::sleep_until(next) => {
                    next = Instant::now() + PERIOD;
                    self.beat(leaves).await?;
                }
                () = shutdown.draining().cancelled(), if !leaves => next = Instant::now(),
            }
            if std::mem::take(&mut self.hurries) {
                next = Instant::now();
            }
            if self.running.is_empty() && self.has_joined && self.steady_since.is_some() {
                started.take().map(|started| started.send(()));
            }
            let owns = self.slots.iter().any(|slot| !matches!(slot, Ownership::Free(_)));
            if leaves && !owns && self.closed.is_cancelled() {
                break;
            }
        }
        self.drop_all();
        if let Err(error) = self.membership.leave().await {
            tracing::warn!(
                error = with_causes(&error),
                "the other nodes do not know that this node has stopped"
            );
        }
        Ok(())
    }

    /// Sends a heartbeat and acts on its result.
    async fn beat(&mut self, leaves: bool) -> Result<(), Replaced> {
        let sent = self.ingredients.clock.uptime_us();
        // After an outage of the database all nodes are late, and each needs time to send a heartbeat.
        let removes = self.steady_since.is_some_and(|since| since.elapsed() >= TTL);
        let report = self.report(leaves);
        let heartbeat = self.membership.heartbeat(&report, removes).await;
        if heartbeat.is_ok() {
            self.confirmed_us = sent;
        }
        let age_us = self.ingredients.clock.uptime_us().saturating_sub(self.confirmed_us);
        self.metrics.heartbeat_age(Duration::from_micros(age_us));
        let found = match heartbeat {
            Ok(found) => found,
            Err(error) => {
                if self.steady_since.take().is_some() {
                    tracing::warn!(error = with_causes(&error), "a heartbeat failed");
                }
                if !self.partitions.is_sure(&self.ingredients.clock) {
                    self.metrics.owns(0);
                }
                if leaves {
                    (0..self.slots.len()).for_each(|number| self.release(number));
                }
                return Ok(());
            }
        };
        match found.condition {
            Condition::Member => {}
            Condition::Replaced => {
                self.drop_all();
                return Err(Replaced);
            }
            Condition::Forgotten => {
                if self.server.take().is_some() {
                    tracing::warn!(
                        "the database has failed over to a server that does not know this process; this node joins again"
                    );
                }
                self.steady_since = None;
                self.drop_all();
                return Ok(());
            }
            Condition::Removed => {
                tracing::error!(
                    "this node is no member any more, because it sent no heartbeats or the database has lost it; other nodes may own its partitions now"
                );
                self.drop_all();
                self.admission.begin();
                self.has_joined = false;
                if let Err(error) = self.membership.join_again().await {
                    tracing::warn!(error = with_causes(&error), "this node can't join again");
                }
                return Ok(());
            }
        }
        let was_server = self.server.replace(found.server);
        // Another node may have owned the partitions in the meantime, and another server may have lost that.
        if was_server.is_some_and(|server| server != found.server)
            && !self.partitions.is_sure(&self.ingredients.clock)
        {
            tracing::warn!(
                "the database has restarted or failed over during a long outage; this node loads its partitions again"
            );
            self.drop_all();
        }
        self.steady_since.get_or_insert_with(Instant::now);
        self.partitions.trust(sent.saturating_add(whole_us(TRUST)));
        self.admit(&found);
        self.partitions.set_nodes(nodes_of(&found, self.membership.name(), sent));
        self.adjust(&found, leaves);
        Ok(())
    }

    /// Calls the nodes that this node does not know, and finds out whether this node takes partitions.
    fn admit(&mut self, found: &Found) {
        let own = self.membership.member().clone();
        for node in self.admission.next_calls(&found.nodes, &own) {
            let (ingredients, peer, instance) = (self.ingredients.clone(), peer_of(node), node.instance);
            self.running.spawn(async move { Done::Called(instance, ingredients.node.reach(&peer).await) });
        }
        self.has_joined = found.nodes.iter().any(|node| node.instance == own.instance && node.has_joined);
        let refusal = self.admission.decide(&found.nodes, &own, self.membership.url());
        self.hurries = refusal.is_none() && !self.has_joined;
        let before = self.partitions.refusal();
        if let Some(refusal) =
            refusal.as_deref().filter(|refusal| before.is_none_or(|before| *before != *refusal))
        {
            tracing::warn!("{refusal}");
        }
        self.partitions.set_refusal(refusal);
    }

    /// What this node reports with a heartbeat.
    fn report(&mut self, is_leaving: bool) -> Report {
        let now = Instant::now();
        self.unloadable.retain(|_, until| *until > now);
        let unloadable: Vec<i16> = self.unloadable.keys().copied().collect();
        let slot = |partition: i16| self.slots.get(usize::try_from(partition).ok()?);
        let is_free = |partition: &i16| matches!(slot(*partition), Some(Ownership::Free(_)));
        Report {
            is_leaving,
            has_joined: self.admission.is_admitted(),
            reached: self.admission.reached(),
            secrets: self.ingredients.node.salted_secrets(&salt(self.membership.member())),
            queues: self.partitions.queue_count() as u64,
            wall_us: self.ingredients.clock.wall_us(),
            has_loaded: self.slots.iter().any(|slot| matches!(slot, Ownership::Owned(_))),
            given_up: unloadable.iter().copied().filter(is_free).collect(),
            unloadable,
        }
    }

    /// Claims, releases and gives up partitions, and records the owners of the others.
    fn adjust(&mut self, found: &Found, leaves: bool) {
        let leaving = found.nodes.iter().filter(|node| node.is_leaving).map(|node| node.name.clone());
        self.partitions.set_leaving(leaving.collect());
        let name = self.membership.name().to_owned();
        let live = candidates(found);
        let names: Vec<_> = live.iter().map(|node| node.name.as_str()).collect();
        let can_load = |node: usize, partition: usize| {
            let is_unloadable = |number: &i16| usize::try_from(*number) == Ok(partition);
            !live.get(node).is_some_and(|node| node.unloadable.iter().any(is_unloadable))
        };
        let wanted = shares(&names, self.slots.len(), can_load);
        let owner_of = |number: usize| found.owners.get(number).and_then(Option::as_deref);
        let heir_of = |number: usize| {
            let heir = wanted.get(number).copied().flatten();
            heir.and_then(|node| names.get(node).copied())
        };
        // Whether a node has not loaded any partition yet and may therefore fail to load one. Such a node gets
        // further partitions only after it has loaded one.
        let is_untried = |name: &str| live.iter().any(|node| node.name == name && !node.has_loaded);
        let is_under_way =
            |name: &str| (0..wanted.len()).any(|number| owner_of(number).or(heir_of(number)) == Some(name));
        let peers: BTreeMap<_, _> = found.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let mut handed_over = self.slots.iter().filter(|slot| matches!(slot, Ownership::Releasing)).count();
        for number in 0..self.slots.len() {
            let (owner, heir) = (owner_of(number), heir_of(number));
            let is_own = owner == Some(name.as_str());
            let Some(slot) = self.slots.get_mut(number) else { continue };
            match slot {
                Ownership::Owned(partition) if !is_own || partition.has_ended() => {
                    if partition.has_ended() && partition.is_rolled_back() {
                        self.metrics.rolled_back();
                    }
                    tracing::warn!(partition = number, owner, "this node has lost a partition");
                    self.give_up(number);
                }
                Ownership::Owned(_) if leaves || heir.is_some_and(|heir| heir != name) => {
                    let most = match heir {
                        Some(heir) if is_untried(heir) && is_under_way(heir) => 0,
                        Some(heir) if is_untried(heir) => 1,
                        _ => HANDED_OVER_MAX,
                    };
                    if leaves || handed_over < most {
                        handed_over += 1;
                        self.release(number);
                    }
                }
                Ownership::Owned(_) | Ownership::Claiming { .. } | Ownership::Releasing => {}
                Ownership::Free(from) => {
                    let peer = owner.filter(|_| !is_own).and_then(|owner| peers.get(owner));
                    // A partition that an earlier process with this name has left is always claimed, because no other
                    // node can claim it. If a partition can't be loaded, the next heartbeat gives it up.
                    let is_given_up =
                        || self.unloadable.keys().any(|given| usize::try_from(*given) == Ok(number));
                    let is_due = heir == Some(&name) || is_own && !is_given_up();
                    let may_claim = !leaves && self.has_joined && is_due && *from <= Instant::now();
                    if let Some(peer) = peer {
                        self.note_peer(number, peer);
                        continue;
                    }
                    // Calls wait for an owner while this node loads the partition.
                    self.partitions.set_owner(number, Owner::Nobody);
                    if may_claim {
                        self.claim(number);
                    }
                }
            }
        }
        let owned = self.slots.iter().filter(|slot| matches!(slot, Ownership::Owned(_))).count();
        self.metrics.owns(owned);
        self.partitions.set_unfit(owned == 0 && !self.unloadable.is_empty());
    }

    fn note_peer(&self, number: usize, node: &Node) {
        let peer = peer_of(node);
        if self.partitions.peer(number).is_none_or(|known| *known != peer) {
            self.partitions.set_owner(number, Owner::Other(Arc::new(peer)));
        }
    }

    fn claim(&mut self, number: usize) {
        let Ok(partition) = i16::try_from(number) else { return };
        self.set(number, Ownership::Claiming { is_void: false });
        let (ingredients, member) = (self.ingredients.clone(), self.membership.member().clone());
        self.running.spawn(async move {
            let claim = Partition::claim(ingredients, partition, member);
            let claim = AssertUnwindSafe(claim).catch_unwind();
            Done::Claimed(number, claim.await.unwrap_or_else(|_| Err("the claim panicked".to_owned())))
        });
    }

    fn release(&mut self, number: usize) {
        if !matches!(self.slots.get(number), Some(Ownership::Owned(_))) {
            return;
        }
        self.partitions.set_owner(number, Owner::Nobody);
        if let Some(Ownership::Owned(partition)) = self.set(number, Ownership::Releasing) {
            self.running.spawn(async move {
                let _panicked = AssertUnwindSafe(partition.release()).catch_unwind().await;
                Done::Released(number)
            });
        }
    }

    /// Records the end of a claim, a release or a call.
    fn end(&mut self, done: Done) {
        match done {
            Done::Called(instance, result) => {
                // The node that was called may wait for the report of this one.
                self.hurries = result.is_ok();
                self.admission.called(instance, result);
            }
            Done::Released(number) => {
                tracing::info!(partition = number, "released a partition");
                self.set(number, Ownership::Free(Instant::now()));
            }
            Done::Claimed(number, Ok(Some(partition))) => {
                let (registry, was_released) = (partition.registry.clone(), partition.was_released);
                let Some(slot) = self.slots.get_mut(number) else { return };
                if let Some(void) = slot.claimed(partition) {
                    void.abandon();
                    return;
                }
                tracing::info!(partition = number, was_released, "owns a partition");
                self.metrics.claimed(was_released);
                self.unloadable.retain(|unloadable, _| usize::try_from(*unloadable) != Ok(number));
                self.partitions.set_owner(number, Owner::This(registry));
            }
            Done::Claimed(number, Ok(None)) => {
                self.set(number, Ownership::Free(Instant::now()));
            }
            Done::Claimed(number, Err(problem)) => {
                tracing::error!(partition = number, problem, "a partition can't be loaded");
                if let Ok(partition) = i16::try_from(number) {
                    self.unloadable.insert(partition, Instant::now() + UNLOADABLE);
                }
                self.set(number, Ownership::Free(Instant::now() + CLAIM_AGAIN));
            }
        }
    }

    fn give_up(&mut self, number: usize) {
        self.partitions.set_owner(number, Owner::Nobody);
        if let Some(partition) = self.slots.get_mut(number).and_then(Ownership::lose) {
            partition.abandon();
        }
    }

    /// Gives up all partitions immediately, because other nodes may own them.
    fn drop_all(&mut self) {
        self.partitions.trust(0);
        for number in 0..self.slots.len() {
            self.give_up(number);
        }
    }

    fn set(&mut self, number: usize, slot: Ownership) -> Option<Ownership> {
        self.slots.get_mut(number).map(|place| std::mem::replace(place, slot))
    }
}

/// The salt of the secrets that a node reports.
pub(super) fn salt(member: &Member) -> String {
    format!("{} {}", member.name, member.instance)
}

fn peer_of(node: &Node) -> Peer {
    Peer { name: node.name.clone(), url: node.url.clone() }
}

/// The nodes as they are shown to operators.
fn nodes_of(found: &Found, own: &str, read_us: u64) -> Nodes {
    let owns = |name: &str| found.owners.iter().filter(|owner| owner.as_deref() == Some(name)).count();
    let state = |node: &Node| NodeState {
        peer: peer_of(node),
        is_this: node.name == own,
        has_joined: node.has_joined,
        is_leaving: node.is_leaving,
        partitions: owns(&node.name),
        queues: node.queues,
        heartbeat_age: node.heartbeat_age,
        clock_ahead_ms: node.clock_ahead_ms,
    };
    let nodes: Vec<NodeState> = found.nodes.iter().map(state).collect();
    let owned: usize = nodes.iter().map(|node| node.partitions).sum();
    Nodes { without_owner: found.owners.len().saturating_sub(owned), nodes, read_us }
}

/// The nodes that may own partitions: all nodes that have joined and are not leaving, except nodes that have failed to load
/// partitions and have loaded none. Otherwise, a node that can't load anything would get one partition after another.
/// If there are no other nodes, such nodes are included.
fn candidates(found: &Found) -> Vec<&Node> {
    let staying = || found.nodes.iter().filter(|node| node.has_joined && !node.is_leaving);
    let fit: Vec<&Node> = staying().filter(|node| node.unloadable.is_empty() || node.has_loaded).collect();
    if fit.is_empty() { staying().collect() } else { fit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, is_leaving: bool, has_loaded: bool, unloadable: &[i16]) -> Node {
        Node {
            name: name.into(),
            is_leaving,
            has_joined: true,
            has_loaded,
            unloadable: unloadable.to_vec(),
            ..Node::default()
        }
    }

    #[test]
    fn a_node_that_has_loaded_nothing_gets_no_further_partitions() {
        let names = |nodes: &[&Node]| {
            let nodes = nodes.iter().map(|node| (*node).clone()).collect();
            let owners = vec![Some("b".to_owned()), None];
            let found = Found { condition: Condition::Member, nodes, owners, server: 1 };
            candidates(&found).iter().map(|node| node.name.clone()).collect::<Vec<_>>()
        };
        let (a, b, c) =
            (node("a", false, true, &[]), node("b", false, false, &[1]), node("c", true, true, &[]));
        assert_eq!(names(&[&a, &b, &c]), ["a"], "b has claimed a partition and not loaded it");
        let able = node("b", false, true, &[1]);
        assert_eq!(names(&[&a, &able, &c]), ["a", "b"], "a node that has loaded a partition can load others");
        assert_eq!(names(&[&b, &c]), ["b"], "there is no other node");
    }
}
