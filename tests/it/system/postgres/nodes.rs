//! Several nodes that share a database: real processes, each of which is killed, frozen or stopped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deltaq_journal::postgres::TTL;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::harness::blocking::{Connection, Message};
use crate::harness::process::deltaq;
use crate::harness::server::{End, Spawned, Store};
use crate::harness::waiting::{PATIENCE, found, until};

pub(super) const PARTITIONS: usize = 12;
/// Enough queues that each of two nodes owns at least one.
pub(super) const QUEUES: [&str; 8] = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7"];
pub(super) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A database, and the secret of its nodes.
pub(super) struct Nodes {
    pub(super) cluster: Cluster,
    pub(super) store: Store,
    pub(super) secret: PathBuf,
    partitions: usize,
}

/// The number of partitions of each node; "" is none.
fn owners(cluster: &Cluster) -> BTreeMap<String, usize> {
    let rows = cluster.sql("SELECT coalesce(node, ''), count(*) FROM deltaq.partitions GROUP BY 1");
    let pairs = rows.lines().filter_map(|row| row.split_once('|'));
    pairs.map(|(node, count)| (node.to_owned(), count.parse().expect("a number"))).collect()
}

/// Waits until the partitions have these owners.
#[track_caller]
pub(super) fn until_owners_at(cluster: &Cluster, wanted: &[(&str, usize)]) {
    let wanted: BTreeMap<_, _> = wanted.iter().map(|(node, count)| ((*node).to_owned(), *count)).collect();
    found(|| {
        let owners = owners(cluster);
        if owners == wanted { Ok(()) } else { Err(format!("{owners:?} and not {wanted:?}")) }
    });
}

/// Starts a node.
pub(super) fn start_node(store: &Store, secret: &Path, name: &str) -> Spawned {
    Spawned::start_with(store, |command: &mut Command| {
        command.args(["--node-name", name, "--advertise", "http://127.0.0.1:0"]);
        command.env("DELTAQ_CLUSTER__SECRET_FILE", secret);
    })
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self::with_partitions(PARTITIONS)
    }

    /// Nodes whose setting names this number of partitions.
    pub(super) fn with_partitions(partitions: usize) -> Self {
        let cluster = Cluster::start();
        let secret = cluster.folder().join("secret");
        std::fs::write(&secret, SECRET).expect("a file");
        let store = Store::Url(cluster.url());
        Self { cluster, store, secret, partitions }
    }

    pub(super) fn start(&self, name: &str) -> Spawned {
        self.try_start(name).unwrap_or_else(|log| panic!("the node does not start:\n{log}"))
    }

    /// Starts a node. An error is the log of a node that has ended.
    pub(super) fn try_start(&self, name: &str) -> Result<Spawned, String> {
        Spawned::try_start(&self.store, deltaq(&[]), "127.0.0.1:0", |command| {
            self.settings(command, name, "http://127.0.0.1:0");
        })
    }

    /// The settings of a node that advertises this URL.
    pub(super) fn settings(&self, command: &mut Command, name: &str, url: &str) {
        command.args(["--node-name", name, "--advertise", url]);
        command.env("DELTAQ_CLUSTER__SECRET_FILE", &self.secret);
        command.env("DELTAQ_CLUSTER__PARTITIONS", self.partitions.to_string());
    }

    /// How many partitions each node owns; "" is none.
    fn owners(&self) -> BTreeMap<String, usize> {
        owners(&self.cluster)
    }

    /// The node that owns a queue.
    pub(super) fn owner_of(&self, queue: &str) -> String {
        let join = "deltaq.partitions JOIN deltaq.queues USING (partition)";
        self.cluster
            .sql(&format!("SELECT node FROM {join} WHERE queues.name = '{queue}' AND NOT queues.deleted"))
    }

    /// Waits until the partitions have these owners.
    #[track_caller]
    pub(super) fn until_owners(&self, wanted: &[(&str, usize)]) {
        until_owners_at(&self.cluster, wanted);
    }
}

