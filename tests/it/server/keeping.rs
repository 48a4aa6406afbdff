//! Queues in a data directory outlive the process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use deltaq::config::Settings;
use deltaq::server::Error;
use deltaq_journal::sqlite::{Sqlite, Sync};
use deltaq_journal::store::{Opening, Store as _, Writes};
use deltaq_runtime::lifecycle::Shutdown;
use serde_json::{Value, json};

use super::{QUEUE, keys, lease, object};
use crate::harness::{Reply, Service};

/// The data directory of a test, which is removed when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("keeping-{name}-{}", std::process::id()));
        let _absent = std::fs::remove_dir_all(&path);
        Self(path)
    }

    async fn service(&self) -> Service {
        Service::with(self.settings()).await
    }

    fn settings(&self) -> impl FnOnce(&mut Settings) {
        let folder = self.0.clone();
        |settings| {
            settings.storage.in_memory = false;
            settings.storage.data_dir = folder;
        }
    }

    /// Whether the store was closed cleanly.
    async fn was_closed(&self) -> bool {
        let (store, _, opening) = Sqlite::open(&self.0, Sync::Full).await.expect("a store");
        store.close().await;
        opening.clean
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

async fn restarted(service: Service, folder: &Folder) -> Service {
    service.shutdown.signal();
    service.stopped().await;
    folder.service().await
}

fn good(reply: Reply) -> Value {
    assert!((200..300).contains(&reply.status), "{} {}", reply.status, reply.text);
    reply.body
}

#[tokio::test]
async fn indexes_are_built_again_after_a_restart() {
    let folder = Folder::new("indexes");
    let service = folder.service().await;
    good(service.call("PUT", QUEUE, &json!({"indexes": {"by_city": "/city"}})).await);
    let seeds = (0..3_000).map(|number| json!({"object": {"key": number, "city": number % 3}}));
    good(service.post(&format!("{QUEUE}/seed"), &seeds.collect()).await);
    good(service.post(&format!("{QUEUE}/update"), &json!({"key": 0, "city": 1})).await);
    let popped = good(service.post(&format!("{QUEUE}/pop"), &Value::Null).await);
    good(service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [lease(&popped, 0)]})).await);
    let values = format!("{QUEUE}/indexes/by_city?wait=10s");
    let before = good(service.get(&values).await)["items"].take();
    assert_eq!(before[1], json!({"value": "1", "keys": 1_001}));
    let service = restarted(service, &folder).await;
    assert_eq!(good(service.get(&values).await)["items"], before);
    assert_eq!(good(service.get(QUEUE).await)["settings"]["indexes"], json!({"by_city": "/city"}));
}

#[tokio::test]
async fn everything_of_a_queue_outlives_a_restart() {
    let folder = Folder::new("restart");
    let service = folder.service().await;
    let config = json!({"max_failures": 1, "lease": "7m"});
    good(service.call("PUT", QUEUE, &config).await);
    for key in ["known", "parked", "leased", "ready"] {
        good(service.post(&format!("{QUEUE}/add?source=erp"), &object(key)).await);
    }
    let popped = good(service.post(&format!("{QUEUE}/pop?max=3&id=one&worker=w"), &Value::Null).await);
    good(service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [lease(&popped, 0)]})).await);
    let nack = json!({"lease_ids": [lease(&popped, 1)], "error": "no luck"});
    good(service.post(&format!("{QUEUE}/nack"), &nack).await);
    good(service.post(&format!("{QUEUE}/add?delay=1h"), &object("delayed")).await);
    good(service.post(&format!("{QUEUE}/pause"), &Value::Null).await);
    let looks = ["", "/known", "/items?state=ready,delayed,parked", "/synced"];
    let mut before = Vec::new();
    for look in looks {
        before.push(good(service.get(&format!("{QUEUE}{look}")).await));
    }

    let service = restarted(service, &folder).await;
    for (look, mut before) in looks.iter().zip(before) {
        let mut after = good(service.get(&format!("{QUEUE}{look}")).await);
        for document in [&mut before, &mut after] {
            // Time has passed, and the extension of the lease at the start is an event.
            if let Some(status) = document.get_mut("status") {
                status["oldest_ready_age_ms"] = json!(0);
                status["oldest_unacknowledged_age_ms"] = json!(0);
                status["resource_version"] = json!(0);
                // The server counts changes from its start.
                status["changes"] = json!(0);
            }
            document["resource_version"] = json!(0);
            // A life begins at the start.
            document["life"] = json!(null);
        }
        assert_eq!(after, before, "{look}");
    }
    let held = good(service.get(&format!("{QUEUE}/items/leased")).await);
    assert_eq!((&held["lease"]["id"], &held["lease"]["worker"]), (&json!(lease(&popped, 2)), &json!("w")));
    assert!(held["lease"]["expires_in_ms"].as_u64() > Some(400_000), "it has its full length again: {held}");
    let again = good(service.post(&format!("{QUEUE}/pop?max=3&id=one"), &Value::Null).await);
    assert_eq!(keys(&again), ["leased"], "the pop's id still stands for what is left of it");
    let repeated =
        good(service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [lease(&popped, 0)]})).await);
    assert_eq!(repeated["settled"][0]["result"], "repeated");
}

