//! `skip_invalid`: a call leaves out objects that are not valid.

use serde_json::{Value, json};

use super::{QUEUE, listed};
use crate::harness::{Reply, Service};

/// The settings of a queue whose objects have a price, and at most 1 KiB.
fn settings() -> Value {
    json!({ "schema": { "properties": { "price": { "type": "number" } } }, "max_object_bytes": 1024 })
}

async fn send(service: &Service, call: &str, lines: &[&str]) -> Reply {
    let mut client = service.client().await;
    let text = lines.join("\n");
    let path = format!("{QUEUE}/{call}");
    client.send_text("POST", &path, &[("content-type", "application/x-ndjson")], &text).await;
    client.reply().await
}

/// Objects with the keys of a range, and the line that ends a list of so many and `more`.
fn list(count: usize, more: &[&str]) -> Vec<String> {
    let mut lines: Vec<_> =
        (0..count).map(|number| format!("{{\"key\":\"k{number:02}\",\"price\":1}}")).collect();
    lines.extend(more.iter().map(|line| (*line).to_owned()));
    lines.push(format!("{{\"$end\":{}}}", count + more.len()));
    lines
}

async fn replace(service: &Service, options: &str, lines: &[String]) -> Reply {
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    send(service, &format!("replace?source=erp&only_changed=true{options}"), &lines).await
}

fn too_large(key: &str) -> String {
    json!({ "key": key, "text": "x".repeat(2_000) }).to_string()
}

#[tokio::test]
async fn a_list_leaves_out_what_is_not_valid_and_deletes_none_of_it() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &settings()).await.ok();
    replace(&service, "", &list(30, &[])).await.ok();
    // Keys 28 and 29 have objects that are not valid, and 27 is gone.
    for (wrong, code) in [
        ("{\"key\":\"k28\",\"price\":\"a\"}".to_owned(), "invalid-object"),
        (too_large("k28"), "object-too-large"),
        ("{\"key\":\"k28\",\"price\":\"\\ud800\"}".to_owned(), "invalid-json"),
        ("{\"price\":NaN,\"key\":\"k28\"}NaN".to_owned(), "invalid-json"),
        ("{\"key\":\"k28\",\"price\":1}NaN".to_owned(), "invalid-json"),
    ] {
        let lines = list(27, &[&too_large("k29"), &wrong]);
        replace(&service, "", &lines).await.problem("object-too-large");
        let replaced = replace(&service, "&skip_invalid=true&max_deletes=1", &lines).await.ok();
        assert_eq!((&replaced["deleted"], &replaced["unchanged"]), (&json!(1), &json!(27)), "{replaced}");
        assert_eq!(replaced["invalid"], 2);
        let left_out = replaced["invalid_objects"].as_array().expect("a list");
        assert_eq!((&left_out[0]["index"], &left_out[0]["key"]), (&json!(27), &json!("k29")));
        assert_eq!(
            (&left_out[1]["index"], &left_out[1]["key"], &left_out[1]["code"]),
            (&json!(28), &json!("k28"), &json!(code))
        );
        for key in ["k28", "k29"] {
            let row = service.get(&format!("{QUEUE}/latest/{key}")).await.ok();
            assert_eq!(row["object"]["price"], 1, "it keeps what it has");
        }
        replace(&service, "", &list(30, &[])).await.ok();
    }
}

#[tokio::test]
async fn a_list_with_an_unreadable_key_deletes_nothing() {
    let service = Service::start().await;
    replace(&service, "", &list(30, &[])).await.ok();
    for wrong in
        ["{\"price\":1}", "{\"key\":null}", "{\"key\":\"\\ud800\"}", "{\"key\":\"", "[]", "{\"key\":[1]}"]
    {
        let replaced = replace(&service, "&skip_invalid=true", &list(20, &[wrong])).await.ok();
        assert_eq!(
            (&replaced["deleted"], &replaced["invalid"]),
            (&json!(0), &json!(1)),
            "{wrong}: {replaced}"
        );
        assert_eq!(replaced["invalid_objects"][0]["key"], Value::Null);
        let dry = replace(&service, "&skip_invalid=true&dry_run=true", &list(20, &[wrong])).await.ok();
        assert_eq!(dry["deleted"], 0);
    }
    assert_eq!(listed(&service, "ready").await.len(), 30);
    assert_eq!(replace(&service, "", &list(20, &[])).await.ok()["deleted"], 10, "a valid list deletes them");
}

