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
async fn a_number_needs_a_source_and_is_at_most_2_to_the_53_minus_1() {
    let service = Service::start().await;
    for call in ["add", "update", "delete", "deltas", "replace"] {
        let refused = service.post(&format!("{QUEUE}/{call}?sequence=1"), &json!([])).await;
        let problem = refused.problem("invalid-parameter");
        assert_eq!(problem["parameter"], "sequence");
        assert!(problem["hint"] == "add source", "{problem}");
    }
    for wrong in ["-1", "1.5", "x", "18446744073709551616", "18446744073709551615", "9007199254740992"] {
        let refused = service.post(&format!("{QUEUE}/add?source=a&sequence={wrong}"), &object("a")).await;
        assert_eq!(refused.problem("invalid-parameter")["parameter"], "sequence");
    }
    for number in ["count", "max_deletes"] {
        let refused = service.post(&format!("{QUEUE}/replace?{number}=9007199254740992"), &json!([])).await;
        assert_eq!(refused.problem("invalid-parameter")["parameter"], number);
    }
    for (call, body) in [
        ("parked/redrive", json!({"all": true, "expected_count": 9_007_199_254_740_992_u64})),
        ("parked/redrive", json!({"all": true, "expected_count": 1e300})),
    ] {
        service.post(&format!("{QUEUE}/{call}"), &body).await.problem("invalid-request");
    }
    for settings in
        [json!({"max_deletes": 9_007_199_254_740_992_u64}), json!({"retention": {"bytes": 1_u64 << 60}})]
    {
        service.call("PUT", QUEUE, &settings).await.problem("invalid-config");
    }
    let last = "add?source=erp&sequence=9007199254740991".to_owned();
    post(&service, &last, &object("a")).await;
    assert_eq!(post(&service, &last, &object("a")).await["duplicate"], true);
}

#[tokio::test]
async fn the_number_of_a_source_can_be_reset_or_set() {
    let service = Service::start().await;
    post(&service, "add?source=erp%2Feu&sequence=9007199254740991", &object("a")).await;
    assert_eq!(post(&service, "add?source=erp%2Feu&sequence=7", &object("a")).await["duplicate"], true);
    let path = format!("{QUEUE}/sources/erp%2Feu");
    let reset = service.call("PATCH", &path, &json!({"sequence": null})).await.ok();
    assert_eq!(
        (&reset["source"], &reset["sequence"], &reset["keys"]),
        (&json!("erp/eu"), &json!(null), &json!(1))
    );
    let applied = post(&service, "add?source=erp%2Feu&sequence=7", &object("a")).await;
    assert_eq!((&applied["duplicate"], &applied["sequence"]), (&json!(false), &json!(7)));
    // Calls that were applied before can stay duplicates.
    service.call("PATCH", &path, &json!({"sequence": 5})).await.ok();
    assert_eq!(post(&service, "add?source=erp%2Feu&sequence=5", &object("a")).await["duplicate"], true);
    assert_eq!(post(&service, "add?source=erp%2Feu&sequence=6", &object("a")).await["duplicate"], false);

    let nobody = format!("{QUEUE}/sources/nobody");
    service.call("PATCH", &nobody, &json!({"sequence": null})).await.problem("source-not-found");
    for wrong in
        [json!({}), json!({"sequence": -1}), json!({"sequence": 1_u64 << 53}), json!({"sequenc": null})]
    {
        service.call("PATCH", &path, &wrong).await.problem("invalid-request");
    }
    service
        .call("PATCH", "/v1/queues/absent/sources/a", &json!({"sequence": null}))
        .await
        .problem("queue-not-found");
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
