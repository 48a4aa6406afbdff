//! Reads over all queues: their workers, what a text is found in, and what a server says of itself.

use std::time::Duration;

use deltaq::config::access::Verb;
use serde_json::{Value, json};

use crate::access::token;
use crate::harness::Service;

async fn post(service: &Service, path: &str, body: Value) -> Value {
    service.post(&format!("/v1/queues/{path}"), &body).await.ok()
}

fn texts(list: &Value, fields: &[&str]) -> Vec<Vec<String>> {
    let row = |one: &Value| {
        let text = |field: &&str| one[*field].as_str().unwrap_or("-").to_owned();
        fields.iter().map(text).collect()
    };
    list.as_array().expect("a list").iter().map(row).collect()
}

#[tokio::test]
async fn workers_of_all_queues_are_listed_and_slow_ones_come_first() {
    let service = Service::start().await;
    // Leases of `quick` take no time, so one that is older than the setting is slow.
    let objects: Vec<Value> = (0..12).map(|number| json!({"key": format!("k{number:02}")})).collect();
    for queue in ["plain", "quick"] {
        post(&service, &format!("{queue}/add"), json!(objects)).await;
    }
    for _ in 0..10 {
        let popped = post(&service, "quick/pop?worker=fast", json!({})).await;
        let ids = json!({ "lease_ids": [popped["items"][0]["lease"]["id"]] });
        post(&service, "quick/ack", ids).await;
    }
    let settings = json!({ "lease": "1s" });
    assert_eq!(service.call("PUT", "/v1/queues/quick", &settings).await.status, 200);
    post(&service, "plain/pop?max=2&worker=a", json!({})).await;
    // Two leases of one millisecond are as old as each other.
    tokio::time::sleep(Duration::from_millis(2)).await;
    post(&service, "plain/pop", json!({})).await;
    post(&service, "quick/pop?worker=stuck&lease_duration=1h", json!({})).await;
    let list = loop {
        let list = service.get("/v1/workers").await.ok();
        if list["workers"][0]["is_slow"] == true {
            break list;
        }
    };
    assert_eq!(
        texts(&list["workers"], &["queue", "worker"]),
        [["quick", "stuck"], ["plain", "a"], ["plain", "-"]]
    );
    let stuck = &list["workers"][0];
    assert!(stuck["oldest_lease_age_ms"].as_u64() >= stuck["slow_after_ms"].as_u64(), "{stuck}");
    assert!(stuck["slow_after_ms"].as_u64() >= Some(1_000) && stuck["leased"] == 1, "{stuck}");
    // Without ended leases nothing is known of a queue, so a lease is slow after ten times the setting.
    let plain = &list["workers"][1];
    assert_eq!(
        (&plain["is_slow"], &plain["slow_after_ms"], &plain["leased"]),
        (&json!(false), &json!(300_000), &json!(2))
    );
    assert_eq!((&list["left_out"], &list["unavailable"]), (&json!(0), &json!([])));

    // The limit keeps the first ones.
    let one = service.get("/v1/workers?limit=1").await.ok();
    assert_eq!(texts(&one["workers"], &["worker"]), [["stuck"]]);
    assert_eq!(one["left_out"], 2);
    service.get("/v1/workers?limit=0").await.problem("invalid-parameter");
}

