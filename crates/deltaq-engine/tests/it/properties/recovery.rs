//! Random commands with interleaved chunks of checkpoints, and crashes at any point. The rows and events that were written before the
//! crash restore the state of the queue, and the restored queue still agrees with the model.

use std::collections::VecDeque;

use deltaq_engine::id::Rv;
use deltaq_types::Mode;
use fastrand::Rng;

use super::checkpoints::Checkpoints;
use super::script::{Command, Generator, Setup, Step, ahead};
use super::world::{Difference, SavedState, World};
use super::{Hits, SEED, STEPS_PER_CASE, caught, knob, shrink};

const CASES: u64 = 300;
/// Maximum number of steps that a crash undoes.
const SAVED_STATES_MAX: usize = 6;

/// A move of a case. Each number is taken modulo the number of existing choices, so a move stays valid when others are removed.
#[derive(Clone, Debug)]
enum Move {
    /// A command.
    Command(Step),
    /// The next chunk of a checkpoint.
    Chunk { rows: usize, scanned: usize, pieces: usize },
    /// Restores the state that a crash at this point would leave, without this many of the last transactions and events.
    Probe { writes: usize, events: usize },
    /// A crash, which undoes the last transactions and steps.
    Crash { writes: usize, steps: usize, ahead: u64 },
}

/// The moves of a case.
fn moves(rng: &mut Rng, mode: Mode) -> Vec<Move> {
    let mut generator = Generator::new(Rng::with_seed(rng.u64(..)), mode);
    let (parts, crashes) = (rng.u32(2..30), rng.u32(1..6));
    let one = |_| match rng.u32(..100) {
        n if n < parts => {
            let many = rng.u8(..6) == 0;
            let upto = |most: usize| if many { usize::MAX } else { most };
            Move::Chunk {
                rows: upto(rng.usize(1..4)),
                scanned: upto(rng.usize(1..6)),
                pieces: rng.usize(1..4),
            }
        }
        n if n < parts + 6 => Move::Probe { writes: rng.usize(..8), events: rng.usize(..10) },
        n if n < parts + 6 + crashes => {
            let steps = if rng.bool() { 0 } else { rng.usize(..SAVED_STATES_MAX) };
            Move::Crash { writes: rng.usize(..5), steps, ahead: ahead(rng) }
        }
        _ => match generator.step() {
            // That command restores from the events alone, so it is replaced by a crash with checkpoints.
            Step { command: Command::Crash { ahead }, .. } => Move::Crash { writes: 0, steps: 0, ahead },
            step => Move::Command(step),
        },
    };
    (0..STEPS_PER_CASE).map(one).collect()
}

struct Case {
    world: World,
    checkpoints: Checkpoints,
    saved_states: VecDeque<SavedState>,
}

impl Case {
    fn new(setup: Setup) -> Self {
        let mut world = World::new(setup);
        let checkpoints = Checkpoints::new(&mut world.engine);
        let saved_states = VecDeque::from([world.save()]);
        Self { world, checkpoints, saved_states }
    }

    fn make(&mut self, next: &Move) -> Result<(), Difference> {
        match next {
            Move::Command(step) => {
                self.world.step(step)?;
                self.saved_states.truncate(SAVED_STATES_MAX);
                self.saved_states.push_front(self.world.save());
                Ok(())
            }
            Move::Chunk { rows, scanned, pieces } => {
                self.checkpoints.part(&mut self.world.engine, *rows, *scanned, *pieces);
                self.world.engine.check()
            }
            Move::Probe { writes, events } => {
                let writes = self.checkpoints.len() - writes % (self.checkpoints.len() + 1);
                let needs = self.checkpoints.needs(writes);
                let needed = self.world.events.iter().take_while(|event| event.rv <= needs).count();
                let all = self.world.events.len();
                let events = all - events % (all - needed + 1);
                self.rebuild(writes, events).map(drop)
            }
            Move::Crash { writes, steps, ahead } => self.crash(*writes, *steps, *ahead),
        }
    }

