//! Nodes that join: only those that the other nodes can call, that have their secret, and that agree on the partitions. And a
//! wrong clock of a node changes nothing.

use std::time::Duration;

use deltaq_types::{NodeList, NodeStatus};
use serde_json::{Value, json};

use super::commands::printed;
use super::nodes::{Nodes, PARTITIONS, QUEUES, SECRET, add, call_at};
use crate::chaos::crash::links::LinkProxy;
use crate::harness::blocking::{Connection, Message};
use crate::harness::process::deltaq;
use crate::harness::server::{End, Spawned};
use crate::harness::waiting::{PATIENCE, found, until};
use crate::harness::wall_clock::WallClock;

const HOUR_S: i64 = 3_600;

#[test]
fn a_node_with_another_secret_does_not_join() {
    let mut nodes = Nodes::new();
    let a = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS)]);
    let other = SECRET.replace('0', "9");
    let own = std::mem::replace(&mut nodes.secret, nodes.cluster.folder().join("other-secret"));
    // The second cluster may use the same names. A secret that only the new node accepts is none that they share.
    for (name, secrets) in [("b", &*other), ("a", &*other), ("b", &*format!("{other}\n{SECRET}"))] {
        std::fs::write(&nodes.secret, secrets).expect("a file");
        let log = nodes.try_start(name).expect_err("the node is refused");
        let at = format!("its node \"a\" at http://127.0.0.1:{} has another secret", a.api.port());
        for part in [&*at, "cluster.secret_file", "storage.store"] {
            assert!(log.contains(part), "{part}: {log}");
        }
        nodes.until_owners(&[("a", PARTITIONS)]);
        assert_eq!(nodes.cluster.sql("SELECT string_agg(name, ' ') FROM deltaq.nodes"), "a");
        assert_eq!(add(&a, QUEUES[0], "k").0, 200, "the node goes on");
    }
    std::fs::write(&nodes.secret, format!("{SECRET}\n{other}")).expect("a file");
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    assert!(!nodes.cluster.sql("SELECT secrets FROM deltaq.nodes").contains(SECRET));
    // A cluster that is stopped may start with another secret.
    for node in [a, b] {
        node.end(End::Stop { patience: PATIENCE });
    }
    std::fs::write(&nodes.secret, other).expect("a file");
    let _c = nodes.start("c");
    nodes.until_owners(&[("c", PARTITIONS)]);
    drop(own);
}

#[test]
fn a_node_that_the_others_cannot_call_takes_nothing() {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS)]);
    let of_a = format!("http://{}", a.api);
    for (url, why) in
        [("http://127.0.0.1:1", "a call at a node failed"), (&*of_a, "a reply is not from the node")]
    {
        let address = LinkProxy::start().node;
        let b = Spawned::begin(&nodes.store, address, |command| nodes.settings(command, "b", url));
        let said = format!("the node \"a\" has not reached it at {url} (cluster.advertise of this node)");
        found(|| {
            let reply =
                Connection::open(b.api).and_then(|mut own| own.call(&Message::get("/readyz".to_owned())));
            let reply = reply.map_err(|error| error.to_string())?;
            let problem: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let detail = problem["detail"].as_str().unwrap_or_default();
            if reply.status() == Some(503) && detail.contains(&said) {
                Ok(())
            } else {
                Err(problem.to_string())
            }
        });
        until("the log of the node says so", || b.process.log().contains("has not reached it at"));
        until("the log of the other node says so", || {
            let log = a.process.log();
            log.contains(why) && log.contains(&format!("\"url\":\"{url}\""))
        });
        let seen: NodeList =
            serde_json::from_value(call_at(a.api, &Message::get("/v1/nodes".to_owned())).1).expect("a list");
        assert_eq!(seen.nodes.last().map(|node| (&*node.name, node.state)), Some(("b", NodeStatus::Joining)));
        // Longer than it would take to hand over partitions.
        std::thread::sleep(Duration::from_secs(2));
        nodes.until_owners(&[("a", PARTITIONS)]);
        b.end(End::Kill);
        nodes.cluster.sql("DELETE FROM deltaq.nodes WHERE name = 'b'");
    }
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    drop(b);
}

#[test]
fn a_node_names_another_one_that_it_cannot_call() {
    let nodes = Nodes::new();
    // Alone, the node has nobody who would notice that its URL is wrong.
    let a = Spawned::start_with(&nodes.store, |command| nodes.settings(command, "a", "http://127.0.0.1:1"));
    nodes.until_owners(&[("a", PARTITIONS)]);
    let b = Spawned::begin(&nodes.store, LinkProxy::start().node, |command| {
        nodes.settings(command, "b", "http://127.0.0.1:0");
    });
    until("the log names the node and its URL", || {
        let log = b.process.log();
        log.contains("can't call the node \\\"a\\\" at http://127.0.0.1:1 (cluster.advertise of that node)")
    });
    nodes.until_owners(&[("a", PARTITIONS)]);
    drop(a);
}

