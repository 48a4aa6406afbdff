//! The whole service except its protocol, with simulated time and a disk that fails and loses power: random runs by seeds,
//! and a script with a crash at every step.
//!
//! A seed determines a run completely: the calls, disconnects, disk faults and power losses. So a run can be repeated. A ledger
//! of all calls and replies judges the run. The ledger contains the promises of the service, and no implementation.
//!
//! Another node may take the queues from a node that does not know it and goes on.
//!
//! Readers and followers of the queues go on over all faults. They are judged by the durable events.
//!
//! `DELTAQ_SIMULATION_SEEDS` sets the number of runs. `DELTAQ_SIMULATION_SEED` runs one seed and prints its trace.
//! `DELTAQ_SIMULATION_REPEATS` sets the number of seeds that run twice.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

mod caller;
mod calls;
mod crashes;
mod disk;
mod finale;
mod followers;
mod ledger;
mod lives;
mod owners;
mod parts;
mod pinned;
mod plan;
mod readers;
mod run;
mod world;

/// A broken promise, in words.
pub(crate) type Violation = String;

/// Seeds that run unless the environment sets another number.
const SEEDS: u64 = 1_000;
/// The situations of readers and followers that so many seeds must contain.
const REQUIRED_OF: u64 = 300;
const REQUIRED: &[&str] = &[
    "a follower delivered",
    "a follower of events lacked lost events",
    "a follower took an event",
    "a follower has all objects",
    "a follower took a change",
    "a follower was attached or detached",
    "a reader caught up",
    "a reader connected after a restart",
    "a reader got a part",
    "a reader has a list",
    "a reader has the whole view",
    "a reader lost its position",
    "another node took the queues",
    "the former owner noticed it by itself",
];
/// Seeds that run twice unless the environment sets another number.
const REPEATS: u64 = 20;
/// Number of concurrent runs.
const THREADS: u64 = 2;
/// Far longer than a run takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// The result of a successful run.
#[derive(Debug)]
pub(crate) struct Report {
    hash: u64,
    hits: Hits,
}

#[expect(clippy::disallowed_methods, reason = "the knobs of a test are no settings of the service")]
fn knob(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs a seed. A panic is a failure.
fn caught(seed: u64, prints: bool) -> Result<Report, Violation> {
    catch_unwind(AssertUnwindSafe(|| run::run(seed, prints))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
    })
}

fn again(seed: u64) -> String {
    format!(
        "DELTAQ_SIMULATION_SEED={seed} cargo test -p deltaq --test it chaos::simulation::seeds -- --nocapture"
    )
}

/// Sums up the situations of runs.
type Hits = BTreeMap<&'static str, u64>;

/// Runs the seeds from 0 on. Returns how often each situation occurred.
fn run_all(seeds: u64) -> Hits {
    let next = AtomicU64::new(0);
    let (sender, reports) = sync_channel(1_000);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || sender.send((seed, caught(seed, false))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut hits = Hits::new();
        let mut open: BTreeSet<u64> = (0..seeds).collect();
        loop {
            let (seed, outcome) = match reports.recv_timeout(PATIENCE) {
                Ok(report) => report,
                Err(RecvTimeoutError::Disconnected) => return hits,
                Err(RecvTimeoutError::Timeout) => hangs(open.first().copied().unwrap_or_default()),
            };
            open.remove(&seed);
            match outcome {
                Ok(report) => {
                    report.hits.into_iter().for_each(|(what, count)| *hits.entry(what).or_default() += count);
                }
                Err(violation) => {
                    next.store(seeds, Ordering::Relaxed);
                    drop(reports);
                    panic!("seed {seed}: {violation}\n\nwith its trace: {}", again(seed));
                }
            }
        }
    })
}

/// Ends the process if a run takes too long. A busy loop lets no simulated time pass, so the run can't end itself.
fn hangs(seed: u64) -> ! {
    eprintln!("seed {seed} has no end\n\nwith its trace: {}", again(seed));
    std::process::exit(1)
}

#[test]
fn seeds() {
    if let Some(seed) = knob("DELTAQ_SIMULATION_SEED") {
        let outcome = caught(seed, true);
        println!("{outcome:?}");
        assert!(outcome.is_ok(), "seed {seed} fails");
        return;
    }
    let seeds = knob("DELTAQ_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let hits = run_all(seeds);
    for (what, count) in &hits {
        println!("{count:>9}  {what}");
    }
    let missed: Vec<_> = REQUIRED.iter().filter(|what| !hits.contains_key(**what)).collect();
    assert!(missed.is_empty() || seeds < REQUIRED_OF, "no seed has {missed:?}");
}

#[test]
fn a_seed_runs_the_same_again() {
    for seed in 0..knob("DELTAQ_SIMULATION_REPEATS").unwrap_or(REPEATS) {
        let hash = || caught(seed, false).expect("it goes well").hash;
        assert_eq!(hash(), hash(), "seed {seed}");
    }
}
