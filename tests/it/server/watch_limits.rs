//! Bounds of watches: how many at a time, how many of one token, and clients that do not read.

use deltaq::config::access::Verb;
use serde_json::{Value, json};

use super::{QUEUE, objects};
use crate::access::token;
use crate::harness::{Client, Service, within};

const WATCH: &str = "/v1/queues/q/watch?resource_version=now";

/// A watch whose reply has begun.
async fn watching(service: &Service) -> Client {
    let mut client = service.send("GET", WATCH, &Value::Null).await;
    assert_eq!(client.head().await.expect("a head").0, 200);
    client
}

/// The status of a new watch, which ends at once if it is accepted.
async fn status(service: &Service) -> u16 {
    let mut client = service.send("GET", WATCH, &Value::Null).await;
    client.head().await.expect("a head").0
}

#[tokio::test]
async fn a_thousand_watches_get_each_change() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &objects(&["before"])).await.ok();
    let mut watches = Vec::new();
    for _ in 0..1_000 {
        watches.push(watching(&service).await);
    }
    for key in ["a", "b"] {
        service.post(&format!("{QUEUE}/add"), &objects(&[key])).await.ok();
        for watch in &mut watches {
            let row = watch.chunk().await.expect("a whole chunk").expect("a row");
            let row: Value = serde_json::from_slice(&row).expect("one row");
            assert_eq!((&row["type"], &row["key"]), (&json!("Added"), &json!(key)));
        }
    }
}

#[tokio::test]
async fn watches_have_a_limit_of_their_own() {
    let service = Service::with(|settings| settings.server.max_watches_in_flight = 2).await;
    service.post(&format!("{QUEUE}/add"), &objects(&["a"])).await.ok();
    let watches = [watching(&service).await, watching(&service).await];
    let refused = service.get(WATCH).await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    let problem = refused.problem("too-many-requests");
    assert_eq!(problem["limit"], 2);
    assert_eq!(problem["detail"], "the server has 2 watches in flight (server.max_watches_in_flight)");
    service.get(QUEUE).await.ok();
    drop(watches);
    within(async { while status(&service).await != 200 {} }).await;
}

#[tokio::test]
async fn one_token_leaves_watches_to_other_tokens() {
    let verbs = [Verb::Read, Verb::Produce];
    let entries = ["greedy", "modest"].map(|name| token(name, &verbs, "*"));
    let service = Service::with(|settings| {
        settings.access.tokens = entries.into();
        settings.server.max_watches_in_flight = 8;
    })
    .await;
    let mut client = service.client().await;
    client.call_as("greedy", "POST", &format!("{QUEUE}/add"), &objects(&["a"])).await.ok();
    let mut accepted = Vec::new();
    let refused = loop {
        let mut client = service.client().await;
        client.send_text("GET", WATCH, &[("authorization", "Bearer greedy")], "").await;
        let (status, headers) = client.head().await.expect("a head");
        if status != 200 {
            let text = client.body(status, &headers).await.expect("a body");
            break serde_json::from_slice::<Value>(&text).expect("a problem");
        }
        accepted.push(client);
    };
    assert_eq!((accepted.len(), &refused["code"]), (6, &json!("too-many-requests")));
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("\"greedy\"")), "{refused}");
    let mut client = service.client().await;
    client.send_text("GET", WATCH, &[("authorization", "Bearer modest")], "").await;
    assert_eq!(client.head().await.expect("a head").0, 200, "another token has its share");
}

#[tokio::test]
async fn a_watch_that_is_not_read_ends() {
    /// More than the sockets of a connection buffer, in objects of half a mebibyte.
    const OBJECTS: usize = 40;
    let service = Service::with(|settings| {
        settings.server.max_watches_in_flight = 1;
        settings.server.idle_timeout = "5s".parse().expect("a duration");
    })
    .await;
    let filler = "x".repeat(1 << 19);
    for number in 0..OBJECTS {
        let object = json!({ "key": format!("k{number}"), "filler": filler });
        service.post(&format!("{QUEUE}/add"), &object).await.ok();
    }
    let mut unread = service.client_that_buffers(4_096).await;
    unread.send("GET", &format!("{QUEUE}/watch"), &Value::Null).await;
    assert_eq!(unread.head().await.expect("a head").0, 200);
    assert_eq!(status(&service).await, 429, "the watch that is not read has the only permit");
    within(async { while status(&service).await != 200 {} }).await;
}

#[tokio::test]
async fn watches_that_are_not_read_stay_within_the_limit_of_replies() {
    const OBJECTS: usize = 8;
    for accept in ["application/x-ndjson", "text/event-stream"] {
        let service = Service::with(|settings| settings.server.max_reply_bytes_in_flight = 1 << 20).await;
        // More than the sockets of a connection buffer.
        for number in 0..OBJECTS {
            let object = json!({ "key": format!("k{number}"), "filler": "x".repeat(900_000) });
            service.post(&format!("{QUEUE}/add"), &object).await.ok();
        }
        let mut watches = Vec::new();
        for _ in 0..20 {
            let mut watch = service.client_that_buffers(4_096).await;
            watch.send_text("GET", &format!("{QUEUE}/watch"), &[("accept", accept)], "").await;
            assert_eq!(watch.head().await.expect("a head").0, 200);
            watches.push(watch);
        }
        let mut refused = 0;
        for watch in &mut watches {
            for _ in 0..OBJECTS {
                let piece = watch.chunk().await.expect("a chunk").expect("a row");
                let piece = String::from_utf8(piece).expect("UTF-8");
                if piece.contains("too-many-requests") {
                    assert!(piece.len() < 2_000, "a refused watch sends no row: {} bytes", piece.len());
                    refused += 1;
                    break;
                }
            }
        }
        assert!(refused > 0, "a reader beyond the limit is refused");
    }
}

#[tokio::test]
async fn a_watch_from_before_a_forgotten_deletion_is_refused() {
    let service = Service::with(|settings| settings.watch.tombstones = 1).await;
    let added = service.post(&format!("{QUEUE}/add"), &objects(&["a", "b", "c"])).await.ok();
    let _reader = watching(&service).await;
    let mut versions = vec![added["resource_version"].as_u64().expect("a version")];
    for key in ["a", "b"] {
        let reply = service.post(&format!("{QUEUE}/delete?key={key}"), &Value::Null).await.ok();
        versions.push(reply["resource_version"].as_u64().expect("a version"));
    }
    let page = |version: &u64| format!("{QUEUE}/watch?resource_version={version}");
    let problem = service.get(&page(&versions[0])).await.problem("expired");
    assert_eq!(problem["reason"], "too_old", "the deletion of a is forgotten");
    let mut client = service.client().await;
    client.send_text("GET", &page(&versions[1]), &[("accept", "application/json")], "").await;
    assert_eq!(client.reply().await.ok()["items"][0]["key"], "b");
}
