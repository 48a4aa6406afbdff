//! One simulated run: a node that starts and ends several times on one disk, and the checks during and between these lives.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_engine::id::Rv;
use deltaq_engine::limits::LIFE_SKIP_EVENTS;
use deltaq_journal::Live;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Error, Registry};
use parking_lot::Mutex;

use crate::store::fake::Fault;
use fastrand::Rng;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::runtime::Builder;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::caller::{Caller, Memory};
use super::calls::key_name;
use super::disk::{Disk, Timing};
use super::followers::Follower;
use super::plan::{Plan, millis};
use super::readers::Reader;
use super::world::World;
use super::{Report, Violation};
use crate::node::{self, Node};

/// The time limit of a shutdown.
pub(super) const SHUTDOWN: Duration = Duration::from_mins(1);

/// How the node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The power was lost.
    Crashed,
    /// Another node has taken the queues.
    TakenOver,
    /// The process was stopped.
    Stopped,
    /// The callers have made all their calls.
    Done,
}

/// The parts of a run that outlive the node.
pub(super) struct Run {
    pub(super) world: Arc<World>,
    pub(super) plan: Arc<Plan>,
    pub(super) memories: Vec<Arc<Mutex<Memory>>>,
    pub(super) readers: Vec<Reader>,
    pub(super) followers: Vec<Follower>,
}

/// Runs a seed.
pub(super) fn run(seed: u64, prints: bool) -> Result<Report, Violation> {
    let mut rng = Rng::with_seed(seed);
    // The service chooses incarnations at random.
    fastrand::seed(rng.u64(..));
    let plan = Arc::new(Plan::of(&mut rng));
    let world = Arc::new(World::new(prints));
    world.note(format_args!("{plan:?}"));
    let memory = |steps: &u32| Arc::new(Mutex::new(Memory::new(rng.u64(..), *steps)));
    let memories = plan.callers.iter().map(memory).collect();
    let reader = |setup: &_| Reader::new(&world, Clone::clone(setup), plan.forgets_nothing, rng.u64(..));
    let readers = plan.readers.iter().map(reader).collect();
    let follower = |setup: &_| Follower::new(&world, Clone::clone(setup), rng.u64(..));
    let followers = plan.followers.iter().map(follower).collect();
    let run = Run { world: world.clone(), plan: plan.clone(), memories, readers, followers };
    let mut disk = Disk::new(Timing::random(rng.u64(..)));
    for life in 0.. {
        let spared = life >= plan.lives;
        let end = run.life(&disk, &mut rng, spared)?;
        world.note(format_args!("{end:?}"));
        disk.check_recovery()?;
        if end == End::Done {
            break;
        }
        disk = disk.restarted();
        world.jump(&mut rng);
    }
    let mut hits = world.ledger(|ledger| std::mem::take(&mut ledger.hits));
    hits.insert("a follower took a change", disk.taken());
    hits.insert("a follower took an event", disk.taken_events() as u64);
    Ok(Report { hash: world.hash(), hits })
}

impl Run {
    /// One life of the node, from start to end. A spared life has no faults and ends cleanly.
    pub(super) fn life(&self, disk: &Disk, rng: &mut Rng, spared: bool) -> Result<End, Violation> {
        let end = on_a_runtime(&self.world, async {
            let shutdown = Shutdown::manual(SHUTDOWN);
            if !spared && rng.u8(..3) == 0 {
                // The node may crash during the recovery.
                disk.memory.fault_at(rng.u64(1..8), fault(rng));
            }
            tokio::select! {
                biased;
                () = disk.memory.crashed() => Ok(End::Crashed),
                end = self.live(disk, &shutdown, rng, spared) => end,
            }
        });
        self.world.ledger(super::ledger::Ledger::ended);
        self.world.verdict()?;
        end
    }

