//! Random commands on the engine and on the naive model: the same answers, the same state after
//! every one, no invariant broken, and the same state again from the events alone.
//!
//! `DELTAQ_PROPERTY_SEED` runs other cases, `DELTAQ_PROPERTY_COMMANDS` more or fewer of them. A failing
//! case is shrunk and printed as the text of a test to pin it with.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use deltaq::engine::config::Mode;
use fastrand::Rng;

mod pinned;
mod script;
mod world;

use script::{Author, Setup, Step};
use world::World;

const SEED: u64 = 20_261_121;
const COMMANDS: u64 = 1_000_000;
const STEPS_PER_CASE: usize = 250;
const MODES: [Mode; 3] = [Mode::Delta, Mode::Latest, Mode::Keys];

type Hits = BTreeMap<&'static str, u64>;

/// Runs a case; answers the step that failed, and how.
fn run(setup: Setup, steps: &[Step], hits: &mut Hits) -> Result<(), (usize, String)> {
    let mut world = World::new(setup);
    for (index, step) in steps.iter().enumerate() {
        *hits.entry(step.command.name()).or_default() += 1;
        let outcome = catch_unwind(AssertUnwindSafe(|| world.step(step)));
        let outcome = outcome.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
        });
        outcome.map_err(|difference| (index, difference))?;
    }
    for (rule, count) in world.model.hits {
        *hits.entry(rule).or_default() += count;
    }
    Ok(())
}

/// Leaves out what is not needed for the case to fail.
fn shrink(setup: Setup, steps: &[Step]) -> (Vec<Step>, String) {
    let fails = |steps: &[Step]| run(setup, steps, &mut Hits::new()).err();
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
            let (steps, shrunk) = shrink(setup, &steps[..=index]);
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
    let hits = check(mode, seed, commands / 3 + 1);
    for (rule, count) in &hits {
        println!("{count:>9}  {rule}");
    }
    let missed: Vec<&&str> = rules.iter().filter(|rule| !hits.contains_key(**rule)).collect();
    assert!(missed.is_empty() || commands < COMMANDS, "never hit in mode {mode:?}: {missed:?}");
}

#[test]
fn engine_and_model_agree_in_mode_delta() {
    check_mode(MODES[0], &[]);
}

#[test]
fn engine_and_model_agree_in_mode_latest() {
    check_mode(MODES[1], &[]);
}

#[test]
fn engine_and_model_agree_in_mode_keys() {
    check_mode(MODES[2], &[]);
}
