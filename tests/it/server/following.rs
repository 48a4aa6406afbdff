//! Followers: queues that take their objects from another queue.

use serde_json::{Value, json};

use crate::harness::{Service, said, within};

const PARENT: &str = "/v1/queues/prices";
const FOLLOWER: &str = "/v1/queues/search";

/// Creates the followed queue and a follower of it.
async fn begin(service: &Service, follow: Value) {
    put(service, PARENT, json!({})).await;
    put(service, FOLLOWER, json!({ "follow": follow })).await;
}

async fn put(service: &Service, queue: &str, settings: Value) -> Value {
    service.call("PUT", queue, &settings).await.ok()
}

async fn patch(service: &Service, queue: &str, settings: Value) -> Value {
    service.call("PATCH", queue, &settings).await.ok()
}

async fn post(service: &Service, path: &str, body: Value) -> Value {
    service.post(path, &body).await.ok()
}

/// Waits until the follower has the changes of the followed queue up to this version.
async fn reaches(service: &Service, follower: &str, version: &Value) -> Value {
    within(async {
        loop {
            let status = service.get(follower).await.ok()["status"].take();
            let follow = &status["follow"];
            if follow["state"] == "following" && follow["resource_version"].as_u64() >= version.as_u64() {
                return status;
            }
        }
    })
    .await
}

/// Delivers everything that waits, as `key:Type,Type`, and acknowledges it.
async fn work(service: &Service, queue: &str) -> Vec<String> {
    let popped = post(service, &format!("{queue}/pop?max=100"), json!({})).await;
    let items = popped["items"].as_array().expect("items");
    let leases: Vec<&Value> = items.iter().map(|item| &item["lease"]["id"]).collect();
    if !leases.is_empty() {
        post(service, &format!("{queue}/ack"), json!({ "lease_ids": leases })).await;
    }
    let text = |item: &Value| {
        let deltas = item["deltas"].as_array().expect("deltas");
        let types: Vec<_> = deltas.iter().map(|delta| delta["type"].as_str().expect("a type")).collect();
        format!("{}:{}", item["key"].as_str().expect("a key"), types.join(","))
    };
    items.iter().map(text).collect()
}

#[tokio::test]
async fn a_follower_gets_the_list_and_then_each_change() {
    let service = Service::start().await;
    let added = post(&service, &format!("{PARENT}/add"), json!([{"key": "a", "v": 1}, {"key": "b"}])).await;
    begin(&service, json!({"queue": "prices"})).await;
    let status = reaches(&service, FOLLOWER, &added["resource_version"]).await;
    assert_eq!((&status["has_synced"], &status["initial_remaining"]), (&json!(false), &json!(2)));
    let popped = post(&service, &format!("{FOLLOWER}/pop?max=100"), json!({})).await;
    for item in popped["items"].as_array().expect("items") {
        assert_eq!(item["is_in_initial_list"], true, "{item}");
        assert_eq!(item["deltas"][0]["type"], "Replaced", "{item}");
        let lease = json!({ "lease_ids": [item["lease"]["id"]] });
        post(&service, &format!("{FOLLOWER}/ack"), lease).await;
    }
    assert_eq!(service.get(&format!("{FOLLOWER}/synced")).await.ok()["synced"], true);

    post(&service, &format!("{PARENT}/update?source=erp"), json!({"key": "a", "v": 2})).await;
    post(&service, &format!("{PARENT}/add"), json!({"key": "c"})).await;
    let deleted = post(&service, &format!("{PARENT}/delete?key=b"), Value::Null).await;
    reaches(&service, FOLLOWER, &deleted["resource_version"]).await;
    assert_eq!(work(&service, FOLLOWER).await, ["a:Updated", "c:Added", "b:Deleted"]);
    let known = service.get(&format!("{FOLLOWER}/known/a")).await.ok();
    assert_eq!((&known["object"]["v"], &known["source"]), (&json!(2), &json!("erp")));
    // The queue that is followed has its own consumers, which have seen nothing yet.
    assert_eq!(work(&service, PARENT).await, ["a:Added,Updated", "b:Added,Deleted", "c:Added"]);
}

