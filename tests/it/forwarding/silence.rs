//! Calls that nobody answers: at an owner that is not sure any more, at an owner that is silent, and at a node that stops.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::cluster::{Cluster, FakeOwner, TestNode, queue_of, write};
use crate::harness::{Client, spawn};

/// Calls that wait longer than any test runs: in their turn a pop, a long poll of a watch, and a wait for acknowledgements.
const WAITS: [(&str, &str); 3] = [
    ("POST", "/pop?wait=1h"),
    ("GET", "/watch?wait=1h&resource_version=now"),
    ("GET", "/synced?wait=1h&resource_version=now"),
];

/// A queue of b with a key that is not acknowledged. It is leased, so pops wait.
async fn waiting_queue(cluster: &Cluster) -> String {
    let path = format!("/v1/queues/{}", queue_of(&cluster.a, 1, 0));
    cluster.b.post(&format!("{path}/add"), &json!([{"key": "x"}])).await.ok();
    cluster.b.post(&format!("{path}/pop?lease_duration=1h"), &Value::Null).await.ok();
    path
}

async fn streamed(node: &TestNode, path: &str) -> Client {
    let mut watch = node.client().await;
    let path = format!("{path}/watch?bookmark=1m&resource_version=now");
    watch.send_text("GET", &path, &[("accept", "application/x-ndjson")], "").await;
    assert_eq!(watch.head().await.expect("a head").0, 200);
    watch
}

/// The rest of a stream, and whether it has an end.
async fn rest(mut watch: Client) -> (String, bool) {
    let mut text = String::new();
    loop {
        match watch.chunk().await {
            Ok(Some(chunk)) => text.push_str(&String::from_utf8(chunk).expect("text")),
            Ok(None) => return (text, true),
            Err(_) => return (text, false),
        }
    }
}

/// The database may be silent as well, so nothing but the clock ends these calls.
#[tokio::test]
async fn calls_that_wait_end_when_the_owner_is_not_sure_any_more() {
    let cluster = Cluster::start().await;
    let path = waiting_queue(&cluster).await;
    for node in [&cluster.a, &cluster.b] {
        let watch = streamed(node, &path).await;
        let mut waiting = Vec::new();
        for (method, call) in WAITS {
            let mut client = node.client().await;
            client.send_text(method, &format!("{path}{call}"), &[("accept", "application/json")], "").await;
            waiting.push(client);
        }
        cluster.b.until(path.rsplit('/').next().expect("a name"), |status| status["waiters"] == 1).await;
        cluster.b.partitions.trust(0);
        for mut client in waiting {
            let problem = client.reply().await.problem("not-owner");
            assert!(problem["detail"].as_str().expect("a detail").contains("unknown"), "{problem}");
        }
        assert!(!rest(watch).await.1, "a stream that may lack changes has no end");
        cluster.b.partitions.trust(u64::MAX);
        cluster.a.get(&path).await.ok();
    }
}

/// The owner accepts everything and answers nothing, as behind a proxy that passes nothing on. Without the questions of the node, the calls
/// would end with the limit of a request, and the streams never.
#[tokio::test]
async fn calls_at_a_silent_owner_end() {
    let node = TestNode::start("a", &[], |_| {}).await;
    let owner = FakeOwner::start().await;
    node.sees(1, &owner.peer);
    let path = format!("/v1/queues/{}", queue_of(&node, 1, 0));
    let watch = {
        let streaming = streamed(&node, &path);
        let answering = async {
            let (mut stream, _) = owner.accept().await;
            let head = "HTTP/1.1 200 OK\r\ndeltaq-node: fake\r\ntransfer-encoding: chunked\r\n\r\n";
            write(&mut stream, head).await;
            stream
        };
        tokio::join!(streaming, answering)
    };
    let mut waiting = Vec::new();
    for (method, call) in [("GET", ""), ("POST", "/resync"), WAITS[0], WAITS[1]] {
        let mut client = node.client().await;
        client.send_text(method, &format!("{path}{call}"), &[("accept", "application/json")], "").await;
        waiting.push(client);
    }
    for mut client in waiting {
        let problem = client.reply().await.problem("not-owner");
        assert!(problem["detail"].as_str().expect("a detail").contains("did not reply"), "{problem}");
    }
    assert!(!rest(watch.0).await.1, "a stream that may lack changes has no end");
}

