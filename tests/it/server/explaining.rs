//! Why a key is not delivered: a reason and a sentence for each state.

use serde_json::{Value, json};

use super::QUEUE;
use crate::harness::Service;

async fn post(service: &Service, call: &str, body: Value) -> Value {
    service.post(&format!("{QUEUE}/{call}"), &body).await.ok()
}

/// Asks for the reason of a key, and checks the sentence.
async fn reason(service: &Service, key: &str, sentence: &str) -> (String, Value) {
    let found = service.get(&format!("{QUEUE}/explain/{key}")).await.ok();
    let text = found["explanation"].as_str().expect("a sentence");
    assert!(text.contains(sentence) && text.ends_with('.'), "{text}");
    (found["reason"].as_str().expect("a reason").to_owned(), found)
}

async fn pop(service: &Service) -> Value {
    post(service, "pop?worker=me", json!({})).await["items"][0]["lease"]["id"].take()
}

#[tokio::test]
async fn each_state_of_a_key_has_a_reason() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"max_failures": 2})).await.ok();
    assert_eq!(reason(&service, "a", "the queue does not have it").await.0, "unknown");
    post(&service, "add", json!([{"key": "a"}, {"key": "b"}, {"key": "c/d"}])).await;
    assert_eq!(reason(&service, "a", "the next pop gets it").await.0, "next");
    let (queued, found) = reason(&service, "c/d", "2 other keys are ahead of it").await;
    assert_eq!((queued.as_str(), &found["ahead"], &found["key"]), ("queued", &json!(2), &json!("c/d")));
    assert_eq!(reason(&service, "b", "1 other key is ahead of it").await.0, "queued");
    post(&service, "pause", Value::Null).await;
    assert_eq!(reason(&service, "a", "the queue is paused; 0 other keys are ahead").await.0, "paused");
    post(&service, "resume", Value::Null).await;

    let lease = pop(&service).await;
    post(&service, "update", json!({"key": "a", "v": 2})).await;
    let (leased, found) = reason(&service, "a", "worker \"me\" holds it until 2").await;
    assert_eq!((leased.as_str(), &found["lease"]["id"]), ("leased", &lease));
    reason(&service, "a", "1 newer change waits behind the lease").await;
    post(&service, "ack", json!({"lease_ids": [lease]})).await;

    let lease = pop(&service).await;
    post(&service, "nack", json!({"lease_ids": [lease], "delay": "1h", "error": "no route"})).await;
    let (backing_off, found) =
        reason(&service, "b", "after 1 failure, the last with the error \"no route\"").await;
    assert_eq!((backing_off.as_str(), &found["last_error"]), ("backing_off", &json!("no route")));
    assert!(found["due_at"].is_string() && found["ahead"].is_null(), "{found}");
    let lease = pop(&service).await;
    post(&service, "reject", json!({"lease_ids": [lease], "error": "bad"})).await;
    assert_eq!(reason(&service, "c/d", "parked with the error \"bad\"").await.0, "parked");

    let lease = pop(&service).await;
    post(&service, "ack", json!({"lease_ids": [lease]})).await;
    assert_eq!(reason(&service, "a", "its newest change is acknowledged").await.0, "nothing_waits");
    post(&service, "add?delay=1h", json!({"key": "late"})).await;
    assert_eq!(reason(&service, "late", "it is delayed until 2").await.0, "delayed");
}

#[tokio::test]
async fn a_closed_queue_of_mode_keys_freezes_delays() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"mode": "keys"})).await.ok();
    post(&service, "add?key=a&delay=1h", Value::Null).await;
    assert_eq!(reason(&service, "a", "it is delayed until 2").await.0, "delayed");
    post(&service, "close", Value::Null).await;
    assert_eq!(reason(&service, "a", "the queue is closed, so the delay does not end").await.0, "closed");
}

#[tokio::test]
async fn the_keys_ahead_are_counted_up_to_a_limit() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"mode": "keys"})).await.ok();
    let keys: Vec<Value> = (0..5_002).map(|number| json!({"key": format!("k{number}")})).collect();
    post(&service, "add", Value::Array(keys)).await;
    let (_, found) = reason(&service, "k5000", "and 5000 other keys are ahead").await;
    assert_eq!((&found["ahead"], &found["has_more_ahead"]), (&json!(5000), &json!(false)));
    let (_, found) = reason(&service, "k5001", "more than 5000 other keys are ahead").await;
    assert_eq!((&found["ahead"], &found["has_more_ahead"]), (&json!(5000), &json!(true)));
}

#[tokio::test]
async fn a_parked_key_of_mode_events_does_not_wait_for_a_new_change() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"mode": "events"})).await.ok();
    post(&service, "add", json!([{"key": "a"}, {"key": "a"}])).await;
    let lease = pop(&service).await;
    reason(&service, "a", "1 newer change waits behind the lease").await;
    post(&service, "reject", json!({"lease_ids": [lease]})).await;
    assert_eq!(reason(&service, "a", "and a discard drops it").await.0, "parked");
}

#[tokio::test]
async fn a_delay_of_a_ready_or_leased_key_of_mode_keys_adds_it_again() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"mode": "keys"})).await.ok();
    post(&service, "add?key=a", Value::Null).await;
    post(&service, "add?key=a&delay=1h", Value::Null).await;
    let (ready, found) = reason(&service, "a", "the next pop gets it; its delay adds it again at 2").await;
    assert_eq!((ready.as_str(), found["due_at"].is_string()), ("next", true));
    let lease = pop(&service).await;
    assert_eq!(reason(&service, "a", "; its delay adds it again at 2").await.0, "leased");
    assert_eq!(post(&service, "delayed/promote", json!({"all": true})).await["keys"], 1);
    post(&service, "ack", json!({"lease_id": lease})).await;
    assert_eq!(reason(&service, "a", "the next pop gets it").await.0, "next", "it is delivered again");
}

#[tokio::test]
async fn a_floor_is_shown_while_it_lasts() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"max_failures": 2})).await.ok();
    post(&service, "add", json!({"key": "a"})).await;
    let lease = pop(&service).await;
    let nack = json!({"lease_id": lease, "as": "nack", "delay": "1h", "floor": true, "error": "429"});
    let settled = post(&service, "settle", json!({"settle": [nack]})).await;
    post(&service, "update", json!({"key": "a", "v": 2})).await;
    let (reason_word, found) = reason(&service, "a", "its worker asked that no change shortens this").await;
    assert_eq!(reason_word, "backing_off");
    assert_eq!((&found["floor_at"], &found["due_at"]), (&found["due_at"], &settled["settled"][0]["due_at"]));
    post(&service, "delayed/promote", json!({"keys": ["a"]})).await;
    let (_, found) = reason(&service, "a", "the next pop gets it").await;
    assert_eq!(found["floor_at"], Value::Null);

    let lease = pop(&service).await;
    let nack = json!({"lease_id": lease, "as": "nack", "delay": "1h", "floor": true});
    let popped = post(&service, "pop", json!({"settle": [nack]})).await;
    assert_eq!(popped["settled"][0]["parked"], true);
    let (_, found) =
        reason(&service, "a", "a redrive makes it ready again, and a new change not before 2").await;
    assert!(found["floor_at"].is_string() && found["due_at"].is_null(), "{found}");
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!(item["state"], "parked");
    post(&service, "update", json!({"key": "a", "v": 3})).await;
    assert_eq!(reason(&service, "a", "it is delayed until 2").await.0, "delayed");
}
