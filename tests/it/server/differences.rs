//! The difference from the known object of a key to its newest one.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease};
use crate::harness::Service;

/// Changes the key and pops it.
async fn popped_after(service: &Service, call: &str, object: &Value, with: &str) -> Value {
    service.post(&format!("{QUEUE}/{call}"), object).await.ok();
    service.post(&format!("{QUEUE}/pop?with={with}"), &json!({})).await.ok()
}

async fn ack(service: &Service, popped: &Value) {
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_id": lease(popped, 0)})).await.ok();
}

#[tokio::test]
async fn a_pop_may_ask_for_the_difference() {
    let service = Service::start().await;
    let first = popped_after(&service, "add", &json!({"key": "k", "price": 10, "sale": true}), "diff").await;
    assert_eq!((keys(&first), &first["items"][0]["diff"]), (vec!["k"], &Value::Null), "no known object");
    assert!(first["items"][0].get("diff_omitted").is_none());
    ack(&service, &first).await;

    let changed = json!({"price": 12.0, "key": "k"});
    let second = popped_after(&service, "update", &changed, "diff,known").await;
    let expected = json!([
        {"op": "replace", "path": "/price", "value": 12.0, "old": 10},
        {"op": "remove", "path": "/sale", "old": true},
    ]);
    let item = &second["items"][0];
    assert_eq!((&item["diff"], &item["known"]["sale"]), (&expected, &json!(true)));
    ack(&service, &second).await;

    let same = popped_after(&service, "update", &json!({"key": "k", "price": 12}), "diff").await;
    assert_eq!((&same["items"][0]["diff"], same["items"][0].get("known")), (&json!([]), None));
    ack(&service, &same).await;
    let deleted = popped_after(&service, "delete", &json!({"key": "k"}), "diff").await;
    assert_eq!(deleted["items"][0]["diff"], Value::Null);
    ack(&service, &deleted).await;

    let without = popped_after(&service, "add", &json!({"key": "k"}), "known").await;
    assert!(without["items"][0].get("diff").is_none());
}

#[tokio::test]
async fn an_item_has_the_difference_that_its_pop_would_have() {
    let service = Service::start().await;
    let item = async |query: &str| service.get(&format!("{QUEUE}/items/k{query}")).await.ok();
    let first = popped_after(&service, "add", &json!({"key": "k", "n": 1}), "diff").await;
    assert_eq!(item("?with=diff").await["diff"], Value::Null, "no known object");
    ack(&service, &first).await;

    // Objects of all sizes: large ones are compared on another thread.
    for (n, text) in [(2, "x".repeat(200)), (3, "y".repeat(400_000)), (4, String::new())] {
        service.post(&format!("{QUEUE}/update"), &json!({"key": "k", "n": n, "text": text})).await.ok();
        let waiting = item("?with=diff").await;
        let popped = service.post(&format!("{QUEUE}/pop?with=diff"), &json!({})).await.ok();
        let of_pop = &popped["items"][0];
        for document in [&waiting, &item("?with=diff").await] {
            assert_eq!(document["diff"], of_pop["diff"]);
            assert_eq!(document.get("diff_omitted"), of_pop.get("diff_omitted"));
        }
        assert_eq!(of_pop["diff"].is_array(), n == 2, "{n}");
        assert!(item("").await.get("diff").is_none());
        ack(&service, &popped).await;
    }
    // A change behind the lease counts.
    let popped = popped_after(&service, "update", &json!({"key": "k", "n": 5}), "diff").await;
    assert_eq!(popped["items"][0]["diff"][0]["value"], 5);
    service.post(&format!("{QUEUE}/update"), &json!({"key": "k", "n": 6})).await.ok();
    assert_eq!(item("?with=diff").await["diff"][0]["value"], 6);
    let of_query = service.get(&format!("{QUEUE}/item?key=k&with=diff")).await.ok();
    assert_eq!(of_query["diff"][0]["value"], 6);
    service.post(&format!("{QUEUE}/delete"), &json!({"key": "k"})).await.ok();
    assert_eq!(item("?with=diff").await["diff"], Value::Null);
    for with in ["known", "known,diff"] {
        let problem =
            service.get(&format!("{QUEUE}/item?key=k&with={with}")).await.problem("invalid-parameter");
        assert_eq!(problem["parameter"], "with", "{problem}");
    }
}

