//! Defects that the simulation has found, or would find only by chance. Each test tells its story.

mod checkpoints;
mod outages;
mod owners;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use deltaq_engine::Queue;
use deltaq_engine::command::{Call, ObjectList, Pop, Progress, Replace};
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::event::{Event, EventKind, ViewChanges};
use deltaq_engine::id::{Rv, Token};
use deltaq_engine::key::Key;
use deltaq_engine::limits::LIFE_SKIP_EVENTS;
use deltaq_engine::object::Object;
use deltaq_engine::rate::Rate;
use deltaq_engine::time::Time;
use deltaq_journal::record::{self, Identity};
use deltaq_journal::store::{Epoch, QueueId, Reader, RunRow, Writes};
use deltaq_journal::writer;
use deltaq_journal::{self, Author, Commit, Journal, QueueMeta};
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Creator, Error, FirstCall, Handle, Incarnation, Name, PopCall, Registry};

use crate::store::fake::{FakeStore, Fault};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use super::disk::{Disk, Timing};
use super::run::on_a_runtime;
use super::world::World;
use crate::node::{self, Node};

const SECOND: Duration = Duration::from_secs(1);

async fn start(world: &World, disk: &Disk, pace: deltaq_journal::WriterOptions) -> Arc<Registry> {
    start_until(world, disk, pace, &Shutdown::manual(SECOND)).await
}

async fn start_until(
    world: &World,
    disk: &Disk,
    pace: deltaq_journal::WriterOptions,
    shutdown: &Shutdown,
) -> Arc<Registry> {
    let node = node::start_on(disk.clone(), disk.memory.opening(), &world.clock, shutdown, pace).await;
    node.expect("the node starts").registry
}

/// Runs a story on a node whose disk takes no time.
fn story(tell: impl AsyncFnOnce(&Arc<World>, &Disk, &Registry)) {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Instant);
    on_a_runtime(&world, async {
        let registry = start(&world, &disk, deltaq_journal::WriterOptions::default()).await;
        tell(&world, &disk, &registry).await;
    });
}

/// Makes the journal fail, so that the queue loses a change.
async fn break_at(disk: &Disk, handle: &Arc<Handle>) {
    disk.memory.break_by(Fault::Refused);
    add(handle, "lost").await.expect_err("the journal is down");
}

/// Stops a node as a server stops.
async fn close(node: Node) {
    node.registry.close();
    node.writing.await.expect("it ends");
}

fn queue(registry: &Registry) -> Arc<Handle> {
    queue_named(registry, "q")
}

fn queue_named(registry: &Registry, name: &str) -> Arc<Handle> {
    let name = Name::new(name).expect("it is a name");
    registry
        .get_or_create(&name, FirstCall::Produce(&[], &[]), &Creator::default())
        .expect("it can be created")
}

async fn add(handle: &Arc<Handle>, key: &str) -> Result<(), String> {
    let call = Call {
        kind: DeltaKind::Added,
        key: Key::new(key).expect("it is a key"),
        object: Some(Object::from_valid(&format!("{{\"key\":\"{key}\"}}"))),
        source: None,
        delay: None,
        debounce: None,
        head_start: None,
        final_state_unknown: false,
        rate_limited: false,
        trace: None,
        version: None,
    };
    let added = handle.produce(&Config::default(), &[call]).await;
    added.map(drop).map_err(|error| error.to_string())
}

/// A Replace that releases the lock after each step, and stays at its first step until `goes_on` is set.
async fn replace(world: &Arc<World>, handle: &Arc<Handle>, goes_on: &Arc<AtomicBool>) -> Result<(), String> {
    let (world, goes_on, mut id) = (world.clone(), goes_on.clone(), None);
    let replaced = handle.long_command(move |queue, now| {
        world.spend(SECOND / 100);
        match id {
            None => {
                id = Some(queue.accept_replace(now, Replace::new(ObjectList::default(), None))?);
                Ok(Progress::More)
            }
            Some(_) if !goes_on.load(Ordering::Relaxed) => Ok(Progress::More),
            Some(id) => queue.replace_step(now, id, 1),
        }
    });
    replaced.await.map(drop).map_err(|error| error.to_string())
}

