//! Random commands run on the engine and on the naive model: both give the same results and the same state after every command, no
//! invariant is violated, and the events alone give the same state again.
//!
//! `DELTAQ_PROPERTY_SEED` runs other cases, `DELTAQ_PROPERTY_COMMANDS` sets their number. A failing case is shrunk and printed as the
//! text of a test that pins it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use deltaq::engine::config::Mode;
use fastrand::Rng;

mod pinned;
mod recovery;
mod same;
mod script;
pub(crate) mod store;
mod world;

use script::{Author, Setup, Step};
use world::{Difference, World};

const SEED: u64 = 20_261_121;
const COMMANDS: u64 = 3_000_000;
const STEPS_PER_CASE: usize = 250;
/// Each mode gets its share of the commands.
const MODES: u64 = 3;

type Hits = BTreeMap<&'static str, u64>;

/// Runs a case. Returns the failed step, and the difference.
fn run(setup: Setup, steps: &[Step], hits: &mut Hits) -> Result<(), (usize, String)> {
    let mut world = World::new(setup);
    for (index, step) in steps.iter().enumerate() {
        *hits.entry(step.command.name()).or_default() += 1;
        caught(|| world.step(step)).map_err(|difference| (index, difference))?;
    }
    for (rule, count) in world.model.hits {
        *hits.entry(rule).or_default() += count;
    }
    Ok(())
}

/// The result of a step; a panic is a difference, too.
fn caught(step: impl FnOnce() -> Result<(), Difference>) -> Result<(), Difference> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
    })
}

/// Removes the steps that the failure does not need.
fn shrink<T: Clone>(steps: &[T], fails: impl Fn(&[T]) -> Option<(usize, Difference)>) -> (Vec<T>, String) {
    let mut steps = steps.to_vec();
    let mut failure = String::from("it does not fail again");
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
        let mut author = Author::new(rng, mode);
        let steps: Vec<Step> = (0..STEPS_PER_CASE).map(|_| author.step()).collect();
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

#[expect(clippy::disallowed_methods, reason = "the knobs of a test are no settings of the service")]
fn knob(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn check_mode(mode: Mode, rules: &[&str]) {
    let seed = knob("DELTAQ_PROPERTY_SEED", SEED);
    let commands = knob("DELTAQ_PROPERTY_COMMANDS", COMMANDS);
    let hits = check(mode, seed, commands / MODES + 1);
    for (rule, count) in &hits {
        println!("{count:>9}  {rule}");
    }
    // A short run need not come across everything.
    let missed: Vec<&&str> = rules.iter().filter(|rule| !hits.contains_key(**rule)).collect();
    assert!(missed.is_empty() || commands < COMMANDS, "never hit in mode {mode:?}: {missed:?}");
}

/// What the random commands must reach, or the properties would say nothing about it.
const RULES: &[&str] = &[
    "a delay fires",
    "a delay fires beside ready",
    "a delay fires during a lease",
    "a lease expires",
    "a lease gets its length again",
    "a lease is given back",
    "a pop is repeated by its id",
    "a pop of a closed and drained queue",
    "a pop of a paused queue",
    "a settle is repeated",
    "a settle of a stale lease",
    "ack with a new change: to the tail",
    "ack with nothing newer",
    "an extension",
    "crash",
    "discard",
    "failed too often with delayed new change: delayed",
    "failed too often: parked",
    "failed with delayed new change: the earlier of both",
    "failed with a new change: to the tail",
    "failed with no delay: to the tail",
    "failed: waits for the rate limiter or the delay",
    "failures are forgotten by hand",
    "max_keys refuses",
    "purge behind a lease",
    "purge drops a key",
    "redrive",
    "reject with a new change",
    "release",
    "the rate limiters are asked",
    "the resync timer fires",
];

/// The same for the modes with objects.
const OBJECT_RULES: &[&str] = &[
    "Delete of a key whose lease deletes it",
    "Delete of an absent key",
    "Replace deletes a key",
    "Replace deletes a leased key",
    "Replace leaves a key that is deleted already",
    "Replace leaves an unchanged object",
    "Replace of a leased key",
    "Replace skips a key that was called",
    "Replace takes a key over",
    "Resync delivers a key",
    "Resync passes a key that is busy",
    "a Replace fits in exactly counted room",
    "a call takes a key over",
    "a dry run",
    "a dry run is refused",
    "a later Replace is aborted",
    "a skipped key is taken over",
    "ack ends the mark",
    "ack leaves the mark of a newer delta",
    "ack with delayed new change",
    "an ignored Delete populates",
    "an unchanged key is taken over",
    "delayed new change behind a lease",
    "delayed new change for a delayed key",
    "delayed new change for a key in backoff",
    "delayed new change for a parked key",
    "delayed new change for a ready key",
    "failed too often: parked, without its mark",
    "handing out drops a delay",
    "max_bytes ends a pop",
    "max_keys refuses a Replace",
    "newer deltas at the seam",
    "new change behind a lease",
    "new change for a delayed key",
    "new change for a key in backoff",
    "new change for a parked key",
    "of two deletions the newer stays",
    "of two deletions the older stays",
    "purge drops a key with its mark",
    "purge leaves what came in while it runs",
    "reserved room refuses",
    "seed",
    "seed is refused",
    "the first Replace is aborted",
    "the first Replace starts",
    "the guard refuses",
    "the initial list marks a key",
];

#[test]
fn engine_and_model_agree_in_mode_delta() {
    let own = ["the cap merges", "the cap merges what comes back"];
    check_mode(Mode::Delta, &[RULES, OBJECT_RULES, &own].concat());
}

#[test]
fn engine_and_model_agree_in_mode_latest() {
    let own = ["mode latest drops an unseen key", "Replace drops an unseen key", "Deleted at the seam"];
    check_mode(Mode::Latest, &[RULES, OBJECT_RULES, &own].concat());
}

#[test]
fn engine_and_model_agree_in_mode_keys() {
    let own = [
        "Add",
        "Add during a lease: dirty",
        "Add of a dirty key",
        "Add of a parked key",
        "AddAfter",
        "AddAfter beside ready",
        "AddAfter during a lease",
        "AddRateLimited",
        "a closed queue counts an ignored AddRateLimited",
        "a closed queue of mode keys ignores an add",
        "failures are forgotten after a day",
    ];
    check_mode(Mode::Keys, &[RULES, &own].concat());
}
