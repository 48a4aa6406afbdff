//! Schemas, defaults and pruning, in every call that brings objects.

use serde_json::{Value, json};

use super::{QUEUE, keys, lease, status};
use crate::harness::{Reply, Service};

/// The schema and pruning of the queue in most tests.
fn rules() -> Value {
    json!({
        "schema": {
            "required": ["price"],
            "properties": {
                "price": {"type": "number", "minimum": 0},
                "currency": {"default": "EUR"},
            },
        },
        "prune": ["/debug"],
    })
}

async fn admitting() -> Service {
    let service = Service::start().await;
    service.call("PUT", QUEUE, &rules()).await.ok();
    service
}

/// Posts a body as text, because `Value` would not keep the digits of numbers.
async fn post_text(service: &Service, call: &str, kind: &str, body: &str) -> Reply {
    let mut client = service.client().await;
    client.send_text("POST", &format!("{QUEUE}/{call}"), &[("content-type", kind)], body).await;
    client.reply().await
}

/// The text of the only waiting object.
async fn waiting(service: &Service) -> String {
    let reply = service.get(&format!("{QUEUE}/items/a")).await;
    let (_, rest) = reply.text.split_once("\"object\":").expect("an object");
    rest.split_once(",\"final_state_unknown\":").expect("its end").0.to_owned()
}

const CAME: &str = r#"{"key" : "a", "debug":{"x":[1]},"price": 1e400}"#;
const TAKEN: &str = r#"{"key":"a","price":1e400,"currency":"EUR"}"#;

