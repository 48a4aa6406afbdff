//! A lease counts as delivered when the connection of the client has accepted the reply.

use serde_json::{Value, json};

use super::cluster::{self, Cluster, FakeOwner, TestNode, queue_of, write};

/// Bytes of an object that together exceed the buffers of a connection.
const LARGE: usize = 900_000;

/// Pops all keys of the queue at its owner, and checks that no pop has counted before.
async fn all_are_fresh(cluster: &Cluster, queue: &str, keys: usize) {
    let popped = cluster.b.post(&format!("/v1/queues/{queue}/pop?max=100&wait=20s"), &Value::Null).await.ok();
    let items = popped["items"].as_array().expect("items");
    assert_eq!(items.len(), keys);
    for item in items {
        assert_eq!((&item["attempt"], &item["failures"]), (&json!(1), &json!(0)), "{}", item["key"]);
    }
}

/// A cluster, and a queue of its second node with 14 large keys.
async fn with_large_keys() -> (Cluster, String) {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let filler = "x".repeat(LARGE);
    for n in 0..14 {
        let object = json!([{"key": format!("key-{n}"), "filler": filler}]);
        cluster.b.post(&format!("/v1/queues/{queue}/add"), &object).await.ok();
    }
    (cluster, queue)
}

#[tokio::test]
async fn a_client_that_disconnects_during_the_wait_takes_no_key() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    cluster.b.call("PUT", &format!("/v1/queues/{queue}"), &json!({})).await.ok();
    let mut client = cluster.a.client().await;
    client.send("POST", &format!("/v1/queues/{queue}/pop?wait=50s&lease_duration=1h"), &Value::Null).await;
    cluster.b.until(&queue, |status| status["waiters"] == 1).await;
    drop(client);
    cluster.b.until(&queue, |status| status["waiters"] == 0).await;
    cluster.b.post(&format!("/v1/queues/{queue}/add"), &json!([{"key": "x"}])).await.ok();
    all_are_fresh(&cluster, &queue, 1).await;
}

#[tokio::test]
async fn the_keys_of_a_reply_that_the_client_does_not_read_return() {
    let (cluster, queue) = with_large_keys().await;
    let mut client = cluster.a.client_that_buffers(4_096).await;
    client.send("POST", &format!("/v1/queues/{queue}/pop?max=100&lease_duration=1h"), &Value::Null).await;
    // The first bytes show that the node has the whole reply of the owner.
    client.head().await.expect("a head");
    cluster.b.until(&queue, |status| status["leased"] == 14).await;
    drop(client);
    all_are_fresh(&cluster, &queue, 14).await;
}

#[tokio::test]
async fn the_keys_of_cloud_events_that_the_client_does_not_read_return() {
    let (cluster, queue) = with_large_keys().await;
    let mut client = cluster.a.client_that_buffers(4_096).await;
    let accept = [("accept", "application/cloudevents-batch+json")];
    let pop = format!("/v1/queues/{queue}/pop?max=100&lease_duration=1h");
    client.send_text("POST", &pop, &accept, "").await;
    client.head().await.expect("a head");
    cluster.b.until(&queue, |status| status["leased"] == 14).await;
    drop(client);
    all_are_fresh(&cluster, &queue, 14).await;
}

#[tokio::test]
async fn a_client_that_disconnects_at_once_loses_no_key() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    for _ in 0..20 {
        cluster.b.post(&format!("/v1/queues/{queue}/add"), &json!([{"key": "x"}])).await.ok();
        let mut client = cluster.a.client().await;
        client.send("POST", &format!("/v1/queues/{queue}/pop?lease_duration=1h"), &Value::Null).await;
        drop(client);
    }
    all_are_fresh(&cluster, &queue, 1).await;
}

#[tokio::test]
async fn a_reply_that_the_client_reads_keeps_its_leases() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    cluster.b.post(&format!("/v1/queues/{queue}/add"), &json!([{"key": "x"}])).await.ok();
    let popped =
        cluster.a.post(&format!("/v1/queues/{queue}/pop?id=p&lease_duration=1h"), &Value::Null).await.ok();
    // The connection of the client has ended, and a repeated pop gets the same lease.
    let again =
        cluster.a.post(&format!("/v1/queues/{queue}/pop?id=p&lease_duration=1h"), &Value::Null).await.ok();
    assert_eq!(popped["items"][0]["lease"]["id"], again["items"][0]["lease"]["id"]);
    assert_eq!(cluster.b.get(&format!("/v1/queues/{queue}/status")).await.ok()["leased"], 1);
}

#[tokio::test]
async fn leases_of_an_undelivered_reply_go_back_to_the_node_that_granted_them() {
    let node = TestNode::start("a", &[], |_| {}).await;
    let (first, second) = (FakeOwner::start().await, FakeOwner::start().await);
    node.sees(1, &first.peer);
    let queue = queue_of(&node, 1, 0);
    let mut client = node.client_that_buffers(4_096).await;
    client.send("POST", &format!("/v1/queues/{queue}/pop"), &Value::Null).await;
    let (mut stream, _) = first.accept().await;
    let filler = "x".repeat(14 * LARGE);
    let reply =
        format!("{{\"items\":[{{\"key\":\"{filler}\",\"lease\":{{\"id\":\"the-lease\"}}}}],\"settled\":[]}}");
    let head = format!(
        "HTTP/1.1 200 OK\r\ndeltaq-node: fake\r\ndeltaq-leases: true\r\ncontent-length: {}\r\n\r\n",
        reply.len()
    );
    write(&mut stream, &(head + &reply)).await;
    client.head().await.expect("a head");
    node.sees(1, &second.peer);
    drop(client);
    let head = cluster::head(&mut stream).await;
    assert!(head.starts_with(&format!("POST /v1/queues/{queue}/release HTTP/1.1\r\n")), "{head}");
    assert!(head.contains("\r\ndeltaq-undelivered: true\r\n"), "{head}");
    write(&mut stream, "HTTP/1.1 200 OK\r\ndeltaq-node: fake\r\ncontent-length: 2\r\n\r\n{}").await;
}