#[tokio::test]
async fn a_text_that_can_not_be_a_key_is_named_and_stops_no_deletion() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &settings()).await.ok();
    replace(&service, "", &list(30, &[])).await.ok();
    let long = "x".repeat(1_025);
    for (key, named) in [
        (json!(long), &long[..1_024]),
        (json!("a\nb"), "a\nb"),
        (json!("a\u{0}"), "a\u{0}"),
        (json!("a\u{85}"), "a\u{85}"),
    ] {
        for wrong in [json!({ "key": key }), json!({ "key": key, "price": "x", "text": "x".repeat(2_000) })] {
            let replaced =
                replace(&service, "&skip_invalid=true", &list(28, &[&wrong.to_string()])).await.ok();
            assert_eq!((&replaced["deleted"], &replaced["invalid"]), (&json!(2), &json!(1)), "{replaced}");
            assert_eq!(replaced["invalid_objects"][0]["key"], named);
            replace(&service, "", &list(30, &[])).await.ok();
        }
    }
    // A line that is not JSON.
    let cut = "{\"key\":\"a\\tb\"}NaN";
    let replaced = replace(&service, "&skip_invalid=true", &list(28, &[cut])).await.ok();
    assert_eq!((&replaced["deleted"], &replaced["invalid_objects"][0]["key"]), (&json!(2), &json!("a\tb")));
    let delta = json!({ "type": "Updated", "key": "a\nb", "object": { "price": 1 } }).to_string();
    let produced = send(&service, "deltas?skip_invalid=true", &[&delta]).await.ok();
    assert_eq!(produced["invalid_objects"][0]["key"], "a\nb");
}

#[tokio::test]
async fn a_list_of_which_a_tenth_is_not_valid_is_refused() {
    let service = Service::start().await;
    replace(&service, "", &list(30, &[])).await.ok();
    let wrong = "{\"price\":1}";
    for (good, bad, is_taken) in [(27, 3, true), (26, 3, false), (1, 1, true), (0, 1, false), (8, 2, false)] {
        let reply = replace(&service, "&skip_invalid=true", &list(good, &vec![wrong; bad])).await;
        if is_taken {
            assert_eq!(reply.ok()["invalid"], bad);
        } else {
            let refused = reply.problem("no-key");
            let hint = refused["hint"].as_str().expect("a text");
            assert!(hint.starts_with(&format!("{bad} of {} objects are not valid", good + bad)), "{hint}");
        }
    }
    assert_eq!(listed(&service, "ready").await.len(), 30);
    // The number at the end counts every object that was sent.
    let cut = [wrong, "{\"$end\":2}"].map(str::to_owned);
    replace(&service, "&skip_invalid=true", &cut).await.problem("incomplete-list");
}

#[tokio::test]
async fn a_batch_of_deltas_leaves_out_what_is_not_valid() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &settings()).await.ok();
    let big = format!("{{\"type\":\"Updated\",\"object\":{}}}", too_large("a"));
    let lines = [
        "{\"type\":\"Added\",\"object\":{\"key\":\"b\",\"price\":1}}",
        &big,
        "{\"type\":\"Updated\",\"key\":\"c\",\"object\":{\"price\":\"x\"}}",
        "{\"type\":\"Updated\",\"object\":{\"price\":1}}",
        "{\"type\":\"Added\",\"object\":{\"key\":\"d\"}}",
    ];
    send(&service, "deltas?source=erp&sequence=1", &lines).await.problem("object-too-large");
    let produced = send(&service, "deltas?source=erp&sequence=1&skip_invalid=true", &lines).await.ok();
    assert_eq!((&produced["queued"], &produced["invalid"]), (&json!(2), &json!(3)));
    let named: Vec<_> = produced["invalid_objects"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|object| (object["index"].clone(), object["key"].clone()))
        .collect();
    assert_eq!(named, [(json!(1), json!("a")), (json!(2), json!("c")), (json!(3), Value::Null)]);
    assert_eq!(listed(&service, "ready").await, ["b", "d"]);
    // A call of which nothing is left uses its number.
    let produced = send(&service, "deltas?source=erp&sequence=2&skip_invalid=true", &lines[1..2]).await.ok();
    assert_eq!((&produced["queued"], &produced["invalid"]), (&json!(0), &json!(1)));
    assert_eq!(send(&service, "deltas?source=erp&sequence=2", &lines[..1]).await.ok()["duplicate"], true);
}

#[tokio::test]
async fn a_refusal_names_the_entry_of_the_body() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({ "mode": "events", "max_deltas_per_key": 2 })).await.ok();
    let add = |key: &str| format!("{{\"type\":\"Added\",\"object\":{{\"key\":\"{key}\"}}}}");
    let (a, b, wrong) = (add("a"), add("b"), "{\"type\":\"Added\",\"object\":{}}");
    let lists: [(&[&str], usize); 5] = [
        (&[&a, &a, &a], 2),
        (&[wrong, &a, &a, &a], 3),
        (&[wrong, wrong, &a, &a, wrong, &b, wrong, &a, wrong], 7),
        (&[&a, &b, &a, &a, wrong], 3),
        (&[&a, &a, wrong, wrong, &a], 4),
    ];
    for (lines, index) in lists {
        let refused = send(&service, "deltas?skip_invalid=true", lines).await.problem("key-full");
        assert_eq!((&refused["index"], &refused["key"]), (&json!(index), &json!("a")), "{lines:?}");
    }
}