#[tokio::test]
async fn a_chain_sees_a_key_after_the_worker_of_the_stage_before() {
    let service = Service::start().await;
    begin(&service, json!({"queue": "prices", "view": "known", "prefix": "a"})).await;
    put(&service, "/v1/queues/mail", json!({"follow": {"queue": "search", "view": "known"}})).await;
    let added = post(&service, &format!("{PARENT}/add"), json!([{"key": "a1"}, {"key": "b1"}])).await;
    assert_eq!(work(&service, FOLLOWER).await, [""; 0], "no worker has acknowledged the key");
    work(&service, PARENT).await;
    reaches(&service, FOLLOWER, &added["resource_version"]).await;
    let waiting = format!("{FOLLOWER}/pop?wait=20s");
    let popped = post(&service, &waiting, json!({})).await;
    assert_eq!(popped["items"][0]["key"], "a1");
    assert_eq!(popped["items"][0]["deltas"][0]["type"], "Added", "the list was empty");
    assert_eq!(work(&service, "/v1/queues/mail").await, [""; 0]);
    let lease = json!({ "lease_ids": [popped["items"][0]["lease"]["id"]] });
    post(&service, &format!("{FOLLOWER}/ack"), lease).await;
    let popped = post(&service, "/v1/queues/mail/pop?wait=20s", json!({})).await;
    assert_eq!(popped["items"][0]["key"], "a1");
}

#[tokio::test]
async fn a_follower_takes_no_calls_of_producers_until_it_is_detached() {
    let service = Service::start().await;
    begin(&service, json!({"queue": "prices"})).await;
    let object = json!({"key": "a"});
    for call in ["add", "update", "delete?key=a", "replace", "replace?dry_run=true", "seed", "deltas"] {
        let body = match call {
            "replace" | "replace?dry_run=true" => json!([object]),
            "deltas" => json!([{"type": "Added", "object": object}]),
            "seed" => json!([{"object": object}]),
            "delete?key=a" => Value::Null,
            _ => object.clone(),
        };
        let refused = service.post(&format!("{FOLLOWER}/{call}"), &body).await;
        assert_eq!(refused.problem("follower")["follows"], "prices", "{call}");
    }
    post(&service, &format!("{FOLLOWER}/resync"), Value::Null).await;
    patch(&service, FOLLOWER, json!({ "follow": null })).await;
    post(&service, &format!("{FOLLOWER}/add"), object).await;
    assert_eq!(service.get(FOLLOWER).await.ok()["settings"]["follow"], Value::Null);
    assert_eq!(service.get(PARENT).await.ok()["status"]["followers"], json!([]));
}

#[tokio::test]
async fn a_followed_queue_is_deleted_only_by_force() {
    let service = Service::start().await;
    begin(&service, json!({"queue": "prices"})).await;
    let added = post(&service, &format!("{PARENT}/add"), json!({"key": "a"})).await;
    reaches(&service, FOLLOWER, &added["resource_version"]).await;
    assert_eq!(service.get(PARENT).await.ok()["status"]["followers"], json!(["search"]));
    let refused = service.call("DELETE", PARENT, &Value::Null).await.problem("followed");
    assert_eq!(refused["followers"], json!(["search"]));
    assert_eq!(service.call("DELETE", &format!("{PARENT}?force=true"), &Value::Null).await.status, 204);
    let follower = service.get(FOLLOWER).await.ok();
    assert_eq!(follower["settings"]["follow"], Value::Null);
    assert_eq!(follower["status"]["ready"], 1, "its keys stay");
}

#[tokio::test]
async fn impossible_followers_are_refused() {
    let service = Service::start().await;
    begin(&service, json!({"queue": "prices", "view": "known"})).await;
    put(&service, "/v1/queues/keys", json!({"mode": "keys"})).await;
    put(&service, "/v1/queues/forgetful", json!({"known_objects": false})).await;
    let cases = [
        ("third", json!({"follow": {"queue": "nowhere"}}), "there is no queue \"nowhere\""),
        ("prices", json!({"follow": {"queue": "search"}}), "prices follows search follows prices"),
        ("prices", json!({"follow": {"queue": "prices"}}), "prices follows prices"),
        ("third", json!({"follow": {"queue": "keys"}}), "\"keys\" can't be followed: its mode is keys"),
        ("third", json!({"follow": {"queue": "forgetful", "view": "known"}}), "known_objects is false"),
        ("third", json!({"follow": {"queue": "forgetful"}}), "known_objects is false"),
        ("third", json!({"mode": "keys", "follow": {"queue": "prices"}}), "use mode latest"),
        ("third", json!({"known_objects": false, "follow": {"queue": "prices"}}), "needs known_objects"),
        (
            "third",
            json!({"prune": ["/x"], "follow": {"queue": "prices"}}),
            "set schema, prune and version of",
        ),
        (
            "third",
            json!({"version": "/v", "follow": {"queue": "prices"}}),
            "set schema, prune and version of",
        ),
        (
            "third",
            json!({"follow": {"queue": "prices", "max_waiting": 0}}),
            "integer `0`, expected a whole number from 1 to 1000000000",
        ),
        ("third", json!({"follow": {"queue": "Prices"}}), "a queue name is made of"),
        ("third", json!({"follow": "prices"}), "it is like {\"queue\":\"prices\"}"),
    ];
    for (queue, settings, wanted) in cases {
        let reply = service.call("PUT", &format!("/v1/queues/{queue}"), &settings).await;
        let problem = reply.problem("invalid-config");
        let said = said(&problem);
        assert!(said.contains(wanted) && said.starts_with("follow"), "{settings}: {said}");
    }
    assert_eq!(service.get("/v1/queues/third").await.status, 404, "a refused PUT creates no queue");
}

