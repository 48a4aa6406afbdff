//! Queues that push: requests to a receiver whose every answer the test gives.

use axum::http::HeaderMap;
use deltaq::config::access::Verb;
use deltaq::config::{SecretFile, Settings};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tempfile::TempDir;

use super::{QUEUE, object, objects, status};
use crate::access::token;
use crate::harness::private_file::private_file;
use crate::harness::receiver::{Hook, Receiver};
use crate::harness::{Service, within};

mod answers;
mod batches;
mod formats;
mod handshakes;
mod later;
mod outage;

/// A secret, and another one that no queue of these tests may use.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// What a queue may send in a header.
const API_KEY: &str = "an api key of the shop";

/// A server that may push to 127.0.0.1.
async fn service() -> (Service, TempDir) {
    service_with(|_| {}).await
}

async fn service_with(more: impl FnOnce(&mut Settings)) -> (Service, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let edit = |settings: &mut Settings| {
        more(settings);
        settings.push.allow = vec!["http://127.0.0.1:*".to_owned()];
        settings.push.allow_networks = vec!["127.0.0.0/8".parse().expect("a network")];
        for (name, text, queues) in
            [("shop", SECRET, "q*"), ("other", OTHER, "elsewhere"), ("key", API_KEY, "q*")]
        {
            let file = private_file(folder.path(), name, &format!("{text}\n"));
            let secret = SecretFile { file, queues: vec![queues.to_owned()], headers: name == "key" };
            settings.push.secrets.insert(name.to_owned(), secret);
        }
    };
    (Service::with(edit).await, folder)
}

/// A queue that pushes to a receiver, with these members of the setting.
async fn pushing(service: &Service, receiver: &Receiver, more: Value) {
    let mut push = json!({"url": receiver.url("/hooks?a=b"), "secrets": ["shop"]});
    push.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    service.call("PUT", QUEUE, &json!({"push": push})).await.ok();
}

fn verifies(secret: &str, hook: &Hook) -> bool {
    let mut headers = HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, hook.header(name).parse().expect("a header"));
    }
    Webhook::new(secret).expect("a secret").verify(&hook.body, &headers).is_ok()
}

