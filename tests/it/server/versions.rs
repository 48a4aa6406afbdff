//! The setting `version` over HTTP.

use serde_json::{Value, json};

use super::QUEUE;
use crate::harness::{Reply, Service};

/// A service whose queue has the setting.
async fn versioned() -> Service {
    let service = Service::start().await;
    let created = service.call("PUT", QUEUE, &json!({"version": "/meta/at"})).await.ok();
    assert_eq!(created["settings"]["version"], "/meta/at");
    service
}

fn at(key: &str, version: impl Into<Value>) -> Value {
    json!({"key": key, "meta": {"at": version.into()}})
}

async fn post(service: &Service, call: &str, body: &Value) -> Reply {
    service.post(&format!("{QUEUE}/{call}"), body).await
}

/// `queued`, `ignored` and `stale` of a reply.
fn outcome(reply: &Value) -> [u64; 3] {
    let count = |name: &str| reply[name].as_u64().unwrap_or_default();
    [count("queued"), count("ignored"), count("stale")]
}

#[tokio::test]
async fn stale_objects_are_counted_in_the_reply_of_each_call() {
    let service = versioned().await;
    let first = post(&service, "add", &json!([at("a", 5), at("b", 5)])).await.ok();
    assert_eq!((outcome(&first), &first["stale"]), ([2, 0, 0], &json!(0)));
    let deltas = json!([
        {"type": "Updated", "object": at("a", 5)},
        {"type": "Deleted", "object": at("b", 4)},
        {"type": "Deleted", "key": "c"},
        {"type": "Added", "object": at("a", 6)},
    ]);
    for (call, body, expected) in [
        ("add", at("a", 5), [0, 0, 1]),
        ("update", json!([at("a", 4.5), at("b", 5)]), [0, 0, 2]),
        ("delete", at("a", 1), [0, 0, 1]),
        ("deltas", deltas, [1, 1, 2]),
        ("replace?dry_run=true", json!([at("a", 7), at("b", 1)]), [1, 0, 1]),
        ("replace", json!([at("a", 6), at("b", 6)]), [1, 0, 1]),
        ("delete?key=a", Value::Null, [1, 0, 0]),
    ] {
        let reply = post(&service, call, &body).await.ok();
        assert_eq!(outcome(&reply), expected, "{call} {body}: {reply}");
    }
    let status = service.get(QUEUE).await.ok()["status"].clone();
    assert_eq!(status["last_replace"]["counts"]["stale"], 1);
}

#[tokio::test]
async fn versions_have_any_number_of_digits() {
    let service = versioned().await;
    let text = |version: &str| format!(r#"{{"key":"a","meta":{{"at":{version}}}}}"#);
    for (version, stale) in [
        ("9007199254740992", 0),
        ("9007199254740993", 0),
        ("9007199254740992.5", 1),
        ("9007199254740993.0", 1),
        ("9007199254740993.00000000000000000001", 0),
        ("1e400", 0),
        ("1e399", 1),
        (r#""2026-11-21T04:20:03Z""#, 0),
        (r#""2026-11-21T04:20:02Z""#, 1),
        ("1e500", 1),
    ] {
        let mut client = service.client().await;
        let json = [("content-type", "application/json")];
        client.send_text("POST", &format!("{QUEUE}/update"), &json, &text(version)).await;
        assert_eq!(outcome(&client.reply().await.ok())[2], stale, "{version}");
    }
}

#[tokio::test]
async fn an_object_without_a_version_is_refused_with_its_place() {
    let service = versioned().await;
    let before = service.get(QUEUE).await.ok()["status"]["resource_version"].clone();
    let long = at("a", "x".repeat(257));
    for (wrong, words) in [
        (json!({"key": "a"}), "no version at \"/meta/at\""),
        (at("a", Value::Null), "no version at \"/meta/at\""),
        (at("a", true), "is a boolean"),
        (at("a", json!([1])), "is an array"),
        (long, "has 257 bytes; at most 256"),
    ] {
        let list = json!([at("b", 1), wrong]);
        let deltas = json!([{"type": "Added", "object": at("b", 1)}, {"type": "Updated", "object": wrong}]);
        for (call, body) in [("add", &list), ("update", &list), ("replace", &list), ("deltas", &deltas)] {
            let problem = post(&service, call, body).await.problem("invalid-object");
            assert_eq!(
                (&problem["pointer"], &problem["index"]),
                (&json!("/meta/at"), &json!(1)),
                "{problem}"
            );
            let detail = problem["detail"].as_str().expect("a text");
            assert!(detail.contains(words), "{detail}");
            assert!(
                problem["hint"].as_str().is_some_and(|hint| hint.contains("PATCH {\"version\":null}")),
                "{problem}"
            );
        }
    }
    assert_eq!(service.get(QUEUE).await.ok()["status"]["resource_version"], before, "nothing was accepted");
    post(&service, "add", &at("a", 5)).await.ok();
    post(&service, "delete", &at("a", false)).await.problem("invalid-object");
    for deletion in [json!({"key": "a"}), at("a", Value::Null)] {
        assert_eq!(
            outcome(&post(&service, "delete", &deletion).await.ok())[2],
            0,
            "a Delete needs no version"
        );
    }
}

#[tokio::test]
async fn the_setting_goes_with_the_other_settings() {
    let service = versioned().await;
    for (wrong, field) in [
        (json!({"version": "at"}), "version"),
        (json!({"version": 1}), "version"),
        (json!({"version": "/a/~2"}), "version"),
        (json!({"mode": "keys", "version": "/at"}), "version"),
        (json!({"prune": ["/meta"]}), "prune"),
        (json!({"version": "/debug/at", "prune": ["/debug"]}), "prune"),
    ] {
        let problem = service.call("PATCH", QUEUE, &wrong).await.problem("invalid-config");
        assert_eq!(problem["field"], field, "{wrong}: {problem}");
    }
    post(&service, "add", &at("a", 5)).await.ok();
    let changed = service.call("PATCH", QUEUE, &json!({"version": "/n"})).await.ok();
    assert_eq!(changed["settings"]["version"], "/n");
    post(&service, "update", &at("a", 9)).await.problem("invalid-object");
    assert_eq!(outcome(&post(&service, "update", &json!({"key": "a", "n": 1})).await.ok()), [1, 0, 0]);
    let removed = service.call("PATCH", QUEUE, &json!({"version": null})).await.ok();
    assert_eq!(removed["settings"]["version"], Value::Null);
    assert_eq!(outcome(&post(&service, "update", &json!({"key": "a"})).await.ok()), [1, 0, 0]);
}

#[tokio::test]
async fn a_default_of_the_schema_can_be_the_version() {
    let service = Service::start().await;
    let schema = json!({"properties": {"at": {"default": 1}}});
    service.call("PUT", QUEUE, &json!({"version": "/at", "schema": schema})).await.ok();
    assert_eq!(outcome(&post(&service, "add", &json!({"key": "a"})).await.ok()), [1, 0, 0]);
    assert_eq!(outcome(&post(&service, "add", &json!({"key": "a"})).await.ok()), [0, 0, 1]);
}