    pub(super) async fn live(
        &self,
        disk: &Disk,
        shutdown: &Shutdown,
        rng: &mut Rng,
        spared: bool,
    ) -> Result<End, Violation> {
        let opening = disk.memory.opening();
        let begun_us = self.world.clock.monotonic_us();
        let (pace, watch) = (self.plan.pace.clone(), self.plan.watch);
        let node = node::start_with(disk.clone(), opening, &self.world.clock, shutdown, pace, watch);
        let node = node.await.map_err(|error| error.to_string())?;
        let registry = node.registry.clone();
        self.probe(disk, &registry)?;
        self.check_skip(disk, &registry)?;
        self.check_leases(&registry, begun_us)?;
        let callers: Vec<_> = self
            .callers(&registry)
            .into_iter()
            .map(|caller| shutdown.spawn_last("caller", caller.run()))
            .collect();
        let connections: Vec<_> = callers.iter().map(JoinHandle::abort_handle).collect();
        let done = async {
            for caller in callers {
                caller.await.map_err(|error| error.to_string())?;
            }
            Ok::<(), Violation>(())
        };
        let readers = self.readers.iter().map(|reader| reader.run(disk, &registry).boxed_local());
        let followers = self.followers.iter().map(|follower| follower.run(&registry).boxed_local());
        let mut beside: FuturesUnordered<_> = readers.chain(followers).collect();
        let stroke = tokio::select! {
            biased;
            end = self.strike(disk, &registry, rng, spared) => Some(end?),
            result = done => result.map(|()| None)?,
            Some(violation) = beside.next() => return Err(violation),
        };
        drop(beside);
        match stroke {
            Some(End::Crashed) => return Ok(End::Crashed),
            Some(End::TakenOver) => {
                connections.iter().for_each(AbortHandle::abort);
                return self.taken_over(disk, node, rng, spared).await;
            }
            Some(_) => {}
            None => {
                disk.memory.repair();
                self.finale(disk, &registry).await?;
            }
        }
        stop(&self.world, node, shutdown).await?;
        disk.check_recovery()?;
        if stroke.is_none() && !disk.memory.opening().clean {
            return Err("it was stopped cleanly, and the disk does not say so".to_owned());
        }
        Ok(stroke.unwrap_or(End::Done))
    }

    /// Checks that no number is used twice after a load.
    pub(super) fn check_skip(&self, disk: &Disk, registry: &Registry) -> Result<(), Violation> {
        for setup in &self.plan.queues {
            let Some(handle) = registry.find(&setup.name) else { continue };
            let Some(last_rv) = disk.last_rv(handle.incarnation().0) else { continue };
            let mut rv = Rv::MAX;
            let _is_there = handle.with(&mut |queue| rv = queue.resource_version());
            // Later commits are behind the skip.
            if rv < Rv::new(LIFE_SKIP_EVENTS) || rv < last_rv {
                return Err(format!("{} goes on from {rv} after a load", setup.name));
            }
        }
        Ok(())
    }

    /// Checks that live leases get their full length again, because their workers could not reach the node.
    fn check_leases(&self, registry: &Registry, begun_us: u64) -> Result<(), Violation> {
        for setup in &self.plan.queues {
            let Some(handle) = registry.find(&setup.name) else { continue };
            let mut short = None;
            let _is_there = handle.with(&mut |queue| {
                let mut names = (0..setup.keys).map(key_name);
                short = names.find(|name| {
                    let lease = queue.table().get(name).and_then(|entry| entry.schedule_state.lease());
                    lease.is_some_and(|lease| {
                        let length_us = u64::try_from(lease.length.as_micros()).unwrap_or(u64::MAX);
                        self.world.deadline_us(&handle, lease.deadline) < begun_us + length_us
                    })
                });
            });
            if let Some(name) = short {
                return Err(format!("{}, {name}: the lease did not get its time again", setup.name));
            }
        }
        Ok(())
    }

    pub(super) fn callers(&self, registry: &Arc<Registry>) -> Vec<Caller> {
        let caller = |(index, memory): (usize, &Arc<Mutex<Memory>>)| Caller {
            index,
            world: self.world.clone(),
            plan: self.plan.clone(),
            registry: registry.clone(),
            memory: memory.clone(),
        };
        self.memories.iter().enumerate().map(caller).collect()
    }

