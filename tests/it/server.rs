//! Tests of the service over HTTP: clients that wait and disconnect, lost replies, deleted queues, passing time, failed
//! commits.
//!
//! No test sleeps. A test waits for a reply, for a count in the queue's document, or for the end of a connection.

mod admission;
mod clock;
mod cloud_events;
pub(crate) mod commits;
mod connections;
mod controllers;
mod differences;
mod event_sources;
mod explaining;
mod extending;
mod following;
mod following_events;
mod grouping;
mod holding;
mod hooks;
mod hosts;
pub(crate) mod http2;
mod ignoring;
mod indexing;
mod keeping;
mod kubernetes_setting;
mod limiting;
mod lives;
mod looking;
mod overview;
mod panics;
mod pop_replies;
mod popping;
mod preconditions;
mod pushing;
mod queues;
mod replacing;
mod requests;
mod selecting;
mod sequences;
mod series;
mod settings;
mod settling;
mod skipping;
mod sources;
mod stopping;
mod tracing;
mod versions;
mod views;
mod waiting;
mod watch_limits;
mod watching;

use serde_json::{Value, json};

use crate::harness::{Service, within};

/// The path of the queue that most tests use.
const QUEUE: &str = "/v1/queues/q";

/// An object with this key.
fn object(key: &str) -> Value {
    json!({"key": key})
}

/// Objects with these keys.
fn objects(keys: &[&str]) -> Value {
    keys.iter().map(|key| object(key)).collect()
}

/// A member of the queue's status.
async fn status(service: &Service, member: &str) -> Value {
    service.get(QUEUE).await.ok()["status"][member].take()
}

/// Waits until the queue has this many waiting pops.
async fn waiters(service: &Service, count: u64) {
    // The first pop creates the queue.
    within(async { while service.get(QUEUE).await.body["status"]["waiters"] != count {} }).await;
}

/// The keys in the reply to a pop, in order.
fn keys(popped: &Value) -> Vec<&str> {
    let items = popped["items"].as_array().expect("items");
    items.iter().map(|item| item["key"].as_str().expect("a key")).collect()
}

/// The lease of an item in the reply to a pop.
fn lease(popped: &Value, index: usize) -> String {
    popped["items"][index]["lease"]["id"].as_str().expect("a lease").to_owned()
}

/// Pops one key and returns its lease.
async fn take(service: &Service) -> String {
    lease(&service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok(), 0)
}

/// The keys in these states, in the order of the list.
async fn listed(service: &Service, states: &str) -> Vec<String> {
    let mut listed = Vec::new();
    let mut more = String::new();
    loop {
        let page = service.get(&format!("{QUEUE}/items?state={states}{more}")).await.ok();
        listed.extend(keys(&page).into_iter().map(str::to_owned));
        let Some(next) = page["continue"].as_str() else { return listed };
        more = format!("&continue={next}");
    }
}

/// The body of a pop that settles `lease` first.
fn settling(lease: &str, how: &str) -> Value {
    json!({"settle": [{"lease_id": lease, "as": how}]})
}

/// The results of settles without what they say about the key.
fn results(settled: &Value) -> Value {
    let mut settled = settled.clone();
    for one in settled.as_array_mut().expect("a list") {
        for name in ["failures", "due_at", "parked"] {
            one[name] = Value::Null;
        }
    }
    settled
}

/// The member `settled` of a reply after one settle that says nothing about the key.
fn settled(lease: &str, how: &str, result: &str) -> Value {
    json!([row(lease, how, result, &Value::Null)])
}

/// The result of a settle that says nothing about the key.
fn row(lease: &str, how: &str, result: &str, outcome: &Value) -> Value {
    json!({
        "lease_id": lease, "as": how, "result": result, "outcome": outcome,
        "failures": null, "due_at": null, "parked": null,
    })
}