#[test]
fn a_node_with_another_number_of_partitions_does_not_start() {
    let nodes = Nodes::with_partitions(3);
    let a = nodes.start("a");
    let log = Spawned::try_start(&nodes.store, deltaq(&[]), "127.0.0.1:0", |command| {
        nodes.settings(command, "b", "http://127.0.0.1:0");
        command.env("DELTAQ_CLUSTER__PARTITIONS", "12");
    });
    let log = log.expect_err("it is refused");
    for part in ["it has 3 partitions", "cluster.partitions is 12", "set cluster.partitions = 3"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    nodes.until_owners(&[("a", 3)]);
    drop(a);
}

#[test]
fn a_wrong_wall_clock_of_a_node_ends_no_delay() {
    let nodes = Nodes::new();
    let start = |name: &str, ahead_s: i64| {
        let clock = WallClock::new(nodes.cluster.folder().join(format!("clock-{name}")));
        clock.set(ahead_s);
        let node = Spawned::start_with(&nodes.store, |command| {
            nodes.settings(command, name, "http://127.0.0.1:0");
            clock.give(command);
        });
        nodes.until_owners(&[(name, PARTITIONS)]);
        node
    };
    let delayed = |node: &Spawned, queues: usize| {
        for queue in QUEUES.iter().take(queues) {
            let get = Message::get(format!("/v1/queues/{queue}/status"));
            let status = found(|| match call_at(node.api, &get) {
                (200, status) => Ok(status),
                (_, problem) => Err(problem),
            });
            assert_eq!((&status["delayed"], &status["ready"]), (&json!(1), &json!(0)), "{queue}: {status}");
        }
    };
    for (number, (name, ahead_s)) in
        [("a", 0), ("b", HOUR_S), ("c", -HOUR_S), ("d", 24 * HOUR_S), ("e", 0)].into_iter().enumerate()
    {
        let node = start(name, ahead_s);
        delayed(&node, number);
        let path = format!("/v1/queues/{}/add?delay=10m", QUEUES[number]);
        assert_eq!(call_at(node.api, &Message::post(path, &json!({"key": "k"}))).0, 200);
        delayed(&node, number + 1);
        // The list shows the last heartbeat of each node.
        let (ahead_ms, shown) = found(|| {
            let list = call_at(node.api, &Message::get("/v1/nodes".to_owned())).1;
            let list: NodeList = serde_json::from_value(list).expect("a list");
            let [only] = list.nodes.as_slice() else { return Err(format!("{list:?}")) };
            let is_whole = (only.partitions, only.queues, list.without_owner) == (12, number as u64 + 1, 0);
            if is_whole { Ok((only.clock_ahead_ms, only.clone())) } else { Err(format!("{list:?}")) }
        });
        assert_eq!((&*shown.name, shown.state, shown.this), (name, NodeStatus::Serving, true));
        assert!((ahead_ms - ahead_s * 1_000).abs() < 60_000, "{ahead_ms} ms and not {ahead_s} s");
        node.end(End::Stop { patience: PATIENCE });
    }
}

#[test]
fn the_nodes_of_a_cluster_are_listed() {
    let nodes = Nodes::new();
    let (a, b) = (nodes.start("a"), nodes.start("b"));
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    for queue in QUEUES {
        until("a queue is created", || add(&a, queue, "k").0 == 200);
    }
    let list = found(|| {
        let lists = [&a, &b].map(|node| call_at(node.api, &Message::get("/v1/nodes".to_owned())).1);
        let [of_a, of_b]: [NodeList; 2] = lists.map(|list| serde_json::from_value(list).expect("a list"));
        let counts = |list: &NodeList| {
            let rows = list.nodes.iter().map(|node| (node.name.clone(), node.partitions, node.queues));
            rows.collect::<Vec<_>>()
        };
        let queues: u64 = of_a.nodes.iter().map(|node| node.queues).sum();
        let is_whole = queues == QUEUES.len() as u64 && counts(&of_a) == counts(&of_b);
        if is_whole { Ok(of_a) } else { Err(format!("{of_a:?} {of_b:?}")) }
    });
    let urls: Vec<_> = list.nodes.iter().map(|node| node.url.clone()).collect();
    assert_eq!(urls, [&a, &b].map(|node| format!("http://127.0.0.1:{}", node.api.port())));
    let url = format!("http://{}", b.api);
    let table = printed(&["nodes", "--url", &url]);
    assert!(table.starts_with("NODE") && table.contains(&urls[0]) && table.contains("serving"), "{table}");
    assert_eq!(printed(&["nodes", "--url", &url, "-o", "name"]), "a\nb\n");
}
