//! The headers of calls between nodes, and the tokens of clients whose calls are forwarded.

use deltaq::access::Tokens;
use deltaq::config::access::{TokenEntry, Verb};
use deltaq_service::Owner;
use serde_json::{Value, json};

use super::cluster::{Cluster, SECRET, queue_of};
use crate::access::token;
use crate::harness::Service;

#[tokio::test]
async fn headers_of_nodes_without_the_secret_are_refused() {
    let cluster = Cluster::start().await;
    let path = format!("/v1/queues/{}/items", queue_of(&cluster.a, 0, 0));
    let almost = "0123456789abcdef0123456789abcdee";
    for forged in [
        &[("deltaq-forwarded", "b")][..],
        &[("deltaq-node-secret", SECRET)],
        &[("deltaq-caller", "admin")],
        &[("deltaq-undelivered", "true")],
        &[("deltaq-forwarded", "b"), ("deltaq-node-secret", almost)],
        &[("deltaq-forwarded", "b"), ("deltaq-node-secret", "")],
        &[("deltaq-forwarded", "b"), ("deltaq-node-secret", SECRET), ("deltaq-node-secret", SECRET)],
    ] {
        let refused = cluster.a.get_with(&path, forged).await;
        assert!(!refused.text.contains(SECRET));
        assert_eq!(refused.problem("forbidden")["status"], 403, "{forged:?}");
    }
    let right = [("deltaq-forwarded", "b"), ("deltaq-node-secret", SECRET)];
    cluster.a.get_with(&path, &right).await.problem("queue-not-found");
    // A node may know this one by any name.
    let head = "host: a.example:7070\r\ndeltaq-forwarded: b\r\n";
    for (secret, code) in [(SECRET, "queue-not-found"), (almost, "forbidden")] {
        let mut client = cluster.a.client().await;
        let request = format!("GET {path} HTTP/1.1\r\n{head}deltaq-node-secret: {secret}\r\n\r\n");
        client.send_bytes(request.as_bytes()).await;
        client.reply().await.problem(code);
    }
}

#[tokio::test]
async fn a_server_that_is_alone_ignores_the_headers_of_nodes() {
    let service = Service::start().await;
    let mut client = service.client().await;
    let headers = [("deltaq-forwarded", "b"), ("deltaq-node-secret", SECRET), ("deltaq-caller", "x")];
    client.send_text("GET", "/v1/queues/absent", &headers, "").await;
    client.reply().await.problem("queue-not-found");
}

#[tokio::test]
async fn the_first_node_checks_the_token_and_the_owner_knows_its_name() {
    let tokens = [token("reader", &[Verb::Read], "*"), token("boss", &Verb::ALL, "*")];
    let cluster = Cluster::with_tokens(&tokens, &tokens).await;
    let queue = queue_of(&cluster.a, 1, 0);
    let path = format!("/v1/queues/{queue}");
    let mut client = cluster.a.client().await;
    client.call("GET", &path, &Value::Null).await.problem("unauthorized");
    client.call_as("reader", "PUT", &path, &json!({})).await.problem("forbidden");
    assert_eq!(client.call_as("boss", "PUT", &path, &json!({})).await.status, 201);
    client.call_as("reader", "GET", &path, &Value::Null).await.ok();
    // A client can't name another caller.
    let headers = [("authorization", "Bearer reader"), ("deltaq-caller", "boss")];
    client.send_text("DELETE", &path, &headers, "").await;
    client.reply().await.problem("forbidden");
}

#[tokio::test]
async fn the_owner_checks_grants_that_the_handler_needs() {
    let tokens: [TokenEntry; 1] = [token("one", &Verb::ALL, "queue-*")];
    let cluster = Cluster::with_tokens(&tokens, &tokens).await;
    let path = format!("/v1/queues/{}", queue_of(&cluster.a, 1, 0));
    let mut client = cluster.a.client().await;
    let follow = json!({"follow": {"queue": "secret"}});
    let refused = client.call_as("one", "PUT", &path, &follow).await;
    assert!(refused.problem("forbidden")["detail"].as_str().expect("a detail").contains("\"secret\""));
}

#[tokio::test]
async fn a_call_whose_token_was_revoked_while_it_waited_for_an_owner_does_nothing() {
    let tokens = [token("boss", &Verb::ALL, "*"), token("old", &Verb::ALL, "*")];
    let cluster = Cluster::with_tokens(&tokens, &tokens).await;
    let in_force = |tokens: &[TokenEntry]| {
        cluster.a.gate.access.replace(Tokens::new(tokens, &Tokens::default()).expect("valid tokens"));
    };
    for partition in [0, 1] {
        let path = format!("/v1/queues/{}", queue_of(&cluster.a, partition, 0));
        let mut client = cluster.a.client().await;
        in_force(&tokens);
        assert_eq!(client.call_as("boss", "PUT", &path, &json!({})).await.status, 201);
        let refused = loop {
            cluster.a.partitions.set_owner(partition, Owner::Nobody);
            in_force(&tokens);
            let mut waiting = cluster.a.client().await;
            waiting.send_text("DELETE", &path, &[("authorization", "Bearer old")], "").await;
            let mut scrape = async || client.call_as("boss", "GET", "/metrics", &Value::Null).await.text;
            while !scrape().await.contains("\ndeltaq_http_requests_in_flight 2\n")
                && waiting.is_silent().await
            {}
            in_force(&tokens[..1]);
            match partition {
                0 => cluster.a.owns(0),
                _ => cluster.a.sees(1, &cluster.b.peer("b")),
            }
            let reply = waiting.reply().await;
            // Otherwise the wait was over before the token was revoked.
            if reply.body["code"] != "not-owner" {
                break reply;
            }
        };
        refused.problem("unauthorized");
        client.call_as("boss", "GET", &path, &Value::Null).await.ok();
    }
}

#[tokio::test]
async fn a_follower_must_be_in_the_partition_of_the_queue_that_it_follows() {
    let cluster = Cluster::start().await;
    let (followed, apart) = (queue_of(&cluster.a, 1, 0), queue_of(&cluster.a, 0, 0));
    cluster.a.call("PUT", &format!("/v1/queues/{followed}"), &json!({})).await;
    let follow = json!({"follow": {"queue": followed}});
    for node in [&cluster.a, &cluster.b] {
        let refused = node.call("PUT", &format!("/v1/queues/{apart}"), &follow).await;
        let problem = refused.problem("invalid-config");
        let hint = problem["hint"].as_str().expect("a hint");
        assert!(hint.contains(&format!("{followed}--{apart}")), "{hint}");
        node.get(&format!("/v1/queues/{apart}")).await.problem("queue-not-found");
    }
    let created = cluster.a.call("PUT", &format!("/v1/queues/{followed}--{apart}"), &follow).await;
    assert_eq!(created.status, 201, "{}", created.text);
}

#[tokio::test]
async fn the_owner_needs_the_token_too() {
    let cluster =
        Cluster::with_tokens(&[token("new", &Verb::ALL, "*")], &[token("old", &Verb::ALL, "*")]).await;
    let path = format!("/v1/queues/{}", queue_of(&cluster.a, 1, 0));
    let mut client = cluster.a.client().await;
    let refused = client.call_as("new", "GET", &path, &Value::Null).await;
    let problem = refused.problem("unauthorized");
    assert!(problem["hint"] == "all nodes need the same tokens", "{problem}");
}