/// Waits until a member of the status has this value.
async fn reaches(service: &Service, pointer: &str, value: Value) {
    within(async {
        while service.get(QUEUE).await.body["status"].pointer(pointer) != Some(&value) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn metrics(service: &Service) -> String {
    let mut client = crate::harness::Client::connect(service.metrics).await;
    client.call("GET", "/metrics", &Value::Null).await.text
}

/// The number of requests with this result.
async fn results(service: &Service, result: &str) -> String {
    let page = metrics(service).await;
    let start = format!("deltaq_push_requests_total{{queue=\"q\",result=\"{result}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&start)).expect("the result has a series").to_owned()
}

async fn parked(service: &Service) -> Value {
    service.get(&format!("{QUEUE}/items?state=parked")).await.ok()
}

async fn item(service: &Service, key: &str) -> Value {
    service.get(&format!("{QUEUE}/items/{key}")).await.ok()
}

#[tokio::test]
async fn a_change_arrives_as_a_signed_request_and_is_acknowledged() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a/ü", "price": 1.50})).await.ok();
    let hook = receiver.next().await;
    assert_eq!(hook.target, "POST /hooks?a=b HTTP/1.1");
    assert!(verifies(SECRET, &hook) && !verifies(OTHER, &hook));
    let body = hook.json();
    assert_eq!(body["type"], "deltaq.item.updated");
    let data = &body["data"];
    assert_eq!((&data["key"], &data["attempt"]), (&json!("a/ü"), &json!(1)));
    assert_eq!(data["deltas"][0]["object"]["price"], json!(1.50));
    assert_eq!(data["deltas"][0]["queued_at"], body["timestamp"]);
    let document = service.get(QUEUE).await.ok();
    let version = &data["deltas"][0]["resource_version"];
    assert_eq!(
        hook.header("webhook-id"),
        format!("{}-{version}", document["incarnation"].as_str().expect("text"))
    );
    assert_eq!(hook.header("deltaq-key"), "a%2F%C3%BC");
    assert_eq!(hook.header("deltaq-token"), data["lease"]["token"].to_string());
    assert_eq!((hook.header("deltaq-attempt"), hook.header("content-type")), ("1", "application/json"));
    assert_eq!(data["lease"]["worker"], "push");
    assert_eq!(document["status"]["push"]["in_flight"], 1);
    hook.answer(200, "ok").await;
    reaches(&service, "/known", json!(1)).await;
    let push = status(&service, "push").await;
    assert_eq!(
        (&push["state"], &push["last_error"], push["last_success_at"].is_string()),
        (&json!("sending"), &Value::Null, true)
    );

    service.post(&format!("{QUEUE}/delete"), &json!({"key": "a/ü"})).await.ok();
    let hook = receiver.next().await;
    assert_eq!(hook.json()["type"], "deltaq.item.deleted");
    hook.answer(204, "").await;
    reaches(&service, "/known", json!(0)).await;
}

#[tokio::test]
async fn a_request_has_the_headers_of_the_setting() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"headers": {"X-Env": "prod, eu", "x-team": ""}})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let hook = receiver.next().await;
    assert_eq!((hook.header("x-env"), hook.header("x-team")), ("prod, eu", ""));
    assert!(verifies(SECRET, &hook));
    hook.answer(500, "").await;
    // New headers concern the next attempt, and a PATCH removes one with null.
    let patch = json!({"push": {"headers": {"x-team": null, "x-env": "test"}}});
    let patched = service.call("PATCH", QUEUE, &patch).await.ok();
    assert_eq!(patched["settings"]["push"]["headers"], json!({"x-env": "test"}));
    service.post(&format!("{QUEUE}/add"), &object("b")).await.ok();
    let hook = receiver.next().await;
    assert_eq!(hook.header("x-env"), "test");
    hook.answer(200, "").await;

    // A credential is a secret of the server. The queue may not use the other one, and the key of signatures is never sent.
    let header = |secret: &str| json!({"push": {"headers": {"authorization": {"secret": secret, "prefix": "Bearer "}}}});
    service.call("PATCH", QUEUE, &header("other")).await.problem("invalid-config");
    service.call("PATCH", QUEUE, &header("shop")).await.problem("invalid-config");
    let patched = service.call("PATCH", QUEUE, &header("key")).await.ok();
    assert!(!patched.to_string().contains(API_KEY), "{patched}");
    service.post(&format!("{QUEUE}/add"), &object("c")).await.ok();
    let hook = receiver.next().await;
    assert_eq!(hook.header("authorization"), format!("Bearer {API_KEY}"));
    // An endpoint that shows the headers that it got shows no secret to those who read the queue.
    let echo = format!(r#"{{"settled":[{{"key":"c","as":"reject","error":"no {API_KEY}"}}]}}"#);
    hook.answer_with(200, "content-type: application/json\r\n", &echo).await;
    reaches(&service, "/parked", json!(1)).await;
    assert_eq!(parked(&service).await["items"][0]["last_error"], "no ***");
    service.post(&format!("{QUEUE}/add"), &object("d")).await.ok();
    let echo = format!("{}Bearer {API_KEY}", "x".repeat(480));
    receiver.next().await.answer(422, &echo).await;
    reaches(&service, "/parked", json!(2)).await;
    let shown = parked(&service).await.to_string() + &status(&service, "push").await.to_string();
    assert!(shown.contains("xxx") && !shown.contains(&API_KEY[..9]), "{shown}");

    for (name, why) in [
        ("Host", "set by the server"),
        ("webhook-id", "set by the server"),
        ("Content-Length", "set by the server"),
        ("connection", "the connection"),
        ("Authorization", "a credential"),
        ("a b", "no name"),
    ] {
        let patch = json!({"push": {"headers": {name: "x"}}});
        let refused = service.call("PATCH", QUEUE, &patch).await.problem("invalid-config");
        let detail = refused["detail"].as_str().expect("text");
        assert!(detail.contains("push.headers") && detail.contains(name) && detail.contains(why), "{detail}");
    }
}

#[tokio::test]
async fn a_failed_key_comes_again_with_its_id_and_its_newer_change_with_another() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"retry": ["0s", "1h"]})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let first = receiver.next().await;
    let (id, token) = (first.header("webhook-id").to_owned(), first.number("deltaq-token"));
    first.answer(500, "out of order").await;
    let second = receiver.next().await;
    assert_eq!((second.header("webhook-id"), second.header("deltaq-attempt")), (id.as_str(), "2"));
    assert!(second.number("deltaq-token") > token && verifies(SECRET, &second));
    second.answer(503, "").await;
    reaches(&service, "/delayed", json!(1)).await;
    let found = item(&service, "a").await;
    assert_eq!(
        (&found["failures"], &found["last_error"]),
        (&json!(2), &json!("503 Service Unavailable")),
        "{found}"
    );
    service.post(&format!("{QUEUE}/update"), &json!({"key": "a", "n": 2})).await.ok();
    let third = receiver.next().await;
    assert_ne!(third.header("webhook-id"), id);
    third.answer(200, "").await;
    reaches(&service, "/known", json!(1)).await;
}

