//! The contract: transcripts of good and bad replies of every call, as snapshots.
//!
//! Only the test moves the clock, so the transcripts contain instants and durations. Names replace random values (incarnations, lives,
//! request ids).

mod documents;
mod talk;
mod types;

use std::time::Duration;

use deltaq_service::{Limits, WatchLimits};
use insta::assert_snapshot;
use serde_json::{Value, json};

pub(crate) use self::talk::Talk;

fn lease(popped: &Value, index: usize) -> String {
    popped["items"][index]["lease"]["id"].as_str().expect("a lease").to_owned()
}

#[tokio::test]
async fn queues() {
    let mut talk = Talk::new();
    talk.get("/v1/queues").await;
    talk.get("/v1/queues/prices").await;
    talk.note("create and change");
    let config =
        json!({ "lease": "1m", "key": [{ "pointer": "/ns", "optional": true }, "/name"], "max_keys": 2 });
    talk.ask("PUT", "/v1/queues/prices", config.clone()).await;
    let change = json!({ "lease": null, "max_deletes": 5, "rate_limiter": { "max_wait": "1h" } });
    talk.ask("PATCH", "/v1/queues/prices", change).await;
    talk.ask("PATCH", "/v1/queues/absent", json!({ "lease": "1m" })).await;
    talk.get("/v1/queues/prices/settings").await;
    talk.post("prices/settings/plan", json!({ "lease": "2m" })).await;
    talk.post("prices/push/test", Value::Null).await;
    talk.ask("PUT", "/v1/queues/prices", config).await;
    talk.say("PUT", "/v1/queues/prices", &[("if-none-match", "*")], "{}").await;
    talk.ask("PUT", "/v1/queues/prices", json!({ "lease": "13h" })).await;
    talk.ask("PUT", "/v1/queues/prices", json!({ "leese": "1s" })).await;
    talk.post("prices/add", json!([{ "name": "a" }, { "name": "b", "ns": "n" }])).await;
    talk.ask("PATCH", "/v1/queues/prices", json!({ "mode": "keys" })).await;
    talk.post("prices/add", json!({ "name": "c" })).await;
    talk.get("/v1/queues/prices").await;
    talk.note("the first produce creates one; the first PUT makes it a configured one");
    talk.post("auto/add", json!({ "key": "a" })).await;
    talk.get("/v1/queues/auto").await;
    talk.ask("PUT", "/v1/queues/auto", json!({})).await;
    talk.note("lists");
    let page = talk.get("/v1/queues?limit=1").await;
    let next = page["continue"].as_str().expect("another page").to_owned();
    talk.get(&format!("/v1/queues?limit=1&continue={next}")).await;
    talk.get("/v1/queues?prefix=pr&limit=10").await;
    talk.get("/v1/queues?limit=0").await;
    talk.get("/v1/queues?continue=00").await;
    talk.say("GET", "/v1/queues?prefix=auto", &[("accept", "application/x-ndjson")], "").await;
    talk.note("too many");
    talk.ask("PUT", "/v1/queues/third", json!({})).await;
    talk.ask("PUT", "/v1/queues/fourth", json!({})).await;
    talk.note("pause and resume");
    talk.post("auto/pause", Value::Null).await;
    talk.post("auto/pop", Value::Null).await;
    talk.post("auto/resume", Value::Null).await;
    talk.post("absent/pause", Value::Null).await;
    talk.note("close, drain, reopen");
    let popped = talk.post("auto/pop", Value::Null).await;
    talk.post("auto/close", Value::Null).await;
    talk.post("auto/close?drain=true&wait=0s", Value::Null).await;
    talk.post("auto/pop", json!({ "settle": [{ "lease_id": lease(&popped, 0), "as": "ack" }] })).await;
    talk.post("auto/close?drain=true", Value::Null).await;
    talk.post("auto/close?wait=1s", Value::Null).await;
    talk.post("auto/reopen", Value::Null).await;
    talk.note("purge and delete");
    talk.post("prices/purge", Value::Null).await;
    talk.post("absent/purge", Value::Null).await;
    talk.ask("DELETE", "/v1/queues/prices", Value::Null).await;
    talk.ask("DELETE", "/v1/queues/prices", Value::Null).await;
    assert_snapshot!(talk.end());
}

