//! Watches: where they begin, what they select, and how they end.

use std::time::Duration;

use deltaq_types::duration::DurationText;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ALL, Events, HANDSHAKE, SHOP, add, create_prices, delete, refused, settings, shop};
use crate::harness::Service;

/// The shop with a journal, in which former objects can be looked up.
async fn stored_shop(folder: &TempDir) -> Service {
    let service = Service::with(|settings| {
        settings.kubernetes.enabled = true;
        settings.storage.in_memory = false;
        folder.path().clone_into(&mut settings.storage.data_dir);
    })
    .await;
    create_prices(&service).await;
    service
}

#[tokio::test]
async fn a_version_that_can_not_go_on_ends_the_watch_with_an_error_of_code_410() {
    let service = Service::with(|settings| {
        settings.kubernetes.enabled = true;
        settings.watch.tombstones = 1;
    })
    .await;
    create_prices(&service).await;
    let old = add(&service, "a", &json!({}), 1).await;
    let watch = |version: u64| format!("{ALL}?watch=1&resourceVersion={version}");
    let mut present = Events::open(&service, &watch(old)).await;
    add(&service, "b", &json!({}), 1).await;
    assert_eq!(present.seen().await, "ADDED b");
    delete(&service, "a").await;
    let newest = delete(&service, "b").await;
    for version in [old, newest + 1_000] {
        let mut events = Events::open(&service, &watch(version)).await;
        assert_eq!(events.seen().await, "ERROR 410", "{version}");
        assert_eq!(events.seen().await, "end");
    }
    // A queue of this name is another one.
    service.call("DELETE", "/v1/queues/prices", &Value::Null).await.ok();
    create_prices(&service).await;
    add(&service, "a", &json!({}), 1).await;
    let mut events = Events::open(&service, &watch(newest)).await;
    assert_eq!(events.seen().await, "ERROR 410");
}

#[tokio::test]
async fn an_object_enters_and_leaves_the_labels_of_a_watch() {
    let service = shop().await;
    let (on, off) = (json!({ "on": "yes" }), json!({ "on": "no" }));
    add(&service, "a", &on, 1).await;
    add(&service, "b", &off, 1).await;
    let path = format!("{SHOP}?watch=1&labelSelector=on%3Dyes");
    let mut events = Events::open(&service, &path).await;
    assert_eq!(events.seen().await, "ADDED a");
    let left = add(&service, "a", &off, 2).await;
    let event = events.next().await.expect("an event");
    assert_eq!((&event["type"], &event["object"]["n"]), (&json!("DELETED"), &json!(1)), "as it was");
    assert_eq!(event["object"]["metadata"]["labels"], on);
    assert_eq!(event["object"]["metadata"]["resourceVersion"], left.to_string());
    add(&service, "b", &on, 2).await;
    assert_eq!(events.seen().await, "ADDED b");
    add(&service, "a", &off, 3).await;
    add(&service, "b", &on, 3).await;
    assert_eq!(events.seen().await, "MODIFIED b");
    delete(&service, "a").await;
    delete(&service, "b").await;
    assert_eq!(events.seen().await, "DELETED b");
}

#[tokio::test]
async fn a_watch_with_labels_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = stored_shop(&folder).await;
    let (on, off) = (json!({ "on": "yes" }), json!({ "on": "no" }));
    for (name, labels) in
        [("enters", &off), ("leaves", &on), ("stays", &on), ("deleted", &on), ("never", &off), ("later", &on)]
    {
        add(&service, name, labels, 1).await;
    }
    let version = add(&service, "last", &off, 1).await;
    add(&service, "enters", &on, 2).await;
    add(&service, "leaves", &off, 2).await;
    add(&service, "stays", &on, 2).await;
    delete(&service, "deleted").await;
    delete(&service, "never").await;
    add(&service, "new", &on, 1).await;
    let path = format!("{SHOP}?watch=1&labelSelector=on%3Dyes&resourceVersion={version}");
    let mut events = Events::open(&service, &path).await;
    let expected = "ADDED enters, ADDED leaves, DELETED leaves, MODIFIED stays, ADDED deleted, DELETED deleted, ADDED new";
    for expected in expected.split(", ") {
        assert_eq!(events.seen().await, expected);
    }
    add(&service, "later", &off, 2).await;
    assert_eq!(events.seen().await, "DELETED later");
}

