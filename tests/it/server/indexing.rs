//! Indexes of known objects: settings, lookups, values, and how they follow acknowledgements.

use serde_json::{Value, json};

use super::QUEUE;
use crate::harness::{Reply, Service};

async fn put(service: &Service, config: Value) -> Reply {
    service.call("PUT", QUEUE, &config).await
}

async fn seed(service: &Service, objects: &[Value]) {
    let seeds: Vec<Value> = objects.iter().map(|object| json!({"object": object})).collect();
    service.post(&format!("{QUEUE}/seed"), &json!(seeds)).await.ok();
}

async fn get(service: &Service, path: &str) -> Value {
    service.get(&format!("{QUEUE}/{path}")).await.ok()
}

/// The keys that have a value.
async fn keys(service: &Service, query: &str) -> Vec<String> {
    let page = get(service, &format!("known?wait=10s&{query}")).await;
    let items = page["items"].as_array().expect("items");
    items.iter().map(|item| item["key"].as_str().expect("a key").to_owned()).collect()
}

async fn values(service: &Service, path: &str) -> Value {
    let page = get(service, &format!("indexes/{path}")).await;
    let items = page["items"].as_array().expect("items").iter();
    items.map(|item| json!([item["value"], item["keys"]])).collect()
}

async fn acked(service: &Service) {
    let popped = service.post(&format!("{QUEUE}/pop?max=1000"), &Value::Null).await.ok();
    let items = popped["items"].as_array().expect("items").iter();
    let leases: Vec<&Value> = items.map(|item| &item["lease"]["id"]).collect();
    service.post(&format!("{QUEUE}/ack"), &json!({ "lease_ids": leases })).await.ok();
}

#[tokio::test]
async fn an_index_follows_acknowledgements() {
    let service = Service::start().await;
    put(&service, json!({"indexes": {"by_city": "/address/city", "by_tag": "/tags"}})).await.ok();
    let add = format!("{QUEUE}/add");
    let objects = json!([
        {"key": "a", "address": {"city": "Berlin"}, "tags": ["x", 7, true]},
        {"key": "b", "address": {"city": "Berlin"}, "tags": "x"},
        {"key": "c", "address": {"city": null}},
        {"key": "d", "address": {"city": "Bern"}, "tags": [["x"], {"x": 1}, null]},
    ]);
    service.post(&add, &objects).await.ok();
    assert_eq!(keys(&service, "index=by_city&value=Berlin").await, [""; 0], "nothing is acknowledged");
    acked(&service).await;
    assert_eq!(keys(&service, "index=by_city&value=Berlin").await, ["a", "b"]);
    assert_eq!(keys(&service, "index=by_tag&value=7").await, ["a"]);
    assert_eq!(keys(&service, "index=by_tag&value=true").await, ["a"]);
    assert_eq!(keys(&service, "index=by_city&value=Paris").await, [""; 0]);
    assert_eq!(values(&service, "by_city").await, json!([["Berlin", 2], ["Bern", 1]]));
    assert_eq!(values(&service, "by_tag").await, json!([["7", 1], ["true", 1], ["x", 2]]));

    service.post(&format!("{QUEUE}/update"), &json!({"key": "a", "address": {"city": "Bern"}})).await.ok();
    service.post(&format!("{QUEUE}/delete"), &json!({"key": "b"})).await.ok();
    assert_eq!(keys(&service, "index=by_city&value=Berlin").await, ["a", "b"], "workers have them");
    acked(&service).await;
    assert_eq!(keys(&service, "index=by_city&value=Berlin").await, [""; 0]);
    assert_eq!(keys(&service, "index=by_city&value=Bern").await, ["a", "d"]);
    assert_eq!(values(&service, "by_tag").await, json!([]));
    let indexes = get(&service, "indexes").await["items"].take();
    let by_city = json!({"name": "by_city", "pointer": "/address/city", "state": "ready", "values": 1, "keys": 2, "omitted_values": 0});
    assert_eq!(indexes[0], by_city);
    assert_eq!((&indexes[1]["name"], &indexes[1]["keys"]), (&json!("by_tag"), &json!(0)));
}

