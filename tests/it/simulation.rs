//! The whole service but its protocol, under simulated time, on a disk that fails and loses power: by
//! seeds, and by a script that crashes at every step.
//!
//! A seed is a run: what callers do, and leave undone, what the disk does and when the power goes, all
//! comes from it, so that it runs the same again. A ledger of what was sent and answered judges it;
//! it knows what was promised and nothing of how that is done.
//!
//! `DELTAQ_SIMULATION_SEEDS` is how many run, `DELTAQ_SIMULATION_SEED` runs one with its trace.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

mod caller;
mod calls;
mod crashes;
mod disk;
mod finale;
mod ledger;
mod plan;
mod run;
mod world;

/// What is not as it was promised.
pub(crate) type Violation = String;

/// Seeds that run unless told otherwise.
const SEEDS: u64 = 10_000;
/// Runs at the same time.
const THREADS: u64 = 2;

/// What a run that went well tells.
#[derive(Debug)]
pub(crate) struct Report {
    hash: u64,
    hits: BTreeMap<&'static str, u64>,
}

#[expect(clippy::disallowed_methods, reason = "the knobs of a test are no settings of the service")]
fn knob(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A run; a panic is one more way to fail.
fn caught(seed: u64, prints: bool) -> Result<Report, Violation> {
    catch_unwind(AssertUnwindSafe(|| run::run(seed, prints))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
    })
}

fn again(seed: u64) -> String {
    format!("DELTAQ_SIMULATION_SEED={seed} cargo test --test it simulation::seeds -- --nocapture")
}

/// Runs the seeds from 0 on; answers what they came across.
fn run_all(seeds: u64) -> BTreeMap<&'static str, u64> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut hits: BTreeMap<&'static str, u64> = BTreeMap::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return hits;
            }
            match caught(seed, false) {
                Ok(report) => {
                    report.hits.into_iter().for_each(|(what, count)| *hits.entry(what).or_default() += count);
                }
                Err(violation) => {
                    next.store(seeds, Ordering::Relaxed);
                    panic!("seed {seed}: {violation}\n\nwith its trace: {}", again(seed));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
        for thread in threads {
            let hits = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            for (what, count) in hits {
                *all.entry(what).or_default() += count;
            }
        }
        all
    })
}

#[test]
fn seeds() {
    if let Some(seed) = knob("DELTAQ_SIMULATION_SEED") {
        let told = caught(seed, true);
        println!("{told:?}");
        assert!(told.is_ok(), "seed {seed} fails");
        return;
    }
    let hits = run_all(knob("DELTAQ_SIMULATION_SEEDS").unwrap_or(SEEDS));
    for (what, count) in &hits {
        println!("{count:>9}  {what}");
    }
}

#[test]
fn a_seed_runs_the_same_again() {
    for seed in 0..20 {
        let hash = || caught(seed, false).expect("it goes well").hash;
        assert_eq!(hash(), hash(), "seed {seed}");
    }
}