fn paused(rv: u64) -> Event {
    Event {
        rv: Rv::new(rv),
        at: Time::from_micros(1),
        kind: EventKind::Paused,
        views: ViewChanges::default(),
        sequence: None,
        by: None,
    }
}

fn pop(lease: Duration, wait: Duration) -> PopCall {
    let (worker, id) = (None, None);
    let pop =
        Pop { max: 1, max_bytes: 1 << 20, lease: Some(lease), worker, id, with_known: false, group: None };
    PopCall { pop, settles: Vec::new(), wait }
}

/// Seed 428 of the first simulation. A checkpoint had captured the last keys of a queue, more than its
/// slice had room for, when the queue was deleted. The next slices wrote the rest of the keys and then, because everything was
/// captured, the queue's row: the queue existed again.
#[test]
fn a_checkpoint_does_not_recreate_a_deleted_queue() {
    for delay in 0..60 {
        let world = Arc::new(World::new(false));
        let disk = Disk::new(Timing::Steady(Duration::from_millis(1)));
        on_a_runtime(&world, async {
            let pace = deltaq_journal::WriterOptions {
                growth_bytes_min: 1,
                chunk_bytes: 1..=1,
                run_bytes: 1,
                captured: 10,
                ..deltaq_journal::WriterOptions::default()
            };
            let registry = start(&world, &disk, pace).await;
            let handle = queue(&registry);
            for key in ["a", "b", "c", "d", "e"] {
                add(&handle, key).await.expect("it is added");
            }
            tokio::time::sleep(Duration::from_millis(delay)).await;
            registry.delete(handle.name(), false).expect("it is there").wait().await.expect("it is deleted");
            tokio::time::sleep(SECOND / 2).await;
        });
        assert_eq!(disk.live(), [], "deleted after {delay} ms");
    }
}

/// Seed 8478. A lease was due before it was committed, so the timer waited for the commit. Meanwhile the timer counted as not
/// armed, so each of its ticks started another one at once: a core was busy until the disk was done.
#[test]
fn a_timer_that_waits_for_a_commit_sleeps() {
    let (sender, ended) = sync_channel(1);
    std::thread::spawn(move || {
        let world = Arc::new(World::new(false));
        let disk = Disk::new(Timing::Instant);
        on_a_runtime(&world, async {
            let registry = start(&world, &disk, deltaq_journal::WriterOptions::default()).await;
            let handle = queue(&registry);
            add(&handle, "a").await.expect("it is added");
            disk.memory.hold();
            let popped = handle.pop(pop(SECOND / 100, Duration::ZERO));
            // Simulated time passes only while all tasks wait.
            let _waits = tokio::time::timeout(SECOND, popped).await;
        });
        sender.send(()).expect("somebody waits");
    });
    assert!(ended.recv_timeout(SECOND * 60).is_ok(), "the timer spins");
}

/// A key may wait for the rate while no pop does. Once the rate has let it through, there is nothing to wake up for.
#[test]
fn a_rate_that_lets_a_key_through_without_a_pop_leaves_the_timer_asleep() {
    let (sender, ended) = sync_channel(1);
    std::thread::spawn(move || {
        let world = Arc::new(World::new(false));
        let disk = Disk::new(Timing::Instant);
        on_a_runtime(&world, async {
            let registry = start(&world, &disk, deltaq_journal::WriterOptions::default()).await;
            let handle = queue(&registry);
            let edit = |config: &Config| Ok::<_, Error>(Config { rate: Rate::new(1.0, 1), ..config.clone() });
            registry.configure(&handle, edit).await.expect("the rate is set");
            for key in ["a", "b", "c"] {
                add(&handle, key).await.expect("it is added");
            }
            let popped = async |wait| {
                handle.pop(pop(SECOND * 60, wait)).await.items.expect("the queue is open").items.len()
            };
            assert_eq!(popped(Duration::ZERO).await, 1);
            assert_eq!(popped(Duration::ZERO).await, 0);
            // Simulated time passes only while all tasks wait.
            tokio::time::sleep(SECOND * 10).await;
            assert_eq!((popped(Duration::ZERO).await, popped(Duration::ZERO).await), (1, 0));
            assert_eq!(popped(SECOND * 2).await, 1);
        });
        sender.send(()).expect("somebody waits");
    });
    assert!(ended.recv_timeout(SECOND * 60).is_ok(), "the timer spins, or the test has failed");
}

