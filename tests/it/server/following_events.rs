//! Followers in mode `events`, which get each event of the followed queue.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Service, within};

const PARENT: &str = "/v1/queues/prices";
const FOLLOWER: &str = "/v1/queues/mail";

/// A service with a journal, which is in the folder.
async fn start() -> (Service, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let service = Service::with(|settings| {
        settings.storage.in_memory = false;
        settings.storage.data_dir = path;
    });
    (service.await, folder)
}

async fn put(service: &Service, queue: &str, settings: Value) {
    service.call("PUT", queue, &settings).await.ok();
}

async fn post(service: &Service, path: &str, body: Value) -> Value {
    service.post(path, &body).await.ok()
}

/// Begins to follow, and waits for the end of the list.
async fn follow(service: &Service) {
    put(service, FOLLOWER, json!({"mode": "events", "follow": {"queue": "prices"}})).await;
    within(async { while state(service).await["state"] != "following" {} }).await;
}

async fn state(service: &Service) -> Value {
    service.get(FOLLOWER).await.ok()["status"]["follow"].take()
}

/// Waits until the follower has everything that the followed queue has.
async fn catch_up(service: &Service) {
    let newest = service.get(PARENT).await.ok()["status"]["resource_version"].as_u64();
    within(async { while state(service).await["resource_version"].as_u64() < newest {} }).await;
}

/// Delivers one delta after the other, as `key:Type:n`, and acknowledges each.
async fn drain(service: &Service, queue: &str) -> Vec<String> {
    let mut got = Vec::new();
    loop {
        let popped = post(service, &format!("{queue}/pop"), json!({})).await;
        let Some(item) = popped["items"].get(0) else { return got };
        for delta in item["deltas"].as_array().expect("deltas") {
            let (key, kind) = (item["key"].as_str().expect("a key"), delta["type"].as_str().expect("a type"));
            got.push(format!("{key}:{kind}:{}", delta["object"]["n"]));
        }
        post(service, &format!("{queue}/ack"), json!({"lease_ids": [item["lease"]["id"]]})).await;
    }
}

/// The changes of one key, in order: keys have no order among each other.
fn of(key: &str, got: &[String]) -> Vec<String> {
    let changes = got.iter().filter_map(|change| change.split_once(':').filter(|(this, _)| *this == key));
    changes.map(|(_, change)| change.to_owned()).collect()
}

#[tokio::test]
async fn a_follower_of_a_queue_in_mode_events_gets_the_same_events() {
    let (service, _folder) = start().await;
    put(&service, PARENT, json!({"mode": "events"})).await;
    follow(&service).await;
    for n in 0..10 {
        post(&service, &format!("{PARENT}/add"), json!({"key": "a", "n": n})).await;
    }
    let batch: Vec<_> = (0..10).map(|n| json!({"key": "b", "n": n})).collect();
    post(&service, &format!("{PARENT}/add"), json!(batch)).await;
    let deltas = json!([{"type": "Deleted", "key": "b"}, {"type": "Added", "object": {"key": "b", "n": 99}}]);
    post(&service, &format!("{PARENT}/deltas"), deltas).await;
    for _ in 0..2 {
        post(&service, &format!("{PARENT}/delete?key=absent"), Value::Null).await;
    }
    post(&service, &format!("{PARENT}/replace"), json!([{"key": "a", "n": 9}, {"key": "c", "n": 1}])).await;
    post(&service, &format!("{PARENT}/delete"), json!({"key": "c", "n": 2})).await;
    catch_up(&service).await;
    let (sent, got) = (drain(&service, PARENT).await, drain(&service, FOLLOWER).await);
    assert_eq!(got.len(), sent.len());
    for key in ["a", "b", "c", "absent"] {
        assert_eq!(of(key, &got), of(key, &sent));
    }
    assert_eq!(of("absent", &got), ["Deleted:null", "Deleted:null"]);
    assert_eq!(of("c", &got), ["Replaced:1", "Deleted:2"]);

    // Resync repeats objects, and is no event.
    post(&service, &format!("{PARENT}/resync"), Value::Null).await;
    catch_up(&service).await;
    assert_eq!(drain(&service, FOLLOWER).await, [""; 0]);
}

#[tokio::test]
async fn a_follower_gets_what_the_workers_of_the_followed_queue_do_not_see() {
    for mode in ["delta", "latest"] {
        let (service, _folder) = start().await;
        put(&service, PARENT, json!({"mode": mode})).await;
        follow(&service).await;
        for n in 0..3 {
            post(&service, &format!("{PARENT}/add"), json!({"key": "a", "n": n})).await;
        }
        post(&service, &format!("{PARENT}/add"), json!({"key": "gone", "n": 1})).await;
        post(&service, &format!("{PARENT}/delete?key=gone"), Value::Null).await;
        catch_up(&service).await;
        let got = drain(&service, FOLLOWER).await;
        assert_eq!(of("a", &got), ["Added:0", "Added:1", "Added:2"], "{mode}");
        assert_eq!(of("gone", &got), ["Added:1", "Deleted:1"], "{mode}");

        // What an operator drops: a key without a known object goes, a known object comes back.
        drain(&service, PARENT).await;
        post(&service, &format!("{PARENT}/update"), json!([{"key": "a", "n": 7}, {"key": "new", "n": 8}]))
            .await;
        post(&service, &format!("{PARENT}/purge"), json!({})).await;
        catch_up(&service).await;
        let got = drain(&service, FOLLOWER).await;
        assert_eq!(of("a", &got), ["Updated:7", "Updated:2"], "{mode}");
        assert_eq!(of("new", &got), ["Updated:8", "Deleted:8"], "{mode}");
    }
}

