//! Leases of a forwarded pop whose client has disconnected: the return of the leases is late, and meanwhile the client has
//! repeated the pop. A key has at most one worker, whatever happens to its queue in between.

use serde_json::{Value, json};

use super::nodes::{Nodes, PARTITIONS, QUEUES, SECRET, call_at};
use crate::chaos::crash::links::{LinkFault, LinkProxy};
use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{End, Spawned};
use crate::harness::waiting::{PATIENCE, found, until};

/// The id of the pop that is repeated.
const POP: &str = "pop?max=2&id=x&lease_duration=1h";
/// Bytes of an object that together exceed the buffers of a connection, and the number of these objects.
const LARGE: usize = 900_000;
const LARGE_KEYS: usize = 14;

/// What the test sends as another node. Waits until the node that is called owns the queue.
fn forwarded(node: &Spawned, message: &Message, lines: &[&str]) -> Value {
    let secret = format!("deltaq-node-secret: {SECRET}");
    let lines = [&["deltaq-forwarded: test", &secret], lines].concat();
    found(|| {
        let reply = Connection::open(node.api).and_then(|mut own| own.call_with(message, &lines));
        let reply = reply.expect("a reply");
        let body: Value = serde_json::from_slice(&reply.body).expect("JSON");
        if reply.status() == Some(200) { Ok(body) } else { Err(body) }
    })
}

/// As another node that has forwarded a pop: returns leases whose reply could not be written.
fn send_back(node: &Spawned, queue: &str, leases: &[String]) {
    let message = Message::post(format!("/v1/queues/{queue}/release"), &json!({ "lease_ids": leases }));
    forwarded(node, &message, &["deltaq-undelivered: true"]);
}

fn leases(popped: &Value) -> Vec<String> {
    let items = popped["items"].as_array().unwrap_or_else(|| panic!("{popped}"));
    items.iter().map(|item| item["lease"]["id"].as_str().expect("an id").to_owned()).collect()
}

/// A pop as a client of the node.
fn popped(node: &Spawned, queue: &str) -> Vec<String> {
    let message = Message::post(format!("/v1/queues/{queue}/{POP}"), &json!({}));
    let popped = found(|| match call_at(node.api, &message) {
        (200, popped) => Ok(popped),
        (_, problem) => Err(problem),
    });
    leases(&popped)
}

/// How each of the leases ends if it is acknowledged.
fn acked(node: &Spawned, queue: &str, leases: &[String]) -> Vec<String> {
    let message = Message::post(format!("/v1/queues/{queue}/ack"), &json!({ "lease_ids": leases }));
    let body = call_at(node.api, &message).1;
    let settled = body["settled"].as_array().unwrap_or_else(|| panic!("{body}"));
    settled.iter().map(|settled| settled["result"].as_str().expect("a result").to_owned()).collect()
}

/// A queue of the node with these keys.
fn queue_of(nodes: &Nodes, node: &Spawned, name: &str, objects: &Value) -> &'static str {
    for queue in QUEUES {
        let put = Message::put(format!("/v1/queues/{queue}"), &json!({}));
        until("a queue is created", || call_at(node.api, &put).0 < 300);
    }
    let queue = QUEUES.into_iter().find(|queue| nodes.owner_of(queue) == name).expect("a queue of the node");
    let (status, body) = call_at(node.api, &Message::post(format!("/v1/queues/{queue}/add"), objects));
    assert_eq!(status, 200, "{body}");
    queue
}

