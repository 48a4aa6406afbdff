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
    // At most 60 requests a minute: the second one begins a second after the first, which begins after this answer.
    let permitted = Instant::now();
    let allowed = "webhook-allowed-origin: DELTAQ.example\r\nwebhook-allowed-rate: 60\r\n";
    question.answer_with(200, allowed, "").await;
    for number in [0, 1] {
        let hook = receiver.next().await;
        assert_eq!(hook.header("webhook-request-origin"), "deltaq.example");
        assert!(permitted.elapsed().as_secs() >= number, "{:?}", permitted.elapsed());
        hook.answer(200, "").await;
    }
    reaches(&service, "/known", json!(2)).await;
    // Another URL is another question, another origin as well, and no origin is none.
    service.call("PATCH", QUEUE, &json!({"push": {"url": receiver.url("/other")}})).await.ok();
    let question = receiver.next().await;
    assert_eq!(question.target, "OPTIONS /other HTTP/1.1");
    let elsewhere = format!("location: {}\r\nwebhook-allowed-origin: *\r\n", receiver.url("/elsewhere"));
    question.answer_with(307, &elsewhere, "").await;
    reaches(
        &service,
        "/push/last_error",
        json!("the endpoint does not permit requests: 307 Temporary Redirect"),
    )
    .await;
    assert_eq!(status(&service, "push").await["allowed_in_flight"], 0);

    service.call("PATCH", QUEUE, &json!({"push": {"handshake": "other"}})).await.ok();
    let question = receiver.next().await;
    assert_eq!(question.header("webhook-request-origin"), "other");
    question.answer(405, "").await;
    reaches(&service, "/push/state", json!("failing")).await;
    service.call("PATCH", QUEUE, &json!({"push": {"handshake": null}})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["c"])).await.ok();
    // The question may have been repeated before.
    let mut hook = receiver.next().await;
    while hook.target.starts_with("OPTIONS") {
        hook = receiver.next().await;
    }
    hook.answer(200, "").await;
    reaches(&service, "/known", json!(3)).await;
}

#[tokio::test]
async fn an_endpoint_that_permits_nothing_for_too_long_pauses_the_queue_and_is_asked_no_more() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"handshake": "deltaq.example", "disable_after": "1ms"})).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a"])).await.ok();
    for _ in 0..2 {
        receiver.next().await.answer(403, "").await;
    }
    reaches(&service, "/pause_reason", json!("endpoint_failing")).await;
    assert!(receiver.is_silent());
    service.post(&format!("{QUEUE}/resume"), &json!(null)).await.ok();
    receiver.next().await.answer_with(200, "webhook-allowed-origin: *\r\n", "").await;
    receiver.next().await.answer(200, "").await;
    reaches(&service, "/known", json!(1)).await;
}
