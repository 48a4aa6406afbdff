//! Extensions that wait for a change behind the lease.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease, object, objects, take};
use crate::harness::{Client, Service};

async fn service() -> Service {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    service
}

fn of(leases: &[&String]) -> Value {
    json!({"lease_ids": leases})
}

/// An extension that waits. The leases are extended already.
async fn waiting(service: &Service, lease_ids: &[&String], wait: &str) -> Client {
    let path = format!("{QUEUE}/extend?until_changed=true&wait={wait}");
    let client = service.send("POST", &path, &json!({"lease_ids": lease_ids, "lease_duration": "1h"})).await;
    let is_extended = |item: &Value| {
        let is_named = lease_ids.iter().any(|lease| item["lease"]["id"] == **lease);
        !is_named || item["lease"]["expires_in_ms"].as_u64().is_none_or(|ms| ms > 1_800_000)
    };
    loop {
        let leased = service.get(&format!("{QUEUE}/items?state=leased")).await.ok();
        if leased["items"].as_array().expect("a list").iter().all(is_extended) {
            return client;
        }
    }
}

async fn update(service: &Service, key: &str) {
    service.post(&format!("{QUEUE}/update"), &object(key)).await.ok();
}

#[tokio::test]
async fn an_extension_may_wait_for_a_newer_change() {
    let service = service().await;
    let (a, b) = (take(&service).await, take(&service).await);
    let (mut of_a, mut of_both) =
        (waiting(&service, &[&a], "30s").await, waiting(&service, &[&a, &b], "30s").await);
    let mut of_b = waiting(&service, &[&b], "30s").await;
    service.post(&format!("{QUEUE}/delete"), &json!({"key": "b"})).await.ok();
    for (client, row) in [(&mut of_b, 0), (&mut of_both, 1)] {
        let reply = client.reply().await.ok();
        let changed = &reply["settled"][row];
        assert_eq!((&changed["pending_deltas"], &changed["deleted"]), (&json!(1), &json!(true)), "{reply}");
    }
    update(&service, "a").await;
    let reply = of_a.reply().await.ok();
    assert_eq!((&reply["settled"][0]["pending_deltas"], &reply["stale"]), (&json!(1), &json!(0)), "{reply}");
    // A change that is there already is not waited for.
    let again = waiting(&service, &[&a], "30s").await.reply().await.ok();
    assert_eq!(again["settled"][0]["pending_deltas"], 1);
}

#[tokio::test]
async fn an_extension_stops_to_wait_when_its_lease_ends() {
    let service = service().await;
    let a = take(&service).await;
    let mut client = waiting(&service, &[&a], "30s").await;
    service.post(&format!("{QUEUE}/ack"), &of(&[&a])).await.ok();
    let reply = client.reply().await.ok();
    let row = &reply["settled"][0];
    assert_eq!(
        (&row["result"], &row["outcome"], &reply["stale"]),
        (&json!("stale"), &json!("acked"), &json!(1))
    );
}

#[tokio::test]
async fn a_wait_without_a_change_ends_and_a_deleted_queue_ends_it() {
    let service = service().await;
    let a = take(&service).await;
    let reply = waiting(&service, &[&a], "50ms").await.reply().await.ok();
    let row = &reply["settled"][0];
    assert_eq!((&row["result"], &row["pending_deltas"]), (&json!("ok"), &json!(0)), "{reply}");
    let mut client = waiting(&service, &[&a], "30s").await;
    // The wait has ended for the queue, too: another change wakes nobody.
    let b = take(&service).await;
    update(&service, "b").await;
    service.post(&format!("{QUEUE}/ack"), &of(&[&b])).await.ok();
    service.call("DELETE", QUEUE, &Value::Null).await;
    let problem = client.reply().await;
    assert!([404, 409, 410].contains(&problem.status), "{problem:?}");
}

#[tokio::test]
async fn only_an_extension_until_a_change_waits() {
    let service = service().await;
    let a = take(&service).await;
    let path = format!("{QUEUE}/extend?wait=1s");
    service.post(&path, &of(&[&a])).await.problem("invalid-parameter");
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["b"]);
    let path = format!("{QUEUE}/extend?until_changed=true");
    service.post(&path, &of(&[&lease(&popped, 0)])).await.ok();
}
