//! The random cases: settings and steps as plain data, so that a failing case can be shrunk, printed and pinned.

use std::collections::VecDeque;

use deltaq_engine::command::{DefaultLimit, HoldScope};
use deltaq_engine::delta::DeltaKind;
use deltaq_types::{Mode, PauseReason};
use fastrand::Rng;

use crate::model::{Content, Label, Micros, ModelCall, ModelReplace, Name, OBJECTS, SENT_OBJECTS, Traced};

mod acts;
mod setup;

pub(crate) use setup::Setup;
use setup::{GROUPS, KUBERNETES, LIMITS, ORDERS};

pub(crate) const KEYS: [Name; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
pub(crate) const SOURCES: [&str; 2] = ["erp", "shop"];
pub(crate) const WORKERS: [&str; 2] = ["w1", "w2"];
pub(crate) const POP_IDS: [&str; 3] = ["p1", "p2", "p3"];
pub(crate) const POP_GROUPS: [&str; 5] = ["", "erp", "shop", "1", "2"];
pub(crate) const ERRORS: [&str; 2] = ["timeout", "bad gateway"];
pub(crate) const MAX: usize = usize::MAX;

/// A reference to a lease that stays valid when other steps are removed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaseRef {
    /// The n-th live lease.
    Live(usize),
    /// The n-th lease that was ever issued.
    Issued(usize),
    /// A token that was never issued.
    Forged(u64),
}

/// How the rest of a lease is settled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest {
    Keep,
    Ack,
    Nack,
    Release,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Ack,
    Done {
        delay: Option<Micros>,
    },
    Nack {
        delay: Option<Micros>,
        floor: bool,
        error: Option<&'static str>,
    },
    Release,
    /// An ack or a release that holds the queue, a group or a key.
    Hold {
        scope: HoldScope,
        acks: bool,
        length: Micros,
    },
    Reject {
        error: Option<&'static str>,
    },
    /// The n-th leased delta and those before it are acknowledged.
    Part {
        n: usize,
        rest: Rest,
    },
    Extend {
        lease: Option<Micros>,
    },
}

/// A setting that may change at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    MaxFailures(u32),
    MaxKeys(usize),
    MaxDeltas(usize),
    EmitReplaced(bool),
    ResyncPeriod(Option<Micros>),
    Mode(Mode),
    KnownObjects(bool),
    Indexes(u8),
    /// Whether objects have versions, and whether one with an equal version is applied.
    Version(bool, bool),
    Order(u8),
    Limits(u8),
    Groups(u8),
    Kubernetes(u8),
}

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Produce {
        calls: Vec<ModelCall>,
        sequence: Option<(&'static str, u64)>,
    },
    Accept(ModelReplace),
    Step {
        job: usize,
        budget: usize,
    },
    Pop {
        max: usize,
        max_bytes: usize,
        with_known: bool,
        lease: Option<Micros>,
        worker: Label,
        id: Label,
        group: Label,
    },
    Settle(Vec<(LeaseRef, Act)>),
    ReturnUndelivered(Vec<LeaseRef>),
    Resync {
        budget: usize,
    },
    Purge {
        budget: usize,
    },
    Promote {
        keys: Option<Vec<Name>>,
        budget: usize,
    },
    Redrive {
        keys: Option<Vec<Name>>,
        budget: usize,
    },
    Discard {
        keys: Option<Vec<Name>>,
        budget: usize,
    },
    Seed(Vec<(Name, Content, Label)>),
    Forget(Vec<Name>),
    Pause(bool),
    PauseGroup {
        group: &'static str,
        paused: bool,
    },
    PauseItself(PauseReason),
    Regroup {
        budget: usize,
    },
    Close {
        closed: bool,
        at_once: bool,
    },
    Configure(Change),
    Wait,
    Crash {
        ahead: u64,
    },
}