#[tokio::test]
async fn sources_outlive_a_restart() {
    let folder = Folder::new("sources");
    let mut service = folder.service().await;
    good(service.post(&format!("{QUEUE}/replace?source=erp"), &json!([object("a"), object("b")])).await);
    good(service.post(&format!("{QUEUE}/add?source=shop"), &object("b")).await);
    let before = good(service.get(&format!("{QUEUE}/sources")).await)["items"].clone();
    assert_eq!((&before[0]["source"], &before[0]["keys"]), (&json!("erp"), &json!(1)));
    assert_eq!(before[0]["last_replace"]["counts"]["replaced"], 2);
    assert_eq!((&before[1]["source"], &before[1]["keys"]), (&json!("shop"), &json!(1)));
    assert!(before[1]["last_call_at"].is_string() && before[1]["last_replaced_at"].is_null());
    // Once from the events, and once from the checkpoint of a clean end.
    for _ in 0..2 {
        service = restarted(service, &folder).await;
        assert_eq!(good(service.get(&format!("{QUEUE}/sources")).await)["items"], before);
    }
}

#[tokio::test]
async fn sequence_numbers_outlive_a_restart() {
    let folder = Folder::new("sequences");
    let mut service = folder.service().await;
    let call = format!("{QUEUE}/add?source=erp&sequence=7");
    good(service.post(&call, &object("a")).await);
    // Once from the events, and once from the checkpoint of a clean end.
    for _ in 0..2 {
        service = restarted(service, &folder).await;
        assert_eq!(good(service.get(&format!("{QUEUE}/sources")).await)["items"][0]["sequence"], 7);
        assert_eq!(good(service.post(&call, &object("b")).await)["duplicate"], true);
    }
    assert_eq!(service.get(&format!("{QUEUE}/items/b")).await.status, 404);
}

#[tokio::test]
async fn a_queue_of_mode_events_outlives_a_restart() {
    let folder = Folder::new("events");
    let mut service = folder.service().await;
    good(service.call("PUT", QUEUE, &json!({"mode": "events"})).await);
    let post = async |service: &Service, call: &str, body: Value| {
        good(service.post(&format!("{QUEUE}/{call}"), &body).await)
    };
    post(&service, "add", json!([{"key": "a", "v": 1}, {"key": "a", "v": 2}, {"key": "b"}])).await;
    post(&service, "update?delay=1h&source=erp", json!({"key": "a", "v": 3})).await;
    post(&service, "delete?key=gone", Value::Null).await;
    let popped = post(&service, "pop", Value::Null).await;
    // Once from the events, and once from the checkpoint of a clean end.
    for _ in 0..2 {
        service = restarted(service, &folder).await;
        let held = good(service.get(&format!("{QUEUE}/items/a")).await);
        assert_eq!(held["leased_deltas"][0]["object"]["v"], 1, "{held}");
        assert_eq!(
            (&held["deltas"][0]["object"]["v"], &held["deltas"][1]["source"]),
            (&json!(2), &json!("erp"))
        );
    }
    post(&service, "ack", json!({"lease_ids": [lease(&popped, 0)]})).await;
    let popped = post(&service, "pop?max=10", Value::Null).await;
    assert_eq!(keys(&popped), ["a", "b", "gone"]);
    let deletion = &popped["items"][2]["deltas"][0];
    assert_eq!(
        (&deletion["object"], &deletion["final_state_unknown"]),
        (&json!({}), &json!(true)),
        "{popped}"
    );
    let leases = json!({"lease_ids": [lease(&popped, 0), lease(&popped, 1), lease(&popped, 2)]});
    post(&service, "ack", leases).await;
    service = restarted(service, &folder).await;
    let status = good(service.get(QUEUE).await)["status"].clone();
    assert_eq!(
        (&status["ready"], &status["delayed"]),
        (&json!(0), &json!(1)),
        "the last delta is due in an hour"
    );
    assert_eq!(good(service.get(&format!("{QUEUE}/explain/a")).await)["reason"], "delayed");
}

