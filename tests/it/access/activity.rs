//! The activity: the last calls of operators, as far as a token may see their queues.

use deltaq::config::access::Verb;
use serde_json::{Value, json};

use super::{root, token, with_tokens};
use crate::harness::Service;

async fn call(service: &Service, who: &str, method: &str, path: &str, body: &Value) -> Value {
    service.client().await.call_as(who, method, path, body).await.body
}

/// The calls that a token sees, newest first: who, what and where.
async fn seen(service: &Service, who: &str, query: &str) -> Vec<String> {
    let page =
        service.client().await.call_as(who, "GET", &format!("/v1/activity?{query}"), &Value::Null).await.ok();
    let items = page["items"].as_array().expect("calls").iter();
    let text = |item: &Value, name: &str| item[name].as_str().unwrap_or("-").to_owned();
    items.map(|item| ["by", "operation", "queue", "outcome"].map(|name| text(item, name)).join(" ")).collect()
}

#[tokio::test]
async fn a_token_sees_who_has_operated_the_queues_that_it_may_read() {
    let tenant = [Verb::Read, Verb::Admin, Verb::Produce];
    let service = with_tokens(vec![root(), token("tenant", &tenant, "mine")]).await;
    call(&service, "root", "PUT", "/v1/queues/prices", &json!({})).await;
    call(&service, "tenant", "PUT", "/v1/queues/mine", &json!({})).await;
    call(&service, "tenant", "POST", "/v1/queues/mine/add", &json!({"key": "a"})).await;
    call(&service, "root", "POST", "/v1/queues/mine/purge", &Value::Null).await;
    call(&service, "tenant", "POST", "/v1/queues/prices/purge", &Value::Null).await;
    call(&service, "root", "POST", "/v1/queues/absent/pause", &Value::Null).await;
    let (purge, put) = ("root purge_queue mine ok", "tenant put_queue mine ok");
    assert_eq!(
        seen(&service, "tenant", "").await,
        [purge, put],
        "not what the token may not read, and no refusal"
    );
    let absent = "root pause_queue absent queue-not-found";
    assert_eq!(seen(&service, "root", "").await, [absent, purge, put, "root put_queue prices ok"]);
    assert_eq!(seen(&service, "root", "operation=put_queue&by=tenant").await, [put]);
    assert_eq!(seen(&service, "root", "queue=absent").await, [absent]);
}

#[tokio::test]
async fn the_pages_of_the_activity_have_each_call_once() {
    let service = with_tokens(vec![root()]).await;
    for number in 0..7 {
        call(&service, "root", "PUT", &format!("/v1/queues/q{number}"), &json!({})).await;
    }
    let (mut queues, mut next) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/activity?limit=3{next}");
        let page = service.client().await.call_as("root", "GET", &path, &Value::Null).await.ok();
        let items = page["items"].as_array().expect("calls");
        queues.extend(items.iter().map(|item| item["queue"].as_str().expect("a queue").to_owned()));
        let Some(cursor) = page["continue"].as_str() else { break };
        next = format!("&continue={cursor}");
    }
    queues.sort();
    assert_eq!(queues, ["q0", "q1", "q2", "q3", "q4", "q5", "q6"]);
}

#[tokio::test]
async fn a_call_that_is_refused_after_its_first_check_is_no_call_of_an_operator() {
    let service = with_tokens(vec![root(), token("reader", &[Verb::Produce, Verb::Read], "prices")]).await;
    call(&service, "root", "POST", "/v1/queues/prices/add?source=erp", &json!({"key": "a"})).await;
    let path = "/v1/queues/prices/sources/erp";
    let mut client = service.client().await;
    let refused = client.call_as("reader", "PATCH", path, &json!({"sequence": 1})).await;
    refused.problem("forbidden");
    assert_eq!(seen(&service, "root", "").await, [""; 0]);
    client.call_as("root", "PATCH", path, &json!({"sequence": 1})).await.ok();
    assert_eq!(seen(&service, "root", "").await, ["root patch_source prices ok"]);
}

#[tokio::test]
async fn a_threshold_is_set_by_somebody_unless_it_is_proposed() {
    let service = with_tokens(vec![root(), token("erp", &[Verb::Produce, Verb::Read], "prices")]).await;
    call(&service, "root", "POST", "/v1/queues/prices/add?source=erp", &json!({"key": "a"})).await;
    let (one, several) = ("/v1/queues/prices/sources/erp", "/v1/queues/prices/sources");
    let mut client = service.client().await;
    client.call_as("erp", "PATCH", one, &json!({"stale_after": "1m", "proposed": true})).await.ok();
    client.call_as("erp", "POST", &format!("{one}/seen"), &Value::Null).await.ok();
    assert_eq!(seen(&service, "erp", "").await, [""; 0]);
    client.call_as("erp", "PATCH", one, &json!({"stale_after": null})).await.ok();
    client.call_as("root", "PATCH", several, &json!({"sources": {"erp": {"stale_after": "1m"}}})).await.ok();
    let calls = ["root patch_sources prices ok", "erp patch_source prices ok"];
    assert_eq!(seen(&service, "erp", "").await, calls);
}
