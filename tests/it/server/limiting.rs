//! Limits of delivery: pops that wait for them, and keys that explain them.

use deltaq_types::Timestamp;
use serde_json::{Value, json};

use super::{QUEUE, keys, lease, object, objects, waiters};
use crate::harness::{Client, Service};

async fn pops_that_wait(service: &Service, count: u64) -> Vec<Client> {
    let mut line = Vec::new();
    for place in 1..=count {
        line.push(service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &Value::Null).await);
        waiters(service, place).await;
    }
    line
}

async fn explained(service: &Service, key: &str) -> Value {
    service.get(&format!("{QUEUE}/explain/{key}")).await.ok()
}

#[tokio::test]
async fn the_rate_serves_pops_that_wait_one_after_the_other() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"rate": {"per_second": 40, "burst": 1}})).await.ok();
    let line = pops_that_wait(&service, 3).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c", "d"])).await.ok();
    for (mut client, key) in line.into_iter().zip(["a", "b", "c"]) {
        assert_eq!(keys(&client.reply().await.ok()), [key]);
    }
    let last = service.post(&format!("{QUEUE}/pop?wait=30s"), &Value::Null).await.ok();
    assert_eq!(keys(&last), ["d"]);
}

#[tokio::test]
async fn the_end_of_a_lease_serves_a_pop_that_waits() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"max_leased": 2})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["a", "b"]);
    let mut line = pops_that_wait(&service, 1).await;
    let found = explained(&service, "c").await;
    assert_eq!((&found["reason"], &found["due_at"]), (&json!("queue_limit"), &Value::Null), "{found}");
    let done = json!({"lease_ids": [lease(&popped, 0)]});
    service.post(&format!("{QUEUE}/ack"), &done).await.ok();
    assert_eq!(keys(&line.remove(0).reply().await.ok()), ["c"]);

    // A higher limit serves one, too.
    service.post(&format!("{QUEUE}/add"), &object("d")).await.ok();
    let mut line = pops_that_wait(&service, 1).await;
    service.call("PATCH", QUEUE, &json!({"max_leased": null})).await.ok();
    assert_eq!(keys(&line.remove(0).reply().await.ok()), ["d"]);
}

#[tokio::test]
async fn a_key_that_waits_for_the_rate_has_the_instant_of_its_delivery() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"rate": {"per_second": 0.001, "burst": 2}})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c", "d"])).await.ok();
    let found = explained(&service, "b").await;
    assert_eq!((&found["reason"], &found["due_at"]), (&json!("queued"), &Value::Null), "{found}");
    assert_eq!(explained(&service, "a").await["reason"], "next");
    assert_eq!(
        explained(&service, "c").await["reason"],
        "rate_limited",
        "two keys before it take the whole burst"
    );
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["a", "b"]);
    let mut due = Vec::new();
    for (key, ahead) in [("c", 0), ("d", 1)] {
        let found = explained(&service, key).await;
        assert_eq!((&found["reason"], &found["ahead"]), (&json!("rate_limited"), &json!(ahead)), "{found}");
        let text = found["due_at"].as_str().expect("an instant");
        assert!(found["explanation"].as_str().expect("a sentence").contains(text), "{found}");
        due.push(serde_json::from_value::<Timestamp>(found["due_at"].clone()).expect("an instant"));
    }
    let seconds = (due[1].as_micros() - due[0].as_micros()) / 1_000_000;
    assert!((999..=1_001).contains(&seconds), "one key in a thousand seconds, not {seconds}");
    service.post(&format!("{QUEUE}/pause"), &Value::Null).await.ok();
    let found = explained(&service, "c").await;
    assert_eq!((&found["reason"], &found["due_at"]), (&json!("paused"), &Value::Null), "{found}");
}