/// Calls a node on a new connection. Returns the status and the body.
fn call(node: &Spawned, message: &Message) -> (u16, Value) {
    call_at(node.api, message)
}

/// As [`call`], at the address of a node.
pub(super) fn call_at(node: SocketAddr, message: &Message) -> (u16, Value) {
    let reply = Connection::open(node).and_then(|mut connection| connection.call(message));
    let reply = reply.expect("a reply");
    (reply.status().expect("a status"), serde_json::from_slice(&reply.body).unwrap_or_default())
}

pub(super) fn add(node: &Spawned, queue: &str, key: &str) -> (u16, Value) {
    call(node, &Message::post(format!("/v1/queues/{queue}/add"), &json!({ "key": key, "object": {} })))
}

/// Waits until a node has the queue, and returns the keys that wait in it.
pub(super) fn waiting(node: &Spawned, queue: &str) -> u64 {
    let document = found(|| match call(node, &Message::get(format!("/v1/queues/{queue}"))) {
        (200, document) => Ok(document),
        (503, problem) => Err(problem),
        (status, problem) => panic!("{status} {problem}"),
    });
    document["status"]["ready"].as_u64().unwrap_or_else(|| panic!("{document}"))
}

#[test]
fn nodes_share_the_partitions_and_hand_them_over() {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS)]);
    for queue in QUEUES {
        assert_eq!(add(&a, queue, "k").0, 200);
    }
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    let c = nodes.start("c");
    nodes.until_owners(&[("a", PARTITIONS / 3), ("b", PARTITIONS / 3), ("c", PARTITIONS / 3)]);
    a.end(End::Stop { patience: PATIENCE });
    nodes.until_owners(&[("b", PARTITIONS / 2), ("c", PARTITIONS / 2)]);
    c.end(End::Stop { patience: PATIENCE });
    nodes.until_owners(&[("b", PARTITIONS)]);
    for queue in QUEUES {
        assert_eq!(waiting(&b, queue), 1, "{queue}");
    }
    assert_eq!(nodes.cluster.sql("SELECT string_agg(name, ' ') FROM deltaq.nodes"), "b");
}

/// A stream ends with a bookmark when its queue moves, so that the client continues at the next owner.
#[test]
fn a_watch_ends_when_its_queue_moves_to_another_node() {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS)]);
    let (sender, ended) = std::sync::mpsc::sync_channel(QUEUES.len());
    for queue in QUEUES {
        assert_eq!(add(&a, queue, "k").0, 200);
        let (sender, api) = (sender.clone(), a.api);
        let mut connection = Connection::open_within(api, PATIENCE).expect("a connection");
        let watch = format!("GET /v1/queues/{queue}/watch?bookmark=1s HTTP/1.1\r\nhost: {api}\r\n\r\n");
        connection.send(watch.as_bytes()).expect("a request");
        connection.receive_head().expect("the head of the reply");
        std::thread::spawn(move || {
            let mut rows = Vec::new();
            let is_whole = loop {
                match connection.chunk() {
                    Ok(chunk) if chunk.is_empty() => break true,
                    Ok(chunk) => rows.extend(chunk),
                    Err(_) => break false,
                }
            };
            sender.send((queue, is_whole, String::from_utf8(rows).expect("text"))).ok();
        });
    }
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    let moved: Vec<&str> = QUEUES.into_iter().filter(|queue| nodes.owner_of(queue) == "b").collect();
    assert!(!moved.is_empty(), "no queue has moved");
    for _ in &moved {
        let (queue, is_whole, rows) =
            ended.recv_timeout(PATIENCE).expect("the stream of a queue that has moved ends");
        assert!(moved.contains(&queue), "{queue} has not moved");
        assert!(is_whole && rows.lines().last().is_some_and(|line| line.contains("\"Bookmark\"")), "{rows}");
        assert_eq!(add(&b, queue, "next").0, 200);
    }
    assert!(ended.try_recv().is_err(), "the streams of the other queues go on");
}