#[tokio::test]
async fn every_call_stores_the_admitted_objects() {
    for (call, body) in [
        ("add", CAME.to_owned()),
        ("update", format!("[{CAME}]")),
        ("replace", format!("[{CAME}]")),
        ("deltas", format!(r#"{{"type":"Added","object":{CAME}}}"#)),
    ] {
        for kind in ["application/json", "application/x-ndjson"] {
            let lines = kind.ends_with("ndjson");
            let body = if lines { body.trim_matches(['[', ']']) } else { &body };
            let call = if lines && call == "replace" { "replace?count=1" } else { call };
            let service = admitting().await;
            post_text(&service, call, kind, body).await.ok();
            assert_eq!(waiting(&service).await, TAKEN, "{call} {kind}");
        }
    }
    let service = admitting().await;
    post_text(&service, "seed", "application/json", &format!(r#"{{"object":{CAME}}}"#)).await.ok();
    let known = service.get(&format!("{QUEUE}/known/a")).await;
    assert!(known.text.contains(TAKEN), "{}", known.text);
}

#[tokio::test]
async fn every_call_refuses_objects_that_do_not_satisfy_the_schema() {
    let service = admitting().await;
    let before = service.get(QUEUE).await.ok()["status"]["resource_version"].clone();
    let (good, bad) = (r#"{"key":"a","price":1}"#, r#"{"key":"b","price":-1}"#);
    for (call, wrap) in [
        ("add", "%"),
        ("update", "%"),
        ("replace", "%"),
        ("replace?dry_run=true", "%"),
        ("deltas", r#"{"type":"Updated","object":%}"#),
        ("seed", r#"{"object":%}"#),
    ] {
        let (good, bad) = (wrap.replace('%', good), wrap.replace('%', bad));
        let refused = post_text(&service, call, "application/json", &format!("[{good},{bad}]")).await;
        let problem = refused.problem("invalid-object");
        assert_eq!((&problem["index"], problem.get("line")), (&json!(1), None), "{call}");
        let errors = json!([{
            "pointer": "/price",
            "schema_pointer": "/properties/price/minimum",
            "detail": "-1 is less than the minimum of 0",
        }]);
        assert_eq!(problem["errors"], errors, "{call}");
        let call = if call == "replace" { "replace?count=2" } else { call };
        let lines = format!("{good}\n\n{bad}\n");
        let refused = post_text(&service, call, "application/x-ndjson", &lines).await;
        let problem = refused.problem("invalid-object");
        assert_eq!((&problem["index"], &problem["line"]), (&json!(1), &json!(3)), "{call}");
    }
    let document = service.get(QUEUE).await.ok();
    assert_eq!(document["status"]["resource_version"], before, "all or none: {document}");
    assert_eq!(document["status"]["known"], 0);
}

#[tokio::test]
async fn the_object_of_a_delete_is_changed_but_not_validated() {
    let service = admitting().await;
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a", "price": 1})).await.ok();
    let deleted = r#"{"key":"a","debug":1}"#;
    post_text(&service, "delete", "application/json", deleted).await.ok();
    let item = service.get(&format!("{QUEUE}/items/a")).await.ok();
    assert_eq!(item["deltas"][1]["object"], json!({"key": "a", "currency": "EUR"}));
    let delta = json!({"type": "Deleted", "object": {"key": "b", "price": "x", "debug": 1}});
    service.post(&format!("{QUEUE}/deltas"), &delta).await.ok();
    service.post(&format!("{QUEUE}/delete?key=a"), &Value::Null).await.ok();
}

#[tokio::test]
async fn only_changed_compares_the_admitted_objects() {
    let service = admitting().await;
    post_text(&service, "replace", "application/json", &format!("[{CAME}]")).await.ok();
    let other = r#"[{"debug":{"x":[2]},"price":1e400,"key":"a"}]"#;
    let replaced = post_text(&service, "replace?only_changed=true", "application/json", other).await.ok();
    assert_eq!((&replaced["unchanged"], &replaced["replaced"]), (&json!(1), &json!(0)));
    let dear = r#"[{"price":1e401,"key":"a"}]"#;
    let replaced = post_text(&service, "replace?only_changed=true", "application/json", dear).await.ok();
    assert_eq!((&replaced["unchanged"], &replaced["replaced"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn keys_and_sizes_are_those_of_the_admitted_objects() {
    let service = Service::start().await;
    let rules = json!({
        "schema": {"properties": {"key": {"default": "only"}, "text": {"default": "0123456789"}}},
        "prune": ["/debug"],
        "max_object_bytes": 1_024,
    });
    service.call("PUT", QUEUE, &rules).await.ok();
    service.post(&format!("{QUEUE}/add"), &json!({})).await.ok();
    let long = "x".repeat(2_000);
    let pruned = json!({"key": "pruned", "debug": long});
    for kind in ["application/json", "application/x-ndjson"] {
        post_text(&service, "add", kind, &pruned.to_string()).await.ok();
        post_text(&service, "seed", kind, &json!({"object": pruned}).to_string()).await.problem("not-empty");
    }
    let fits = json!({"key": "a", "x": "y".repeat(1_024 - 37)}).to_string();
    let filled = post_text(&service, "add", "application/json", &fits).await;
    assert_eq!(filled.problem("object-too-large")["limit"], 1_024);
    let list: Value = std::iter::repeat_n(json!({}), 400).collect();
    let rules = json!({"schema": {"properties": {"l": {"items": {"properties": {"n": {"default": 1}}}}}}});
    service.call("PATCH", QUEUE, &rules).await.ok();
    let filled = service.post(&format!("{QUEUE}/add"), &json!({"key": "a", "l": list})).await;
    assert_eq!(filled.problem("object-too-large")["limit"], 1_024);
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["only", "pruned"]);
}

#[tokio::test]
async fn bytes_that_defaults_add_to_a_list_count_toward_its_limits() {
    let service = Service::with(|settings| settings.server.max_body_bytes_in_flight = 1 << 20).await;
    let text = "x".repeat(2_000);
    let rules = json!({"schema": {"additionalProperties": {"properties": {"text": {"default": text}}}}});
    service.call("PUT", QUEUE, &rules).await.ok();
    // 27 bytes each become 6 kB.
    let object = |n: usize| json!({"key": n.to_string(), "a": {}, "b": {}, "c": {}});
    let objects = |count: usize| -> Value { (0..count).map(object).collect() };
    let deltas: Value = (0..300).map(|n| json!({"type": "Added", "object": object(n)})).collect();
    let seeds: Value = (0..300).map(|n| json!({"object": object(n)})).collect();
    for (call, body) in [
        ("add", objects(300)),
        ("update", objects(300)),
        ("replace", objects(300)),
        ("deltas", deltas),
        ("seed", seeds),
    ] {
        let refused = service.post(&format!("{QUEUE}/{call}"), &body).await;
        // An eighth is reserved for workers.
        assert_eq!(refused.problem("object-too-large")["limit"], 7 << 17, "{call}");
    }
    service.post(&format!("{QUEUE}/add"), &objects(100)).await.ok();
    service.post(&format!("{QUEUE}/add"), &objects(100)).await.ok();
}

#[tokio::test]
async fn many_objects_are_admitted_in_order_and_errors_name_their_object() {
    let service = admitting().await;
    let object = |n: usize| json!({"key": n.to_string(), "price": if n == 250 { -1 } else { 1 }});
    let list = |count: usize| -> Vec<String> { (0..count).map(|n| object(n).to_string()).collect() };
    for call in ["add", "replace?count=260"] {
        for (kind, body) in [
            ("application/json", format!("[{}]", list(260).join(","))),
            ("application/x-ndjson", list(260).join("\n")),
        ] {
            let refused = post_text(&service, call, kind, &body).await;
            assert_eq!(refused.problem("invalid-object")["index"], 250, "{call} {kind}");
        }
        let mut broken = list(252);
        broken[251] = "{".to_owned();
        let refused =
            post_text(&service, &call.replace("260", "252"), "application/x-ndjson", &broken.join("\n"))
                .await;
        if call != "add" {
            assert_eq!(refused.problem("invalid-object")["index"], 250, "the first wrong object is reported");
        }
        post_text(&service, &call.replace("260", "250"), "application/x-ndjson", &list(250).join("\n"))
            .await
            .ok();
    }
    let popped = service.post(&format!("{QUEUE}/pop?max=1000"), &Value::Null).await.ok();
    let expected: Vec<String> = (0..250).map(|n| n.to_string()).collect();
    assert_eq!(keys(&popped), expected);
}

#[tokio::test]
async fn new_rules_do_not_change_stored_objects() {
    let service = Service::start().await;
    let old = json!({"key": "a", "debug": 1});
    service.post(&format!("{QUEUE}/add"), &old).await.ok();
    let document = service.call("PUT", QUEUE, &rules()).await.ok();
    for rule in ["schema", "prune"] {
        assert_eq!(document["settings"][rule], rules()[rule]);
    }
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    assert_eq!(popped["items"][0]["deltas"][0]["object"], old);
    service.post(&format!("{QUEUE}/add"), &old).await.problem("invalid-object");
    service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [lease(&popped, 0)]})).await.ok();
    service.post(&format!("{QUEUE}/resync"), &Value::Null).await.ok();
    assert_eq!(status(&service, "ready").await, 1, "a Resync delivers the known object");

    let document = service.call("PATCH", QUEUE, &json!({"lease": "1m"})).await.ok();
    assert_eq!(document["settings"]["prune"], json!(["/debug"]), "a PATCH changes what it names");
    let document = service.call("PATCH", QUEUE, &json!({"schema": null, "prune": []})).await.ok();
    assert_eq!(document["settings"]["schema"], Value::Null);
    assert_eq!(document["settings"]["prune"], json!([]));
    service.post(&format!("{QUEUE}/update"), &old).await.ok();
}

#[tokio::test]
async fn a_queue_of_mode_keys_validates_objects_that_it_does_not_store() {
    let service = Service::start().await;
    let mut rules = rules();
    rules["mode"] = json!("keys");
    service.call("PUT", QUEUE, &rules).await.ok();
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a"})).await.problem("invalid-object");
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a", "price": 1})).await.ok();
    service.post(&format!("{QUEUE}/add?key=b"), &Value::Null).await.ok();
    let popped = service.post(&format!("{QUEUE}/pop?max=9"), &Value::Null).await.ok();
    assert_eq!(keys(&popped), ["a", "b"]);
}

#[tokio::test]
async fn invalid_rules_change_nothing_and_the_problem_names_the_place() {
    let service = admitting().await;
    let put = async |body: Value| service.call("PATCH", QUEUE, &body).await;
    let problem = put(json!({"schema": {"properties": {"a": {"type": "strin"}}}})).await;
    let problem = problem.problem("invalid-config");
    assert_eq!((&problem["field"], &problem["pointer"]), (&json!("schema"), &json!("/properties/a/type")));
    let long = put(json!({"schema": {"title": "x".repeat(256 << 10)}})).await;
    assert_eq!(long.problem("invalid-config")["limit"], 262_144);
    let endless = put(json!({"schema": {"properties": {"a": {"default": {}, "$ref": "#"}}}})).await;
    assert_eq!(endless.problem("invalid-config")["field"], "schema");
    let defs: serde_json::Map<_, _> = (0..28)
        .map(|n| (format!("d{n}"), json!({"oneOf": vec![json!({"$ref": format!("#/$defs/d{}", n + 1)}); 2]})))
        .chain([("d28".to_owned(), json!({}))])
        .collect();
    let costly = put(json!({"schema": {"$ref": "#/$defs/d0", "$defs": defs}})).await;
    let costly = costly.problem("invalid-config");
    assert_eq!((&costly["field"], &costly["limit"]), (&json!("schema"), &json!(10_000)));
    assert!(costly["detail"].to_string().contains("multiplied out"), "{costly}");
    for schema in [json!(true), json!([]), json!("{}"), json!({"$ref": "http://localhost:1/x"})] {
        assert_eq!(put(json!({"schema": schema})).await.problem("invalid-config")["field"], "schema");
    }
    for prune in [json!("/a"), json!([1]), json!(["a"]), json!(["/~2"]), json!(["/key"]), json!({})] {
        assert_eq!(put(json!({"prune": prune})).await.problem("invalid-config")["field"], "prune");
    }
    assert_eq!(put(json!({"prune": vec!["/a"; 101]})).await.problem("invalid-config")["limit"], 100);
    let problem = put(json!({"key": ["/debug/name"]})).await;
    assert_eq!(problem.problem("invalid-config")["field"], "prune", "what is pruned can't become the key");
    let problem = put(json!({"shema": {}})).await;
    assert!(problem.problem("invalid-request")["hint"].to_string().contains("schema"));
    let document = service.get(QUEUE).await.ok();
    for rule in ["schema", "prune"] {
        assert_eq!(document["settings"][rule], rules()[rule]);
    }
}

#[tokio::test]
async fn no_pattern_can_block_the_server() {
    let service = Service::start().await;
    let rules = json!({"schema": {"properties": {"a": {"pattern": "^(a+)+$"}}}});
    service.call("PUT", QUEUE, &rules).await.ok();
    let long = json!({"key": "k", "a": format!("{}!", "a".repeat(100_000))});
    let problem = service.post(&format!("{QUEUE}/add"), &long).await.problem("invalid-object").clone();
    let detail = problem["errors"][0]["detail"].as_str().expect("a text");
    assert_eq!(detail.chars().count(), 200);
    assert!(problem.to_string().len() < 1_200, "{problem}");
}

#[tokio::test]
async fn numbers_of_a_schema_keep_every_digit() {
    let service = Service::start().await;
    let mut client = service.client().await;
    let body =
        r#"{"schema":{"properties":{"n":{"default":12345678901234567890.10e+400}, "x":{"const":1.0}}}}"#;
    client.send_text("PUT", QUEUE, &[], body).await;
    let text = client.reply().await.text;
    let compact =
        r#""schema":{"properties":{"n":{"default":12345678901234567890.10e+400},"x":{"const":1.0}}}"#;
    assert!(text.contains(compact), "{text}");
    post_text(&service, "add", "application/json", r#"{"key":"a","x":1}"#).await.ok();
    assert_eq!(waiting(&service).await, r#"{"key":"a","x":1,"n":12345678901234567890.10e+400}"#);
}
