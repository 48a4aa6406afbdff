//! The memory that the queues of a server may hold, and the share of each token.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use deltaq::config::Settings;
use deltaq::config::access::Verb;
use serde_json::{Value, json};

use crate::access::token;
use crate::harness::{Client, Reply, Service};

const MAX: usize = 16_000;

/// Settings with a limit, for these tokens.
fn limited(tokens: &[&str]) -> impl FnOnce(&mut Settings) + use<> {
    let tokens = tokens.iter().map(|name| token(name, &Verb::ALL, "*")).collect();
    |settings| {
        settings.access.tokens = tokens;
        settings.queues.max_held_bytes = MAX;
    }
}

/// An object that takes about 1,000 bytes as a waiting delta.
fn object(key: &str) -> Value {
    json!({"key": key, "text": "x".repeat(500)})
}

async fn add(client: &mut Client, token: &str, queue: &str, key: &str) -> Reply {
    client.call_as(token, "POST", &format!("/v1/queues/{queue}/add"), &object(key)).await
}

/// Adds keys until the queue has no room. Returns the number of added keys, and the refusal.
async fn fill(client: &mut Client, token: &str, queue: &str) -> (usize, Value) {
    for count in 0..100 {
        let reply = add(client, token, queue, &format!("k{count}")).await;
        if reply.status != 200 {
            assert_eq!(reply.header("retry-after"), Some("1"));
            return (count, reply.problem("memory-full").clone());
        }
    }
    panic!("the queue takes everything");
}

async fn held(client: &mut Client, token: &str, queue: &str) -> u64 {
    let queue = client.call_as(token, "GET", &format!("/v1/queues/{queue}"), &Value::Null).await.ok();
    queue["status"]["held_bytes"].as_u64().expect("a number")
}

#[tokio::test]
async fn a_token_leaves_memory_for_the_queues_of_others() {
    let service = Service::with(limited(&["a", "b"])).await;
    let mut client = service.client().await;
    let (count, problem) = fill(&mut client, "a", "flood").await;
    assert_eq!((count, &problem["limit"], &problem["token"]), (11, &json!(12_000), &json!("a")));
    let own = held(&mut client, "a", "flood").await;
    assert_eq!(problem["held_bytes"], own);
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("token \"a\"")), "{problem}");
    // Every call that adds objects is refused, and a refused call creates no queue.
    for (call, body) in [
        ("x/add", object("k")),
        ("x/update", object("k")),
        ("x/deltas", json!([{"type": "Added", "object": object("k")}])),
        ("x/replace", json!([object("k")])),
        ("x/seed", json!([{"object": object("k")}])),
        ("flood/replace", json!([object("new")])),
    ] {
        client.call_as("a", "POST", &format!("/v1/queues/{call}"), &body).await.problem("memory-full");
    }
    client.call_as("a", "GET", "/v1/queues/x", &Value::Null).await.problem("queue-not-found");
    assert_eq!(held(&mut client, "a", "flood").await, own);
    // Another token, and calls that add nothing.
    add(&mut client, "b", "other", "k").await.ok();
    client.call_as("a", "POST", "/v1/queues/flood/resync", &Value::Null).await.ok();
    client.call_as("a", "POST", "/v1/queues/flood/delete?key=k0", &Value::Null).await.ok();
    let leases = pop_all(&mut client, "a", "flood").await;
    assert_eq!(leases.len(), 11);
    client.call_as("a", "POST", "/v1/queues/flood/ack", &json!({"lease_ids": leases})).await.ok();
    add(&mut client, "a", "flood", "k0").await.ok();
    assert_eq!(client.call_as("a", "DELETE", "/v1/queues/flood", &Value::Null).await.status, 204);
    assert_eq!(fill(&mut client, "a", "again").await.0, 11, "three quarters of what is left");
}