/// How far the floor of the next life is above the newest number: far below or above the distance between two lives.
pub(super) fn ahead(rng: &mut Rng) -> u64 {
    if rng.bool() { 0 } else { 3 << 20 }
}

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Produce { .. } => "produce",
            Self::Accept(_) => "accept a Replace",
            Self::Step { .. } => "step of a Replace",
            Self::Pop { .. } => "pop",
            Self::Settle(_) => "settle",
            Self::ReturnUndelivered(_) => "return undelivered",
            Self::Resync { .. } => "resync step",
            Self::Purge { .. } => "purge step",
            Self::Promote { .. } => "promote step",
            Self::Redrive { .. } => "redrive step",
            Self::Discard { .. } => "discard step",
            Self::Seed(_) => "seed",
            Self::Forget(_) => "forget",
            Self::Pause(_) => "pause or resume",
            Self::PauseGroup { .. } => "pause or resume a group",
            Self::PauseItself(_) => "pause itself",
            Self::Regroup { .. } => "regroup",
            Self::Close { .. } => "close or reopen",
            Self::Configure(_) => "configure",
            Self::Wait => "wait",
            Self::Crash { .. } => "crash",
        }
    }
}

/// A command, and the step of the clock before it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Microseconds, negative when the clock is set back.
    pub(crate) clock: i64,
    pub(crate) command: Command,
    /// Whether the journal has committed everything afterwards.
    pub(crate) commit: bool,
}

/// The generator of a random case. Each case has its own weights, so that some cases concentrate on few commands.
pub(crate) struct Generator {
    rng: Rng,
    /// A separate generator for traces, so that the other choices of a seed do not depend on them.
    traces: Rng,
    /// As `traces`, for the debounce of calls.
    debounces: Rng,
    /// As `traces`, for the limits of the queue.
    limits: Rng,
    /// What the last settle holds.
    last_held: Option<HoldScope>,
    paused_group: Option<&'static str>,
    /// As `traces`, for partial acknowledgements.
    parts: Rng,
    /// As `traces`, for the keys that a Replace keeps.
    kept: Rng,
    /// As `traces`, for sequence numbers.
    sequences: Rng,
    /// As `traces`, for the versions of objects.
    versions: Rng,
    /// How far the versions of the objects have grown; `None` if any object is chosen at any time.
    version: Option<usize>,
    /// The largest sequence number so far.
    number: u64,
    mode: Mode,
    weights: [u32; 19],
    keys: usize,
    slow: bool,
    /// Commands to emit before random ones.
    next: VecDeque<Command>,
}

/// The first of the objects that are in the order of their versions.
const IN_ORDER: usize = SENT_OBJECTS + 1;

const WEIGHTS: [u32; 19] = [300, 24, 100, 220, 200, 12, 14, 14, 5, 8, 6, 4, 8, 4, 5, 6, 24, 3, 6];

impl Generator {
    pub(crate) fn new(mut rng: Rng, mode: Mode) -> Self {
        let mut weights = WEIGHTS;
        for weight in &mut weights {
            *weight *= [1, 2, 4, 16][rng.usize(..4)];
        }
        let keys = rng.usize(2..=KEYS.len());
        let slow = rng.u8(..4) == 0;
        let traces = Rng::with_seed(rng.get_seed());
        let debounces = Rng::with_seed(!rng.get_seed());
        let limits = Rng::with_seed(rng.get_seed().rotate_left(16));
        let parts = Rng::with_seed(!rng.get_seed().rotate_left(48));
        let kept = Rng::with_seed(rng.get_seed().rotate_left(32));
        let sequences = Rng::with_seed(!rng.get_seed());
        let mut versions = Rng::with_seed(rng.get_seed().rotate_left(32));
        let version = versions.bool().then_some(IN_ORDER);
        let (number, next) = (0, VecDeque::new());
        let mut generator = Self {
            rng,
            traces,
            debounces,
            limits,
            last_held: None,
            paused_group: None,
            parts,
            kept,
            sequences,
            versions,
            version,
            number,
            mode,
            weights,
            keys,
            slow,
            next,
        };
        if generator.rng.bool() {
            generator.begin();
        }
        generator
    }