#[tokio::test]
async fn a_key_that_the_endpoint_refuses_is_parked_at_once() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"reject_statuses": [422]})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    receiver.next().await.answer(422, &"no such article ".repeat(100)).await;
    reaches(&service, "/parked", json!(1)).await;
    let parked = parked(&service).await;
    let error = parked["items"][0]["last_error"].as_str().expect("an error");
    assert!(error.starts_with("422 Unprocessable Entity: no such article") && error.len() < 600, "{error}");
    assert_eq!(status(&service, "push").await["state"], "sending");
}

#[tokio::test]
async fn one_more_request_at_once_after_each_success() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"max_in_flight": 3})).await;
    let keys: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    service
        .post(&format!("{QUEUE}/add"), &objects(&keys.iter().map(String::as_str).collect::<Vec<_>>()))
        .await
        .ok();
    for at_once in [1, 2, 3] {
        let mut hooks = Vec::new();
        for _ in 0..at_once {
            hooks.push(receiver.next().await);
        }
        let push = status(&service, "push").await;
        assert_eq!((&push["in_flight"], &push["allowed_in_flight"]), (&json!(at_once), &json!(at_once)));
        assert!(receiver.is_silent());
        if at_once == 3 {
            break;
        }
        for hook in hooks {
            hook.answer(200, "").await;
        }
    }
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    let mut elsewhere = Receiver::start().await;
    pushing(&service, &receiver, json!({"retry": ["1h"]})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let to = format!("location: {}\r\n", elsewhere.url("/"));
    receiver.next().await.answer_with(307, &to, "").await;
    reaches(&service, "/delayed", json!(1)).await;
    assert!(elsewhere.is_silent());
    assert_eq!(item(&service, "a").await["last_error"], "307 Temporary Redirect");
}

#[tokio::test]
async fn a_long_answer_is_not_read_to_its_end_and_garbage_is_an_answer() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let read = receiver.next().await.flood(10 << 20).await;
    assert!(read < 8 << 20, "{read} bytes were taken");
    reaches(&service, "/known", json!(1)).await;
    receiver.next().await.answer(200, "{\u{0}<html>\u{fffd}").await;
    reaches(&service, "/known", json!(2)).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_none_and_the_key_comes_again() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let hook = receiver.next().await;
    let id = hook.header("webhook-id").to_owned();
    hook.bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
    let hook = receiver.next().await;
    assert_eq!(hook.header("webhook-id"), id);
    let found = item(&service, "a").await;
    assert_eq!(found["failures"], 0, "no answer counts for the endpoint, not for the key: {found}");
    hook.answer(200, "").await;
    reaches(&service, "/known", json!(1)).await;
}

