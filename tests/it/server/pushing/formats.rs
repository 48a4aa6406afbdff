//! The forms of pushed requests.

use serde_json::{Value, json};

use super::{QUEUE, SECRET, object, pushing, reaches, service, verifies};
use crate::harness::receiver::Receiver;

#[tokio::test]
async fn the_formats_and_payloads() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"payload": "thin"})).await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let hook = receiver.next().await;
    let data = hook.json()["data"].take();
    let version = data["resource_version"].as_u64().expect("a number");
    let token = hook.number("deltaq-token");
    let id = data["lease"]["id"].as_str().expect("text").to_owned();
    let lease = json!({"id": id, "token": token});
    assert!(id.ends_with(&format!("-{token}")), "{id}");
    assert_eq!(data, json!({"key": "a", "type": "Added", "resource_version": version, "lease": lease}));
    hook.answer(200, "").await;
    reaches(&service, "/known", json!(1)).await;

    pushing(&service, &receiver, json!({"format": "raw", "secrets": []})).await;
    service.post(&format!("{QUEUE}/update"), &json!({"key": "a", "n": 1.0e0})).await.ok();
    let hook = receiver.next().await;
    assert_eq!(hook.body, br#"{"key":"a","n":1.0}"#);
    assert_eq!(hook.header("deltaq-type"), "deltaq.item.updated");
    assert!(hook.header("deltaq-resource-version").parse::<u64>().expect("a number") > version);
    assert!(!hook.headers.iter().any(|(name, _)| name == "webhook-signature"));
    hook.answer(200, "").await;
}

#[tokio::test]
async fn a_cloud_event_has_its_attributes_in_headers() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({"format": "cloudevents"})).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut client = service.client().await;
    let object = r#"{"key":"Größe 5 %","n":1.50}"#;
    client.send_text("POST", &format!("{QUEUE}/add"), &[("traceparent", trace)], object).await;
    client.reply().await.ok();
    let hook = receiver.next().await;
    assert_eq!(hook.body, object.as_bytes());
    let attribute = |name: &str| hook.header(&format!("ce-{name}")).to_owned();
    assert_eq!(attribute("specversion"), "1.0");
    assert_eq!((attribute("type"), attribute("source")), ("deltaq.item.updated".into(), "/queues/q".into()));
    assert_eq!((attribute("id"), attribute("traceparent")), (hook.header("webhook-id").into(), trace.into()));
    assert_eq!(
        (attribute("subject"), attribute("partitionkey")),
        ("Gr%C3%B6%C3%9Fe%205%20%25".into(), attribute("subject"))
    );
    assert!(attribute("time").ends_with('Z') && attribute("sequence").len() == 20);
    assert_eq!(hook.header("content-type"), "application/json");
    assert!(verifies(SECRET, &hook), "it is signed as well");
    let answer = service.send("POST", &format!("{QUEUE}/push/test"), &Value::Null).await;
    let test = receiver.next().await;
    assert_eq!((test.header("ce-type"), test.json()), ("deltaq.test", json!({"queue": "q"})));
    test.answer(200, "").await;
    hook.answer(200, "").await;
    drop(answer);
    reaches(&service, "/known", json!(1)).await;
    pushing(&service, &receiver, json!({"format": "cloudevents", "payload": "thin", "secrets": []})).await;
    service.post(&format!("{QUEUE}/delete"), &json!({"key": "Größe 5 %"})).await.ok();
    let hook = receiver.next().await;
    assert_eq!((hook.header("ce-type"), &hook.json()["type"]), ("deltaq.item.deleted", &json!("Deleted")));
    hook.answer(200, "").await;
}
