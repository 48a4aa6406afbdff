//! The traces of produce calls, which are stored with their deltas.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease, object};
use crate::harness::{Reply, Service};

fn traceparent(number: u8) -> String {
    format!("00-{:032x}-{:016x}-01", u128::from(number), u64::from(number))
}

/// A call with a header `traceparent`.
async fn traced(service: &Service, call: &str, traceparent: &str, body: &str) -> Reply {
    let mut client = service.client().await;
    client.send_text("POST", &format!("{QUEUE}/{call}"), &[("traceparent", traceparent)], body).await;
    client.reply().await
}

fn traces(deltas: &Value) -> Vec<Option<&str>> {
    let deltas = deltas.as_array().expect("deltas");
    deltas.iter().map(|delta| delta.get("traceparent").and_then(Value::as_str)).collect()
}

#[tokio::test]
async fn a_pop_shows_the_traces_of_all_delivered_deltas() {
    let service = Service::start().await;
    let a = object("a").to_string();
    traced(&service, "add", &traceparent(1), &a).await.ok();
    service.post(&format!("{QUEUE}/update"), &object("a")).await.ok();
    traced(&service, "update", &traceparent(2), &format!("[{a}]")).await.ok();
    traced(&service, "deltas", &traceparent(3), r#"{"type":"Updated","key":"a","object":{}}"#).await.ok();
    traced(&service, "replace", &traceparent(4), &format!("[{a}]")).await.ok();
    traced(&service, "delete?key=a", &traceparent(5), "").await.ok();
    let expected: Vec<Option<String>> =
        [Some(1), None, Some(2), Some(3), Some(4), Some(5)].map(|number| number.map(traceparent)).to_vec();
    let expected: Vec<Option<&str>> = expected.iter().map(Option::as_deref).collect();
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!(traces(&item["deltas"]), expected);
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    assert_eq!(traces(&popped["items"][0]["deltas"]), expected);
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!(traces(&item["leased_deltas"]), expected);
}

#[tokio::test]
async fn inferred_deltas_of_a_replace_and_a_resync_have_their_trace() {
    let service = Service::start().await;
    traced(&service, "seed", &traceparent(1), r#"{"object":{"key":"a"}}"#).await.ok();
    traced(&service, "resync", &traceparent(2), "").await.ok();
    traced(&service, "replace?allow_empty=true", &traceparent(3), "[]").await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let deltas = &popped["items"][0]["deltas"];
    assert_eq!((&deltas[0]["type"], &deltas[1]["type"]), (&json!("Sync"), &json!("Deleted")));
    assert_eq!(traces(deltas), [Some(&*traceparent(2)), Some(&*traceparent(3))]);
}

#[tokio::test]
async fn merged_deltas_keep_the_newer_trace() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"max_deltas_per_key": 2})).await.ok();
    for number in 1..=4 {
        traced(&service, "add", &traceparent(number), &object("a").to_string()).await.ok();
    }
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!(traces(&item["deltas"]), [Some(&*traceparent(1)), Some(&*traceparent(4))]);
}

#[tokio::test]
async fn invalid_headers_are_ignored() {
    let service = Service::start().await;
    for wrong in ["00-1", "", &traceparent(0), &traceparent(1).replacen("00", "ff", 1)] {
        traced(&service, "add", wrong, &object("a").to_string()).await.ok();
    }
    let newer = format!("{}-more", traceparent(1).replacen("00", "01", 1));
    traced(&service, "add", &newer, &object("a").to_string()).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let expected = traceparent(1);
    assert_eq!(traces(&popped["items"][0]["deltas"]), [None, None, None, None, Some(&*expected)]);
    let leases = json!({"lease_ids": [lease(&popped, 0)]});
    service.post(&format!("{QUEUE}/nack"), &leases).await.ok();
    let again = service.post(&format!("{QUEUE}/pop?wait=5s"), &Value::Null).await.ok();
    assert_eq!(keys(&again), ["a"]);
    assert_eq!(traces(&again["items"][0]["deltas"]), [None, None, None, None, Some(&*expected)]);
}
