//! CloudEvents as changes: as one document, as a list, and with attributes in headers.

use serde_json::{Value, json};

use super::QUEUE;
use crate::access::token;
use crate::harness::{Client, Reply, Service};

const ONE: &str = "application/cloudevents+json";
const MANY: &str = "application/cloudevents-batch+json";

async fn send(service: &Service, call: &str, kind: &str, body: &Value) -> Reply {
    let mut client = service.client().await;
    let path = format!("{QUEUE}/{call}");
    client.send_text("POST", &path, &[("content-type", kind)], &body.to_string()).await;
    client.reply().await
}

fn event(id: &str, kind: &str, subject: &str, data: &Value) -> Value {
    json!({"specversion": "1.0", "id": id, "source": "/erp", "type": kind, "subject": subject, "data": data})
}

async fn latest(service: &Service, key: &str) -> Option<Value> {
    let reply = service.get(&format!("{QUEUE}/object?view=latest&key={key}")).await;
    (reply.status == 200).then(|| reply.body["object"].clone())
}

#[tokio::test]
async fn an_event_changes_the_key_of_its_data_or_its_subject_once() {
    let service = Service::start().await;
    let with_key = event("1", "price.changed", "sku-9", &json!({"key": "sku-1", "price": 1.50}));
    assert_eq!(send(&service, "update", ONE, &with_key).await.ok()["queued"], 1);
    let again = send(&service, "update", ONE, &with_key).await.ok();
    assert_eq!(
        (&again["queued"], &again["duplicate"], &again["ignored"]),
        (&json!(0), &json!(true), &json!(1))
    );
    let other_source = json!({"specversion": "1.0", "id": "1", "source": "/wms", "type": "t", "data": {"key": "sku-1", "n": 2}});
    assert_eq!(send(&service, "add", ONE, &other_source).await.ok()["duplicate"], false);
    let by_subject = event("2", "price.changed", "a/b c", &json!({"price": 3}));
    send(&service, "update", ONE, &by_subject).await.ok();
    assert_eq!(latest(&service, "a/b%20c").await, Some(json!({"price": 3})));
    let item = service.get(&format!("{QUEUE}/items/sku-1")).await.ok();
    let sources: Vec<&Value> =
        item["deltas"].as_array().expect("deltas").iter().map(|delta| &delta["source"]).collect();
    assert_eq!(sources, ["/erp", "/wms"]);
    let mut deleted = event("3", "price.deleted", "a/b c", &Value::Null);
    send(&service, "update", ONE, &deleted).await.ok();
    assert_eq!(latest(&service, "a/b%20c").await, None);
    deleted["id"] = json!("4");
    deleted["subject"].take();
    send(&service, "update", ONE, &deleted).await.problem("no-key");
    send(&service, "delete", ONE, &event("5", "t", "sku-1", &Value::Null)).await.ok();
    assert_eq!(latest(&service, "sku-1").await, None);
}

#[tokio::test]
async fn a_list_is_applied_as_a_whole_and_each_event_once() {
    let service = Service::start().await;
    let one = |id: &str, key: &str| event(id, "t", "", &json!({ "key": key }));
    send(&service, "add", MANY, &json!([one("1", "a"), one("2", "b")])).await.ok();
    let second =
        send(&service, "add", MANY, &json!([one("2", "b"), one("3", "c"), one("3", "c")])).await.ok();
    assert_eq!(
        (&second["queued"], &second["ignored"], &second["duplicate"]),
        (&json!(1), &json!(2), &json!(false))
    );
    let broken = json!([one("4", "d"), {"specversion": "1.0", "id": "5", "type": "t", "data": {}}]);
    let problem = send(&service, "add", MANY, &broken).await.problem("invalid-object");
    assert_eq!(problem["index"], 1);
    assert_eq!(latest(&service, "d").await, None, "nothing of the list was applied");
    send(&service, "add", MANY, &one("6", "d")).await.problem("invalid-json");
}