#[tokio::test]
async fn a_follower_takes_no_more_than_max_waiting_keys() {
    let service = Service::start().await;
    begin(&service, json!({"queue": "prices", "max_waiting": 2})).await;
    let objects: Vec<Value> = (0..10).map(|n| json!({"key": format!("k{n}")})).collect();
    post(&service, &format!("{PARENT}/add"), json!(objects)).await;
    let mut got = Vec::new();
    within(async {
        while got.len() < 10 {
            let status = service.get(FOLLOWER).await.ok()["status"].take();
            let ready = status["ready"].as_u64().expect("a number");
            assert!(ready <= 2, "{status}");
            if ready == 2 && got.len() < 8 {
                assert_eq!(blocked(&service).await["state"], "blocked");
            }
            got.extend(work(&service, FOLLOWER).await);
        }
    })
    .await;
    got.sort();
    assert_eq!(
        got,
        objects
            .iter()
            .map(|object| format!("{}:Added", object["key"].as_str().expect("a key")))
            .collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_full_follower_that_has_everything_is_not_blocked() {
    let service = Service::start().await;
    begin(&service, json!({"queue": "prices", "prefix": "k", "max_waiting": 2})).await;
    let add = format!("{PARENT}/add");
    post(&service, &add, json!([{"key": "k1"}, {"key": "k2"}])).await;
    let status = async || service.get(FOLLOWER).await.ok()["status"].take();
    within(async {
        while status().await["ready"] != 2 {}
        // The follower reads this change, and it concerns another one.
        let version = post(&service, &add, json!([{"key": "other"}])).await["resource_version"].as_u64();
        loop {
            let found = status().await["follow"].take();
            assert_ne!(found["state"], "blocked", "{found}");
            if found["resource_version"].as_u64() >= version && found["lag_ms"] == 0 {
                break;
            }
        }
    })
    .await;
    post(&service, &add, json!([{"key": "k3"}])).await;
    within(async {
        loop {
            let found = blocked(&service).await;
            assert_eq!(found["lag_events"], 1);
            if found["lag_ms"] != 0 {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_full_follower_reads_past_more_changes_of_other_keys_than_a_page_examines() {
    let service = Service::start().await;
    let add = format!("{PARENT}/add");
    let mut version = post(&service, &add, json!({"key": "k1"})).await["resource_version"].take();
    for call in 0..5 {
        let keys = call * 10_000..(call + 1) * 10_000;
        let others: Vec<Value> = keys.map(|number| json!({ "key": number.to_string() })).collect();
        version = post(&service, &add, json!(others)).await["resource_version"].take();
    }
    begin(&service, json!({"queue": "prices", "prefix": "k", "max_waiting": 1})).await;
    reaches(&service, FOLLOWER, &version).await;
    // The next change of its own waits for room.
    let own = post(&service, &add, json!({"key": "k2"})).await["resource_version"].as_u64();
    assert_eq!(blocked(&service).await["resource_version"].as_u64().map(|read| read + 1), own);
}

/// Waits until the follower takes nothing more.
async fn blocked(service: &Service) -> Value {
    within(async {
        loop {
            let follow = service.get(FOLLOWER).await.ok()["status"]["follow"].take();
            if follow["state"] == "blocked" {
                return follow;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_queue_with_keys_of_its_own_is_brought_in_line() {
    let service = Service::start().await;
    for queue in [PARENT, FOLLOWER] {
        let mine = format!("only-{}", &queue[11..]);
        post(
            &service,
            &format!("{queue}/add"),
            json!([{"key": "same"}, {"key": "changed", "in": queue}, {"key": mine}]),
        )
        .await;
        work(&service, queue).await;
    }
    put(&service, FOLLOWER, json!({"follow": {"queue": "prices"}})).await;
    let version = service.get(PARENT).await.ok()["status"]["resource_version"].take();
    reaches(&service, FOLLOWER, &version).await;
    let mut got = work(&service, FOLLOWER).await;
    got.sort();
    assert_eq!(got, ["changed:Replaced", "only-prices:Replaced", "only-search:Deleted"]);
}

#[tokio::test]
async fn a_queue_has_at_most_1000_followers() {
    let service = Service::start().await;
    put(&service, PARENT, json!({})).await;
    let mut client = service.client().await;
    let follow = json!({"follow": {"queue": "prices"}});
    for number in 0..1_000 {
        let reply = client.call("PUT", &format!("/v1/queues/f{number}"), &follow).await;
        assert_eq!(reply.status, 201, "{number}");
    }
    let refused = client.call("PUT", "/v1/queues/one-more", &follow).await.problem("invalid-config");
    assert_eq!(refused["limit"], 1_000);
    // A change of another setting is not a new follower.
    assert_eq!(client.call("PATCH", "/v1/queues/f0", &json!({"lease": "1m"})).await.status, 200);
}

#[tokio::test]
async fn a_full_follower_deletes_before_it_takes_the_list() {
    let service = Service::start().await;
    post(&service, &format!("{FOLLOWER}/add"), json!([{"key": "a"}, {"key": "b"}])).await;
    work(&service, FOLLOWER).await;
    post(&service, &format!("{PARENT}/add"), json!([{"key": "c"}, {"key": "d"}])).await;
    put(&service, FOLLOWER, json!({"max_keys": 2, "follow": {"queue": "prices"}})).await;
    let got = within(async {
        let mut got = Vec::new();
        while got.len() < 4 {
            got.extend(work(&service, FOLLOWER).await);
        }
        got
    });
    assert_eq!(got.await, ["a:Deleted", "b:Deleted", "c:Replaced", "d:Replaced"]);
}

#[tokio::test]
async fn a_key_without_a_source_loses_its_source_in_the_follower() {
    let service = Service::start().await;
    post(&service, &format!("{PARENT}/add?source=erp"), json!({"key": "k"})).await;
    begin(&service, json!({"queue": "prices", "max_waiting": 1})).await;
    within(async { while work(&service, FOLLOWER).await.is_empty() {} }).await;
    assert_eq!(service.get(&format!("{FOLLOWER}/known/k")).await.ok()["source"], "erp");
    post(&service, &format!("{PARENT}/add"), json!({"key": "x"})).await;
    is_full(&service).await;
    post(&service, &format!("{PARENT}/delete?key=k"), Value::Null).await;
    work(&service, PARENT).await;
    post(&service, &format!("{PARENT}/add"), json!({"key": "k", "v": 2})).await;
    assert_eq!(work(&service, FOLLOWER).await, ["x:Added"]);
    is_full(&service).await;
    assert_eq!(work(&service, FOLLOWER).await, ["k:Updated"], "the follower has not seen the deletion");
    assert_eq!(service.get(&format!("{FOLLOWER}/known/k")).await.ok()["source"], Value::Null);
}

/// Waits until one key of the follower is ready, so that a follower with `max_waiting` 1 takes nothing more.
async fn is_full(service: &Service) {
    within(async { while service.get(FOLLOWER).await.ok()["status"]["ready"] != 1 {} }).await;
}

#[tokio::test]
async fn a_followed_queue_keeps_the_view_that_is_followed() {
    let service = Service::start().await;
    begin(&service, json!({"queue": "prices", "view": "known"})).await;
    for settings in [json!({"mode": "keys"}), json!({"known_objects": false})] {
        let refused = service.call("PATCH", PARENT, &settings).await.problem("followed");
        assert_eq!(refused["followers"], json!(["search"]), "{settings}");
    }
    patch(&service, PARENT, json!({"lease": "1m"})).await;
    patch(&service, FOLLOWER, json!({"lease": "1m"})).await;
}

#[tokio::test]
async fn a_full_follower_takes_the_rest_of_a_page_once_there_is_room() {
    let service = Service::start().await;
    put(&service, PARENT, json!({})).await;
    put(&service, FOLLOWER, json!({"max_keys": 2, "follow": {"queue": "prices"}})).await;
    // One commit, so the follower reads the three rows in one page.
    let added =
        post(&service, &format!("{PARENT}/add"), json!([{"key": "a"}, {"key": "b"}, {"key": "c"}])).await;
    let follow = blocked(&service).await;
    assert!(follow["resource_version"].as_u64() < added["resource_version"].as_u64(), "{follow}");
    patch(&service, FOLLOWER, json!({"max_keys": 3})).await;
    reaches(&service, FOLLOWER, &added["resource_version"]).await;
    assert_eq!(work(&service, FOLLOWER).await, ["a:Added", "b:Added", "c:Added"]);
}
