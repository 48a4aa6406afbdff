//! Three nodes on one database under load, of which one at a time fails: killed, frozen, stopped, or cut off from the database.
//! Meanwhile the connections between the nodes fail, and their wall clocks jump.
//!
//! Clients call any node, so most calls are forwarded. After each failure all nodes come back, all queues are read through one of
//! them, and the judge decides.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deltaq_journal::postgres::TTL;
use deltaq_runtime::clock::Clock;
use rustix::process::Signal;

use super::alarm::Alarm;
use super::client::Client;
use super::cycles::Report;
use super::fenced_reads;
use super::history::{Crash, Snapshot};
use super::judge::Judge;
use super::late_writes;
use super::links::{LinkFault, LinkProxy};
use super::load::Clients;
use super::queues::QUEUES;
use super::silences::Silences;
use super::snapshot::{create, drain, snapshot};
use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{End, Spawned, Store};
use crate::harness::waiting::{PATIENCE, found};
use crate::harness::wall_clock::WallClock;
use crate::system::postgres::cluster::Cluster;
use crate::system::postgres::proxy::Proxy;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The partitions of each node while all of them run.
const SHARES: &str = "4 4 4";
/// Duration of the load before and after a fault, in milliseconds.
const LOAD_MS: std::ops::Range<u64> = 100..500;
/// Duration of a fault of the connections between nodes, and the time without one after it, in milliseconds.
const LINK_FAULT_MS: std::ops::Range<u64> = 300..1_500;
const LINK_CALM_MS: std::ops::Range<u64> = 50..300;
/// How far a wall clock is wrong after a jump, in seconds: up to three days in either direction.
const CLOCK_ERROR_S: std::ops::Range<i64> = -260_000..260_000;
const ROUNDS_PER_DRAIN: usize = 16;
/// The time until other nodes own the partitions of a node that has failed.
const TAKEOVER: Duration = Duration::from_secs(TTL.as_secs() + 2);
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
    /// Its connections to the database.
    database: Proxy,
    process: Option<Spawned>,
}

/// The network and the clock of a node, which outlive it.
struct Host {
    /// The connections of the other nodes to it.
    link: LinkProxy,
    wall_clock: WallClock,
}

