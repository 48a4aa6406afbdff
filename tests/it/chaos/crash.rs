//! `kill -9` at random moments under load: every change with a reply is there after the restart.
//!
//! Producers and workers call the real binary over HTTP and record every request and reply. The binary is killed and started
//! again on the same folder, and all queues are read. A judge decides from the recorded history alone whether the service
//! could have behaved so. Other tests check that the judge finds faults: in handmade histories with one fault each, on a
//! server without a journal, and behind a proxy that replies before the service has committed.
//!
//! `CRASH_CYCLES` is the number of kills (5; a long run is 200), and `CRASH_SEED` the seed of the random choices. The
//! choices are the same for a seed; the scheduling of threads is not.
//!
//!     CRASH_CYCLES=200 cargo test -p deltaq --test it crash::kill_nine_cycles -- --nocapture
//!
//! With the store in PostgreSQL, the database is killed and cut off as well, and the server goes on.

mod alarm;
mod client;
mod counters;
mod cycles;
pub(crate) mod database;
mod faulty_proxy;
mod fenced_reads;
mod followers;
mod history;
mod judge;
mod late_writes;
mod limits;
pub(crate) mod links;
mod load;
mod nodes;
mod patroni;
mod producer;
mod queues;
mod reader;
mod reading;
mod retrying;
mod sequences;
mod silences;
mod snapshot;
mod versions;
mod wall_clock;
pub(crate) mod watchers;
mod windows;
mod worker;

use self::cycles::{Plan, Report, run};
use self::database::Database;
use self::faulty_proxy::ProxyFault;
use self::judge::Rule;
use crate::harness::server::Store;

/// Number of kills, unless the environment sets another.
const CYCLES: usize = 5;

/// Number of cycles with PostgreSQL, where each also needs a restart or an outage of the database.
const CYCLES_POSTGRES: usize = 5;

/// Number of rounds with three nodes: one with each failure.
const ROUNDS: usize = 8;

/// Number of failovers of the database.
const FAILOVERS: usize = 2;

/// Events that a long run must contain: without them it would prove little.
const REQUIRED: &[&str] = &[
    "calls without reply",
    "Replaces",
    "Resyncs",
    "deletions",
    "acks",
    "nacks",
    "releases",
    "rejects",
    "extensions",
    "redelivered keys",
    "repeated settles",
];

/// A number from an environment variable.
#[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the server")]
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

pub(crate) fn seed() -> u64 {
    let seed = number("CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("CRASH_SEED={seed}");
    seed
}

#[track_caller]
fn assert_clean(report: &Report) {
    println!("{}", report.summary());
    assert!(report.faults.is_empty(), "{}\n{}", report.summary(), report.last_words);
}

/// A run of at least this many cycles must contain all required events.
#[track_caller]
fn assert_has_required_events(report: &Report, cycles_min: usize) {
    for event in REQUIRED.iter().filter(|_| report.cycles >= cycles_min) {
        assert!(report.counters.of(event) > 0, "no {event}: {}", report.summary());
    }
}

#[test]
fn kill_nine_cycles() {
    let cycles = number("CRASH_CYCLES").map_or(CYCLES, |cycles| cycles.try_into().expect("a count"));
    let store = Store::folder("cycles");
    let report = run(&Plan { required: REQUIRED, ..Plan::new(seed(), cycles, store) });
    assert_clean(&report);
    assert_has_required_events(&report, CYCLES);
}

#[test]
fn kill_nine_cycles_of_server_and_postgres() {
    let cycles = number("CRASH_CYCLES").map_or(CYCLES_POSTGRES, |cycles| cycles.try_into().expect("a count"));
    let database = Database::durable();
    let store = Store::Url(database.url());
    let required = REQUIRED;
    let report = run(&Plan { database: Some(database), required, ..Plan::new(seed(), cycles, store) });
    assert_clean(&report);
    assert_has_required_events(&report, CYCLES);
}

#[test]
fn faults_of_three_nodes() {
    let rounds = number("CRASH_CYCLES").map_or(ROUNDS, |rounds| rounds.try_into().expect("a count"));
    let report = nodes::run(seed(), rounds);
    assert_clean(&report);
    assert_has_required_events(&report, ROUNDS);
}

#[test]
fn failovers_of_the_database_by_patroni() {
    let rounds = number("CRASH_CYCLES").map_or(FAILOVERS, |rounds| rounds.try_into().expect("a count"));
    let report = patroni::run(seed(), rounds);
    assert_clean(&report);
    assert_has_required_events(&report, ROUNDS);
}

#[test]
fn without_kills_there_is_no_fault() {
    let store = Store::Memory;
    assert_clean(&run(&Plan { kills: false, ..Plan::new(seed(), 6, store) }));
}

#[test]
fn a_server_without_a_journal_is_found() {
    let report = run(&Plan::new(seed(), 1, Store::Memory));
    assert!(report.has(Rule::LostWrite), "{}", report.summary());
    assert!(report.has(Rule::Inconsistent), "{}", report.summary());
}

#[test]
fn acknowledged_adds_that_are_never_done_are_found() {
    let fault = Some(ProxyFault::Adds);
    let report = run(&Plan { kills: false, fault, ..Plan::new(seed(), 6, Store::Memory) });
    assert!(report.has(Rule::LostWrite), "{}", report.summary());
}

#[test]
fn acknowledged_acks_that_are_never_done_are_found() {
    let fault = Some(ProxyFault::Acks);
    let report = run(&Plan { kills: false, fault, ..Plan::new(seed(), 6, Store::Memory) });
    assert!(report.has(Rule::LostAck), "{}", report.summary());
}

#[test]
fn adds_acknowledged_before_their_commit_are_found() {
    let store = Store::folder("adds");
    let report = run(&Plan { fault: Some(ProxyFault::Adds), ..Plan::new(seed(), 10, store) });
    assert!(report.has(Rule::LostWrite), "{}", report.summary());
}

#[test]
fn acks_acknowledged_before_their_commit_are_found() {
    let store = Store::folder("acks");
    let report = run(&Plan { fault: Some(ProxyFault::Acks), ..Plan::new(seed(), 10, store) });
    assert!(report.has(Rule::LostAck), "{}", report.summary());
}
