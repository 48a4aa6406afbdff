//! Cycles of load, kill, restart, read and judge. At the end all queues are emptied and judged.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use deltaq_runtime::clock::Clock;

use super::alarm::{Alarm, Moment};
use super::client::Client;
use super::counters::Counters;
use super::database::{Database, Outage};
use super::faulty_proxy::{FaultyProxy, ProxyFault};
use super::history::{Call, Crash, Epoch, Snapshot, Us};
use super::judge::{Fault, Judge, Rule};
use super::load::Clients;
use super::queues::QUEUES;
use super::snapshot::{create, drain, metrics_of_drained, snapshot};
use crate::harness::server::{End, Spawned, Store};

/// Duration of the load before a kill, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 50..400;
/// One in so many loads lasts longer than a lease, so that some leases expire.
const LONG_LOADS: u64 = 6;
/// The additional duration, in milliseconds.
const LONG_MS: u64 = 1_300;
/// Longest wait of a kill for the reply that it should follow.
const MOMENT: Duration = Duration::from_millis(300);
/// Time from SIGTERM to the kill, in milliseconds, and the longest time of a stop without a kill.
const STOP_MS: std::ops::Range<u64> = 0..60;
const STOP: Duration = Duration::from_secs(30);
/// Longest wait for a reply that the proxy forges.
const FORGERY: Duration = Duration::from_secs(5);
/// The proxy forges one in so many replies, if there are no kills.
const FORGES_ONE_IN: u64 = 2;
/// How many times as many cycles a run may have that lacks required events.
const LONGER: usize = 10;
/// Number of faults that are shown for each rule.
const SHOWN: usize = 4;

/// The parameters of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The seed of all choices of the clients and of the time of each kill.
    pub(crate) seed: u64,
    pub(crate) cycles: usize,
    /// Events that the run must contain. On a slow machine they take up to [`LONGER`] times as many cycles.
    pub(crate) required: &'static [&'static str],
    pub(crate) store: Store,
    /// The database of the store, which fails too.
    pub(crate) database: Option<Database>,
    pub(crate) kills: bool,
    pub(crate) fault: Option<ProxyFault>,
}

impl Plan {
    /// A plan of kills without other faults.
    pub(crate) fn new(seed: u64, cycles: usize, store: Store) -> Self {
        Self { seed, cycles, required: &[], store, database: None, kills: true, fault: None }
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The faults of the first epoch with a fault, which ends the run.
    pub(crate) faults: Vec<Fault>,
    pub(crate) cycles: usize,
    pub(crate) calls: usize,
    pub(crate) counters: Counters,
    /// Time from each start after a kill until the server was ready.
    pub(crate) restarts: Vec<Us>,
    /// The last lines of the server's log.
    pub(crate) last_words: String,
}

impl Report {
    /// Counts the calls of an epoch, and adds the faults that the judge finds in the epoch.
    pub(super) fn read(
        &mut self,
        judge: &mut Judge,
        calls: Vec<Call>,
        crash: Option<Crash>,
        snapshots: Result<Vec<Snapshot>, String>,
    ) {
        self.calls += calls.len();
        for call in &calls {
            self.counters.count(call);
        }
        match snapshots {
            Ok(snapshots) => self.faults.extend(judge.read(&Epoch { calls, crash, snapshots })),
            Err(text) => self.faults.push(Fault { rule: Rule::NoReply, text }),
        }
    }

    /// Whether a fault breaks the rule.
    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.faults.iter().any(|fault| fault.rule == rule)
    }

    /// The result in a few lines.
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

/// The state that survives a restart of the server.
struct Run<'a> {
    plan: &'a Plan,
    clock: Clock,
    rng: fastrand::Rng,
    alarm: Arc<Alarm>,
    clients: Clients,
    watcher: Client,
    judge: Judge,
    report: Report,
}

