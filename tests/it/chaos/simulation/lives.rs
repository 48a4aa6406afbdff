//! Random histories of starts, ends, copies and restores, with a clock that is wrong now and then: nothing of a lost time is accepted or
//! given out again, and nothing of a kept one is refused.
//!
//! A history calls the API of a node in this process whose store is in memory, of processes on folders, or of processes on a database whose
//! primary is lost while its standby lags. The judge knows which replies are of the present timeline and which are of a
//! lost one, and the floor of the calendar of decision 0014; it knows nothing of lives.
//!
//! `DELTAQ_LIVES_SEEDS` sets the number of histories in this process, `DELTAQ_LIVES_ROUNDS` that of each kind of processes. `DELTAQ_LIVES_SEED`
//! runs one of each and prints it.

mod history;
mod judge;
mod machine;
mod node;
mod servers;

use std::panic::{catch_unwind, resume_unwind};

use self::history::{History, Hits};
use super::knob;

/// Histories that run unless the environment sets another number.
const SEEDS: u64 = 25;
/// The same of processes.
const ROUNDS: u64 = 2;
/// What so many histories must contain.
const REQUIRED: &[&str] = &[
    "a kept cursor",
    "a kept entity tag",
    "a kept event id",
    "a kept lease",
    "a kept version",
    "a lost cursor",
    "a lost entity tag",
    "a lost event id",
    "a lost lease",
    "a lost version",
    "a start from a copy",
    "a start from the same copy again",
    "a start with a clock that is behind",
    "a start without a journal",
    "the queue was deleted and created again",
];

/// Runs the histories from 0 on, or the one of the environment.
fn run_all(histories: u64, run: fn(u64, bool) -> Hits) -> Hits {
    if let Some(seed) = knob("DELTAQ_LIVES_SEED") {
        return run(seed, true);
    }
    let mut hits = Hits::new();
    for seed in 0..histories {
        let run = || run(seed, false);
        let found = catch_unwind(run).unwrap_or_else(|panic| {
            println!("DELTAQ_LIVES_SEED={seed} runs this history alone and prints it");
            resume_unwind(panic)
        });
        for (what, count) in found {
            *hits.entry(what).or_default() += count;
        }
    }
    for (what, count) in &hits {
        println!("{count:>9}  {what}");
    }
    hits
}

#[test]
fn histories() {
    let seeds = knob("DELTAQ_LIVES_SEEDS").unwrap_or(SEEDS);
    let hits = run_all(seeds, History::run);
    let missed: Vec<_> = REQUIRED.iter().filter(|what| !hits.contains_key(**what)).collect();
    assert!(missed.is_empty() || seeds < SEEDS || hits.is_empty(), "no history has {missed:?}");
}

#[test]
fn histories_of_processes() {
    run_all(knob("DELTAQ_LIVES_ROUNDS").unwrap_or(ROUNDS), History::of_processes);
}

#[test]
fn histories_of_databases() {
    let rounds = knob("DELTAQ_LIVES_ROUNDS").unwrap_or(ROUNDS);
    let hits = run_all(rounds, History::of_databases);
    let failovers = hits.get("a failover to a standby that lagged").copied().unwrap_or_default();
    assert!(failovers > 0 || rounds < ROUNDS || hits.is_empty(), "no database was lost");
}