/// No reply shows whether checkpoints continue, so the ledger can't check it.
#[test]
fn checkpoints_continue_after_a_queue_was_loaded_again() {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Instant);
    on_a_runtime(&world, async {
        let pace =
            deltaq_journal::WriterOptions { growth_bytes_min: 1, ..deltaq_journal::WriterOptions::default() };
        let registry = start(&world, &disk, pace).await;
        let handle = queue(&registry);
        add(&handle, "a").await.expect("it is added");
        break_at(&disk, &handle).await;
        disk.memory.repair();
        tokio::time::sleep(SECOND * 10).await;
        let newest = async || handle.read(|queue, _| queue.resource_version()).await.expect("it is there");
        let loaded = newest().await;
        // More than half of the state.
        for key in ["c", "d", "e", "f"] {
            add(&handle, key).await.expect("it is added");
        }
        tokio::time::sleep(SECOND * 10).await;
        let rows = disk.memory.queues().await.expect("the queues");
        let newest = newest().await;
        assert!(matches!(rows.as_slice(), [row] if row.rv > loaded && row.rv <= newest), "{rows:?}");
    });
}

/// A checkpoint that runs when the node stops would leave events for the next start to replay.
#[test]
fn a_stop_during_a_checkpoint_leaves_nothing_to_replay() {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Steady(Duration::from_millis(1)));
    on_a_runtime(&world, async {
        let pace = deltaq_journal::WriterOptions {
            growth_bytes_min: 1,
            chunk_bytes: 1..=1,
            run_bytes: 1,
            ..deltaq_journal::WriterOptions::default()
        };
        let shutdown = Shutdown::manual(SECOND * 5);
        let node = node::start_on(disk.clone(), disk.memory.opening(), &world.clock, &shutdown, pace).await;
        let node = node.expect("the node starts");
        let queue = queue(&node.registry);
        for added in join_all(["a", "b", "c", "d", "e"].map(|key| add(&queue, key))).await {
            added.expect("it is added");
        }
        // The checkpoint of those five keys, one row at a time, does not contain this key.
        add(&queue, "f").await.expect("it is added");
        close(node).await;
    });
    let newest = disk.memory.journal_rows().last().map(|row| row.last_rv);
    let rows = disk.memory.queues().now_or_never().expect("memory does not wait").expect("the queues");
    assert_eq!(rows.first().map(|row| row.rv), newest);
}

/// The store counted as cleanly closed while it was in use, so a loss of power would have gone unnoticed.
#[test]
fn a_store_that_fails_at_its_first_write_does_not_count_as_closed() {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Instant);
    disk.memory.fault_at(1, Fault::Refused);
    on_a_runtime(&world, async {
        let registry = start(&world, &disk, deltaq_journal::WriterOptions::default()).await;
        tokio::time::sleep(SECOND * 10).await;
        add(&queue(&registry), "a").await.expect("the journal is back");
        assert!(!disk.memory.opening().clean);
    });
}

/// The calendar of this world is before that of the numbers, as with a clock that was set back, so only chance keeps the numbers of two
/// restores of one backup apart. The ids of their leases do it always.
#[test]
fn a_lease_of_a_lost_time_is_no_lease_now() {
    let world = Arc::new(World::new(false));
    let backup = Disk::new(Timing::Instant);
    on_a_runtime(&world, async {
        let registry = start(&world, &backup, deltaq_journal::WriterOptions::default()).await;
        add(&queue(&registry), "a").await.expect("it is added");
    });
    let lease_after_restore = || {
        on_a_runtime(&world, async {
            let registry = start(&world, &backup.restarted(), deltaq_journal::WriterOptions::default()).await;
            let handle = queue(&registry);
            let popped = handle.pop(pop(SECOND, Duration::ZERO)).await.items.expect("no refusal");
            let token = popped.items.first().expect("a key").token;
            (handle.lease_id(token).to_string(), token, handle)
        })
    };
    let (lost_id, _, _) = lease_after_restore();
    let (id, token, handle) = lease_after_restore();
    assert_eq!((handle.token(&id), handle.token(&lost_id)), (token, Token::default()));
}

