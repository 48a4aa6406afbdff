//! Endpoints that are asked whether they take requests.

use serde_json::json;
use tokio::time::Instant;

use super::{QUEUE, objects, pushing, reaches, service, status};
use crate::harness::receiver::{Hook, Receiver};

#[tokio::test]
async fn an_endpoint_is_asked_before_it_gets_keys() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"handshake": "deltaq.example", "headers": {"x-env": "prod"}})).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let asks = |hook: &Hook| {
        assert_eq!(hook.target, "OPTIONS /hooks?a=b HTTP/1.1");
        assert_eq!((hook.header("webhook-request-origin"), hook.header("x-env")), ("deltaq.example", "prod"));
    };
    let question = receiver.next().await;
    asks(&question);
    question.answer_with(200, "webhook-allowed-origin: other.example\r\n", "").await;
    reaches(&service, "/push/state", json!("failing")).await;
    let error = status(&service, "push").await["last_error"].to_string();
    assert!(error.contains("webhook-allowed-origin is not"), "{error}");
    let question = receiver.next().await;
    asks(&question);
    // At most 60 requests a minute.
    let allowed = "webhook-allowed-origin: DELTAQ.example\r\nwebhook-allowed-rate: 60\r\n";
    question.answer_with(200, allowed, "").await;
    receiver.next().await.answer(200, "").await;
    let first = Instant::now();
    let second = receiver.next().await;
    assert!(first.elapsed().as_millis() > 800, "{:?}", first.elapsed());
    second.answer(200, "").await;
    reaches(&service, "/known", json!(2)).await;
    // Another origin is another question, and no origin is none.
    service.call("PATCH", QUEUE, &json!({"push": {"handshake": "other"}})).await.ok();
    let question = receiver.next().await;
    assert_eq!(question.header("webhook-request-origin"), "other");
    question.answer(405, "").await;
    reaches(&service, "/push/state", json!("failing")).await;
    service.call("PATCH", QUEUE, &json!({"push": {"handshake": null}})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["c"])).await.ok();
    receiver.next().await.answer(200, "").await;
    reaches(&service, "/known", json!(3)).await;
}