#[tokio::test]
async fn admission() {
    let mut talk = Talk::new();
    talk.note("settings");
    let schema = json!({
        "required": ["price"],
        "properties": { "price": { "type": "number", "minimum": 0 }, "currency": { "default": "EUR" } },
    });
    talk.ask("PUT", "/v1/queues/prices", json!({ "schema": schema, "prune": ["/debug"] })).await;
    talk.ask("PUT", "/v1/queues/prices", json!({ "schema": { "properties": { "a": { "type": 1 } } } })).await;
    talk.ask("PUT", "/v1/queues/prices", json!({ "schema": { "$ref": "https://example.com/s" } })).await;
    talk.ask("PUT", "/v1/queues/prices", json!({ "schema": { "pattern": "(?!a)" } })).await;
    talk.ask("PUT", "/v1/queues/prices", json!({ "schema": true })).await;
    talk.ask("PUT", "/v1/queues/prices", json!({ "prune": ["/key"] })).await;
    talk.ask("PUT", "/v1/queues/prices", json!({ "prune": ["debug"] })).await;
    talk.note("objects");
    talk.post("prices/add", json!({ "key": "sku-1", "price": 10, "debug": { "took_ms": 3 } })).await;
    talk.post("prices/add", json!({ "key": "sku-2", "price": "ten" })).await;
    talk.post("prices/update", json!([{ "key": "sku-1", "price": 9 }, { "key": "sku-2", "price": -1 }]))
        .await;
    talk.say(
        "POST",
        "/v1/queues/prices/replace?count=2",
        &[("content-type", "application/x-ndjson")],
        "{\"key\":\"sku-1\",\"price\":9}\n{\"key\":\"sku-2\"}\n",
    )
    .await;
    talk.post("prices/deltas", json!({ "type": "Added", "object": { "key": "sku-2" } })).await;
    talk.post("prices/seed", json!({ "object": { "key": "sku-2" } })).await;
    talk.get("/v1/queues/prices/items/sku-1").await;
    talk.note("and without");
    talk.ask("PATCH", "/v1/queues/prices", json!({ "schema": null, "prune": null })).await;
    assert_snapshot!(talk.end());
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a transcript")]
async fn producing() {
    let mut talk = Talk::new();
    talk.post("q/add", json!({ "key": "sku-1", "price": 10 })).await;
    talk.post("q/add?source=erp&delay=5m", json!([{ "key": "sku-2" }, { "key": "sku-3" }])).await;
    talk.say(
        "POST",
        "/v1/queues/q/add",
        &[("content-type", "application/x-ndjson")],
        "{\"key\":4}\n{\"key\":5}\n",
    )
    .await;
    talk.post("q/add?key=sku-6", json!({ "price": 6 })).await;
    talk.post("q/add", json!([{ "key": "a" }, { "price": 1 }])).await;
    talk.post("q/add?key=b", json!({ "key": "a" })).await;
    talk.say("POST", "/v1/queues/q/add", &[], "{\"key\":\"a\",\n\"key\":\"b\"}").await;
    talk.post("q/add", json!([1])).await;
    talk.post("q/add?rate_limited=true", json!({ "key": "a" })).await;
    talk.post("q/add?sorce=erp", json!({ "key": "a" })).await;
    talk.post("q/update", json!({ "key": "sku-1", "price": 11 })).await;
    talk.post("q/delete", json!({ "key": "sku-1", "price": 11 })).await;
    talk.post("q/delete?key=sku-2", Value::Null).await;
    talk.post("q/delete?key=absent", Value::Null).await;
    talk.post("q/delete", Value::Null).await;
    talk.note("mixed deltas");
    let deltas = json!([
        { "type": "Added", "object": { "key": "x" }, "source": "erp" },
        { "type": "Updated", "key": "y", "object": { "n": 1 }, "delay": "1s" },
        { "type": "Deleted", "key": "x", "final_state_unknown": true },
    ]);
    talk.post("q/deltas", deltas).await;
    talk.post(
        "q/deltas",
        json!([{ "type": "Added", "object": { "key": "x" } }, { "type": "Vanished", "key": "x" }]),
    )
    .await;
    talk.note("replace");
    talk.post("q/replace?source=shop", json!([{ "key": "s1" }, { "key": "s2" }, { "key": "x" }])).await;
    talk.post("q/replace?source=shop&only_changed=true&dry_run=true", json!([{ "key": "s1" }])).await;
    talk.post("q/replace?source=shop&only_changed=true", json!([{ "key": "s1" }, { "key": "x", "n": 2 }]))
        .await;
    talk.post("q/replace?source=shop&max_deletes=1&max_delete_percent=50", json!([])).await;
    talk.say(
        "POST",
        "/v1/queues/q/replace?source=shop",
        &[("content-type", "application/x-ndjson")],
        "{\"key\":\"s1\"}\n",
    )
    .await;
    talk.say(
        "POST",
        "/v1/queues/q/replace?source=shop",
        &[("content-type", "application/x-ndjson")],
        "{\"key\":\"s1\"}\n{\"$end\":1}\n",
    )
    .await;
    talk.say("POST", "/v1/queues/q/replace?source=shop&count=0", &[], "").await;
    talk.say("POST", "/v1/queues/q/replace?source=shop&count=0&allow_empty=true", &[], "").await;
    talk.post("q/replace?source=shop", json!([{ "key": "s1" }, { "key": "s2" }, { "key": "s1" }])).await;
    talk.post("q/replace?source=shop", Value::Null).await;
    talk.get("/v1/queues/q").await;
    talk.note("seed, resync, forget");
    talk.post("q/seed", json!({ "object": { "key": "k" } })).await;
    talk.post("q2/seed", json!([{ "object": { "key": "k1" }, "source": "erp" }, { "key": "k2", "object": {}, "resource_version": 7 }])).await;
    talk.post("q2/resync", Value::Null).await;
    talk.post("q2/forget", json!({ "keys": ["k1", "absent"] })).await;
    talk.post("absent/forget", json!({ "keys": [] })).await;
    talk.note("mode keys");
    talk.ask("PUT", "/v1/queues/k", json!({ "mode": "keys" })).await;
    talk.post("k/add?key=a", Value::Null).await;
    talk.post("k/add?key=a&rate_limited=true", Value::Null).await;
    talk.post("k/update", json!({ "key": "a" })).await;
    talk.post("k/replace", json!([])).await;
    talk.post("k/resync", Value::Null).await;
    talk.note("too large");
    talk.say("POST", "/v1/queues/q/add", &[], &format!("{{\"key\":\"{}\"}}", "x".repeat(1_100))).await;
    talk.ask("PUT", "/v1/queues/q2", json!({ "max_object_bytes": 20, "max_keys": 2 })).await;
    talk.post("q2/add", json!({ "key": "k1", "more": "than 20 bytes" })).await;
    talk.post("q2/add", json!({ "key": "k3" })).await;
    assert_snapshot!(talk.end());
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a transcript")]
async fn consuming() {
    let mut talk = Talk::new();
    talk.post("q/pop?wait=1s", Value::Null).await;
    talk.ask("PUT", "/v1/queues/q", json!({})).await;
    talk.post("q/pop", Value::Null).await;
    talk.post("q/pop?wait=1s", Value::Null).await;
    talk.post("q/pop?wait=56s", Value::Null).await;
    talk.post("q/pop?with=unknown", Value::Null).await;
    talk.post(
        "q/add?source=erp",
        json!([{ "key": "a", "n": 1 }, { "key": "b" }, { "key": "c" }, { "key": "d" }]),
    )
    .await;
    talk.post("q/update", json!({ "key": "a", "n": 2 })).await;
    talk.note("pop, extend");
    let popped = talk.post("q/pop?max=3&lease_duration=1m&worker=w1&id=pop-1&with=known", Value::Null).await;
    talk.post("q/pop?max=3&lease_duration=1m&worker=w1&id=pop-1", Value::Null).await;
    let leases: Vec<String> = (0..3).map(|index| lease(&popped, index)).collect();
    talk.hand.advance(Duration::from_secs(10));
    talk.post("q/delete?key=b", Value::Null).await;
    talk.post(
        "q/extend",
        json!({ "lease_ids": [leases[0], leases[1], "00000000-1"], "lease_duration": "2m" }),
    )
    .await;
    talk.post("q/extend", json!({ "lease_ids": ["00000000-1"] })).await;
    talk.post("q/extend", json!({ "lease_ids": [leases[0]], "lease_duration": "2m" })).await;
    talk.post("q/extend", json!({ "lease_ids": [leases[0]], "lease_duration": "13h" })).await;
    talk.note("settle");
    let settles = json!([
        { "lease_id": leases[0], "as": "ack" },
        { "lease_id": leases[1], "as": "nack", "delay": "1h", "error": "no stock" },
        { "lease_id": "forged", "as": "release" },
    ]);
    talk.post("q/settle", json!({ "settle": settles })).await;
    talk.post("q/settle", json!({ "settle": settles })).await;
    talk.post("q/settle", json!({ "settle": [{ "lease_id": leases[0], "as": "nack" }] })).await;
    talk.post(
        "q/settle",
        json!({ "settle": [{ "lease_id": "x", "as": "ack" }, { "lease_id": "x", "as": "nack" }] }),
    )
    .await;
    talk.post("q/settle", json!({})).await;
    talk.post("absent/settle", json!({ "settle": [] })).await;
    talk.note("settle inside a pop; with the known object");
    talk.post("q/update", json!({ "key": "a", "n": 3 })).await;
    let pop = json!({ "settle": [{ "lease_id": leases[2], "as": "release" }, { "lease_id": leases[0], "as": "reject" }] });
    let popped = talk.post("q/pop?max=1000&with=known", pop).await;
    talk.post("q/pop?max=0", json!({ "settle": [] })).await;
    talk.note("several ways in one call, an extension among them");
    talk.post(
        "q/settle",
        json!({ "settle": [
        { "lease_id": lease(&popped, 0), "as": "extend", "lease_duration": "2m" },
        { "lease_ids": ["x", "y"], "as": "ack" },
    ] }),
    )
    .await;
    talk.note("all in one way");
    let held: Vec<String> =
        (0..popped["items"].as_array().map_or(0, Vec::len)).map(|index| lease(&popped, index)).collect();
    talk.post("q/ack", json!({ "lease_ids": [held[0]] })).await;
    talk.post("q/nack", json!({ "lease_ids": [held[1]], "error": "again" })).await;
    talk.post("q/reject", json!({ "lease_ids": [held[2]], "error": "broken" })).await;
    talk.post("q/release", json!({ "lease_ids": [held[3]] })).await;
    talk.post("q/ack", json!({ "lease_ids": [held[1], held[2]] })).await;
    talk.post("q/ack", json!({ "lease_ids": [held[0]], "delay": "1s" })).await;
    talk.note("expiry");
    let popped = talk.post("q/pop?lease_duration=1s", Value::Null).await;
    talk.hand.advance(Duration::from_secs(2));
    talk.post("q/ack", json!({ "lease_ids": [lease(&popped, 0)] })).await;
    talk.note("delayed");
    talk.post("q/delayed/promote", json!({ "keys": ["a", "absent"] })).await;
    talk.post("q/delayed/promote", json!({ "all": true })).await;
    talk.note("parked");
    talk.post("q/parked/redrive", json!({ "keys": ["a", "absent"], "expected_count": 2 })).await;
    talk.post("q/parked/redrive", json!({ "keys": ["a", "absent"] })).await;
    talk.post("q/parked/redrive", json!({ "error": "broken" })).await;
    talk.post("q/parked/discard", json!({ "all": true })).await;
    talk.post("q/parked/discard", Value::Null).await;
    talk.post("q/parked/discard", json!({ "keys": [""] })).await;
    talk.note("while the server stops, settles are accepted");
    let popped = talk.post("q/pop", Value::Null).await;
    talk.shutdown.signal();
    talk.post("q/pop", json!({ "settle": [{ "lease_id": lease(&popped, 0), "as": "ack" }] })).await;
    talk.post("q/ack", json!({ "lease_ids": [lease(&popped, 0)] })).await;
    assert_snapshot!(talk.end());
}

#[tokio::test]
async fn reading() {
    let mut talk = Talk::new();
    talk.get("/v1/queues/absent/items").await;
    talk.get("/v1/queues/absent/known").await;
    talk.get("/v1/queues/absent/synced").await;
    talk.post("q/add?source=erp", json!([{ "key": "a/b" }, { "key": "leased" }, { "key": "parked" }])).await;
    let popped = talk.post("q/pop?max=3&worker=w1", Value::Null).await;
    talk.post("q/ack", json!({ "lease_ids": [lease(&popped, 0)] })).await;
    talk.post("q/reject", json!({ "lease_ids": [lease(&popped, 2)], "error": "broken" })).await;
    talk.post("q/update", json!({ "key": "leased", "n": 2 })).await;
    talk.post("q/add?delay=1h", json!({ "key": "delayed" })).await;
    talk.post("q/add", json!({ "key": "ready", "long": 1 })).await;
    talk.post("q/delete?key=ready", Value::Null).await;
    talk.hand.advance(Duration::from_secs(1));
    talk.note("items");
    talk.get("/v1/queues/q/items").await;
    talk.get("/v1/queues/q/items?state=leased,parked").await;
    talk.get("/v1/queues/q/items?state=leased&worker=w2").await;
    talk.get("/v1/queues/q/items?limit=1").await;
    talk.get("/v1/queues/q/items?state=leesed").await;
    talk.get("/v1/queues/q/items?limit=5001").await;
    talk.get("/v1/queues/q/items?continue=zz").await;
    talk.say("GET", "/v1/queues/q/items", &[("accept", "application/x-ndjson")], "").await;
    talk.say("GET", "/v1/queues/q/items", &[("accept", "text/html")], "").await;
    talk.note("one item");
    talk.get("/v1/queues/q/items/leased").await;
    talk.get("/v1/queues/q/items?key=parked").await;
    talk.get("/v1/queues/q/items?key=parked&state=ready").await;
    talk.get("/v1/queues/q/items?key=parked&error=broken&fields=key").await;
    talk.get("/v1/queues/q/parked/errors?limit=1").await;
    talk.get("/v1/queues/q/items/a/b").await;
    talk.get("/v1/queues/q/items/a%0Ab").await;
    talk.get("/v1/queues/q/item?key=a/b").await;
    talk.get("/v1/queues/q/item?key=absent").await;
    talk.get("/v1/queues/q/item").await;
    talk.note("failures only");
    talk.ask("PUT", "/v1/queues/k", json!({ "mode": "keys" })).await;
    talk.post("k/add?key=f&rate_limited=true", Value::Null).await;
    talk.post("k/purge", Value::Null).await;
    talk.post("k/close", Value::Null).await;
    talk.post("k/add?key=f&rate_limited=true", Value::Null).await;
    talk.get("/v1/queues/k/items/f").await;
    talk.get("/v1/queues/k/item?key=f").await;
    read_objects(&mut talk).await;
    talk.get("/v1/queues/q/history/a%2Fb").await;
    talk.get("/v1/queues/q/history?key=a%2Fb&limit=0").await;
    talk.note("explain");
    talk.get("/v1/queues/q/explain/a/b").await;
    talk.get("/v1/queues/q/explain/absent").await;
    read_workers_and_sources(&mut talk).await;
    assert_snapshot!(talk.end());
}

async fn read_objects(talk: &mut Talk) {
    talk.note("known");
    talk.get("/v1/queues/q/known").await;
    talk.get("/v1/queues/q/known?prefix=b&source=erp").await;
    talk.get("/v1/queues/q/known/a%2Fb").await;
    talk.get("/v1/queues/q/known?key=a/b").await;
    let tag = "*";
    talk.say("GET", "/v1/queues/q/known/a/b", &[("if-none-match", tag)], "").await;
    talk.get("/v1/queues/q/known/absent").await;
    talk.get("/v1/queues/q/known?fields=key&shard=0/1").await;
    talk.note("latest");
    talk.get("/v1/queues/q/latest?prefix=a").await;
    talk.get("/v1/queues/q/latest/a%2Fb").await;
    talk.get("/v1/queues/q/latest?key=a/b&fields=key").await;
    talk.say("GET", "/v1/queues/q/latest/a/b", &[("if-none-match", "*")], "").await;
    talk.get("/v1/queues/q/latest/absent").await;
    talk.note("object");
    talk.get("/v1/queues/q/object?key=a%2Fb").await;
    talk.get("/v1/queues/q/object?view=known&key=a/b").await;
    talk.say("GET", "/v1/queues/q/object?view=known&key=a/b", &[("if-none-match", tag)], "").await;
    talk.get("/v1/queues/q/object?view=known&key=absent").await;
    talk.get("/v1/queues/q/object?key=a/b&min_resource_version=900000000000000").await;
    talk.get("/v1/queues/q/object?view=all&key=a/b").await;
    talk.get("/v1/queues/q/object?view=known").await;
}

async fn read_workers_and_sources(talk: &mut Talk) {
    talk.note("sources");
    talk.get("/v1/queues/q/sources").await;
    talk.post(
        "q/replace?source=erp&only_changed=true&max_delete_percent=100",
        json!([{ "key": "a/b", "v": 9 }]),
    )
    .await;
    talk.post("q/add?source=shop", json!({ "key": "of-shop" })).await;
    talk.get("/v1/queues/q/sources?limit=1").await;
    talk.say("GET", "/v1/queues/q/sources", &[("accept", "application/x-ndjson")], "").await;
    talk.get("/v1/queues/q/sources?continue=zz").await;
    talk.note("workers");
    talk.post("q/pop?worker=me&max=2", json!({})).await;
    talk.get("/v1/queues/q/workers").await;
    talk.say("GET", "/v1/queues/q/workers", &[("accept", "application/x-ndjson")], "").await;
    talk.get("/v1/queues/q/workers?continue=zz").await;
    talk.get("/v1/workers").await;
    talk.get("/v1/workers?limit=0").await;
    talk.get("/v1/find?text=a").await;
    talk.get("/v1/find").await;
    talk.note("groups");
    talk.get("/v1/queues/q/groups").await;
    talk.say(
        "PUT",
        "/v1/queues/grouped",
        &[],
        r#"{"groups":{"by":"/t","max_leased":1,"overrides":{"b":{"weight":3}}}}"#,
    )
    .await;
    for (key, tenant) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        talk.post("grouped/add", json!({ "key": key, "t": tenant })).await;
    }
    talk.get("/v1/queues/grouped/explain/a2").await;
    talk.post("grouped/pop?max=1", json!({})).await;
    talk.get("/v1/queues/grouped/groups?sort=ready").await;
    talk.get("/v1/queues/grouped/groups?sort=name").await;
    talk.get("/v1/queues/grouped/explain/a2").await;
    talk.note("synced");
    talk.get("/v1/queues/q/synced").await;
    talk.get("/v1/queues/q/synced?wait=56s").await;
    talk.get("/v1/queues/q/synced?resource_version=now").await;
    talk.get("/v1/queues/q/synced?resource_version=soon").await;
}

#[tokio::test]
async fn server() {
    let mut talk = Talk::new();
    talk.get("/livez").await;
    talk.get("/readyz").await;
    talk.hand.advance(Duration::from_millis(1_500));
    talk.get("/v1/info").await;
    talk.get("/v1/info?verbose=1").await;
    talk.get("/problems/lease-lost").await;
    talk.get("/problems/none").await;
    talk.note("any layer");
    talk.get("/v1/nowhere").await;
    talk.get("/v1/queues/").await;
    talk.ask("HEAD", "/v1/info", Value::Null).await;
    talk.ask("HEAD", "/v1/queues/absent", Value::Null).await;
    talk.ask("OPTIONS", "/v1/queues/q", Value::Null).await;
    talk.ask("PATCH", "/v1/queues/q/add", json!({})).await;
    talk.get("/v1/queues/NO").await;
    talk.say("GET", "/v1/info", &[("origin", "https://evil.example"), ("host", "localhost")], "").await;
    talk.say("GET", "/v1/info", &[("host", "evil.example")], "").await;
    talk.say("GET", "/v1/info", &[("sec-fetch-site", "cross-site")], "").await;
    talk.say("GET", "/v1/info", &[("x-long", &"x".repeat(20_000))], "").await;
    talk.say("POST", "/v1/queues/q/add", &[("content-type", "text/plain")], "{}").await;
    talk.say("POST", "/v1/queues/q/add", &[("content-encoding", "deflate")], "{}").await;
    talk.say("POST", "/v1/queues/q/pop", &[("content-type", "application/x-ndjson")], "{}").await;
    talk.say("POST", "/v1/queues/q/add", &[("content-length", "2001")], &format!("{:2001}", "{}")).await;
    talk.note("without auto_create");
    let mut strict = Talk::with(Limits {
        auto_create: false,
        max_queues: 3,
        max_waiters: 0,
        watch: WatchLimits::default(),
    });
    strict.post("q/add", json!({ "key": "a" })).await;
    strict.post("q/pop", Value::Null).await;
    strict.post("q/replace", json!([])).await;
    talk.transcript.push_str(&strict.end());
    talk.note("while the server stops");
    talk.shutdown.signal();
    talk.get("/readyz").await;
    talk.get("/livez").await;
    talk.post("q/add", json!({ "key": "a" })).await;
    assert_snapshot!(talk.end());
}

#[tokio::test]
async fn the_committed_document_equals_that_of_a_server() {
    let mut talk = Talk::new();
    talk.get("/openapi.json").await;
    talk.shutdown.signal();
    let text = format!("{}\n", serde_json::to_string_pretty(&talk.last).expect("JSON"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the server")]
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, text).expect("the document can be written");
    } else {
        let committed = std::fs::read_to_string(path).expect("the document is there");
        assert!(
            committed == text,
            "run `UPDATE_DOCS=1 cargo test -p deltaq --test it contract::` to update docs/openapi.json"
        );
    }
}
