//! Changes: they are those of any producer.

use serde_json::{Value, json};

use super::{SHOP, add, delete, refused, settings, shop};
use crate::harness::Service;

fn price(name: &str, n: u64) -> Value {
    json!({ "apiVersion": "shop.example/v1", "kind": "Price", "metadata": { "name": name }, "n": n })
}

#[tokio::test]
async fn what_is_written_reaches_the_workers() {
    let service = shop().await;
    let created = service.post(SHOP, &price("a", 1)).await;
    assert_eq!(created.status, 201);
    let created = created.ok();
    let popped = service.post("/v1/queues/prices/pop", &json!({})).await.ok();
    let item = &popped["items"][0];
    assert_eq!((&item["key"], &item["deltas"][0]["type"]), (&json!("shop/a"), &json!("Added")));
    let stored = json!({ "metadata": { "name": "a", "namespace": "shop" }, "n": 1 });
    assert_eq!(item["deltas"][0]["object"], stored, "without the members of the server");
    let path = format!("{SHOP}/a");
    let mut next = created.clone();
    next["n"] = json!(2);
    let replaced = service.call("PUT", &path, &next).await.ok();
    assert_eq!(replaced["metadata"]["uid"], created["metadata"]["uid"]);
    let again = service.call("PUT", &path, &replaced).await.ok();
    assert_eq!(again, replaced, "no change, no version");
    let gone = service.call("DELETE", &path, &Value::Null).await.ok();
    assert_eq!((&gone["status"], &gone["details"]["uid"]), (&json!("Success"), &created["metadata"]["uid"]));
    let created_again = service.post(SHOP, &price("a", 1)).await.ok();
    assert_ne!(created_again["metadata"]["uid"], created["metadata"]["uid"], "another life");
}

#[tokio::test]
async fn a_change_of_a_former_object_is_a_conflict() {
    let service = shop().await;
    let created = service.post(SHOP, &price("a", 1)).await.ok();
    let path = format!("{SHOP}/a");
    add(&service, "a", &json!({}), 2).await;
    refused(service.call("PUT", &path, &created).await, 409, "Conflict");
    let merge = [("content-type", "application/merge-patch+json")];
    let stale = json!({ "metadata": { "resourceVersion": created["metadata"]["resourceVersion"] }, "n": 3 });
    refused(service.call_with("PATCH", &path, &merge, &stale).await, 409, "Conflict");
    let version = &created["metadata"]["resourceVersion"];
    let options = json!({ "preconditions": { "resourceVersion": version } });
    refused(service.call("DELETE", &path, &options).await, 409, "Conflict");
    delete(&service, "a").await;
    service.post(SHOP, &price("a", 1)).await.ok();
    let options = json!({ "preconditions": { "uid": created["metadata"]["uid"] } });
    refused(service.call("DELETE", &path, &options).await, 409, "Conflict");
    refused(service.post(SHOP, &price("a", 1)).await, 409, "AlreadyExists");
}

#[tokio::test]
async fn an_object_of_another_kind_is_refused_in_every_call() {
    let service = shop().await;
    let other = json!({ "kind": "Rate", "metadata": { "name": "a", "namespace": "shop" } });
    for path in ["/v1/queues/prices/add", "/v1/queues/prices/update", "/v1/queues/prices/replace"] {
        let problem = service.post(path, &other).await.problem("invalid-object");
        assert_eq!(problem["pointer"], "/kind", "{path}");
    }
    service.post("/v1/queues/prices/add", &price("a", 1)).await.ok();
    refused(
        service
            .post(
                SHOP,
                &json!({ "apiVersion": "shop.example/v1", "kind": "Rate", "metadata": { "name": "b" } }),
            )
            .await,
        422,
        "Invalid",
    );
}

/// The mirror of a cluster keeps the uids of the cluster, although readers see others.
#[tokio::test]
async fn a_mirror_keeps_its_own_members() {
    let service = shop().await;
    let own = json!({ "apiVersion": "shop.example/v1", "kind": "Price", "metadata": { "name": "a", "namespace": "shop", "uid": "of-the-cluster", "generation": 3 }, "n": 1 });
    service.post("/v1/queues/prices/add", &own).await.ok();
    let mut seen = service.get(&format!("{SHOP}/a")).await.ok();
    assert_ne!(seen["metadata"]["uid"], "of-the-cluster");
    seen["n"] = json!(2);
    service.call("PUT", &format!("{SHOP}/a"), &seen).await.ok();
    let stored = service.get("/v1/queues/prices/latest/shop/a").await.ok();
    assert_eq!(
        (&stored["object"]["metadata"]["uid"], &stored["object"]["n"]),
        (&json!("of-the-cluster"), &json!(2))
    );
}