#[tokio::test]
async fn a_lookup_has_pages_filters_fields_and_lines() {
    let service = Service::start().await;
    put(&service, json!({"indexes": {"even": "/even"}})).await.ok();
    let objects = (0..1_500).map(|number| json!({"key": format!("k{number:04}"), "even": number % 2 == 0}));
    seed(&service, &objects.collect::<Vec<_>>()).await;
    let query = "index=even&value=true";
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let page = get(&service, &format!("known?{query}&fields=key&limit=100{next}")).await;
        all.extend(page["items"].as_array().expect("items").clone());
        let Some(token) = page["continue"].as_str() else { break };
        next = format!("&continue={token}");
    }
    let expected: Vec<Value> = (0..750).map(|number| json!({"key": format!("k{:04}", 2 * number)})).collect();
    assert_eq!(all, expected);
    assert_eq!(keys(&service, &format!("{query}&prefix=k000")).await.len(), 5);
    assert_eq!(keys(&service, &format!("{query}&prefix=k143")).await.len(), 5);
    assert_eq!(keys(&service, &format!("{query}&source=erp")).await.len(), 0);
    let mut shards = 0;
    for shard in ["0/2", "1/2"] {
        shards += keys(&service, &format!("{query}&limit=1000&shard={shard}")).await.len();
    }
    assert_eq!(shards, 750);
    let mut client = service.client().await;
    let path = format!("{QUEUE}/known?{query}&prefix=k00");
    client.send_text("GET", &path, &[("accept", "application/x-ndjson")], "").await;
    let lines = client.reply().await;
    assert_eq!((lines.text.lines().count(), &lines.text[..15]), (50, "{\"key\":\"k0000\","));
}

#[tokio::test]
async fn the_values_of_an_index_have_pages_and_a_prefix() {
    let service = Service::start().await;
    put(&service, json!({"indexes": {"a": "/a", "b": "/b"}})).await.ok();
    let objects = (0..300).map(|number| json!({"key": number, "a": format!("v{:03}", number % 150), "b": 1}));
    seed(&service, &objects.collect::<Vec<_>>()).await;
    let first = get(&service, "indexes/a?limit=100").await;
    assert_eq!(
        (first["items"].as_array().map(Vec::len), &first["items"][99]),
        (Some(100), &json!({"value": "v099", "keys": 2}))
    );
    let next = first["continue"].as_str().expect("another page").to_owned();
    let second = get(&service, &format!("indexes/a?limit=100&continue={next}")).await;
    assert_eq!(
        (second["items"].as_array().map(Vec::len), &second["items"][0]["value"]),
        (Some(50), &json!("v100"))
    );
    assert_eq!(second["continue"], Value::Null);
    assert_eq!(values(&service, "a?prefix=v14").await.as_array().map(Vec::len), Some(10));
    assert_eq!(values(&service, "b").await, json!([["1", 300]]));
    service.get(&format!("{QUEUE}/indexes/b?continue={next}")).await.problem("expired");
    let mut client = service.client().await;
    for (path, count) in [("indexes/a?prefix=v00", 10), ("indexes", 2)] {
        client.send_text("GET", &format!("{QUEUE}/{path}"), &[("accept", "application/x-ndjson")], "").await;
        assert_eq!(client.reply().await.text.lines().count(), count, "{path}");
    }
}

#[tokio::test]
async fn indexes_change_while_many_objects_are_there() {
    let service = Service::start().await;
    put(&service, json!({})).await.ok();
    let objects = (0..3_000)
        .map(|number| json!({"key": format!("k{number:04}"), "a": number % 3, "b": [number % 5, "x"]}));
    seed(&service, &objects.collect::<Vec<_>>()).await;
    assert_eq!(get(&service, "indexes").await["items"], json!([]));
    let wait_built = "limit=5000&fields=key";
    put(&service, json!({"indexes": {"i": "/a"}})).await.ok();
    assert_eq!(keys(&service, &format!("index=i&value=2&{wait_built}")).await.len(), 1_000);
    // The same name with another pointer is another index.
    put(&service, json!({"indexes": {"i": "/b", "j": "/a"}})).await.ok();
    let document = get(&service, "indexes/i?wait=10s").await;
    assert_eq!(document["items"][0], json!({"value": "0", "keys": 600}));
    assert_eq!(keys(&service, &format!("index=i&value=x&{wait_built}")).await.len(), 3_000);
    assert_eq!(keys(&service, &format!("index=j&value=0&{wait_built}")).await.len(), 1_000);
    service.call("PATCH", QUEUE, &json!({"max_failures": 3})).await.ok();
    assert_eq!(
        service.get(QUEUE).await.ok()["settings"]["indexes"],
        json!({"i": "/b", "j": "/a"}),
        "a PATCH changes what it names"
    );
    service.call("PATCH", QUEUE, &json!({"indexes": null})).await.ok();
    assert_eq!(service.get(QUEUE).await.ok()["settings"]["indexes"], json!({}));
    let unknown = service.get(&format!("{QUEUE}/known?index=i&value=1")).await.problem("index-not-found");
    assert_eq!(
        (&unknown["detail"], &unknown["hint"]),
        (&json!("the queue has no index \"i\""), &json!("the queue has none"))
    );
}

