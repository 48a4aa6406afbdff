//! Runs random commands on the engine and on the naive model. After every command, results and state agree, all invariants hold, and
//! the events alone rebuild the same state.
//!
//! `DELTAQ_PROPERTY_SEED` selects other cases, `DELTAQ_PROPERTY_COMMANDS` sets their number. A failing case is shrunk and printed as the
//! text of a test that pins it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use deltaq_types::Mode;
use fastrand::Rng;

mod births;
pub(crate) mod checkpoints;
mod indexes;
mod pinned;
mod readers;
mod recovery;
mod same;
mod script;
mod world;

use script::{Generator, Setup, Step};
use world::{Difference, World};

const SEED: u64 = 20_261_122;
const COMMANDS: u64 = 500_000;
const STEPS_PER_CASE: usize = 250;
/// Each mode gets its share of the commands.
const MODES: u64 = 4;

type Hits = BTreeMap<&'static str, u64>;

/// Runs a case. Returns the failed step, and the difference.
fn run(setup: Setup, steps: &[Step], hits: &mut Hits) -> Result<(), (usize, String)> {
    let mut world = World::new(setup);
    for (index, step) in steps.iter().enumerate() {
        *hits.entry(step.command.name()).or_default() += 1;
        caught(|| world.step(step)).map_err(|difference| (index, difference))?;
    }
    let beside = world.readers.hits.into_iter().chain(world.indexes.hits);
    for (rule, count) in world.model.hits.into_iter().chain(beside) {
        *hits.entry(rule).or_default() += count;
    }
    Ok(())
}

/// The result of a step. A panic counts as a difference.
fn caught(step: impl FnOnce() -> Result<(), Difference>) -> Result<(), Difference> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
    })
}