#[tokio::test]
async fn what_a_token_may_always_do_does_not_take_memory_from_others() {
    let service = Service::with(limited(&["a", "b"])).await;
    let mut client = service.client().await;
    let seeds: Vec<Value> = (0..11).map(|key| json!({"object": object(&key.to_string())})).collect();
    client.call_as("a", "POST", "/v1/queues/known/seed", &json!(seeds)).await.ok();
    client.call_as("a", "POST", "/v1/queues/known/resync", &Value::Null).await.ok();
    assert!(held(&mut client, "a", "known").await > MAX as u64);
    assert_eq!(fill(&mut client, "b", "other").await.0, 2);
}

#[tokio::test]
async fn a_single_token_may_fill_the_memory() {
    let service = Service::with(limited(&["a"])).await;
    let mut client = service.client().await;
    let (count, problem) = fill(&mut client, "a", "all").await;
    assert_eq!((count, &problem["limit"], &problem["token"]), (15, &json!(MAX), &Value::Null));
}

#[tokio::test]
async fn a_list_of_unchanged_objects_needs_no_memory() {
    let service = Service::with(limited(&["a", "b"])).await;
    let mut client = service.client().await;
    let list: Vec<Value> = (0..7).map(|key| object(&key.to_string())).collect();
    client.call_as("a", "POST", "/v1/queues/list/replace", &json!(list)).await.ok();
    client.call_as("a", "POST", "/v1/queues/list/replace", &json!(list)).await.problem("memory-full");
    client.call_as("a", "POST", "/v1/queues/list/replace?dry_run=true", &json!(list)).await.ok();
    client.call_as("a", "POST", "/v1/queues/list/replace?only_changed=true", &json!(list)).await.ok();
}

#[tokio::test]
async fn a_follower_takes_rows_when_there_is_memory() {
    let service = Service::with(limited(&["a", "b"])).await;
    let mut client = service.client().await;
    for key in 0..7 {
        add(&mut client, "a", "followed", &key.to_string()).await.ok();
    }
    let settings = json!({"follow": {"queue": "followed"}});
    assert_eq!(client.call_as("a", "PUT", "/v1/queues/follower", &settings).await.status, 201);
    let blocked = loop {
        let queue = client.call_as("a", "GET", "/v1/queues/follower", &Value::Null).await.ok();
        if queue["status"]["follow"]["reason"] == "failed" {
            break queue["status"]["follow"].clone();
        }
    };
    assert!(blocked["detail"].as_str().is_some_and(|detail| detail.contains("max_held_bytes")), "{blocked}");
    client.call_as("a", "POST", "/v1/queues/followed/purge", &Value::Null).await.ok();
    add(&mut client, "a", "followed", "last").await.ok();
    while client.call_as("a", "GET", "/v1/queues/follower", &Value::Null).await.ok()["status"]["ready"] != 1 {
    }
}

/// Pops all keys. Returns the ids of their leases.
async fn pop_all(client: &mut Client, token: &str, queue: &str) -> Vec<Value> {
    let popped = client.call_as(token, "POST", &format!("/v1/queues/{queue}/pop?max=100"), &json!({})).await;
    popped.ok()["items"].as_array().expect("items").iter().map(|item| item["lease"]["id"].clone()).collect()
}

#[tokio::test]
async fn an_error_without_room_is_shortened() {
    let service = Service::with(limited(&["a", "b"])).await;
    let mut client = service.client().await;
    let (count, _full) = fill(&mut client, "a", "flood").await;
    let leases = pop_all(&mut client, "a", "flood").await;
    let before = held(&mut client, "a", "flood").await;
    let nack = json!({"lease_ids": leases, "delay": "0s", "error": "e".repeat(4_000)});
    client.call_as("a", "POST", "/v1/queues/flood/nack", &nack).await.ok();
    let grown = held(&mut client, "a", "flood").await - before;
    assert!((count as u64 * 256..4_000).contains(&grown), "{grown}");
    let key = client.call_as("a", "GET", "/v1/queues/flood/items/k0", &Value::Null).await.ok();
    assert_eq!(key["last_error"], "e".repeat(256));
}

