//! What a client needs that follows client-go's controllers: Done without Forget, closing, failures.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease, object, objects, settling, waiters};
use crate::harness::{Service, said};

async fn pop(service: &Service, query: &str, body: &Value) -> Value {
    service.post(&format!("{QUEUE}/pop?{query}"), body).await.ok()
}

#[tokio::test]
async fn done_is_refused_in_other_modes() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let held = lease(&pop(&service, "", &Value::Null).await, 0);
    for (call, body) in [
        ("done", json!({"lease_ids": [held]})),
        ("settle", settling(&held, "done")),
        ("pop", settling(&held, "done")),
    ] {
        let refused = service.post(&format!("{QUEUE}/{call}"), &body).await.problem("wrong-mode");
        assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("done")), "{refused}");
    }
    assert_eq!(service.get("/v1/queues/other").await.status, 404);
    service.post("/v1/queues/other/pop", &settling(&held, "done")).await.problem("queue-not-found");
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [held]})).await.ok();
}

#[tokio::test]
async fn a_pop_that_waited_says_that_the_queue_was_closed_meanwhile() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let held = lease(&pop(&service, "", &Value::Null).await, 0);
    let mut waits = service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &Value::Null).await;
    waiters(&service, 1).await;
    service.post(&format!("{QUEUE}/close"), &Value::Null).await.ok();
    service.post(&format!("{QUEUE}/release"), &json!({"lease_ids": [held]})).await.ok();
    let popped = waits.reply().await.ok();
    assert_eq!((&popped["closed"], keys(&popped)), (&json!(true), vec!["a"]));
}

#[tokio::test]
async fn a_queue_closed_at_once_ends_waiting_pops_while_leases_are_out() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let held = lease(&pop(&service, "", &Value::Null).await, 0);
    let mut waits = service.send("POST", &format!("{QUEUE}/pop?wait=30s"), &Value::Null).await;
    waiters(&service, 1).await;
    let closed = service.post(&format!("{QUEUE}/close?wait_for=none"), &Value::Null).await.ok();
    assert_eq!((&closed["status"]["closed"], &closed["status"]["drained"]), (&json!(true), &json!(false)));
    waits.reply().await.problem("queue-closed");
    service.post(&format!("{QUEUE}/pop"), &Value::Null).await.problem("queue-closed");
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [held]})).await.ok();
    assert_eq!(service.get(&format!("{QUEUE}/status")).await.ok()["drained"], true);
    service.post(&format!("{QUEUE}/close?wait_for=all"), &Value::Null).await.problem("invalid-parameter");
}

#[tokio::test]
async fn a_list_has_one_shape_and_shows_the_wanted_fields() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let all = service.get(&format!("{QUEUE}/items")).await.ok();
    let one = service.get(&format!("{QUEUE}/items?key=a")).await.ok();
    assert_eq!(one["items"], json!([all["items"][0]]));
    assert_eq!(one["continue"], Value::Null);
    assert_eq!(one["resource_version"], all["resource_version"]);
    assert_eq!(service.get(&format!("{QUEUE}/items?key=absent")).await.ok()["items"], json!([]));
    service.get(&format!("{QUEUE}/items/absent")).await.problem("key-not-found");
    for list in ["items", "latest", "known"] {
        let both = service.get(&format!("{QUEUE}/{list}?key=a&continue=00")).await;
        assert_eq!(both.problem("invalid-parameter")["parameter"], "continue", "{list}");
    }
    let known = service.get(&format!("{QUEUE}/known?key=a")).await.ok();
    assert_eq!((&known["items"], &known["continue"]), (&json!([]), &Value::Null));

    let names = service.get(&format!("{QUEUE}/items?fields=key")).await.ok();
    assert_eq!(names["items"], json!([{"key": "a"}, {"key": "b"}]));
    let one = service.get(&format!("{QUEUE}/items?fields=failures,key&key=b")).await.ok();
    assert_eq!(one["items"], json!([{"key": "b", "failures": 0}]));
    let refused = service.get(&format!("{QUEUE}/items?fields=kex")).await.problem("invalid-parameter");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("leased_deltas")), "{refused}");
    let mut status = service.get(&format!("{QUEUE}/status")).await.ok();
    let mut whole = service.get(QUEUE).await.ok()["status"].take();
    for document in [&mut status, &mut whole] {
        document["oldest_ready_age_ms"].take();
        document["oldest_unacknowledged_age_ms"].take();
    }
    assert_eq!((&status, &status["ready"]), (&whole, &json!(2)));
    service.get("/v1/queues/absent/status").await.problem("queue-not-found");
}

