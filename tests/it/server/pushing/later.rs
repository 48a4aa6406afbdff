//! Receivers that settle later, and the known object in a request.

use serde_json::{Value, json};

use super::{QUEUE, object, pushing, reaches, service};
use crate::harness::receiver::Receiver;

#[tokio::test]
async fn a_receiver_of_a_202_settles_the_key_itself() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"async": true, "timeout": "1s", "max_in_flight": 1})).await;
    service.call("PATCH", QUEUE, &json!({"lease": "1h"})).await.ok();
    service.post(&format!("{QUEUE}/add"), &json!([{"key": "a"}, {"key": "b"}])).await.ok();
    let first = receiver.next().await;
    let lease = first.header("deltaq-lease").to_owned();
    first.answer(202, "").await;
    // The request does not count any longer, so the next key is sent although the first one is leased.
    let second = receiver.next().await;
    assert_eq!(second.header("deltaq-key"), "b");
    reaches(&service, "/push/in_flight", json!(1)).await;
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!(item["state"], "leased");
    assert!(item["lease"]["expires_in_ms"].as_u64().expect("a number") > 60_000, "{item}");
    let settle = json!({"settle": [{"lease_id": lease, "as": "ack"}]});
    let settled = service.post(&format!("{QUEUE}/settle"), &settle).await.ok();
    assert_eq!(settled["settled"][0]["result"], "ok", "{settled}");
    reaches(&service, "/known", json!(1)).await;
    // Any other answer has its usual meaning.
    second.answer(200, "").await;
    reaches(&service, "/known", json!(2)).await;
}

#[tokio::test]
async fn a_request_may_have_the_known_object() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"payload": "known"})).await;
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a", "n": 1})).await.ok();
    let first = receiver.next().await;
    assert_eq!(first.json()["data"]["known"], Value::Null);
    first.answer(200, "").await;
    reaches(&service, "/known", json!(1)).await;
    service.post(&format!("{QUEUE}/update"), &json!({"key": "a", "n": 2})).await.ok();
    let second = receiver.next().await;
    let data = second.json()["data"].take();
    assert_eq!((&data["known"]["n"], &data["deltas"][0]["object"]["n"]), (&json!(1), &json!(2)), "{data}");
    second.answer(200, "").await;
    let wrong = json!({"push": {"url": receiver.url("/"), "format": "raw", "payload": "known"}});
    service.call("PATCH", QUEUE, &wrong).await.problem("invalid-config");
    service.post(&format!("{QUEUE}/add"), &object("b")).await.ok();
    receiver.next().await.answer(200, "").await;
}