#[tokio::test]
async fn a_dead_endpoint_parks_nothing_and_gets_each_key_once_when_it_is_back() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.call("PATCH", QUEUE, &json!({"mode": "latest", "max_failures": 1})).await.ok();
    let change =
        |n: u64| -> Value { ["a", "b", "c"].iter().map(|key| json!({"key": key, "n": n})).collect() };
    service.post(&format!("{QUEUE}/add"), &change(0)).await.ok();
    for _ in 0..5 {
        drop(receiver.next().await);
    }
    reaches(&service, "/push/state", json!("failing")).await;
    for n in 1..=20 {
        service.post(&format!("{QUEUE}/update"), &change(n)).await.ok();
    }
    // A probe that gets an answer counts for no key either, while the endpoint fails.
    receiver.next().await.answer(503, "").await;
    let found = status(&service, "parked").await;
    assert_eq!(found, 0);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let hook = receiver.next().await;
        let data = hook.json()["data"].take();
        assert_eq!(data["deltas"][0]["object"]["n"], 20, "only the newest state");
        seen.push(data["key"].as_str().expect("a key").to_owned());
        hook.answer(200, "").await;
    }
    seen.sort();
    assert_eq!(seen, ["a", "b", "c"]);
    reaches(&service, "/known", json!(3)).await;
    let push = status(&service, "push").await;
    assert_eq!((&push["state"], &push["last_error"]), (&json!("sending"), &Value::Null));
}

#[tokio::test]
async fn a_key_that_always_fails_is_parked_because_others_succeed() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"retry": ["0s"]})).await;
    service.call("PATCH", QUEUE, &json!({"max_failures": 6})).await.ok();
    service.post(&format!("{QUEUE}/add"), &object("poison")).await.ok();
    for number in 0..6 {
        service.post(&format!("{QUEUE}/add"), &object(&format!("k{number}"))).await.ok();
        let mut kinds = Vec::new();
        while kinds.len() < 2 {
            let hook = receiver.next().await;
            let is_poison = hook.header("deltaq-key") == "poison";
            kinds.push(is_poison);
            hook.answer(if is_poison { 500 } else { 200 }, "").await;
        }
        if kinds == [true, true] {
            receiver.next().await.answer(200, "").await;
            break;
        }
    }
    service.post(&format!("{QUEUE}/add"), &object("last")).await.ok();
    within(async {
        while status(&service, "parked").await != 1 {
            if !receiver.is_silent() {
                let hook = receiver.next().await;
                let is_poison = hook.header("deltaq-key") == "poison";
                hook.answer(if is_poison { 500 } else { 200 }, "").await;
            }
        }
    })
    .await;
    assert_eq!(parked(&service).await["items"][0]["key"], "poison");
}

#[tokio::test]
async fn no_answer_within_the_timeout_is_a_failure_of_the_endpoint() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"timeout": "1s"})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let mut slow = receiver.next().await;
    slow.bytes_more(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nslow").await;
    let again = receiver.next().await;
    assert_eq!(slow.header("webhook-id"), again.header("webhook-id"));
    let error = status(&service, "push").await["last_error"].take();
    assert_eq!(error, "no whole answer within 1s");
    again.answer(200, "").await;
    reaches(&service, "/known", json!(1)).await;
}

#[tokio::test]
async fn pauses_and_the_end_of_the_setting_stop_requests() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.post(&format!("{QUEUE}/pause"), &Value::Null).await.ok();
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    assert!(receiver.is_silent());
    service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    let hook = receiver.next().await;
    let refused = service.call("PUT", QUEUE, &json!({})).await;
    assert_eq!(
        (refused.status, &refused.body["code"], &refused.body["fields"]),
        (409, &json!("would-remove"), &json!(["push"]))
    );
    service.call("PATCH", QUEUE, &json!({"push": null})).await.ok();
    // The request in flight is settled all the same.
    hook.answer(200, "").await;
    reaches(&service, "/known", json!(1)).await;
    reaches(&service, "/waiters", json!(0)).await;
    assert_eq!(status(&service, "push").await, Value::Null);
    service.post(&format!("{QUEUE}/add"), &object("b")).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    assert_eq!(super::keys(&popped), ["b"]);
    assert!(receiver.is_silent());
}

#[tokio::test]
async fn a_stop_waits_for_the_answer_in_flight() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let hook = receiver.next().await;
    service.shutdown.signal();
    hook.answer(200, "").await;
    service.stopped().await;
}

