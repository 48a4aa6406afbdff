//! Reads at a node that has lost its partitions and does not know it yet: a reply must have the changes of the next owner.
//!
//! The queues get no other calls, so their former owner has no commit that fails. A queue whose commit has failed answers nothing, whoever owns it,
//! and so hides an owner that answers for too long.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::judge::{Fault, Rule};
use crate::harness::blocking::{Connection, Message};
use crate::harness::waiting::found_within;

/// Number of the queues: with so many, each node owns some.
const QUEUES: usize = 24;
/// How long a test waits for a change: the time of several attempts on a machine that stalls.
const CHANGE: Duration = Duration::from_mins(5);
/// How long a reply may take. A read that is forwarded may take longer, and is no evidence. A change gets as much time again for each attempt.
const REPLY: Duration = Duration::from_secs(3);

/// A read that was sent and has no reply yet.
struct Read {
    queue: usize,
    /// The number that the reply must have at least.
    newest: u64,
    connection: Connection,
}

/// Reads that were sent to one node.
pub(super) struct Reads(Vec<Read>);

/// Changes all queues through one of the nodes. Returns the number of each change.
pub(super) fn change(nodes: &[SocketAddr]) -> Vec<u64> {
    std::thread::scope(|scope| {
        let changes: Vec<_> = (0..QUEUES).map(|queue| scope.spawn(move || changed(nodes, queue))).collect();
        changes.into_iter().map(|change| change.join().expect("the change succeeds")).collect()
    })
}

fn changed(nodes: &[SocketAddr], queue: usize) -> u64 {
    let add = Message::post(path(queue, "/add"), &json!({ "key": "a" }));
    let mut attempts = nodes.iter().cycle().zip(1..);
    found_within(CHANGE, || {
        let (node, attempt) = attempts.next().expect("there are nodes");
        let reply = Connection::open_within(*node, REPLY * attempt).and_then(|mut open| open.call(&add));
        match &reply {
            Ok(added) if added.status() == Some(200) => Ok(number(&added.body).expect("an Add has a number")),
            _ => Err(format!("{}: {reply:?}", path(queue, ""))),
        }
    })
}

/// Sends a read of each queue to a node. `newest` has the numbers of the last changes.
pub(super) fn send(node: SocketAddr, newest: Vec<u64>) -> Reads {
    let sent = newest.into_iter().enumerate().filter_map(|(queue, newest)| {
        let mut connection = Connection::open_within(node, REPLY).ok()?;
        let text = format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", path(queue, "/items"));
        connection.send(text.as_bytes()).ok()?;
        Some(Read { queue, newest, connection })
    });
    Reads(sent.collect())
}

impl Reads {
    /// Reads the replies, and returns a fault for each that lacks a change.
    pub(super) fn faults(self) -> Vec<Fault> {
        let stale = |Read { queue, newest, mut connection }: Read| {
            let reply = connection.receive().ok().filter(|reply| reply.status() == Some(200))?;
            let body = String::from_utf8_lossy(&reply.body).into_owned();
            let is_stale = number(&reply.body).is_none_or(|found| found < newest);
            let text = format!("{}: the reply lacks the change {newest}: {body}", path(queue, ""));
            is_stale.then_some(Fault { rule: Rule::StaleRead, text })
        };
        self.0.into_iter().filter_map(stale).collect()
    }
}

fn path(queue: usize, rest: &str) -> String {
    format!("/v1/queues/quiet-{queue}{rest}")
}

fn number(body: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(body).ok()?["resource_version"].as_u64()
}
