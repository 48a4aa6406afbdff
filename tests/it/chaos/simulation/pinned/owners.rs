//! Stories of a store that another node takes over, that is slow, or that loses its last changes.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use deltaq_journal::writer::Ended;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::Handle;
use futures_util::poll;

use super::super::disk::{Disk, Timing};
use super::super::run::on_a_runtime;
use super::super::world::World;
use super::{SECOND, add, pop, queue, story};
use crate::node::{self, Node};
use crate::store::fake::Fault;

/// Starts a node that opens the store.
async fn open(world: &World, disk: &Disk) -> Node {
    let (opening, shutdown) = (disk.memory.opening(), Shutdown::manual(SECOND));
    let pace = deltaq_journal::WriterOptions::default();
    node::start_on(disk.clone(), opening, &world.clock, &shutdown, pace).await.expect("the node starts")
}

/// Runs a story of several nodes.
fn tale(tell: impl AsyncFnOnce(&Arc<World>, &Disk)) {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Instant);
    on_a_runtime(&world, async { tell(&world, &disk).await });
}

async fn waiting(handle: &Arc<Handle>) -> Vec<String> {
    let keys = handle.read(|queue, _| {
        let entries = queue.table().from(Bound::Unbounded);
        entries.map(|(_, entry)| entry.key.as_str().to_owned()).collect::<Vec<_>>()
    });
    keys.await.expect("it is there")
}

async fn version(handle: &Arc<Handle>) -> u64 {
    handle.read(|queue, _| queue.resource_version().get()).await.expect("it is there")
}

/// The writer of a node that has lost its store ends by itself, also if nothing is written.
#[test]
fn a_node_notices_that_another_node_has_its_queues() {
    tale(async |world, disk| {
        let former = open(world, disk).await;
        add(&queue(&former.registry), "a").await.expect("it is added");
        let owner = open(world, &disk.for_another_node()).await;
        let ended = tokio::time::timeout(SECOND * 5, former.writing).await.expect("it notices");
        assert_eq!(ended.expect("no panic"), Ended::Fenced);
        add(&queue(&former.registry), "b").await.expect_err("it owns nothing");
        add(&queue(&owner.registry), "c").await.expect("it owns the queue");
        assert_eq!(waiting(&queue(&owner.registry)).await, ["a", "c"]);
    });
}

/// A commit of the former owner was on its way to the database while the next owner loaded the queue.
#[test]
fn a_commit_that_arrives_after_the_takeover_writes_nothing() {
    tale(async |world, disk| {
        let former = open(world, disk).await;
        let handle = queue(&former.registry);
        add(&handle, "a").await.expect("it is added");
        disk.memory.hold();
        let mut late = Box::pin(add(&handle, "late"));
        assert!(poll!(late.as_mut()).is_pending(), "it waits for its commit");
        tokio::time::sleep(SECOND).await;
        let others = disk.for_another_node();
        let owner = open(world, &others).await;
        add(&queue(&owner.registry), "b").await.expect("it owns the queue");
        disk.memory.release();
        late.await.expect_err("it is fenced");
        assert_eq!(former.writing.await.expect("no panic"), Ended::Fenced);
        let next = open(world, &others.for_another_node()).await;
        assert_eq!(waiting(&queue(&next.registry)).await, ["a", "b"]);
    });
}

/// A commit whose answer was lost is neither taken for done nor for failed: the caller learns that the outcome is unknown, and the
/// reload finds the change.
#[test]
fn a_change_whose_commit_is_in_doubt_is_there_once() {
    story(async |_, disk, registry| {
        let handle = queue(registry);
        add(&handle, "a").await.expect("it is added");
        disk.memory.fault_at(disk.memory.steps() + 1, Fault::Doubted);
        add(&handle, "b").await.expect_err("its outcome is unknown");
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!(waiting(&handle).await, ["a", "b"]);
        for key in ["a", "b"] {
            let mut popped = handle.pop(pop(SECOND * 60, Duration::ZERO)).await.items.expect("it is back");
            popped.confirm();
            let found: Vec<_> =
                popped.items.iter().map(|item| (item.key.as_str(), item.deltas.len())).collect();
            assert_eq!(found, [(key, 1)]);
        }
    });
}

/// As after a failover to a replica that lags. The lost change must not come back, and its number must not be given to another one.
#[test]
fn a_store_that_has_lost_its_last_changes_is_loaded_again() {
    tale(async |world, disk| {
        let node = open(world, disk).await;
        let handle = queue(&node.registry);
        add(&handle, "kept").await.expect("it is added");
        let saved = disk.memory.saved();
        add(&handle, "lost").await.expect("it is added");
        let acknowledged = version(&handle).await;
        disk.memory.roll_back(saved);
        add(&handle, "failed").await.expect_err("the connection has ended");
        assert_eq!(node.writing.await.expect("no panic"), Ended::RolledBack);
        handle.read(|_, _| ()).await.expect_err("what is loaded is not in the store");
        let next = open(world, &disk.for_another_node()).await;
        let handle = queue(&next.registry);
        assert_eq!(waiting(&handle).await, ["kept"]);
        assert!(version(&handle).await > acknowledged, "numbers of lost changes are used again");
    });
}

/// Neither a change nor a read that depends on it has a reply before the commit.
#[test]
fn replies_wait_for_a_slow_database() {
    story(async |_, disk, registry| {
        let handle = queue(registry);
        add(&handle, "a").await.expect("it is added");
        disk.memory.hold();
        let mut added = Box::pin(add(&handle, "b"));
        assert!(poll!(added.as_mut()).is_pending());
        let mut read = Box::pin(waiting(&handle));
        for _ in 0..60 {
            assert!(poll!(added.as_mut()).is_pending() && poll!(read.as_mut()).is_pending());
            tokio::time::sleep(SECOND).await;
        }
        disk.memory.release();
        added.await.expect("it is added");
        assert_eq!(read.await, ["a", "b"]);
    });
}
