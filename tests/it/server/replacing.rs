//! Replace over HTTP: large lists with calls in between, and incomplete lists.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{QUEUE, keys, listed, object, objects, status};
use crate::harness::{Client, Reply, Service, within};

const MANY: usize = 200_000;

fn lines(count: usize) -> String {
    let mut text = String::new();
    for index in 0..count {
        let _ = writeln!(text, "{{\"key\":\"k{index:06}\",\"price\":1}}");
    }
    text
}

async fn send_lines(service: &Service, query: &str, text: &str) -> Client {
    let mut client = service.client().await;
    let path = format!("{QUEUE}/replace?{query}");
    client.send_text("POST", &path, &[("content-type", "application/x-ndjson")], text).await;
    client
}

async fn replace_lines(service: &Service, query: &str, text: &str) -> Reply {
    send_lines(service, query, text).await.reply().await
}

/// Waits until a Replace runs.
async fn running(service: &Service) {
    within(async {
        loop {
            let last = status(service, "last_replace").await;
            if last.is_object() && last["ended_at"].is_null() {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn other_calls_run_between_the_slices_of_a_replace_and_are_newer() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    service.post(&format!("{QUEUE}/add?source=erp"), &object("old")).await.ok();
    let mut first = send_lines(&service, &format!("source=erp&count={MANY}"), &lines(MANY)).await;
    running(&service).await;
    // These calls come after the acceptance of the Replace and before its last slices.
    let (updated, deleted) = (format!("k{:06}", MANY - 1), format!("k{:06}", MANY - 2));
    let calls = json!([
        {"type": "Updated", "object": {"key": updated, "price": 2}},
        {"type": "Deleted", "key": deleted},
    ]);
    let made = service.post(&format!("{QUEUE}/deltas"), &calls).await.ok();
    assert_eq!((&made["queued"], &made["ignored"]), (&json!(1), &json!(1)));
    let popped = service.post(&format!("{QUEUE}/pop?max=2"), &Value::Null).await.ok();
    assert_eq!(keys(&popped).len(), 2, "pops go on too");
    let mut second = send_lines(
        &service,
        "source=erp&only_changed=true&max_delete_percent=100",
        "{\"key\":\"k000001\",\"price\":1}\n{\"$end\":1}",
    )
    .await;
    assert!(status(&service, "last_replace").await["ended_at"].is_null(), "all this was while it ran");

    let first = first.reply().await.ok();
    let counts =
        |answer: &Value| ["replaced", "deleted", "unchanged", "skipped"].map(|name| answer[name].as_u64());
    assert_eq!(counts(&first), [Some(MANY as u64 - 2), Some(1), Some(0), Some(2)]);
    let item = |key: String| {
        let service = &service;
        async move { service.get(&format!("{QUEUE}/items/{key}")).await }
    };
    // The second Replace waited, and saw all changes of the first.
    let second = second.reply().await.ok();
    assert_eq!(counts(&second), [Some(0), Some(MANY as u64 - 2), Some(1), Some(0)]);
    let kinds = |item: &Value| -> Vec<Value> {
        item["deltas"].as_array().expect("deltas").iter().map(|delta| delta["type"].clone()).collect()
    };
    assert_eq!(kinds(&item(updated).await.ok()), [json!("Updated"), json!("Deleted")]);
    item(deleted).await.problem("key-not-found");
    let last = status(&service, "last_replace").await;
    assert!(last["ended_at"].is_string() && last["aborted"] == false, "{last}");
}

#[tokio::test]
async fn deleting_the_queue_ends_a_running_replace() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut first = send_lines(&service, &format!("count={MANY}"), &lines(MANY)).await;
    running(&service).await;
    let mut second = send_lines(&service, "count=1", "{\"key\":\"k\"}").await;
    service.get(QUEUE).await.ok();
    assert_eq!(service.call("DELETE", QUEUE, &Value::Null).await.status, 204);
    first.reply().await.problem("queue-deleted");
    // The second call came before the deletion and ended with it, or came after it and created a new queue.
    let second = second.reply().await;
    assert!(second.status == 200 || second.status == 410, "{}", second.text);
}

#[tokio::test]
async fn a_replace_continues_after_its_client_has_disconnected() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let caller = send_lines(&service, &format!("count={MANY}"), &lines(MANY)).await;
    running(&service).await;
    drop(caller);
    within(async { while status(&service, "last_replace").await["ended_at"].is_null() {} }).await;
    assert_eq!(status(&service, "ready").await, MANY);
}

#[tokio::test]
async fn an_incomplete_list_or_a_bad_line_changes_nothing() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/replace"), &objects(&["a", "b"])).await.ok();
    let before = status(&service, "resource_version").await;
    let good = "{\"key\":\"a\"}\n\n{\"key\":\"c\"}\n";
    for (query, text, code, line) in [
        ("", good.to_owned(), "incomplete-list", None),
        ("count=3", good.to_owned(), "incomplete-list", None),
        ("count=1", good.to_owned(), "incomplete-list", None),
        ("", format!("{good}{{\"$end\":3}}"), "incomplete-list", None),
        ("", format!("{good}{{\"$end\":2}}\n{{\"key\":\"d\"}}"), "incomplete-list", Some(5)),
        ("count=2", String::new(), "incomplete-list", None),
        ("count=3", format!("{good}{{\"key\":"), "invalid-json", Some(4)),
        ("count=3", format!("{{\"key\":nul}}\n{good}"), "invalid-json", Some(1)),
        ("count=3", format!("{good}{{\"kez\":\"d\"}}"), "no-key", Some(4)),
        ("count=3", format!("{good}[]"), "invalid-object", Some(4)),
        ("count=3", format!("{{\"key\":\"a\",\"key\":\"b\"}}\n{good}"), "invalid-json", Some(1)),
    ] {
        let problem = replace_lines(&service, query, &text).await.problem(code);
        assert_eq!(problem.get("line"), line.map(|line: u64| json!(line)).as_ref(), "{text}: {problem}");
        assert_eq!(status(&service, "resource_version").await, before, "{text}");
    }
    let known = replace_lines(&service, "", &format!("{good}{{\"$end\":2}}\n\n")).await.ok();
    assert_eq!((&known["replaced"], &known["deleted"]), (&json!(2), &json!(1)));
}

#[tokio::test]
async fn a_cut_off_body_changes_nothing() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/replace"), &objects(&["a", "b"])).await.ok();
    let before = status(&service, "resource_version").await;
    let head = "POST /v1/queues/q/replace?count=1 HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n";
    for body in [
        "content-length: 100\r\n\r\n{\"key\":\"c\"}\n",
        "transfer-encoding: chunked\r\n\r\nc\r\n{\"key\":\"c\"}\n\r\n",
        "transfer-encoding: chunked\r\n\r\nff\r\n{\"key\":\"c\"}\n",
    ] {
        let mut client = service.client().await;
        client.send_bytes(format!("{head}{body}").as_bytes()).await;
        client.end_sending().await;
        client.closed().await;
        assert_eq!(status(&service, "resource_version").await, before, "{body}");
    }
}