/// A server without a journal does not know the former labels.
#[tokio::test]
async fn a_watch_with_labels_begins_again_if_the_former_labels_are_not_kept() {
    let service = shop().await;
    let version = add(&service, "a", &json!({ "on": "yes" }), 1).await;
    add(&service, "a", &json!({ "on": "no" }), 2).await;
    let path = format!("{SHOP}?watch=1&labelSelector=on%3Dyes&resourceVersion={version}");
    let mut events = Events::open(&service, &path).await;
    assert_eq!(events.seen().await, "ERROR 410");
}

/// fabric8 begins every watch as a WebSocket, reads the whole reply, and goes over to a plain watch only after 200.
#[tokio::test]
async fn a_watch_over_a_web_socket_is_refused_with_a_reply_that_ends() {
    let service = shop().await;
    add(&service, "a", &json!({}), 1).await;
    let path = format!("{ALL}?allowWatchBookmarks=true&watch=true&timeoutSeconds=600");
    let mut client = service.client().await;
    client.send_text("GET", &path, &HANDSHAKE, "").await;
    let reply = client.reply().await;
    let event: Value = serde_json::from_str(&reply.text).expect("one event");
    assert_eq!((reply.status, &event["type"]), (200, &json!("ERROR")));
    let status = &event["object"];
    assert_eq!(
        (&status["kind"], &status["code"], &status["reason"]),
        (&json!("Status"), &json!(400), &json!("BadRequest"))
    );
    assert!(status["message"].as_str().is_some_and(|message| message.contains("WebSocket")), "{status}");
    let mut events = Events::open(&service, &path).await;
    assert_eq!(events.seen().await, "ADDED a");
    client.send_text("GET", "/apis/shop.example/v1/nopes?watch=true", &HANDSHAKE, "").await;
    refused(client.reply().await, 404, "NotFound");
}

#[tokio::test]
async fn a_server_that_stops_ends_its_watches_with_a_bookmark() {
    let service = shop().await;
    let version = add(&service, "a", &json!({}), 1).await;
    let with = format!("{ALL}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    let without = format!("{ALL}?watch=1&resourceVersion={version}");
    let (mut with, mut without) =
        (Events::open(&service, &with).await, Events::open(&service, &without).await);
    service.shutdown.drain();
    let bookmark = with.next().await.expect("a bookmark");
    assert_eq!(bookmark["type"], "BOOKMARK");
    let expected = json!({ "kind": "Price", "apiVersion": "shop.example/v1", "metadata": { "resourceVersion": version.to_string() } });
    assert_eq!(bookmark["object"], expected);
    assert_eq!((with.seen().await, without.seen().await), ("end".to_owned(), "end".to_owned()));
}

/// A watch without bookmarks may have nothing to send for hours: its connection is not idle.
#[tokio::test]
async fn a_silent_watch_keeps_its_connection() {
    let service = Service::with(|settings| {
        settings.kubernetes.enabled = true;
        settings.server.idle_timeout = DurationText::from_us(1_000_000);
    })
    .await;
    create_prices(&service).await;
    let mut events = Events::open(&service, &format!("{ALL}?watch=1&timeoutSeconds=60")).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    add(&service, "a", &json!({}), 1).await;
    assert_eq!(events.seen().await, "ADDED a");
}

#[tokio::test]
async fn all_readers_of_a_change_see_it_as_they_have_asked() {
    let service = shop().await;
    let version = add(&service, "a", &json!({}), 1).await;
    let path = format!("{ALL}?watch=1&resourceVersion={version}");
    let mut own = service
        .send("GET", &format!("/v1/queues/prices/watch?resource_version={version}"), &Value::Null)
        .await;
    let mut both = [Events::open(&service, &path).await, Events::open(&service, &path).await];
    own.head().await.expect("a head");
    add(&service, "b", &json!({}), 1).await;
    for events in &mut both {
        let event = events.next().await.expect("an event");
        assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("Price")));
    }
    let row = own.chunk().await.expect("a row").expect("a row");
    let row: Value = serde_json::from_slice(&row).expect("JSON");
    assert_eq!((&row["type"], &row["key"]), (&json!("Added"), &json!("shop/b")));
}

