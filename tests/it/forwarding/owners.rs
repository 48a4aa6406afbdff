//! Calls of a queue whose owner is unknown, has changed, has ended, or can't be sure that it still owns the queue.

use std::time::Duration;

use deltaq_service::Owner;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::cluster::{Cluster, FakeOwner, TestNode, queue_of, write};
use crate::harness::{spawn, within};

#[tokio::test]
async fn a_call_is_forwarded_once() {
    let cluster = Cluster::start().await;
    // Each node takes the other one for the owner.
    cluster.b.sees(1, &cluster.a.peer("a"));
    let queue = queue_of(&cluster.a, 1, 0);
    let refused = cluster.a.get(&format!("/v1/queues/{queue}")).await;
    let problem = refused.problem("not-owner");
    assert!(problem["detail"].as_str().expect("a detail").contains("nothing of the request was applied"));
    assert_eq!(cluster.b.metric("deltaq_forwarded_requests_total{result=\"answered\"}").await, 0);
}

#[tokio::test]
async fn the_node_that_was_called_names_itself_in_a_problem() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let mut client = cluster.a.client().await;
    let head = format!("GET /v1/queues/{queue} HTTP/1.1\r\nhost: 10.0.0.1:7070\r\n\r\n");
    client.send_bytes(head.as_bytes()).await;
    let reply = client.reply().await;
    assert!(reply.header("deltaq-owner").is_some(), "the owner has answered: {}", reply.text);
    assert_eq!(reply.problem("queue-not-found")["type"], "http://10.0.0.1:7070/problems/queue-not-found");
}

#[tokio::test]
async fn a_call_waits_for_an_owner_and_is_refused_without_one() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let path = format!("/v1/queues/{queue}/add");
    cluster.a.partitions.set_owner(1, Owner::Nobody);
    let refused = cluster.a.post(&path, &json!([{"key": "x"}])).await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    refused.problem("not-owner");
    let mut waiting = cluster.a.client().await;
    waiting.send("POST", &path, &json!([{"key": "x"}])).await;
    tokio::task::yield_now().await;
    cluster.a.sees(1, &cluster.b.peer("b"));
    waiting.reply().await.ok();
    assert_eq!(cluster.a.metric("deltaq_forwarded_requests_total{result=\"no_owner\"}").await, 1);
}

#[tokio::test]
async fn a_node_that_is_not_sure_answers_nothing() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let path = |call: &str| format!("/v1/queues/{queue}{call}");
    cluster.b.post(&path("/add"), &json!([{"key": "x"}])).await.ok();
    let mut watch = cluster.a.client().await;
    watch.send_text("GET", &path("/watch?view=latest"), &[("accept", "application/x-ndjson")], "").await;
    watch.head().await.expect("a head");
    let first = watch.chunk().await.expect("a row").expect("a row");
    assert!(!first.is_empty());

    cluster.b.partitions.trust(0);
    for node in [&cluster.a, &cluster.b] {
        for (method, call, body) in [
            ("GET", "", Value::Null),
            ("GET", "/items", Value::Null),
            ("POST", "/add", json!([{"key": "y"}])),
        ] {
            let problem = node.call(method, &path(call), &body).await.problem("not-owner");
            assert!(problem["detail"].as_str().expect("a detail").contains("unknown"), "{problem}");
        }
    }
    cluster.b.get("/v1/queues").await.problem("not-owner");
    // The change is made, but the node must not say so. The watch ends without its last chunk.
    while let Ok(row) = watch.chunk().await {
        assert!(row.is_some_and(|row| !String::from_utf8_lossy(&row).contains("\"y\"")));
    }
    cluster.b.partitions.trust(u64::MAX);
    cluster.a.get(&path("/items/y")).await.ok();
}

