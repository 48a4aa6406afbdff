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
    let since = found["leased_at"].as_str().expect("a time");
    assert!(
        found["explanation"].as_str().is_some_and(|text| text.contains(&format!("since {since}"))),
        "{found}"
    );
    assert_eq!(service.get(&format!("{QUEUE}/items/a")).await.ok()["leased_at"], since);
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

#[tokio::test]
async fn a_debounced_key_tells_when_it_is_due_and_when_at_the_latest() {
    let service = Service::start().await;
    let settings = json!({"debounce": {"quiet": "1h", "max_wait": "2h"}});
    service.call("PUT", QUEUE, &settings).await.ok();
    post(&service, "add", json!({"key": "a"})).await;
    let (reason_word, found) = reason(&service, "a", "it waits for a pause in its changes until 2").await;
    assert_eq!(reason_word, "debouncing");
    let (due, latest) = (found["due_at"].as_str(), found["latest_at"].as_str());
    assert!(due.is_some() && due < latest, "{found}");
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!((&item["state"], &item["due_at"]), (&json!("delayed"), &found["due_at"]));

    post(&service, "update?debounce=0s", json!({"key": "a", "v": 2})).await;
    let lease = pop(&service).await;
    post(&service, "update", json!({"key": "a", "v": 3})).await;
    let (_, found) =
        reason(&service, "a", "1 newer change waits behind the lease, at the earliest until 2").await;
    assert!(found["latest_at"].is_string(), "{found}");
    post(&service, "ack", json!({"lease_id": lease})).await;
    assert_eq!(reason(&service, "a", "at the latest until 2").await.0, "debouncing");
    post(&service, "delayed/promote", json!({"keys": ["a"]})).await;
    let (_, found) = reason(&service, "a", "the next pop gets it").await;
    assert_eq!(found["latest_at"], Value::Null);
}

#[tokio::test]
async fn a_key_that_backs_off_with_a_window_is_due_at_the_later_end_of_both() {
    let service = Service::start().await;
    let settings = json!({"debounce": {"quiet": "2h", "max_wait": "3h"}, "max_failures": 0});
    service.call("PUT", QUEUE, &settings).await.ok();
    let nack = async |key: &str, delay: &str, floor: bool| {
        post(&service, "add?debounce=0s", json!({"key": key})).await;
        let lease = pop(&service).await;
        let nack = json!({"lease_id": lease, "as": "nack", "delay": delay, "floor": floor});
        post(&service, "settle", json!({"settle": [nack]})).await;
        post(&service, "update", json!({"key": key, "v": 2})).await;
        service.get(&format!("{QUEUE}/explain/{key}")).await.ok()
    };
    let text = |found: &Value, member: &str| found[member].as_str().expect("a text").to_owned();

    let window = nack("a", "1h", false).await;
    assert_eq!(window["reason"], "debouncing");
    assert!(text(&window, "explanation").contains(&text(&window, "due_at")), "{window}");
    assert!(text(&window, "explanation").contains(&text(&window, "latest_at")), "{window}");
    assert!(text(&window, "due_at") < text(&window, "latest_at"), "{window}");

    let backoff = nack("b", "10h", false).await;
    assert_eq!(backoff["reason"], "backing_off");
    assert!(text(&backoff, "explanation").contains(&text(&backoff, "due_at")), "{backoff}");
    assert_eq!(backoff["due_at"], backoff["latest_at"], "the backoff outlasts the window in any case");

    let floor = nack("c", "10h", true).await;
    assert_eq!((&floor["due_at"], &floor["latest_at"]), (&floor["floor_at"], &floor["floor_at"]));

    post(&service, "update", json!({"key": "d"})).await;
    post(&service, "close", json!({})).await;
    for key in ["a", "b", "d"] {
        let found = service.get(&format!("{QUEUE}/explain/{key}")).await.ok();
        assert_eq!((found["latest_at"].is_null(), found["reason"] == "debouncing"), (true, false), "{found}");
    }
    let found = service.get(&format!("{QUEUE}/explain/c")).await.ok();
    assert_eq!((&found["due_at"], &found["latest_at"]), (&floor["floor_at"], &Value::Null));
    let leased = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!(leased["state"], "ready");
}

#[tokio::test]
async fn a_window_behind_a_lease_of_a_closed_queue_delays_nothing() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"debounce": {"quiet": "1h"}})).await.ok();
    post(&service, "add?debounce=0s", json!({"key": "a"})).await;
    let lease = pop(&service).await;
    post(&service, "update", json!({"key": "a", "v": 2})).await;
    post(&service, "close", json!({})).await;
    let found = service.get(&format!("{QUEUE}/explain/a")).await.ok();
    assert_eq!((&found["due_at"], &found["latest_at"]), (&Value::Null, &Value::Null), "{found}");
    post(&service, "ack", json!({"lease_id": lease})).await;
    assert_eq!(reason(&service, "a", "the next pop gets it").await.0, "next");
}
