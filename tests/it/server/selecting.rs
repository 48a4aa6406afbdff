//! Redrive, discard and promote select keys by what they have in common.

use serde_json::{Value, json};

use super::{QUEUE, lease};
use crate::harness::{Reply, Service};

/// A server with these keys, which were rejected with the error behind each.
async fn parked(keys: &[(&str, &str)]) -> Service {
    let service = Service::start().await;
    for (key, error) in keys {
        service.post(&format!("{QUEUE}/add?source=erp"), &json!({ "key": key })).await.ok();
        let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
        let settle = json!({ "lease_id": lease(&popped, 0), "error": error });
        service.post(&format!("{QUEUE}/reject"), &settle).await.ok();
    }
    service
}

async fn redrive(service: &Service, body: Value) -> Reply {
    service.post(&format!("{QUEUE}/parked/redrive"), &body).await
}

#[tokio::test]
async fn a_filter_is_counted_first_and_then_carried_out_as_it_was_counted() {
    let service = parked(&[("eu-1", "timeout"), ("eu-2", "no route"), ("us-1", "timeout")]).await;
    let filter = json!({ "prefix": "eu-", "error": "timeout", "source": "erp", "older_than": "0s" });
    let counted = redrive(&service, json!({ "filter": filter, "dry_run": true })).await.ok();
    assert_eq!(counted["keys"], 1);
    let until = &counted["resource_version"];
    let all = json!({ "filter": { "until": until }, "dry_run": true });
    assert_eq!(redrive(&service, all.clone()).await.ok()["keys"], 3);
    service.post(&format!("{QUEUE}/parked/redrive"), &json!({ "filter": filter })).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let settle = json!({ "lease_id": lease(&popped, 0), "error": "timeout" });
    service.post(&format!("{QUEUE}/reject"), &settle).await.ok();
    assert_eq!(redrive(&service, all).await.ok()["keys"], 2, "a key was parked later");
    let changed = json!({ "filter": { "until": until }, "expected_count": 3 });
    let problem = redrive(&service, changed).await.problem("count-changed");
    assert_eq!(problem["count"], 2);
}

/// The second call measured the age again, so it also changed keys that had reached it in between.
#[tokio::test]
async fn an_age_selects_the_keys_that_had_it_when_they_were_counted() {
    let service = parked(&[("a", ""), ("b", "")]).await;
    // The reply has whole milliseconds.
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let count = json!({ "filter": { "older_than": "0s" }, "dry_run": true });
    let counted = redrive(&service, count.clone()).await.ok();
    let (until, before) = (&counted["resource_version"], &counted["older_than_at"]);
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    service.post(&format!("{QUEUE}/add"), &json!({ "key": "c" })).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    service.post(&format!("{QUEUE}/reject"), &json!({ "lease_id": lease(&popped, 0) })).await.ok();
    assert_eq!(redrive(&service, count).await.ok()["keys"], 3);
    let exact = |filter: Value| json!({ "filter": filter });
    for filter in [
        json!({ "older_than": "0s", "until": until }),
        json!({ "older_than": "0s", "older_than_at": before }),
    ] {
        let problem = redrive(&service, exact(filter)).await.problem("invalid-request");
        assert_eq!(problem["field"], "filter.older_than");
    }
    let changed = redrive(&service, exact(json!({ "older_than_at": before }))).await.ok();
    assert_eq!((&changed["keys"], &changed["older_than_at"]), (&json!(2), before));
}

#[tokio::test]
async fn an_empty_error_and_an_empty_group_select_the_keys_without_one() {
    let service = parked(&[("a", ""), ("b", "timeout")]).await;
    let count = |filter: Value| {
        let service = &service;
        async move { redrive(service, json!({ "filter": filter, "dry_run": true })).await.ok()["keys"].clone() }
    };
    assert_eq!(count(json!({ "error": "" })).await, 1);
    assert_eq!(count(json!({ "error": "", "prefix": "b" })).await, 0);
    assert_eq!(redrive(&service, json!({ "error": "", "dry_run": true })).await.ok()["keys"], 1);
    service.call("PATCH", QUEUE, &json!({"groups": {"by": "/key"}})).await.ok();
    assert_eq!(count(json!({ "group": "" })).await, 0);
    assert_eq!(count(json!({ "group": "b" })).await, 1);
}

#[tokio::test]
async fn a_selection_is_one_of_keys_error_filter_and_all_and_a_filter_is_not_empty() {
    let service = parked(&[("a", "timeout")]).await;
    for (body, field) in [
        (json!({}), "keys"),
        (json!({ "filter": {} }), "filter"),
        (json!({ "filter": { "prefix": null } }), "filter"),
        (json!({ "filter": { "prefix": "a" }, "all": true }), "all"),
        (json!({ "filter": { "prefix": "a" }, "keys": ["a"] }), "filter"),
        (json!({ "filter": { "prefix": "a" }, "error": "timeout" }), "filter"),
    ] {
        let problem = redrive(&service, body.clone()).await.problem("invalid-request");
        assert_eq!(problem["field"], field, "{body}");
    }
    for body in [json!({ "filter": { "prefx": "a" } }), json!({ "filter": { "older_than": "soon" } })] {
        redrive(&service, body).await.problem("invalid-request");
    }
    let page = service.get(&format!("{QUEUE}/items?state=parked")).await.ok();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1));
}