/// A recovered queue skips numbers that may have been used. The commit of that skip failed, and the queue was then loaded again
/// without the skip.
#[test]
fn a_queue_that_is_loaded_again_after_an_unclean_end_skips_numbers_again() {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Instant);
    let rv = async |registry: &Registry| {
        queue(registry).read(|queue, _| queue.resource_version()).await.expect("it is there")
    };
    let before = on_a_runtime(&world, async {
        let registry = start(&world, &disk, deltaq_journal::WriterOptions::default()).await;
        add(&queue(&registry), "a").await.expect("it is added");
        rv(&registry).await
    });
    let disk = disk.restarted();
    on_a_runtime(&world, async {
        // The first write records that the store is in use, the second one is the skip.
        disk.memory.fault_at(2, Fault::Refused);
        let shutdown = Shutdown::manual(SECOND);
        let registry = start_until(&world, &disk, deltaq_journal::WriterOptions::default(), &shutdown).await;
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!(registry.journal().expect("it has one").check(), Ok(Epoch(3)));
        assert!(rv(&registry).await >= before.plus(1 << 20));
    });
    // The node stops before the queue is loaded again.
    let disk = disk.restarted();
    for (fault, clean) in [(Some(2), false), (None, true)] {
        on_a_runtime(&world, async {
            if let Some(step) = fault {
                disk.memory.fault_at(disk.memory.steps() + step, Fault::Refused);
            }
            let shutdown = Shutdown::manual(SECOND);
            let pace = deltaq_journal::WriterOptions::default();
            let node =
                node::start_on(disk.clone(), disk.memory.opening(), &world.clock, &shutdown, pace).await;
            close(node.expect("the node starts")).await;
            assert_eq!(disk.memory.opening().clean, clean);
        });
    }
}

/// With room for commits and none for a checkpoint, one checkpoint after the other failed, and with each all calls at that time.
#[test]
fn a_failed_checkpoint_is_repeated_with_growing_delays() {
    let world = Arc::new(World::new(false));
    on_a_runtime(&world, async {
        let memory = FakeStore::default();
        memory.fault_by_rows(|writes| (!writes.runs.is_empty()).then_some(Fault::Full));
        let pace =
            deltaq_journal::WriterOptions { growth_bytes_min: 1, ..deltaq_journal::WriterOptions::default() };
        let shutdown = Shutdown::manual(SECOND);
        let node = node::start_on(memory.clone(), memory.opening(), &world.clock, &shutdown, pace).await;
        let node = node.expect("the node starts");
        let (handle, mut added) = (queue(&node.registry), 0);
        for key in 0..1_000 {
            added += u32::from(add(&handle, &key.to_string()).await.is_ok());
            tokio::time::sleep(SECOND / 10).await;
        }
        let epoch = node.registry.journal().expect("it has one").health().borrow().epoch;
        let failures = epoch.0 - 1;
        assert!((5..=9).contains(&failures), "{failures} in 100 s");
        assert!(added > 950, "{added} of 1,000");
    });
}

/// The caller got a failed deletion, but the deletion was durable, as the reload of the queues showed. The rows of the queue
/// stayed.
#[test]
fn a_queue_whose_deletion_had_an_unknown_outcome_leaves_no_rows() {
    story(async |_, disk, registry| {
        let handle = queue(registry);
        add(&handle, "a").await.expect("it is added");
        disk.memory.fault_at(disk.memory.steps() + 1, Fault::Doubted);
        let deleted = registry.delete(handle.name(), false).expect("it is there");
        deleted.wait().await.expect_err("it is not known");
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!(disk.memory.journal_rows(), []);
        assert_eq!(registry.find(handle.name()).map(|handle| handle.incarnation()), None);
    });
}

