//! `kill -9` at random moments under load: whatever was answered is there after the restart.
//!
//! Producers and workers talk HTTP to the real binary and write down what they send and get. The binary
//! is killed, started again on the same folder, looked at, and a judge that reads nothing but the
//! history decides whether it is possible. That the judge goes red is tested, too: on histories made by
//! hand that hold one fault each, on a server that keeps nothing, and behind a proxy that answers for
//! the service before anything is committed.
//!
//! `CRASH_CYCLES` says how often the server is killed (20; a long run is 200), `CRASH_SEED` which
//! random choices are made. The choices are the same for a seed; what threads make of them is not.
//!
//!     CRASH_CYCLES=200 cargo test --test it crash::kill_nine_cycles -- --nocapture

mod alarm;
mod client;
mod counters;
mod cycles;
mod faulty_proxy;
mod history;
mod judge;
mod load;
mod look;
mod producer;
mod queues;
mod reading;
pub(crate) mod server;
pub(crate) mod wire;
mod worker;

use self::cycles::{Plan, Report, run};
use self::faulty_proxy::ProxyFault;
use self::judge::Rule;
use self::server::Store;

/// How often the server is killed, unless the environment says otherwise.
const CYCLES: usize = 20;

/// What a run of that length must have seen, to have said something.
const WITNESSED: &[&str] = &[
    "calls without answer",
    "Replaces",
    "Resyncs",
    "deletions",
    "acks",
    "nacks",
    "releases",
    "rejects",
    "extensions",
    "leases of keys that came back",
    "settles that were repeated",
];

/// A number that the environment sets.
#[expect(clippy::disallowed_methods, reason = "a switch of this test, no setting of the service")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn seed() -> u64 {
    let seed = number("CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("CRASH_SEED={seed}");
    seed
}

#[track_caller]
fn is_clean(report: &Report) {
    println!("{}", report.summary());
    assert!(report.faults.is_empty(), "{}\n{}", report.summary(), report.last_words);
}

#[test]
fn kill_nine_cycles() {
    let cycles = number("CRASH_CYCLES").map_or(CYCLES, |cycles| cycles.try_into().expect("a count"));
    let store = Store::folder("cycles");
    let report = run(&Plan { seed: seed(), cycles, store, kills: true, lie: None });
    is_clean(&report);
    for happened in WITNESSED.iter().filter(|_| cycles >= CYCLES) {
        assert!(report.counters.of(happened) > 0, "no {happened}: {}", report.summary());
    }
}

#[test]
fn nobody_is_killed_and_all_is_well() {
    let store = Store::Memory;
    is_clean(&run(&Plan { seed: seed(), cycles: 6, store, kills: false, lie: None }));
}

#[test]
fn a_server_that_keeps_nothing_goes_red() {
    let report = run(&Plan { seed: seed(), cycles: 1, store: Store::Memory, kills: true, lie: None });
    assert!(report.has(Rule::LostWrite), "{}", report.summary());
    assert!(report.has(Rule::Inconsistent), "{}", report.summary());
}

#[test]
fn adds_that_are_answered_and_never_done_go_red() {
    let lie = Some(ProxyFault::Adds);
    let report = run(&Plan { seed: seed(), cycles: 6, store: Store::Memory, kills: false, lie });
    assert!(report.has(Rule::LostWrite), "{}", report.summary());
}

#[test]
fn acks_that_are_answered_and_never_done_go_red() {
    let lie = Some(ProxyFault::Acks);
    let report = run(&Plan { seed: seed(), cycles: 6, store: Store::Memory, kills: false, lie });
    assert!(report.has(Rule::LostAck), "{}", report.summary());
}

#[test]
fn adds_that_are_answered_before_their_commit_go_red() {
    let store = Store::folder("adds");
    let report = run(&Plan { seed: seed(), cycles: 10, store, kills: true, lie: Some(ProxyFault::Adds) });
    assert!(report.has(Rule::LostWrite), "{}", report.summary());
}

#[test]
fn acks_that_are_answered_before_their_commit_go_red() {
    let store = Store::folder("acks");
    let report = run(&Plan { seed: seed(), cycles: 10, store, kills: true, lie: Some(ProxyFault::Acks) });
    assert!(report.has(Rule::LostAck), "{}", report.summary());
}