#[test]
fn leases_return_only_to_the_claim_that_granted_them() {
    let nodes = Nodes::new();
    let (b, c) = (nodes.start("b"), nodes.start("c"));
    nodes.until_owners(&[("b", PARTITIONS / 2), ("c", PARTITIONS / 2)]);
    let objects = json!([{"key": "k1"}, {"key": "k2"}, {"key": "k3"}, {"key": "k4"}]);
    let queue = queue_of(&nodes, &b, "b", &objects);
    let pop = Message::post(format!("/v1/queues/{queue}/{POP}"), &json!({}));

    // The leases return before the client repeats the pop, which then gets new leases of the same keys.
    let first = leases(&forwarded(&b, &pop, &[]));
    send_back(&b, queue, &first);
    let second = leases(&forwarded(&b, &pop, &[]));
    assert_eq!(second.len(), 2);
    assert!(second.iter().all(|lease| !first.contains(lease)), "{first:?} {second:?}");

    // The client repeats the pop first. It may have acknowledged one of the keys.
    assert_eq!(popped(&b, queue), second);
    assert_eq!(acked(&b, queue, &second[..1]), ["ok"]);
    assert_eq!(popped(&b, queue), second[1..]);
    for _ in 0..2 {
        send_back(&b, queue, &first);
        send_back(&b, queue, &second);
    }
    assert_eq!(popped(&b, queue), second[1..], "the lease has an owner who works");

    // The process starts again with the same name, and does not know of the repeat.
    b.end(End::Kill);
    let b = nodes.start("b");
    send_back(&b, queue, &second);
    assert_eq!(popped(&b, queue), second[1..]);

    // The queue moves to another node, and its client has not repeated anything there.
    b.end(End::Stop { patience: PATIENCE });
    send_back(&c, queue, &second);
    assert_eq!(acked(&c, queue, &second[1..]), ["ok"]);
}

#[test]
fn a_late_return_does_not_reach_the_next_owner() {
    let nodes = Nodes::new();
    let link = LinkProxy::start();
    let a = Spawned::start_with(&nodes.store, |command| {
        command.args(["--node-name", "a", "--advertise", "http://127.0.0.1:0"]);
        command.env("DELTAQ_CLUSTER__SECRET_FILE", &nodes.secret).env("RUST_LOG", "deltaq=debug");
    });
    let advertised = format!("http://{}", link.address);
    let b = Spawned::start_known(&nodes.store, link.node, |command| {
        command.args(["--node-name", "b", "--advertise", &advertised]);
        command.env("DELTAQ_CLUSTER__SECRET_FILE", &nodes.secret);
    });
    let c = nodes.start("c");
    nodes.until_owners(&[("a", PARTITIONS / 3), ("b", PARTITIONS / 3), ("c", PARTITIONS / 3)]);
    let filler = "x".repeat(LARGE);
    let queue = queue_of(&nodes, &c, "b", &json!([{"key": "k0", "filler": filler}]));
    for key in 1..LARGE_KEYS {
        let object = json!([{"key": format!("k{key}"), "filler": filler}]);
        assert_eq!(call_at(c.api, &Message::post(format!("/v1/queues/{queue}/add"), &object)).0, 200);
    }

    // The client of a node disconnects when it has read the head of the reply, and nothing reaches the owner any more.
    let path = format!("/v1/queues/{queue}/pop?max={LARGE_KEYS}&id=x&lease_duration=1h");
    let mut client = Connection::open(a.api).expect("a connection");
    let pop = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
    client.send(pop.as_bytes()).expect("a request");
    client.receive_head().expect("the head of a reply");
    link.begin(LinkFault::Swallowed);
    let hits = link.hits();
    drop(client);
    until("the return of the leases is on its way", || link.hits() > hits);

    // The client repeats the pop at the owner and works on the keys. The owner stops.
    let (status, again) = call_at(b.api, &Message::post(path, &json!({})));
    assert_eq!(status, 200, "{again}");
    let held = leases(&again);
    assert_eq!(held.len(), LARGE_KEYS);
    b.end(End::Stop { patience: PATIENCE });
    nodes.until_owners(&[("a", PARTITIONS / 2), ("c", PARTITIONS / 2)]);
    link.release();
    until("the node gives up the return", || a.process.log().contains("could not be returned"));
    let message = Message::get(format!("/v1/queues/{queue}/status"));
    let status = found(|| match call_at(c.api, &message) {
        (200, status) => Ok(status),
        (_, problem) => Err(problem),
    });
    assert_eq!(status["leased"], LARGE_KEYS, "{status}");
    assert!(acked(&c, queue, &held).iter().all(|result| result == "ok"));
}