#[tokio::test]
async fn the_schema_and_pruning_outlive_a_restart() {
    let folder = Folder::new("admission");
    let service = folder.service().await;
    let rules =
        json!({"schema": {"required": ["price"], "properties": {"n": {"default": 1}}}, "prune": ["/x"]});
    let config = good(service.call("PUT", QUEUE, &rules).await)["settings"].clone();
    good(service.post(&format!("{QUEUE}/add"), &json!({"key": "a", "price": 1, "x": 1})).await);
    // Once from the events, and once from the checkpoint of a clean end.
    let mut service = service;
    for _ in 0..2 {
        service = restarted(service, &folder).await;
        assert_eq!(good(service.get(QUEUE).await)["settings"], config);
        let refused = service.post(&format!("{QUEUE}/add"), &object("b")).await;
        assert_eq!(refused.problem("invalid-object")["errors"][0]["schema_pointer"], "/required");
        let item = good(service.get(&format!("{QUEUE}/items/a")).await);
        assert_eq!(item["deltas"][0]["object"], json!({"key": "a", "price": 1, "n": 1}));
    }
}

#[tokio::test]
async fn a_number_of_any_length_is_stored_and_delivered_unchanged() {
    let folder = Folder::new("numbers");
    let service = folder.service().await;
    let rules = json!({"schema": {"properties": {"n": {"minimum": 1}}}, "prune": ["/debug"]});
    good(service.call("PUT", QUEUE, &rules).await);
    let number = format!("{}.5e{}", "9".repeat(20_000), "1".repeat(5_000));
    let object = |key: &str| format!("{{\"key\":\"{key}\",\"n\":{number},\"debug\":1}}");
    let (json, ndjson) = ("application/json", "application/x-ndjson");
    let known = format!("[{{\"key\":\"f\",\"object\":{}}}]", object("f"));
    for (path, kind, body) in [
        (format!("{QUEUE}/add"), json, object("a")),
        (format!("{QUEUE}/update"), json, format!("[{}, {}]", object("b"), object("c"))),
        (format!("{QUEUE}/deltas"), json, format!("{{\"type\":\"Added\",\"object\":{}}}", object("d"))),
        (format!("{QUEUE}/replace?source=s&count=1"), ndjson, object("e")),
        ("/v1/queues/seeded/seed".to_owned(), json, known),
    ] {
        let mut client = service.client().await;
        client.send_text("POST", &path, &[("content-type", kind)], &body).await;
        good(client.reply().await);
    }
    let service = restarted(service, &folder).await;
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await;
    let kept = format!("\"n\":{number}}}");
    assert_eq!(popped.text.matches(&kept).count(), 5);
    let known = service.get("/v1/queues/seeded/known").await;
    assert!(known.text.contains(&format!("\"n\":{number},\"debug\":1}}")));
}

#[tokio::test]
async fn traces_outlive_a_restart_and_are_in_the_history() {
    let folder = Folder::new("traces");
    let service = folder.service().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut client = service.client().await;
    let body = object("a").to_string();
    client.send_text("POST", &format!("{QUEUE}/add"), &[("traceparent", trace)], &body).await;
    good(client.reply().await);
    drop(client);
    let service = restarted(service, &folder).await;
    let item = good(service.get(&format!("{QUEUE}/items/a")).await);
    assert_eq!(item["deltas"][0]["traceparent"], trace);
    let history = good(service.get(&format!("{QUEUE}/history/a")).await);
    assert_eq!(history["items"][0]["traceparent"], trace);
}

#[tokio::test]
async fn a_start_that_is_stopped_ends_at_once_and_leaves_the_store_unclean() {
    let folder = Folder::new("early");
    let service = folder.service().await;
    good(service.post(&format!("{QUEUE}/add"), &object("a")).await);
    let service = restarted(service, &folder).await;
    service.shutdown.signal();
    service.stopped().await;
    assert!(folder.was_closed().await);
    let (mut store, _, Opening { epoch, .. }) = Sqlite::open(&folder.0, Sync::Full).await.expect("a store");
    store.write(Writes { epoch, clean: Some(false), ..Writes::default() }).await.expect("it is written");
    store.close().await;

    let shutdown = Shutdown::manual(Duration::ZERO);
    shutdown.signal();
    let stopped = Service::try_with(folder.settings(), shutdown.clone()).await.map(drop);
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    assert_eq!(shutdown.join().await, 0);
    assert!(!folder.was_closed().await, "not all queues were loaded");
    let service = folder.service().await;
    assert_eq!(good(service.get(QUEUE).await)["status"]["ready"], 1);
}

