//! Deleting, draining and syncing queues, and limits on queues.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease, object, objects, row, settling, take, waiters, within};
use crate::harness::{Client, Service};

/// Sends a call that waits at the server, on a connection that the server has already accepted. The call after it gives the server
/// time to begin it.
async fn sent(service: &Service, method: &str, path: &str) -> Client {
    let mut client = service.client().await;
    client.call("GET", QUEUE, &Value::Null).await.ok();
    client.send(method, path, &Value::Null).await;
    service.get(QUEUE).await.ok();
    client
}

#[tokio::test]
async fn deleting_a_queue_ends_waiting_calls_and_a_new_queue_starts_above_its_numbers() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=2&id=one"), &Value::Null).await.ok();
    let held = lease(&popped, 0);
    let before = service.get(QUEUE).await.ok();
    let mut pop = service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &Value::Null).await;
    waiters(&service, 1).await;
    let closing = format!("{QUEUE}/close?drain=true&wait=30s");
    let mut drain = service.send("POST", &closing, &Value::Null).await;
    within(async { while service.get(QUEUE).await.ok()["status"]["closed"] != true {} }).await;
    assert_eq!(service.call("DELETE", QUEUE, &Value::Null).await.status, 204);
    pop.reply().await.problem("queue-deleted");
    drain.reply().await.problem("queue-deleted");
    service.get(QUEUE).await.problem("queue-not-found");
    service.call("DELETE", QUEUE, &Value::Null).await.problem("queue-not-found");
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [held]})).await.problem("queue-not-found");

    // The queue is recreated while the worker still holds its lease.
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let after = service.get(QUEUE).await.ok();
    assert_ne!(after["incarnation"], before["incarnation"]);
    assert!(after["status"]["resource_version"].as_u64() > before["status"]["resource_version"].as_u64());
    let again = service.post(&format!("{QUEUE}/pop?id=one"), &settling(&held, "ack")).await.ok();
    let stale = json!([row(&held, "ack", "stale", &json!("unknown"))]);
    assert_eq!((keys(&again), &again["settled"]), (vec!["a"], &stale), "an id is the queue's");
    let token = |popped: &Value| popped["items"][0]["lease"]["token"].as_u64();
    assert!(token(&again) > token(&popped), "fencing tokens rise over the queue's end");
}

/// The reply to a call without a version.
fn synced(synced: bool, remaining: u64) -> Value {
    json!({"synced": synced, "remaining": remaining, "reached": null, "resource_version": null, "parked": null})
}

#[tokio::test]
async fn synced_waits_until_the_initial_list_is_acked_or_parked() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let wait = format!("{QUEUE}/synced?wait=30s");
    let mut early = sent(&service, "GET", &wait).await;
    service.post(&format!("{QUEUE}/replace"), &objects(&["a", "b"])).await.ok();
    let mut late = sent(&service, "GET", &wait).await;
    let now = service.get(&format!("{QUEUE}/synced")).await.ok();
    assert_eq!(now, synced(false, 2));
    let (a, b) = (take(&service).await, take(&service).await);
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [a]})).await.ok();
    let now = service.get(&format!("{QUEUE}/synced?wait=1ms")).await.ok();
    assert_eq!(now, synced(false, 1));
    service.post(&format!("{QUEUE}/reject"), &json!({"lease_ids": [b]})).await.ok();
    for waiter in [&mut early, &mut late] {
        assert_eq!(waiter.reply().await.ok(), synced(true, 0));
    }
    service.post(&format!("{QUEUE}/add"), &object("c")).await.ok();
    assert_eq!(service.get(&wait).await.ok()["synced"], true, "it never turns false again");
}

#[tokio::test]
async fn synced_stops_waiting_when_the_queue_is_deleted() {
    let service = Service::with(|settings| settings.server.max_waits_in_flight = 1).await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut waits = service.send("GET", &format!("{QUEUE}/synced?wait=30s"), &Value::Null).await;
    // The call waits once the limit refuses a second one.
    within(async { while service.get(&format!("{QUEUE}/synced")).await.status != 429 {} }).await;
    service.call("DELETE", QUEUE, &Value::Null).await;
    waits.reply().await.problem("queue-deleted");
}

