//! `deltaq bench`: measures the throughput and latency of a server.
//!
//! It is a load generator like redis-benchmark: each of a number of connections repeats one operation and waits for
//! the response. The generator uses less CPU than the server: all connections share one thread, requests are rendered
//! before the first one is sent, and only the parts of a response that the next request needs are read.
//!
//! It is not a general HTTP client: it reads only responses with a `content-length`, over plain TCP.

mod http;
mod keys;
mod load;
mod report;
mod scenario;
mod wire;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use deltaq_runtime::clock::Clock;

pub use self::http::HttpClient;
pub use self::keys::{Keys, Objects};
pub use self::load::{Progress, Timing, Worker, drive};
pub use self::report::{Done, Latencies, Measured};
pub use self::scenario::Scenario;
pub use self::wire::Wire;

use self::scenario::Actor;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Host and port of the server.
    pub authority: String,
    /// The operation that each connection repeats.
    pub scenario: Scenario,
    /// Names of the queues. The connections are distributed over the queues.
    pub queues: Vec<String>,
    /// Number of connections.
    pub connections: usize,
    /// Number of objects per request or Replace, and of keys per pop.
    pub batch: usize,
    /// Length of an object, in bytes of JSON.
    pub object_bytes: usize,
    /// The number of keys to draw from at random. If unset, each key is new.
    pub keys: Option<u64>,
    /// The bearer token.
    pub token: Option<String>,
    /// The durations of the run, and the pause of its workers.
    pub timing: Timing,
}

/// Number of keys for [`Scenario::Mixed`] if the plan does not set it.
const MIXED_KEYS: u64 = 10_000;

/// Runs a plan, and calls `progress` each second.
///
/// # Errors
/// The plan is inconsistent, the server can't be reached, or a response is not a success.
pub async fn run(plan: &Plan, clock: &Clock, progress: impl FnMut(Progress)) -> io::Result<Measured> {
    let next = Arc::new(AtomicU64::new(0));
    let space = match plan.scenario {
        Scenario::HotKey => Some(1),
        // Updates and deletes need existing keys.
        Scenario::Mixed => plan.keys.or(Some(MIXED_KEYS)),
        _ => plan.keys,
    };
    if space.is_some_and(|space| (plan.batch as u64) > space) {
        return Err(wrong("a request has more objects than there are keys"));
    }
    if plan.scenario == Scenario::HandOff && plan.connections > plan.queues.len() {
        return Err(wrong(
            "each hand-off needs its own queue; otherwise pops get objects of other connections",
        ));
    }
    let (mut workers, mut uncounted) = (Vec::new(), Vec::new());
    for index in 0..plan.connections {
        let keys = Keys::new(Arc::clone(&next), space);
        workers.push((index % plan.queues.len().max(1), Actor::open(plan, index, keys).await?));
    }
    if plan.scenario == Scenario::HotKey {
        for index in 0..plan.queues.len() {
            uncounted.push(Actor::consumer(plan, index).await?);
        }
    }
    drive(workers, uncounted, &plan.timing, clock, progress).await
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Creates a queue with a PUT of its settings.
///
/// # Errors
/// The server can't be reached, or refuses.
pub async fn create(plan: &Plan, queue: &str) -> io::Result<()> {
    let mut client = HttpClient::open(&plan.authority, plan.token.as_deref()).await?;
    client.call("PUT", &format!("/v1/queues/{queue}"), "{\"max_keys\":100000000}").await.map(drop)
}

/// Deletes a queue and its contents.
///
/// # Errors
/// The server can't be reached, or refuses.
pub async fn delete(plan: &Plan, queue: &str) -> io::Result<()> {
    let mut client = HttpClient::open(&plan.authority, plan.token.as_deref()).await?;
    client.call("DELETE", &format!("/v1/queues/{queue}"), "").await.map(drop)
}
