//! Reads over all queues cover all nodes.

use std::sync::Arc;

use deltaq_service::{NodeState, Nodes, Owner, Peer};
use serde_json::{Value, json};

use super::cluster::{Cluster, queue_of};

#[tokio::test]
async fn workers_and_matches_are_those_of_all_nodes() {
    let cluster = Cluster::start().await;
    let mut queues = Vec::new();
    for partition in 0..2 {
        let queue = queue_of(&cluster.a, partition, 1);
        let path = |call: &str| format!("/v1/queues/{queue}/{call}");
        cluster
            .a
            .call("POST", &path("add?source=erp"), &json!([{ "key": "sku-1" }, { "key": "sku-2" }]))
            .await
            .ok();
        cluster.a.call("POST", &path("pop?worker=importer"), &json!({})).await.ok();
        queues.push(queue);
    }
    queues.sort();
    let names = |list: &Value| -> Vec<String> {
        let rows = list.as_array().expect("a list").iter();
        let mut names: Vec<_> =
            rows.map(|row| row["queue"].as_str().or(row.as_str()).expect("a queue").to_owned()).collect();
        names.sort();
        names
    };
    for node in [&cluster.a, &cluster.b] {
        assert_eq!(names(&node.get("/v1/workers").await.ok()["workers"]), queues);
        let one = node.get("/v1/workers?limit=1").await.ok();
        assert_eq!((one["workers"].as_array().map(Vec::len), &one["left_out"]), (Some(1), &json!(1)));
        let found = node.get("/v1/find?text=sku-1").await.ok();
        assert_eq!(names(&found["keys"]), queues);
        assert_eq!(names(&node.get("/v1/find?text=er").await.ok()["sources"]), queues);
        assert_eq!(names(&node.get("/v1/find?text=import").await.ok()["workers"]), queues);
        // Every character of the text reaches the other node.
        assert_eq!(node.get("/v1/find?text=a%26limit%3D1%20%2F%C3%A9").await.ok()["keys"], json!([]));
    }
    // A part is not mistaken for the whole.
    cluster.a.partitions.set_owner(1, Owner::Nobody);
    for path in ["/v1/workers", "/v1/find?text=sku"] {
        cluster.a.get(path).await.problem("not-owner");
    }
}

#[tokio::test]
async fn the_activity_has_each_call_once_and_names_nodes_that_do_not_reply() {
    let cluster = Cluster::start().await;
    let (a, b) = (cluster.a.peer("a"), cluster.b.peer("b"));
    let absent = Arc::new(Peer { name: "c".to_owned(), url: "http://127.0.0.1:9".to_owned() });
    let nodes = |own: &str, peers: &[&Arc<Peer>]| Nodes {
        nodes: peers
            .iter()
            .map(|peer| NodeState {
                peer: (***peer).clone(),
                is_this: peer.name == own,
                ..NodeState::default()
            })
            .collect(),
        ..Nodes::default()
    };
    cluster.a.partitions.set_nodes(nodes("a", &[&a, &b]));
    cluster.b.partitions.set_nodes(nodes("b", &[&a, &b]));
    let queue = format!("/v1/queues/{}", queue_of(&cluster.a, 1, 0));
    // The same id for several calls, as a job gives it that has one id for all of them.
    let id = [("x-request-id", "one-id")];
    let mut client = cluster.a.client().await;
    for (method, call) in [("PUT", ""), ("POST", "/purge"), ("POST", "/resume"), ("POST", "/resume")] {
        let status = client.call_with(method, &format!("{queue}{call}"), &id, &json!({})).await.status;
        assert!(status < 300, "{call}: {status}");
    }
    // Node `b` has carried them out. It keeps them after it has lost its partitions.
    cluster.b.partitions.set_owner(1, Owner::Nobody);
    cluster.a.partitions.set_owner(1, Owner::Nobody);
    for node in [&cluster.a, &cluster.b] {
        let page = node.get("/v1/activity").await.ok();
        let calls = page["items"].as_array().expect("calls").iter();
        let operations: Vec<_> = calls.map(|call| call["operation"].as_str().expect("a name")).collect();
        assert_eq!(operations.len(), 4, "{page}");
        assert_eq!(operations.iter().filter(|name| **name == "purge_queue").count(), 1, "{page}");
        assert_eq!(page["missing_nodes"], json!([]));
    }
    cluster.a.partitions.set_nodes(nodes("a", &[&a, &b, &absent]));
    let page = cluster.a.get("/v1/activity?limit=1").await.ok();
    assert_eq!((&page["missing_nodes"], page["items"].as_array().map(Vec::len)), (&json!(["c"]), Some(1)));
}
