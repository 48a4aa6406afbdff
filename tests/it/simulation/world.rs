//! Around all lives of a simulated node: its time, what its callers know, and the trace.

use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write as _};
use std::hash::Hasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deltaq::clock::{Clock, ManualClock};
use deltaq::engine::time::Time;
use deltaq::service::{Error, Handle};
use fastrand::Rng;
use tokio::time::Instant;

use super::Violation;
use super::ledger::Ledger;

/// The wall clock of the first life.
const START_US: u64 = 1_700_000_000_000_000;
const DAY_MS: i64 = 86_400_000;

/// What outlives the node.
#[derive(Debug)]
pub(super) struct World {
    pub(super) clock: Clock,
    hand: ManualClock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    numbers: u64,
    /// The instant of tokio's time up to which the clock has followed.
    followed: Option<Instant>,
    /// How far the clock has run ahead of tokio's timers.
    ahead: Duration,
    /// The node is told to stop: nothing is handed out any more.
    drains: bool,
    failure: Option<Violation>,
    trace: Trace,
}

#[derive(Debug)]
struct Trace {
    hasher: DefaultHasher,
    prints: bool,
}

/// What an error says of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has changed nothing.
    Refused,
    /// It may have been done.
    Unknown,
}

impl World {
    pub(super) fn new(prints: bool) -> Self {
        let (clock, hand) = Clock::manual(START_US);
        let trace = Trace { hasher: DefaultHasher::new(), prints };
        let state = State {
            ledger: Ledger::default(),
            numbers: 0,
            followed: None,
            ahead: Duration::ZERO,
            drains: false,
            failure: None,
            trace,
        };
        Self { clock, hand, state: Mutex::new(state) }
    }

    /// Asks the ledger, or tells it.
    pub(super) fn ledger<T>(&self, tell: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut state = self.lock();
        state.ledger.now_us = self.clock.monotonic_us();
        tell(&mut state.ledger)
    }

    /// The number of the next object.
    pub(super) fn next_number(&self) -> u64 {
        let mut state = self.lock();
        state.numbers += 1;
        state.numbers
    }

    /// Notes what happens: two runs of a seed note the same.
    pub(super) fn note(&self, what: fmt::Arguments<'_>) {
        let now_us = self.clock.monotonic_us();
        let trace = &mut self.lock().trace;
        trace.hasher.write_u64(now_us);
        let _never_fails = trace.write_fmt(what);
        if trace.prints {
            println!("{:>14.6}  {what}", Duration::from_micros(now_us).as_secs_f64());
        }
    }

    /// All that was noted, in short.
    pub(super) fn hash(&self) -> u64 {
        self.lock().trace.hasher.finish()
    }

    /// The first thing that went wrong stays.
    pub(super) fn judge(&self, told: Result<(), Violation>) {
        if let Err(violation) = told {
            self.note(format_args!("VIOLATION {violation}"));
            self.lock().failure.get_or_insert(violation);
        }
    }

    pub(super) fn verdict(&self) -> Result<(), Violation> {
        self.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// A runtime begins, whose time stands until it has nothing to do.
    pub(super) fn begin_time(&self) {
        let mut state = self.lock();
        state.followed = Some(Instant::now());
        state.ahead = Duration::ZERO;
        state.drains = false;
    }

    /// A runtime's time has moved on.
    pub(super) fn follow_time(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        let before = state.followed.replace(now).unwrap_or(now);
        self.hand.advance(now.saturating_duration_since(before));
    }

    /// Time passes while the processor is busy: timers come late by it.
    pub(super) fn spend(&self, span: Duration) {
        self.lock().ahead += span;
        self.hand.advance(span);
    }

    pub(super) fn set_drains(&self) {
        self.lock().drains = true;
    }

    pub(super) fn drains(&self) -> bool {
        self.lock().drains
    }

    pub(super) fn ahead(&self) -> Duration {
        self.lock().ahead
    }

    /// The machine is off for a while, or somebody sets its wall clock: by seconds, or by days in either direction.
    pub(super) fn jump(&self, rng: &mut Rng) {
        let by_ms = match rng.u8(..4) {
            0 | 1 => 0,
            2 => rng.i64(-3_000..30_000),
            _ => rng.i64(-20..20) * DAY_MS + rng.i64(0..DAY_MS),
        };
        self.hand.set_wall(self.clock.wall_us().saturating_add_signed(by_ms * 1_000));
        self.note(format_args!("the wall clock is set by {by_ms} ms"));
    }

    /// A deadline of a queue on the clock that nobody can set.
    pub(super) fn deadline_us(&self, handle: &Handle, deadline: Time) -> u64 {
        let left = deadline.since(handle.now());
        self.clock.monotonic_us().saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
    }

    /// What an error says of the call that it answers.
    pub(super) fn fate(&self, error: &Error) -> Fate {
        match error {
            Error::Journal(_) | Error::QueueDeleted => Fate::Unknown,
            Error::Broken => {
                self.judge(Err("the queue is out of order".to_owned()));
                Fate::Unknown
            }
            _ => Fate::Refused,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Write for Trace {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.hasher.write(text.as_bytes());
        Ok(())
    }
}
