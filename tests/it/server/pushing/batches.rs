//! Requests with several keys.

use serde_json::{Value, json};

use super::{QUEUE, SECRET, Service, objects, parked, pushing, reaches, service, status, verifies};
use crate::harness::receiver::{Hook, Receiver};
use crate::harness::within;

/// Keys that wait before the queue pushes, so that the first pop finds all of them.
async fn waiting(keys: &[&str], receiver: &Receiver, more: Value) -> (Service, tempfile::TempDir) {
    let (service, folder) = service().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(keys)).await.ok();
    pushing(&service, receiver, more).await;
    (service, folder)
}

/// The keys of a request.
fn keys(hook: &Hook) -> Vec<String> {
    let body = hook.json();
    let items = body["data"]["items"].as_array().expect("a list");
    items.iter().map(|item| item["key"].as_str().expect("a key").to_owned()).collect()
}

#[tokio::test]
async fn a_request_has_several_keys_and_its_id_is_that_of_its_content() {
    let mut receiver = Receiver::start().await;
    let (service, _folder) = waiting(&["a", "b", "c", "d", "e"], &receiver, json!({"batch": 3})).await;
    let first = receiver.next().await;
    let body = first.json();
    assert_eq!(
        (keys(&first), &body["type"]),
        (vec!["a".into(), "b".into(), "c".into()], &json!("deltaq.items"))
    );
    let items = &body["data"]["items"];
    assert_eq!((&items[1]["deltas"][0]["object"]["key"], &items[1]["attempt"]), (&json!("b"), &json!(1)));
    assert_eq!(body["timestamp"], items[2]["deltas"][0]["queued_at"], "the newest of all");
    assert!(verifies(SECRET, &first));
    for name in ["deltaq-key", "deltaq-token", "deltaq-attempt"] {
        assert!(!first.headers.iter().any(|(other, _)| other == name), "{name} is of one key");
    }
    let id = first.header("webhook-id").to_owned();
    assert!(receiver.is_silent());
    // No answer: each key comes alone, with another id.
    drop(first);
    let (mut ids, mut sent) = (vec![id], Vec::new());
    while sent.len() < 5 {
        let hook = receiver.next().await;
        let keys = keys(&hook);
        assert!(keys.len() == 1 || keys == ["d", "e"], "{keys:?}");
        sent.extend(keys);
        ids.push(hook.header("webhook-id").to_owned());
        hook.answer(200, "").await;
    }
    sent.sort();
    assert_eq!(sent, ["a", "b", "c", "d", "e"]);
    let requests = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), requests);
    reaches(&service, "/known", json!(5)).await;
}

#[tokio::test]
async fn the_answer_says_what_happens_to_each_key() {
    let mut receiver = Receiver::start().await;
    let more = json!({"batch": 9, "retry": ["1h"]});
    let (service, _folder) = waiting(&["a", "b", "c"], &receiver, more).await;
    let answer = json!({"settled": [
        {"key": "b", "as": "reject", "error": "no such shop"},
        {"key": "c", "as": "nack", "error": "later"},
    ]});
    let head = "content-type: application/json\r\n";
    receiver.next().await.answer_with(200, head, &answer.to_string()).await;
    reaches(&service, "/known", json!(1)).await;
    reaches(&service, "/delayed", json!(1)).await;
    let parked = parked(&service).await;
    assert_eq!(
        (&parked["items"][0]["key"], &parked["items"][0]["last_error"]),
        (&json!("b"), &json!("no such shop"))
    );
    let push = status(&service, "push").await;
    assert_eq!(push["state"], "sending", "{push}");
    assert!(push["last_success_at"].is_string(), "a key was taken: {push}");
}