#[tokio::test]
async fn wrong_indexes_are_refused() {
    let service = Service::start().await;
    let many: Value =
        (0..17).map(|number| (number.to_string(), json!("/a"))).collect::<serde_json::Map<_, _>>().into();
    for (indexes, detail) in [
        (json!([]), "expected names and JSON pointers such as"),
        (json!("/a"), "expected names and JSON pointers such as"),
        (json!({"a": 1}), "expected names and JSON pointers such as"),
        (json!({"a": "b"}), "\"b\" is not a JSON pointer"),
        (json!({"a b": "/b"}), "\"a b\" is not the name of an index"),
        (json!({"": "/b"}), "is not the name of an index"),
        (many, "a queue has at most 16 indexes, not 17"),
    ] {
        let problem = put(&service, json!({"indexes": indexes})).await.problem("invalid-config");
        assert_eq!(problem["field"], "indexes");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains(detail)), "{problem}");
    }
    let unknown = put(&service, json!({"index": {}})).await.problem("invalid-request");
    assert!(unknown["hint"] == "did you mean \"indexes\"?", "{unknown}");
    for config in [json!({"mode": "keys"}), json!({"known_objects": false})] {
        let mut config = config;
        config["indexes"] = json!({"a": "/a"});
        let problem = put(&service, config).await.problem("invalid-config");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains("stores none")), "{problem}");
    }
    put(&service, json!({"indexes": {"a": "/a"}})).await.ok();
    let patch = async |settings| service.call("PATCH", QUEUE, &settings).await;
    patch(json!({"known_objects": false})).await.problem("invalid-config");
    patch(json!({"known_objects": false, "indexes": null})).await.ok();
}

#[tokio::test]
async fn indexes_come_in_pages() {
    let service = Service::start().await;
    put(&service, json!({"indexes": {"c": "/c", "a": "/a", "b": "/b"}})).await.ok();
    let page = get(&service, "indexes?limit=2").await;
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items");
        items.iter().map(|index| index["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&page), ["a", "b"]);
    let next = page["continue"].as_str().expect("a token");
    let last = get(&service, &format!("indexes?limit=2&continue={next}")).await;
    assert_eq!((names(&last), &last["continue"]), (vec!["c".to_owned()], &Value::Null));
}

#[tokio::test]
async fn wrong_lookups_are_refused() {
    let service = Service::start().await;
    put(&service, json!({"indexes": {"by_city": "/city"}})).await.ok();
    let longest = "x".repeat(256);
    for (query, parameter) in [
        ("index=by_city", "index"),
        ("value=a", "value"),
        ("wait=1s", "wait"),
        ("index=by_city&value=a&wait=11s", "wait"),
        ("index=by_city&value=a&key=k", "key"),
        (format!("index=by_city&value={longest}x").as_str(), "value"),
    ] {
        let problem = service.get(&format!("{QUEUE}/known?{query}")).await.problem("invalid-parameter");
        assert_eq!(problem["parameter"], parameter, "{problem}");
    }
    service.get(&format!("{QUEUE}/latest?index=by_city&value=a")).await.problem("invalid-parameter");
    assert_eq!(keys(&service, &format!("index=by_city&value={longest}")).await, [""; 0]);
    assert_eq!(keys(&service, "index=by_city&value=").await, [""; 0]);
    seed(&service, &[json!({"key": "a", "city": "Rome"}), json!({"key": "b", "city": "Rome"})]).await;
    let page = get(&service, "known?wait=10s&index=by_city&value=Rome&limit=1").await;
    let next = page["continue"].as_str().expect("a token");
    for other in ["index=by_city&value=Bern&", "prefix=a&", ""] {
        service.get(&format!("{QUEUE}/known?{other}continue={next}")).await.problem("expired");
    }
    for path in ["known?index=by_town&value=a", "indexes/by_town"] {
        let problem = service.get(&format!("{QUEUE}/{path}")).await.problem("index-not-found");
        assert_eq!(problem["hint"], "the queue has by_city");
    }
    service.get(&format!("{QUEUE}/indexes/%zz")).await.problem("invalid-parameter");
}

#[tokio::test]
async fn values_beyond_the_limits_are_counted_and_match_nothing() {
    let service = Service::start().await;
    put(&service, json!({"indexes": {"v": "/v"}})).await.ok();
    let long = format!("{}y", "x".repeat(256));
    let many: Vec<u32> = (0..103).collect();
    seed(&service, &[json!({"key": "long", "v": [long, "short"]}), json!({"key": "many", "v": many})]).await;
    assert_eq!(keys(&service, "index=v&value=short").await, ["long"]);
    assert_eq!(keys(&service, "index=v&value=99").await, ["many"]);
    assert_eq!(keys(&service, "index=v&value=100").await, [""; 0]);
    assert_eq!(keys(&service, &format!("index=v&value={}", &long[..256])).await, [""; 0]);
    let index = get(&service, "indexes").await["items"][0].take();
    assert_eq!(
        (&index["values"], &index["keys"], &index["omitted_values"]),
        (&json!(101), &json!(2), &json!(4))
    );
    service.post(&format!("{QUEUE}/update"), &json!({"key": "many", "v": many[..101]})).await.ok();
    acked(&service).await;
    assert_eq!(
        get(&service, "indexes").await["items"][0]["omitted_values"],
        2,
        "the old object does not count"
    );
}
