//! Callers during an outage of the journal: waiting pops, a Replace, and leases whose commit failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deltaq_engine::command::{How, Settle, Settled};
use deltaq_journal::store::{QueueId, Reader as _, RunRow, Writes};
use deltaq_runtime::lifecycle::Shutdown;

use crate::store::fake::Fault;
use futures_util::future::join_all;
use futures_util::poll;

use super::super::disk::{Disk, Timing};
use super::super::run::on_a_runtime;
use super::super::world::World;
use super::{SECOND, add, break_at, pop, queue, queue_named, replace, start_until, story};

/// No caller can see whether it lost its position or its keys, so the ledger can't check it.
#[test]
fn pops_that_wait_keep_their_place_over_a_failed_commit() {
    story(async |_, disk, registry| {
        let handle = queue(registry);
        handle.set_paused(true).await.expect("it is paused");
        let first = handle.pop(pop(SECOND, SECOND * 60));
        let second = handle.pop(pop(SECOND, SECOND * 60));
        let rest = async {
            tokio::time::sleep(SECOND).await;
            break_at(disk, &handle).await;
            disk.memory.repair();
            tokio::time::sleep(SECOND * 10).await;
            handle.set_paused(false).await.expect("it is back");
            add(&handle, "a").await.expect("it is added");
            add(&handle, "b").await.expect("it is added");
        };
        let (first, second, ()) = tokio::join!(biased; first, second, rest);
        let keys = [first, second].map(|answer| {
            let mut delivered = answer.items.expect("it is served");
            delivered.confirm();
            delivered.items.iter().map(|item| item.key.as_str().to_owned()).collect::<Vec<_>>()
        });
        assert_eq!(keys, [vec!["a".to_owned()], vec!["b".to_owned()]]);
    });
}

/// A Replace had no events in the journal when another queue's commit failed. The Replace found the journal down and gave up,
/// but its queue, which had lost nothing, kept the job: all later Replaces waited for ever.
#[test]
fn a_replace_goes_on_when_the_journal_is_back() {
    story(async |world, disk, registry| {
        let (handle, other) = (queue(registry), queue_named(registry, "other"));
        add(&handle, "a").await.expect("it is added");
        let goes_on = Arc::new(AtomicBool::new(false));
        let rest = async {
            break_at(disk, &other).await;
            goes_on.store(true, Ordering::Relaxed);
            disk.memory.repair();
            tokio::time::sleep(SECOND * 3).await;
            tokio::time::timeout(SECOND * 10, replace(world, &handle, &goes_on))
                .await
                .expect("it has its turn")
        };
        let (first, second) = tokio::join!(biased; replace(world, &handle, &goes_on), rest);
        first.expect_err("its caller gets the failure at once");
        assert_eq!(second, Ok(()));
    });
}

/// The Replace would wait for ever, and the process would wait for it until the time limit.
#[test]
fn a_replace_does_not_wait_for_the_journal_while_the_process_drains() {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Instant);
    on_a_runtime(&world, async {
        let shutdown = Shutdown::manual(SECOND * 600);
        let registry = start_until(&world, &disk, deltaq_journal::WriterOptions::default(), &shutdown).await;
        let (handle, other) = (queue(&registry), queue_named(&registry, "other"));
        add(&handle, "a").await.expect("it is added");
        let goes_on = Arc::new(AtomicBool::new(false));
        let rest = async {
            break_at(&disk, &other).await;
            shutdown.signal();
            tokio::time::timeout(SECOND * 60, shutdown.join()).await
        };
        let (replaced, left) = tokio::join!(biased; replace(&world, &handle, &goes_on), rest);
        assert_eq!(left, Ok(0), "tasks wait for the cut");
        replaced.expect_err("the journal does not come back");
    });
}

