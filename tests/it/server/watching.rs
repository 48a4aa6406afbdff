//! Watches over HTTP: rows, transports, positions, restarts.

use std::collections::BTreeSet;

use axum::body::to_bytes;
use serde_json::{Value, json};

use super::commits::Bench;
use super::{QUEUE, objects};
use crate::harness::{Client, Reply, Service, said};

/// A streamed watch.
struct Watch {
    client: Client,
    /// Rows that were received and not returned.
    rows: Vec<Value>,
}

impl Watch {
    async fn begin(service: &Service, query: &str) -> Self {
        let mut client = service.send("GET", &format!("{QUEUE}/watch?{query}"), &Value::Null).await;
        let (status, headers) = client.head().await.expect("a head");
        assert_eq!(status, 200);
        assert!(headers.contains(&("content-type".into(), "application/x-ndjson".into())), "{headers:?}");
        Self { client, rows: Vec::new() }
    }

    /// The next row; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        while self.rows.is_empty() {
            let chunk = self.client.chunk().await.expect("the stream ends completely")?;
            let text = String::from_utf8(chunk).expect("text");
            self.rows = text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
        }
        Some(self.rows.remove(0))
    }

    async fn row(&mut self) -> Value {
        self.next().await.expect("a row")
    }
}

async fn poll(service: &Service, query: &str) -> Value {
    let mut client = service.client().await;
    let path = format!("{QUEUE}/watch?{query}");
    client.send_text("GET", &path, &[("accept", "application/json")], "").await;
    client.reply().await.ok()
}

async fn refused(service: &Service, query: &str, code: &str) -> Value {
    let mut client = service.send("GET", &format!("{QUEUE}/watch?{query}"), &Value::Null).await;
    let (status, headers) = client.head().await.expect("a head");
    assert!(status >= 400, "{query} is accepted, and its stream does not end");
    let text = client.body(status, &headers).await.expect("a body");
    let text = String::from_utf8(text).expect("text");
    let body = serde_json::from_str(&text).expect("a problem");
    Reply { status, headers, text, body }.problem(code)
}

async fn post(service: &Service, call: &str, body: Value) -> Value {
    service.post(&format!("{QUEUE}/{call}"), &body).await.ok()
}

/// Acknowledges everything that waits.
async fn ack_all(service: &Service) {
    let items = post(service, "pop?max=100", json!({})).await["items"].take();
    let leases: Vec<&Value> =
        items.as_array().expect("a list").iter().map(|item| &item["lease"]["id"]).collect();
    post(service, "ack", json!({ "lease_ids": leases })).await;
}

fn keys(rows: &Value) -> Vec<&str> {
    rows.as_array().expect("rows").iter().map(|row| row["key"].as_str().unwrap_or("-")).collect()
}

#[tokio::test]
async fn a_watch_sends_all_keys_and_then_each_change() {
    let service = Service::start().await;
    let added = post(&service, "add", json!([{"key": "a", "v": 1}, {"key": "b"}])).await;
    let second = added["resource_version"].as_u64().expect("a version");
    let mut watch = Watch::begin(&service, "resource_version=0").await;
    let row = json!({"type": "Added", "key": "a", "resource_version": second - 1, "object": {"key": "a", "v": 1}, "source": null});
    assert_eq!(watch.row().await, row);
    assert_eq!(watch.row().await["key"], "b");
    let end = json!({"type": "Bookmark", "resource_version": second, "initial_events_end": true});
    assert_eq!(watch.row().await, end);

    post(&service, "update?source=erp", json!({"key": "a", "v": 2})).await;
    let row = json!({"type": "Updated", "key": "a", "resource_version": second + 1, "object": {"key": "a", "v": 2}, "source": "erp"});
    assert_eq!(watch.row().await, row);
    post(&service, "delete?key=b", Value::Null).await;
    let row = json!({"type": "Deleted", "key": "b", "resource_version": second + 2, "object": {"key": "b"}, "source": null, "final_state_unknown": true});
    assert_eq!(watch.row().await, row);
    // Deliveries and acknowledgements change nothing in the view.
    ack_all(&service).await;
    post(&service, "add", json!({"key": "b", "v": 9})).await;
    let row = watch.row().await;
    assert_eq!((&row["type"], &row["key"]), (&json!("Added"), &json!("b")));

    // A reader that lags gets each key once.
    let late = poll(&service, &format!("resource_version={second}")).await;
    assert_eq!(keys(&late["items"]), ["a", "b"]);
    assert_eq!(late["items"][0]["type"], "Updated");
    assert_eq!(late["items"][1]["type"], "Added", "the key was deleted and added again");
}

