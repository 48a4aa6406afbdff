//! Lists, streams, entity tags, and keys that are hard to write in a path.

use serde_json::{Value, json};

use super::{QUEUE, keys, object, take};
use crate::harness::{Client, Service};

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("k{index:04}")).collect()
}

async fn seeded(service: &Service, names: &[String]) {
    let seeds: Vec<Value> = names.iter().map(|name| json!({"object": {"key": name}})).collect();
    service.post(&format!("{QUEUE}/seed"), &Value::Array(seeds)).await.ok();
}

async fn added(service: &Service, names: &[String]) {
    let all: Vec<Value> = names.iter().map(|name| object(name)).collect();
    service.post(&format!("{QUEUE}/add"), &Value::Array(all)).await.ok();
}

/// All pages of a list; `member` names an entry.
async fn pages(service: &Service, path: &str, member: &str, sizes: &[usize]) -> Vec<String> {
    let (mut names, mut seen, mut from) = (Vec::new(), Vec::new(), String::new());
    loop {
        let page = service.get(&format!("{path}{from}")).await.ok();
        let items = page["items"].as_array().expect("items");
        seen.push(items.len());
        names.extend(items.iter().map(|item| item[member].as_str().expect("a name").to_owned()));
        let is_of_a_queue = !path.starts_with("/v1/queues?");
        assert_eq!(page["resource_version"].is_u64(), is_of_a_queue);
        let Some(next) = page["continue"].as_str() else { break };
        from = format!("&continue={next}");
    }
    assert_eq!(seen, sizes, "{path}");
    names
}

#[tokio::test]
async fn the_errors_of_parked_keys_come_in_pages() {
    let service = Service::start().await;
    added(&service, &numbered(6)).await;
    for error in ["b", "a", "a", "c", "", "a"] {
        let reject = json!({"lease_ids": [take(&service).await], "error": error});
        service.post(&format!("{QUEUE}/reject"), &reject).await.ok();
    }
    let path = format!("{QUEUE}/parked/errors?limit=2");
    assert_eq!(pages(&service, &path, "error", &[2, 2]).await, ["a", "b", "c", ""]);
    let page = service.get(&path).await.ok();
    let first = json!({"error": "a", "keys": 3, "first_key": "k0001"});
    assert_eq!((&page["items"][0], &page["other_keys"]), (&first, &json!(0)));
    let next = page["continue"].as_str().expect("a token");
    service.get(&format!("{QUEUE}/workers?continue={next}")).await.problem("expired");
    let mut client = service.client().await;
    client.send_text("GET", &path, &[("accept", "application/x-ndjson")], "").await;
    assert_eq!(client.reply().await.text.lines().count(), 4);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let service = Service::start().await;
    let names = numbered(7);
    seeded(&service, &names).await;
    added(&service, &names).await;
    assert_eq!(pages(&service, &format!("{QUEUE}/known?limit=3"), "key", &[3, 3, 1]).await, names);
    assert_eq!(pages(&service, &format!("{QUEUE}/known?limit=3&prefix=k0005"), "key", &[1]).await, ["k0005"]);
    for _ in 0..2 {
        take(&service).await;
    }
    let held = take(&service).await;
    let reject = json!({"lease_ids": [held]});
    service.post(&format!("{QUEUE}/reject"), &reject).await.ok();
    service.post(&format!("{QUEUE}/add?delay=1h"), &object("later")).await.ok();
    let all = format!("{QUEUE}/items?limit=3");
    let expected = ["k0003", "k0004", "k0005", "k0006", "later", "k0000", "k0001", "k0002"];
    assert_eq!(pages(&service, &all, "key", &[3, 3, 2]).await, expected);
    let of_key = async |query: &str| {
        let page = service.get(&format!("{QUEUE}/items?key=k0002&{query}")).await.ok();
        assert_eq!(page["continue"], Value::Null);
        page["items"].as_array().expect("items").len()
    };
    for (query, items) in [
        ("", 1),
        ("state=parked", 1),
        ("state=ready,delayed,leased", 0),
        ("prefix=k0002", 1),
        ("prefix=k3", 0),
        ("error=", 1),
        ("error=none", 0),
        ("source=erp", 0),
        ("worker=w", 0),
    ] {
        assert_eq!(of_key(query).await, items, "{query}");
    }
    for name in ["r", "s", "q-2"] {
        service.call("PUT", &format!("/v1/queues/{name}"), &json!({})).await.ok();
    }
    assert_eq!(pages(&service, "/v1/queues?limit=3", "name", &[3, 1]).await, ["q", "q-2", "r", "s"]);
    assert_eq!(pages(&service, "/v1/queues?prefix=q", "name", &[2]).await, ["q", "q-2"]);
}

