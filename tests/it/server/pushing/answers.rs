//! Answers that concern the whole queue.

use super::outage::ramps_up;
use super::*;

#[tokio::test]
async fn an_endpoint_that_asks_for_a_pause_holds_the_queue_and_no_failure_counts() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"retry": ["1h"]})).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    receiver.next().await.answer_with(429, "retry-after: 3000\r\n", "slow down").await;
    reaches(&service, "/ready", json!(2)).await;
    let found = service.get(QUEUE).await.ok()["status"].take();
    assert!(found["held_until"].is_string(), "{found}");
    assert_eq!(
        (&found["push"]["state"], &found["push"]["last_error"]),
        (&json!("sending"), &json!("429 Too Many Requests: slow down"))
    );
    let explained = service.get(&format!("{QUEUE}/explain/b")).await.ok();
    assert_eq!(explained["reason"], "held", "{explained}");
    let found = item(&service, "a").await;
    assert_eq!((&found["failures"], &found["last_error"]), (&json!(0), &Value::Null));
    assert!(receiver.is_silent());
    assert_eq!(results(&service, "held").await, "1");

    service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    receiver.next().await.answer_with(503, "retry-after: Fri, 31 Dec 9999 23:59:59 GMT\r\n", "").await;
    reaches(&service, "/ready", json!(2)).await;
    assert!(status(&service, "held_until").await.is_string());
    // Without the header it is a failure.
    service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    receiver.next().await.answer(503, "").await;
    reaches(&service, "/delayed", json!(1)).await;
}

#[tokio::test]
async fn a_hold_ends_by_itself() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let hook = receiver.next().await;
    let id = hook.header("webhook-id").to_owned();
    hook.answer_with(429, "Retry-After: 1\r\n", "").await;
    let hook = receiver.next().await;
    assert_eq!(hook.header("webhook-id"), id);
    hook.answer(200, "").await;
    reaches(&service, "/known", json!(1)).await;
}

#[tokio::test]
async fn an_endpoint_that_is_gone_pauses_the_queue_until_it_is_resumed() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c", "d"])).await.ok();
    receiver.next().await.answer(410, "moved away").await;
    reaches(&service, "/push/state", json!("disabled")).await;
    let found = service.get(QUEUE).await.ok()["status"].take();
    assert_eq!((&found["paused"], &found["pause_reason"]), (&json!(true), &json!("endpoint_gone")));
    let error = found["push"]["last_error"].as_str().expect("an error");
    assert!(error.starts_with("410 ") && error.ends_with(": moved away"), "{error}");
    reaches(&service, "/ready", json!(4)).await;
    let explained = service.get(&format!("{QUEUE}/explain/a")).await.ok();
    assert_eq!(explained["reason"], "paused");
    assert!(
        explained["explanation"].as_str().expect("text").contains("its endpoint is gone (410)"),
        "{explained}"
    );
    assert_eq!(item(&service, "a").await["failures"], 0);
    assert!(receiver.is_silent());
    service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    ramps_up(&service, &mut receiver, &[1, 1, 2]).await;
    reaches(&service, "/known", json!(4)).await;
    let found = service.get(QUEUE).await.ok()["status"].take();
    assert_eq!((&found["pause_reason"], &found["push"]["state"]), (&Value::Null, &json!("sending")));
}

#[tokio::test]
async fn a_pause_of_an_operator_has_no_reason() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let hook = receiver.next().await;
    service.post(&format!("{QUEUE}/pause"), &Value::Null).await.ok();
    hook.answer(410, "").await;
    reaches(&service, "/ready", json!(1)).await;
    let found = service.get(QUEUE).await.ok()["status"].take();
    assert_eq!((&found["paused"], &found["pause_reason"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn a_queue_that_is_resumed_with_another_url_tests_it_with_one_request() {
    let (service, _folder) = service().await;
    let (mut former, mut receiver) = (Receiver::start().await, Receiver::start().await);
    pushing(&service, &former, json!({"retry": ["0s"]})).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    former.next().await.answer(410, "").await;
    reaches(&service, "/push/state", json!("disabled")).await;
    service.call("PATCH", QUEUE, &json!({"push": {"url": receiver.url("/")}})).await.ok();
    assert_eq!(status(&service, "pause_reason").await, "endpoint_gone");
    service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    let probe = receiver.next().await;
    let key = probe.header("deltaq-key").to_owned();
    assert!(receiver.is_silent());
    probe.answer(500, "").await;
    reaches(&service, "/ready", json!(2)).await;
    assert_eq!(item(&service, &key).await["failures"], 0, "a probe counts for no key");
    receiver.next().await.answer(200, "").await;
    reaches(&service, "/push/state", json!("sending")).await;
    assert!(former.is_silent());
}

#[tokio::test]
async fn a_test_request_is_signed_and_changes_nothing() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"headers": {"x-env": "prod"}})).await;
    let test = format!("{QUEUE}/push/test");
    let before = status(&service, "push").await;
    for (code, text, shown) in [
        (200, "thanks", "200 OK: thanks"),
        (500, "no", "500 Internal Server Error: no"),
        (404, "", "404 Not Found"),
    ] {
        let mut sent = service.send("POST", &test, &Value::Null).await;
        let hook = receiver.next().await;
        assert!(verifies(SECRET, &hook));
        let body = hook.json();
        assert_eq!((&body["type"], &body["data"]), (&json!("deltaq.test"), &json!({"queue": "q"})));
        assert_eq!((hook.header("x-env"), hook.header("content-type")), ("prod", "application/json"));
        hook.answer(code, text).await;
        let tested = sent.reply().await.ok();
        assert_eq!((&tested["status"], &tested["answer"]), (&json!(code), &json!(shown)));
        assert!(tested["duration_ms"].is_u64(), "{tested}");
    }
    let found = service.get(QUEUE).await.ok()["status"].take();
    assert_eq!(
        (&found["push"], &found["paused"], &found["pause_reason"]),
        (&before, &json!(false), &Value::Null)
    );
    for result in ["ok", "failed", "no_answer"] {
        assert_eq!(results(&service, result).await, "0", "a test is no push");
    }
    // Without an answer, and while the queue is paused.
    service.post(&format!("{QUEUE}/pause"), &Value::Null).await.ok();
    let url = receiver.url("/");
    drop(receiver);
    let tested = service.post(&test, &Value::Null).await.ok();
    assert_eq!((&tested["status"], tested["answer"].is_string()), (&Value::Null, true), "{url}: {tested}");

    service.call("PUT", "/v1/queues/plain", &json!({})).await.ok();
    let refused = service.post("/v1/queues/plain/push/test", &Value::Null).await.problem("invalid-config");
    assert_eq!(refused["field"], "push");
}

