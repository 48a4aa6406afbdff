//! Checkpoints that fail in the middle. Some of their runs are in the store then, and their numbers are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deltaq_engine::Queue;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::time::Time;
use deltaq_journal::recovery::{self, Progress};
use deltaq_journal::store::{QueueRow, Reader};
use deltaq_journal::{Author, Commit, Live, Observer, QueueMeta, WriterOptions, writer};
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Handle, Incarnation, Name};
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::super::disk::{Disk, Timing};
use super::super::run::on_a_runtime;
use super::super::world::World;
use super::{SECOND, add, close, queue};
use crate::node;
use crate::store::fake::{FakeStore, Fault};

/// Checkpoints that write one key at a time.
fn one_by_one(state_bytes_min: u64) -> WriterOptions {
    WriterOptions {
        growth_bytes_min: 1,
        chunk_bytes: 1..=1,
        run_bytes: 1,
        captured: 2,
        state_bytes_min,
        ..WriterOptions::default()
    }
}

/// The row of the only queue, and the numbers of its runs.
async fn rows(disk: &Disk) -> (QueueRow, Vec<u64>) {
    let row = disk.memory.queues().await.expect("the queues").remove(0);
    let runs = disk.memory.runs(row.id, 0..u64::MAX).await.expect("its runs");
    (row, runs.iter().map(|run| run.number).collect())
}

async fn add_all(handle: &Arc<Handle>, keys: &[&str]) {
    for added in join_all(keys.iter().map(|key| add(handle, key))).await {
        added.expect("it is added");
    }
}

/// The queue is loaded again. The next checkpoint must not reuse a number, and a load must take the newest entries.
#[test]
fn a_checkpoint_continues_behind_the_runs_of_one_that_failed_in_the_middle() {
    let (mut left_runs, mut full) = (0, 0);
    for (step, fault, state_bytes_min) in (1..=12).flat_map(|step| {
        [(step, Fault::Refused, 1), (step, Fault::Refused, 1 << 20), (step, Fault::Doubted, 1)]
    }) {
        let world = Arc::new(World::new(false));
        let disk = Disk::new(Timing::Instant);
        on_a_runtime(&world, async {
            let (opening, pace) = (disk.memory.opening(), one_by_one(state_bytes_min));
            let shutdown = Shutdown::manual(SECOND);
            let node = node::start_on(disk.clone(), opening, &world.clock, &shutdown, pace).await;
            let node = node.expect("the node starts");
            let handle = queue(&node.registry);
            add_all(&handle, &["a", "b", "c", "d"]).await;
            tokio::time::sleep(SECOND).await;
            let (before, _) = rows(&disk).await;
            handle.purge().await.expect("it is purged");
            disk.memory.fault_at(disk.memory.steps() + step, fault);
            // The first steps are the commit.
            join_all(["c", "d", "e", "f", "g"].map(|key| add(&handle, key))).await;
            tokio::time::sleep(SECOND / 10).await;
            let (failed, runs) = rows(&disk).await;
            left_runs += usize::from(failed.next_run == before.next_run && runs[0] >= failed.next_run);
            tokio::time::sleep(SECOND * 10).await;
            // The step of the fault may not have come.
            disk.memory.repair();
            add_all(&handle, &["a", "c", "h", "i", "j", "k", "l", "m"]).await;
            tokio::time::sleep(SECOND * 10).await;
            let (row, runs) = rows(&disk).await;
            full += usize::from(row.first_run > 0);
            let newest = handle.read(|queue, _| queue.resource_version()).await.expect("it is there");
            assert_eq!((row.rv, row.next_run), (newest, runs[0] + 1), "step {step}, {fault:?}");
            disk.check_recovery().expect("a restart gives the state of the events");
            close(node).await;
        });
    }
    assert!(left_runs > 5 && full > 5, "{left_runs} times runs were left, {full} checkpoints were full");
}

/// A queue that counts as loaded at once, as if a load were done before the writer learns of it.
#[derive(Debug)]
struct Present {
    queue: Mutex<Queue>,
    captures: AtomicU32,
}

impl Live for Present {
    fn with(&self, look: &mut dyn FnMut(&mut Queue)) -> bool {
        self.captures.fetch_add(1, Ordering::Relaxed);
        look(&mut self.queue.lock());
        true
    }