#[tokio::test]
async fn a_continue_token_is_valid_for_one_queue() {
    let service = Service::start().await;
    for list in ["known", "latest", "items"] {
        added(&service, &numbered(3)).await;
        if list == "known" {
            for _ in 0..2 {
                let held = take(&service).await;
                service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [held]})).await.ok();
            }
        }
        let page = service.get(&format!("{QUEUE}/{list}?limit=1")).await.ok();
        let next = page["continue"].as_str().expect("more").to_owned();
        for bad in ["zz", "0", &next[1..], "%00", &next.to_uppercase()] {
            let path = format!("{QUEUE}/{list}?limit=1&continue={bad}");
            service.get(&path).await.problem("invalid-parameter");
        }
        service.get(&format!("{QUEUE}/{list}?continue=00ff")).await.problem("expired");
        service.call("DELETE", QUEUE, &Value::Null).await;
        added(&service, &numbered(3)).await;
        service.get(&format!("{QUEUE}/{list}?limit=1&continue={next}")).await.problem("expired");
    }
}

#[tokio::test]
async fn a_continue_token_is_valid_for_one_list() {
    let service = Service::start().await;
    seeded(&service, &numbered(3)).await;
    service.post(&format!("{QUEUE}/resync"), &Value::Null).await.ok();
    service.post("/v1/queues/other/add", &object("k")).await.ok();
    let lists = ["/v1/queues".to_owned(), format!("{QUEUE}/items"), format!("{QUEUE}/known")];
    for of in &lists {
        let page = service.get(&format!("{of}?limit=1")).await.ok();
        let next = page["continue"].as_str().expect("more").to_owned();
        for list in &lists {
            let answer = service.get(&format!("{list}?continue={next}")).await;
            assert_eq!(answer.status, if list == of { 200 } else { 410 }, "{of} in {list}");
        }
    }
}

async fn stream(service: &Service, path: &str) -> Client {
    let mut client = service.client().await;
    let lines = [("accept", "text/html"), ("accept", "application/x-ndjson")];
    client.send_text("GET", path, &lines, "").await;
    client
}

#[tokio::test]
async fn a_whole_list_is_streamed_as_lines() {
    let service = Service::start().await;
    let names = numbered(1_234);
    added(&service, &names).await;
    seeded_other(&service, &names).await;
    for path in [format!("{QUEUE}/items"), "/v1/queues/other/known".to_owned()] {
        let reply = stream(&service, &path).await.reply().await;
        assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
        let lines = reply.text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let listed: Vec<String> =
            lines.map(|line: Value| line["key"].as_str().expect("a key").to_owned()).collect();
        assert_eq!(listed, names);
    }
}

#[tokio::test]
async fn an_object_with_line_breaks_is_one_line_of_a_list() {
    let service = Service::start().await;
    let object = "{\n  \"key\": \"a\",\r\n  \"text\": \"b\\nc\"\n}";
    let seed = format!("[{{\"object\":{object}}}]");
    for (path, body) in [(format!("{QUEUE}/add"), object), ("/v1/queues/other/seed".to_owned(), &*seed)] {
        let mut client = service.client().await;
        client.send_text("POST", &path, &[("content-type", "application/json")], body).await;
        client.reply().await.ok();
    }
    for path in [format!("{QUEUE}/items"), "/v1/queues/other/known".to_owned()] {
        let reply = stream(&service, &path).await.reply().await;
        assert_eq!(reply.text.matches('\n').count(), 1, "{}", reply.text);
        assert!(reply.text.contains("\"text\": \"b\\nc\""), "{}", reply.text);
        let line: Value = serde_json::from_str(&reply.text).expect("JSON");
        assert_eq!(line["key"], "a");
    }
}

async fn seeded_other(service: &Service, names: &[String]) {
    let seeds: Vec<Value> = names.iter().map(|name| json!({"object": {"key": name}})).collect();
    service.post("/v1/queues/other/seed", &Value::Array(seeds)).await.ok();
}

#[tokio::test]
async fn a_failed_stream_is_cut_off_so_that_no_client_takes_it_for_complete() {
    let service = Service::start().await;
    let filler = "x".repeat(20_000);
    for part in numbered(1_000).chunks(100) {
        let all: Vec<Value> = part.iter().map(|name| json!({"key": name, "filler": filler})).collect();
        service.post(&format!("{QUEUE}/add"), &Value::Array(all)).await.ok();
    }
    // Far more than the connection buffers before the client reads.
    let mut client = stream(&service, &format!("{QUEUE}/items")).await;
    let (status, headers) = client.head().await.expect("the reply has begun");
    assert_eq!(service.call("DELETE", QUEUE, &Value::Null).await.status, 204);
    client.body(status, &headers).await.expect_err("it has no end");
}