/// Runs the plan until the first fault.
pub(crate) fn run(plan: &Plan) -> Report {
    let clock = Clock::system();
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let alarm = Arc::new(Alarm::new());
    let clients = Clients::new(&clock, &mut rng, &alarm);
    let watcher = Client::new(clock.clone(), 0, alarm.clone());
    let judge = Judge::new(QUEUES.iter().map(|spec| (spec.name, spec.mode)));
    let mut run = Run { plan, clock, rng, alarm, clients, watcher, judge, report: Report::default() };
    let mut server = Spawned::start(&plan.store);
    create(server.api);
    run.snapshot(None, &server);
    let has_required = |run: &Run<'_>| plan.required.iter().all(|event| run.report.counters.of(event) > 0);
    while run.report.cycles < plan.cycles || run.report.cycles < LONGER * plan.cycles && !has_required(&run) {
        let (next, crash) = run.cycle(server);
        server = next;
        run.snapshot(crash, &server);
        run.report.cycles += 1;
        // The number of a forged reply may be a fault before the forged write is missed.
        let is_enough = |fault: ProxyFault| run.report.has(fault.breaks());
        if !run.report.faults.is_empty() && plan.fault.is_none_or(is_enough) {
            return run.report;
        }
    }
    let drained = drain(&mut run.watcher).and_then(|()| snapshot(&mut run.watcher));
    let snapshots = drained.and_then(|mut snapshots| {
        metrics_of_drained(server.api, &mut snapshots)?;
        Ok(snapshots)
    });
    run.read(None, snapshots, &server);
    run.report
}

/// Most servers are killed under load, some while they write their last checkpoint, and a few stop cleanly.
fn end_of(rng: &mut fastrand::Rng) -> End {
    match rng.u32(..10) {
        0..7 => End::Kill,
        7..9 => End::Stop { patience: Duration::from_millis(rng.u64(STOP_MS)) },
        _ => End::Stop { patience: STOP },
    }
}

impl Run<'_> {
    /// Runs the load, and kills the server or its database if the plan says so. Returns the server that runs afterwards.
    fn cycle(&mut self, server: Spawned) -> (Spawned, Option<Crash>) {
        let long = if self.rng.u64(..LONG_LOADS) == 0 { LONG_MS } else { 0 };
        let time = Duration::from_millis(self.rng.u64(LOAD_MS) + long);
        let proxy = self.plan.fault.map(|fault| FaultyProxy::start(server.api, fault));
        let address = proxy.as_ref().map_or(server.api, |proxy| proxy.address);
        let end = if self.plan.fault.is_none() { end_of(&mut self.rng) } else { End::Kill };
        let moment = self.rng.choice(Moment::ALL).filter(|_| self.rng.bool());
        let (kills, clock, alarm) = (self.plan.kills, &self.clock, &self.alarm);
        let outage = Outage::choose(self.plan.database.as_ref(), &mut self.rng);
        let outcome = self.clients.run(address, || {
            std::thread::sleep(time);
            if let Some(proxy) = &proxy {
                proxy.forge(if kills { 1 } else { FORGES_ONE_IN });
                proxy.wait_for_forgery(FORGERY);
            }
            if !kills {
                return Ok(server);
            }
            if let Some(moment) = moment {
                alarm.wait(moment, MOMENT);
            }
            if let Some(outage) = &outage {
                outage.begin();
                return Ok(server);
            }
            Err((server.end(end), clock.monotonic_us()))
        });
        if let (Ok(server), Some(outage)) = (&outcome, &outage) {
            outage.end(server);
        }
        match outcome {
            Ok(server) => {
                let gone = self.clock.monotonic_us();
                (server, outage.map(|_| Crash { gone, restart: None }))
            }
            Err((last_words, gone)) => {
                self.report.last_words = last_words;
                let restart = self.clock.monotonic_us();
                let server = Spawned::start(&self.plan.store);
                self.report.restarts.push(self.clock.monotonic_us() - restart);
                if matches!(self.plan.store, Store::Memory) {
                    create(server.api);
                }
                (server, Some(Crash { gone, restart: Some(restart) }))
            }
        }
    }

    /// Reads all queues, and gives the epoch to the judge.
    fn snapshot(&mut self, crash: Option<Crash>, server: &Spawned) {
        self.watcher.connect_to(server.api);
        let snapshots = snapshot(&mut self.watcher);
        self.read(crash, snapshots, server);
    }

    /// Gives the judge the calls since the last quiet moment.
    fn read(&mut self, crash: Option<Crash>, snapshots: Result<Vec<Snapshot>, String>, server: &Spawned) {
        let mut calls = self.clients.take_calls();
        calls.append(&mut self.watcher.calls);
        self.report.read(&mut self.judge, calls, crash, snapshots);
        if !self.report.faults.is_empty() {
            self.report.last_words += &server.last_words();
        }
    }
}