#[tokio::test]
async fn a_pop_of_a_node_that_is_not_sure_leases_nothing() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let path = |call: &str| format!("/v1/queues/{queue}{call}");
    cluster.b.post(&path("/add"), &json!([{"key": "x"}])).await.ok();
    cluster.b.partitions.trust(0);
    cluster.a.post(&path("/pop"), &Value::Null).await.problem("not-owner");
    cluster.b.partitions.trust(u64::MAX);
    let popped = cluster.a.post(&path("/pop"), &Value::Null).await.ok();
    assert_eq!((&popped["items"][0]["attempt"], &popped["items"][0]["failures"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn an_owner_that_is_gone_is_a_problem() {
    let node = TestNode::start("a", &[], |_| {}).await;
    let owner = FakeOwner::start().await;
    node.sees(1, &owner.peer);
    let path = format!("/v1/queues/{}/resume", queue_of(&node, 1, 0));
    let mut client = node.client().await;
    client.send("POST", &path, &Value::Null).await;
    let (stream, head) = owner.accept().await;
    assert!(head.contains("\r\ndeltaq-forwarded: a\r\n"), "{head}");
    drop(stream);
    let problem = client.reply().await.problem("not-owner");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("\"fake\"") && detail.contains("unknown"), "{detail}");

    drop(owner);
    let problem = node.post(&path, &Value::Null).await.problem("not-owner");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("nothing of the request was applied"), "{detail}");
    assert_eq!(node.metric("deltaq_forwarded_requests_total{result=\"interrupted\"}").await, 1);
    assert_eq!(node.metric("deltaq_forwarded_requests_total{result=\"unreachable\"}").await, 1);
}

/// An advertised URL may lead to a proxy, to another program, or to another node.
#[tokio::test]
async fn a_reply_that_is_not_from_the_owner_is_not_passed_on() {
    // A proxy may have passed the request on. A 403 without the name of a problem is that of a node that does not know the secret.
    let unknown = "took effect is unknown";
    for (head, text) in [
        ("200 OK", unknown),
        ("404 Not Found", unknown),
        ("200 OK\r\ndeltaq-node: b", unknown),
        ("403 Forbidden", "nothing of the request was applied"),
    ] {
        let node = TestNode::start("a", &[], |_| {}).await;
        let owner = FakeOwner::start().await;
        node.sees(1, &owner.peer);
        let mut client = node.client().await;
        client.send("POST", &format!("/v1/queues/{}/resync", queue_of(&node, 1, 0)), &Value::Null).await;
        let (mut stream, _) = owner.accept().await;
        write(&mut stream, &format!("HTTP/1.1 {head}\r\ncontent-length: 2\r\n\r\nhi")).await;
        let problem = client.reply().await.problem("not-owner");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains(text), "{head}: {detail}");
    }
}

#[tokio::test]
async fn a_reply_that_ends_early_ends_the_connection_of_the_client() {
    for head in ["content-length: 100\r\n\r\n{\"a\":", "transfer-encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n"] {
        let node = TestNode::start("a", &[], |_| {}).await;
        let owner = FakeOwner::start().await;
        node.sees(1, &owner.peer);
        let mut client = node.client().await;
        client.send("GET", &format!("/v1/queues/{}/items", queue_of(&node, 1, 0)), &Value::Null).await;
        let (mut stream, _) = owner.accept().await;
        write(&mut stream, &format!("HTTP/1.1 200 OK\r\ndeltaq-node: fake\r\n{head}")).await;
        drop(stream);
        client.try_reply().await.expect_err("a part of a body is no reply");
    }
}