#[tokio::test]
async fn what_the_server_does_not_permit_is_refused() {
    let put = async |service: &Service, push: Value| -> (u16, Value, String) {
        let reply = service.call("PUT", QUEUE, &json!({"push": push})).await;
        let text = format!("{} {}", reply.body["detail"], reply.body["hint"]);
        (reply.status, reply.body["field"].clone(), text)
    };
    let plain = Service::start().await;
    let (status, field, text) = put(&plain, json!({"url": "https://shop.example/", "format": "raw"})).await;
    assert_eq!((status, field), (422, json!("push.url")));
    assert!(text.contains("push.allow is empty"), "{text}");

    let (service, _folder) = service().await;
    let url = "http://127.0.0.1:9/";
    for (push, named) in [
        (json!({"url": "https://shop.example/", "secrets": ["shop"]}), "push.url"),
        (json!({"url": "http://u@127.0.0.1:9/", "secrets": ["shop"]}), "push.url"),
        (json!({"url": "http://127.0.0.1:9/#a", "secrets": ["shop"]}), "push.url"),
        (json!({"url": "http://[::1]:9/", "secrets": ["shop"]}), "push.url"),
        (json!({"url": "gopher://127.0.0.1/", "secrets": ["shop"]}), "push.url"),
        (json!({"url": url, "secrets": ["other"]}), "push.secrets"),
        (json!({"url": url, "secrets": ["none"]}), "push.secrets"),
        (json!({"url": url, "secrets": ["shop", "shop"]}), "push.secrets"),
        (json!({"url": url}), "push.secrets"),
        (json!({"url": url, "format": "raw", "payload": "thin"}), "push.payload"),
        (json!({"url": url, "secrets": ["shop"], "timeout": "10m"}), "push.timeout"),
        (json!({"url": url, "secrets": ["shop"], "max_in_flight": 0}), "push.max_in_flight"),
        (json!({"url": url, "secrets": ["shop"], "batch": 1_001}), "push.batch"),
        (json!({"url": url, "format": "raw", "batch": 2}), "push.batch"),
        (json!({"url": url, "secrets": ["shop"], "handshake": "a b"}), "push.handshake"),
        (json!({"url": url, "secrets": ["shop"], "headers": {"a": {"secret": "shop"}}}), "push.headers"),
        (json!({"url": url, "secrets": ["shop"], "retry": ["8d"]}), "push.retry"),
        (json!({"url": url, "secrets": ["shop"], "reject_statuses": [500]}), "push.reject_statuses"),
    ] {
        let (status, field, text) = put(&service, push.clone()).await;
        assert_eq!((status, &field), (422, &json!(named)), "{push} {text}");
    }
    let reply =
        service.call("PUT", QUEUE, &json!({"push": {"url": url, "secrets": ["shop"], "later": 2}})).await;
    assert_eq!((reply.status, &reply.body["field"]), (400, &json!("push.later")), "{}", reply.text);
    let keys = json!({"mode": "keys", "push": {"url": url, "secrets": ["shop"]}});
    assert_eq!(service.call("PUT", QUEUE, &keys).await.body["field"], "push");
    assert_eq!(service.get(QUEUE).await.status, 404, "nothing was created");
}

#[tokio::test]
async fn a_token_that_sets_push_needs_consume() {
    let (service, _folder) = service_with(|settings| {
        let consumer = [Verb::Admin, Verb::Consume, Verb::Read];
        settings.access.tokens =
            vec![token("admin", &[Verb::Admin, Verb::Read], "*"), token("consumer", &consumer, "*")];
    })
    .await;
    let push = |url: &str| json!({"push": {"url": url, "format": "raw"}});
    let mut client = service.client().await;
    client.call_as("admin", "PUT", QUEUE, &push("http://127.0.0.1:9/")).await.problem("forbidden");
    client.call_as("admin", "PUT", QUEUE, &json!({})).await.ok();
    client.call_as("admin", "PATCH", QUEUE, &push("http://127.0.0.1:9/")).await.problem("forbidden");
    client.call_as("consumer", "PATCH", QUEUE, &push("http://127.0.0.1:9/")).await.ok();
    client.call_as("admin", "PATCH", QUEUE, &json!({"max_failures": 7})).await.ok();
    client.call_as("admin", "PATCH", QUEUE, &push("http://127.0.0.1:10/")).await.problem("forbidden");
}

