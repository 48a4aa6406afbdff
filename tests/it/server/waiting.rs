//! Waiting until everything up to a version is acknowledged, and the list of workers.

use serde_json::{Value, json};

use super::{QUEUE, waiters};
use crate::harness::{Client, Service};

async fn post(service: &Service, call: &str, body: Value) -> Value {
    service.post(&format!("{QUEUE}/{call}"), &body).await.ok()
}

async fn synced(service: &Service, query: &str) -> Value {
    service.get(&format!("{QUEUE}/synced?{query}")).await.ok()
}

/// A call that waits.
async fn waiting(service: &Service, version: &Value) -> Client {
    let mut client = service.client().await;
    let path = format!("{QUEUE}/synced?resource_version={version}&wait=20s");
    client.send_text("GET", &path, &[], "").await;
    client
}

/// Leases of the next keys.
async fn pop(service: &Service, max: usize) -> Vec<Value> {
    let items = post(service, &format!("pop?max={max}"), json!({})).await["items"].take();
    items.as_array().expect("a list").iter().map(|item| item["lease"]["id"].clone()).collect()
}

#[tokio::test]
async fn a_call_waits_until_everything_up_to_a_version_is_acknowledged() {
    let service = Service::start().await;
    let list = post(&service, "replace?source=erp", json!([{"key": "a"}, {"key": "b"}])).await;
    let version = &list["resource_version"];
    let later = post(&service, "add", json!({"key": "c"})).await;
    let not_yet = synced(&service, &format!("resource_version={version}")).await;
    assert_eq!(
        not_yet,
        json!({"synced": false, "remaining": 2, "reached": false, "resource_version": version, "parked": 0})
    );
    let (mut list, mut all) =
        (waiting(&service, version).await, waiting(&service, &later["resource_version"]).await);
    let leases = pop(&service, 2).await;
    post(&service, "ack", json!({"lease_ids": [leases[0]]})).await;
    // A change behind the version does not delay it, although its key belongs to the list.
    post(&service, "update", json!({"key": "b", "v": 2})).await;
    post(&service, "ack", json!({"lease_ids": [leases[1]]})).await;
    assert_eq!(list.reply().await.ok()["reached"], true);
    let lease = pop(&service, 1).await;
    post(&service, "ack", json!({"lease_ids": [lease[0]]})).await;
    let reached = all.reply().await.ok();
    assert_eq!(
        (&reached["reached"], &reached["resource_version"]),
        (&json!(true), &later["resource_version"])
    );
    assert_eq!(synced(&service, "resource_version=now").await["reached"], false, "b waits");
}

#[tokio::test]
async fn a_wait_leaves_parked_keys_out_and_counts_them() {
    let service = Service::start().await;
    let added = post(&service, "add", json!([{"key": "a"}, {"key": "b"}])).await;
    let mut call = waiting(&service, &added["resource_version"]).await;
    let leases = pop(&service, 2).await;
    post(&service, "ack", json!({"lease_ids": [leases[0]]})).await;
    post(&service, "reject", json!({"lease_ids": [leases[1]]})).await;
    let reply = call.reply().await.ok();
    assert_eq!((&reply["reached"], &reply["parked"]), (&json!(true), &json!(1)));
}

#[tokio::test]
async fn a_wait_for_a_version_ends_with_its_time_or_its_queue() {
    let service = Service::start().await;
    let added = post(&service, "add", json!({"key": "a"})).await;
    let version = added["resource_version"].as_u64().expect("a version");
    let ended = synced(&service, &format!("resource_version={version}&wait=20ms")).await;
    assert_eq!(ended["reached"], false);
    let ahead = service.get(&format!("{QUEUE}/synced?resource_version={}&wait=20s", version + 1)).await;
    assert_eq!(ahead.problem("version-ahead")["retryable"], false);
    let lost = service.get(&format!("{QUEUE}/synced?resource_version=1&wait=20s")).await;
    assert_eq!(lost.problem("expired")["reason"], "lost");
    assert_eq!(synced(&service, "resource_version=0").await["reached"], true);
    for wrong in ["resource_version=soon", "resource_version=-1"] {
        service.get(&format!("{QUEUE}/synced?{wrong}")).await.problem("invalid-parameter");
    }
    let mut waits = waiting(&service, &json!(version)).await;
    assert_eq!(service.call("DELETE", QUEUE, &Value::Null).await.status, 204);
    let problem = waits.reply().await;
    assert!(problem.status == 404 || problem.status == 410, "{problem:?}");
}