#[tokio::test]
async fn an_endpoint_that_fails_for_too_long_pauses_the_queue() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"disable_after": "1ms"})).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    within(async {
        while status(&service, "push").await["state"] != "disabled" {
            if !receiver.is_silent() {
                drop(receiver.next().await);
            }
        }
    })
    .await;
    let found = service.get(QUEUE).await.ok()["status"].take();
    assert_eq!((&found["paused"], &found["pause_reason"]), (&json!(true), &json!("endpoint_failing")));
    assert_eq!(results(&service, "ok").await, "0");
    service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    receiver.next().await.answer(200, "").await;
    reaches(&service, "/push/state", json!("sending")).await;
}

#[tokio::test]
async fn an_answer_of_a_former_url_says_nothing_of_the_present_one() {
    let (service, _folder) = service().await;
    let (mut former, mut present) = (Receiver::start().await, Receiver::start().await);
    let aim = async |receiver: &Receiver| {
        service.call("PATCH", QUEUE, &json!({"push": {"url": receiver.url("/")}})).await.ok();
    };
    pushing(&service, &former, json!({})).await;
    for (number, (code, header)) in
        [(410, ""), (429, "retry-after: 3000\r\n"), (500, "")].into_iter().enumerate()
    {
        aim(&former).await;
        let key = format!("k{number}");
        service.post(&format!("{QUEUE}/add"), &object(&key)).await.ok();
        let hook = former.next().await;
        aim(&present).await;
        hook.answer_with(code, header, "").await;
        let hook = present.next().await;
        assert_eq!(hook.header("deltaq-key"), key);
        let found = service.get(QUEUE).await.ok()["status"].take();
        assert_eq!((&found["paused"], &found["held_until"]), (&json!(false), &Value::Null), "{code}");
        assert_eq!(item(&service, &key).await["failures"], 0, "{code}");
        hook.answer(200, "").await;
        reaches(&service, "/known", json!(number + 1)).await;
    }
    for (result, number) in [("ok", "3"), ("held", "1"), ("failed", "2")] {
        assert_eq!(results(&service, result).await, number, "{result}");
    }
}

#[tokio::test]
async fn an_answer_after_push_was_removed_stops_nothing() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    for (code, header) in [(410, ""), (429, "retry-after: 3000\r\n")] {
        pushing(&service, &receiver, json!({})).await;
        let hook = receiver.next().await;
        service.call("PATCH", QUEUE, &json!({"push": null})).await.ok();
        hook.answer_with(code, header, "").await;
        reaches(&service, "/ready", json!(1)).await;
        let found = service.get(QUEUE).await.ok()["status"].take();
        assert_eq!((&found["paused"], &found["held_until"]), (&json!(false), &Value::Null), "{code}");
    }
}

#[tokio::test]
async fn the_body_of_an_answer_settles_the_key() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"retry": ["0s"]})).await;
    let json_type = "content-type: application/json; charset=utf-8\r\n";
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    let nack = r#"{"settled":[{"key":"a","as":"nack","delay":"1h","error":"sold out"}]}"#;
    receiver.next().await.answer_with(200, json_type, nack).await;
    reaches(&service, "/delayed", json!(1)).await;
    let found = item(&service, "a").await;
    assert_eq!((&found["failures"], &found["last_error"]), (&json!(1), &json!("sold out")));
    let push = status(&service, "push").await;
    assert_eq!((&push["state"], &push["allowed_in_flight"]), (&json!("sending"), &json!(2)), "it works");

    let mut hooks = vec![receiver.next().await, receiver.next().await];
    hooks.sort_by_key(|hook| hook.header("deltaq-key").to_owned());
    let reject = r#"{"settled":[{"key":"c","as":"reject"}]}"#;
    hooks.pop().expect("c").answer_with(200, json_type, reject).await;
    reaches(&service, "/parked", json!(1)).await;
    // The answer names a key that was not sent: it says nothing reliable about the one that was.
    let unknown = r#"{"batchItemFailures":[{"itemIdentifier":"z"}]}"#;
    hooks.pop().expect("b").answer_with(200, json_type, unknown).await;
    let again = receiver.next().await;
    assert_eq!((again.header("deltaq-key"), again.header("deltaq-attempt")), ("b", "2"));
    let error = item(&service, "b").await["last_error"].take();
    assert_eq!(error, "the answer can't be used: it names a key that was not sent");
    // Another content type, and another object, say nothing.
    again.answer_with(200, "content-type: text/plain\r\n", unknown).await;
    reaches(&service, "/known", json!(1)).await;
}