#[tokio::test]
async fn the_entity_tag_of_an_object_changes_with_the_object() {
    for view in ["known", "latest"] {
        let service = Service::start().await;
        seeded(&service, &numbered(1)).await;
        let known = format!("{QUEUE}/{view}/k0000");
        let first = service.get(&known).await;
        let tag = first.header("etag").expect("a tag").to_owned();
        let mut client = service.client().await;
        for (wanted, status) in [
            (tag.clone(), 304),
            (format!("W/{tag}"), 304),
            (format!("\"x\", {tag}"), 304),
            ("*".to_owned(), 304),
            ("\"x\"".to_owned(), 200),
        ] {
            client.send_text("GET", &known, &[("if-none-match", &wanted)], "").await;
            let reply = client.reply().await;
            assert_eq!((reply.status, reply.header("etag")), (status, Some(tag.as_str())), "{wanted}");
        }
        let by_query = known.replace("/known/", "/object?view=known&key=");
        client.send_text("GET", &by_query, &[("if-none-match", &tag)], "").await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.header("etag")), (304, Some(tag.as_str())), "{by_query}");
        let lines = [("if-none-match", "\"x\""), ("if-none-match", &tag)];
        client.send_text("GET", &known, &lines, "").await;
        assert_eq!(client.reply().await.status, 304, "it may stand in several lines");
        added(&service, &numbered(1)).await;
        let held = take(&service).await;
        service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [held]})).await.ok();
        client.send_text("GET", &known, &[("if-none-match", &tag)], "").await;
        let changed = client.reply().await;
        assert_eq!(changed.status, 200);
        assert_ne!(changed.header("etag"), Some(tag.as_str()));
    }
}

/// Percent-encodes all but letters and digits.
fn encoded(key: &str) -> String {
    percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[tokio::test]
async fn every_key_can_be_written_in_path_and_query() {
    let service = Service::start().await;
    let all = [
        "a/b", "a//b", "/a", "a/", "..", "../x", "a/../b", ".", "%2F", "a%20b", "a b", "a+b", "ü/∞", "?#&=",
        "\"\\",
    ];
    for key in all {
        service.post(&format!("{QUEUE}/add?key={}", encoded(key)), &json!({"n": 1})).await.ok();
        let item = service.get(&format!("{QUEUE}/items/{}", encoded(key))).await.ok();
        assert_eq!((&item["key"], &item["state"]), (&json!(key), &json!("ready")));
        let listed = service.get(&format!("{QUEUE}/items?key={}", encoded(key))).await.ok();
        assert_eq!(listed["items"], json!([item]));
        let held = take(&service).await;
        service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [held]})).await.ok();
        let known = service.get(&format!("{QUEUE}/known/{}", encoded(key))).await;
        assert!(known.header("etag").is_some());
        let known = known.ok();
        assert_eq!(known["key"], key);
        let listed = service.get(&format!("{QUEUE}/known?key={}", encoded(key))).await.ok();
        assert_eq!(listed["items"], json!([known]));
        let gone = service.post(&format!("{QUEUE}/delete?key={}", encoded(key)), &Value::Null).await.ok();
        assert_eq!(gone["queued"], 1);
        let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
        assert_eq!(keys(&popped), [key]);
        let tombstone = &popped["items"][0]["deltas"][0];
        assert_eq!(
            (&tombstone["object"], &tombstone["final_state_unknown"]),
            (&json!({"n": 1}), &json!(true))
        );
    }
    // Slashes need no encoding, not even two of them, if no client or proxy changes the path.
    service.post(&format!("{QUEUE}/add"), &object("x//y/z")).await.ok();
    assert_eq!(service.get(&format!("{QUEUE}/items/x//y/z")).await.ok()["key"], "x//y/z");
    assert_eq!(service.get(&format!("{QUEUE}/items/x%2F/y%2fz")).await.ok()["key"], "x//y/z");
}

#[tokio::test]
async fn a_key_of_several_parts_has_them_encoded() {
    let service = Service::start().await;
    let call = |name: &str| format!("/v1/queues/{name}");
    for (name, pointers, object, key) in [
        (
            "events",
            ["/source", "/id"],
            json!({"source": "https://a.example/b", "id": "50%"}),
            "https:%2F%2Fa.example%2Fb/50%25",
        ),
        (
            "issues",
            ["/repository/full_name", "/number"],
            json!({"repository": {"full_name": "octo/shop"}, "number": 7}),
            "octo%2Fshop/7",
        ),
        (
            "kinds",
            ["/apiVersion", "/kind"],
            json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
            "apps%2Fv1/Deployment",
        ),
    ] {
        service.call("PUT", &call(name), &json!({"key": pointers})).await.ok();
        service.post(&format!("{}/add", call(name)), &object).await.ok();
        let popped = service.post(&format!("{}/pop", call(name)), &Value::Null).await.ok();
        assert_eq!(keys(&popped), [key]);
        let item = service.get(&format!("{}/items/{}", call(name), encoded(key))).await.ok();
        assert_eq!(item["key"], key);
        // An object finds its key by itself, and a key alone is written as the queue writes it.
        let unchanged =
            service.post(&format!("{}/replace?only_changed=true", call(name)), &json!([object])).await;
        assert_eq!(unchanged.ok()["unchanged"], 1);
        let gone = service.post(&format!("{}/delete?key={}", call(name), encoded(key)), &Value::Null).await;
        assert_eq!(gone.ok()["queued"], 1);
        let other = service.post(&format!("{}/add?key=a/b", call(name)), &object).await;
        other.problem("invalid-key");
    }
}
