//! `deltaq bench`: how much a server takes, and how fast it answers.
//!
//! It is a load generator of the kind of redis-benchmark: a number of connections, each of which does the same
//! operation again and again and waits for its answer. All of them share one thread, requests are rendered before the
//! first is sent, and of an answer is read what the next request needs and nothing more, so that the generator takes
//! less of the machine than the server that it measures.
//!
//! It is no HTTP client: it reads answers with a `content-length` alone, over plain TCP.

mod http;
mod keys;
mod load;
mod report;
mod scenario;
mod wire;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::clock::Clock;

pub use self::http::Caller;
pub use self::keys::{Keys, Objects};
pub use self::load::{Done, Pace, Progress, Worker, drive};
pub use self::report::{Latencies, Measured};
pub use self::scenario::Scenario;
pub use self::wire::Wire;

use self::scenario::Actor;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Host and port of the server.
    pub authority: String,
    /// What each connection does again and again.
    pub scenario: Scenario,
    /// Names of the queues; the connections are spread over them.
    pub queues: Vec<String>,
    /// Connections.
    pub connections: usize,
    /// Objects in a request, keys in a pop, or objects in a Replace.
    pub batch: usize,
    /// Length of an object, in bytes of JSON.
    pub object_bytes: usize,
    /// Keys are drawn from so many at random; each is new without it.
    pub keys: Option<u64>,
    /// What the server takes as a bearer token.
    pub token: Option<String>,
    /// How long, and with which pauses.
    pub pace: Pace,
}

/// From how many keys those of [`Scenario::Mixed`] are drawn, unless the plan says it.
const MIXED_KEYS: u64 = 10_000;

/// Runs a plan; tells `progress` how it goes on, each second.
///
/// # Errors
/// If the plan contradicts itself, the server can't be reached, or it answers anything but a success.
pub async fn run(plan: &Plan, clock: &Clock, progress: impl FnMut(Progress)) -> io::Result<Measured> {
    let next = Arc::new(AtomicU64::new(0));
    let space = match plan.scenario {
        Scenario::HotKey => Some(1),
        // Updates and deletes are of keys that are there.
        Scenario::Mixed => plan.keys.or(Some(MIXED_KEYS)),
        _ => plan.keys,
    };
    if space.is_some_and(|space| (plan.batch as u64) > space) {
        return Err(wrong("a request has more objects than there are keys"));
    }
    if plan.scenario == Scenario::HandOff && plan.connections > plan.queues.len() {
        return Err(wrong("each hand-off needs a queue of its own, or pops wait for the objects of others"));
    }
    let (mut workers, mut beside) = (Vec::new(), Vec::new());
    for index in 0..plan.connections {
        let keys = Keys::new(Arc::clone(&next), space);
        workers.push((index % plan.queues.len().max(1), Actor::open(plan, index, keys).await?));
    }
    if plan.scenario == Scenario::HotKey {
        for index in 0..plan.queues.len() {
            beside.push(Actor::consumer(plan, index).await?);
        }
    }
    drive(workers, beside, &plan.pace, clock, progress).await
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Makes a queue, by a PUT of its settings.
///
/// # Errors
/// If the server can't be reached, or refuses.
pub async fn create(plan: &Plan, queue: &str) -> io::Result<()> {
    let mut caller = Caller::open(&plan.authority, plan.token.as_deref()).await?;
    caller.call("PUT", &format!("/v1/queues/{queue}"), "{\"max_keys\":100000000}").await.map(drop)
}

/// Deletes a queue and all that is in it.
///
/// # Errors
/// If the server can't be reached, or refuses.
pub async fn delete(plan: &Plan, queue: &str) -> io::Result<()> {
    let mut caller = Caller::open(&plan.authority, plan.token.as_deref()).await?;
    caller.call("DELETE", &format!("/v1/queues/{queue}"), "").await.map(drop)
}