/// A node that can't load partitions leaves them to the node that can, and is not ready.
#[test]
fn a_node_that_can_load_nothing_gets_no_further_partitions() {
    // Heartbeats have a connection. With two, a claim succeeds, but the partition can't be read.
    for connections in [1, 2] {
        a_node_with_few_connections_gets_no_further_partitions(connections);
    }
}

fn a_node_with_few_connections_gets_no_further_partitions(connections: u32) {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS)]);
    let role = format!("CREATE ROLE narrow LOGIN CONNECTION LIMIT {connections}; GRANT deltaq TO narrow");
    nodes.cluster.sql(&role);
    let url = nodes.cluster.url().replace("deltaq@", "narrow@");
    let b = Spawned::start_uncalled(&Store::Url(url), |command: &mut Command| {
        command.args(["--node-name", "b", "--advertise", "http://127.0.0.1:0"]);
        command.env("DELTAQ_CLUSTER__SECRET_FILE", &nodes.secret);
    });
    until("the node has failed a claim", || call(&b, &Message::get("/readyz".to_owned())).0 == 503);
    nodes.until_owners(&[("a", PARTITIONS)]);
    // Longer than it would take to try another one.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(nodes.owners(), BTreeMap::from([("a".to_owned(), PARTITIONS)]));
    let tried = "SELECT cardinality(unloadable) FROM deltaq.nodes WHERE name = 'b'";
    assert_eq!(nodes.cluster.sql(tried), "1", "one partition is tried");
    for queue in QUEUES {
        assert_eq!(add(&a, queue, "k").0, 200, "{queue}");
    }
}

#[test]
fn the_partitions_of_a_killed_node_are_claimed_after_its_last_heartbeat() {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    // A node removes no other node before it has sent heartbeats for this long.
    std::thread::sleep(TTL);
    let mut owned = 0;
    for queue in QUEUES {
        owned += u32::from(add(&a, queue, "k").0 == 200);
    }
    a.end(End::Kill);
    nodes.until_owners(&[("b", PARTITIONS)]);
    // Nobody has released them.
    until_claimed(b.api, "taken_over", (PARTITIONS / 2) as u64);
    assert_eq!(nodes.cluster.sql("SELECT string_agg(name, ' ') FROM deltaq.nodes"), "b");
    let kept: u64 = QUEUES.iter().map(|queue| waiting_or_none(&b, queue)).sum();
    assert!(kept >= u64::from(owned), "{kept} of {owned}");
}

fn waiting_or_none(node: &Spawned, queue: &str) -> u64 {
    match call(node, &Message::get(format!("/v1/queues/{queue}"))).0 {
        404 => 0,
        _ => waiting(node, queue),
    }
}

#[test]
fn a_node_that_was_frozen_comes_back_without_its_partitions() {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    std::thread::sleep(TTL);
    a.freeze();
    nodes.until_owners(&[("b", PARTITIONS)]);
    for queue in QUEUES {
        added(&b, queue, "new");
    }
    a.signal("CONT");
    // It joins again, and gets its share.
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    for queue in QUEUES {
        let total = found(|| {
            let replies = [&a, &b].map(|node| call(node, &Message::get(format!("/v1/queues/{queue}"))));
            let document = replies.into_iter().find(|(status, _)| *status == 200);
            document.map(|(_, document)| document["status"]["ready"].as_u64()).ok_or("the queue has no owner")
        });
        assert_eq!(total, Some(1), "{queue}");
    }
}