    fn lose(&self) {}
}

/// Counts completed checkpoints.
#[derive(Debug, Default)]
struct Completed(AtomicU32);

impl Observer for Completed {
    fn committed(&self, _events: usize, _took: Duration) {}

    fn checkpointed(&self, _took: Duration) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn sized(&self, _bytes: u64, _lag_events: u64) {}
}

/// Only the load knows which runs of the failed checkpoint are in the store, and the writer learns it with the opening of
/// the loaded queue. Until then, no checkpoint may touch the queue.
#[test]
fn a_queue_whose_checkpoint_failed_is_left_alone_until_it_is_opened_again() {
    let world = Arc::new(World::new(false));
    on_a_runtime(&world, async {
        let memory = FakeStore::default();
        let shutdown = Shutdown::manual(SECOND);
        let (reader, observer) =
            (Arc::new(memory.clone()) as Arc<dyn Reader>, Arc::new(Completed::default()));
        let (opened, cut) = ((memory.clone(), reader.clone(), memory.opening()), shutdown.cut().clone());
        let opened =
            writer::open(opened, world.clock.clone(), observer.clone(), cut, one_by_one(1 << 20)).await;
        let (journal, writer, _) = opened.expect("it is empty");
        let writing = shutdown.spawn_last("journal writer", writer.run());
        let (name, created_at) = (Name::new("q").expect("it is a name"), Time::from_micros(1));
        let mut queue = Queue::new(Arc::default(), Rv::ZERO, created_at);
        queue.journaled();
        let epoch = journal.check().expect("it takes events");
        let meta = QueueMeta { name, incarnation: Incarnation(1), created_at };
        let (id, created) = journal.create(meta, queue.queue_state(), epoch);
        created.wait().await.expect("a commit");
        let live = Arc::new(Present { queue: Mutex::new(queue), captures: AtomicU32::new(0) });
        let registered: Arc<dyn Live> = live.clone();
        journal.attach(id, Arc::downgrade(&registered));
        let seed = |keys: &[&str]| {
            let mut queue = live.queue.lock();
            let before = queue.resource_version();
            let seeds = keys.iter().map(|key| (Key::new(key).expect("a key"), Object::empty(), None));
            queue.seed_step(created_at, seeds);
            (before, queue.take_effects().events)
        };
        // The first step is the commit; the third is the second run.
        memory.fault_at(memory.steps() + 3, Fault::Refused);
        let (before, events) = seed(&["a", "b", "c"]);
        journal
            .append(id, before, events, epoch, (&Author::default(), &Commit::done()))
            .wait()
            .await
            .expect("a commit");
        tokio::time::sleep(SECOND * 5).await;
        let captures = live.captures.load(Ordering::Relaxed);
        assert_eq!(memory.runs(id, 0..9).await.expect("its runs").len(), 1);
        assert_eq!(journal.health().borrow().epoch.0, epoch.0 + 1, "nothing else has failed");
        assert_eq!((captures, observer.0.load(Ordering::Relaxed)), (2, 1), "a checkpoint without the queue");
        // It is loaded and opened.
        let row = memory.queues().await.expect("the queues").remove(0);
        let loaded = recovery::load(reader.as_ref(), &row, &Progress::default()).await.expect("it is intact");
        let epoch = journal.check().expect("it takes events");
        journal.resume(&loaded, epoch).wait().await.expect("a commit");
        *live.queue.lock() = loaded.queue;
        let (before, events) = seed(&["d"]);
        journal
            .append(id, before, events, epoch, (&Author::default(), &Commit::done()))
            .wait()
            .await
            .expect("a commit");
        tokio::time::sleep(SECOND * 5).await;
        let runs = memory.runs(id, 0..9).await.expect("its runs");
        assert!(
            runs.len() > 1 && runs.iter().rev().map(|run| run.number).eq(0..runs.len() as u64),
            "{runs:?}"
        );
        assert_eq!(journal.health().borrow().epoch, epoch, "nothing else has failed");
        journal.close(epoch);
        assert_eq!(writing.await.expect("it ends"), writer::Ended::Closed);
    });
}
