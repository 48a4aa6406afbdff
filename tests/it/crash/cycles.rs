//! Load, kill, restart, look, judge; again and again, then everything is worked off and judged.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use deltaq::clock::Clock;

use super::alarm::{Alarm, Moment};
use super::client::Client;
use super::counters::Counters;
use super::faulty_proxy::{FaultyProxy, ProxyFault};
use super::history::{Crash, Epoch, Look, Us};
use super::judge::{Fault, Judge, Rule};
use super::load::Crew;
use super::look::{create, drain, look, metrics_of_drained};
use super::queues::QUEUES;
use super::server::{End, Spawned, Store};

/// How long the load lasts before a kill, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 50..400;
/// One in so many loads lasts longer than leases do, so that some expire.
const LONG_LOADS: u64 = 6;
/// How much longer, in milliseconds.
const LONG_MS: u64 = 1_300;
/// How long a kill waits for the answer that it is to come right behind, if it waits for one.
const MOMENT: Duration = Duration::from_millis(300);
/// After how long a server that was told to stop is killed, in milliseconds, and how long one may take
/// that is not.
const STOP_MS: std::ops::Range<u64> = 0..60;
const STOP: Duration = Duration::from_secs(30);
/// How long it may take until there is something to lie about.
const LIE: Duration = Duration::from_secs(5);
/// Of so many answers the proxy makes one up, if nobody is killed.
const LIES_ONE_IN: u64 = 2;
/// How many faults of each rule are shown.
const SHOWN: usize = 4;

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Of all choices of the clients and of the time of each kill.
    pub(crate) seed: u64,
    pub(crate) cycles: usize,
    pub(crate) store: Store,
    pub(crate) kills: bool,
    pub(crate) lie: Option<ProxyFault>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The faults of the first epoch that has any; nothing is run after it.
    pub(crate) faults: Vec<Fault>,
    pub(crate) cycles: usize,
    pub(crate) calls: usize,
    pub(crate) counters: Counters,
    /// How long each start after a kill took until the server was ready.
    pub(crate) restarts: Vec<Us>,
    /// What the server said last.
    pub(crate) last_words: String,
}

impl Report {
    /// Whether a rule was found broken.
    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.faults.iter().any(|fault| fault.rule == rule)
    }

    /// What happened, in a few lines.
    pub(crate) fn summary(&self) -> String {
        let Self { cycles, calls, counters, restarts, faults, .. } = self;
        let slowest = restarts.iter().max().copied().unwrap_or_default() / 1_000;
        let mean = restarts.iter().sum::<Us>() / 1_000 / restarts.len().max(1) as u64;
        let mut text = format!("{cycles} cycles, restarts: mean {mean} ms, longest {slowest} ms\n");
        let _ = writeln!(text, "{calls} calls: {counters}");
        let mut by_rule: BTreeMap<Rule, Vec<&str>> = BTreeMap::new();
        for fault in faults {
            by_rule.entry(fault.rule).or_default().push(&fault.text);
        }
        for (rule, texts) in by_rule {
            let _ = writeln!(text, "{rule:?}: {} times", texts.len());
            for shown in texts.iter().take(SHOWN) {
                let _ = writeln!(text, "  {shown}");
            }
        }
        text
    }
}

/// Everything that outlives a server.
struct Run<'a> {
    plan: &'a Plan,
    clock: Clock,
    rng: fastrand::Rng,
    alarm: Arc<Alarm>,
    crew: Crew,
    watcher: Client,
    judge: Judge,
    report: Report,
}