/// Calls at the other node do not wait for an owner that hangs once that node owns the queue itself.
#[test]
fn calls_that_wait_for_a_frozen_owner_end_when_it_has_lost_the_queue() {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    for queue in QUEUES {
        added(&a, queue, "k");
    }
    let queue = QUEUES.into_iter().find(|queue| nodes.owner_of(queue) == "a").expect("a queue of a");
    // A node removes no other node before it has sent heartbeats for this long.
    std::thread::sleep(TTL);
    let api = b.api;
    let mut stream = Connection::open_within(api, PATIENCE).expect("a connection");
    let watch = format!("GET /v1/queues/{queue}/watch?bookmark=1s HTTP/1.1\r\nhost: {api}\r\n\r\n");
    stream.send(watch.as_bytes()).expect("a request");
    stream.receive_head().expect("the head of the reply");
    a.freeze();
    let popping = std::thread::spawn(move || {
        let pop = Message::post(format!("/v1/queues/{queue}/pop?wait=50s"), &json!({}));
        let mut connection = Connection::open_within(api, PATIENCE * 2).expect("a connection");
        let reply = connection.call(&pop).expect("a reply");
        (reply.status(), serde_json::from_slice::<Value>(&reply.body).expect("a problem"))
    });
    while stream.chunk().is_ok_and(|chunk| !chunk.is_empty()) {}
    let (status, problem) = popping.join().expect("a thread");
    assert_eq!((status, &problem["code"]), (Some(503), &json!("not-owner")), "{problem}");
    // The owner is still frozen: neither it nor the end of its connection has answered.
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("did not reply")), "{problem}");
    a.signal("CONT");
}

#[test]
fn the_secret_of_the_nodes_is_replaced_while_they_run() {
    let next = SECRET.replace('0', "9");
    let nodes = Nodes::new();
    let pair = ["a", "b"].map(|name| nodes.start(name));
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    let reload = |node: &Spawned, lines: &[&str], result: &str| {
        let before = node.last_words().matches(result).count();
        std::fs::write(&nodes.secret, lines.join("\n")).expect("a file");
        node.signal("HUP");
        until(result, || node.last_words().matches(result).count() > before);
    };
    let statuses = || pair.each_ref().map(|node| QUEUES.map(|queue| add(node, queue, "k").0));
    let all_succeed = [[200; QUEUES.len()]; 2];
    for (node, queue) in pair.iter().flat_map(|node| QUEUES.map(|queue| (node, queue))) {
        added(node, queue, "k");
    }
    assert_eq!(statuses(), all_succeed);
    for lines in [&[SECRET, &next][..], &[&next, SECRET], &[&next]] {
        for node in &pair {
            reload(node, lines, "reloaded");
            assert_eq!(statuses(), all_succeed, "{lines:?}");
        }
    }
    reload(&pair[0], &["short"], "reload failed");
    assert_eq!(statuses(), all_succeed, "a reload that fails changes nothing");
    reload(&pair[0], &[SECRET], "reloaded");
    assert!(
        statuses().iter().all(|of_node| of_node.contains(&503)),
        "the former secret is not accepted any more"
    );
}

/// A process that comes back finds partitions with its name that are another node's share by now.
#[test]
fn a_node_that_comes_back_hands_over_what_it_owned_before() {
    let nodes = Nodes::new();
    let a = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS)]);
    a.end(End::Kill);
    let _b = nodes.start("b");
    let _a = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
}

#[test]
fn a_second_process_with_the_name_of_a_node_ends_the_first() {
    let nodes = Nodes::new();
    let first = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS)]);
    let second = nodes.start("a");
    let (code, log) = first.ended();
    assert_eq!(code, Some(3), "{log}");
    let (status, problem) = add(&second, "q", "k");
    assert_eq!(status, 200, "{problem}\n{}", second.last_words());
    assert_eq!(nodes.owners(), BTreeMap::from([("a".to_owned(), PARTITIONS)]));
}

#[test]
fn a_server_without_a_node_name_does_not_take_the_database_of_nodes() {
    let nodes = Nodes::new();
    let _a = nodes.start("a");
    let store = Store::Url(nodes.cluster.url());
    let log = Spawned::try_start(&store, deltaq(&[]), "127.0.0.1:0", |_| {}).expect_err("it is refused");
    for part in ["its nodes: a", "--node-name", "--advertise"] {
        assert!(log.contains(part), "{log}");
    }
}