    /// Causes faults while callers use the node, and checks the queues now and then. Ends when the node ends.
    async fn strike(
        &self,
        disk: &Disk,
        registry: &Registry,
        rng: &mut Rng,
        spared: bool,
    ) -> Result<End, Violation> {
        let memory = &disk.memory;
        loop {
            tokio::time::sleep(millis(rng, 1..self.plan.calm_ms)).await;
            self.probe(disk, registry)?;
            let choice = rng.u32(..if spared { 40 } else { 100 });
            self.world.note(format_args!("stroke {choice} at step {}", memory.steps()));
            match choice {
                0..22 => {}
                22..25 => self.panic_in_a_change(registry, rng).await,
                25..30 => self.world.jump(rng),
                30..40 => disk.check_recovery()?,
                40..75 => memory.fault_at(memory.steps() + rng.u64(1..8), fault(rng)),
                75..86 => {
                    memory.break_by(
                        *rng.choice(&[Fault::Refused, Fault::Full, Fault::Doubted]).unwrap_or(&Fault::Full),
                    );
                    tokio::time::sleep(millis(rng, 1..3_000)).await;
                    self.probe(disk, registry)?;
                    memory.repair();
                }
                86..90 => return Ok(End::TakenOver),
                90..95 => return Ok(End::Crashed),
                _ => return Ok(End::Stopped),
            }
        }
    }

    /// Panics in a change of a queue under its lock, as a bug would.
    async fn panic_in_a_change(&self, registry: &Registry, rng: &mut Rng) {
        let names: Vec<_> = self.plan.names().collect();
        let name = rng.choice(names).expect("there are some");
        let Some(handle) = registry.find(name) else { return };
        let edit = |_: &Config| -> Result<Config, Error> { resume_unwind(Box::new("on purpose")) };
        if AssertUnwindSafe(async { handle.configure(edit) }).catch_unwind().await.is_err() {
            self.world.note(format_args!("{name}: a change panics"));
            self.world.ledger(|ledger| ledger.hit("a change panicked"));
        }
    }

    /// Checks all queues.
    pub(super) fn probe(&self, disk: &Disk, registry: &Registry) -> Result<(), Violation> {
        disk.catch_up()?;
        let find = |name: &_| registry.find(name).map(|handle| handle.incarnation().0);
        self.world.ledger(|ledger| ledger.check_names(find))?;
        for name in self.plan.names() {
            let Some(handle) = registry.find(name) else { continue };
            let queue_ref = (name.clone(), handle.incarnation().0);
            let mut result = Ok(());
            let _is_there = handle.with(&mut |queue| {
                let checked = queue.check().map_err(|rule| format!("{name}: {rule}"));
                result = checked
                    .and_then(|()| disk.check_live(queue_ref.1, queue))
                    .and_then(|()| self.world.ledger(|ledger| ledger.check_queue(&queue_ref, queue)));
            });
            result?;
        }
        Ok(())
    }
}

/// Stops a node as a server stops.
pub(super) async fn stop(world: &World, node: Node, shutdown: &Shutdown) -> Result<(), Violation> {
    world.set_drains();
    shutdown.signal();
    let begun = Instant::now();
    let left = shutdown.join().await;
    // Callers that do not stop may begin a call after the last task has ended.
    if left > 0 && begun.elapsed() >= SHUTDOWN {
        return Err(format!("{left} tasks have no end"));
    }
    node.registry.close();
    node.writing.await.map(drop).map_err(|error| error.to_string())
}

fn fault(rng: &mut Rng) -> Fault {
    let faults =
        [Fault::Refused, Fault::Full, Fault::Doubted, Fault::Doubted, Fault::CrashBefore, Fault::CrashAfter];
    *rng.choice(&faults).unwrap_or(&Fault::Refused)
}

/// A process: a runtime whose tasks all end with it. Time stops while any task can run.
pub(super) fn on_a_runtime<T>(world: &Arc<World>, process: impl Future<Output = T>) -> T {
    let follows = world.clone();
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_unpark(move || follows.follow_time())
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        world.begin_time();
        process.await
    })
}
