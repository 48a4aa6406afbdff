//! Requests: percent-encoded names in paths, and request ids.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::harness::{Reply, Service};

/// The parts of a reply that do not depend on the name: status, header names, and the document without its values.
fn shape(reply: &Reply) -> (u16, Vec<&str>, Value) {
    let mut headers: Vec<_> = reply.headers.iter().map(|(name, _)| name.as_str()).collect();
    headers.sort_unstable();
    (reply.status, headers, blank(&reply.body))
}

fn blank(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_random = |name: &str| name == "incarnation" || name == "life";
            let of = |name: &str, value| if is_random(name) { Value::from("text") } else { blank(value) };
            members.iter().map(|(name, value)| (name.clone(), of(name, value))).collect()
        }
        Value::Array(all) => all.iter().map(blank).collect(),
        // The type and the texts of a problem stay.
        Value::String(text) if !text.contains('-') || text.contains("problems") => value.clone(),
        Value::Number(_) => Value::from(0),
        _ => Value::from("text"),
    }
}

/// The replies to a sequence of calls on a queue with this name in the path, and the request counters of each route.
async fn replies(name: &str) -> (Vec<(u16, Vec<String>, Value)>, Vec<String>) {
    let service = Service::start().await;
    let mut replies = Vec::new();
    let mut lease = String::new();
    let object = json!({ "key": "k", "n": 1 });
    let calls = [
        ("add", object.clone()),
        ("add?delay=1s&source=x", json!([object, { "key": "l" }])),
        ("add?colour=red", object.clone()),
        ("add", json!({ "name": "no key" })),
        ("update", object.clone()),
        ("pop?max=2&with=known", Value::Null),
        ("ack", json!({ "lease_ids": ["LEASE"] })),
        ("ack", json!({ "lease_ids": ["00000000-1"] })),
        ("delete?key=k", Value::Null),
        ("pop", json!({ "settle": [{ "lease_id": "LEASE", "as": "nack" }] })),
        ("settle", json!({ "settle": [{ "lease_id": "LEASE", "as": "release" }] })),
        ("pop?max=0", Value::Null),
    ];
    for (call, body) in calls {
        let body: Value = serde_json::from_str(&body.to_string().replace("LEASE", &lease)).expect("JSON");
        let reply = service.post(&format!("/v1/queues/{name}/{call}"), &body).await;
        if let Some(id) = reply.body["items"][0]["lease"]["id"].as_str() {
            id.clone_into(&mut lease);
        }
        let (status, headers, document) = shape(&reply);
        replies.push((status, headers.into_iter().map(str::to_owned).collect(), document));
    }
    let wrong = service.get(&format!("/v1/queues/{name}/add")).await;
    replies.push((wrong.status, Vec::new(), blank(&wrong.body)));
    let page =
        crate::harness::Client::connect(service.metrics).await.call("GET", "/metrics", &Value::Null).await;
    let counted = |line: &&str| line.starts_with("deltaq_http_requests_total") && !line.contains("/metrics");
    let mut routes: Vec<_> = page.text.lines().filter(counted).map(str::to_owned).collect();
    routes.sort_unstable();
    (replies, routes)
}

#[tokio::test]
async fn a_percent_encoded_name_gets_the_same_replies_and_counters() {
    let (plain, counted) = replies("queue").await;
    let (encoded, counted_of_encoded) = replies("%71ueue").await;
    assert_eq!(plain, encoded);
    assert_eq!(counted, counted_of_encoded);
    let statuses: Vec<_> = plain.iter().map(|(status, ..)| *status).collect();
    assert_eq!(statuses, [200, 200, 400, 422, 200, 200, 200, 409, 200, 200, 200, 400, 405]);
    assert!(counted.iter().any(|line| line.contains("/v1/queues/{queue}/pop")), "{counted:?}");
}

#[tokio::test]
async fn no_two_requests_have_the_same_id() {
    let service = Service::start().await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        let mut client = service.client().await;
        for (method, path) in
            [("POST", "/v1/queues/q/add"), ("GET", "/v1/info"), ("POST", "/v1/queues/q/pop")]
        {
            let body = if path.ends_with("add") { json!({"key": "a"}) } else { Value::Null };
            let reply = client.call(method, path, &body).await;
            ids.extend(reply.header("x-request-id").map(str::to_owned));
        }
    }
    assert_eq!(ids.len(), 60);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 60, "{ids:?}");
}