#[tokio::test]
async fn a_list_has_the_differences_of_its_keys() {
    let service = Service::start().await;
    // Together these objects are compared on a thread for long computations.
    let large = "x".repeat(100 << 10);
    for (n, call) in [(1, "add"), (2, "update")] {
        let objects: Vec<Value> =
            (0..3).map(|key| json!({"key": format!("k{key}"), "n": n, "large": large})).collect();
        service.post(&format!("{QUEUE}/{call}"), &json!(objects)).await.ok();
        if n == 1 {
            let popped = service.post(&format!("{QUEUE}/pop?max=9"), &json!({})).await.ok();
            for item in popped["items"].as_array().expect("a list") {
                service.post(&format!("{QUEUE}/ack"), &json!({"lease_id": item["lease"]["id"]})).await.ok();
            }
        }
    }
    let expected = json!([{"op": "replace", "path": "/n", "value": 2, "old": 1}]);
    for query in ["with=diff", "with=diff&fields=key,diff", "with=diff&key=k1&fields=diff"] {
        let page = service.get(&format!("{QUEUE}/items?{query}")).await.ok();
        let items = page["items"].as_array().expect("a list");
        assert_eq!(items.len(), if query.contains("key=k1") { 1 } else { 3 });
        assert!(items.iter().all(|item| item["diff"] == expected), "{query}");
    }
    let bare = service.get(&format!("{QUEUE}/items?fields=key")).await.ok();
    assert_eq!(bare["items"][0], json!({"key": "k0"}));
    service.get(&format!("{QUEUE}/items?with=known")).await.problem("invalid-parameter");
}

#[tokio::test]
async fn the_settings_say_what_identifies_the_elements_of_an_array() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({"diff": {"array_keys": {"/items": "/sku"}}})).await.ok();
    let order = |amount: u32| json!({"key": "k", "items": [{"sku": "a", "amount": 1}, {"sku": "b", "amount": amount}]});
    let first = popped_after(&service, "add", &order(1), "diff").await;
    ack(&service, &first).await;
    let second = popped_after(&service, "update", &order(2), "diff").await;
    let line = json!([{"op": "replace", "path": "/items/1/amount", "value": 2, "old": 1}]);
    assert_eq!(second["items"][0]["diff"], line);
    ack(&service, &second).await;

    let changed = service.call("PATCH", QUEUE, &json!({"diff": {"array_keys": {"/items": null}}})).await.ok();
    assert_eq!(changed["settings"]["diff"], json!({"array_keys": {}}));
    let third = popped_after(&service, "update", &order(3), "diff").await;
    assert_eq!(third["items"][0]["diff"][0]["path"], "/items");

    for (array_keys, field) in [
        (json!({"items": "/sku"}), "items"),
        (json!({"/items": "sku"}), "sku"),
        (json!({"/items": 1}), "diff.array_keys"),
        (json!([]), "diff.array_keys"),
        ((0..17).map(|n| (format!("/{n}"), json!("/id"))).collect(), "at most 16"),
    ] {
        let refused = service.call("PATCH", QUEUE, &json!({"diff": {"array_keys": array_keys}})).await;
        let problem = refused.problem("invalid-config");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(field)), "{problem}");
    }
}

#[tokio::test]
async fn a_large_difference_is_left_out() {
    let service = Service::start().await;
    // The path of each member repeats the long name.
    let object = |value: u32| {
        let members = (0..100).map(|n| (format!("m{n}"), json!(value))).collect::<Value>();
        json!({"key": "k", "x".repeat(1_000): members})
    };
    let first = popped_after(&service, "add", &object(1), "diff").await;
    ack(&service, &first).await;
    let second = popped_after(&service, "update", &object(2), "diff").await;
    let item = &second["items"][0];
    assert_eq!((&item["diff"], &item["diff_omitted"]), (&Value::Null, &json!("too_large")));
}

#[tokio::test]
async fn a_wrong_addition_is_refused() {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    for with in ["diffs", "known,", "known;diff"] {
        let refused = service.post(&format!("{QUEUE}/pop?with={with}"), &json!({})).await;
        let problem = refused.problem("invalid-parameter");
        assert_eq!(problem["parameter"], "with", "{problem}");
    }
}
