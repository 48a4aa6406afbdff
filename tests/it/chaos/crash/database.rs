//! A PostgreSQL server under a server of deltaq: it is killed, restarted and cut off under load.

use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::blocking::{Connection, Message};
use crate::harness::server::Spawned;
use crate::harness::waiting::{PATIENCE, found_within};
use crate::system::postgres::cluster::Cluster;
use crate::system::postgres::proxy::Proxy;

/// How often all connections are cut in one outage, and the time between.
const CUTS: u32 = 3;
const CUT_PERIOD: Duration = Duration::from_millis(150);

/// A server of PostgreSQL behind a proxy.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) cluster: Mutex<Cluster>,
    pub(crate) proxy: Proxy,
}

impl Database {
    /// Starts a server that syncs its commits to the disk.
    pub(crate) fn durable() -> Self {
        Self::of(Cluster::durable())
    }

    /// Starts a server that ignores fsync.
    pub(crate) fn volatile() -> Self {
        Self::of(Cluster::start())
    }

    fn of(cluster: Cluster) -> Self {
        let proxy = Proxy::start(cluster.socket());
        Self { cluster: Mutex::new(cluster), proxy }
    }

    /// The address for deltaq.
    pub(crate) fn url(&self) -> String {
        self.proxy.url()
    }
}

/// The way in which a server loses its database for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// SIGKILL; the database replays its WAL.
    Killed,
    /// A restart that ends all transactions.
    Restarted,
    /// All connections are cut several times, at any moment of a transaction.
    Cut,
    /// The connection is cut after a commit, before its answer.
    CutAnswer,
}

/// An outage of the database of a server that lives on.
#[derive(Debug)]
pub(crate) struct Outage<'a> {
    database: &'a Database,
    kind: Kind,
}

impl<'a> Outage<'a> {
    /// Chooses what happens in a cycle. `None`: the server itself ends.
    pub(crate) fn choose(database: Option<&'a Database>, rng: &mut fastrand::Rng) -> Option<Self> {
        let database = database?;
        let kind = match rng.u32(..8) {
            0..3 => return None,
            3..5 => Kind::Killed,
            5 => Kind::Restarted,
            6 => Kind::Cut,
            _ => Kind::CutAnswer,
        };
        Some(Self { database, kind })
    }

    /// Begins the outage, while the clients call.
    pub(crate) fn begin(&self) {
        match self.kind {
            Kind::Killed => self.database.cluster.lock().end(Signal::KILL),
            Kind::Restarted => self.database.cluster.lock().end(Signal::INT),
            Kind::Cut => {
                for _ in 0..CUTS {
                    self.database.proxy.cut();
                    std::thread::sleep(CUT_PERIOD);
                }
            }
            Kind::CutAnswer => {
                self.database.proxy.cut_next_answer();
                for _ in 0..CUTS {
                    std::thread::sleep(CUT_PERIOD);
                }
            }
        }
    }

    /// Ends the outage, and waits until the server takes changes again.
    pub(crate) fn end(&self, server: &Spawned) {
        if matches!(self.kind, Kind::Killed | Kind::Restarted) {
            self.database.cluster.lock().restart();
        }
        until_changes_are_taken(server);
    }
}

/// Waits until a server takes changes.
pub(crate) fn until_changes_are_taken(server: &Spawned) {
    let add = Message::post("/v1/queues/probe/add".to_owned(), &json!({"key": "a"}));
    found_within(2 * PATIENCE, || {
        let answer = Connection::open(server.api).and_then(|mut connection| connection.call(&add));
        let is_taken = answer.is_ok_and(|answer| answer.status() == Some(200));
        if is_taken { Ok(()) } else { Err(server.last_words()) }
    });
    assert!(server.becomes_ready(), "the server has ended:\n{}", server.last_words());
}