impl Node {
    fn start(&mut self, secret: &PathBuf, host: &Host) {
        let store = Store::Url(self.database.url());
        let advertised = format!("http://{}", host.link.address);
        let process = Spawned::start_known(&store, host.link.node, |command: &mut Command| {
            command.args(["--node-name", self.name, "--advertise", &advertised]);
            command.env("DELTAQ_CLUSTER__SECRET_FILE", secret);
            host.wall_clock.give(command);
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
    /// Of each node.
    hosts: Vec<Host>,
    clock: Clock,
    rng: fastrand::Rng,
    clients: Clients,
    watcher: Client,
    judge: Judge,
    report: Report,
    silences: Silences,
    /// How long a process was frozen in the last round, in microseconds.
    frozen_us: u64,
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
    let node = |name| Node { name, database: Proxy::start(cluster.socket()), process: None };
    let nodes = NAMES.into_iter().map(node).collect();
    let host = |name| {
        let wall_clock = WallClock::new(cluster.folder().join(format!("clock-{name}")));
        Host { link: LinkProxy::start(), wall_clock }
    };
    let hosts = NAMES.into_iter().map(host).collect();
    let (report, silences) = (Report::default(), Silences::default());
    let mut run = Run {
        cluster,
        secret,
        nodes,
        hosts,
        clock,
        rng,
        clients,
        watcher,
        judge,
        report,
        silences,
        frozen_us: 0,
    };
    for (node, host) in run.nodes.iter_mut().zip(&run.hosts) {
        node.start(&run.secret, host);
    }
    run.wait_for_shares();
    create(run.nodes[0].process().api);
    run.wait_until_quiet();
    fenced_reads::change(&[run.nodes[0].process().api]);
    run.read(None, None, Run::snapshot);
    for round in 0..rounds {
        let failure = Failure::ALL[round % Failure::ALL.len()];
        println!("{failure:?}");
        let crash = run.round(round, failure);
        run.wait_until_quiet();
        run.read(Some(crash), Some(failure), Run::snapshot);
        // An ack takes one delta from the queue of mode events, so they would become too many for one page of a list.
        if round % ROUNDS_PER_DRAIN == ROUNDS_PER_DRAIN - 1 {
            run.read(None, None, Run::drained);
        }
        run.report.cycles += 1;
        if !run.report.faults.is_empty() {
            return run.report;
        }
    }
    let hits: usize = run.hosts.iter().map(|host| host.link.hits()).sum();
    println!("faults of connections between nodes have hit {hits} pieces of bytes");
    assert!(hits > 0 || rounds < LinkFault::ALL.len(), "the connections between nodes never failed");
    run.read(None, None, Run::drained);
    println!("{}", run.silences.summary());
    let is_long_run = rounds > Failure::ALL.len();
    assert!(
        !is_long_run || run.silences.too_long().is_empty(),
        "answers are late after {:?}",
        run.silences.too_long()
    );
    run.report
}

impl Run {
    /// Runs the load, and a failure in the middle of it, while links fail and wall clocks jump.
    fn round(&mut self, round: usize, failure: Failure) -> Crash {
        let (mut troubles, is_over) = (self.rng.fork(), AtomicBool::new(false));
        let victim = self.rng.usize(..self.nodes.len());
        let addresses: Vec<_> = self.nodes.iter().map(|node| node.process().api).collect();
        let [before, after] = [(); 2].map(|()| Duration::from_millis(self.rng.u64(LOAD_MS)));
        let Self { cluster, nodes, hosts, clients, secret, report, clock, frozen_us, .. } = self;
        *frozen_us = 0;
        let (node, hosts) = (&mut nodes[victim], &*hosts);
        let others: Vec<_> =
            addresses.iter().copied().filter(|address| *address != addresses[victim]).collect();
        let send_reads = || fenced_reads::send(addresses[victim], fenced_reads::change(&others));
        let mut fail = || {
            std::thread::sleep(before);
            match failure {
                Failure::Killed | Failure::TakenOver | Failure::Stopped => {
                    let process = node.process.take().expect("the node runs");
                    let is_stopped = matches!(failure, Failure::Stopped);
                    process.end(if is_stopped { End::Stop { patience: PATIENCE } } else { End::Kill });
                    if matches!(failure, Failure::TakenOver) {
                        std::thread::sleep(TAKEOVER);
                    }
                    node.start(secret, &hosts[victim]);
                }
                Failure::Frozen => {
                    let begun_us = clock.monotonic_us();
                    node.process().freeze();
                    std::thread::sleep(TAKEOVER);
                    let reads = send_reads();
                    node.process().signal("CONT");
                    *frozen_us = clock.monotonic_us() - begun_us;
                    report.faults.extend(reads.faults());
                }
                Failure::Cut => node.database.cut(),
                Failure::CutOff | Failure::Silent => {
                    if matches!(failure, Failure::CutOff) {
                        node.database.refuse();
                    } else {
                        node.database.black_hole();
                    }
                    std::thread::sleep(TAKEOVER);
                    report.faults.extend(send_reads().faults());
                    node.database.release();
                }
                Failure::Restarted => {
                    cluster.end(Signal::INT);
                    cluster.restart();
                }
            }
            std::thread::sleep(after);
        };
        clients.run_on(&addresses, || {
            std::thread::scope(|scope| {
                scope.spawn(|| disturb(hosts, round, &mut troubles, &is_over));
                // A panic must not leave the other thread running for ever.
                let _over = Over(&is_over);
                fail();
            });
        });
        Crash { gone: self.clock.monotonic_us(), restart: None }
    }

    /// Waits until each node has its share of the partitions.
    fn wait_for_shares(&self) {
        let shares = "SELECT string_agg(count::text, ' ') FROM (\
             SELECT count(*) FROM deltaq.partitions WHERE node IS NOT NULL GROUP BY node) AS shares";
        found(|| {
            let owners = self.cluster.sql(shares);
            if owners == SHARES { Ok(()) } else { Err(format!("the shares are {owners}")) }
        });
    }

    /// Waits until each node has its share of the partitions, and answers for each queue.
    fn wait_until_quiet(&self) {
        self.wait_for_shares();
        for node in &self.nodes {
            let server = node.process();
            for spec in QUEUES {
                let get = Message::get(spec.path(""));
                found(|| {
                    let reply = Connection::open(server.api).and_then(|mut connection| connection.call(&get));
                    match &reply {
                        Ok(found) if found.status() == Some(200) => Ok(()),
                        _ => {
                            let log = server.last_words();
                            Err(format!("{} {reply:?} at {}:\n{log}", spec.name, node.name))
                        }
                    }
                });
            }
        }
    }

    /// Delivers and acknowledges everything, and reads all queues.
    fn drained(&mut self) -> Result<Vec<Snapshot>, String> {
        drain(&mut self.watcher)?;
        self.snapshot()
    }

    /// Reads all queues through one of the nodes.
    fn snapshot(&mut self) -> Result<Vec<Snapshot>, String> {
        let node = self.rng.usize(..self.nodes.len());
        self.watcher.connect_to(self.nodes[node].process().api);
        snapshot(&mut self.watcher)
    }

    /// Gives the judge the calls since the last quiet moment.
    fn read(
        &mut self,
        crash: Option<Crash>,
        failure: Option<Failure>,
        look: impl FnOnce(&mut Self) -> Result<Vec<Snapshot>, String>,
    ) {
        let snapshots = look(self);
        let mut calls = self.clients.take_calls();
        if let Some(failure) = failure {
            self.silences.add(format!("{failure:?}"), self.frozen_us, &calls);
        }
        calls.append(&mut self.watcher.calls);
        self.report.read(&mut self.judge, calls, crash, snapshots);
        late_writes::find(&self.cluster, &mut self.report);
        if !self.report.faults.is_empty() {
            for node in &self.nodes {
                let Node { name, .. } = node;
                let _ = writeln!(self.report.last_words, "node {name}:\n{}", node.process().last_words());
            }
        }
    }
}

/// Ends the disturbances when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets the connections between nodes fail and wall clocks jump, one after the other, until the round is over: each fault is the first one of
/// a round in turn. The wall clocks stay wrong.
fn disturb(hosts: &[Host], round: usize, rng: &mut fastrand::Rng, is_over: &AtomicBool) {
    for fault in LinkFault::ALL.into_iter().cycle().skip(round) {
        hosts[rng.usize(..hosts.len())].wall_clock.set(rng.i64(CLOCK_ERROR_S));
        let link = &hosts[rng.usize(..hosts.len())].link;
        link.begin(fault);
        std::thread::sleep(Duration::from_millis(rng.u64(LINK_FAULT_MS)));
        link.release();
        std::thread::sleep(Duration::from_millis(rng.u64(LINK_CALM_MS)));
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}
