//! Tokens: what a caller sees, and a token that is revoked during a watch.

use deltaq::config::access::Verb;
use serde_json::{Value, json};

use super::{ALL, Events, SHOP, refused, settings};
use crate::access::reload::Fixture;
use crate::access::{root, token};

async fn server() -> Fixture {
    let tokens = [
        root(),
        token("reader", &[Verb::Read], "prices"),
        token("producer", &[Verb::Produce], "prices"),
        token("other", &[Verb::Read, Verb::Produce], "secrets"),
    ];
    let fixture = Fixture::edited(&tokens, |settings| settings.kubernetes.enabled = true).await;
    let mut client = fixture.service.client().await;
    client.call_as("root", "PUT", "/v1/queues/prices", &settings("latest")).await.ok();
    fixture
}

#[tokio::test]
async fn the_grants_on_the_queue_decide() {
    let Fixture { service, .. } = &server().await;
    let price = json!({ "apiVersion": "shop.example/v1", "kind": "Price", "metadata": { "name": "a" } });
    let mut client = service.client().await;
    refused(client.call("GET", ALL, &Value::Null).await, 401, "Unauthorized");
    refused(client.call_as("wrong", "GET", "/apis", &Value::Null).await, 401, "Unauthorized");
    for (name, groups, list, post) in
        [("reader", 1, 200, 403), ("producer", 1, 403, 201), ("other", 0, 403, 403)]
    {
        let seen = client.call_as(name, "GET", "/apis", &Value::Null).await.ok();
        assert_eq!(seen["groups"].as_array().map(Vec::len), Some(groups), "{name}");
        let reply = client.call_as(name, "GET", ALL, &Value::Null).await;
        assert_eq!(reply.status, list, "{name}");
        let watch =
            client.call_as(name, "GET", &format!("{ALL}?watch=1&timeoutSeconds=1"), &Value::Null).await;
        assert_eq!(watch.status, list, "{name}");
        assert_eq!(client.call_as(name, "POST", SHOP, &price).await.status, post, "{name}");
    }
    // A resource that does not exist looks like one that the caller must not see.
    let nothing = "/apis/shop.example/v1/nopes";
    let refusal = refused(client.call_as("reader", "GET", nothing, &Value::Null).await, 403, "Forbidden");
    assert_eq!(refusal["details"]["kind"], "nopes");
    refused(client.call_as("root", "GET", nothing, &Value::Null).await, 404, "NotFound");
}

#[tokio::test]
async fn a_watch_ends_when_its_token_is_revoked() {
    let fixture = server().await;
    let service = &fixture.service;
    let mut client = service.client().await;
    let headers = [("authorization", "Bearer reader")];
    client.send_text("GET", &format!("{ALL}?watch=1"), &headers, "").await;
    let mut events = Events::of(client).await;
    fixture.reload(&[root()]).expect("a valid file");
    let price = json!({ "metadata": { "namespace": "shop", "name": "a" } });
    let mut other = service.client().await;
    other.call_as("root", "POST", "/v1/queues/prices/add", &price).await.ok();
    assert_eq!(events.seen().await, "ERROR 401");
    assert_eq!(events.seen().await, "end");
}
