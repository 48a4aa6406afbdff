//! The sums of the series cover all nodes.

use std::time::Duration;

use deltaq::config::access::Verb;
use deltaq_runtime::clock::{Clock, ManualClock};
use deltaq_service::Owner;
use serde_json::{Value, json};

use super::cluster::{Cluster, queue_of};
use crate::access::token;

const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

/// Lets time pass on both nodes.
fn pass(cluster: &Cluster, hand: &ManualClock, time: Duration) {
    hand.advance(time);
    cluster.a.registry.measure();
    cluster.b.registry.measure();
}

/// Two nodes with a queue each: 99 leases of one second at the first, one of 100 s at the second.
async fn busy_cluster(cluster: &Cluster, hand: &ManualClock) -> [String; 2] {
    pass(cluster, hand, Duration::ZERO);
    let names = [0, 1].map(|partition| queue_of(&cluster.a, partition, 0));
    for (name, keys) in names.iter().zip([99, 1]) {
        let objects: Vec<Value> = (0..keys).map(|key| json!({ "key": key.to_string() })).collect();
        cluster.a.post(&format!("/v1/queues/{name}/add"), &Value::from(objects)).await.ok();
    }
    let mut leases = Vec::new();
    for name in &names {
        let popped = cluster
            .a
            .post(&format!("/v1/queues/{name}/pop?max=100&lease_duration=5m"), &Value::Null)
            .await
            .ok();
        let items = popped["items"].as_array().expect("items").iter();
        leases.push(items.map(|item| item["lease"]["id"].clone()).collect::<Vec<_>>());
    }
    for (name, (leases, length)) in names.iter().zip(leases.into_iter().zip([SECOND, 99 * SECOND])) {
        hand.advance(length);
        cluster.a.post(&format!("/v1/queues/{name}/ack"), &json!({ "lease_ids": leases })).await.ok();
    }
    pass(cluster, hand, MINUTE);
    names
}

#[tokio::test]
async fn sums_are_those_of_all_nodes_and_quantiles_of_all_leases() {
    let (clock, hand) = Clock::manual(1_700_000_000_000_000);
    let cluster = Cluster::at(&clock).await;
    let names = busy_cluster(&cluster, &hand).await;
    for node in [&cluster.a, &cluster.b] {
        let sums = node.get("/v1/series?since=10m&step=10m").await.ok();
        assert_eq!((&sums["queue"], &sums["queues"]), (&Value::Null, &json!(2)));
        let points = sums["points"].as_array().expect("points");
        let total =
            |name: &str| points.iter().filter_map(|point| point["counts"][name].as_u64()).sum::<u64>();
        assert_eq!(["changes", "deliveries", "acks"].map(total), [100; 3]);
        let last = points
            .iter()
            .rfind(|point| point["processing"]["leases"] == 100)
            .expect("a point with all leases");
        let (p50, p99) = (&last["processing"]["p50_ms"], &last["processing"]["p99_ms"]);
        // The mean of the medians of the nodes would be 50 s.
        assert!(p50.as_f64() < Some(1_200.0) && p99.as_f64() < Some(1_200.0), "{p50} {p99}");
        assert_eq!(sums["drain"]["empties_in_ms"], 0, "no key waits on any node");
    }
    // A queue of another node.
    let series = cluster.a.get(&format!("/v1/queues/{}/series?since=10m", names[1])).await.ok();
    assert_eq!((&series["queue"], &series["queues"]), (&json!(names[1]), &json!(1)));
    let refused = cluster.a.get("/v1/series?since=tomorrow").await;
    refused.problem("invalid-parameter");
}

#[tokio::test]
async fn sums_have_only_queues_that_the_token_may_read_and_no_partition_is_left_out() {
    let (clock, hand) = Clock::manual(1_700_000_000_000_000);
    let cluster = Cluster::at(&clock).await;
    let names = busy_cluster(&cluster, &hand).await;
    cluster.a.partitions.set_owner(1, Owner::Nobody);
    cluster.a.get("/v1/series").await.problem("not-owner");
    drop(cluster);
    let tokens = [token("one", &[Verb::Read], &names[1]), token("boss", &Verb::ALL, "*")];
    let cluster = Cluster::with_tokens_at(&clock, &tokens, &tokens).await;
    let mut client = cluster.a.client().await;
    for name in &names {
        client.call_as("boss", "POST", &format!("/v1/queues/{name}/add"), &json!({"key": "a"})).await.ok();
    }
    for (token, queues) in [("one", 1), ("boss", 2)] {
        let sums = client.call_as(token, "GET", "/v1/series", &Value::Null).await.ok();
        assert_eq!(sums["queues"], queues, "{token}");
    }
    let other = client.call_as("one", "GET", &format!("/v1/queues/{}/series", names[0]), &Value::Null).await;
    other.problem("forbidden");
}
