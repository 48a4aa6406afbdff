//! What the simulation has found, or would find only by chance: each with its story.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use deltaq::engine::command::{Call, Pop};
use deltaq::engine::config::Config;
use deltaq::engine::delta::DeltaKind;
use deltaq::engine::key::Key;
use deltaq::engine::object::Object;
use deltaq::journal;
use deltaq::journal::memory::Fault;
use deltaq::lifecycle::Shutdown;
use deltaq::service::{Handle, Name, PopCall, Registry};

use super::disk::{Disk, Pace};
use super::run::on_a_runtime;
use super::world::World;
use crate::node;

const SECOND: Duration = Duration::from_secs(1);

async fn start(world: &World, disk: &Disk, pace: journal::Pace) -> Arc<Registry> {
    let shutdown = Shutdown::manual(SECOND);
    let node = node::start_on(disk.clone(), disk.memory.opening(), &world.clock, &shutdown, pace).await;
    node.expect("the node starts").registry
}

fn queue(registry: &Registry) -> Arc<Handle> {
    let name = Name::new("q").expect("it is a name");
    registry.get_or_create(&name).expect("it can be created")
}

async fn add(handle: &Arc<Handle>, key: &str) -> Result<(), String> {
    let call = Call {
        kind: DeltaKind::Added,
        key: Key::new(key).expect("it is a key"),
        object: Some(Object::from_valid(&format!("{{\"key\":\"{key}\"}}"))),
        source: None,
        delay: None,
        final_state_unknown: false,
        rate_limited: false,
    };
    let added = handle.produce(&Config::default(), &[call]).await;
    added.map(drop).map_err(|error| error.to_string())
}

fn pop(lease: Duration, wait: Duration) -> PopCall {
    let (worker, id) = (None, None);
    let pop = Pop { max: 1, max_bytes: 1 << 20, lease: Some(lease), worker, id, with_known: false };
    PopCall { pop, settles: Vec::new(), wait }
}

/// Seed 428 of the first simulation. A checkpoint had captured the last keys of a queue, more than its
/// slice had room for, when the queue was deleted. The next slices wrote the rest of the keys and
/// then, since all was captured, the queue's row: the queue was back.
#[test]
fn a_checkpoint_does_not_bring_a_deleted_queue_back() {
    for delay in 0..60 {
        let world = Arc::new(World::new(false));
        let disk = Disk::new(Pace::Steady(Duration::from_millis(1)));
        on_a_runtime(&world, async {
            let pace =
                journal::Pace { growth_bytes_min: 1, rows: 1..=1, captured: 10, ..journal::Pace::default() };
            let registry = start(&world, &disk, pace).await;
            let handle = queue(&registry);
            for key in ["a", "b", "c", "d", "e"] {
                add(&handle, key).await.expect("it is added");
            }
            tokio::time::sleep(Duration::from_millis(delay)).await;
            registry.delete(handle.name()).expect("it is there").wait().await.expect("it is deleted");
            tokio::time::sleep(SECOND / 2).await;
        });
        assert_eq!(disk.live(), [], "deleted after {delay} ms");
    }
}

/// Seed 8478. A lease was due before it was committed, so the timer waited for the commit. But it
/// counted as not armed meanwhile, so that each of its ticks called for another one at once: a core was
/// busy for as long as the disk took.
#[test]
fn a_timer_that_waits_for_a_commit_sleeps() {
    let (sender, ended) = sync_channel(1);
    std::thread::spawn(move || {
        let world = Arc::new(World::new(false));
        let disk = Disk::new(Pace::Instant);
        on_a_runtime(&world, async {
            let registry = start(&world, &disk, journal::Pace::default()).await;
            let handle = queue(&registry);
            add(&handle, "a").await.expect("it is added");
            disk.memory.hold();
            let popped = handle.pop(pop(SECOND / 100, Duration::ZERO));
            // Time passes only while nobody has anything to do.
            let _waits = tokio::time::timeout(SECOND, popped).await;
        });
        sender.send(()).expect("somebody waits");
    });
    assert!(ended.recv_timeout(SECOND * 20).is_ok(), "the timer spins");
}

/// No caller can tell whether it lost its place or its keys, so no ledger can.
#[test]
fn pops_that_wait_keep_their_place_over_a_failed_commit() {
    let world = Arc::new(World::new(false));
    let disk = Disk::new(Pace::Instant);
    on_a_runtime(&world, async {
        let registry = start(&world, &disk, journal::Pace::default()).await;
        let handle = queue(&registry);
        handle.write(|queue, now| queue.set_paused(now, true)).await.expect("it is paused");
        let first = handle.pop(pop(SECOND, SECOND * 60));
        let second = handle.pop(pop(SECOND, SECOND * 60));
        let rest = async {
            tokio::time::sleep(SECOND).await;
            disk.memory.break_by(Fault::Refused);
            add(&handle, "lost").await.expect_err("it can't be added");
            disk.memory.repair();
            tokio::time::sleep(SECOND * 10).await;
            handle.write(|queue, now| queue.set_paused(now, false)).await.expect("it is back");
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