#[tokio::test]
async fn indexes_without_room_are_dropped_until_there_is_room() {
    let service = Service::with(limited(&["a", "b"])).await;
    let mut client = service.client().await;
    let indexes: Vec<(String, &str)> = (0..4).map(|n| (format!("i{n}"), "/tags")).collect();
    let settings = json!({"indexes": indexes.into_iter().collect::<HashMap<_, _>>()});
    client.call_as("a", "PUT", "/v1/queues/tagged", &settings).await;
    let tags: Vec<String> = (0..100).map(|tag| format!("t{tag}")).collect();
    client.call_as("a", "POST", "/v1/queues/tagged/add", &json!({"key": "k", "tags": tags})).await.ok();
    let leases = pop_all(&mut client, "a", "tagged").await;
    client.call_as("a", "POST", "/v1/queues/tagged/ack", &json!({"lease_ids": leases})).await.ok();
    assert!(
        held(&mut client, "a", "tagged").await < 4_000,
        "four indexes of 100 values would take 32,000 bytes"
    );
    let read = "/v1/queues/tagged/known?index=i0&value=t7";
    let refused = client.call_as("a", "GET", read, &Value::Null).await;
    let problem = refused.problem("index-building");
    assert!(
        problem["detail"].as_str().is_some_and(|detail| detail.contains("waits for memory")),
        "{problem}"
    );
    let few = json!({"indexes": {"i0": "/tags"}});
    client.call_as("a", "PUT", "/v1/queues/tagged", &few).await.ok();
    let found = client.call_as("a", "GET", &format!("{read}&wait=10s"), &Value::Null).await.ok();
    assert_eq!(found["items"][0]["key"], "k", "{found}");
}

/// A data directory, which is removed when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    async fn service(&self) -> Service {
        let (folder, limited) = (self.0.clone(), limited(&["a", "b"]));
        Service::with(|settings| {
            limited(settings);
            settings.storage.in_memory = false;
            settings.storage.data_dir = folder;
        })
        .await
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_loaded_queue_counts() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("held-{}", std::process::id()));
    let _absent = std::fs::remove_dir_all(&path);
    let folder = Folder(path);
    let service = folder.service().await;
    let mut client = service.client().await;
    fill(&mut client, "a", "flood").await;
    let before = held(&mut client, "a", "flood").await;
    drop(client);
    service.shutdown.signal();
    service.stopped().await;
    let service = folder.service().await;
    let mut client = service.client().await;
    assert_eq!(held(&mut client, "a", "flood").await, before);
    add(&mut client, "a", "flood", "new").await.problem("memory-full");
    assert_eq!(fill(&mut client, "b", "other").await.0, 3);
    drop(client);
    service.shutdown.signal();
    service.stopped().await;
}

#[tokio::test]
async fn heartbeats_and_reported_problems_are_held_bytes() {
    let service = Service::with(limited(&["a", "b"])).await;
    let mut client = service.client().await;
    for (path, member) in [("reflectors", "last_error"), ("sources", "problem")] {
        let queue = format!("/v1/queues/{path}");
        client.call_as("a", "PUT", &queue, &json!({})).await.ok();
        let body = |number: usize| {
            let mut body = json!({ "source": format!("s{number}"), member: "x".repeat(900) });
            if path == "reflectors" {
                let rest = json!({"instance": "i", "version": "1", "kind": "rest", "interval": "1m", "failing": true});
                body.as_object_mut().expect("an object").extend(rest.as_object().expect("an object").clone());
            }
            body
        };
        let mut replies = Vec::new();
        for number in 0..20 {
            replies.push(client.call_as("a", "POST", &format!("{queue}/{path}"), &body(number)).await);
        }
        let taken = replies.iter().take_while(|reply| reply.status == 204).count();
        assert!((5..15).contains(&taken), "{path}: {taken}");
        replies.pop().expect("a reply").problem("memory-full");
        // Those that are known go on.
        assert_eq!(client.call_as("a", "POST", &format!("{queue}/{path}"), &body(0)).await.status, 204);
        assert_eq!(add(&mut client, "b", "other", path).await.status, 200, "another token has room");
        client.call_as("a", "DELETE", &queue, &Value::Null).await;
    }
}