#[tokio::test]
async fn a_text_is_found_in_queues_keys_sources_and_workers() {
    let service = Service::start().await;
    post(
        &service,
        "prices/add?source=erp-prices",
        json!([{"key":"sku-1"}, {"key":"sku-10"}, {"key":"sku-2"}]),
    )
    .await;
    post(&service, "stock/add?source=shop", json!([{"key":"sku-1"}, {"key":"a"}])).await;
    let popped = post(&service, "stock/pop?max=9&worker=stock-worker-1", json!({})).await;
    let lease_of = |key: &str| {
        let items = popped["items"].as_array().expect("a list");
        items.iter().find(|item| item["key"] == key).map(|item| item["lease"]["id"].clone())
    };
    post(&service, "stock/ack", json!({ "lease_ids": [lease_of("a")] })).await;
    let found = service.get("/v1/find?text=sku-1").await.ok();
    // The key that equals the text comes first, in each queue that has it.
    assert_eq!(
        texts(&found["keys"], &["key", "queue", "state"]),
        [["sku-1", "prices", "ready"], ["sku-1", "stock", "leased"], ["sku-10", "prices", "ready"]]
    );
    assert_eq!(
        (&found["queues"], &found["has_more"], &found["unavailable"]),
        (&json!([]), &json!(false), &json!(0))
    );
    let found = service.get("/v1/find?text=a").await.ok();
    assert_eq!(texts(&found["keys"], &["key", "queue", "state"]), [["a", "stock", "-"]]);
    let found = service.get("/v1/find?text=PRICE").await.ok();
    assert_eq!(found["queues"], json!(["prices"]));
    assert_eq!(texts(&found["sources"], &["source", "queue"]), [["erp-prices", "prices"]]);
    assert_eq!(found["sources"][0]["keys"], 3);
    let found = service.get("/v1/find?text=worker-1").await.ok();
    assert_eq!(texts(&found["workers"], &["worker", "queue"]), [["stock-worker-1", "stock"]]);
    // A reply is bounded, and says that there is more.
    let many: Vec<Value> = (0..30).map(|number| json!({"key": format!("many-{number:02}")})).collect();
    post(&service, "prices/add", json!(many)).await;
    let found = service.get("/v1/find?text=many-").await.ok();
    assert_eq!(found["keys"].as_array().map(Vec::len), Some(20));
    assert_eq!((&found["keys"][19]["key"], &found["has_more"]), (&json!("many-19"), &json!(true)));
    for wrong in ["/v1/find", "/v1/find?text=", &format!("/v1/find?text={}", "x".repeat(1_025))] {
        service.get(wrong).await.problem("invalid-parameter");
    }
}

#[tokio::test]
async fn a_token_finds_what_it_may_read() {
    let tokens = [
        token("some", &[Verb::Read], "prices*"),
        token("boss", &Verb::ALL, "*"),
        token("none", &[Verb::Produce], "*"),
    ];
    let service = Service::with(|settings| settings.access.tokens = tokens.to_vec()).await;
    let mut client = service.client().await;
    for queue in ["prices", "secrets"] {
        let path = format!("/v1/queues/{queue}/add?source=erp");
        client.call_as("boss", "POST", &path, &json!({ "key": "sku-1" })).await.ok();
        let path = format!("/v1/queues/{queue}/pop?worker=erp-worker");
        client.call_as("boss", "POST", &path, &json!({})).await.ok();
    }
    for (caller, queues) in [("some", 1), ("boss", 2)] {
        let found = client.call_as(caller, "GET", "/v1/find?text=sku", &Value::Null).await.ok();
        assert_eq!(found["keys"].as_array().map(Vec::len), Some(queues), "{caller}");
        let found = client.call_as(caller, "GET", "/v1/find?text=e", &Value::Null).await.ok();
        for kind in ["queues", "sources", "workers"] {
            assert_eq!(found[kind].as_array().map(Vec::len), Some(queues), "{caller} {kind}");
        }
        let list = client.call_as(caller, "GET", "/v1/workers", &Value::Null).await.ok();
        assert_eq!(list["workers"].as_array().map(Vec::len), Some(queues), "{caller}");
    }
    for path in ["/v1/find?text=sku", "/v1/workers"] {
        client.call_as("none", "GET", path, &Value::Null).await.problem("forbidden");
    }
}

#[tokio::test]
async fn a_single_server_says_what_it_is() {
    let service = Service::start().await;
    let nodes = service.get("/v1/nodes").await.ok();
    assert_eq!(nodes["nodes"], json!([]));
    let this = &nodes["this"];
    assert_eq!(
        (&this["version"], &this["durability"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!("memory"))
    );
    assert_eq!(this["owned"], json!([{ "partition": 0, "epoch": null }]));
    assert_eq!(service.get("/v1/info").await.ok()["links"], json!({ "grafana": null, "docs": null }));
    let service = Service::with(|settings| {
        settings.console.grafana_url = Some("https://grafana.example/d/deltaq?var-queue={queue}".to_owned());
    })
    .await;
    let info = service.get("/v1/info").await.ok();
    assert_eq!(info["links"]["grafana"], "https://grafana.example/d/deltaq?var-queue={queue}");
}
