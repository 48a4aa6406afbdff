//! The Kubernetes API of several nodes: any of them has the resources of all.

use deltaq_service::Owner;
use serde_json::{Value, json};

use super::cluster::{Cluster, queue_of};
use crate::resources::HANDSHAKE;

/// Creates a resource for each queue; its plural name is that of the queue.
async fn create(cluster: &Cluster, queue: &str) -> String {
    let plural = queue.to_owned();
    let settings = json!({
        "key": ["/metadata/name"],
        "kubernetes": { "group": "shop.example", "version": "v1", "kind": "Price", "plural": plural },
    });
    assert_eq!(cluster.a.call("PUT", &format!("/v1/queues/{queue}"), &settings).await.status, 201);
    format!("/apis/shop.example/v1/{plural}")
}

#[tokio::test]
async fn any_node_serves_the_resources_of_all() {
    let cluster = Cluster::start().await;
    let mut paths = Vec::new();
    for partition in 0..2 {
        paths.push(create(&cluster, &queue_of(&cluster.a, partition, 0)).await);
    }
    for node in [&cluster.a, &cluster.b] {
        let resources = node.get("/apis/shop.example/v1").await.ok();
        assert_eq!(resources["resources"].as_array().map(Vec::len), Some(2));
        node.get("/v1/nodes/kubernetes").await.problem("not-found");
    }
    let object = json!({ "apiVersion": "shop.example/v1", "kind": "Price", "metadata": { "name": "a" } });
    for (node, other, path) in [(&cluster.a, &cluster.b, &paths[1]), (&cluster.b, &cluster.a, &paths[0])] {
        assert_eq!(node.post(path, &object).await.status, 201);
        let here = node.get(&format!("{path}/a")).await.ok();
        assert_eq!(here, other.get(&format!("{path}/a")).await.ok());
        let refused = node.post(path, &object).await;
        assert_eq!((refused.status, &refused.body["reason"]), (409, &json!("AlreadyExists")));
        let watched = node.get(&format!("{path}?watch=1&timeoutSeconds=1")).await;
        let event: Value = serde_json::from_str(watched.text.lines().next().expect("a line")).expect("JSON");
        assert_eq!((&event["type"], &event["object"]), (&json!("ADDED"), &here));
        let refused = node.get_with(&format!("{path}?watch=1"), &HANDSHAKE).await;
        assert!(
            refused.status == 200 && refused.text.contains("WebSocket is not supported"),
            "{}",
            refused.text
        );
    }
    let absent = cluster.a.get("/apis/shop.example/v1/nopes").await;
    assert_eq!((absent.status, &absent.body["reason"]), (404, &json!("NotFound")));
}

/// While a queue has no owner, a node can't tell whether it is the resource of a request: 404 would be wrong.
#[tokio::test]
async fn a_resource_without_an_owner_is_not_missing() {
    let cluster = Cluster::start().await;
    let path = create(&cluster, &queue_of(&cluster.a, 1, 0)).await;
    cluster.a.partitions.set_owner(1, Owner::Nobody);
    for path in [&*path, "/apis", "/apis/shop.example/v1"] {
        let refused = cluster.a.get(path).await;
        assert_eq!((refused.status, &refused.body["reason"]), (503, &json!("ServiceUnavailable")), "{path}");
        assert!(refused.header("retry-after").is_some(), "{path}");
    }
}
