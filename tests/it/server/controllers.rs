//! What a client needs that follows client-go's controllers: Done without Forget, closing, failures.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease, object, objects, settled, settling, waiters};
use crate::harness::{Service, said};

/// The default length of a lease.
const LEASE_MS: i64 = 30_000;
/// How much later than its due time an event may happen on a busy machine.
const SLOW_MS: i64 = 20_000;

/// A queue of mode keys with a backoff of 50 ms, 100 ms, 200 ms.
async fn workqueue() -> Service {
    let service = Service::start().await;
    let limiter = json!({"item_exponential": {"base": "50ms", "max": "10s"}, "jitter": 0});
    service.call("PUT", QUEUE, &json!({"mode": "keys", "rate_limiter": limiter})).await.ok();
    service.post(&format!("{QUEUE}/add?key=a"), &Value::Null).await.ok();
    service
}

async fn pop(service: &Service, query: &str, body: &Value) -> Value {
    service.post(&format!("{QUEUE}/pop?{query}"), body).await.ok()
}

/// Milliseconds between two instants of replies.
fn between(from: &Value, to: &Value) -> i64 {
    let at = |text: &Value| {
        let text = text.as_str().expect("an instant");
        let (_, time) = text.trim_end_matches('Z').split_once('T').expect("a time");
        let numbers: Vec<i64> =
            time.split([':', '.']).map(|number| number.parse().expect("a number")).collect();
        ((numbers[0] * 60 + numbers[1]) * 60 + numbers[2]) * 1_000 + numbers[3]
    };
    (at(to) - at(from)).rem_euclid(86_400_000)
}

/// The standard loop of a controller whose work always fails: `AddRateLimited`, then `Done`. The waits are taken from the
/// queue's own times, so a slow machine does not change them.
#[tokio::test]
async fn the_loop_of_a_controller_backs_off_as_in_client_go() {
    let service = workqueue().await;
    let mut popped = pop(&service, "", &Value::Null).await;
    for (failures, wait) in [(1, 50), (2, 100), (3, 200), (4, 400)] {
        let added = service.post(&format!("{QUEUE}/add?key=a&rate_limited=true"), &Value::Null).await.ok();
        let failed = &added["keys"][0];
        let since_lease = between(&popped["items"][0]["lease"]["expires_at"], &failed["due_at"]) + LEASE_MS;
        assert!(
            (wait..wait + SLOW_MS).contains(&(since_lease % 86_400_000)),
            "{since_lease} ms after the lease"
        );
        assert_eq!((&failed["key"], &failed["failures"]), (&json!("a"), &json!(failures)));
        assert_eq!(failed["parked"], false);
        let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
        assert_eq!(item["due_at"], failed["due_at"]);
        popped = pop(&service, "wait=30s", &settling(&lease(&popped, 0), "done")).await;
        assert_eq!(popped["settled"][0]["result"], "ok");
        assert_eq!((keys(&popped), &popped["items"][0]["failures"]), (vec!["a"], &json!(failures)));
        // The wait ended when it was due, and not before: the lease began then.
        let leased = service.get(&format!("{QUEUE}/items?state=leased&key=a")).await.ok();
        let expires = &leased["items"][0]["lease"]["expires_at"];
        let waited = between(&failed["due_at"], expires) - LEASE_MS;
        assert!((0..SLOW_MS).contains(&waited), "{waited} ms after the due time");
    }
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [lease(&popped, 0)]})).await.ok();
    let again = service.post(&format!("{QUEUE}/add?key=a&rate_limited=true"), &Value::Null).await.ok();
    assert_eq!(again["keys"][0]["failures"], 1, "an ack forgets");
}

#[tokio::test]
async fn done_with_a_delay_is_add_after_and_done() {
    let service = workqueue().await;
    let held = lease(&pop(&service, "", &Value::Null).await, 0);
    let done = json!({"lease_ids": [held], "delay": "1h"});
    let reply = service.post(&format!("{QUEUE}/done"), &done).await.ok();
    assert_eq!(reply["settled"], settled(&held, "done", "ok"));
    let listed = service.get(&format!("{QUEUE}/items?state=delayed&fields=key,failures,state")).await.ok();
    assert_eq!(listed["items"], json!([{"key": "a", "state": "delayed", "failures": 0}]));
    let again = service.post(&format!("{QUEUE}/done"), &json!({"lease_ids": [held]})).await.ok();
    assert_eq!(again["settled"][0]["result"], "repeated");
    let other = service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [held]})).await;
    assert_eq!(other.body["settled"][0]["outcome"], "done");
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
async fn a_pop_says_that_the_queue_is_closed_or_paused() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let popped = pop(&service, "", &Value::Null).await;
    assert_eq!((&popped["closed"], &popped["paused"]), (&json!(false), &json!(false)));
    service.post(&format!("{QUEUE}/pause"), &Value::Null).await.ok();
    let paused = pop(&service, "", &Value::Null).await;
    assert_eq!((&paused["paused"], keys(&paused)), (&json!(true), vec![]));
    service.post(&format!("{QUEUE}/resume"), &Value::Null).await.ok();
    service.post(&format!("{QUEUE}/close"), &Value::Null).await.ok();
    let closed = pop(&service, "", &Value::Null).await;
    assert_eq!((&closed["closed"], keys(&closed)), (&json!(true), vec!["b"]));
    assert_eq!(closed["paused"], false);
    let leases_out = pop(&service, "wait=1ms", &Value::Null).await;
    assert_eq!((&leases_out["closed"], keys(&leases_out)), (&json!(true), vec![]), "leases are out");
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
async fn a_nack_and_a_reject_report_what_becomes_of_the_key() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"max_failures": 2})).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    let popped = pop(&service, "max=2", &Value::Null).await;
    let nack = json!({"lease_ids": [lease(&popped, 0)], "delay": "1h"});
    let nacked = service.post(&format!("{QUEUE}/nack"), &nack).await.ok();
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!(nacked["settled"][0]["due_at"], item["due_at"]);
    assert_eq!(
        (&nacked["settled"][0]["failures"], &nacked["settled"][0]["parked"]),
        (&json!(1), &json!(false))
    );
    let again = service.post(&format!("{QUEUE}/nack"), &nack).await.ok();
    assert_eq!(again["settled"], settled(&lease(&popped, 0), "nack", "repeated"));
    let rejected = pop(&service, "", &settling(&lease(&popped, 1), "reject")).await;
    let row = &rejected["settled"][0];
    assert_eq!([&row["failures"], &row["due_at"], &row["parked"]], [&json!(0), &Value::Null, &json!(true)]);
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
async fn durations_are_taken_as_go_writes_them() {
    let service = Service::start().await;
    for text in ["1m30s", "1.5s", "0.5h", "1h0m0s", "2500ms"] {
        let put = service.call("PUT", QUEUE, &json!({"lease": text})).await;
        assert!(put.status < 300, "{text}: {}", put.text);
    }
    assert_eq!(service.get(QUEUE).await.ok()["settings"]["lease"], "2500ms");
    pop(&service, "wait=0.001s&lease_duration=1m30s", &Value::Null).await;
    service.post(&format!("{QUEUE}/pop?wait=1,5s"), &Value::Null).await.problem("invalid-parameter");
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
        refused["hint"].as_str().is_some_and(|hint| hint.contains("PATCH {\"key\":[\"/name\"]}")),
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
