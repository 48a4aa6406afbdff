//! The list of the queues covers all nodes.

use deltaq::config::access::Verb;
use deltaq_service::Owner;
use serde_json::{Value, json};

use super::cluster::{Cluster, FakeOwner, queue_of, write};
use crate::access::token;

/// Creates five queues on each node, and returns the names in order.
async fn ten_queues(cluster: &Cluster) -> Vec<String> {
    let mut names = Vec::new();
    for partition in 0..2 {
        for number in 0..5 {
            let name = queue_of(&cluster.a, partition, number);
            assert_eq!(cluster.a.call("PUT", &format!("/v1/queues/{name}"), &json!({})).await.status, 201);
            names.push(name);
        }
    }
    names.sort();
    names
}

fn names_of(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("items");
    items.iter().map(|queue| queue["name"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn pages_have_the_queues_of_all_nodes_in_order() {
    let cluster = Cluster::start().await;
    let names = ten_queues(&cluster).await;
    for node in [&cluster.a, &cluster.b] {
        for limit in [1, 2, 3, 7, 10, 100] {
            let (mut found, mut after) = (Vec::new(), String::new());
            loop {
                let page = node.get(&format!("/v1/queues?limit={limit}{after}")).await.ok();
                assert!(names_of(&page).len() <= limit && page["unavailable"] == json!([]));
                found.extend(names_of(&page));
                let Some(next) = page["continue"].as_str() else { break };
                after = format!("&continue={next}");
            }
            assert_eq!(found, names, "{limit}");
        }
        let lines = node.get_with("/v1/queues", &[("accept", "application/x-ndjson")]).await.text;
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("a queue")).collect();
        assert_eq!(lines.len(), names.len());
        let some = node.get(&format!("/v1/queues?prefix={}", names[4])).await.ok();
        assert!(names_of(&some).contains(&names[4]) && !names_of(&some).contains(&names[3]));
    }
}

#[tokio::test]
async fn a_list_that_would_be_incomplete_is_refused() {
    let cluster = Cluster::start().await;
    ten_queues(&cluster).await;
    // A partition without an owner.
    cluster.a.partitions.set_owner(1, Owner::Nobody);
    cluster.a.get("/v1/queues").await.problem("not-owner");
    // An owner that has lost the partition.
    cluster.a.sees(1, &cluster.b.peer("b"));
    cluster.b.partitions.set_owner(1, Owner::Nobody);
    cluster.a.get("/v1/queues").await.problem("not-owner");
    // An owner that can't be reached, and one that fails in the middle.
    cluster.b.owns(1);
    cluster.a.get("/v1/queues").await.ok();
    let fake = FakeOwner::start().await;
    cluster.a.sees(1, &fake.peer);
    let mut client = cluster.a.client().await;
    client.send("GET", "/v1/queues", &Value::Null).await;
    let (mut stream, _) = fake.accept().await;
    write(&mut stream, "HTTP/1.1 200 OK\r\ndeltaq-node: fake\r\ndeltaq-partitions: 1\r\ncontent-length: 90\r\n\r\n{\"items\"")
        .await;
    drop(stream);
    client.reply().await.problem("not-owner");
    drop(fake);
    cluster.a.get("/v1/queues").await.problem("not-owner");
    // Both nodes own a partition, as far as they know.
    cluster.a.owns(1);
    cluster.b.get("/v1/queues").await.problem("not-owner");
}

#[tokio::test]
async fn a_list_has_only_the_queues_that_the_token_may_read() {
    let cluster = Cluster::start().await;
    let name = queue_of(&cluster.a, 1, 2);
    drop(cluster);
    let tokens = [token("one", &[Verb::Read], &name), token("boss", &Verb::ALL, "*")];
    let cluster = Cluster::with_tokens(&tokens, &tokens).await;
    let mut client = cluster.a.client().await;
    for number in 0..5 {
        let path = format!("/v1/queues/{}", queue_of(&cluster.a, 1, number));
        assert_eq!(client.call_as("boss", "PUT", &path, &json!({})).await.status, 201);
    }
    assert_eq!(names_of(&client.call_as("one", "GET", "/v1/queues", &Value::Null).await.ok()), [name]);
}

#[tokio::test]
async fn the_list_of_sources_covers_all_nodes() {
    let cluster = Cluster::start().await;
    let names = ten_queues(&cluster).await;
    for name in &names {
        let add = format!("/v1/queues/{name}/add?source=erp");
        assert_eq!(cluster.a.call("POST", &add, &json!({"key": "a"})).await.status, 200);
        let seen = format!("/v1/queues/{name}/sources/crm/seen");
        assert_eq!(cluster.a.call("POST", &seen, &Value::Null).await.status, 204);
    }
    let expected: Vec<_> =
        names.iter().flat_map(|name| [json!([name, "crm"]), json!([name, "erp"])]).collect();
    for node in [&cluster.a, &cluster.b] {
        for limit in [1, 3, 20] {
            let (mut found, mut after) = (Vec::new(), String::new());
            loop {
                let page = node.get(&format!("/v1/sources?limit={limit}{after}")).await.ok();
                let items = page["items"].as_array().expect("items").iter();
                found.extend(items.map(|item| json!([item["queue"], item["source"]])));
                let Some(next) = page["continue"].as_str() else { break };
                after = format!("&continue={next}");
            }
            assert_eq!(found, expected, "{limit}");
        }
    }
    cluster.a.partitions.set_owner(1, Owner::Nobody);
    cluster.a.get("/v1/sources").await.problem("not-owner");
}
