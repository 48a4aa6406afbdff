//! Lists and objects of the views `latest` and `known`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::QUEUE;
use crate::harness::Service;

async fn post(service: &Service, call: &str, body: Value) -> Value {
    service.post(&format!("{QUEUE}/{call}"), &body).await.ok()
}

async fn get(service: &Service, path: &str) -> Value {
    service.get(&format!("{QUEUE}/{path}")).await.ok()
}

/// Acknowledges everything that waits.
async fn ack_all(service: &Service) {
    let items = post(service, "pop?max=100", json!({})).await["items"].take();
    let leases: Vec<&Value> =
        items.as_array().expect("a list").iter().map(|item| &item["lease"]["id"]).collect();
    post(service, "ack", json!({ "lease_ids": leases })).await;
}

/// The objects of rows, by key.
fn by_key(rows: &Value) -> BTreeMap<String, Value> {
    let rows = rows.as_array().expect("rows");
    rows.iter().map(|row| (row["key"].as_str().expect("a key").to_owned(), row["object"].clone())).collect()
}

fn keys(rows: &Value) -> Vec<String> {
    by_key(rows).into_keys().collect()
}

#[tokio::test]
async fn the_view_latest_has_the_newest_accepted_objects() {
    let service = Service::start().await;
    let added = post(&service, "add?source=erp", json!([{"key": "a", "v": 1}, {"key": "b", "v": 1}])).await;
    let newest = added["resource_version"].as_u64().expect("a version");
    let found = get(&service, "latest/a").await;
    assert_eq!(
        found,
        json!({"key": "a", "source": "erp", "resource_version": newest - 1, "object": {"key": "a", "v": 1}})
    );
    ack_all(&service).await;
    let acknowledged = get(&service, "latest/a").await;
    assert_eq!(acknowledged, found, "an ack changes nothing, not even the version");
    let known = get(&service, "known/a").await;
    assert!(known["resource_version"].as_u64() > added["resource_version"].as_u64(), "{known}");

    post(&service, "update?source=web", json!({"key": "a", "v": 2})).await;
    post(&service, "delete", json!({"key": "b"})).await;
    let latest = get(&service, "latest").await;
    assert_eq!(by_key(&latest["items"]), BTreeMap::from([("a".into(), json!({"key": "a", "v": 2}))]));
    assert_eq!(by_key(&get(&service, "known").await["items"])["a"]["v"], 1);
    let gone = service.get(&format!("{QUEUE}/latest/b")).await;
    assert_eq!(gone.problem("key-not-found")["detail"], "for the key \"b\" there is no object");
    // A key whose deltas are dropped has its known object again.
    post(&service, "purge", Value::Null).await;
    assert_eq!(keys(&get(&service, "latest").await["items"]), ["a", "b"]);
    assert_eq!(get(&service, "latest/a").await["object"]["v"], 1);
}

#[tokio::test]
async fn a_list_of_a_view_is_filtered() {
    let service = Service::start().await;
    let objects: Vec<Value> = (0..40).map(|number| json!({"key": format!("k{number:02}")})).collect();
    post(&service, "add?source=erp", json!(objects)).await;
    post(&service, "add?source=web", json!([{"key": "k00"}, {"key": "x"}])).await;
    for view in ["latest", "known"] {
        if view == "known" {
            ack_all(&service).await;
        }
        let list = async |query: &str| keys(&get(&service, &format!("{view}?{query}")).await["items"]);
        assert_eq!(list("source=web").await, ["k00", "x"], "{view}");
        assert_eq!(list("prefix=k1").await.len(), 10);
        assert_eq!(list("prefix=k0&source=erp").await.len(), 9);
        let mut all = Vec::new();
        for shard in ["0/3", "1/3", "2/3"] {
            let part = list(&format!("shard={shard}")).await;
            assert!(part.len() > 3, "{shard}: {part:?}");
            all.extend(part);
        }
        all.sort_unstable();
        assert_eq!(all, list("limit=5000").await, "each key is in one shard");
        let page = get(&service, &format!("{view}?limit=1&fields=key")).await;
        assert_eq!(page["items"], json!([{"key": "k00"}]));
        assert!(page["continue"].is_string());
        let one = get(&service, &format!("{view}?key=x&fields=resource_version,source")).await;
        assert_eq!(one["items"][0]["source"], "web");
        assert_eq!(one["items"][0].as_object().map(serde_json::Map::len), Some(2));
        assert_eq!(list("key=x&prefix=x&source=web").await, ["x"]);
        for other in ["prefix=k", "source=erp"] {
            assert_eq!(list(&format!("key=x&{other}")).await, [""; 0], "{other}");
        }
        // A list goes on at its prefix if the token is from before it.
        let next = page["continue"].as_str().expect("a token");
        assert_eq!(list(&format!("prefix=k1&continue={next}")).await.len(), 10);
        for (query, parameter) in [("fields=deltas", "fields"), ("shard=3/3", "shard"), ("shard=1", "shard")]
        {
            let problem = service.get(&format!("{QUEUE}/{view}?{query}")).await.problem("invalid-parameter");
            assert_eq!(problem["parameter"], parameter);
        }
        let mut client = service.client().await;
        let path = format!("{QUEUE}/{view}?prefix=k0&fields=key");
        client.send_text("GET", &path, &[("accept", "application/x-ndjson")], "").await;
        let lines = client.reply().await.text;
        assert_eq!(lines.lines().next(), Some("{\"key\":\"k00\"}"));
        assert_eq!(lines.lines().count(), 10);
    }
    let page = get(&service, "latest?limit=1").await;
    let next = page["continue"].as_str().expect("a token");
    service.get(&format!("{QUEUE}/known?continue={next}")).await.problem("expired");
}