    /// Begins without produce calls: with known objects, a Resync and the initial list.
    fn begin(&mut self) {
        if self.rng.bool() {
            let seeds = self.many(6, |generator| (generator.key(), generator.content(), generator.label()));
            self.next.push_back(Command::Seed(seeds));
        }
        if self.one_in(3) {
            self.next.push_back(Command::Resync { budget: 1_000 });
        }
        let list = self.replace();
        self.next.push_back(Command::Accept(list));
        for _ in 0..self.rng.usize(..12) {
            let choice = if self.rng.bool() { 2 } else { 3 + self.rng.usize(..2) };
            let command = self.command(choice);
            self.next.push_back(command);
        }
    }

    fn key(&mut self) -> Name {
        KEYS[self.rng.usize(..self.keys)]
    }

    fn content(&mut self) -> Content {
        let mut content = self.rng.usize(..SENT_OBJECTS);
        if let Some(version) = self.version
            && self.versions.u8(..12) > 0
        {
            content = (version + self.versions.usize(..5)).min(OBJECTS.len() - 1);
            self.version = Some(version + usize::from(self.versions.u8(..16) == 0));
        }
        Content::try_from(content).expect("fewer than 256 objects")
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    fn label(&mut self) -> Label {
        if self.rng.bool() { None } else { self.rng.choice(SOURCES) }
    }

    fn error(&mut self) -> Option<&'static str> {
        if self.rng.bool() { None } else { self.rng.choice(ERRORS) }
    }

    fn maybe<T>(&mut self, n: u32, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.one_in(n) { Some(value(self)) } else { None }
    }

    fn span(&mut self) -> Micros {
        if self.one_in(6) { 0 } else { self.rng.u64(1..2_500) }
    }

    fn budget(&mut self) -> usize {
        match self.rng.u8(..4) {
            0 => 1,
            1 => self.rng.usize(1..4),
            _ => 1_000,
        }
    }

    fn lease_ref(&mut self) -> LeaseRef {
        match self.rng.u8(..20) {
            0 => LeaseRef::Forged(self.rng.u64(..200)),
            1 | 2 => LeaseRef::Issued(self.rng.usize(..100)),
            _ => LeaseRef::Live(self.rng.usize(..4)),
        }
    }

    fn many<T>(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = if self.rng.bool() { 1 } else { self.rng.usize(1..=most) };
        (0..count).map(|_| one(self)).collect()
    }

    fn trace(&mut self) -> Traced {
        self.traces.bool().then(|| self.traces.u8(..))
    }

    /// A sequence number near the largest one so far.
    fn sequence(&mut self) -> Option<u64> {
        if self.sequences.u8(..3) > 0 {
            return None;
        }
        let number = self.number.saturating_add_signed(self.sequences.i64(-2..3));
        self.number = self.number.max(number);
        Some(number)
    }

    fn call(&mut self) -> ModelCall {
        let (key, source, content) = (self.key(), self.label(), self.content());
        let delay = self.maybe(5, Self::span);
        let debounce = self.debounce();
        let plain = ModelCall {
            kind: DeltaKind::Added,
            key,
            content: Some(content),
            source,
            delay,
            debounce,
            head_start: (self.debounces.u8(..4) == 0).then(|| self.debounces.i64(-2_000..2_000)),
            final_state_unknown: false,
            rate_limited: false,
            trace: self.trace(),
        };
        if self.mode == Mode::Keys {
            let kind = if self.one_in(200) { DeltaKind::Updated } else { DeltaKind::Added };
            let rate_limited = self.one_in(6);
            let delay = plain.delay.filter(|_| !rate_limited);
            let debounce = plain.debounce.filter(|_| !rate_limited);
            return ModelCall { kind, content: None, delay, debounce, rate_limited, ..plain };
        }
        match self.rng.u8(..10) {
            0..=2 => plain,
            3..=5 => ModelCall { kind: DeltaKind::Updated, ..plain },
            _ => {
                let content = plain.content.filter(|_| self.rng.bool());
                let delay = plain.delay.filter(|_| self.one_in(4));
                let final_state_unknown = self.one_in(4);
                ModelCall { kind: DeltaKind::Deleted, content, delay, final_state_unknown, ..plain }
            }
        }
    }