#[tokio::test]
async fn blanks_around_an_object_do_not_count_toward_its_length() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"max_object_bytes": 20})).await.ok();
    let mut client = service.client().await;
    for call in ["add", "replace?count=1"] {
        let path = format!("{QUEUE}/{call}");
        for (line, status) in
            [("  {\"key\":\"a\",\"n\":1234} \r\n", 200), ("{\"key\":\"a\",\"n\":12345}\n", 413)]
        {
            client.send_text("POST", &path, &[("content-type", "application/x-ndjson")], line).await;
            let reply = client.reply().await;
            assert_eq!(reply.status, status, "{call} {line}");
            if status == 413 {
                let problem = reply.problem("object-too-large");
                assert_eq!((&problem["limit"], &problem["line"]), (&json!(20), &json!(1)));
            }
        }
    }
}

#[tokio::test]
async fn a_byte_order_mark_is_no_part_of_a_body() {
    let service = Service::start().await;
    let mut client = service.client().await;
    let json = "application/json";
    for (call, kind, text, applied) in [
        ("add", json, "{\"key\":\"a\"}", true),
        ("add", json, "[{\"key\":\"b\"}]", true),
        ("add", "application/x-ndjson", "{\"key\":\"c\"}\n{\"key\":\"d\"}\n", true),
        ("replace?count=1", "application/x-ndjson", "{\"key\":\"e\"}\n", true),
        ("pause", json, "", true),
        ("add", json, "\u{feff}{\"key\":\"f\"}", false),
        ("add", "application/x-ndjson", "{\"key\":\"g\"}\n\u{feff}{\"key\":\"h\"}", false),
    ] {
        let text = format!("\u{feff}{text}");
        client.send_text("POST", &format!("{QUEUE}/{call}"), &[("content-type", kind)], &text).await;
        let reply = client.reply().await;
        assert_eq!(reply.status == 200, applied, "{call} {text:?} {}", reply.text);
    }
    assert_eq!(listed(&service, "ready").await, ["a", "b", "c", "d", "e"]);
}

/// A Replace of the source `erp` in JSON.
async fn replace(service: &Service, query: &str, body: &Value) -> Reply {
    service.post(&format!("{QUEUE}/replace?source=erp{query}"), body).await
}

