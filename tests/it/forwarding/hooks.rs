//! Deliveries of webhooks at any node.

use deltaq::config::access::Verb;
use serde_json::json;

use super::cluster::{Cluster, HOOK_SECRET, TestNode, queue_of};
use crate::access::token;
use crate::harness::Reply;

/// Sends a delivery as GitLab does.
async fn deliver(node: &TestNode, queue: &str, secret: &str, id: &str) -> Reply {
    let headers = [("x-gitlab-token", secret), ("idempotency-key", id), ("content-type", "application/json")];
    let mut client = node.client().await;
    client.send_text("POST", &format!("/v1/hooks/{queue}"), &headers, r#"{"id": "x", "n": 1}"#).await;
    client.reply().await
}

#[tokio::test]
async fn a_delivery_may_come_to_any_node() {
    let tokens = [token("boss", &Verb::ALL, "*")];
    let cluster = Cluster::with_tokens(&tokens, &tokens).await;
    let queue = queue_of(&cluster.a, 1, 0);
    let absent = queue_of(&cluster.a, 1, 1);
    let path = format!("/v1/queues/{queue}");
    let settings = json!({"key": ["/id"], "hook": {"scheme": "gitlab", "secrets": ["hook"]}});
    let mut boss = cluster.a.client().await;
    assert_eq!(boss.call_as("boss", "PUT", &path, &settings).await.status, 201);
    for (node, id, is_forwarded, is_repeated) in
        [(&cluster.a, "d-1", true, false), (&cluster.b, "d-1", false, true), (&cluster.a, "d-2", true, false)]
    {
        let reply = deliver(node, &queue, HOOK_SECRET, id).await;
        assert_eq!(reply.header("deltaq-owner").is_some(), is_forwarded);
        assert_eq!((reply.status, &reply.body["duplicate"]), (202, &json!(is_repeated)), "{}", reply.text);
    }
    let latest = boss.call_as("boss", "GET", &format!("{path}/latest/x"), &json!(null)).await.ok();
    assert_eq!(latest["object"]["n"], 1);
    for node in [&cluster.a, &cluster.b] {
        deliver(node, &queue, "another-secret-of-16", "d-3").await.problem("unauthorized");
        deliver(node, &absent, HOOK_SECRET, "d-3").await.problem("unauthorized");
    }
}