/// Removes the steps that the failure does not need.
fn shrink<T: Clone>(steps: &[T], fails: impl Fn(&[T]) -> Option<(usize, Difference)>) -> (Vec<T>, String) {
    let mut steps = steps.to_vec();
    let mut failure = String::from("the failure does not repeat");
    let mut chunk = steps.len();
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            if let Some((index, difference)) = fails(&fewer) {
                fewer.truncate(index + 1);
                (steps, failure) = (fewer, difference);
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    if let Some((_, difference)) = fails(&steps) {
        failure = difference;
    }
    (steps, failure)
}

/// A case as the body of a test.
fn as_test(setup: Setup, steps: &[Step]) -> String {
    let lines: Vec<String> =
        steps.iter().map(|step| format!("    {step:?},").replace('[', "vec![")).collect();
    format!("let setup = {setup:?};\nlet steps = vec![\n{}\n];\npin(setup, &steps);", lines.join("\n"))
}

fn check(mode: Mode, seed: u64, commands: u64) -> Hits {
    let mut hits = Hits::new();
    let mut seeds = Rng::with_seed(seed ^ mode as u64);
    let mut done = 0;
    while done < commands {
        let case = seeds.u64(..);
        let mut rng = Rng::with_seed(case);
        let setup = Setup::random(&mut rng, mode);
        let mut generator = Generator::new(rng, mode);
        let steps: Vec<Step> = (0..STEPS_PER_CASE).map(|_| generator.step()).collect();
        if let Err((index, difference)) = run(setup, &steps, &mut hits) {
            let fails = |steps: &[Step]| run(setup, steps, &mut Hits::new()).err();
            let (steps, shrunk) = shrink(&steps[..=index], fails);
            panic!(
                "seed {seed}, case {case}, step {index}: {difference}\n\nshrunk: {shrunk}\n\n{}",
                as_test(setup, &steps)
            );
        }
        done += steps.len() as u64;
    }
    hits
}

#[expect(clippy::disallowed_methods, reason = "the variables of a test are not settings of the service")]
pub(crate) fn knob(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn check_mode(mode: Mode, rules: &[&str]) {
    let seed = knob("DELTAQ_PROPERTY_SEED", SEED);
    let commands = knob("DELTAQ_PROPERTY_COMMANDS", COMMANDS);
    let hits = check(mode, seed, commands / MODES + 1);
    for (rule, count) in &hits {
        println!("{count:>9}  {rule}");
    }
    // A short run may miss some rules.
    let missed: Vec<&&str> = rules.iter().filter(|rule| !hits.contains_key(**rule)).collect();
    assert!(missed.is_empty() || commands < COMMANDS, "never hit in mode {mode:?}: {missed:?}");
}

/// Rules of debounced changes, which all modes except events have.
const DEBOUNCE: &[&str] = &[
    "a window ends",
    "a window and a backoff end",
    "a closed queue ends a window",
    "failure with a debounced change: waits",
    "failure with a debounced change: to the tail",
    "release with a debounced change: waits",
    "reject with a debounced change",
];

/// Rules of debounced changes in the modes with objects.
const DEBOUNCED_OBJECTS: &[&str] = &[
    "a debounced change during a lease",
    "a debounced change of a parked key",
    "a debounced change of a key in backoff",
    "a debounced change prolongs a window",
    "a debounced change opens a window",
    "a Delete that is not debounced ends a window",
];

/// Rules that the random commands must reach in every mode. A rule that is never reached is not tested.
const RULES: &[&str] = &[
    "a delay elapses",
    "a delay of a ready key elapses",
    "a delay elapses during a lease",
    "a lease expires",
    "a restart renews a lease",
    "an undelivered lease is returned",
    "an undelivered lease stays with its worker",
    "a pop is repeated by its id",
    "a pop of a closed and drained queue",
    "a pop of a paused queue",
    "a settle is repeated",
    "a settle of a stale lease",
    "ack with a new change: to the tail",
    "ack without newer deltas",
    "an extension",
    "crash",
    "discard",
    "too many failures with a delayed new change: delayed",
    "too many failures: parked",
    "failure with a delayed new change: the earlier of both",
    "failure with a new change: to the tail",
    "failure without a wait: to the tail",
    "failure: backoff or delay",
    "failure with a floor and a new change: waits",
    "redrive before the floor",
    "a forget resets failures",
    "max_keys refuses",
    "promote",
    "purge of a leased key",
    "purge drops a key",
    "redrive",
    "reject with a new change: to the tail",
    "reject with a delayed new change: delayed",
    "release",
    "the rate limiters are used",
    "the resync timer fires",
    "a head start improves",
    "a head start does not improve",
    "max_leased of a group ends a pop",
    "a pop of one group",
    "the rate of a group stops it",
    "keys move to other groups after a change of the setting",
    "a hold of a group",
    "a hold of a key",
    "a pause of a group",
    "a resume of a group",
    "a pop of several keys of groups",
    "a repeated call",
    "a reader has everything",
    "max_leased ends a pop",
    "the rate ends a pop",
    "a hold of a queue",
    "a hold of no length",
    "a hold prolongs another one",
    "a hold that ends before another one",
    "a hold ends a pop",
    "a resume ends a hold",
    "a change of the rate of a queue with a debt",
];

/// Rules that the random commands must reach in the modes with objects.
const OBJECT_RULES: &[&str] = &[
    "Delete of a key whose leased deltas end with Deleted",
    "Delete of an absent key",
    "Replace deletes a key",
    "Replace deletes a leased key",
    "Replace ignores a deleted key",
    "Replace skips an unchanged object",
    "Replace of a leased key",
    "Replace skips a key with a newer call",
    "Replace takes over a key",
    "Resync delivers a key",
    "Resync skips a busy key",
    "a Replace fits after an exact count of its keys",
    "a call takes over a key",
    "a dry run",
    "a dry run is refused",
    "a later Replace is aborted",
    "a skipped key is taken over",
    "ack completes a key of the initial list",
    "ack leaves a key of the initial list pending",
    "ack with a delayed new change",
    "an ignored Delete populates the queue",
    "an unchanged key is taken over",
    "delayed new change during a lease",
    "delayed new change for a delayed key",
    "delayed new change for a key in backoff",
    "delayed new change for a parked key",
    "a floor holds back a change",
    "a ready key rises to another class",
    "delayed new change for a ready key",
    "too many failures: parked, leaves the initial list",
    "delivery drops a delay",
    "max_bytes ends a pop",
    "max_keys refuses a Replace",
    "deltas return before newer ones",
    "new change during a lease",
    "new change for a delayed key",
    "new change for a key in backoff",
    "new change for a parked key",
    "dedup keeps the newer deletion",
    "dedup keeps the older deletion",
    "purge drops a pending key of the initial list",
    "purge keeps a later change",
    "reserved capacity refuses",
    "seed",
    "seed is refused",
    "the first Replace is aborted",
    "the first Replace starts",
    "a deletion limit refuses",
    "the first Replace adds a pending key",
    "a Replace with a sequence number ends",
    "a Replace with a sequence number has not ended",
    "a call that changes nothing has a sequence number",
    "a repeated Replace",
    "an update of ignored members",
    "Replace skips an ignored change",
    "a key with an ignored change is taken over",
    "a part of the indexes is built",
    "indexes are dropped",
    "a query of an index that is built",
    "a value has keys",
    "indexes are built",
    "a backfill exceeds the limits",
    "a backfill reaches a reader",
    "a feed is dropped",
    "a ready key moves to another group",
    "a stale call",
    "a stale call of an absent key",
    "a stale listed object",
    "a listed object with the version of another content",
    "a version is remembered",
    "a key with the listed version is taken over",
    "a reader catches up",
    "a reader lists again",
    "a reader reads a part",
    "a reader is spared a deletion",
    "a page ends during an absence",
    "a reader loses a key",
    "a deletion of a key that the reader may have",
];

#[test]
fn engine_and_model_agree_in_mode_delta() {
    let own = ["the cap merges", "the cap merges returned deltas"];
    check_mode(Mode::Delta, &[RULES, OBJECT_RULES, DEBOUNCE, DEBOUNCED_OBJECTS, &own].concat());
}

#[test]
fn engine_and_model_agree_in_mode_latest() {
    let own = [
        "mode latest delivers the Delete of an absent key",
        "mode latest drops an unseen key",
        "Replace drops an unseen key",
        "adjacent deletions after a return",
    ];
    check_mode(Mode::Latest, &[RULES, OBJECT_RULES, DEBOUNCE, DEBOUNCED_OBJECTS, &own].concat());
}

#[test]
fn engine_and_model_agree_in_mode_keys() {
    let own = [
        "Add",
        "Add during a lease: dirty",
        "Add of a dirty key",
        "Add of a parked key",
        "AddAfter",
        "AddAfter of a ready key",
        "AddAfter during a lease",
        "AddRateLimited",
        "a closed queue counts an ignored AddRateLimited",
        "a closed queue of mode keys ignores an add",
        "failures expire after a day",
        "promote of a delay of a ready or leased key",
    ];
    check_mode(
        Mode::Keys,
        &[RULES, DEBOUNCE, &["a debounced Add", "a window ends before a delay"], &own].concat(),
    );
}

#[test]
fn engine_and_model_agree_in_mode_events() {
    let own = [
        "a bound of a key refuses",
        "a bound of a key refuses a Replace",
        "a deletion has no object",
        "the next delta is due",
        "the next delta is not due",
        "reject with a newer event: parked",
    ];
    let other = [
        "a ready key rises to another class",
        "Delete of a key whose leased deltas end with Deleted",
        "Delete of an absent key",
        "a delay elapses during a lease",
        "a delay of a ready key elapses",
        "an ignored Delete populates the queue",
        "dedup keeps the newer deletion",
        "dedup keeps the older deletion",
        "delivery drops a delay",
        "failure with a delayed new change: the earlier of both",
        "failure with a floor and a new change: waits",
        "failure with a new change: to the tail",
        "reject with a delayed new change: delayed",
        "reject with a new change: to the tail",
        "too many failures with a delayed new change: delayed",
    ];
    let shared = [RULES, OBJECT_RULES].concat().into_iter().filter(|rule| !other.contains(rule));
    check_mode(Mode::Events, &shared.chain(own).collect::<Vec<_>>());
}