#[tokio::test]
async fn the_view_known_has_what_was_acknowledged() {
    let service = Service::start().await;
    post(&service, "add", json!({"key": "a", "v": 1})).await;
    let mut watch = Watch::begin(&service, "view=known&resource_version=now").await;
    ack_all(&service).await;
    let row = watch.row().await;
    assert_eq!((&row["type"], &row["object"]), (&json!("Added"), &json!({"key": "a", "v": 1})));
    let known = service.get(&format!("{QUEUE}/known/a")).await.ok();
    assert_eq!(row["resource_version"], known["resource_version"]);
    post(&service, "delete", json!({"key": "a", "v": 2})).await;
    ack_all(&service).await;
    let row = watch.row().await;
    assert_eq!((&row["type"], &row["object"]), (&json!("Deleted"), &json!({"key": "a", "v": 2})));
    assert_eq!(row["final_state_unknown"], false);
}

#[tokio::test]
async fn a_long_poll_waits_and_goes_on_where_it_ended() {
    let service = Service::start().await;
    post(&service, "add", objects(&["a", "b", "c"])).await;
    let first = poll(&service, "send_initial_events=true&limit=2").await;
    assert_eq!(keys(&first["items"]), ["a", "b"]);
    let token = first["continue"].as_str().expect("a token");
    let rest = poll(&service, &format!("continue={token}")).await;
    assert_eq!(keys(&rest["items"]), ["c", "-"]);
    assert_eq!(rest["items"][1]["initial_events_end"], true);
    assert_eq!(rest["continue"], Value::Null);

    let after = rest["resource_version"].as_u64().expect("a version");
    let path = format!("{QUEUE}/watch?resource_version={after}&wait=30s");
    let mut client = service.client().await;
    client.send_text("GET", &path, &[("accept", "application/json")], "").await;
    post(&service, "update", json!({"key": "b"})).await;
    let page = client.reply().await.ok();
    assert_eq!(keys(&page["items"]), ["b"]);
    assert_eq!(page["resource_version"], page["items"][0]["resource_version"]);
    let nothing = poll(&service, &format!("resource_version={}", page["resource_version"])).await;
    assert_eq!(nothing["items"], json!([]));
}

#[tokio::test]
async fn prefixes_and_shards_select_keys() {
    let service = Service::start().await;
    let all: Vec<String> = (0..40).map(|number| format!("{}-{number}", ["a", "b"][number % 2])).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    post(&service, "add", objects(&names)).await;
    let page = poll(&service, "resource_version=0&prefix=a-").await;
    let found = keys(&page["items"]);
    assert_eq!(found.len(), 21, "20 keys and the bookmark");
    assert!(found[..20].iter().all(|key| key.starts_with("a-")));

    let mut seen = BTreeSet::new();
    for shard in 0..3 {
        let page = poll(&service, &format!("resource_version=0&shard={shard}/3")).await;
        for key in keys(&page["items"]).into_iter().filter(|key| *key != "-") {
            assert_eq!(crc32c::crc32c(key.as_bytes()) % 3, shard);
            assert!(seen.insert(key.to_owned()), "{key} is in two shards");
        }
    }
    assert_eq!(seen.len(), 40);
}

