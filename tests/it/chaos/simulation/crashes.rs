//! A script of all writing operations, with a crash before and after each step of the disk, and a second crash during the first
//! steps of the recovery.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deltaq_engine::command::{How, Pop};
use deltaq_engine::config::Config;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Name, PopCall};
use deltaq_types::{Mode, Retention};
use parking_lot::Mutex;

use crate::store::fake::Fault;
use fastrand::Rng;

use super::caller::{Caller, Memory, Target};
use super::calls::Wishes;
use super::disk::{Disk, Timing};
use super::ledger::Kind;
use super::plan::{Plan, Setup};
use super::run::{Run, on_a_runtime, stop};
use super::world::World;
use super::{THREADS, Violation, knob};
use crate::node;

/// Objects of the large Replace.
const OBJECTS: usize = 2_000;
/// Long enough for removals, trims and a due checkpoint.
const UPKEEP: Duration = Duration::from_secs(6);
/// A second crash follows a first crash at every so many steps. `DELTAQ_ALL_STEPS=1` takes three times as many.
const SPREAD: usize = 27;
/// Steps of the recovery at which the second crash happens.
const SECOND: u64 = 5;

/// A crash at a step.
type Crash = (u64, Fault);

/// The operations of the script, in order.
#[derive(Clone, Copy, Debug)]
enum Act {
    Produce(usize),
    /// Pops a number of keys. Some of them are acknowledged, some fail, the rest stays leased.
    Work(usize, usize, usize, usize),
    Replace,
    Delete(usize),
    /// Deletes a number of keys from this one on. They are removed once the deletion is acknowledged.
    Retire(usize, usize),
    Rest,
}

const SCRIPT: &[Act] = &[
    Act::Produce(0),
    Act::Produce(1),
    Act::Produce(2),
    Act::Work(0, 2, 1, 1),
    Act::Work(2, 2, 1, 0),
    Act::Replace,
    Act::Work(0, 40, 25, 10),
    Act::Work(1, 2, 1, 1),
    Act::Produce(0),
    Act::Rest,
    Act::Work(0, OBJECTS, OBJECTS, 0),
    Act::Retire(3, 400),
    Act::Work(0, 500, 500, 0),
    Act::Produce(1),
    Act::Work(0, 300, 290, 5),
    Act::Replace,
    Act::Rest,
    Act::Delete(2),
    Act::Produce(2),
    Act::Delete(0),
    Act::Produce(1),
    Act::Rest,
    Act::Produce(0),
    Act::Work(0, 2, 1, 0),
];

fn plan() -> Plan {
    let setup = |(index, mode): (usize, Mode)| {
        let retention = Retention { age: None, bytes: Some(10_000) };
        let config = Config { mode, lease: Duration::from_secs(2), retention, ..Config::default() };
        let keys = if mode == Mode::Delta { OBJECTS } else { 6 };
        let name = Name::new(&format!("q{index}")).expect("it is a name");
        Setup { name, config: Arc::new(config), keys }
    };
    Plan {
        queues: [Mode::Delta, Mode::Latest, Mode::Keys].into_iter().enumerate().map(setup).collect(),
        followers: Vec::new(),
        readers: Vec::new(),
        watch: deltaq_service::WatchLimits::default(),
        forgets_nothing: false,
        pace: deltaq_journal::WriterOptions {
            growth_bytes_min: 20_000,
            chunk_bytes: 20_000..=40_000,
            run_bytes: 10_000,
            state_bytes_min: 30_000,
            captured: 100,
            examined: 300,
            segment_bytes: 20_000,
            ..deltaq_journal::WriterOptions::default()
        },
        callers: vec![0],
        leaves: 0,
        lives: 1,
        pause_ms: 1,
        calm_ms: 1,
    }
}

/// Plays the script with these crashes, each during one run of the node. Returns the number of steps of the first run.
fn play(crashes: &[Crash]) -> Result<u64, Violation> {
    let world = Arc::new(World::new(false));
    let memories = vec![Arc::new(Mutex::new(Memory::new(1, 0)))];
    let (readers, followers) = (Vec::new(), Vec::new());
    let run = Run { world, plan: Arc::new(plan()), memories, readers, followers };
    let at = AtomicUsize::new(0);
    let mut disk = Disk::new(Timing::Instant);
    let mut steps = 0;
    for life in 0..=crashes.len() {
        if let Some((step, fault)) = crashes.get(life) {
            disk.memory.fault_at(*step, *fault);
        }
        let end = on_a_runtime(&run.world, async {
            let shutdown = Shutdown::manual(UPKEEP);
            tokio::select! {
                biased;
                () = disk.memory.crashed() => Ok(false),
                checked = live(&run, &disk, &shutdown, &at) => checked.map(|()| true),
            }
        });
        run.world.ledger(super::ledger::Ledger::ended);
        run.world.verdict()?;
        if life == 0 {
            steps = disk.memory.steps();
        }
        let ended = end?;
        disk.check_recovery()?;
        if ended {
            break;
        }
        disk = disk.restarted();
    }
    Ok(steps)
}