#[tokio::test]
async fn an_owner_that_does_not_answer_is_bounded_by_the_request_timeout() {
    let node = TestNode::start("a", &[], |limits| limits.request_timeout = Duration::from_secs(5)).await;
    let owner = FakeOwner::start().await;
    node.sees(1, &owner.peer);
    let mut client = node.client().await;
    client.send("GET", &format!("/v1/queues/{}", queue_of(&node, 1, 0)), &Value::Null).await;
    let (mut stream, _) = owner.accept().await;
    client.reply().await.problem("timeout");
    // The connection to the owner has ended, so the owner sees that nobody waits.
    assert_eq!(within(stream.read(&mut [0])).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_connection_to_the_owner_is_used_again() {
    let node = TestNode::start("a", &[], |_| {}).await;
    let owner = FakeOwner::start().await;
    node.sees(1, &owner.peer);
    let path = format!("/v1/queues/{}", queue_of(&node, 1, 0));
    let calls = spawn(async move {
        let (first, second) = (node.get(&path).await.status, node.get(&path).await.status);
        (first, second, node)
    });
    let (mut stream, _) = owner.accept().await;
    let reply = "HTTP/1.1 200 OK\r\ndeltaq-node: fake\r\ncontent-length: 2\r\n\r\n{}";
    write(&mut stream, reply).await;
    let mut request = [0; 4];
    within(stream.read_exact(&mut request)).await.expect("the next request on the same connection");
    assert_eq!(&request, b"GET ");
    write(&mut stream, reply).await;
    let (first, second, _node) = calls.await.expect("no panic");
    assert_eq!((first, second), (200, 200));
}

/// Sends the watch of an `EventSource`, which never connects again after a status other than 200. Returns the stream, which ends.
async fn event_source(node: &TestNode, path: &str, headers: &[(&str, &str)]) -> String {
    let mut client = node.client().await;
    let headers = [&[("accept", "text/event-stream")], headers].concat();
    client.send_text("GET", path, &headers, "").await;
    let reply = client.reply().await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("text/event-stream")),
        "{}",
        reply.text
    );
    reply.text
}

#[tokio::test]
async fn an_event_source_at_another_node_is_refused_for_now() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let path = format!("/v1/queues/{queue}/watch");
    let is_for_now = |text: &str, what: &str| {
        assert!(
            text.starts_with("retry: ") && text.contains("\nevent: Error\n") && text.contains(what),
            "{text}"
        );
    };
    cluster.b.post(&format!("/v1/queues/{queue}/add"), &json!({"key": "x"})).await.ok();
    // The owner is not sure.
    cluster.b.partitions.trust(0);
    is_for_now(&event_source(&cluster.a, &path, &[]).await, "\"code\":\"not-owner\"");
    cluster.b.partitions.trust(u64::MAX);
    // Nobody owns the queue.
    cluster.a.partitions.set_owner(1, Owner::Nobody);
    is_for_now(&event_source(&cluster.a, &path, &[]).await, "no node owns the queue at present");
    // The owner is gone, does not accept the node, or is another server.
    for head in ["", "403 Forbidden", "200 OK", "502 Bad Gateway"] {
        let owner = FakeOwner::start().await;
        cluster.a.sees(1, &owner.peer);
        let asked = async {
            let (mut stream, _) = owner.accept().await;
            if !head.is_empty() {
                write(&mut stream, &format!("HTTP/1.1 {head}\r\ncontent-length: 2\r\n\r\nhi")).await;
            }
        };
        let (text, ()) = tokio::join!(event_source(&cluster.a, &path, &[]), asked);
        is_for_now(&text, "\"code\":\"not-owner\"");
    }
    // The owner refuses for good, and goes on behind a position that has expired.
    cluster.a.sees(1, &cluster.b.peer("b"));
    let unknown = queue_of(&cluster.a, 1, 1);
    let mut client = cluster.a.client().await;
    let headers = [("accept", "text/event-stream")];
    client.send_text("GET", &format!("/v1/queues/{unknown}/watch"), &headers, "").await;
    client.reply().await.problem("queue-not-found");
    let mut client = cluster.a.client().await;
    client.send_text("GET", &path, &[headers[0], ("last-event-id", "00000001-7")], "").await;
    assert_eq!(client.head().await.expect("a head").0, 200);
    let mut rows = String::new();
    while !rows.contains("initial_events_end") {
        let row = client.chunk().await.expect("a row").expect("the watch goes on");
        rows.push_str(&String::from_utf8(row).expect("text"));
    }
    assert!(rows.contains("id:\nevent: Expired\n") && rows.contains("event: Added\n"), "{rows}");
}