/// The objects of another view are others: no version from before goes on.
#[tokio::test]
async fn a_resource_that_has_changed_is_read_anew() {
    let service = shop().await;
    add(&service, "a", &json!({}), 1).await;
    let version = add(&service, "b", &json!({}), 1).await;
    let first = service.get(&format!("{ALL}?limit=1")).await.ok();
    let next = first["metadata"]["continue"].as_str().expect("a token").to_owned();
    let path = format!("{ALL}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    let mut open = Events::open(&service, &path).await;
    for setting in
        [json!(null), settings("known")["kubernetes"].clone(), settings("latest")["kubernetes"].clone()]
    {
        service.call("PATCH", "/v1/queues/prices", &json!({ "kubernetes": setting })).await.ok();
    }
    add(&service, "c", &json!({}), 1).await;
    // A bookmark behind the change that the watch has not sent would hide it.
    assert_eq!(open.seen().await, "ADDED c");
    refused(service.get(&format!("{ALL}?continue={next}")).await, 410, "Expired");
    let mut events = Events::open(&service, &path).await;
    assert_eq!(events.seen().await, "ERROR 410");
}

#[tokio::test]
async fn an_object_that_comes_back_without_the_labels_has_left_the_watch() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = stored_shop(&folder).await;
    let version = add(&service, "a", &json!({ "on": "yes" }), 1).await;
    delete(&service, "a").await;
    add(&service, "a", &json!({ "on": "no" }), 2).await;
    let path = format!("{SHOP}?watch=1&labelSelector=on%3Dyes&resourceVersion={version}");
    let mut events = Events::open(&service, &path).await;
    // A client that has listed in pages may have read the page when the object was not selected any more.
    assert_eq!((events.seen().await, events.seen().await), ("ADDED a".to_owned(), "DELETED a".to_owned()));
    // It may also have a state that came after the version of its list.
    for (labels, n) in [("yes", 3), ("no", 4)] {
        add(&service, "a", &json!({ "on": labels }), n).await;
    }
    let newest = service.get(&format!("{SHOP}/a")).await.ok();
    let before: u64 =
        newest["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number");
    let path = format!("{SHOP}?watch=1&labelSelector=on%3Dyes&resourceVersion={}", before - 2);
    let mut events = Events::open(&service, &path).await;
    let entered = events.next().await.expect("an event");
    let version = &entered["object"]["metadata"]["resourceVersion"];
    assert_eq!((&entered["type"], version), (&json!("ADDED"), &json!((before - 1).to_string())));
    assert_eq!(entered["object"]["metadata"]["labels"], json!({ "on": "yes" }));
    assert_eq!(events.seen().await, "DELETED a");
}

#[tokio::test]
async fn an_object_that_has_entered_the_labels_and_changed_since_is_added() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = stored_shop(&folder).await;
    let version = add(&service, "a", &json!({ "on": "no" }), 1).await;
    for n in [2, 3] {
        add(&service, "a", &json!({ "on": "yes" }), n).await;
    }
    let path = format!("{SHOP}?watch=1&labelSelector=on%3Dyes&resourceVersion={version}");
    let mut events = Events::open(&service, &path).await;
    assert_eq!(events.seen().await, "ADDED a");
}

#[tokio::test]
async fn the_versions_of_a_watch_with_labels_do_not_go_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = stored_shop(&folder).await;
    let version = add(&service, "a", &json!({ "on": "no" }), 1).await;
    add(&service, "a", &json!({ "on": "yes" }), 2).await;
    let other = add(&service, "b", &json!({ "on": "yes" }), 3).await;
    add(&service, "a", &json!({ "on": "no" }), 4).await;
    let path = format!("{SHOP}?watch=1&labelSelector=on%3Dyes&resourceVersion={version}");
    let mut events = Events::open(&service, &path).await;
    assert_eq!(events.seen().await, "ADDED b");
    let entered = events.next().await.expect("an event");
    let version = &entered["object"]["metadata"]["resourceVersion"];
    assert_eq!((&entered["type"], version), (&json!("ADDED"), &json!(other.to_string())));
    assert_eq!(events.seen().await, "DELETED a");
}

#[tokio::test]
async fn any_time_of_a_watch_is_taken() {
    let service = shop().await;
    add(&service, "a", &json!({}), 1).await;
    for seconds in ["-1", "0", "9223372036854775807"] {
        let mut events = Events::open(&service, &format!("{ALL}?watch=1&timeoutSeconds={seconds}")).await;
        assert_eq!(events.seen().await, "ADDED a", "{seconds}");
    }
}