/// A queue was loaded for readers while the disk was full. Before the load had ended, there was room, the queue took a change,
/// and the disk was full again. What was read first lacks the change.
#[test]
fn a_state_from_before_a_change_is_not_shown_to_readers() {
    story(async |_, disk, registry| {
        let handle = queue(registry);
        let newest = async || handle.read(|queue, _| queue.resource_version()).await;
        add(&handle, "a").await.expect("it is added");
        let release = disk.hold_read();
        disk.memory.break_by(Fault::Full);
        add(&handle, "lost").await.expect_err("the disk is full");
        tokio::time::sleep(SECOND).await;
        assert!(disk.holds_read(), "the store is read, although nobody calls the queue");
        disk.memory.repair();
        tokio::time::sleep(SECOND * 10).await;
        add(&handle, "b").await.expect("there is room");
        let last = newest().await.expect("it is back");
        disk.memory.break_by(Fault::Full);
        add(&handle, "lost").await.expect_err("the disk is full again");
        newest().await.expect_err("it has lost a change");
        release.send(()).expect("a read is held back");
        tokio::time::sleep(SECOND * 120).await;
        assert_eq!(newest().await.expect("a full disk can be read"), last);
    });
}

/// One queue that can't be loaded hid those behind it for as long as the disk was full.
#[test]
fn a_damaged_queue_hides_no_other_one_on_a_full_disk() {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Instant);
    on_a_runtime(&world, async {
        let pace =
            deltaq_journal::WriterOptions { growth_bytes_min: 1, ..deltaq_journal::WriterOptions::default() };
        let registry = start_until(&world, &disk, pace, &Shutdown::manual(SECOND)).await;
        let queues = ["a", "b", "c"].map(|name| queue_named(&registry, name));
        for handle in &queues {
            add(handle, "key").await.expect("it is added");
        }
        tokio::time::sleep(SECOND * 10).await;
        let runs = disk.memory.runs(QueueId(2), 0..1).await.expect("its keys");
        assert!(!runs.is_empty(), "it has a checkpoint");
        let runs = runs.iter().map(|row| RunRow { checksum: row.checksum ^ 1, ..row.clone() }).collect();
        let removed_runs = vec![(QueueId(2), 0..1)];
        disk.memory.put(Writes { removed_runs, ..Writes::default() }).expect("it is removed");
        disk.memory.put(Writes { runs, ..Writes::default() }).expect("it is written");
        disk.memory.break_by(Fault::Full);
        for lost in join_all(queues.iter().map(|handle| add(handle, "lost"))).await {
            lost.expect_err("the disk is full");
        }
        tokio::time::sleep(SECOND * 3).await;
        let mut are_shown = Vec::new();
        for handle in &queues {
            are_shown.push(handle.read(|queue, _| queue.resource_version()).await.is_ok());
        }
        assert_eq!(are_shown, [true, false, true]);
    });
}

/// The commit of a pop failed, and its caller dropped the reply late. By then the queue was loaded again and had given the number
/// of the lost lease to another lease, which must not be returned.
#[test]
fn what_is_given_back_late_is_no_lease_of_another() {
    story(async |_, disk, registry| {
        let handle = queue(registry);
        add(&handle, "a").await.expect("it is added");
        disk.memory.break_by(Fault::Refused);
        let mut left = Box::pin(handle.pop(pop(SECOND * 60, Duration::ZERO)));
        assert!(poll!(left.as_mut()).is_pending(), "it waits for its commit");
        tokio::time::sleep(SECOND).await;
        disk.memory.repair();
        tokio::time::sleep(SECOND * 3).await;
        let mut delivered = handle.pop(pop(SECOND * 60, Duration::ZERO)).await.items.expect("it is back");
        delivered.confirm();
        drop(left);
        let settle = Settle { token: delivered.items[0].token, how: How::Ack };
        let settled = handle.settle(&[settle]).await.expect("it is back");
        assert!(matches!(settled[..], [Settled::Ok { .. }]), "{settled:?}");
    });
}