#[tokio::test]
async fn events_have_ids_from_which_a_browser_goes_on() {
    let service = Service::start().await;
    let added = post(&service, "add", objects(&["a"])).await;
    let first = added["resource_version"].as_u64().expect("a version");
    let path = format!("{QUEUE}/watch?resource_version=0");
    let mut client = service.client().await;
    client.send_text("GET", &path, &[("accept", "text/event-stream")], "").await;
    let (_, headers) = client.head().await.expect("a head");
    assert!(headers.contains(&("content-type".into(), "text/event-stream".into())));
    let text = String::from_utf8(client.chunk().await.expect("a stream").expect("rows")).expect("text");
    let life = service.get(QUEUE).await.ok()["life"].as_str().expect("a text").to_owned();
    let event = format!(
        "event: Added\ndata: {{\"type\":\"Added\",\"key\":\"a\",\"resource_version\":{first},\"object\":{{\"key\":\"a\"}},\"source\":null}}\n\n"
    );
    assert!(text.starts_with(&format!("retry: 1000\n\nid: {life}-{first}-{first}\n{event}")), "{text}");

    // An id within the keys that are sent first goes on with them.
    let in_list = format!("{life}-0-{first}");
    let mut client = service.client().await;
    client.send_text("GET", &path, &[("accept", "text/event-stream"), ("last-event-id", &in_list)], "").await;
    client.head().await.expect("a head");
    let text = String::from_utf8(client.chunk().await.expect("a stream").expect("rows")).expect("text");
    assert!(text.contains("event: Added\n") && text.contains("initial_events_end"), "{text}");

    post(&service, "update", objects(&["a"])).await;
    let id = format!("{life}-{first}");
    let again = [("accept", "text/event-stream"), ("last-event-id", id.as_str())];
    let mut client = service.client().await;
    client.send_text("GET", &path, &again, "").await;
    client.head().await.expect("a head");
    let text = String::from_utf8(client.chunk().await.expect("a stream").expect("rows")).expect("text");
    assert!(text.contains("event: Updated\n"), "the id counts, not the parameter: {text}");
}