#[tokio::test]
async fn workers_are_listed_with_their_leases_and_their_waiting_pops() {
    let service = Service::start().await;
    let objects: Vec<Value> = (0..6).map(|number| json!({"key": format!("k{number}")})).collect();
    post(&service, "add", json!(objects)).await;
    for (query, lease) in
        [("worker=b&max=2", "1h"), ("worker=b", "30m"), ("max=2", "10m"), ("worker=a", "5h")]
    {
        post(&service, &format!("pop?{query}&lease_duration={lease}"), json!({})).await;
    }
    let mut pops = Vec::new();
    for (count, worker) in [(1, "worker=c"), (2, "worker=c"), (3, "worker=a")] {
        let mut client = service.client().await;
        client.send_text("POST", &format!("{QUEUE}/pop?wait=20s&{worker}"), &[], "{}").await;
        pops.push(client);
        waiters(&service, count).await;
    }
    let list = service.get(&format!("{QUEUE}/workers")).await.ok();
    let row = |worker: &Value| {
        let counts = (
            worker["worker"].as_str().map(str::to_owned),
            worker["leased"].as_u64(),
            worker["waiting"].as_u64(),
        );
        let left = worker["next_expires_in_ms"].as_u64().map(|left| left.div_ceil(60_000));
        (counts, left, worker["oldest_leased_at"].is_null(), worker["oldest_waiting_at"].is_null())
    };
    let rows: Vec<_> = list["items"].as_array().expect("a list").iter().map(row).collect();
    let name = |name: &str| Some(name.to_owned());
    assert_eq!(
        rows,
        [
            ((None, Some(2), Some(0)), Some(10), false, true),
            ((name("a"), Some(1), Some(1)), Some(300), false, false),
            ((name("b"), Some(3), Some(0)), Some(30), false, true),
            ((name("c"), Some(0), Some(2)), None, true, false),
        ]
    );
    // Pages have the same workers.
    let (mut paged, mut next) = (Vec::new(), String::new());
    loop {
        let page = service.get(&format!("{QUEUE}/workers?limit=1{next}")).await.ok();
        paged.extend(page["items"].as_array().expect("a list").iter().map(row).collect::<Vec<_>>());
        let Some(token) = page["continue"].as_str() else { break };
        next = format!("&continue={token}");
    }
    assert_eq!(paged.len(), 4);
    assert_eq!(service.call("DELETE", QUEUE, &Value::Null).await.status, 204);
}

#[tokio::test]
async fn workers_are_listed_with_how_their_last_leases_ended() {
    let service = Service::start().await;
    let objects: Vec<Value> = (0..9).map(|number| json!({"key": format!("k{number}")})).collect();
    post(&service, "add", json!(objects)).await;
    let mut leases = Vec::new();
    for (query, lease) in [("worker=a&max=5", "1h"), ("max=2", "1h"), ("worker=b", "1h"), ("worker=c", "1h")]
    {
        let popped = post(&service, &format!("pop?{query}&lease_duration={lease}"), json!({})).await;
        let items = popped["items"].as_array().expect("items").iter();
        leases.extend(items.map(|item| item["lease"]["id"].clone()));
    }
    for (call, ids) in [
        ("ack", &leases[..2]),
        ("nack", &leases[2..3]),
        ("release", &leases[3..4]),
        ("ack", &leases[5..6]),
        ("reject", &leases[7..8]),
    ] {
        post(&service, call, json!({"lease_ids": ids})).await;
    }
    // A worker is in the list while it holds a lease.
    post(&service, "pop?worker=b&lease_duration=1h&wait=5s", json!({})).await;
    let list = service.get(&format!("{QUEUE}/workers")).await.ok();
    let rows: Vec<_> = list["items"].as_array().expect("a list").iter().map(ended).collect();
    let expected = [(json!(null), 1, 0), (json!("a"), 2, 1), (json!("b"), 0, 1), (json!("c"), 0, 0)];
    assert_eq!(rows, expected);
    let all = service.get("/v1/workers").await.ok();
    let of_a =
        all["workers"].as_array().and_then(|all| all.iter().find(|one| one["worker"] == "a")).map(ended);
    assert_eq!(of_a, Some((json!("a"), 2, 1)));
}

/// The name of a worker, its recent acks and its recent failures.
fn ended(worker: &Value) -> (Value, u64, u64) {
    let count = |name: &str| worker[name].as_u64().expect("a count");
    (worker["worker"].clone(), count("recent_acks"), count("recent_failures"))
}