#[tokio::test]
async fn a_deletion_is_never_left_out_if_its_key_can_be_read() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({ "max_object_bytes": 1024, "version": "/v" })).await.ok();
    let objects = json!([{"key":"a","v":1}, {"key":"b","v":1}, {"key":"c","v":1}]);
    service.post(&format!("{QUEUE}/add"), &objects).await.ok();
    let large = format!("{{\"type\":\"Deleted\",\"object\":{}}}", too_large("a"));
    let lines = [
        &*large,
        "{\"type\":\"Deleted\",\"object\":{\"key\":\"b\",\"v\":[]}}",
        "{\"type\":\"Deleted\",\"object\":{\"key\":\"c\",\"text\":\"\\ud800\"}}",
        "{\"type\":\"Updated\",\"object\":{\"key\":\"d\",\"v\":1,\"text\":\"\\ud800\"}}",
        "{\"type\":\"Deleted\",\"object\":{\"v\":1}}",
    ];
    let produced = send(&service, "deltas?skip_invalid=true", &lines).await.ok();
    assert_eq!((&produced["queued"], &produced["invalid"]), (&json!(3), &json!(2)), "{produced}");
    for key in ["a", "b", "c"] {
        service.get(&format!("{QUEUE}/latest/{key}")).await.problem("key-not-found");
    }
}

#[tokio::test]
async fn a_mistake_outside_the_object_refuses_the_call() {
    let service = Service::start().await;
    for wrong in [
        "{\"type\":\"Update\",\"object\":{\"key\":\"b\"}}",
        "{\"type\":\"Added\",\"object\":{\"key\":\"b\"},\"delay\":\"soon\"}",
        "{\"type\":\"Added\",\"object\":{\"key\":\"b\"},\"final_state_unknown\":true}",
        "{\"type\":\"Added\",\"object\":{\"key\":\"b\"},\"more\":1}",
    ] {
        let lines = ["{\"type\":\"Added\",\"object\":{\"key\":\"a\"}}", wrong];
        assert_eq!(send(&service, "deltas?skip_invalid=true", &lines).await.status / 100, 4, "{wrong}");
        assert_eq!(service.get(QUEUE).await.status, 404, "nothing was applied");
    }
}

#[tokio::test]
async fn a_key_keeps_what_it_has_although_the_list_has_an_older_object_too() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &settings()).await.ok();
    replace(&service, "", &list(30, &[])).await.ok();
    let lines = list(29, &["{\"key\":\"k29\",\"price\":7}", &too_large("k29")]);
    let replaced = replace(&service, "&skip_invalid=true&duplicates=last", &lines).await.ok();
    assert_eq!((&replaced["replaced"], &replaced["deleted"]), (&json!(0), &json!(0)), "{replaced}");
    assert_eq!(service.get(&format!("{QUEUE}/latest/k29")).await.ok()["object"]["price"], 1);
}

#[tokio::test]
async fn a_key_that_a_list_names_twice_has_its_places_in_the_body() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &settings()).await.ok();
    // One object of 22 is not valid, and one before it has its key.
    let mut lines = list(20, &[&too_large("k03"), "", "{\"key\":\"k05\",\"price\":2}"]);
    let last = lines.len() - 1;
    lines[last] = "{\"$end\":22}".to_owned();
    let refused = replace(&service, "&skip_invalid=true", &lines).await.problem("duplicate-key");
    assert_eq!((&refused["first_index"], &refused["index"]), (&json!(5), &json!(21)), "{refused}");
    assert_eq!((&refused["first_line"], &refused["line"]), (&json!(6), &json!(23)), "{refused}");
    assert!(refused["detail"].as_str().expect("a text").starts_with("lines 6 and 23 have"), "{refused}");
    let objects = lines[..last].iter().filter_map(|line| serde_json::from_str(line).ok());
    let array = Value::Array(objects.collect());
    for (from, expected) in [(0, (5, 21)), (1, (4, 20))] {
        let array = Value::from(array.as_array().expect("a list")[from..].to_vec());
        let call = format!("{QUEUE}/replace?source=erp&skip_invalid=true");
        let refused = service.call("POST", &call, &array).await.problem("duplicate-key");
        let (first, second) = expected;
        assert_eq!((&refused["first_index"], &refused["index"]), (&json!(first), &json!(second)));
        assert!(refused.get("line").is_none(), "{refused}");
    }
}
