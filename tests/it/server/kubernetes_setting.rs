//! The setting `kubernetes`.

use serde_json::{Value, json};

use super::QUEUE;
use crate::harness::Service;

/// Settings of a resource with namespaces.
fn resource(plural: &str) -> Value {
    json!({
        "key": [{"pointer": "/metadata/namespace", "optional": true}, "/metadata/name"],
        "kubernetes": {"group": "shop.example", "version": "v1", "kind": "Price", "plural": plural},
    })
}

#[tokio::test]
async fn a_resource_needs_objects_with_the_keys_of_kubernetes() {
    let service = Service::start().await;
    let with = |member: &str, value: Value| {
        let mut settings = resource("prices");
        *settings.pointer_mut(member).expect("a member") = value;
        settings
    };
    let mut without_known = with("/kubernetes/version", json!("v1"));
    without_known["kubernetes"]["view"] = json!("known");
    without_known["known_objects"] = json!(false);
    let mut keys = resource("prices");
    keys["mode"] = json!("keys");
    for (settings, field) in [
        (with("/key", json!("/name")), "kubernetes"),
        (with("/key", json!(["/metadata/namespace", "/metadata/name"])), "kubernetes"),
        (with("/key", json!([{"pointer": "/metadata/name", "optional": true}])), "kubernetes"),
        (with("/kubernetes/group", json!("shop")), "kubernetes.group"),
        (with("/kubernetes/plural", json!("Prices")), "kubernetes.plural"),
        (with("/kubernetes/kind", json!("a b")), "kubernetes.kind"),
        (with("/kubernetes", json!({"group": "a.b"})), "kubernetes.version"),
        (with("/kubernetes", json!("prices")), "kubernetes"),
        (without_known, "kubernetes.view"),
        (keys, "kubernetes"),
    ] {
        let problem = service.call("PUT", QUEUE, &settings).await.problem("invalid-config");
        assert_eq!(problem["field"], field, "{problem}");
        assert!(problem["hint"].is_string() || field.contains('.'), "{problem}");
    }
    let created = service.call("PUT", QUEUE, &resource("prices")).await.ok();
    assert_eq!(created["settings"]["kubernetes"]["view"], "latest");
    let problem = service.call("PUT", QUEUE, &json!({})).await.problem("would-remove");
    assert_eq!(problem["fields"], json!(["kubernetes"]));
}

#[tokio::test]
async fn two_queues_are_not_the_same_resource() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &resource("prices")).await.ok();
    let taken = service.call("PUT", "/v1/queues/a", &resource("prices")).await.problem("invalid-config");
    assert_eq!(taken["detail"], "kubernetes.plural: another queue of this server is prices.shop.example");
    assert_eq!(taken["field"], "kubernetes.plural");
    service.get("/v1/queues/a").await.problem("queue-not-found");
    service.call("PUT", "/v1/queues/a", &resource("rates")).await.ok();
    let same = json!({"kubernetes": {"plural": "prices"}});
    service.call("PATCH", "/v1/queues/a", &same).await.problem("invalid-config");
    // Other settings of the queue that is the resource can change.
    service.call("PATCH", QUEUE, &json!({"lease": "1m"})).await.ok();
    service.call("PATCH", QUEUE, &json!({"kubernetes": null})).await.ok();
    service.call("PATCH", "/v1/queues/a", &same).await.ok();
}