#[tokio::test]
async fn attributes_may_be_headers() {
    let service = Service::start().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut client = service.client().await;
    let headers = [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/erp"),
        ("ce-type", "price.changed"),
        ("ce-subject", "Gr%C3%B6%C3%9Fe%205%20%25"),
        ("ce-traceparent", trace),
    ];
    let path = format!("{QUEUE}/update");
    client.send_text("POST", &path, &headers, r#"{"price":1.50}"#).await;
    client.reply().await.ok();
    let item = service.get(&format!("{QUEUE}/item?key=Gr%C3%B6%C3%9Fe%205%20%25")).await.ok();
    let delta = &item["deltas"][0];
    assert_eq!((&delta["object"], &delta["source"]), (&json!({"price": 1.50}), &json!("/erp")));
    assert_eq!(delta["traceparent"], trace);
    let body = format!(r#"{{"key":"long","text":"{}"}}"#, "x".repeat(20_000));
    let mut quoted = headers;
    (quoted[0].1, quoted[2].1, quoted[5].1) = ("application/x-www-form-urlencoded", "3", r#""a \"b\" %41""#);
    client.send_text("POST", &path, &quoted, r#"{"n":1}"#).await;
    client.reply().await.ok();
    assert!(latest(&service, "a%20%22b%22%20A").await.is_some());
    (quoted[0].1, quoted[2].1) = ("application/json", "4");
    client.send_text("POST", &path, &quoted, &body).await;
    client.reply().await.ok();
    assert!(latest(&service, "long").await.is_some());
    client.send_text("POST", &path, &headers, r#"{"n":1},"subject":"from-body""#).await;
    client.reply().await.problem("invalid-json");
    let mut wrong = headers;
    wrong[5].1 = "%FF";
    client.send_text("POST", &path, &wrong, "{}").await;
    client.reply().await.problem("invalid-object");
    let mut twice = headers.to_vec();
    twice.push(("ce-id", "2"));
    client.send_text("POST", &path, &twice, "{}").await;
    client.reply().await.problem("invalid-object");
}

#[tokio::test]
async fn the_whole_event_may_be_stored() {
    let service = Service::start().await;
    let settings = json!({"key": "/subject", "version": "/sequence", "cloudevents": {"store": "event", "deleted": [".gone"]}});
    service.call("PUT", QUEUE, &settings).await.ok();
    let mut client = service.client().await;
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/erp"),
        ("ce-type", "price.changed"),
        ("ce-subject", "sku-1"),
        ("ce-sequence", "0007"),
    ];
    client.send_text("POST", &format!("{QUEUE}/update"), &headers, r#"{"price":1.50}"#).await;
    client.reply().await.ok();
    let stored = latest(&service, "sku-1").await.expect("the event");
    assert_eq!((&stored["type"], &stored["data"]), (&json!("price.changed"), &json!({"price": 1.50})));
    let mut older = event("2", "price.changed", "sku-1", &json!({"price": 1}));
    older["sequence"] = json!("0006");
    assert_eq!(send(&service, "update", ONE, &older).await.ok()["stale"], 1);
    let mut kept = event("3", "price.deleted", "sku-1", &json!({}));
    kept["sequence"] = json!("0008");
    send(&service, "update", ONE, &kept).await.ok();
    assert!(latest(&service, "sku-1").await.is_some(), "the setting names another ending");
    let mut gone = event("4", "price.gone", "sku-1", &Value::Null);
    gone["sequence"] = json!("0009");
    send(&service, "update", ONE, &gone).await.ok();
    assert_eq!(latest(&service, "sku-1").await, None);
}

#[tokio::test]
async fn what_is_no_event_is_refused_with_its_place() {
    let service = Service::start().await;
    let good = event("1", "t", "a", &json!({}));
    for (member, value, pointer) in [
        ("specversion", json!("0.3"), Some("/specversion")),
        ("id", json!(""), Some("/id")),
        ("id", json!(7), None),
        ("source", json!("x".repeat(257)), Some("/source")),
        ("data", json!("text"), Some("/data")),
        ("data", json!([1]), Some("/data")),
        ("data_base64", json!("e30="), Some("/data")),
    ] {
        let mut event = good.clone();
        event[member] = value;
        let problem = send(&service, "add", ONE, &event).await.problem("invalid-object");
        assert_eq!(problem["pointer"].as_str(), pointer, "{problem}");
    }
    send(&service, "add", ONE, &json!([good])).await.problem("invalid-object");
    let mut client = service.client().await;
    for parameter in ["source=a", "source=a&sequence=1", "key=a"] {
        let path = format!("{QUEUE}/add?{parameter}");
        client.send_text("POST", &path, &[("content-type", ONE)], &good.to_string()).await;
        client.reply().await.problem("invalid-parameter");
    }
    send(&service, "replace", ONE, &good).await.problem("unsupported-media-type");
    let mut encoded = good.clone();
    encoded["data"].take();
    encoded["data_base64"] = json!("eyJrZXkiOiJiIn0=");
    let mut wrong = encoded.clone();
    wrong.as_object_mut().expect("an object").remove("data");
    wrong["data_base64"] = json!("????");
    assert_eq!(send(&service, "add", ONE, &wrong).await.problem("invalid-object")["pointer"], "/data_base64");
    encoded.as_object_mut().expect("an object").remove("data");
    send(&service, "add", ONE, &encoded).await.ok();
    assert!(latest(&service, "b").await.is_some());
}

#[tokio::test]
async fn the_source_of_an_event_needs_a_grant() {
    use deltaq::config::access::Verb;
    let mut erp = token("erp", &[Verb::Produce], "q");
    erp.grants[0].sources = Some(vec!["/erp".to_owned()]);
    let service = Service::with(move |settings| settings.access.tokens = vec![erp]).await;
    let mut client: Client = service.client().await;
    for (source, is_permitted) in [("/erp", true), ("/wms", false)] {
        let mut event = event("1", "t", "a", &json!({}));
        event["source"] = json!(source);
        let headers = [("content-type", ONE), ("authorization", "Bearer erp")];
        client.send_text("POST", &format!("{QUEUE}/add"), &headers, &event.to_string()).await;
        let reply = client.reply().await;
        assert_eq!(reply.status, if is_permitted { 200 } else { 403 }, "{}", reply.text);
    }
}

#[tokio::test]
async fn a_pop_and_a_watch_may_be_cloud_events() {
    let service = Service::start().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut client = service.client().await;
    let object = r#"{"key":"a\u00fc","n":1.50}"#;
    client.send_text("POST", &format!("{QUEUE}/add"), &[("traceparent", trace)], object).await;
    client.reply().await.ok();
    service.post(&format!("{QUEUE}/add"), &json!({"key": "b"})).await.ok();
    let accept = [("accept", "application/cloudevents-batch+json")];
    let pop = format!("{QUEUE}/pop?max=9");
    client.send_text("POST", &pop, &accept, "").await;
    let popped = client.reply().await;
    assert_eq!(popped.header("content-type"), Some(MANY));
    assert!(popped.text.contains(r#""data":{"key":"a\u00fc","n":1.50}"#), "{}", popped.text);
    let events = popped.ok();
    let document = service.get(QUEUE).await.ok();
    let version: u64 = events[0]["sequence"].as_str().expect("text").parse().expect("a number");
    let id = format!("{}-{version}", document["incarnation"].as_str().expect("text"));
    assert_eq!(
        (&events[0]["type"], &events[0]["subject"], &events[0]["id"], &events[0]["traceparent"]),
        (&json!("deltaq.item.updated"), &json!("a\u{fc}"), &json!(id), &json!(trace))
    );
    assert_eq!(events.as_array().expect("a list").len(), 2);
    let leases: Vec<&Value> = [0, 1].map(|at| &events[at]["deltaqlease"]).into();
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": leases})).await.ok();
    let status = service.get(QUEUE).await.ok()["status"].take();
    assert_eq!((&status["known"], &status["leased"]), (&json!(2), &json!(0)));
    client.send_text("POST", &pop, &accept, "").await;
    assert_eq!(client.reply().await.ok(), json!([]));

    // What an event has no place for is refused, and a client that prefers JSON gets it.
    client.send_text("POST", &format!("{pop}&with=known"), &accept, "").await;
    client.reply().await.problem("invalid-parameter");
    let settle = json!({"settle": [{"lease_id": leases[0], "as": "ack"}]}).to_string();
    client.send_text("POST", &pop, &accept, &settle).await;
    client.reply().await.problem("invalid-request");
    let both = [("accept", "application/cloudevents-batch+json;q=0.5, */*")];
    client.send_text("POST", &pop, &both, "").await;
    assert_eq!(client.reply().await.ok()["items"], json!([]));
    service.call("PUT", "/v1/queues/keys", &json!({"mode": "keys"})).await.ok();
    client.send_text("POST", "/v1/queues/keys/pop", &accept, "").await;
    client.reply().await.problem("wrong-mode");

    // The list of all keys, page by page, then what has changed.
    let watch = format!("{QUEUE}/watch?view=latest");
    client.send_text("GET", &format!("{watch}&limit=1"), &accept, "").await;
    let first = client.reply().await;
    let next = first.header("deltaq-continue").expect("more keys").to_owned();
    assert_eq!(first.header("content-type"), Some(MANY));
    assert_eq!(first.ok()[0]["subject"], "a\u{fc}");
    client.send_text("GET", &format!("{watch}&continue={next}"), &accept, "").await;
    let second = client.reply().await;
    assert_eq!(second.header("deltaq-continue"), None);
    let reached = second.header("deltaq-resource-version").expect("a version").to_owned();
    let event = second.ok();
    assert_eq!((&event[0]["subject"], &event[0]["data"]), (&json!("b"), &json!({"key": "b"})));
    service.post(&format!("{QUEUE}/delete"), &json!({"key": "b"})).await.ok();
    let rest = format!("{QUEUE}/watch?resource_version={reached}");
    client.send_text("GET", &rest, &accept, "").await;
    let changed = client.reply().await.ok();
    assert_eq!(
        (&changed[0]["type"], &changed[0]["subject"], &changed[0]["time"]),
        (&json!("deltaq.item.deleted"), &json!("b"), &Value::Null)
    );
}

#[tokio::test]
async fn a_sender_may_ask_whether_it_may_send() {
    let with = |origins: &'static [&'static str]| async move {
        let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        Service::with(|settings| {
            settings.server.event_origins = origins;
            // Browsers ask with OPTIONS as well.
            settings.server.allowed_origins = vec!["https://console.example".to_owned()];
        })
        .await
    };
    let service = with(&["eventgrid.azure.net"]).await;
    let mut client = service.client().await;
    let paths = ["/v1/queues/q/add", "/v1/queues/q/update", "/v1/queues/q/delete", "/v1/hooks/absent"];
    for path in paths {
        let asks = [("webhook-request-origin", "EventGrid.azure.net"), ("webhook-request-rate", "120")];
        client.send_text("OPTIONS", path, &asks, "").await;
        let reply = client.reply().await;
        let header = |name: &str| reply.header(name).unwrap_or_default().to_owned();
        assert_eq!(
            (reply.status, header("webhook-allowed-origin"), header("webhook-allowed-rate"), header("allow")),
            (200, "EventGrid.azure.net".to_owned(), "*".to_owned(), "POST".to_owned()),
            "{path}"
        );
    }
    for (method, path, origin) in [
        ("OPTIONS", "/v1/queues/q/add", "other.example"),
        ("OPTIONS", "/v1/queues/q/pop", "eventgrid.azure.net"),
        ("OPTIONS", "/v1/queues/q/items/add", "eventgrid.azure.net"),
        ("GET", "/v1/queues/q/add", "eventgrid.azure.net"),
    ] {
        client.send_text(method, path, &[("webhook-request-origin", origin)], "").await;
        let reply = client.reply().await;
        assert_eq!(reply.header("webhook-allowed-origin"), None, "{method} {path} {origin}");
    }
    // Without a permission the path takes no OPTIONS, and a preflight request is answered as before.
    client.send_text("OPTIONS", "/v1/queues/q/add", &[("webhook-request-origin", "other.example")], "").await;
    client.reply().await.problem("method-not-allowed");
    let preflight = [("origin", "https://console.example"), ("access-control-request-method", "POST")];
    client.send_text("OPTIONS", "/v1/queues/q/add", &preflight, "").await;
    let header = client.reply().await.header("access-control-allow-origin").map(str::to_owned);
    assert_eq!(header.as_deref(), Some("https://console.example"));
    let all = with(&["*"]).await;
    let mut client = all.client().await;
    client.send_text("OPTIONS", "/v1/queues/q/add", &[("webhook-request-origin", "a.example")], "").await;
    assert_eq!(client.reply().await.header("webhook-allowed-origin"), Some("a.example"));
}
