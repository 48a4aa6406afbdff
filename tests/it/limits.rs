//! Bounds over all requests, as callers meet them.

use deltaq::config::access::{TokenEntry, Verb};
use serde_json::{Value, json};

use crate::access::token;
use crate::harness::{Client, Service};

const POLL: &str = "/v1/queues/idle/pop?wait=30s";

fn bearer(name: &str) -> String {
    format!("Bearer {name}")
}

/// A poll that waits, or was refused: then with its answer.
async fn poll(service: &Service, name: &str) -> Client {
    let mut client = service.client().await;
    client.send_text("POST", POLL, &[("authorization", &bearer(name))], "").await;
    client
}

/// How many polls of a token are answered with 429 when it sends so many.
async fn refused(service: &Service, name: &str, polls: usize) -> (Vec<Client>, usize) {
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for _ in 0..polls {
        let mut client = poll(service, name).await;
        let looked = service.client().await.call_as(name, "GET", "/v1/queues/idle", &Value::Null).await.ok();
        if looked["status"]["waiters"] == waiting.len() + 1 {
            waiting.push(client);
            continue;
        }
        let reply = client.reply().await;
        assert_eq!(reply.header("retry-after"), Some("1"));
        reply.problem("too-many-requests");
        refused += 1;
    }
    (waiting, refused)
}

#[tokio::test]
async fn one_token_leaves_room_for_the_next() {
    let tokens: Vec<TokenEntry> =
        ["flood", "second", "third"].iter().map(|name| token(name, &Verb::ALL, "*")).collect();
    let service = Service::with(|settings| {
        settings.access.tokens = tokens;
        settings.server.max_waits_in_flight = 12;
    })
    .await;
    service.client().await.call_as("flood", "PUT", "/v1/queues/idle", &Value::Null).await.ok();
    let (waiting, refused) = refused(&service, "flood", 40).await;
    assert_eq!((waiting.len(), refused), (6, 34), "alone it gets half");
    let mut others = Vec::new();
    for name in ["second", "second", "third"] {
        others.push(poll(&service, name).await);
        let looked = service.client().await.call_as(name, "GET", "/v1/queues/idle", &Value::Null).await.ok();
        assert_eq!(looked["status"]["waiters"], 6 + others.len(), "{name}");
    }
    drop(others);
    drop(waiting);
}

#[tokio::test]
async fn bodies_in_memory_are_bounded() {
    let service = Service::with(|settings| settings.server.max_body_bytes_in_flight = 10_000).await;
    let object = |bytes: usize| json!({ "key": "a", "text": "x".repeat(bytes) }).to_string();
    let first = object(7_000);
    let (begun, rest) = first.split_at(6_500);
    let mut slow = service.client().await;
    let head = format!(
        "POST /v1/queues/a/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        first.len()
    );
    slow.send_bytes(head.as_bytes()).await;
    slow.send_bytes(begun.as_bytes()).await;
    let second = json!({ "key": "b", "text": "x".repeat(5_000) });
    let refused = loop {
        // The first body may not have been read yet.
        let reply = service.post("/v1/queues/b/add", &second).await;
        if reply.status != 200 {
            break reply;
        }
    };
    assert_eq!(refused.problem("too-many-requests")["limit"], 10_000);
    slow.send_bytes(rest.as_bytes()).await;
    slow.reply().await.ok();
    service.post("/v1/queues/b/add", &second).await.ok();
    let large = service.post("/v1/queues/c/add", &json!({ "key": "c", "text": "x".repeat(11_000) })).await;
    assert_eq!(large.problem("object-too-large")["limit"], 10_000);
}

#[tokio::test]
async fn connections_past_the_cap_are_told_so() {
    let service = Service::with(|settings| settings.server.max_connections = 2).await;
    let mut kept = [service.client().await, service.client().await];
    for client in &mut kept {
        client.call("GET", "/v1/info", &Value::Null).await.ok();
    }
    for _ in 0..3 {
        let mut third = service.client().await;
        third.send("POST", "/v1/queues/a/add", &json!({ "key": "a" })).await;
        let reply = third.reply().await;
        assert_eq!((reply.header("retry-after"), reply.header("connection")), (Some("1"), Some("close")));
        assert_eq!(reply.problem("too-many-connections")["limit"], 2);
        third.closed().await;
    }
    for client in &mut kept {
        client.call("GET", "/v1/queues/a", &Value::Null).await.problem("queue-not-found");
    }
    drop(kept);
    while service.client().await.call("GET", "/v1/info", &Value::Null).await.status != 200 {}
}