#[tokio::test]
async fn every_json_reply_ends_with_a_line_break() {
    let service = Service::start().await;
    for (method, path) in [
        ("POST", format!("{QUEUE}/add?key=a")),
        ("POST", format!("{QUEUE}/pop")),
        ("POST", format!("{QUEUE}/settle")),
        ("GET", QUEUE.to_owned()),
        ("GET", format!("{QUEUE}/status")),
        ("GET", format!("{QUEUE}/items")),
        ("GET", format!("{QUEUE}/items/a")),
        ("GET", format!("{QUEUE}/synced")),
        ("GET", "/v1/queues".to_owned()),
        ("GET", "/v1/info".to_owned()),
        ("GET", "/openapi.json".to_owned()),
        ("GET", "/nowhere".to_owned()),
        ("POST", QUEUE.to_owned()),
        ("PATCH", QUEUE.to_owned()),
        ("GET", format!("{QUEUE}/settings")),
    ] {
        let body = if path.ends_with("settle") { json!({"settle": []}) } else { json!({}) };
        let reply = service.call(method, &path, if method == "POST" { &body } else { &Value::Null }).await;
        assert!(reply.text.ends_with("}\n"), "{method} {path}: {:?}", reply.text);
        assert!(!reply.text.ends_with("\n\n"), "{method} {path}: {:?}", reply.text);
    }
}

#[tokio::test]
async fn codes_say_what_is_wrong() {
    let service = Service::with(|settings| settings.queues.max_batch = 2).await;
    let many = service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await;
    assert_eq!(many.problem("batch-too-large")["limit"], 2);
    service.call("PUT", QUEUE, &json!({"known_objects": false})).await.ok();
    let seed = json!({"object": object("a")});
    service.post(&format!("{QUEUE}/seed"), &seed).await.problem("no-known-objects");
    service.call("PATCH", QUEUE, &json!({"mode": "keys"})).await.ok();
    service.post(&format!("{QUEUE}/seed"), &seed).await.problem("wrong-mode");
}

#[tokio::test]
async fn problems_say_the_next_step() {
    let service = Service::start().await;
    let refused = service.post(&format!("{QUEUE}/add"), &json!({"name": "a"})).await.problem("no-key");
    assert!(
        refused["hint"].as_str().is_some_and(|hint| hint.contains("PUT {\"key\":[\"/sku\"]}")),
        "{refused}"
    );
    service.call("PUT", QUEUE, &json!({"key": "/name"})).await.ok();
    assert_eq!(service.get(QUEUE).await.ok()["settings"]["key"], json!(["/name"]));
    service.post(&format!("{QUEUE}/add"), &json!({"name": "a"})).await.ok();
    service.call("PUT", "/v1/queues/other", &json!({"key": "name"})).await.problem("invalid-config");

    let refused = service.call("POST", QUEUE, &Value::Null).await;
    assert_eq!(refused.header("allow"), Some("GET,HEAD,PUT,PATCH,DELETE"));
    let refused = refused.problem("method-not-allowed");
    assert_eq!(refused["detail"], "the path takes GET, HEAD, PUT, PATCH, DELETE, not POST");
    for (path, nearest) in [
        ("/v1/queue/q", "/v1/queues/q"),
        ("/v1/queues/q/poop", "/v1/queues/q/pop"),
        ("/queues/q/add", "/v1/queues/q/add"),
        ("/v1/queues/q/item/a/b", "/v1/queues/q/items/a/b"),
        ("/helthz/", "/openapi.json lists"),
    ] {
        let refused = service.get(path).await.problem("not-found");
        assert!(said(&refused).contains(nearest), "{path}: {refused}");
    }

    for (body, hint) in
        [("{\"key\":1}\n{\"key\":2}\n", "application/x-ndjson"), ("key=1&price=2", "looks like a form")]
    {
        for call in ["add", "replace"] {
            let mut client = service.client().await;
            client.send_text("POST", &format!("{QUEUE}/{call}"), &[], body).await;
            let refused = client.reply().await.problem("invalid-json");
            assert!(said(&refused).contains(hint), "{call} {body}: {refused}");
        }
    }
}