#[tokio::test]
async fn a_list_that_would_delete_most_keys_is_refused_unless_the_call_allows_it() {
    let service = Service::start().await;
    replace(&service, "", &json!([])).await.ok();
    let names: Vec<String> = (0..12).map(|number| format!("k{number:02}")).collect();
    let all: Value = names.iter().map(|name| object(name)).collect();
    replace(&service, "", &all).await.ok();

    let refused = replace(&service, "", &json!([])).await.problem("mass-delete");
    assert_eq!((&refused["deletions"], &refused["owned"]), (&json!(12), &json!(12)));
    assert_eq!(refused["default_limit"], "empty_list");
    assert!(refused.get("max_deletes").is_none() && refused.get("max_delete_percent").is_none());
    let refused = replace(&service, "", &object("k00")).await.problem("mass-delete");
    assert_eq!(refused["default_limit"], "single_object");
    let refused = replace(&service, "", &json!([object("k00")])).await.problem("mass-delete");
    assert_eq!((&refused["default_limit"], &refused["deletions"]), (&json!("half"), &json!(11)));
    let refused = replace(&service, "&dry_run=true", &json!([])).await.problem("mass-delete");
    assert_eq!(refused["deletions"], 12);
    let refused = replace(&service, "&max_deletes=3", &json!([])).await.problem("mass-delete");
    assert_eq!(refused["max_deletes"], 3);
    assert!(refused.get("default_limit").is_none() && refused.get("max_delete_percent").is_none());
    // A list that is allowed to be empty is not allowed to delete most keys.
    replace(&service, "&allow_empty=true", &json!([object("k00")])).await.problem("mass-delete");
    let lines = replace_lines(&service, "source=erp&count=0", "").await.problem("mass-delete");
    assert_eq!(lines["default_limit"], "empty_list");
    assert_eq!(listed(&service, "ready").await.len(), 12, "nothing was deleted");

    let half: Value = names.iter().take(6).map(|name| object(name)).collect();
    assert_eq!(replace(&service, "", &half).await.ok()["deleted"], 6);
    assert_eq!(replace(&service, "", &json!([object("k00")])).await.ok()["deleted"], 5);
    assert_eq!(replace(&service, "", &object("k00")).await.ok()["deleted"], 0, "a list of one");
    replace(&service, "", &object("k01")).await.problem("mass-delete");
    assert_eq!(replace(&service, "&allow_empty=true", &json!([])).await.ok()["deleted"], 1);
    replace(&service, "", &all).await.ok();
    assert_eq!(replace(&service, "&max_delete_percent=100", &object("k00")).await.ok()["deleted"], 11);
    replace(&service, "", &all).await.ok();
    service.call("PUT", QUEUE, &json!({"max_delete_percent": 100})).await.ok();
    assert_eq!(replace(&service, "", &json!([])).await.ok()["deleted"], 12);

    // The call decides about its empty list, whatever limit the queue sets.
    for limit in [json!({"max_delete_percent": 50}), json!({"max_delete_percent": 50, "max_deletes": 3})] {
        replace(&service, "", &all).await.ok();
        service.call("PUT", QUEUE, &limit).await.ok();
        replace(&service, "", &json!([])).await.problem("mass-delete");
        replace(&service, "&allow_empty=true&max_deletes=3", &json!([])).await.problem("mass-delete");
        assert_eq!(replace(&service, "&allow_empty=true", &json!([])).await.ok()["deleted"], 12);
    }
}

#[tokio::test]
async fn a_list_that_names_a_key_twice_is_refused_with_both_places() {
    let service = Service::start().await;
    let twice = json!([object("a"), {"key": "b", "price": 1}, object("c"), {"key": "b", "price": 2}]);
    for _ in 0..2 {
        let refused = replace(&service, "&only_changed=true", &twice).await.problem("duplicate-key");
        assert_eq!((&refused["first_index"], &refused["index"]), (&json!(1), &json!(3)));
        let detail = refused["detail"].as_str().expect("a text");
        assert!(detail.contains("objects 1 and 3") && detail.contains("\"b\""), "{detail}");
    }
    let lines = "{\"key\":\"a\"}\n\n{\"key\":\"b\"}\n{\"key\":\"c\"}\n\n\n{\"key\":\"b\"}\n{\"$end\":4}\n";
    let refused = replace_lines(&service, "source=erp", lines).await.problem("duplicate-key");
    assert_eq!((&refused["first_line"], &refused["line"]), (&json!(3), &json!(7)));
    assert_eq!((&refused["first_index"], &refused["index"]), (&json!(1), &json!(3)));
    assert_eq!(service.get(QUEUE).await.status, 404, "a refused list creates no queue");

    let kept = replace(&service, "&duplicates=last", &twice).await.ok();
    assert_eq!(kept["replaced"], 3);
    let item = service.get(&format!("{QUEUE}/items/b")).await.ok();
    assert_eq!(item["deltas"].as_array().map(Vec::len), Some(1));
    assert_eq!(item["deltas"][0]["object"]["price"], 2);
    let again = replace(&service, "&duplicates=last&only_changed=true", &twice).await.ok();
    assert_eq!((&again["replaced"], &again["unchanged"]), (&json!(0), &json!(3)), "the list does not flap");
    let kept = replace_lines(&service, "source=erp&duplicates=last", lines).await.ok();
    assert_eq!(kept["replaced"], 3);
    replace(&service, "&duplicates=first", &twice).await.problem("invalid-parameter");
}
