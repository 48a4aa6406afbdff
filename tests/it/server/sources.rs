//! The problems that sources report.

use serde_json::{Value, json};

use crate::harness::Service;

const QUEUE: &str = "/v1/queues/prices";
const SOURCES: &str = "/v1/queues/prices/sources";

async fn report(service: &Service, source: &str, problem: Value) {
    let reply = service.post(SOURCES, &json!({"source": source, "problem": problem})).await;
    assert_eq!(reply.status, 204, "{}", reply.body);
}

/// The sources with their keys and problems.
async fn listed(service: &Service) -> Vec<Value> {
    let page = service.get(SOURCES).await.ok();
    let items = page["items"].as_array().expect("items").iter();
    items.map(|item| json!([item["source"], item["keys"], item["problem"]["detail"]])).collect()
}

#[tokio::test]
async fn a_problem_is_shown_with_its_source_until_it_has_passed() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add?source=erp"), &json!({"key": "a"})).await.ok();
    // A source that has never sent anything has a problem as well.
    report(&service, "crm", json!("User \"x\" cannot list resource \"prices\"")).await;
    report(&service, "erp", json!("down")).await;
    report(&service, "erp", json!("2 objects are left out")).await;
    let crm = json!(["crm", 0, "User \"x\" cannot list resource \"prices\""]);
    assert_eq!(listed(&service).await, [crm, json!(["erp", 1, "2 objects are left out"])]);
    let first = service.get(&format!("{SOURCES}?limit=1")).await.ok();
    assert!(first["items"][0]["problem"]["reported_at"].is_string(), "{first}");
    let next = first["continue"].as_str().expect("another page");
    let second = service.get(&format!("{SOURCES}?limit=1&continue={next}")).await.ok();
    assert_eq!((&second["items"][0]["source"], &second["continue"]), (&json!("erp"), &Value::Null));

    report(&service, "crm", Value::Null).await;
    report(&service, "erp", Value::Null).await;
    report(&service, "nobody", Value::Null).await;
    assert_eq!(listed(&service).await, [json!(["erp", 1, null])]);
}

#[tokio::test]
async fn wrong_reports_are_refused() {
    let service = Service::start().await;
    let down = json!({"source": "erp", "problem": "down"});
    service.post(SOURCES, &down).await.problem("queue-not-found");
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a"})).await.ok();
    for (report, field) in [
        (json!({"source": "", "problem": "down"}), "source"),
        (json!({"source": "a\n", "problem": "down"}), "source"),
        (json!({"source": "erp", "problem": "x".repeat(5_000)}), "problem"),
    ] {
        assert_eq!(service.post(SOURCES, &report).await.problem("invalid-request")["field"], field);
    }
    for report in
        [json!({}), json!({"problem": "down"}), json!({"source": "erp", "why": 1}), json!({"source": 1})]
    {
        service.post(SOURCES, &report).await.problem("invalid-request");
    }
    assert_eq!(listed(&service).await, [Value::Null; 0]);
}
