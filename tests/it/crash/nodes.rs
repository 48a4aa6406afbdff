//! Three nodes on one database under load, of which one at a time fails: killed, frozen, stopped, or cut off from the database.
//!
//! Clients call any node, so most calls are forwarded. After each fault all nodes come back, all queues are read through one of them,
//! and the judge decides.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use deltaq::clock::Clock;
use deltaq::journal::postgres::TTL;
use rustix::process::Signal;

use super::alarm::Alarm;
use super::client::Client;
use super::cycles::Report;
use super::history::{Crash, Snapshot};
use super::judge::Judge;
use super::load::Clients;
use super::queues::QUEUES;
use super::server::{End, Spawned, Store};
use super::snapshot::{create, drain, snapshot};
use crate::harness::blocking::{Connection, Message};
use crate::postgres::cluster::Cluster;
use crate::postgres::proxy::Proxy;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The partitions of each node while all of them run.
const SHARES: &str = "4 4 4";
/// Duration of the load before and after a fault, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 100..500;
/// The time until other nodes own the partitions of a node that has failed.
const TAKEOVER: Duration = Duration::from_secs(TTL.as_secs() + 2);
/// Longest time until every node answers for every queue again, and the wait between two looks.
const QUIET: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// What happens to a node, or to the database.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// SIGKILL, and a new process at once.
    Killed,
    /// SIGKILL, and a new process after the takeover.
    TakenOver,
    /// SIGSTOP, and SIGCONT after the takeover.
    Frozen,
    /// SIGTERM, and a new process.
    Stopped,
    /// Its connections to the database are cut.
    Cut,
    /// It can't reach the database until after the takeover.
    CutOff,
    /// Its connections to the database swallow everything until after the takeover.
    Silent,
    /// The database restarts.
    Restarted,
}

impl Failure {
    /// The failures of consecutive rounds: the first ones are all different.
    const ALL: [Self; 8] = [
        Self::Killed,
        Self::Frozen,
        Self::Stopped,
        Self::CutOff,
        Self::Restarted,
        Self::TakenOver,
        Self::Cut,
        Self::Silent,
    ];
}

struct Node {
    name: &'static str,
    proxy: Proxy,
    process: Option<Spawned>,
}

impl Node {
    fn start(&mut self, secret: &PathBuf) {
        let store = Store::Url(self.proxy.url());
        let process = Spawned::start_with(&store, |command: &mut Command| {
            command.args(["--node-name", self.name, "--advertise", "http://127.0.0.1:0"]);
            command.env("DELTAQ_CLUSTER__SECRET_FILE", secret);
        });
        self.process = Some(process);
    }

    fn process(&self) -> &Spawned {
        self.process.as_ref().expect("the node runs")
    }
}

struct Run {
    cluster: Cluster,
    secret: PathBuf,
    nodes: Vec<Node>,
    clock: Clock,
    rng: fastrand::Rng,
    clients: Clients,
    watcher: Client,
    judge: Judge,
    report: Report,
}

/// Runs that many rounds, or until the first fault.
pub(super) fn run(seed: u64, rounds: usize) -> Report {
    let clock = Clock::system();
    let mut rng = fastrand::Rng::with_seed(seed);
    let alarm = Arc::new(Alarm::new());
    let clients = Clients::new(&clock, &mut rng, &alarm);
    let watcher = Client::new(clock.clone(), 0, alarm);
    let judge = Judge::new(QUEUES.iter().map(|spec| (spec.name, spec.mode)));
    let cluster = Cluster::durable();
    let secret = cluster.folder().join("secret");
    std::fs::write(&secret, SECRET).expect("a file");
    let node = |name| Node { name, proxy: Proxy::start(cluster.socket()), process: None };
    let nodes = NAMES.into_iter().map(node).collect();
    let report = Report::default();
    let mut run = Run { cluster, secret, nodes, clock, rng, clients, watcher, judge, report };
    for node in &mut run.nodes {
        node.start(&run.secret);
    }
    create(run.nodes[0].process().api);
    run.wait_until_quiet();
    run.read(None, Run::snapshot);
    for round in 0..rounds {
        let failure = Failure::ALL[round % Failure::ALL.len()];
        println!("{failure:?}");
        let crash = run.round(failure);
        run.wait_until_quiet();
        run.read(Some(crash), Run::snapshot);
        run.report.cycles += 1;
        if !run.report.faults.is_empty() {
            return run.report;
        }
    }
    run.read(None, |run| drain(&mut run.watcher).and_then(|()| snapshot(&mut run.watcher)));
    run.report
}