#[tokio::test]
async fn close_with_drain_answers_when_the_last_lease_is_settled() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    let (a, b) = (take(&service).await, take(&service).await);
    let now = service.post(&format!("{QUEUE}/close?drain=true"), &Value::Null).await.ok();
    assert_eq!((&now["drained"], &now["status"]["closed"]), (&json!(false), &json!(true)));
    let mut drain = sent(&service, "POST", &format!("{QUEUE}/close?drain=true&wait=30s")).await;
    // A closed queue delivers the remaining keys, then pops wait until the queue is drained.
    let c = service.post(&format!("{QUEUE}/pop?wait=30s"), &settling(&a, "ack")).await.ok();
    assert_eq!(keys(&c), ["c"]);
    let mut waits = service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &settling(&b, "reject")).await;
    waiters(&service, 1).await;
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [lease(&c, 0)]})).await.ok();
    waits.reply().await.problem("queue-closed");
    let drained = drain.reply().await.ok();
    assert_eq!((&drained["drained"], &drained["status"]["parked"]), (&json!(true), &json!(1)));
    service.post(&format!("{QUEUE}/pop"), &Value::Null).await.problem("queue-closed");
    service.post(&format!("{QUEUE}/reopen"), &Value::Null).await.ok();
    assert_eq!(service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_call_whose_queue_must_exist_creates_none() {
    let service = Service::start().await;
    let calls = [
        ("add", json!({"key": "a"})),
        ("update", json!([{"key": "a"}])),
        ("delete", json!({"key": "a"})),
        ("deltas", json!([{"type": "Deleted", "key": "a"}])),
        ("replace", json!([{"key": "a"}])),
        ("replace", json!([])),
    ];
    for (call, body) in &calls {
        service.post(&format!("{QUEUE}/{call}?must_exist=true"), body).await.problem("queue-not-found");
    }
    service
        .post(&format!("{QUEUE}/delete?must_exist=true&key=a"), &Value::Null)
        .await
        .problem("queue-not-found");
    assert_eq!(service.get("/v1/queues").await.ok()["items"], json!([]));
    service.call("PUT", QUEUE, &json!({})).await.ok();
    for (call, body) in &calls[..5] {
        service.post(&format!("{QUEUE}/{call}?must_exist=true"), body).await.ok();
    }
}

#[tokio::test]
async fn without_auto_create_only_put_creates() {
    let service = Service::with(|settings| settings.queues.auto_create = false).await;
    for call in ["add", "update", "delete", "replace", "deltas", "resync", "seed", "pop"] {
        let body = if call == "resync" || call == "pop" { Value::Null } else { json!([]) };
        service.post(&format!("{QUEUE}/{call}"), &body).await.problem("queue-not-found");
    }
    let missed = service.post(&format!("{QUEUE}/pop"), &settling("x-1", "ack")).await;
    assert_eq!(missed.problem("queue-not-found")["settled"], json!([]));
    assert_eq!(service.call("PUT", QUEUE, &json!({})).await.status, 201);
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
}

#[tokio::test]
async fn queues_are_bounded() {
    let service = Service::with(|settings| settings.queues.max_queues = 1).await;
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    assert_eq!(service.post("/v1/queues/r/add", &object("k")).await.problem("queue-full")["limit"], 1);
    service.call("PUT", "/v1/queues/r", &json!({})).await.problem("queue-full");
    service.call("DELETE", QUEUE, &Value::Null).await;
    assert_eq!(service.call("PUT", "/v1/queues/r", &json!({})).await.status, 201);
}

#[tokio::test]
async fn a_pop_creates_no_queue() {
    let service = Service::start().await;
    let pop = format!("{QUEUE}/pop?wait=30s");
    let refused = service.post(&pop, &settling("x-1", "ack")).await.problem("queue-not-found");
    assert_eq!(refused["settled"], json!([]), "there is no lease to settle");
    service.get(QUEUE).await.problem("queue-not-found");
    service.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    assert_eq!(keys(&service.post(&pop, &Value::Null).await.ok()), ["k"]);
}

#[tokio::test]
async fn a_second_close_ends_a_drain_that_waits() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let held = take(&service).await;
    // Without the second close the drain would wait longer than the test.
    let mut drain = sent(&service, "POST", &format!("{QUEUE}/close?drain=true&wait=55s")).await;
    within(async { while service.get(QUEUE).await.ok()["status"]["closed"] != true {} }).await;
    service.post(&format!("{QUEUE}/close"), &Value::Null).await.ok();
    let ended = drain.reply().await.ok();
    assert_eq!((&ended["drained"], &ended["status"]["leased"]), (&json!(false), &json!(1)));
    // The queue stays closed, and the held key is drained as before.
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_id": held})).await.ok();
    assert_eq!(service.get(&format!("{QUEUE}/status")).await.ok()["drained"], true);
}