#[tokio::test]
async fn numbers_keep_their_text() {
    let service = shop().await;
    let mut client = service.client().await;
    let body = r#"{"apiVersion":"shop.example/v1","kind":"Price","metadata":{"name":"a"},"eur":1.10,"big":12345678901234567890}"#;
    client.send_text("POST", SHOP, &[("content-type", "application/json")], body).await;
    assert_eq!(client.reply().await.status, 201);
    let merge = [("content-type", "application/merge-patch+json")];
    let patched = service.call_with("PATCH", &format!("{SHOP}/a"), &merge, &json!({ "x": 1 })).await;
    assert!(patched.text.contains(r#""eur":1.10,"big":12345678901234567890,"x":1"#), "{}", patched.text);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let service = shop().await;
    let reply = service.post(&format!("{SHOP}?dryRun=All"), &price("a", 1)).await;
    assert_eq!(reply.status, 201);
    refused(service.get(&format!("{SHOP}/a")).await, 404, "NotFound");
    service.post(SHOP, &price("a", 1)).await.ok();
    refused(service.post(&format!("{SHOP}?dryRun=All"), &price("a", 1)).await, 409, "AlreadyExists");
    let gone = service.call("DELETE", &format!("{SHOP}/a?dryRun=All"), &Value::Null).await.ok();
    assert_eq!(gone["status"], "Success");
    service.get(&format!("{SHOP}/a")).await.ok();
}

/// The view `known` has an object once a consumer has acknowledged it.
#[tokio::test]
async fn a_resource_may_show_what_consumers_have_acknowledged() {
    let service = Service::with(|settings| settings.kubernetes.enabled = true).await;
    service.call("PUT", "/v1/queues/prices", &settings("known")).await.ok();
    assert_eq!(service.post(SHOP, &price("a", 1)).await.status, 201);
    refused(service.get(&format!("{SHOP}/a")).await, 404, "NotFound");
    let popped = service.post("/v1/queues/prices/pop", &json!({})).await.ok();
    let ack = json!({ "lease_ids": [popped["items"][0]["lease"]["id"]] });
    service.post("/v1/queues/prices/ack", &ack).await.ok();
    let mut seen = service.get(&format!("{SHOP}/a")).await.ok();
    seen["n"] = json!(2);
    service.call("PUT", &format!("{SHOP}/a"), &seen).await.ok();
    let still = service.get(&format!("{SHOP}/a")).await.ok();
    assert_eq!(still["n"], 1, "not yet acknowledged");
}

/// One object that clients can't read would stop every reader of the resource.
#[tokio::test]
async fn metadata_that_clients_can_not_read_is_refused_in_every_call() {
    let service = shop().await;
    for metadata in [
        json!({ "name": 5, "namespace": "shop" }),
        json!({ "name": "a", "namespace": 7 }),
        json!({ "name": "a/b", "namespace": "shop" }),
        json!({ "name": "a", "labels": { "x": 5 } }),
        json!({ "name": "a", "labels": "x" }),
        json!({ "name": "a", "annotations": ["x"] }),
        json!({ "name": "a", "finalizers": [1] }),
        json!({ "name": "a", "ownerReferences": 7 }),
    ] {
        let reply = service.post("/v1/queues/prices/add", &json!({ "metadata": metadata })).await;
        assert_eq!(reply.problem("invalid-object")["pointer"], "/metadata", "{metadata}");
    }
    let fine = json!({ "name": "a", "namespace": null, "labels": { "x": "y" }, "ownerReferences": [{ "uid": "u" }] });
    service.post("/v1/queues/prices/add", &json!({ "metadata": fine })).await.ok();
}

#[tokio::test]
async fn options_of_a_deletion_are_an_object() {
    let service = shop().await;
    service.post(SHOP, &price("a", 1)).await.ok();
    for options in [json!([]), json!("x"), json!({ "kind": "Pod" }), json!({ "preconditions": 1 })] {
        refused(service.call("DELETE", &format!("{SHOP}/a"), &options).await, 400, "BadRequest");
    }
    let deep = "[".repeat(3 << 20);
    let mut client = service.client().await;
    let merge = [("content-type", "application/merge-patch+json")];
    client.send_text("PATCH", &format!("{SHOP}/a"), &merge, &deep).await;
    refused(client.reply().await, 413, "RequestEntityTooLarge");
    service.get(&format!("{SHOP}/a")).await.ok();
}