#[tokio::test]
async fn a_deleted_queue_stays_deleted_and_its_numbers_are_not_reused() {
    let folder = Folder::new("deleted");
    let service = folder.service().await;
    let first = good(service.post(&format!("{QUEUE}/add"), &object("a")).await);
    good(service.call("DELETE", QUEUE, &Value::Null).await);
    let service = restarted(service, &folder).await;
    service.get(QUEUE).await.problem("queue-not-found");
    let next = good(service.post(&format!("{QUEUE}/add"), &object("a")).await);
    assert!(next["resource_version"].as_u64() > first["resource_version"].as_u64());
    let service = restarted(service, &folder).await;
    let document = good(service.get(QUEUE).await);
    assert_eq!((&document["auto_created"], &document["status"]["ready"]), (&json!(true), &json!(1)));
}

#[tokio::test]
async fn a_history_lists_the_newest_event_first_in_pages_and_outlives_a_restart() {
    let folder = Folder::new("history");
    let service = folder.service().await;
    good(service.post(&format!("{QUEUE}/add?source=erp"), &json!({"key": "a/b", "n": 1.50})).await);
    good(service.post(&format!("{QUEUE}/add"), &json!({"key": "other", "names": {"key": "a/b"}})).await);
    let popped = good(service.post(&format!("{QUEUE}/pop?worker=w"), &Value::Null).await);
    let nack = json!({"lease_ids": [lease(&popped, 0)], "error": "no luck", "delay": "0s"});
    good(service.post(&format!("{QUEUE}/nack"), &nack).await);
    good(service.post(&format!("{QUEUE}/delete?key=a/b"), &Value::Null).await);

    let service = restarted(service, &folder).await;
    let all = good(service.get(&format!("{QUEUE}/history/a%2Fb")).await);
    let found: Vec<&str> = items(&all).iter().filter_map(|item| item["event"].as_str()).collect();
    assert_eq!(found, ["appended", "settled", "leased", "appended"]);
    assert_eq!(all["continue"], Value::Null);
    let [deleted, settled, leased, added] = items(&all) else { panic!("{all}") };
    assert_eq!((&deleted["type"], &deleted["final_state_unknown"]), (&json!("Deleted"), &json!(true)));
    assert_eq!((&settled["outcome"], &settled["error"]), (&json!("nacked"), &json!("no luck")));
    assert_eq!((&leased["worker"], &leased["lease_id"]), (&json!("w"), &json!(lease(&popped, 0))));
    assert_eq!((&added["type"], &added["source"]), (&json!("Added"), &json!("erp")));
    assert_eq!((&settled["parked"], &settled["due_at"]), (&json!(false), &Value::Null));

    let mut paged = Vec::new();
    let mut next = String::new();
    loop {
        let page = good(service.get(&format!("{QUEUE}/history?key=a/b&limit=1{next}")).await);
        paged.extend(items(&page).to_vec());
        let Some(token) = page["continue"].as_str() else { break };
        next = format!("&continue={token}");
    }
    assert_eq!(paged, items(&all));
    assert_eq!(items(&good(service.get(&format!("{QUEUE}/history/absent")).await)), &[] as &[Value]);
    service.get(&format!("{QUEUE}/history")).await.problem("invalid-parameter");
    service.get(&format!("{QUEUE}/history/a?continue=00")).await.problem("expired");
}

fn items(page: &Value) -> &[Value] {
    page["items"].as_array().expect("a page")
}

#[tokio::test]
async fn a_history_shows_where_a_failed_key_went() {
    let folder = Folder::new("whereto");
    let service = folder.service().await;
    good(service.call("PUT", QUEUE, &json!({"max_failures": 2})).await);
    for (call, more) in
        [("nack", json!({"delay": "1m"})), ("nack", json!({"delay": "1m"})), ("reject", json!({}))]
    {
        good(service.post(&format!("{QUEUE}/add"), &object("a")).await);
        let popped = good(service.post(&format!("{QUEUE}/pop"), &Value::Null).await);
        let mut settle = json!({"lease_ids": [lease(&popped, 0)]});
        settle.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        good(service.post(&format!("{QUEUE}/{call}"), &settle).await);
    }
    let all = good(service.get(&format!("{QUEUE}/history/a")).await);
    let settled = items(&all).iter().filter(|item| item["event"] == "settled");
    let found: Vec<_> = settled
        .map(|item| (item["outcome"].as_str(), item["parked"].as_bool(), item["due_at"].is_string()))
        .collect();
    let expected = [
        (Some("rejected"), Some(true), false),
        (Some("nacked"), Some(true), false),
        (Some("nacked"), Some(false), true),
    ];
    assert_eq!(found, expected);
}