#[tokio::test]
async fn durations_of_go_are_accepted_in_settings_queries_and_bodies() {
    let service = Service::start().await;
    let config = json!({
        "lease": "1m30.5s",
        "resync_period": "1h0m0s",
        "retention": {"age": "168h0m0s"},
        "rate_limiter": {"item_exponential": {"base": "1.5µs", "max": "16m40s"}, "max_wait": "1000ms"},
    });
    let created = service.call("PUT", QUEUE, &config).await;
    assert_eq!((created.status, &created.body["settings"]["lease"]), (201, &json!("90500ms")));
    let limiter = &created.body["settings"]["rate_limiter"]["item_exponential"];
    assert_eq!(limiter, &json!({"base": "1us", "max": "1000s"}), "rounded down to whole microseconds");
    service.post(&format!("{QUEUE}/add?delay=100ns"), &object("k")).await.ok();
    let popped =
        service.post(&format!("{QUEUE}/pop?wait=1.5s&lease_duration=1h0m5s"), &Value::Null).await.ok();
    let id = lease(&popped, 0);
    let extend = json!({"lease_ids": [id], "lease_duration": "1m0s"});
    service.post(&format!("{QUEUE}/extend"), &extend).await.ok();
    service.post(&format!("{QUEUE}/nack"), &json!({"lease_ids": [id], "delay": "2h45m30.5s"})).await.ok();
    let delta = json!({"type": "Added", "object": {"key": "l"}, "delay": "250µs"});
    service.post(&format!("{QUEUE}/deltas"), &delta).await.ok();
    service.get(&format!("{QUEUE}/synced?wait=100%C2%B5s")).await.ok();
    service.post(&format!("{QUEUE}/close?drain=true&wait=1ms500us"), &Value::Null).await.ok();
}

#[tokio::test]
async fn a_full_key_of_mode_events_is_a_problem_that_names_the_limit() {
    let service = Service::start().await;
    service.call("PUT", "/v1/queues/e", &json!({"mode": "events", "max_deltas_per_key": 2})).await;
    let objects = json!([{"key": "a", "v": 1}, {"key": "a", "v": 2}, {"key": "b"}]);
    let added = service.post("/v1/queues/e/add", &objects).await.ok();
    let list = json!([{"key": "b"}, {"key": "a", "v": 3}]);
    for (call, body, index) in [
        ("update", json!({"key": "a", "v": 3}), 0),
        ("delete?key=a", Value::Null, 0),
        ("deltas", json!([{"type": "Deleted", "key": "b"}, {"type": "Deleted", "key": "a"}]), 1),
        ("replace", list, 1),
    ] {
        let refused = service.post(&format!("/v1/queues/e/{call}"), &body).await;
        assert_eq!((refused.status, refused.header("retry-after").is_some()), (429, true), "{call}");
        let problem = refused.problem("key-full");
        let named = [&problem["field"], &problem["limit"], &problem["key"], &problem["index"]];
        assert_eq!(named, [&json!("max_deltas_per_key"), &json!(2), &json!("a"), &json!(index)], "{call}");
    }
    let status = service.get("/v1/queues/e/status").await.ok();
    assert_eq!(status["resource_version"], added["resource_version"], "nothing was applied: {status}");
}
