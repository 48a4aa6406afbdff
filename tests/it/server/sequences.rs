//! Sequence numbers of produce calls over HTTP.

use deltaq_engine::limits::SOURCES_MAX;
use serde_json::{Value, json};

use super::{QUEUE, object};
use crate::harness::Service;

async fn post(service: &Service, call: &str, body: &Value) -> Value {
    let reply = service.post(&format!("{QUEUE}/{call}"), body).await;
    assert_eq!(reply.status, 200, "{call}: {}", reply.text);
    reply.ok()
}

#[tokio::test]
async fn every_produce_call_takes_a_number_and_repeats_change_nothing() {
    let service = Service::start().await;
    let calls = [
        ("add?source=erp&sequence=1", json!([object("a"), object("b")])),
        ("update?source=erp&sequence=2", object("a")),
        ("delete?source=erp&sequence=3", object("b")),
        ("deltas?source=erp&sequence=4", json!([{"type": "Updated", "object": object("a")}])),
        ("replace?source=erp&sequence=5", json!([object("a"), object("c")])),
    ];
    for (call, body) in &calls {
        let produced = post(&service, call, body).await;
        assert!(produced["duplicate"] == false && produced["queued"] != 0, "{call}: {produced}");
    }
    let version = service.get(QUEUE).await.ok()["status"]["resource_version"].clone();
    for (call, body) in &calls {
        let repeated = post(&service, call, body).await;
        let answer = [&repeated["duplicate"], &repeated["queued"], &repeated["ignored"]];
        assert_eq!(answer, [&json!(true), &json!(0), &json!(0)], "{call}");
        assert_eq!(repeated["resource_version"], version, "{call}");
    }
    // The objects of a repeat are admitted first, by the settings of now.
    service.call("PUT", QUEUE, &json!({"schema": {"required": ["x"]}})).await.ok();
    let refused = service.post(&format!("{QUEUE}/add?source=erp&sequence=1"), &object("a")).await;
    refused.problem("invalid-object");
    let sources = service.get(&format!("{QUEUE}/sources")).await.ok();
    assert_eq!(
        (&sources["items"][0]["source"], &sources["items"][0]["sequence"]),
        (&json!("erp"), &json!(5))
    );
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!(item["deltas"][2]["source"], "erp", "the source of the call is that of its deltas: {item}");
}

#[tokio::test]
async fn a_number_needs_a_source_and_has_64_bits() {
    let service = Service::start().await;
    for call in ["add", "update", "delete", "deltas", "replace"] {
        let refused = service.post(&format!("{QUEUE}/{call}?sequence=1"), &json!([])).await;
        let problem = refused.problem("invalid-parameter");
        assert_eq!(problem["parameter"], "sequence");
        assert!(problem["hint"] == "add source", "{problem}");
    }
    for wrong in ["-1", "1.5", "x", "18446744073709551616"] {
        let refused = service.post(&format!("{QUEUE}/add?source=a&sequence={wrong}"), &object("a")).await;
        assert_eq!(refused.problem("invalid-parameter")["parameter"], "sequence");
    }
    let last = format!("add?source=erp&sequence={}", u64::MAX);
    post(&service, &last, &object("a")).await;
    assert_eq!(post(&service, &last, &object("a")).await["duplicate"], true);
}

#[tokio::test]
async fn a_source_too_many_is_refused_with_the_limit() {
    let service = Service::start().await;
    for number in 0..SOURCES_MAX {
        post(&service, &format!("add?source=s{number}&sequence=1"), &object("a")).await;
    }
    let refused = service.post(&format!("{QUEUE}/add?source=new&sequence=1"), &object("a")).await;
    assert_eq!(refused.status, 429);
    let problem = refused.problem("too-many-sequences");
    assert!(problem["retry_after_ms"].is_null(), "a repeat does not help: {problem}");
    assert_eq!((&problem["limit"], &problem["retryable"]), (&json!(SOURCES_MAX), &json!(false)));
    post(&service, "add?source=new", &object("a")).await;
    assert_eq!(post(&service, "add?source=s0&sequence=1", &object("a")).await["duplicate"], true);
}