/// This needs a thread that stops between two lines while the journal fails and recovers.
#[test]
fn events_that_follow_lost_events_are_refused() {
    story(async |_, disk, registry| {
        let handle = queue(registry);
        add(&handle, "a").await.expect("it is added");
        let journal = registry.journal().expect("it has one");
        let before = journal.check().expect("it takes events");
        break_at(disk, &handle).await;
        disk.memory.repair();
        tokio::time::sleep(SECOND * 10).await;
        assert_eq!(journal.check(), Ok(Epoch(before.0 + 1)));
        let id = disk.memory.queues().await.expect("the queues")[0].id;
        let commit =
            journal.append(id, Rv::new(1), vec![paused(2)], before, (&Author::default(), &Commit::done()));
        assert_eq!(commit.outcome(), Some(Err(deltaq_journal::Error::OutcomeUnknown)));
        let (name, created_at) = (Name::new("other").expect("it is a name"), Time::from_micros(1));
        let meta = QueueMeta { name, incarnation: handle.incarnation(), created_at };
        let state = Queue::new(Arc::default(), Rv::ZERO, created_at).queue_state();
        let (other, commit) = journal.create(meta.clone(), state, before);
        assert_eq!(commit.outcome(), Some(Err(deltaq_journal::Error::OutcomeUnknown)));
        let commit = journal.delete(other, meta, Rv::new(1), before);
        assert_eq!(commit.outcome(), Some(Err(deltaq_journal::Error::OutcomeUnknown)));
    });
}

/// Each deleted queue would leave a row for ever.
#[test]
fn a_deleted_queue_leaves_only_the_floor_of_numbers() {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Instant);
    let rows = async || {
        tokio::time::sleep(SECOND * 3).await;
        let rows = disk.memory.queues().await.expect("the queues");
        rows.iter().map(|row| (row.id.0, row.deleted)).collect::<Vec<_>>()
    };
    let rv = async |handle: &Arc<Handle>| {
        handle.read(|queue, _| queue.resource_version()).await.expect("it is there")
    };
    let newest = on_a_runtime(&world, async {
        let registry = start(&world, &disk, deltaq_journal::WriterOptions::default()).await;
        let mut newest = Rv::ZERO;
        for name in ["q", "q", "other", "q"] {
            let handle = queue_named(&registry, name);
            add(&handle, "a").await.expect("it is added");
            let rv = rv(&handle).await;
            assert!(rv > newest, "{rv} follows {newest}");
            newest = rv;
            let deleted = registry.delete(handle.name(), false).expect("it is there");
            deleted.wait().await.expect("it is deleted");
        }
        assert_eq!(rows().await, []);
        newest
    });
    let skip = LIFE_SKIP_EVENTS..2 * LIFE_SKIP_EVENTS;
    // The node ended before it removed the rows. The next start removes them.
    let (name, created_at) = (Name::new("q").expect("it is a name"), Time::from_micros(1));
    let old = Identity { id: QueueId(2), version: 3, name, incarnation: Incarnation(1), created_at };
    on_a_runtime(&world, async {
        let registry = start(&world, &disk, deltaq_journal::WriterOptions::default()).await;
        let rv = rv(&queue(&registry)).await;
        assert!(skip.contains(&rv.since(newest)), "{rv}");
        let queues = vec![record::deleted_queue_row(&old, newest.plus(9))];
        disk.memory.put(Writes { queues, ..Writes::default() }).expect("it is written");
    });
    on_a_runtime(&world, async {
        let registry = start(&world, &disk, deltaq_journal::WriterOptions::default()).await;
        assert_eq!(rows().await, [(5, false)]);
        assert!(skip.contains(&rv(&queue_named(&registry, "new")).await.since(newest.plus(9))));
    });
}