#[test]
fn an_outage_of_the_database_moves_no_partitions() {
    let mut nodes = Nodes::new();
    let a = nodes.start("a");
    let b = nodes.start("b");
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    for queue in QUEUES {
        added(&a, queue, "k");
    }
    let before = nodes.cluster.sql("SELECT node FROM deltaq.partitions ORDER BY partition");
    nodes.cluster.end(Signal::INT);
    std::thread::sleep(TTL + Duration::from_secs(2));
    nodes.cluster.restart();
    for queue in QUEUES {
        until("the queue is served again", || [&a, &b].iter().any(|node| add(node, queue, "k").0 == 200));
    }
    assert_eq!(nodes.cluster.sql("SELECT node FROM deltaq.partitions ORDER BY partition"), before);
}

/// Waits until an Add succeeds, and returns its version.
pub(super) fn added(node: &Spawned, queue: &str, key: &str) -> u64 {
    found(|| {
        let (status, reply) = add(node, queue, key);
        if status != 200 {
            return Err(format!("{status} {reply}"));
        }
        Ok(reply["resource_version"].as_u64().unwrap_or_else(|| panic!("{reply}")))
    })
}

/// How many partitions a node has claimed for this cause.
pub(super) fn claims(node: SocketAddr, cause: &str) -> u64 {
    counted(node, &format!("deltaq_partition_claims_total{{cause=\"{cause}\"}} "))
}

/// How many partitions a node has claimed.
fn claimed_by(node: SocketAddr) -> u64 {
    claims(node, "released") + claims(node, "taken_over")
}

/// Waits until a node has claimed this many partitions for this cause. A node counts a claim after it has loaded the partition, so
/// the database shows the owner earlier.
pub(super) fn until_claimed(node: SocketAddr, cause: &str, count: u64) {
    until("the partitions are claimed for this cause", || claims(node, cause) == count);
}

/// The value of a counter.
fn counted(node: SocketAddr, series: &str) -> u64 {
    let page = Connection::open(node).and_then(|mut own| own.call(&Message::get("/metrics".to_owned())));
    let page = String::from_utf8(page.expect("a reply").body).expect("text");
    let value = page.lines().find_map(|line| line.strip_prefix(series));
    value.map_or(0, |value| value.parse().expect("a count"))
}

/// A failover to a replica that lags: the node goes on with what the database has, and no number is used twice.
#[test]
fn a_node_goes_on_after_the_database_has_lost_acknowledged_changes() {
    let mut nodes = Nodes::new();
    let a = nodes.start("a");
    let kept = added(&a, "q", "kept");
    nodes.cluster.end(Signal::INT);
    nodes.cluster.save();
    nodes.cluster.restart();
    let lost = added(&a, "q", "lost");
    added(&a, "other", "lost");
    let claimed = claimed_by(a.api);
    nodes.cluster.end(Signal::INT);
    nodes.cluster.roll_back();
    nodes.cluster.restart();
    // A node that could not reach the database for long has lost its partitions, and claims them again instead.
    let loaded = || counted(a.api, "deltaq_partition_rollbacks_total ") + claimed_by(a.api);
    until("a partition is loaded again", || loaded() > claimed);
    let newest = added(&a, "q", "new");
    assert!(newest > lost + 1, "{newest} {lost}");
    let (_, items) = call(&a, &Message::get("/v1/queues/q/items".to_owned()));
    let keys: Vec<_> = items["items"].as_array().into_iter().flatten().map(|item| &item["key"]).collect();
    assert_eq!(keys, ["kept", "new"], "{items}");
    // A watcher that has seen the lost event lists again; one that has not goes on.
    let watch = |version: u64| {
        let message = Message::get(format!("/v1/queues/q/watch?resource_version={version}"));
        Connection::open(a.api).and_then(|mut own| own.call_with(&message, &["accept: application/json"]))
    };
    for _ in 0..2 {
        let expired = watch(lost).expect("a reply");
        let problem: Value = serde_json::from_slice(&expired.body).expect("JSON");
        assert_eq!((expired.status(), &problem["reason"]), (Some(410), &json!("lost")), "{problem}");
        let page = watch(kept).expect("a reply");
        let page: Value = serde_json::from_slice(&page.body).expect("JSON");
        assert_eq!(page["items"][0]["key"], "new", "{page}");
    }
    // The queue was created by a lost event. Its partition may still be loading.
    until("the queue is gone", || call(&a, &Message::get("/v1/queues/other".to_owned())).0 == 404);
}