#[tokio::test]
async fn the_metrics_count_requests_and_no_reply_has_a_secret() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"retry": ["0s"]})).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    for status in [200, 422, 500, 200] {
        receiver.next().await.answer(status, "").await;
    }
    reaches(&service, "/known", json!(2)).await;
    let page = metrics(&service).await;
    for line in [
        "deltaq_push_requests_total{queue=\"q\",result=\"ok\"} 2",
        "deltaq_push_requests_total{queue=\"q\",result=\"rejected\"} 1",
        "deltaq_push_requests_total{queue=\"q\",result=\"failed\"} 1",
        "deltaq_push_requests_total{queue=\"q\",result=\"held\"} 0",
        "deltaq_push_requests_total{queue=\"q\",result=\"no_answer\"} 0",
        "deltaq_push_state{queue=\"q\",state=\"sending\"} 1",
        "deltaq_push_state{queue=\"q\",state=\"failing\"} 0",
        "deltaq_push_state{queue=\"q\",state=\"disabled\"} 0",
        "deltaq_push_in_flight{queue=\"q\"} 0",
        "deltaq_push_request_duration_seconds_count{queue=\"q\"} 4",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
    }
    assert!(page.contains("deltaq_push_last_success_timestamp_seconds{queue=\"q\"} "));
    let paths = ["", "/settings", "/status", "/parked/errors", "/items", "/workers", "/history/b"];
    let mut replies = vec![page];
    for path in paths {
        replies.push(service.get(&format!("{QUEUE}{path}")).await.text);
    }
    replies.push(service.get("/v1/info").await.text);
    let key = SECRET.trim_start_matches("whsec_");
    assert!(replies.iter().all(|reply| !reply.contains(key)), "{replies:?}");
}

#[tokio::test]
async fn a_setting_that_is_removed_takes_the_waiting_pop_with_it() {
    let (service, _folder) = service().await;
    let (mut receiver, other) = (Receiver::start().await, Receiver::start().await);
    pushing(&service, &receiver, json!({})).await;
    service.post(&format!("{QUEUE}/add"), &object("first")).await.ok();
    receiver.next().await.answer(200, "").await;
    reaches(&service, "/known", json!(1)).await;
    service.post(&format!("{QUEUE}/add"), &object("slow")).await.ok();
    let slow = receiver.next().await;
    reaches(&service, "/waiters", json!(1)).await;
    // Another URL begins with one request, and one is in flight.
    service.call("PATCH", QUEUE, &json!({"push": {"url": other.url("/")}})).await.ok();
    reaches(&service, "/waiters", json!(0)).await;
    service.call("PATCH", QUEUE, &json!({"push": null})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["x", "y"])).await.ok();
    slow.answer(200, "").await;
    reaches(&service, "/known", json!(2)).await;
    assert_eq!(status(&service, "ready").await, 2);
}

#[tokio::test]
async fn a_failing_key_of_a_higher_class_is_not_each_probe() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    let settings = json!({
        "order": {"priority": {"pointer": "/p", "step": null}},
        "push": {"url": receiver.url("/"), "format": "raw", "retry": ["1ms"]},
    });
    service.call("PUT", QUEUE, &settings).await.ok();
    service.post(&format!("{QUEUE}/add"), &json!({"key": "bad", "p": 5})).await.ok();
    while status(&service, "push").await["state"] != "failing" {
        receiver.next().await.answer(500, "no").await;
    }
    service.post(&format!("{QUEUE}/add"), &json!({"key": "good", "p": 0})).await.ok();
    loop {
        let hook = receiver.next().await;
        let is_good = hook.header("deltaq-key") == "good";
        hook.answer(if is_good { 200 } else { 500 }, "").await;
        if is_good {
            break;
        }
    }
    reaches(&service, "/push/state", json!("sending")).await;
}
