//! The world of a simulated node: its time, the ledger, and the trace.

use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write as _};
use std::hash::Hasher;
use std::time::Duration;

use deltaq_engine::time::Time;
use deltaq_runtime::clock::{Clock, ManualClock};
use deltaq_service::{Error, Handle};
use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::Violation;
use super::ledger::Ledger;

/// The wall clock at the first start.
const START_US: u64 = 1_700_000_000_000_000;
const DAY_MS: i64 = 86_400_000;

/// The parts of a simulation that outlive the node.
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
    /// The instant of tokio's time that the clock has reached.
    followed: Option<Instant>,
    /// How far the clock is ahead of tokio's timers.
    ahead: Duration,
    /// Whether the node is stopping: it delivers no more keys.
    drains: bool,
    failure: Option<Violation>,
    trace: Trace,
}

#[derive(Debug)]
struct Trace {
    hasher: DefaultHasher,
    prints: bool,
}

/// Whether a failed call was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// The call has changed nothing.
    Refused,
    /// The outcome is unknown.
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

    /// Uses the ledger.
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

    /// Adds a line to the trace. All runs of a seed have the same trace.
    pub(super) fn note(&self, what: fmt::Arguments<'_>) {
        let now_us = self.clock.monotonic_us();
        let trace = &mut self.lock().trace;
        trace.hasher.write_u64(now_us);
        let _never_fails = trace.write_fmt(what);
        if trace.prints {
            println!("{:>14.6}  {what}", Duration::from_micros(now_us).as_secs_f64());
        }
    }

    /// The hash of the trace.
    pub(super) fn hash(&self) -> u64 {
        self.lock().trace.hasher.finish()
    }

    /// Records a violation. The first one is kept.
    pub(super) fn judge(&self, checked: Result<(), Violation>) {
        if let Err(violation) = checked {
            self.note(format_args!("VIOLATION {violation}"));
            self.lock().failure.get_or_insert(violation);
        }
    }

    pub(super) fn verdict(&self) -> Result<(), Violation> {
        self.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// A runtime begins. Its time stops while any task can run.
    pub(super) fn begin_time(&self) {
        let mut state = self.lock();
        state.followed = Some(Instant::now());
        state.ahead = Duration::ZERO;
        state.drains = false;
    }

    /// Moves the clock to the time of the runtime.
    pub(super) fn follow_time(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        let before = state.followed.replace(now).unwrap_or(now);
        self.hand.advance(now.saturating_duration_since(before));
    }

    /// Lets time pass while the processor is busy. This delays timers.
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

    /// Turns the machine off for a while, or sets its wall clock by seconds or by days, in either direction.
    pub(super) fn jump(&self, rng: &mut Rng) {
        let by_ms = match rng.u8(..4) {
            0 | 1 => 0,
            2 => rng.i64(-3_000..30_000),
            _ => rng.i64(-20..20) * DAY_MS + rng.i64(0..DAY_MS),
        };
        self.hand.set_wall(self.clock.wall_us().saturating_add_signed(by_ms * 1_000));
        self.note(format_args!("the wall clock is set by {by_ms} ms"));
    }

    /// A deadline of a queue, on the monotonic clock.
    pub(super) fn deadline_us(&self, handle: &Handle, deadline: Time) -> u64 {
        let left = deadline.since(handle.now());
        self.clock.monotonic_us().saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
    }

    /// Whether a call with this error was applied.
    pub(super) fn applied_by(&self, error: &Error) -> Applied {
        match error {
            Error::Journal(_) | Error::QueueDeleted => Applied::Unknown,
            Error::Broken => {
                self.judge(Err("the queue is out of order".to_owned()));
                Applied::Unknown
            }
            _ => Applied::Refused,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl fmt::Write for Trace {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.hasher.write(text.as_bytes());
        Ok(())
    }
}
