//! Changes of an object that is expected to be the newest one of its key.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::QUEUE;
use crate::harness::{Reply, Service};

/// The newest object of a key, with its entity tag.
async fn newest(service: &Service, key: &str) -> (Value, String) {
    let reply = service.get(&format!("{QUEUE}/latest/{key}")).await;
    let tag = reply.header("etag").expect("an entity tag").to_owned();
    (reply.ok(), tag)
}

async fn with(service: &Service, call: &str, header: (&str, &str), body: &Value) -> Reply {
    service.call_with("POST", &format!("{QUEUE}/{call}"), &[header], body).await
}

#[tokio::test]
async fn a_change_of_another_object_than_expected_is_refused() {
    let service = Service::start().await;
    let object = |v: u32| json!({"key": "a", "v": v});
    with(&service, "update", ("if-match", "*"), &object(0)).await.problem("precondition-failed");
    assert_eq!(service.get(QUEUE).await.status, 404, "a refused call creates no queue");
    with(&service, "add", ("if-none-match", "*"), &object(1)).await.ok();
    let (_, first) = newest(&service, "a").await;
    with(&service, "update", ("if-match", &first), &object(2)).await.ok();
    let (document, second) = newest(&service, "a").await;
    let refused = [
        ("add", ("if-none-match", "*")),
        ("update", ("if-match", &*first)),
        ("update", ("if-match", "")),
        ("update", ("if-match", "\"a\", W/\"b-1\"")),
        ("update", ("if-none-match", &*second)),
        ("delete", ("if-match", &*first)),
    ];
    for (call, header) in refused {
        let problem = with(&service, call, header, &object(3)).await.problem("precondition-failed");
        let found = (&problem["status"], &problem["key"], &problem["index"], &problem["resource_version"]);
        assert_eq!(
            found,
            (&json!(412), &json!("a"), &json!(0), &document["resource_version"]),
            "{call} {header:?}"
        );
        assert_eq!(newest(&service, "a").await, (document.clone(), second.clone()), "{call} {header:?}");
    }
    with(&service, "delete?key=a", ("if-match", &second), &Value::Null).await.ok();
    let gone = with(&service, "update", ("if-match", &second), &object(4)).await;
    assert_eq!(gone.problem("precondition-failed")["resource_version"], Value::Null);
    with(&service, "add", ("if-none-match", "*"), &object(5)).await.ok();
}

#[tokio::test]
async fn a_proxy_may_mark_a_tag() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a"})).await.ok();
    for mark in
        ["W/\"TAG\"", "\"TAG-gzip\"", "W/\"TAG-br\"", "\"TAG--gzip\"", "\"TAG;gzip\"", "\"x\" , W/\"TAG\""]
    {
        let (_, tag) = newest(&service, "a").await;
        let marked = mark.replace("TAG", tag.trim_matches('"'));
        with(&service, "update", ("if-match", &marked), &json!({"key": "a"})).await.ok();
        with(&service, "update", ("if-match", &marked), &json!({"key": "a"}))
            .await
            .problem("precondition-failed");
    }
    // A longer number that begins with the digits of the version is another version.
    let (_, tag) = newest(&service, "a").await;
    let longer = format!("{}0\"", tag.trim_end_matches('"'));
    with(&service, "update", ("if-match", &longer), &json!({"key": "a"}))
        .await
        .problem("precondition-failed");
}

#[tokio::test]
async fn a_condition_is_about_one_object() {
    let service = Service::start().await;
    let list = json!([{"key": "a"}, {"key": "b"}]);
    let problem = with(&service, "add", ("if-none-match", "*"), &list).await.problem("invalid-request");
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("expected_version")), "{problem}");
    service.call("PUT", "/v1/queues/keys", &json!({"mode": "keys"})).await.ok();
    let of_keys = [("if-match", "*")];
    service
        .call_with("POST", "/v1/queues/keys/add?key=a", &of_keys, &Value::Null)
        .await
        .problem("wrong-mode");
}

#[tokio::test]
async fn a_condition_of_a_batch_refuses_the_whole_batch() {
    let service = Service::start().await;
    let path = format!("{QUEUE}/deltas");
    let deltas = async |entries: Value| service.post(&path, &entries).await;
    let entry = |key: &str, version: Value| json!({"type": "Updated", "object": {"key": key}, "expected_version": version});
    deltas(json!([entry("a", json!(0)), entry("b", Value::Null)])).await.ok();
    let version = newest(&service, "a").await.0["resource_version"].clone();
    let problem =
        deltas(json!([entry("b", Value::Null), entry("a", json!(0))])).await.problem("precondition-failed");
    assert_eq!((&problem["index"], &problem["resource_version"]), (&json!(1), &version));
    deltas(json!([entry("a", version.clone()), entry("b", Value::Null)])).await.ok();
    deltas(json!([entry("a", version)])).await.problem("precondition-failed");
}

#[tokio::test]
async fn no_update_of_eight_writers_is_lost() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &json!({"key": "n", "n": 0})).await.ok();
    let write = async |_| {
        for _ in 0..20 {
            loop {
                let (document, tag) = newest(&service, "n").await;
                let next = json!({"key": "n", "n": document["object"]["n"].as_u64().expect("a number") + 1});
                let reply = with(&service, "update", ("if-match", &tag), &next).await;
                if reply.status == 200 {
                    break;
                }
                reply.problem("precondition-failed");
            }
        }
    };
    join_all((0..8).map(write)).await;
    assert_eq!(newest(&service, "n").await.0["object"]["n"], 160);
}