impl Run {
    /// Runs the load, and a failure in the middle of it.
    fn round(&mut self, failure: Failure) -> Crash {
        let victim = self.rng.usize(..self.nodes.len());
        let addresses: Vec<_> = self.nodes.iter().map(|node| node.process().api).collect();
        let [before, after] = [(); 2].map(|()| Duration::from_millis(self.rng.u64(LOAD_MS)));
        let Self { cluster, nodes, clients, secret, .. } = self;
        let node = &mut nodes[victim];
        clients.run_on(&addresses, || {
            std::thread::sleep(before);
            match failure {
                Failure::Killed | Failure::TakenOver | Failure::Stopped => {
                    let process = node.process.take().expect("the node runs");
                    let is_stopped = matches!(failure, Failure::Stopped);
                    process.end(if is_stopped { End::Stop { patience: QUIET } } else { End::Kill });
                    if matches!(failure, Failure::TakenOver) {
                        std::thread::sleep(TAKEOVER);
                    }
                    node.start(secret);
                }
                Failure::Frozen => {
                    node.process().signal("STOP");
                    std::thread::sleep(TAKEOVER);
                    node.process().signal("CONT");
                }
                Failure::Cut => node.proxy.cut(),
                Failure::CutOff | Failure::Silent => {
                    if matches!(failure, Failure::CutOff) {
                        node.proxy.refuse();
                    } else {
                        node.proxy.black_hole();
                    }
                    std::thread::sleep(TAKEOVER);
                    node.proxy.release();
                }
                Failure::Restarted => {
                    cluster.end(Signal::INT);
                    cluster.restart();
                }
            }
            std::thread::sleep(after);
        });
        Crash { gone: self.clock.monotonic_us(), restart: None }
    }

    /// Waits until each node has its share of the partitions, and answers for each queue.
    fn wait_until_quiet(&self) {
        let begun = self.clock.monotonic_us();
        let shares = "SELECT string_agg(count::text, ' ') FROM (\
             SELECT count(*) FROM deltaq.partitions WHERE node IS NOT NULL GROUP BY node) AS shares";
        while self.cluster.sql(shares) != SHARES {
            let owners = self.cluster.sql("SELECT partition, node FROM deltaq.partitions ORDER BY 1");
            assert!(self.clock.since(begun) < QUIET, "the owners are\n{owners}");
            std::thread::sleep(PAUSE);
        }
        for node in &self.nodes {
            let server = node.process();
            for spec in QUEUES {
                let get = Message::get(spec.path(""));
                loop {
                    let reply = Connection::open(server.api).and_then(|mut connection| connection.call(&get));
                    if reply.as_ref().is_ok_and(|reply| reply.status() == Some(200)) {
                        break;
                    }
                    let waited = self.clock.since(begun);
                    assert!(
                        waited < QUIET,
                        "{} {reply:?} at {}:\n{}",
                        spec.name,
                        node.name,
                        server.last_words()
                    );
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Reads all queues through one of the nodes.
    fn snapshot(&mut self) -> Result<Vec<Snapshot>, String> {
        let node = self.rng.usize(..self.nodes.len());
        self.watcher.connect_to(self.nodes[node].process().api);
        snapshot(&mut self.watcher)
    }

    /// Gives the judge the calls since the last quiet moment.
    fn read(&mut self, crash: Option<Crash>, look: impl FnOnce(&mut Self) -> Result<Vec<Snapshot>, String>) {
        let snapshots = look(self);
        let mut calls = self.clients.take_calls();
        calls.append(&mut self.watcher.calls);
        self.report.read(&mut self.judge, calls, crash, snapshots);
        if !self.report.faults.is_empty() {
            for node in &self.nodes {
                let Node { name, .. } = node;
                let _ = writeln!(self.report.last_words, "node {name}:\n{}", node.process().last_words());
            }
        }
    }
}
