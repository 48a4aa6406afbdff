//! Holds: what workers, lists and operators see while a queue is held.

use deltaq_types::Timestamp;
use serde_json::{Value, json};

use super::{QUEUE, keys, lease, objects, waiters};
use crate::harness::Service;

fn instant(value: &Value) -> Timestamp {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// A queue with the keys b and c, held by a release of the key a.
async fn held(length: &str) -> (Service, Value) {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let body = json!({"lease_id": lease(&popped, 0), "hold": {"scope": "queue", "for": length}});
    let settled = service.post(&format!("{QUEUE}/release"), &body).await.ok();
    (service, settled)
}

#[tokio::test]
async fn the_end_of_a_hold_serves_a_pop_that_waits() {
    let (service, settled) = held("100ms").await;
    let until = instant(&settled["settled"][0]["held_until"]);
    let waited = service.post(&format!("{QUEUE}/pop?wait=30s&max=9"), &Value::Null).await.ok();
    assert_eq!((keys(&waited), &waited["held_until"]), (vec!["b", "c", "a"], &Value::Null));
    let expires = instant(&waited["items"][0]["lease"]["expires_at"]);
    assert!(expires.as_micros() - until.as_micros() >= 30_000_000, "{expires} is after {until}");
}

#[tokio::test]
async fn a_held_queue_says_until_when() {
    let (service, settled) = held("100d").await;
    let settled = settled["settled"][0].clone();
    let until = &settled["held_until"];
    assert_eq!((&settled["result"], &settled["failures"]), (&json!("ok"), &Value::Null));
    let empty = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    assert_eq!((keys(&empty), &empty["held_until"], &empty["paused"]), (vec![], until, &json!(false)));
    let status = service.get(&format!("{QUEUE}/status")).await.ok();
    assert_eq!((&status["held_until"], &status["ready"]), (until, &json!(3)));
    let explained = service.get(&format!("{QUEUE}/explain/b")).await.ok();
    assert_eq!((&explained["reason"], &explained["due_at"]), (&json!("held"), until), "{explained}");
    let sentence = explained["explanation"].as_str().expect("a sentence");
    assert!(sentence.contains(until.as_str().expect("an instant")), "{sentence}");

    // The key does not wait for the rate and for the hold one after the other, but for the later of both.
    service.call("PATCH", QUEUE, &json!({"rate": {"per_second": 0.001, "burst": 1}})).await.ok();
    let seconds =
        |from: &Value, to: &Value| (instant(to).as_micros() - instant(from).as_micros()).div_ceil(1_000_000);
    let due_at = async |key: &str| {
        let explained = service.get(&format!("{QUEUE}/explain/{key}")).await.ok();
        assert_eq!(explained["reason"], "held");
        seconds(until, &explained["due_at"])
    };
    assert_eq!((due_at("b").await, due_at("c").await), (0, 1_000));

    let paused = service.post(&format!("{QUEUE}/pause"), &Value::Null).await.ok();
    assert_eq!((&paused["status"]["paused"], &paused["status"]["held_until"]), (&json!(true), until));
    let explained = service.get(&format!("{QUEUE}/explain/b")).await.ok();
    assert_eq!((&explained["reason"], &explained["due_at"]), (&json!("paused"), &Value::Null), "{explained}");
}

#[tokio::test]
async fn a_hold_of_a_key_keeps_back_this_key_only() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let body = json!({"lease_id": lease(&popped, 0), "hold": {"scope": "key", "for": "30m"}});
    let refused = service.post(&format!("{QUEUE}/ack"), &body).await.problem("invalid-request");
    assert_eq!(refused["field"], "hold.scope");
    let settled = service.post(&format!("{QUEUE}/release"), &body).await.ok();
    let until = &settled["settled"][0]["held_until"];
    service.post(&format!("{QUEUE}/update"), &objects(&["a"])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["b"]);
    let explained = service.get(&format!("{QUEUE}/explain/a")).await.ok();
    let facts = (&explained["reason"], &explained["floor_at"], &explained["failures"]);
    assert_eq!(facts, (&json!("key_held"), until, &json!(0)), "{explained}");
    let again = service.post(&format!("{QUEUE}/release"), &body).await.ok();
    assert_eq!(again["settled"][0]["result"], "repeated");
}

#[tokio::test]
async fn a_resume_serves_a_pop_that_waits_for_a_hold() {
    let (service, _) = held("1h").await;
    let mut waiting = service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &Value::Null).await;
    waiters(&service, 1).await;
    let resumed = service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    assert_eq!(resumed["status"]["held_until"], Value::Null);
    assert_eq!(keys(&waiting.reply().await.ok()), ["b"]);
}

#[tokio::test]
async fn a_pop_whose_own_settle_holds_the_queue_waits_for_its_end() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let hold = json!({"scope": "queue", "for": "50ms"});
    let body = json!({"settle": [{"lease_id": lease(&popped, 0), "as": "ack", "hold": hold}]});
    let waited = service.post(&format!("{QUEUE}/pop?wait=30s"), &body).await.ok();
    assert_eq!(keys(&waited), ["b"]);
    assert!(waited["settled"][0]["held_until"].is_string(), "{waited}");
}
