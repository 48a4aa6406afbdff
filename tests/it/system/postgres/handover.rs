//! How long calls wait when the queues of a node get another owner: after SIGTERM, and after SIGKILL.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deltaq_journal::postgres::TTL;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::nodes::{Nodes, PARTITIONS, PATIENCE, QUEUES, call_at};
use crate::chaos::crash::server::End;
use crate::harness::blocking::Message;

/// Number of calls of each client before and after the end of a node.
const CALLS: u64 = 50;
/// The time for loading these few keys, and for the client to repeat its call.
const LOAD: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Clients of all queues, which call the node that stays.
#[derive(Default)]
struct Clients {
    /// Number of calls of each queue that have succeeded.
    done: [AtomicU64; QUEUES.len()],
    is_over: AtomicBool,
    waits: Mutex<Waits>,
}

/// How long calls took until they succeeded.
#[derive(Debug, Default)]
struct Waits {
    longest: Duration,
    /// Number of replies that ask the client to repeat its call.
    repeats: u64,
}

impl Clients {
    /// Adds keys to a queue until the end, and repeats each call as its reply asks.
    fn run(&self, node: SocketAddr, queue: usize) {
        for key in 0..u64::MAX {
            let add = json!({ "key": key.to_string() });
            let add = Message::post(format!("/v1/queues/{}/add", QUEUES[queue]), &add);
            let begun = Instant::now();
            let mut repeats = 0;
            loop {
                let (status, body) = call_at(node, &add);
                if status == 200 {
                    break;
                }
                assert!(status == 503 && body["retryable"] == true, "{status} {body}");
                assert!(begun.elapsed() < PATIENCE, "{body}");
                repeats += 1;
                let wait_ms = body["retry_after_ms"].as_u64().unwrap_or_else(|| panic!("{body}"));
                std::thread::sleep(Duration::from_millis(wait_ms));
            }
            let mut waits = self.waits.lock();
            waits.longest = waits.longest.max(begun.elapsed());
            waits.repeats += repeats;
            self.done[queue].fetch_add(1, Ordering::Relaxed);
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Waits until the client of each queue has made some more calls.
    fn until_all_go_on(&self) {
        let begun = Instant::now();
        let before = self.done.each_ref().map(|done| done.load(Ordering::Relaxed));
        let mut late: BTreeSet<usize> = (0..QUEUES.len()).collect();
        while !late.is_empty() {
            late.retain(|queue| self.done[*queue].load(Ordering::Relaxed) < before[*queue] + CALLS);
            assert!(begun.elapsed() < PATIENCE, "no calls succeed at {late:?}");
            std::thread::sleep(PAUSE);
        }
    }
}

/// Ends one of two nodes under load. Returns how long calls had to wait.
fn waits(end: End) -> Waits {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    // A node removes no other node before it has sent heartbeats for this long.
    std::thread::sleep(TTL);
    let clients = Clients::default();
    std::thread::scope(|scope| {
        for queue in 0..QUEUES.len() {
            let (clients, node) = (&clients, b.api);
            scope.spawn(move || clients.run(node, queue));
        }
        let _over = Over(&clients.is_over);
        clients.until_all_go_on();
        a.end(end);
        nodes.until_owners(&[("b", PARTITIONS)]);
        clients.until_all_go_on();
    });
    clients.waits.into_inner()
}

/// Ends the clients when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_call_fails_while_a_node_stops() {
    let waits = waits(End::Stop { patience: PATIENCE });
    println!("{waits:?}");
    assert!(waits.longest < TTL / 2, "the handover waited for the heartbeats: {waits:?}");
}

#[test]
fn calls_succeed_soon_after_the_kill_of_a_node() {
    let waits = waits(End::Kill);
    println!("{waits:?}");
    assert!(waits.longest < TTL + Duration::from_secs(2) + LOAD, "{waits:?}");
}
