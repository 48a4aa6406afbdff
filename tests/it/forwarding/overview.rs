//! Reads over all queues cover all nodes.

use deltaq_service::Owner;
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
