//! Groups: turns of waiting pops, limits, the list of groups, and keys that explain their turn.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease, waiters};
use crate::harness::Service;

async fn explained(service: &Service, key: &str) -> Value {
    service.get(&format!("{QUEUE}/explain/{key}")).await.ok()
}

#[tokio::test]
async fn a_pop_that_waits_gets_a_key_when_its_group_has_a_lease_less() {
    let service = Service::start().await;
    let groups = json!({"groups": {"by": "/t", "max_leased": 1, "overrides": {"b": {"weight": 3}}}});
    service.call("PUT", QUEUE, &groups).await.ok();
    let tenants = json!([{"key": "a1", "t": "a"}, {"key": "a2", "t": "a"}]);
    service.post(&format!("{QUEUE}/add"), &tenants).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["a1"]);
    let found = explained(&service, "a2").await;
    let facts = (&found["reason"], &found["group"], &found["ahead"]);
    assert_eq!(facts, (&json!("group_limit"), &json!("a"), &json!(0)), "{found}");
    let mut line = service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &Value::Null).await;
    waiters(&service, 1).await;
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [lease(&popped, 0)]})).await.ok();
    assert_eq!(keys(&line.reply().await.ok()), ["a2"]);
    service
        .post(&format!("{QUEUE}/add"), &json!([{"key": "a3", "t": "a"}, {"key": "b1", "t": "b"}]))
        .await
        .ok();
    let found = explained(&service, "b1").await;
    assert_eq!((&found["reason"], &found["group_share"]), (&json!("next"), &json!(1.0)), "{found}");
    let list = service.get(&format!("{QUEUE}/groups?sort=leased")).await.ok();
    let names: Vec<&Value> =
        list["groups"].as_array().expect("a list").iter().map(|group| &group["name"]).collect();
    assert_eq!(names, [&json!("a"), &Value::Null, &json!("b")]);
    assert_eq!(
        (&list["count"], &list["weights"], &list["groups"][0]["is_full"]),
        (&json!(3), &json!(3), &json!(true))
    );
}

#[tokio::test]
async fn a_queue_of_mode_keys_names_its_groups_by_the_beginning_of_keys() {
    let service = Service::start().await;
    let by_object = json!({"mode": "keys", "groups": {"by": "/t"}});
    service.call("PUT", QUEUE, &by_object).await.problem("invalid-config");
    let by_prefix = json!({"mode": "keys", "groups": {"by": {"key_prefix": "/"}}});
    service.call("PUT", QUEUE, &by_prefix).await.ok();
}