/// Changes keys before and behind the first page of a list, then reads the rest of the list, and then the changes behind the
/// version of the first page.
#[tokio::test]
async fn a_watch_continues_a_list_without_a_gap() {
    for view in ["latest", "known"] {
        let folder = tempfile::tempdir().expect("a folder");
        let service = Service::with(|settings| {
            settings.storage.in_memory = false;
            settings.storage.data_dir = folder.path().to_owned();
        })
        .await;
        let objects: Vec<Value> = (0..6).map(|number| json!({"key": format!("k{number}"), "v": 1})).collect();
        post(&service, "add", json!(objects)).await;
        ack_all(&service).await;
        let first = get(&service, &format!("{view}?limit=3")).await;
        assert_eq!(keys(&first["items"]), ["k0", "k1", "k2"]);

        post(&service, "update", json!([{"key": "k0", "v": 2}, {"key": "k4", "v": 2}])).await;
        post(&service, "delete", json!([{"key": "k1"}, {"key": "k5"}])).await;
        post(&service, "add", json!([{"key": "k11"}, {"key": "k9"}])).await;
        ack_all(&service).await;
        let next = first["continue"].as_str().expect("more");
        let rest = get(&service, &format!("{view}?limit=100&continue={next}")).await;
        assert_eq!(rest["continue"], Value::Null);
        post(&service, "update", json!({"key": "k9", "v": 3})).await;
        ack_all(&service).await;

        let mut copy = by_key(&first["items"]);
        copy.extend(by_key(&rest["items"]));
        let mut client = service.client().await;
        let path = format!("{QUEUE}/watch?view={view}&resource_version={}", first["resource_version"]);
        client.send_text("GET", &path, &[("accept", "application/json")], "").await;
        let changes = client.reply().await.ok();
        for row in changes["items"].as_array().expect("rows") {
            let key = row["key"].as_str().expect("a key").to_owned();
            match row["type"].as_str() {
                Some("Deleted") => copy.remove(&key),
                _ => copy.insert(key, row["object"].clone()),
            };
        }
        assert_eq!(copy, by_key(&get(&service, view).await["items"]), "{view}: {changes}");
        assert_eq!(copy.into_keys().collect::<Vec<_>>(), ["k0", "k11", "k2", "k3", "k4", "k9"]);
    }
}

#[tokio::test]
async fn a_read_needs_the_version_that_it_asks_for() {
    let service = Service::start().await;
    let before = service.call("PUT", QUEUE, &json!({})).await.ok()["status"]["resource_version"].as_u64();
    let before = before.expect("a version");
    let newest = post(&service, "add", json!({"key": "a", "v": 1})).await["resource_version"].as_u64();
    let newest = newest.expect("a version");
    for version in [0, before, newest] {
        let path = format!("latest/a?min_resource_version={version}");
        assert_eq!(get(&service, &path).await["object"]["v"], 1, "{version}");
    }
    // In the view known the version says nothing about acks.
    service.get(&format!("{QUEUE}/known/a?min_resource_version={newest}")).await.problem("key-not-found");
    let refused = async |version: u64, code: &str| {
        service.get(&format!("{QUEUE}/latest/a?min_resource_version={version}")).await.problem(code)
    };
    for version in [newest + 1, (1 << 53) - 1] {
        assert_eq!(refused(version, "version-ahead").await["retryable"], false);
    }
    for version in [1, before - 1] {
        assert_eq!(refused(version, "expired").await["reason"], "lost", "{version}");
    }
    refused(1 << 53, "invalid-parameter").await;
    service.get(&format!("{QUEUE}/latest/a?wait=1s")).await.problem("invalid-parameter");
}
