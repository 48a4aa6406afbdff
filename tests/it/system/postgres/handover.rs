//! Calls when the queues of a node get another owner: after SIGTERM, and after SIGKILL.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deltaq_journal::postgres::TTL;
use deltaq_types::Timestamp;
use serde_json::json;

use super::nodes::{Nodes, PARTITIONS, QUEUES, call_at, claims, until_claimed};
use crate::harness::blocking::Message;
use crate::harness::server::End;
use crate::harness::waiting::{PATIENCE, found, until};

/// Number of calls of each client before and after the end of a node.
const CALLS: u64 = 50;

/// Clients of all queues, which call the node that stays.
#[derive(Default)]
struct Clients {
    /// Number of calls of each queue that have succeeded.
    done: [AtomicU64; QUEUES.len()],
    is_over: AtomicBool,
    /// Number of replies that ask a client to repeat its call.
    repeats: AtomicU64,
}

impl Clients {
    /// Adds keys to a queue until the end, and repeats each call as its reply asks.
    fn run(&self, node: SocketAddr, queue: usize) {
        for key in 0..u64::MAX {
            let add = json!({ "key": key.to_string() });
            let add = Message::post(format!("/v1/queues/{}/add", QUEUES[queue]), &add);
            found(|| {
                let (status, body) = call_at(node, &add);
                if status == 200 {
                    return Ok(());
                }
                assert!(status == 503 && body["retryable"] == true, "{status} {body}");
                self.repeats.fetch_add(1, Ordering::Relaxed);
                let wait_ms = body["retry_after_ms"].as_u64().unwrap_or_else(|| panic!("{body}"));
                std::thread::sleep(Duration::from_millis(wait_ms));
                Err(body)
            });
            self.done[queue].fetch_add(1, Ordering::Relaxed);
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Waits until the client of each queue has made some more calls.
    fn until_all_go_on(&self) {
        let before = self.done.each_ref().map(|done| done.load(Ordering::Relaxed));
        let mut late: BTreeSet<usize> = (0..QUEUES.len()).collect();
        until("calls succeed at all queues", || {
            late.retain(|queue| self.done[*queue].load(Ordering::Relaxed) < before[*queue] + CALLS);
            late.is_empty()
        });
    }
}

/// Ends one of two nodes under load, and checks that the other one has claimed all partitions of it for this cause.
fn hands_over(end: End, cause: &str) {
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
        let before = claims(b.api, cause);
        a.end(end);
        nodes.until_owners(&[("b", PARTITIONS)]);
        clients.until_all_go_on();
        until_claimed(b.api, cause, before + (PARTITIONS / 2) as u64);
    });
    println!("{} repeats", clients.repeats.into_inner());
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
    // A released partition is claimed without waiting for the heartbeats to be missed.
    hands_over(End::Stop { patience: PATIENCE }, "released");
}

#[test]
fn no_call_fails_after_the_kill_of_a_node() {
    hands_over(End::Kill, "taken_over");
}

#[test]
fn a_window_is_the_same_after_the_kill_of_its_node() {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    std::thread::sleep(TTL);
    let add = |queue: &str, debounce: &str| {
        let path = format!("/v1/queues/{queue}/add?{debounce}");
        let (status, body) = call_at(b.api, &Message::post(path, &json!({"key": "k"})));
        assert_eq!(status, 200, "{body}");
    };
    // The seconds from the end of the quiet time to the latest end, which do not depend on the clocks of the nodes.
    let window = |queue: &str| {
        let explain = Message::get(format!("/v1/queues/{queue}/explain/k"));
        found(|| {
            let (status, body) = call_at(b.api, &explain);
            if status != 200 {
                return Err(body);
            }
            assert_eq!(body["reason"], "debouncing", "{body}");
            let [due, latest] = ["due_at", "latest_at"].map(|name| {
                let time: Timestamp = serde_json::from_value(body[name].clone()).expect("a time");
                time.as_micros()
            });
            // Times have whole milliseconds.
            Ok((latest - due + 500_000) / 1_000_000)
        })
    };
    for queue in QUEUES {
        add(queue, "debounce=1h&max_wait=61m");
    }
    let of_a: Vec<&str> = QUEUES.into_iter().filter(|queue| nodes.owner_of(queue) == "a").collect();
    assert!(!of_a.is_empty());
    let before: Vec<u64> = of_a.iter().map(|queue| window(queue)).collect();
    a.end(End::Kill);
    nodes.until_owners(&[("b", PARTITIONS)]);
    let after: Vec<u64> = of_a.iter().map(|queue| window(queue)).collect();
    assert_eq!(after, before);
    for queue in of_a {
        add(queue, "debounce=10h");
        assert_eq!(window(queue), 0, "the first change bounds the wait at the new owner, too");
    }
}