/// A follower and the queue that it follows have one owner. When it is killed, the follower continues at the next one: each change once.
#[test]
fn a_follower_goes_on_at_the_next_owner() {
    const KEYS: usize = 400;
    let nodes = Nodes::new();
    let mut servers = BTreeMap::from([("a", nodes.start("a"))]);
    nodes.until_owners(&[("a", PARTITIONS)]);
    servers.insert("b", nodes.start("b"));
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    std::thread::sleep(TTL);
    let follow = json!({"follow": {"queue": "prices"}});
    added(&servers["a"], "prices", "first");
    let put = Message::put("/v1/queues/prices--search".to_owned(), &follow);
    assert_eq!(call(&servers["a"], &put).0, 201);
    let owner = nodes.owner_of("prices");
    let other = if owner == "a" { "b" } else { "a" };
    for number in 0..KEYS {
        if number == KEYS / 2
            && let Some(killed) = servers.remove(owner.as_str())
        {
            killed.end(End::Kill);
        }
        added(&servers[other], "prices", &format!("key-{number}"));
    }
    let status = found(|| {
        let get = Message::get("/v1/queues/prices--search/status".to_owned());
        let (status, document) = call(&servers[other], &get);
        let has_all = document["ready"] == json!(KEYS + 1) && document["follow"]["lag_events"] == 0;
        if status == 200 && has_all { Ok(document) } else { Err(format!("{status} {document}")) }
    });
    assert_eq!(status["follow"]["state"], "following", "{status}");
    let items = Message::get("/v1/queues/prices--search/items?limit=5000".to_owned());
    let (_, items) = call(&servers[other], &items);
    for item in items["items"].as_array().expect("items") {
        assert_eq!(item["deltas"].as_array().map(Vec::len), Some(1), "{item} came once");
    }
}

/// As above, but the failover loses the claim of the node too: the partitions are as an earlier process has left them, closed and without an
/// owner.
#[test]
fn a_failover_that_loses_a_claim_gives_no_number_twice() {
    let mut nodes = Nodes::new();
    let first = nodes.start("a");
    added(&first, "q", "kept");
    first.end(End::Stop { patience: PATIENCE });
    nodes.cluster.end(Signal::INT);
    nodes.cluster.save();
    nodes.cluster.restart();
    let a = nodes.start("a");
    let lost = added(&a, "q", "lost");
    nodes.cluster.end(Signal::INT);
    nodes.cluster.roll_back();
    nodes.cluster.restart();
    nodes.until_owners(&[("a", PARTITIONS)]);
    let newest = added(&a, "q", "new");
    assert!(newest > lost, "{newest} {lost}");
}

#[test]
fn a_server_alone_ends_when_the_database_has_lost_acknowledged_changes() {
    let mut nodes = Nodes::new();
    let server = Spawned::start(&nodes.store);
    added(&server, "q", "kept");
    nodes.cluster.end(Signal::INT);
    nodes.cluster.save();
    nodes.cluster.restart();
    let lost = added(&server, "q", "lost");
    nodes.cluster.end(Signal::INT);
    nodes.cluster.roll_back();
    nodes.cluster.restart();
    let (code, log) = server.ended();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("the database has lost acknowledged changes"), "{log}");
    let server = Spawned::start(&nodes.store);
    let newest = added(&server, "q", "new");
    assert!(newest > lost + 1, "{newest} {lost}");
}