    /// The debounce of a call: the quiet time and the longest wait. In mode events it is refused.
    fn debounce(&mut self) -> Option<(Micros, Micros)> {
        let times = match self.debounces.u8(..20) {
            0 => Some((0, 0)),
            1..=3 => {
                let quiet = self.debounces.u64(1..1_500);
                Some((quiet, quiet + self.debounces.u64(..3_000)))
            }
            _ => None,
        };
        times.filter(|_| self.mode != Mode::Events || self.debounces.u8(..60) == 0)
    }

    fn replace(&mut self) -> ModelReplace {
        let mut items: Vec<(Name, Content)> = Vec::new();
        for _ in 0..self.rng.usize(..=self.keys) {
            let key = self.key();
            // The HTTP API refuses a list that names a key twice. In mode events such a list could exceed a bound.
            let repeats = self.one_in(12) && self.mode != Mode::Events;
            if repeats || items.iter().all(|(listed, _)| *listed != key) {
                let content = self.content();
                items.push((key, content));
            }
        }
        ModelReplace {
            items,
            kept: (self.kept.u8(..4) == 0).then(|| KEYS[self.kept.usize(..self.keys)]).into_iter().collect(),
            keeps_all: self.kept.u8(..12) == 0,
            source: self.label(),
            sequence: self.sequence(),
            only_changed: self.rng.bool(),
            max_delete_percent: self.maybe(8, |generator| f64::from(generator.rng.u32(..100))),
            max_deletes: self.maybe(8, |generator| generator.rng.u64(..4)),
            default_limit: match self.traces.u8(..8) {
                0 => DefaultLimit::EmptyList,
                1 => DefaultLimit::SingleObject,
                2 | 3 => DefaultLimit::Half,
                _ => DefaultLimit::None,
            },
            dry_run: self.one_in(8),
            trace: self.trace(),
        }
    }

    fn change(&mut self) -> Change {
        if self.traces.u8(..3) == 0 {
            return Change::Indexes(self.traces.u8(..4));
        }
        if self.debounces.u8(..6) == 0 {
            return Change::Order(self.debounces.u8(..ORDERS));
        }
        if self.limits.u8(..6) == 0 {
            return Change::Limits(self.limits.u8(..LIMITS));
        }
        if self.limits.u8(..6) == 0 {
            return Change::Groups(self.limits.u8(..GROUPS));
        }
        if self.limits.u8(..6) == 0 {
            return Change::Kubernetes(self.limits.u8(..KUBERNETES));
        }
        if self.versions.u8(..8) == 0 {
            return Change::Version(self.versions.u8(..3) > 0, self.versions.bool());
        }
        match self.rng.u8(..12) {
            0..=2 => Change::MaxFailures(self.rng.u32(..4)),
            3 | 4 => Change::MaxKeys(if self.rng.bool() { 1_000 } else { self.rng.usize(2..9) }),
            5..=7 => Change::MaxDeltas(self.rng.usize(2..6)),
            8 => Change::EmitReplaced(self.rng.bool()),
            9 => Change::ResyncPeriod(self.maybe(2, |generator| generator.rng.u64(500..5_000))),
            10 => Change::Mode(if self.rng.bool() { self.mode } else { Mode::Delta }),
            _ => Change::KnownObjects(self.rng.bool()),
        }
    }

    fn some_keys(&mut self) -> Vec<Name> {
        self.many(3, Self::key)
    }

    fn clock(&mut self) -> i64 {
        match self.rng.u32(..400) {
            0..=160 => 0,
            161..=330 => self.rng.i64(1..300),
            331..=385 => self.rng.i64(300..2_500),
            386..=398 => -self.rng.i64(1..1_000),
            _ if self.slow => 86_400_000_000,
            _ => 10_000,
        }
    }

