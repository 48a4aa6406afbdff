//! Shrunk cases that failed in the past, each with its cause.

use std::collections::BTreeSet;

use deltaq_engine::command::DefaultLimit;
use deltaq_engine::delta::DeltaKind::{Added, Deleted, Updated};
use deltaq_types::Mode;

use super::script::{Act, Change, Command, LeaseRef, MAX, Setup, Step};
use super::{Hits, run};
use crate::model::{Content, ModelCall, ModelReplace, Name};

/// Settings without tight limits.
const PLAIN: Setup = Setup {
    mode: Mode::Delta,
    auto_created: false,
    known_objects: true,
    emit_replaced: true,
    lease: 1_000,
    max_failures: 0,
    limiter: 1,
    debounce: None,
    order: 0,
    limits: 0,
    groups: 0,
    resync_period: None,
    max_keys: 1_000,
    max_object_bytes: 1_000,
    max_deltas_per_key: 4,
    max_bytes_per_key: 10_000,
    max_delete_percent: None,
    max_deletes: None,
    indexes: 0,
    version: false,
    ties: false,
    kubernetes: 0,
    ignores_v: false,
};

/// Runs a pinned case.
fn pin(setup: Setup, steps: &[Step]) {
    if let Err((index, difference)) = run(setup, steps, &mut Hits::new()) {
        panic!("step {index}: {difference}");
    }
}

fn step(clock: i64, command: Command) -> Step {
    Step { clock, command, commit: true }
}

fn call(key: Name, content: Option<Content>) -> ModelCall {
    let (source, delay) = (None, None);
    let (final_state_unknown, rate_limited, trace) = (false, false, None);
    ModelCall {
        kind: Added,
        key,
        content,
        source,
        delay,
        debounce: None,
        head_start: None,
        final_state_unknown,
        rate_limited,
        trace,
    }
}

fn produce(calls: &[ModelCall]) -> Command {
    Command::Produce { calls: calls.to_vec(), sequence: None }
}

fn replace(items: Vec<(Name, Content)>) -> ModelReplace {
    ModelReplace {
        items,
        kept: BTreeSet::new(),
        keeps_all: false,
        source: None,
        sequence: None,
        only_changed: true,
        max_delete_percent: None,
        max_deletes: None,
        default_limit: DefaultLimit::None,
        dry_run: false,
        trace: None,
    }
}

fn pop() -> Command {
    Command::Pop {
        max: 1,
        max_bytes: MAX,
        with_known: false,
        lease: None,
        worker: None,
        id: None,
        group: None,
    }
}

/// Deadlines were computed with a clock that was behind the last event, so leases were too short.
#[test]
fn a_lease_has_its_full_length_although_the_clock_was_set_back() {
    pin(PLAIN, &[step(100, produce(&[call("a", Some(0))])), step(-90, pop()), step(999, Command::Wait)]);
}

/// An invariant said that no list is longer than the cap. The invariant, and with it the next start, failed after the cap of a
/// queue with long lists was lowered.
#[test]
fn a_cap_may_be_lowered_below_the_length_of_a_list() {
    let added = call("a", Some(0));
    let updated = ModelCall { kind: Updated, ..added.clone() };
    let steps = [
        step(0, produce(&[added, updated.clone(), updated.clone()])),
        step(0, Command::Configure(Change::MaxDeltas(2))),
        step(0, produce(&[updated])),
    ];
    pin(PLAIN, &steps);
}

/// A closed queue in mode keys refused adds at `max_keys`, although it ignores adds anyway.
#[test]
fn a_closed_queue_of_mode_keys_is_never_full() {
    let setup = Setup { mode: Mode::Keys, max_keys: 1, ..PLAIN };
    let steps = [
        step(0, produce(&[call("a", None)])),
        step(0, Command::Close { closed: true, at_once: false }),
        step(0, produce(&[call("b", None), call("c", None)])),
    ];
    pin(setup, &steps);
}

/// An aborted first Replace lost the pending deltas of the initial list. The repeated Replace with `only_changed` had no reason to
/// queue them again, so the queue counted as synced before anything was acknowledged.
#[test]
fn the_initial_list_stays_pending_after_an_aborted_first_replace() {
    let list = replace(vec![("a", 0)]);
    let replace_step = || step(0, Command::Step { job: 0, budget: 1 });
    let steps = [
        step(0, Command::Accept(list.clone())),
        replace_step(),
        replace_step(),
        replace_step(),
        step(0, Command::Crash { ahead: 0 }),
        step(0, Command::Accept(list)),
        replace_step(),
        replace_step(),
        replace_step(),
        replace_step(),
        replace_step(),
    ];
    pin(PLAIN, &steps);
}

/// Each period without a command caused a separate Resync: after a day, all of them ran at once.
#[test]
fn one_resync_replaces_all_missed_periods() {
    let setup = Setup { resync_period: Some(500), ..PLAIN };
    pin(setup, &[step(10_000, Command::Wait), step(499, Command::Wait), step(1, Command::Wait)]);
}

/// A Replace that does not fit as a whole reserved room only for the listed keys that the queue did not have. A listed key that left
/// the queue before its item was queued took the room of another one, and the queue exceeded `max_keys`.
#[test]
fn a_listed_key_that_leaves_during_a_replace_keeps_its_room() {
    let deleted = ModelCall { kind: Deleted, ..call("b", None) };
    let replace_step = |budget| step(0, Command::Step { job: 0, budget });
    let steps = [
        step(0, produce(&[call("b", Some(0)), deleted, call("a", Some(0))])),
        step(0, Command::Accept(replace(vec![("b", 1), ("c", 1)]))),
        replace_step(1_000),
        step(0, pop()),
        step(0, Command::Settle(vec![(LeaseRef::Live(0), Act::Ack)])),
        replace_step(1),
        replace_step(1),
        replace_step(1),
        step(0, produce(&[call("d", Some(0))])),
    ];
    pin(Setup { max_keys: 3, ..PLAIN }, &steps);
}