/// A queue that can't be loaded again blocks no other queue, and is loaded once that is possible.
#[test]
fn only_the_damaged_queue_stays_unavailable_after_an_outage() {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Timing::Instant);
    on_a_runtime(&world, async {
        let pace =
            deltaq_journal::WriterOptions { growth_bytes_min: 1, ..deltaq_journal::WriterOptions::default() };
        let registry = start(&world, &disk, pace).await;
        let queues = ["a", "b", "c"].map(|name| queue_named(&registry, name));
        for handle in &queues {
            add(handle, "key").await.expect("it is added");
        }
        tokio::time::sleep(SECOND * 10).await;
        let runs = disk.memory.runs(QueueId(2), 0..1).await.expect("its keys");
        let damaged = runs.iter().map(|row| RunRow { checksum: row.checksum ^ 1, ..row.clone() }).collect();
        let put = async |runs| {
            let removed_runs = vec![(QueueId(2), 0..1)];
            disk.memory.put(Writes { removed_runs, ..Writes::default() }).expect("it is removed");
            disk.memory.put(Writes { runs, ..Writes::default() }).expect("it is written");
        };
        put(damaged).await;
        disk.memory.break_by(Fault::Refused);
        for lost in join_all(queues.iter().map(|handle| add(handle, "lost"))).await {
            lost.expect_err("the journal is down");
        }
        disk.memory.repair();
        tokio::time::sleep(SECOND * 10).await;
        let mut back = join_all(queues.iter().map(|handle| add(handle, "next"))).await;
        assert_eq!(back.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
        let other = Name::new("d").expect("it is a name");
        registry
            .get_or_create(&other, FirstCall::Produce(&[], &[]), &Creator::default())
            .expect_err("not all queues are back");
        put(runs).await;
        tokio::time::sleep(SECOND * 10).await;
        back = join_all(queues.iter().map(|handle| add(handle, "next"))).await;
        assert_eq!(back, [Ok(()), Ok(()), Ok(())]);
        registry
            .get_or_create(&other, FirstCall::Produce(&[], &[]), &Creator::default())
            .expect("all queues are back");
    });
}

/// A journal over a store that reads as `memory`, and its writer.
async fn written_by(world: &World, memory: &FakeStore) -> (Journal, JoinHandle<writer::Ended>) {
    let shutdown = Shutdown::manual(SECOND * 60);
    let opened = (memory.clone(), Arc::new(memory.clone()) as Arc<dyn Reader>, memory.opening());
    let (observer, pace) = (Arc::new(node::NoopObserver), deltaq_journal::WriterOptions::default());
    let opened = writer::open(opened, world.clock.clone(), observer, shutdown.cut().clone(), pace).await;
    let (journal, writer, _) = opened.expect("it is empty");
    (journal, shutdown.spawn_last("journal writer", writer.run()))
}

/// A stop on a full disk took until the time limit.
#[test]
fn a_failing_store_does_not_delay_the_end_of_the_process() {
    let world = Arc::new(World::new(false));
    on_a_runtime(&world, async {
        for is_full_from_the_start in [true, false] {
            let memory = FakeStore::default();
            if is_full_from_the_start {
                memory.break_by(Fault::Full);
            }
            let (journal, writing) = written_by(&world, &memory).await;
            tokio::time::sleep(SECOND).await;
            memory.break_by(Fault::Full);
            let lost = journal.append(
                QueueId(1),
                Rv::ZERO,
                vec![paused(1)],
                Epoch(1),
                (&Author::default(), &Commit::done()),
            );
            assert_eq!(lost.wait().await, Err(deltaq_journal::Error::DiskFull));
            journal.close(Epoch(1));
            let ended = tokio::time::timeout(SECOND * 5, writing).await;
            assert!(
                matches!(ended, Ok(Ok(writer::Ended::Closed))),
                "full from the start: {is_full_from_the_start}"
            );
        }
    });
}

/// Callers would wait for ever.
#[test]
fn no_call_waits_for_a_writer_that_has_panicked() {
    let world = Arc::new(World::new(false));
    on_a_runtime(&world, async {
        let memory = FakeStore::default();
        memory.fault_by_rows(|writes| (!writes.journal.is_empty()).then_some(Fault::Panic));
        let (journal, writing) = written_by(&world, &memory).await;
        let append = || {
            journal.append(
                QueueId(1),
                Rv::ZERO,
                vec![paused(1)],
                Epoch(1),
                (&Author::default(), &Commit::done()),
            )
        };
        let (first, second) = (append(), append());
        let outcomes = tokio::time::timeout(SECOND, async { (first.wait().await, second.wait().await) });
        let unknown = Err(deltaq_journal::Error::OutcomeUnknown);
        assert_eq!(outcomes.await, Ok((unknown, unknown)));
        assert_eq!(append().outcome(), Some(unknown));
        assert!(writing.await.is_err_and(|error| error.is_panic()));
    });
}