    pub(crate) fn step(&mut self) -> Step {
        let command = self.next.pop_front().unwrap_or_else(|| self.any_command());
        if matches!(command, Command::Accept(_)) && self.next.is_empty() && self.rng.bool() {
            // Some steps in a row, so that a Replace is completed without many other commands.
            for _ in 0..self.rng.usize(1..8) {
                self.next.push_back(Command::Step { job: 0, budget: 1_000 });
            }
        }
        if matches!(command, Command::Configure(Change::Groups(_))) && self.next.is_empty() {
            self.interrupt_walk();
        }
        Step { clock: self.clock(), command, commit: !self.one_in(8) }
    }

    fn any_command(&mut self) -> Command {
        let all: u32 = self.weights.iter().sum();
        let mut at = self.rng.u32(..all);
        let mut choice = 0;
        while at >= self.weights[choice] {
            at -= self.weights[choice];
            choice += 1;
        }
        self.command(choice)
    }

    fn command(&mut self, choice: usize) -> Command {
        match choice {
            0 => {
                let calls = self.many(3, Self::call);
                let source = self.sequences.choice(SOURCES);
                Command::Produce { calls, sequence: source.zip(self.sequence()) }
            }
            1 => Command::Accept(self.replace()),
            2 => Command::Step { job: usize::from(self.one_in(8)), budget: self.budget() },
            3 => Command::Pop {
                max: self.rng.usize(1..6),
                max_bytes: if self.one_in(4) { self.rng.usize(..60) } else { MAX },
                with_known: self.rng.bool(),
                lease: self.maybe(4, Self::span),
                worker: self.maybe(2, |generator| generator.rng.choice(WORKERS)).flatten(),
                id: self.maybe(4, |generator| generator.rng.choice(POP_IDS)).flatten(),
                group: self.maybe(6, |generator| generator.rng.choice(POP_GROUPS)).flatten(),
            },
            4 => Command::Settle(self.many(3, |generator| (generator.lease_ref(), generator.act()))),
            5 => Command::ReturnUndelivered(self.many(3, Self::lease_ref)),
            6 => {
                let leases = self.many(2, Self::lease_ref);
                let act = Act::Extend { lease: self.maybe(2, Self::span) };
                let settles = leases.into_iter().map(|lease| (lease, act));
                // Other settles of the same call come behind an extension, also of the same lease.
                let more = self.maybe(3, |generator| (generator.lease_ref(), generator.act()));
                Command::Settle(settles.chain(more).collect())
            }
            7 => Command::Resync { budget: self.budget() },
            8 => Command::Purge { budget: if self.mode == Mode::Keys { 1_000 } else { self.budget() } },
            9 => Command::Redrive { keys: self.maybe(2, Self::some_keys), budget: self.budget() },
            10 => Command::Discard { keys: self.maybe(2, Self::some_keys), budget: self.budget() },
            11 => Command::Seed(
                self.many(4, |generator| (generator.key(), generator.content(), generator.label())),
            ),
            12 => Command::Forget(self.some_keys()),
            13 => match self.one_in(3) {
                true if self.traces.bool() => Command::PauseItself(PauseReason::EndpointGone),
                paused => match self.maybe(2, |generator| generator.rng.choice(POP_GROUPS)).flatten() {
                    Some(group) => self.pause_group(group),
                    None => Command::Pause(paused),
                },
            },
            14 => {
                let closed = self.one_in(3);
                Command::Close { closed, at_once: closed && self.traces.bool() }
            }
            15 => Command::Configure(self.change()),
            16 if self.limits.bool() => Command::Regroup { budget: self.budget() },
            16 => Command::Wait,
            17 => Command::Crash { ahead: ahead(&mut self.rng) },
            _ => Command::Promote { keys: self.maybe(2, Self::some_keys), budget: self.budget() },
        }
    }
}