    fn crash(&mut self, writes: usize, steps: usize, ahead: u64) -> Result<(), Difference> {
        let back = steps % self.saved_states.len();
        let saved = self.saved_states.drain(..).nth(back).expect("at least one state is saved");
        let rv = self.world.events[..saved.events].last().map_or(Rv::ZERO, |event| event.rv);
        let written = self.checkpoints.written_by(rv);
        let writes = written - writes % (written + 1);
        let engine = self.rebuild(writes, saved.events)?;
        self.checkpoints.cut(writes);
        // Numbers of lost events may have been returned to clients.
        self.world.restore(saved, engine, ahead)?;
        self.saved_states.push_front(self.world.save());
        Ok(())
    }

    /// Restores a queue from the first transactions and events. It must be equal to the queue at that time.
    fn rebuild(&mut self, writes: usize, events: usize) -> Result<deltaq_engine::Queue, Difference> {
        let queue = self.checkpoints.recover(writes, &self.world.events[..events])?;
        let was = self.world.as_of(events).image();
        let image = queue.image();
        if image == was { Ok(queue) } else { Err(format!("recovered {image:#?}\n\nwas {was:#?}")) }
    }
}

fn run(setup: Setup, moves: &[Move], hits: &mut Hits) -> Result<(), (usize, Difference)> {
    let mut case = Case::new(setup);
    for (index, next) in moves.iter().enumerate() {
        caught(|| case.make(next)).map_err(|difference| (index, difference))?;
    }
    for (rule, count) in case.checkpoints.hits {
        *hits.entry(rule).or_default() += count;
    }
    Ok(())
}

/// Rules that the random cases must reach.
const RULES: &[&str] = &[
    "a checkpoint is completed",
    "a full checkpoint is completed",
    "an entry is out of date",
    "a checkpoint is cut off",
    "a key that was gone comes back",
    "an event of a key is replayed",
    "an event of a key that was gone is ignored",
    "an event of the queue is replayed",
    "an event that an entry has seen is ignored",
];

fn check_mode(mode: Mode) {
    let seed = knob("DELTAQ_PROPERTY_SEED", SEED);
    let cases = knob("DELTAQ_PROPERTY_CRASH_CASES", CASES);
    let mut seeds = Rng::with_seed(seed ^ mode as u64);
    let mut hits = Hits::new();
    for _ in 0..cases {
        let case = seeds.u64(..);
        let mut rng = Rng::with_seed(case);
        let setup = Setup::random(&mut rng, mode);
        let moves = moves(&mut rng, mode);
        if let Err((index, difference)) = run(setup, &moves, &mut hits) {
            let fails = |moves: &[Move]| run(setup, moves, &mut Hits::new()).err();
            let (moves, shrunk) = shrink(&moves[..=index], fails);
            panic!(
                "seed {seed}, case {case}, move {index}: {difference}\n\nshrunk: {shrunk}\n\n{setup:?}\n{moves:#?}"
            );
        }
    }
    for (rule, count) in &hits {
        println!("{count:>9}  {rule}");
    }
    let missed: Vec<&&str> = RULES.iter().filter(|rule| !hits.contains_key(**rule)).collect();
    assert!(missed.is_empty() || cases < CASES, "never hit in mode {mode:?}: {missed:?}");
}

#[test]
fn a_queue_of_mode_delta_survives_a_crash_at_any_point() {
    check_mode(Mode::Delta);
}

#[test]
fn a_queue_of_mode_latest_survives_a_crash_at_any_point() {
    check_mode(Mode::Latest);
}

#[test]
fn a_queue_of_mode_keys_survives_a_crash_at_any_point() {
    check_mode(Mode::Keys);
}

#[test]
fn a_queue_of_mode_events_survives_a_crash_at_any_point() {
    check_mode(Mode::Events);
}