/// The owner answers the questions, so a call may wait for as long as it says.
#[tokio::test]
async fn calls_wait_for_an_owner_that_is_there() {
    let cluster = Cluster::start().await;
    let path = waiting_queue(&cluster).await;
    let mut client = cluster.a.client().await;
    client.send("POST", &format!("{path}/pop?wait=12s"), &Value::Null).await;
    assert_eq!(client.reply().await.ok()["items"], json!([]));
}

/// A node with too many connections refuses the question, and works on for the calls that it has.
#[tokio::test]
async fn calls_wait_for_an_owner_that_refuses_connections() {
    let node = TestNode::start("a", &[], |_| {}).await;
    let owner = FakeOwner::start().await;
    node.sees(1, &owner.peer);
    let path = format!("/v1/queues/{}/pop?wait=1h", queue_of(&node, 1, 0));
    let mut client = node.client().await;
    client.send("POST", &path, &Value::Null).await;
    let (mut pop, _) = owner.accept().await;
    for _ in 0..9 {
        let (mut question, head) = owner.accept().await;
        assert!(head.starts_with("GET /livez "), "{head}");
        let refusal = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        write(&mut question, refusal).await;
    }
    let head = "HTTP/1.1 200 OK\r\ndeltaq-node: fake\r\ncontent-type: application/json\r\n";
    write(&mut pop, &format!("{head}content-length: 12\r\n\r\n{{\"items\":[]}}")).await;
    assert_eq!(client.reply().await.ok()["items"], json!([]));
}

/// The owner learns from the heartbeats of a node that the node stops.
#[tokio::test]
async fn waits_through_a_node_that_stops_end_as_at_the_owner() {
    let cluster = Cluster::start().await;
    let path = waiting_queue(&cluster).await;
    let (through, own) = (streamed(&cluster.a, &path).await, streamed(&cluster.b, &path).await);
    let mut waiting = Vec::new();
    for (method, call) in WAITS {
        let mut client = cluster.a.client().await;
        client.send_text(method, &format!("{path}{call}"), &[("accept", "application/json")], "").await;
        waiting.push(client);
    }
    cluster.b.until(path.rsplit('/').next().expect("a name"), |status| status["waiters"] == 1).await;
    cluster.b.partitions.set_leaving(BTreeSet::from(["a".to_owned()]));
    let (rows, is_whole) = rest(through).await;
    assert!(is_whole && rows.lines().last().is_some_and(|row| row.contains("\"Bookmark\"")), "{rows}");
    for mut client in waiting {
        let reply = client.reply().await.ok();
        let is_empty = reply["items"] == json!([]) || reply["reached"] == false;
        assert!(is_empty, "{reply}");
    }
    // Those of other clients go on.
    let next = spawn(rest(own));
    cluster.b.partitions.set_leaving(BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    cluster.b.post(&format!("{path}/add"), &json!([{"key": "y"}])).await.ok();
    cluster.b.drain();
    let (rows, _) = next.await.expect("no panic");
    assert!(rows.contains("\"y\""), "{rows}");
}

/// The owner does not learn that the node stops, because the database is down.
#[tokio::test]
async fn waits_through_a_node_that_stops_end_without_the_owner() {
    let cluster = Cluster::start().await;
    let path = waiting_queue(&cluster).await;
    let closing = format!("/v1/queues/{}", queue_of(&cluster.a, 1, 1));
    cluster.b.post(&format!("{closing}/add"), &json!([{"key": "x"}])).await.ok();
    let close = ("POST", format!("{closing}/close?drain=true&wait=1h"));
    let calls = WAITS.into_iter().map(|(method, call)| (method, format!("{path}{call}"))).chain([close]);
    let mut waiting = Vec::new();
    for (method, call) in calls {
        let mut client = cluster.a.client().await;
        client.send_text(method, &call, &[("accept", "application/json")], "").await;
        waiting.push(client);
    }
    let watch = streamed(&cluster.a, &path).await;
    cluster.b.until(path.rsplit('/').next().expect("a name"), |status| status["waiters"] == 1).await;
    cluster.b.until(closing.rsplit('/').next().expect("a name"), |status| status["closed"] == true).await;
    cluster.a.drain();
    for mut client in waiting {
        client.reply().await.problem("not-owner");
    }
    assert!(!rest(watch).await.1);
    cluster.b.until(path.rsplit('/').next().expect("a name"), |status| status["waiters"] == 0).await;
}