async fn live(run: &Run, disk: &Disk, shutdown: &Shutdown, at: &AtomicUsize) -> Result<(), Violation> {
    let opening = disk.memory.opening();
    let node = node::start_on(disk.clone(), opening, &run.world.clock, shutdown, run.plan.pace.clone());
    let node = node.await.map_err(|error| error.to_string())?;
    run.probe(disk, &node.registry)?;
    run.check_skip(disk, &node.registry)?;
    let caller = run.callers(&node.registry).swap_remove(0);
    while let Some(act) = SCRIPT.get(at.load(Ordering::Relaxed)) {
        perform(&caller, *act).await?;
        run.probe(disk, &node.registry)?;
        at.fetch_add(1, Ordering::Relaxed);
    }
    disk.memory.repair();
    run.finale(disk, &node.registry).await?;
    stop(&run.world, node, shutdown).await?;
    if disk.memory.opening().clean { Ok(()) } else { Err("it was not stopped cleanly".to_owned()) }
}

async fn perform(caller: &Caller, act: Act) -> Result<(), Violation> {
    let target = |index: usize| -> Result<Target, Violation> {
        let found = caller.target_of(caller.plan.queues[index].clone())?;
        found.ok_or_else(|| "a queue can't be created".to_owned())
    };
    match act {
        Act::Produce(index) => {
            let target = target(index)?;
            for key in 0..3 {
                caller.send(&target, &[(key, Kind::Put)]).await?;
            }
            caller.send(&target, &[(1, Kind::Put)]).await
        }
        Act::Work(index, max, acked, failed) => {
            let target = target(index)?;
            let pop = Pop {
                max,
                max_bytes: usize::MAX,
                lease: None,
                worker: None,
                id: None,
                with_known: true,
                group: None,
            };
            let call = PopCall { pop, settles: Vec::new(), wait: Duration::from_millis(10) };
            caller.take(&target, call, Vec::new(), false, true).await?;
            let held: Vec<_> = caller.memory().held.drain(..).collect();
            let how = |place: usize| match place {
                place if place < acked => Some(How::Ack),
                place if place < acked + failed => Some(How::Nack { delay: None, floor: false, error: None }),
                _ => None,
            };
            let own = held.into_iter().filter(|lease| lease.queue == target.queue).enumerate();
            let settles = own.filter_map(|(place, lease)| Some((lease, how(place)?))).collect();
            caller.send_settles(settles).await
        }
        Act::Replace => {
            let sent = (0..OBJECTS).map(|key| (key, Kind::Listed)).collect::<Vec<_>>();
            caller
                .send_replace(&target(0)?, caller.numbered(&sent), Wishes::default(), &mut Rng::with_seed(3))
                .await
        }
        Act::Retire(from, count) => {
            let deletes: Vec<_> = (from..from + count).map(|key| (key, Kind::Delete)).collect();
            caller.send(&target(0)?, &deletes).await
        }
        Act::Delete(index) => caller.delete(&caller.plan.queues[index].clone()).await,
        Act::Rest => {
            tokio::time::sleep(UPKEEP).await;
            Ok(())
        }
    }
}

/// Plays the script with each of these lists of crashes.
fn play_all(cases: &[Vec<Crash>]) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(crashes) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(violation) = play(crashes) {
                        panic!("crashes {crashes:?}: {violation}");
                    }
                }
            });
        }
    });
}

const BOTH: [Fault; 2] = [Fault::CrashBefore, Fault::CrashAfter];

#[test]
fn the_script_survives_a_crash_at_every_step() {
    let steps = play(&[]).expect("it goes well without a crash");
    println!("{steps} steps");
    assert!(steps > 60, "the script takes {steps} steps: too few for what it is about");
    let cases: Vec<Vec<Crash>> = (1..=steps).flat_map(|step| BOTH.map(|fault| vec![(step, fault)])).collect();
    play_all(&cases);
}

#[test]
fn the_script_survives_a_second_crash_during_recovery() {
    let steps = play(&[]).expect("it goes well without a crash");
    let spread = if knob("DELTAQ_ALL_STEPS") == Some(1) { SPREAD / 3 } else { SPREAD };
    let first = (1..=steps).step_by(spread);
    let crashes = first.flat_map(|step| BOTH.map(|fault| (step, fault)));
    let second =
        |first: Crash| (1..=SECOND).flat_map(move |step| BOTH.map(|fault| vec![first, (step, fault)]));
    play_all(&crashes.flat_map(second).collect::<Vec<_>>());
}
