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
async fn a_pop_that_waits_gets_a_key_when_the_rate_of_its_group_allows() {
    let service = Service::start().await;
    let slow = json!({"per_second": 10, "burst": 1});
    let groups = json!({"groups": {"by": "/t", "overrides": {"a": {"rate": slow}, "c": {"rate": {"per_second": 0.001, "burst": 1}}}}});
    let put = service.call("PUT", QUEUE, &groups).await.ok();
    assert_eq!(put["settings"]["groups"]["overrides"]["a"]["rate"], slow);
    let tenants = json!([{"key": "a1", "t": "a"}, {"key": "a2", "t": "a"}, {"key": "c1", "t": "c"}, {"key": "c2", "t": "c"}]);
    service.post(&format!("{QUEUE}/add"), &tenants).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["a1", "c1"]);
    let found = explained(&service, "c2").await;
    assert_eq!((&found["reason"], &found["ahead"]), (&json!("group_rate_limited"), &json!(0)), "{found}");
    let list = service.get(&format!("{QUEUE}/groups?sort=ready")).await.ok();
    let c = list["groups"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|group| group["name"] == "c")
        .expect("it is there");
    assert_eq!(c["next_delivery_at"], found["due_at"]);
    let waited = service.post(&format!("{QUEUE}/pop?wait=30s"), &Value::Null).await.ok();
    assert_eq!(keys(&waited), ["a2"]);
}

#[tokio::test]
async fn a_queue_of_mode_keys_names_its_groups_by_the_beginning_of_keys() {
    let service = Service::start().await;
    let by_object = json!({"mode": "keys", "groups": {"by": "/t"}});
    service.call("PUT", QUEUE, &by_object).await.problem("invalid-config");
    let by_prefix = json!({"mode": "keys", "groups": {"by": {"key_prefix": "/"}}});
    service.call("PUT", QUEUE, &by_prefix).await.ok();
}

#[tokio::test]
async fn pops_of_one_group_and_of_all_wait_together() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"groups": {"by": "/t"}})).await.ok();
    let mut of_b = service.send("POST", &format!("{QUEUE}/pop?group=b&wait=30s"), &Value::Null).await;
    waiters(&service, 1).await;
    let mut of_none = service.send("POST", &format!("{QUEUE}/pop?group=&wait=30s"), &Value::Null).await;
    waiters(&service, 2).await;
    let mut of_all = service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &Value::Null).await;
    waiters(&service, 3).await;
    let changes = json!([{"key": "a1", "t": "a"}, {"key": "a2", "t": "a"}, {"key": "a3", "t": "a"}]);
    service.post(&format!("{QUEUE}/add"), &changes).await.ok();
    assert_eq!(keys(&of_all.reply().await.ok()), ["a1"]);
    // The others take no key of this group, so a new pop does.
    let popped = service.post(&format!("{QUEUE}/pop?wait=30s"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["a2"]);
    assert_eq!(keys(&service.post(&format!("{QUEUE}/pop?group=c"), &Value::Null).await.ok()), [""; 0]);
    waiters(&service, 2).await;
    service.post(&format!("{QUEUE}/add"), &json!([{"key": "b1", "t": "b"}, {"key": "x"}])).await.ok();
    assert_eq!(keys(&of_b.reply().await.ok()), ["b1"]);
    assert_eq!(keys(&of_none.reply().await.ok()), ["x"]);
}

#[tokio::test]
async fn a_pop_of_a_group_needs_the_setting() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    service.post(&format!("{QUEUE}/pop?group=a"), &Value::Null).await.problem("invalid-parameter");
    service.call("PATCH", QUEUE, &json!({"groups": {"by": "/t"}})).await.ok();
    let long = "x".repeat(257);
    service.post(&format!("{QUEUE}/pop?group={long}"), &Value::Null).await.problem("invalid-parameter");
    service.post(&format!("{QUEUE}/pop?group=a"), &Value::Null).await.ok();
}

#[tokio::test]
async fn the_group_without_a_name_is_paused_without_the_others() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"groups": {"by": "/t"}})).await.ok();
    service.post(&format!("{QUEUE}/add"), &json!([{"key": "none"}, {"key": "a1", "t": "a"}])).await.ok();
    let (pause, resume) = (format!("{QUEUE}/pause"), format!("{QUEUE}/resume"));
    service.post(&pause, &json!({"group": ""})).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["a1"]);
    service.post(&resume, &json!({"group": ""})).await.ok();
    assert_eq!(keys(&service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok()), ["none"]);
}

#[tokio::test]
async fn a_group_is_paused_and_held_without_the_others() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let pause = format!("{QUEUE}/pause");
    service.post(&pause, &json!({"group": "a"})).await.problem("invalid-request");
    service.call("PATCH", QUEUE, &json!({"groups": {"by": "/t"}})).await.ok();
    let changes = json!([{"key": "a1", "t": "a"}, {"key": "a2", "t": "a"}, {"key": "b1", "t": "b"}]);
    service.post(&format!("{QUEUE}/add"), &changes).await.ok();
    service.post(&pause, &json!({"group": "a"})).await.ok();
    let found = explained(&service, "a1").await;
    assert_eq!((&found["reason"], &found["due_at"]), (&json!("group_paused"), &Value::Null), "{found}");
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["b1"]);
    service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    assert_eq!(keys(&service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok()), [""; 0]);
    service.post(&format!("{QUEUE}/resume"), &json!({"group": "a"})).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let hold = |popped: &Value, length: &str| json!({"lease_id": lease(popped, 0), "hold": {"scope": "group", "for": length}});
    let settled = service.post(&format!("{QUEUE}/ack"), &hold(&popped, "1h")).await.ok();
    let found = explained(&service, "a2").await;
    let until = &settled["settled"][0]["held_until"];
    assert_eq!((&found["reason"], &found["due_at"]), (&json!("group_held"), until), "{found}");
    let list = service.get(&format!("{QUEUE}/groups?sort=ready")).await.ok();
    assert_eq!((&list["groups"][0]["name"], &list["groups"][0]["held_until"]), (&json!("a"), until));
    service.post(&format!("{QUEUE}/resume"), &json!({"group": "a"})).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["a2"]);
    // The end of the hold serves a pop that waits.
    service.post(&format!("{QUEUE}/release"), &hold(&popped, "100ms")).await.ok();
    assert_eq!(keys(&service.post(&format!("{QUEUE}/pop?wait=30s"), &Value::Null).await.ok()), ["a2"]);
}