#[tokio::test]
async fn a_key_that_fails_its_request_parks_no_other_key() {
    let mut receiver = Receiver::start().await;
    let more = json!({"batch": 4, "retry": ["0s"], "max_in_flight": 4});
    for status in [422, 500] {
        let (service, _folder) = waiting(&["a", "bad", "c", "d"], &receiver, more.clone()).await;
        service.call("PATCH", QUEUE, &json!({"max_failures": 2})).await.ok();
        let first = receiver.next().await;
        assert_eq!(keys(&first).len(), 4);
        first.answer(status, "no").await;
        within(async {
            while super::status(&service, "known").await != 3 || super::status(&service, "parked").await != 1
            {
                if !receiver.is_silent() {
                    let hook = receiver.next().await;
                    let sent = keys(&hook);
                    assert_eq!(sent.len(), 1, "{sent:?} come one by one");
                    hook.answer(if sent == ["bad"] { status } else { 200 }, "").await;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        let parked = parked(&service).await;
        let item = &parked["items"][0];
        let failures = if status == 422 { 0 } else { 2 };
        assert_eq!((&item["key"], &item["failures"]), (&json!("bad"), &json!(failures)), "{item}");
        // Then keys are sent together again, with the same task.
        service.post(&format!("{QUEUE}/pause"), &Value::Null).await.ok();
        service.post(&format!("{QUEUE}/update"), &objects(&["a", "c"])).await.ok();
        service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
        let hook = receiver.next().await;
        assert_eq!(keys(&hook), ["a", "c"]);
        hook.answer(200, "").await;
        reaches(&service, "/ready", json!(0)).await;
    }
}

#[tokio::test]
async fn a_list_of_cloud_events_carries_what_the_headers_would() {
    let mut receiver = Receiver::start().await;
    let more = json!({"format": "cloudevents", "batch": 2, "async": true});
    let (service, _folder) = waiting(&["a ü", "b"], &receiver, more).await;
    let hook = receiver.next().await;
    assert_eq!(hook.header("content-type"), "application/cloudevents-batch+json");
    assert!(verifies(SECRET, &hook) && !hook.headers.iter().any(|(name, _)| name.starts_with("ce-")));
    let events = hook.json();
    let event = &events[0];
    assert_eq!(
        (&event["specversion"], &event["type"], &event["source"], &event["subject"], &event["partitionkey"]),
        (&json!("1.0"), &json!("deltaq.item.updated"), &json!("/queues/q"), &json!("a ü"), &json!("a ü"))
    );
    assert_eq!(event["data"], json!({"key": "a ü"}));
    let version: u64 = event["sequence"].as_str().expect("text").parse().expect("a number");
    let incarnation = service.get(QUEUE).await.ok()["incarnation"].take();
    assert_eq!(event["id"], format!("{}-{version}", incarnation.as_str().expect("text")));
    assert_eq!(event["deltaqattempt"], "1");
    assert!(event["deltaqtoken"].as_str().is_some_and(|token| token.parse::<u64>().is_ok()), "{event}");
    let leases: Vec<_> = [0, 1].map(|at| json!({"lease_id": events[at]["deltaqlease"], "as": "ack"})).into();
    hook.answer(202, "").await;
    reaches(&service, "/push/in_flight", json!(0)).await;
    let settled = service.post(&format!("{QUEUE}/settle"), &json!({"settle": leases})).await.ok();
    assert_eq!(
        (&settled["settled"][0]["result"], &settled["settled"][1]["result"]),
        (&json!("ok"), &json!("ok"))
    );
    reaches(&service, "/known", json!(2)).await;
    let test = service.send("POST", &format!("{QUEUE}/push/test"), &Value::Null).await;
    let tested = receiver.next().await;
    assert_eq!(tested.header("content-type"), "application/cloudevents-batch+json");
    assert_eq!(tested.json()[0]["type"], "deltaq.test");
    tested.answer(200, "").await;
    drop(test);
    let raw = json!({"push": {"url": receiver.url("/"), "format": "raw", "batch": 2}});
    service.call("PUT", QUEUE, &raw).await.problem("invalid-config");
}

#[tokio::test]
async fn a_request_with_several_keys_has_a_size() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    service.call("PUT", QUEUE, &json!({"max_object_bytes": 2_000_000})).await.ok();
    let large = |key: &str, bytes: usize| json!({"key": key, "text": "x".repeat(bytes)});
    let many = json!([large("a", 600_000), large("b", 600_000), large("c", 1), large("d", 1)]);
    service.post(&format!("{QUEUE}/add"), &many).await.ok();
    pushing(&service, &receiver, json!({"batch": 100})).await;
    for expected in [vec!["a"], vec!["b", "c", "d"]] {
        let hook = receiver.next().await;
        assert_eq!(keys(&hook), expected);
        hook.answer(200, "").await;
    }
    reaches(&service, "/known", json!(4)).await;
}

#[tokio::test]
async fn an_endpoint_that_asks_for_a_pause_gets_all_keys_of_the_request_again() {
    let mut receiver = Receiver::start().await;
    let (service, _folder) = waiting(&["a", "b"], &receiver, json!({"batch": 2})).await;
    receiver.next().await.answer_with(429, "retry-after: 1\r\n", "").await;
    let again = receiver.next().await;
    assert_eq!(keys(&again), ["a", "b"], "a pause is no failure of a key");
    assert_eq!(again.json()["data"]["items"][1]["failures"], 0);
    again.answer(410, "").await;
    reaches(&service, "/pause_reason", json!("endpoint_gone")).await;
    reaches(&service, "/ready", json!(2)).await;
}

#[tokio::test]
async fn a_key_without_an_answer_stays_alone_until_it_is_taken() {
    let mut receiver = Receiver::start().await;
    let (service, _folder) = waiting(&["a", "hangs", "c"], &receiver, json!({"batch": 3})).await;
    drop(receiver.next().await);
    within(async {
        while super::status(&service, "known").await != 2 {
            let hook = receiver.next().await;
            let sent = keys(&hook);
            assert_eq!(sent.len(), 1, "{sent:?}");
            if sent != ["hangs"] {
                hook.answer(200, "").await;
            }
        }
    })
    .await;
    service.post(&format!("{QUEUE}/add"), &objects(&["d", "e"])).await.ok();
    within(async {
        while super::status(&service, "known").await != 4 {
            let hook = receiver.next().await;
            let sent = keys(&hook);
            assert!(!sent.contains(&"hangs".to_owned()) || sent.len() == 1, "{sent:?}");
            if sent != ["hangs"] {
                hook.answer(200, "").await;
            }
        }
    })
    .await;
}