/// Runs the plan until something is wrong.
pub(crate) fn run(plan: &Plan) -> Report {
    let clock = Clock::system();
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let alarm = Arc::new(Alarm::new());
    let crew = Crew::new(&clock, &mut rng, &alarm);
    let watcher = Client::new(clock.clone(), 0, alarm.clone());
    let judge = Judge::new(QUEUES.iter().map(|spec| (spec.name, spec.is_latest)));
    let mut run = Run { plan, clock, rng, alarm, crew, watcher, judge, report: Report::default() };
    let mut server = Spawned::start(&plan.store);
    create(server.api);
    run.look(None, &server);
    for _ in 0..plan.cycles {
        let (next, crash) = run.cycle(server);
        server = next;
        run.look(crash, &server);
        run.report.cycles += 1;
        // A forged answer may give itself away by its number before what it hides is missed.
        let is_enough = |lie: ProxyFault| run.report.has(lie.breaks());
        if !run.report.faults.is_empty() && plan.lie.is_none_or(is_enough) {
            return run.report;
        }
    }
    let drained = drain(&mut run.watcher).and_then(|()| look(&mut run.watcher));
    let looks = drained.and_then(|mut looks| {
        metrics_of_drained(server.api, &mut looks)?;
        Ok(looks)
    });
    run.read(None, looks, &server);
    run.report
}

/// Most servers are killed while they work, some while they write their last checkpoint, and a few are
/// stopped cleanly.
fn end_of(rng: &mut fastrand::Rng) -> End {
    match rng.u32(..10) {
        0..7 => End::Kill,
        7..9 => End::Stop { patience: Duration::from_millis(rng.u64(STOP_MS)) },
        _ => End::Stop { patience: STOP },
    }
}

impl Run<'_> {
    /// Load, and a kill if the plan says so. Returns the server that is there after it.
    fn cycle(&mut self, server: Spawned) -> (Spawned, Option<Crash>) {
        let long = if self.rng.u64(..LONG_LOADS) == 0 { LONG_MS } else { 0 };
        let time = Duration::from_millis(self.rng.u64(LOAD_MS) + long);
        let proxy = self.plan.lie.map(|lie| FaultyProxy::start(server.api, lie));
        let address = proxy.as_ref().map_or(server.api, |proxy| proxy.address);
        let end = if self.plan.lie.is_none() { end_of(&mut self.rng) } else { End::Kill };
        let moment = self.rng.choice(Moment::ALL).filter(|_| self.rng.bool());
        let (kills, clock, alarm) = (self.plan.kills, &self.clock, &self.alarm);
        let left = self.crew.work(address, || {
            std::thread::sleep(time);
            if let Some(proxy) = &proxy {
                proxy.lie(if kills { 1 } else { LIES_ONE_IN });
                proxy.has_lied(LIE);
            }
            if !kills {
                return Ok(server);
            }
            if let Some(moment) = moment {
                alarm.wait(moment, MOMENT);
            }
            Err((server.end(end), clock.monotonic_us()))
        });
        match left {
            Ok(server) => (server, None),
            Err((last_words, gone)) => {
                self.report.last_words = last_words;
                let restart = self.clock.monotonic_us();
                let server = Spawned::start(&self.plan.store);
                self.report.restarts.push(self.clock.monotonic_us() - restart);
                if matches!(self.plan.store, Store::Memory) {
                    create(server.api);
                }
                (server, Some(Crash { gone, restart }))
            }
        }
    }

    /// Looks at the queues and gives the judge what happened.
    fn look(&mut self, crash: Option<Crash>, server: &Spawned) {
        self.watcher.turn_to(server.api);
        let looks = look(&mut self.watcher);
        self.read(crash, looks, server);
    }

    /// Gives the judge what happened since the last quiet moment.
    fn read(&mut self, crash: Option<Crash>, looks: Result<Vec<Look>, String>, server: &Spawned) {
        let mut calls = self.crew.take_calls();
        calls.append(&mut self.watcher.calls);
        self.report.calls += calls.len();
        for call in &calls {
            self.report.counters.count(call);
        }
        match looks {
            Ok(looks) => self.report.faults.extend(self.judge.read(&Epoch { calls, crash, looks })),
            Err(text) => self.report.faults.push(Fault { rule: Rule::NoAnswer, text }),
        }
        if !self.report.faults.is_empty() {
            self.report.last_words += &server.last_words();
        }
    }
}