#[tokio::test]
async fn a_follower_begins_with_the_list_and_gets_later_changes_once() {
    let (service, _folder) = start().await;
    let keys: Vec<_> = (0..3_000).map(|n| json!({"key": format!("k{n}"), "n": 0})).collect();
    post(&service, &format!("{PARENT}/add"), json!(keys)).await;
    // The follower already has some keys. Those that the followed queue lacks are deleted.
    put(&service, FOLLOWER, json!({"mode": "events"})).await;
    post(&service, &format!("{FOLLOWER}/add"), json!([{"key": "k0", "n": 0}, {"key": "old", "n": 5}])).await;
    assert_eq!(drain(&service, FOLLOWER).await, ["k0:Added:0", "old:Added:5"]);
    let settings = json!({"follow": {"queue": "prices"}});
    service.call("PATCH", FOLLOWER, &settings).await.ok();
    for n in 1..=50 {
        post(&service, &format!("{PARENT}/update"), json!([{"key": "k1", "n": n}, {"key": "k2", "n": n}]))
            .await;
        post(&service, &format!("{PARENT}/delete?key=k3"), Value::Null).await;
        post(&service, &format!("{PARENT}/add"), json!({"key": "k3", "n": n})).await;
    }
    catch_up(&service).await;
    let status = service.get(FOLLOWER).await.ok()["status"].take();
    assert_eq!(
        (&status["follow"]["state"], &status["follow"]["reason"]),
        (&json!("following"), &Value::Null)
    );
    assert_eq!(status["ready"], 3_000, "all keys but k0, and the deleted one");
    let got = drain_keys(&service, &["k1", "k3", "old"]).await;
    assert_eq!(of("old", &got), ["Deleted:5"]);
    let k1 = of("k1", &got);
    // The list has the object that was the newest then, or none if the key has changed meanwhile.
    let from = k1.iter().position(|change| change.starts_with("Updated")).expect("an update");
    let updates: Vec<_> = k1[from..].iter().map(String::as_str).collect();
    let first: u64 = updates[0].rsplit(':').next().and_then(|n| n.parse().ok()).expect("a number");
    let all: Vec<_> = (first..=50).map(|n| format!("Updated:{n}")).collect();
    assert_eq!(updates, all);
    assert!(from <= 1, "{k1:?}");
    if let Some(listed) = k1[..from].first() {
        assert_eq!(*listed, format!("Replaced:{}", first - 1));
    }
    let k3 = of("k3", &got);
    let is_in_turn =
        k3.windows(2).all(|pair| pair[0].starts_with("Deleted") != pair[1].starts_with("Deleted"));
    assert!(is_in_turn, "{k3:?}");
}

/// Delivers everything, and returns the changes of these keys.
async fn drain_keys(service: &Service, keys: &[&str]) -> Vec<String> {
    let mut got = Vec::new();
    loop {
        let popped = post(service, &format!("{FOLLOWER}/pop?max=1000"), json!({})).await;
        let items = popped["items"].as_array().expect("items");
        if items.is_empty() {
            return got;
        }
        for item in items {
            let (key, delta) = (item["key"].as_str().expect("a key"), &item["deltas"][0]);
            if keys.contains(&key) {
                got.push(format!(
                    "{key}:{}:{}",
                    delta["type"].as_str().expect("a type"),
                    delta["object"]["n"]
                ));
            }
        }
        let leases: Vec<_> = items.iter().map(|item| &item["lease"]["id"]).collect();
        post(service, &format!("{FOLLOWER}/ack"), json!({"lease_ids": leases})).await;
    }
}

#[tokio::test]
async fn a_full_key_holds_back_the_follower_and_nothing_is_left_out() {
    let (service, _folder) = start().await;
    put(&service, PARENT, json!({})).await;
    let settings =
        json!({"mode": "events", "max_deltas_per_key": 2, "follow": {"queue": "prices", "prefix": "a"}});
    put(&service, FOLLOWER, settings).await;
    for n in 0..6 {
        post(&service, &format!("{PARENT}/add"), json!([{"key": "a", "n": n}, {"key": "other", "n": n}]))
            .await;
    }
    within(async { while state(&service).await["reason"] != "full" {} }).await;
    assert_eq!(state(&service).await["state"], "blocked");
    let mut got = Vec::new();
    within(async {
        while got.len() < 6 {
            got.extend(drain(&service, FOLLOWER).await);
        }
    })
    .await;
    assert_eq!(of("a", &got)[1..], ["Added:1", "Added:2", "Added:3", "Added:4", "Added:5"]);
    assert_eq!(got.len(), 6);
}

#[tokio::test]
async fn a_follower_of_events_needs_a_journal_and_the_newest_objects() {
    let service = Service::start().await;
    put(&service, PARENT, json!({})).await;
    let settings = json!({"mode": "events", "follow": {"queue": "prices"}});
    let refused = service.call("PUT", FOLLOWER, &settings).await.problem("invalid-config");
    assert_eq!(refused["field"], "follow");
    put(&service, FOLLOWER, json!({"follow": {"queue": "prices"}})).await;
    service.call("PATCH", FOLLOWER, &json!({"mode": "events"})).await.problem("invalid-config");

    let (service, _folder) = start().await;
    put(&service, PARENT, json!({})).await;
    let known = json!({"mode": "events", "follow": {"queue": "prices", "view": "known"}});
    service.call("PUT", FOLLOWER, &known).await.problem("invalid-config");
}