#[tokio::test]
async fn a_watch_goes_on_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = || {
        let folder = folder.path().to_owned();
        Service::with(|settings| {
            settings.storage.in_memory = false;
            settings.storage.data_dir = folder;
        })
    };
    let service = start().await;
    post(&service, "add", json!([{"key": "stays"}, {"key": "goes", "v": 1}, {"key": "quiet"}])).await;
    let listed = poll(&service, "resource_version=0").await["resource_version"].as_u64().expect("a version");
    post(&service, "delete", json!({"key": "goes", "v": 2})).await;
    post(&service, "add", json!({"key": "comes"})).await;
    post(&service, "update", json!({"key": "stays", "v": 3})).await;
    ack_all(&service).await;
    service.shutdown.signal();
    service.stopped().await;

    let service = start().await;
    let page = poll(&service, &format!("resource_version={listed}")).await;
    let rows: Vec<Value> = page["items"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| json!([row["type"], row["object"]]))
        .collect();
    let expected = [
        json!(["Deleted", {"key": "goes", "v": 2}]),
        json!(["Added", {"key": "comes"}]),
        json!(["Updated", {"key": "stays", "v": 3}]),
    ];
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn positions_that_can_not_be_continued_are_refused() {
    let service = Service::start().await;
    let added = post(&service, "add", objects(&["a", "b"])).await;
    let second = added["resource_version"].as_u64().expect("a version");
    post(&service, "delete", objects(&["a"])).await;
    let reason = async |version: u64| {
        refused(&service, &format!("resource_version={version}"), "expired").await["reason"].clone()
    };
    assert_eq!((reason(second + 9).await, reason(9).await), (json!("ahead"), json!("lost")));
    // Without a journal, nothing says what happened before the first reader.
    assert_eq!(reason(second).await, "too_old");

    let newest =
        poll(&service, "resource_version=now").await["resource_version"].as_u64().expect("a version");
    service.call("DELETE", QUEUE, &Value::Null).await.ok();
    service.call("PUT", QUEUE, &json!({})).await.ok();
    refused(&service, &format!("resource_version={newest}"), "expired").await;
    post(&service, "add", objects(&["a"])).await;
    refused(&service, &format!("resource_version={newest}"), "expired").await;
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let service = Service::start().await;
    refused(&service, "resource_version=now", "queue-not-found").await;
    post(&service, "add", objects(&["a"])).await;
    for (query, detail) in [
        ("resource_version=now&view=newest", "view"),
        ("resource_version=x", "resource_version"),
        ("resource_version=-1", "resource_version"),
        ("resource_version=%2B1", "resource_version"),
        ("resource_version=now&shard=%2B0/4", "I/N with I from 0 to N - 1"),
        ("resource_version=1-2-3-4", "resource_version"),
        ("resource_version=now&shard=4/4", "I/N with I from 0 to N - 1"),
        ("resource_version=now&bookmark=2m", "bookmark"),
        ("resource_version=now&wait=1s", "accept: application/json"),
        ("resource_version=99&limit=0", "limit"),
    ] {
        let problem = refused(&service, query, "invalid-parameter").await;
        assert!(said(&problem).contains(detail), "{problem}");
    }
    for (accept, kind) in [
        ("application/json;q=0.5, text/event-stream", "text/event-stream"),
        ("application/json, text/event-stream", "application/json"),
        ("text/html, text/*;q=0.9, */*;q=0.1", "text/event-stream"),
    ] {
        let mut client = service.client().await;
        client
            .send_text("GET", &format!("{QUEUE}/watch?resource_version=now"), &[("accept", accept)], "")
            .await;
        let (_, headers) = client.head().await.expect("a head");
        assert!(headers.contains(&("content-type".into(), kind.into())), "{accept}: {headers:?}");
    }
    for accept in ["text/html", "application/json;q=0"] {
        for path in ["watch?resource_version=now", "items"] {
            let mut client = service.client().await;
            client.send_text("GET", &format!("{QUEUE}/{path}"), &[("accept", accept)], "").await;
            client.reply().await.problem("not-acceptable");
        }
    }
}

#[tokio::test]
async fn a_stream_ends_with_a_bookmark_when_the_server_drains() {
    let service = Service::start().await;
    let added = post(&service, "add", objects(&["a"])).await;
    let mut watch = Watch::begin(&service, "resource_version=now").await;
    service.shutdown.signal();
    assert_eq!(
        watch.row().await,
        json!({"type": "Bookmark", "resource_version": added["resource_version"], "initial_events_end": false})
    );
    assert_eq!(watch.next().await, None);
    drop(watch);
    service.stopped().await;
}

/// The queue moves before the stream is read.
#[tokio::test]
async fn a_stream_ends_with_a_bookmark_when_the_queue_is_at_another_node() {
    let bench = Bench::with_queue().await;
    bench.post("/add", &objects(&["a"])).await;
    let stream = bench.call("GET", "/watch?resource_version=now", &Value::Null).await;
    let version = bench.post("/add", &objects(&["b"])).await["resource_version"].as_u64();
    bench.registry.leave();
    let rest = to_bytes(stream.into_body(), usize::MAX).await.expect("a whole reply");
    let row: Value = serde_json::from_slice(&rest).expect("one row");
    // The stream was not read in time to have the last change. The client gets that change from the other node.
    let expected = json!({"type": "Bookmark", "resource_version": version.map(|version| version - 1), "initial_events_end": false});
    assert_eq!(row, expected);
}

#[tokio::test]
async fn a_stream_ends_with_the_problem_when_the_queue_is_deleted() {
    let service = Service::start().await;
    post(&service, "add", objects(&["a"])).await;
    let mut watch = Watch::begin(&service, "resource_version=now").await;
    service.call("DELETE", QUEUE, &Value::Null).await.ok();
    let row = watch.row().await;
    assert_eq!((&row["type"], &row["problem"]["code"]), (&json!("Error"), &json!("queue-deleted")));
    assert_eq!(watch.next().await, None);
}
