//! Queues as resources of the Kubernetes API: what the recordings of a real API server do not show.

mod access;
mod lists;
mod watches;
mod writes;

use serde_json::{Value, json};

use crate::harness::{Client, Reply, Service};

/// The path of all prices.
const ALL: &str = "/apis/shop.example/v1/prices";
/// The path of the prices of a namespace.
const SHOP: &str = "/apis/shop.example/v1/namespaces/shop/prices";

/// The headers of a WebSocket.
pub(crate) const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "iur7gdCwuZEpvBpfdHbLdA=="),
];

/// A server with the API and the resource `prices`.
async fn shop() -> Service {
    let service = Service::with(|settings| settings.kubernetes.enabled = true).await;
    create_prices(&service).await;
    service
}

async fn create_prices(service: &Service) {
    service.call("PUT", "/v1/queues/prices", &settings("latest")).await.ok();
}

fn settings(view: &str) -> Value {
    json!({
        "key": [{ "pointer": "/metadata/namespace", "optional": true }, "/metadata/name"],
        "kubernetes": { "group": "shop.example", "version": "v1", "kind": "Price", "plural": "prices", "view": view },
    })
}

/// Produces the state `n` of a price.
async fn add(service: &Service, name: &str, labels: &Value, n: u64) -> u64 {
    let object = json!({ "metadata": { "namespace": "shop", "name": name, "labels": labels }, "n": n });
    let reply = service.post("/v1/queues/prices/add", &object).await.ok();
    reply["resource_version"].as_u64().expect("a version")
}

async fn delete(service: &Service, name: &str) -> u64 {
    let reply = service.post(&format!("/v1/queues/prices/delete?key=shop/{name}"), &Value::Null).await.ok();
    reply["resource_version"].as_u64().expect("a version")
}

/// Asserts a `Status` with this code and this reason.
#[track_caller]
fn refused(reply: Reply, code: u16, reason: &str) -> Value {
    let Reply { status, body, text, .. } = &reply;
    assert_eq!((*status, &body["kind"], &body["reason"]), (code, &json!("Status"), &json!(reason)), "{text}");
    assert_eq!(body["code"], code, "{text}");
    assert_eq!(reply.header("content-type"), Some("application/json"), "{text}");
    reply.body
}

/// The names of the objects of a list.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

/// A watch that is open.
struct Events {
    client: Client,
    text: Vec<u8>,
}

impl Events {
    async fn open(service: &Service, path: &str) -> Self {
        Self::of(service.send("GET", path, &Value::Null).await).await
    }

    async fn of(mut client: Client) -> Self {
        let (status, headers) = client.head().await.expect("a head");
        let kind = headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value.as_str());
        assert_eq!((status, kind), (200, Some("application/json")));
        Self { client, text: Vec::new() }
    }

    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("an event"));
            }
            self.text.extend(self.client.chunk().await.expect("a chunk")?);
        }
    }

    /// The type and the name of the next event, or the code of an error.
    async fn seen(&mut self) -> String {
        let Some(event) = self.next().await else { return "end".to_owned() };
        let (kind, object) = (event["type"].as_str().expect("a type"), &event["object"]);
        match object["metadata"]["name"].as_str() {
            Some(name) => format!("{kind} {name}"),
            None if kind == "ERROR" => format!("{kind} {}", object["code"]),
            None => kind.to_owned(),
        }
    }
}

#[tokio::test]
async fn nothing_is_served_unless_it_is_switched_on() {
    let service = Service::start().await;
    create_prices(&service).await;
    for path in ["/apis", "/version", ALL, "/openapi/v3", "/v1/nodes/kubernetes"] {
        service.get(path).await.problem("not-found");
    }
    let problem = service.get(ALL).await.problem("not-found");
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("kubernetes.enabled")), "{problem}");
}

#[tokio::test]
async fn a_queue_is_a_resource_while_it_has_the_setting() {
    let service = shop().await;
    let resources = service.get("/apis/shop.example/v1").await.ok();
    let resource = &resources["resources"][0];
    assert_eq!((&resource["name"], &resource["namespaced"]), (&json!("prices"), &json!(true)));
    add(&service, "a", &json!({}), 1).await;
    let mut events = Events::open(&service, &format!("{ALL}?watch=1")).await;
    assert_eq!(events.seen().await, "ADDED a");
    service.call("PATCH", "/v1/queues/prices", &json!({ "kubernetes": null })).await.ok();
    add(&service, "b", &json!({}), 1).await;
    assert_eq!(events.seen().await, "end");
    refused(service.get(ALL).await, 404, "NotFound");
    let groups = service.get("/apis").await.ok();
    assert_eq!(groups["groups"], json!([]));
}

#[tokio::test]
async fn paths_without_a_resource_are_not_found() {
    let service = shop().await;
    for path in [
        "/apis/shop.example/v2/prices",
        "/apis/shop.example/v1/nopes",
        "/apis/nope.example/v1",
        "/apis/shop.example/v1/prices/a",
        "/apis/shop.example/v1/namespaces/shop",
        "/api/v1/pods",
    ] {
        refused(service.get(path).await, 404, "NotFound");
    }
    let reply = service.call("DELETE", SHOP, &Value::Null).await;
    refused(reply, 405, "MethodNotAllowed");
}
