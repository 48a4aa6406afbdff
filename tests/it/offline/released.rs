//! A store of every format that was released is kept, and loads with all that it held.
//!
//! With `KEEP_STORE=NAME` the test writes `tests/fixtures/stores/NAME` first: once for each
//! release that changes a format, and never again.

use std::fs;

use serde_json::json;

use super::*;
use deltaq::journal::record::FORMAT;

/// What depends on the clock of whoever looks.
const OF_THE_MOMENT: [&str; 3] = ["oldest_ready_age_ms", "expires_at", "expires_in_ms"];

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stores")
}

#[test]
fn stores_of_all_released_formats_load_with_all_that_they_held() {
    #[expect(clippy::disallowed_methods, reason = "a test has no settings")]
    if let Ok(name) = std::env::var("KEEP_STORE") {
        keep(&kept().join(name));
    }
    let scratch = Scratch::new();
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(kept()).expect("the stores") {
        let from = entry.expect("a store").path();
        let name = from.file_name().expect("a name").to_string_lossy().into_owned();
        let folder = scratch.path(&name);
        copy(&from.join("data"), &folder);
        let said = check(&folder);
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        let server = Server::start(&folder);
        let told = told(&server);
        let wanted = fs::read_to_string(from.join("told.json")).expect("what it told");
        let wanted: Value = serde_json::from_str(&wanted).expect("JSON");
        for (path, wanted) in wanted.as_object().expect("by path") {
            assert_eq!(&told[path], wanted, "{name} {path}");
        }
        // It goes on from there.
        server.post("prices/add", r#"{"sku":"new","shop":1}"#);
        server.work("stock");
        server.stop();
        assert_eq!(check(&folder).code, Some(0), "{name}");
        names.push(name);
    }
    assert!(names.contains(&format!("v{FORMAT}")), "format {FORMAT} has no store among {names:?}");
}

/// Keeps a store as this program writes it, and what a server tells of it.
fn keep(place: &Path) {
    let scratch = Scratch::new();
    let folder = written(&scratch);
    let _none = fs::remove_dir_all(place);
    fs::create_dir_all(place).expect("a folder");
    copy(&folder, &place.join("data"));
    for made_anew in ["deltaq.db-shm", "deltaq.lock"] {
        fs::remove_file(place.join("data").join(made_anew)).expect("a file");
    }
    let server = Server::start(&folder);
    let told = serde_json::to_string_pretty(&told(&server)).expect("JSON");
    fs::write(place.join("told.json"), told + "\n").expect("a file");
}

/// A store with something of everything, partly behind its checkpoint, as a crash leaves it.
fn written(scratch: &Scratch) -> PathBuf {
    let folder = scratch.path("data");
    let server = Server::start(&folder);
    let put = |queue: &str, config: Value| {
        let (status, answer) = server.call("PUT", &format!("/v1/queues/{queue}"), &format!(" {config}"));
        assert!(status < 300, "{answer}");
    };
    put(
        "prices",
        json!({
            "key": ["/sku", "/shop"], "lease": "12h", "max_deltas_per_key": 4,
            "max_object_bytes": 100_000, "retention": {"bytes": 10_000_000}, "max_delete_percent": 60,
            "rate_limiter": {
                "item_exponential": {"base": "1ms", "max": "1s"}, "bucket": {"qps": 1000, "burst": 1000}
            },
        }),
    );
    put("latest", json!({"mode": "latest", "emit_replaced": false}));
    put("failing", json!({"max_failures": 2}));
    put("names", json!({"mode": "keys"}));
    put("closed", json!({"known_objects": false}));
    let sku = |sku: &str, more: &str| format!(r#"{{"sku":"{sku}","shop":"é 1"{more}}}"#);
    let list = |keys: &[&str]| {
        let objects: Vec<String> = keys.iter().map(|key| sku(key, r#","n":1.10"#)).collect();
        format!("[{}]", objects.join(","))
    };
    server.post("prices/replace?source=erp", &list(&["acked", "changed", "deleted", "unlisted", "owned"]));
    server.post("prices/add?source=shop", &sku("other \\\"🦀", ",\n \"a\": [ ]"));
    server.work("prices");
    server.post("prices/update?source=erp", &sku("changed", r#","v":1"#));
    server.post("prices/add", &sku("purged", ""));
    server.post("prices/purge", "");
    server.post("old/add", r#"{"key":"x"}"#);
    assert_eq!(server.call("DELETE", "/v1/queues/old", "").0, 204);
    server.post("closed/add", r#"{"key":"x"}"#);
    server.post("latest/add", r#"{"key":"a","v":1}"#);
    server.post("names/add?key=a", "");
    server.stop();

    // What follows is behind the checkpoint.
    let server = Server::start(&folder);
    let take = |queue: &str, words: &str| {
        let popped = server.post(&format!("{queue}/pop?worker=w-1&{words}"), "{}");
        popped["items"][0]["lease"]["id"].as_str().expect("a lease").to_owned()
    };
    for change in 1..=6 {
        server.post("prices/update?source=erp", &sku("changed", &format!(r#","v":{change}"#)));
    }
    server.post("prices/delete", &sku("deleted", ""));
    server.post("prices/replace?source=erp", &list(&["acked", "changed", "owned"]));
    server.post("prices/add?source=shop", &sku("owned", ""));
    server.post("failing/add", r#"{"key":"parked"}"#);
    server.post("prices/add?delay=1ms", &sku("delayed", ""));
    for _ in 0..2 {
        let lease = take("failing", "wait=5s");
        server.post("failing/nack", &json!({"leases": [lease], "error": "no stock"}).to_string());
    }
    take("prices", "id=pop-1");
    server.post("prices/update?source=erp", &sku("acked", r#","v":2"#));
    server.post("latest/update", r#"{"key":"a","v":2}"#);
    let lease = take("latest", "");
    server.post("latest/ack", &json!({"leases": [lease]}).to_string());
    server.post("latest/replace", r#"[{"key":"a","v":2},{"key":"b"}]"#);
    server.post("names/add?key=b", "");
    server.post("old/add", r#"{"key":"again"}"#);
    server.post("stock/seed", r#"{"key":"a","source":"wms","object":{"left":3}}"#);
    server.post("stock/pause", "");
    server.post("closed/close", "");
    server.kill();
    folder
}

/// All that a server tells of its queues.
fn told(server: &Server) -> Value {
    let get = |path: &str| {
        let (status, answer) = server.call("GET", path, "");
        assert_eq!(status, 200, "{path}: {answer}");
        serde_json::from_str::<Value>(&answer).expect("JSON")
    };
    // Every delay in the store has long passed.
    let is_settled = || get("/v1/queues/prices")["status"]["delayed"] == 0;
    assert!((0..1_000).any(|_| is_settled()), "a delay that has passed must end");
    let mut told = serde_json::Map::new();
    for mut queue in get("/v1/queues")["items"].as_array().expect("queues").clone() {
        let path = format!("/v1/queues/{}", queue["name"].as_str().expect("a name"));
        let items = get(&format!("{path}/items?state=ready,delayed,leased,parked&limit=1000"));
        let known = get(&format!("{path}/known?limit=1000"));
        queue["items"] = items["items"].clone();
        queue["objects"] = known["items"].clone();
        told.insert(path, queue);
    }
    let history = "/v1/queues/prices/history/acked%2F%C3%A9%201";
    told.insert(history.to_owned(), get(history));
    let mut told = Value::Object(told);
    forget_the_moment(&mut told);
    told
}

fn forget_the_moment(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(forget_the_moment),
        Value::Object(members) => {
            members.retain(|name, _| !OF_THE_MOMENT.contains(&name.as_str()));
            members.values_mut().for_each(forget_the_moment);
        }
        _ => {}
    }
}
