//! Calls at a node that does not own the queue.

mod bodies;
mod cluster;
mod delivery;
mod hooks;
mod kubernetes;
mod lists;
mod overview;
mod owners;
mod secrets;
mod series;
mod silence;

use serde_json::{Value, json};

use self::cluster::{Cluster, queue_of};
use crate::harness::http2::Http2;

#[tokio::test]
async fn any_node_answers_any_call() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let path = |call: &str| format!("/v1/queues/{queue}{call}");
    let created = cluster.a.call("PUT", &path(""), &json!({"lease": "1h"})).await;
    assert_eq!(created.status, 201);
    let url = format!("http://{}", cluster.b.api);
    assert_eq!(created.header("deltaq-owner"), Some(url.as_str()));
    for internal in ["deltaq-outcome", "deltaq-leases", "deltaq-partitions", "deltaq-node-secret"] {
        assert_eq!(created.header(internal), None);
    }
    cluster.a.post(&path("/add"), &json!([{"key": "x", "n": 1}])).await.ok();
    let direct = cluster.b.get(&path("/items")).await;
    assert_eq!(direct.header("deltaq-owner"), None);
    assert_eq!(direct.ok()["items"][0]["key"], "x");
    let popped = cluster.a.post(&path("/pop"), &Value::Null).await.ok();
    let lease = popped["items"][0]["lease"]["id"].as_str().expect("a lease").to_owned();
    let acked = cluster.a.post(&path("/ack"), &json!({"lease_ids": [lease]})).await.ok();
    assert_eq!(acked["settled"][0]["result"], "ok", "{acked}");
    assert_eq!(cluster.b.get(&path("/known/x")).await.ok()["object"]["n"], 1);
    assert_eq!(cluster.a.metric("deltaq_forwarded_requests_total{result=\"answered\"}").await, 4);
    assert_eq!(cluster.b.metric("deltaq_forwarded_requests_total{result=\"answered\"}").await, 0);
}

#[tokio::test]
async fn calls_over_http2_are_forwarded_too() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let path = |call: &str| format!("/v1/queues/{queue}{call}");
    let mut client = Http2::connect(cluster.a.http2).await;
    let lines = [("content-type", "application/x-ndjson")];
    let mut add = client.begin("POST", &path("/add"), &lines, false).await.expect("a stream");
    for (object, is_last) in [("{\"key\":\"x\"}\n", false), ("{\"key\":\"y\"}\n", true)] {
        add.body.send_data(object.into(), is_last).expect("an open stream");
    }
    assert_eq!(add.reply().await.expect("a reply").ok()["queued"], 2);
    let listed = client.get(&path("/items")).await;
    assert_eq!(listed.header("deltaq-owner"), Some(&*format!("http://{}", cluster.b.api)));
    assert_eq!(listed.ok()["items"][1]["key"], "y");
    client.post(&path("/pop"), &Value::Null).await.problem("wrong-listener");
    assert_eq!(cluster.b.get(&path("")).await.ok()["status"]["leased"], 0);
    let unknown = client.get(&path("/items/absent")).await.problem("key-not-found");
    assert_eq!(unknown["type"], "http://localhost/problems/key-not-found");
}

