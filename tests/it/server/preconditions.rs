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
        ("update", ("if-match", "\"*\"")),
        ("update", ("if-match", "W/\"*\"")),
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
async fn only_the_bare_asterisk_names_every_tag() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a", "v": 0})).await.ok();
    let names_none: [&[&str]; 6] =
        [&["\"*\""], &["W/\"*\""], &["\"x\""], &["\"x\", \"y\""], &["\"x\"", "\"y\""], &["\"a,*\""]];
    for (v, lines) in (1..).zip(names_none) {
        let headers: Vec<_> = lines.iter().map(|line| ("if-none-match", *line)).collect();
        let object = json!({"key": "a", "v": v});
        service.call_with("POST", &format!("{QUEUE}/update"), &headers, &object).await.ok();
        assert_eq!(newest(&service, "a").await.0["object"], object);
    }
    // Of several lines and tags, each counts.
    let (document, tag) = newest(&service, "a").await;
    for lines in [[&*tag, "\"x\""], ["\"x\"", &*tag]] {
        let several = [("if-none-match", lines[0]), ("if-none-match", lines[1])];
        let refused =
            service.call_with("POST", &format!("{QUEUE}/update"), &several, &json!({"key": "a"})).await;
        refused.problem("precondition-failed");
        assert_eq!(newest(&service, "a").await.0, document);
    }
    let several = [("if-match", "\"x\""), ("if-match", &*tag)];
    service.call_with("POST", &format!("{QUEUE}/update"), &several, &json!({"key": "a"})).await.ok();
    // Both headers must hold.
    let (_, tag) = newest(&service, "a").await;
    let both = [("if-match", &*tag), ("if-none-match", "*")];
    let refused = service.call_with("POST", &format!("{QUEUE}/update"), &both, &json!({"key": "a"})).await;
    refused.problem("precondition-failed");
}

#[tokio::test]
async fn a_tag_of_a_deleted_queue_names_no_object() {
    let service = Service::start().await;
    let object = json!({"key": "a"});
    service.post(&format!("{QUEUE}/add"), &object).await.ok();
    let (_, tag) = newest(&service, "a").await;
    service.call("DELETE", QUEUE, &Value::Null).await;
    with(&service, "update", ("if-match", &tag), &object).await.problem("precondition-failed");
    assert_eq!(service.get(QUEUE).await.status, 404);
    service.post(&format!("{QUEUE}/add"), &object).await.ok();
    with(&service, "update", ("if-match", &tag), &object).await.problem("precondition-failed");
    with(&service, "update", ("if-none-match", &tag), &object).await.ok();
}

#[tokio::test]
async fn a_queue_without_such_calls_says_so_first() {
    let service = Service::start().await;
    service.call("PUT", "/v1/queues/keys", &json!({"mode": "keys"})).await.ok();
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a"})).await.ok();
    service.call("PUT", "/v1/queues/follower", &json!({"follow": {"queue": "q"}})).await.ok();
    for (queue, code) in [("keys", "wrong-mode"), ("follower", "follower")] {
        for header in [("if-match", "\"x\""), ("if-match", "*"), ("if-none-match", "*")] {
            for call in ["add?key=a", "update?key=a", "delete?key=a"] {
                let body =
                    if queue == "keys" || call.starts_with("delete") { Value::Null } else { json!({}) };
                let path = format!("/v1/queues/{queue}/{call}");
                let refused = service.call_with("POST", &path, &[header], &body).await;
                assert_eq!(refused.problem(code)["status"], 409, "{path} {header:?}");
            }
        }
        let path = format!("/v1/queues/{queue}/deltas");
        let entry = json!([{"type": "Added", "object": {"key": "a"}, "expected_version": 1}]);
        service.post(&path, &entry).await.problem(code);
    }
}

#[tokio::test]
async fn an_entry_that_is_left_out_still_expects_its_version() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"schema": {"properties": {"v": {"type": "integer"}}}})).await.ok();
    service.post(&format!("{QUEUE}/add"), &json!([{"key": "a", "v": 1}, {"key": "b", "v": 1}])).await.ok();
    let (document, _) = newest(&service, "a").await;
    let (path, version) = (format!("{QUEUE}/deltas?skip_invalid=true"), document["resource_version"].clone());
    let other = json!({"type": "Updated", "object": {"key": "b", "v": 2}});
    let invalid = |key: Value, expected: Value| json!({"type": "Updated", "object": {"key": key, "v": "x"}, "expected_version": expected});
    for entries in [
        json!([invalid(json!("a"), json!(0)), other]),
        json!([other, invalid(json!("a"), json!(7))]),
        json!([invalid(json!("a"), json!(7))]),
        // The object that is sent is valid, and the index counts the entries that are left out.
        json!([invalid(json!("b"), Value::Null), {"type": "Deleted", "key": "a", "expected_version": 0}]),
        // Only the key of a deletion counts.
        json!([other, {"type": "Deleted", "key": "a", "object": {"key": "b"}, "expected_version": 0}]),
    ] {
        let problem = service.post(&path, &entries).await.problem("precondition-failed");
        let expects = |entry: &&Value| entry["expected_version"].is_u64();
        let index = entries.as_array().and_then(|all| all.iter().position(|entry| expects(&entry)));
        assert_eq!((&problem["key"], &problem["index"]), (&json!("a"), &json!(index)), "{entries}");
        assert_eq!(problem["resource_version"], version, "{entries}");
        assert_eq!(newest(&service, "a").await.0, document, "{entries}");
        assert_eq!(newest(&service, "b").await.0["object"]["v"], 1, "{entries}");
    }
    // An entry without a key that can be read expects nothing of a key.
    let applied = json!([invalid(json!("a"), version), invalid(json!({}), json!(7)), other]);
    let reply = service.post(&path, &applied).await.ok();
    assert_eq!((&reply["queued"], &reply["invalid"]), (&json!(1), &json!(2)));
    assert_eq!(newest(&service, "b").await.0["object"]["v"], 2);
    // A call that is refused creates no queue, whether or not its only entry is left out.
    let missing = "/v1/queues/missing";
    let broken = json!([{"type": "Updated", "key": "a", "object": 5, "expected_version": 7}]);
    let refused = service.post(&format!("{missing}/deltas?skip_invalid=true"), &broken).await;
    refused.problem("precondition-failed");
    assert_eq!(service.get(missing).await.status, 404);
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

#[tokio::test]
async fn no_delta_of_eight_writers_is_lost() {
    let service = Service::start().await;
    let path = format!("{QUEUE}/deltas");
    let write = async |_| {
        for _ in 0..20 {
            loop {
                let read = service.get(&format!("{QUEUE}/latest/n")).await;
                let (version, n) = if read.status == 404 {
                    (json!(0), 0)
                } else {
                    let document = read.ok();
                    (
                        document["resource_version"].clone(),
                        document["object"]["n"].as_u64().expect("a number"),
                    )
                };
                let next = json!({"key": "n", "n": n + 1});
                let reply = service
                    .post(&path, &json!({"type": "Updated", "object": next, "expected_version": version}))
                    .await;
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