#[tokio::test]
async fn conditions_and_entity_tags_pass_through() {
    let cluster = Cluster::start().await;
    let queue = format!("/v1/queues/{}", queue_of(&cluster.a, 1, 0));
    let settings = format!("{queue}/settings");
    let (new, lease) = ([("if-none-match", "*")], json!({"lease": "1m"}));
    let mut client = cluster.a.client().await;
    assert_eq!(client.call_with("PUT", &queue, &new, &lease).await.status, 201);
    client.call_with("PUT", &queue, &new, &lease).await.problem("precondition-failed");
    let etag = cluster.b.get(&settings).await.header("etag").expect("an entity tag").to_owned();
    assert_eq!(cluster.a.get(&settings).await.header("etag"), Some(&*etag));
    assert_eq!(cluster.a.get_with(&settings, &[("if-none-match", &*etag)]).await.status, 304);
    let merge_patch = [("if-match", &*etag), ("content-type", "application/merge-patch+json")];
    client.call_with("PATCH", &queue, &merge_patch, &json!({"lease": "2m"})).await.ok();
    let late = client.call_with("PATCH", &queue, &merge_patch, &json!({"lease": "3m"})).await;
    late.problem("precondition-failed");
    assert_eq!(cluster.b.get(&settings).await.ok()["lease"], "2m");
    let delete = client.call_with("DELETE", &queue, &[("if-match", &*etag)], &Value::Null).await;
    delete.problem("precondition-failed");
    client
        .call_with("DELETE", &queue, &[("if-none-match", "*")], &Value::Null)
        .await
        .problem("invalid-request");
}

#[tokio::test]
async fn headers_and_problems_pass_through() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let path = |call: &str| format!("/v1/queues/{queue}{call}");
    let id = [("x-request-id", "the-id")];
    let (forwarded, direct) =
        (cluster.a.get_with(&path("/items"), &id).await, cluster.b.get_with(&path("/items"), &id).await);
    assert_eq!(forwarded.text, direct.text);
    assert_eq!(forwarded.problem("queue-not-found"), direct.problem("queue-not-found"));
    // A pop that is refused keeps the fields of its problem.
    let refused = cluster.a.post(&path("/pop?max=0"), &Value::Null).await;
    assert_eq!(refused.problem("invalid-parameter")["settled"], json!([]));
    cluster.a.post(&path("/add"), &json!([{"key": "a/../b"}, {"key": "c"}])).await.ok();
    assert_eq!(cluster.a.get(&path("/items/a/../b")).await.ok()["key"], "a/../b");
    assert_eq!(cluster.a.get(&path("/items/a%2F..%2Fb")).await.ok()["key"], "a/../b");
    let lines = cluster.a.get_with(&path("/items"), &[("accept", "application/x-ndjson")]).await;
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(lines.text.lines().count(), 2);

    let (mut at_a, mut at_b) = (cluster.a.client().await, cluster.b.client().await);
    let mut lengths = Vec::new();
    for client in [&mut at_a, &mut at_b] {
        client.send_text("HEAD", &path("/indexes"), &[], "").await;
        let (status, headers) = client.head().await.expect("a head");
        assert_eq!(status, 200);
        lengths.push(headers.into_iter().find(|(name, _)| name == "content-length").expect("a length").1);
        // No body precedes the next reply.
        client.call("GET", "/livez", &Value::Null).await.ok();
    }
    assert_eq!(lengths[0], lengths[1]);
}

#[tokio::test]
async fn the_owner_compresses_and_no_node_compresses_again() {
    let cluster = Cluster::start().await;
    let queue = queue_of(&cluster.a, 1, 0);
    let objects: Vec<_> =
        (0..200).map(|n| json!({"key": format!("key-{n}"), "text": "filler ".repeat(10)})).collect();
    cluster.a.post(&format!("/v1/queues/{queue}/add"), &json!(objects)).await.ok();
    let path = format!("/v1/queues/{queue}/items?limit=200");
    let plain = cluster.a.get(&path).await.ok();
    let mut client = cluster.a.client().await;
    client.send_text("GET", &path, &[("accept-encoding", "gzip")], "").await;
    let (status, headers) = client.head().await.expect("a head");
    assert!(headers.contains(&("content-encoding".to_owned(), "gzip".to_owned())), "{headers:?}");
    let packed = client.body(status, &headers).await.expect("a body");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&*packed), &mut text).expect("gzip");
    let unpacked: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(unpacked["items"].as_array().expect("items").len(), 200);
    assert_eq!(unpacked["items"][7]["key"], plain["items"][7]["key"]);
}
