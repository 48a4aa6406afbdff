//! Commands that read one queue or all queues.

use serde_json::json;

use super::Server;
use crate::harness::blocking::Message;

/// The lines of a table without its headings, each with single spaces.
fn rows(table: &str) -> Vec<String> {
    table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

impl Server {
    fn send(&self, method: &'static str, path: &str, body: &serde_json::Value) {
        let message = Message { method, ..Message::post(format!("/v1/queues/{path}"), body) };
        let (status, reply) = self.running.as_ref().expect("a running server").call(&message);
        assert!(status < 300, "{path}: {status} {reply}");
    }
}

#[test]
fn sources_of_all_queues_are_listed() {
    let server = Server::in_memory();
    server.run(&["add", "prices", "--source", "erp", r#"[{"key":"a"},{"key":"b"}]"#]).ok();
    server.run(&["add", "stock", "--source", "web", r#"{"key":"a"}"#]).ok();
    let table = rows(&server.run(&["sources"]).ok());
    assert!(table[0].starts_with("prices erp 2 2") && table[1].starts_with("stock web 1 2"), "{table:?}");
    let table = rows(&server.run(&["sources", "stock"]).ok());
    assert!(table.len() == 1 && table[0].starts_with("web 1 2"), "{table:?}");
    assert!(server.run(&["sources", "absent"]).failed(3).contains("queue-not-found"));
    server.send("PATCH", "prices/sources/crm", &json!({"stale_after": "1h"}));
    let table = rows(&server.run(&["sources", "prices"]).ok());
    assert!(table[0].starts_with("crm 0 - - 1h no contact"), "{table:?}");
    assert!(table[1].contains(" in step "), "{table:?}");
    server.send("PATCH", "stock/sources/web", &json!({"stale_after": "1s"}));
    crate::harness::waiting::until("the source is stale", || {
        server.json(&["sources", "--stale"]) != json!([])
    });
    assert_eq!(server.run(&["sources", "--stale", "-o", "name", "--limit", "1"]).ok(), "web\n");
}

#[test]
fn workers_and_reflectors_of_all_queues_are_listed() {
    let server = Server::in_memory();
    for (queue, worker) in [("prices", "one"), ("stock", "two")] {
        server.run(&["add", queue, r#"{"key":"a"}"#]).ok();
        server.run(&["pop", queue, "--worker", worker, "--lease", "1h", "--wait", "1s"]).ok();
    }
    let table = rows(&server.run(&["workers"]).ok());
    assert!(table[0].starts_with("prices one 1 ") && table[1].starts_with("stock two 1 "), "{table:?}");
    assert!(table.iter().all(|row| row.contains(" working ")), "{table:?}");
    assert_eq!(server.run(&["workers", "-o", "name", "--limit", "1"]).ok(), "one\n");

    assert_eq!(server.run(&["reflectors"]).ok(), "");
    let report = json!({"source": "erp", "instance": "host:7", "version": "1", "kind": "rest", "interval": "1m",
        "failing": true, "last_error": "the export is late"});
    server.send("POST", "prices/reflectors", &report);
    let table = rows(&server.run(&["reflectors"]).ok());
    assert!(table[0].starts_with("prices erp host:7 rest 1 failing "), "{table:?}");
    assert!(table[0].ends_with(" the export is late"), "{table:?}");
    assert_eq!(rows(&server.run(&["reflectors", "prices", "--limit", "1"]).ok()), table);
    assert_eq!(server.json(&["reflectors", "stock"]), json!([]));
}

#[test]
fn the_activity_names_calls_of_operators() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "prices"]).ok();
    server.run(&["queue", "pause", "prices"]).ok();
    server.run(&["queue", "create", "stock"]).ok();
    let operations = |line: &[&str]| {
        let list = server.json(&[&["activity"], line].concat());
        let list = list.as_array().expect("a list").iter();
        list.map(|call| call["operation"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(operations(&[]), ["put_queue", "pause_queue", "put_queue"]);
    assert_eq!(operations(&["--queue", "prices", "--limit", "1"]), ["pause_queue"]);
    assert_eq!(operations(&["--operation", "put_queue"]).len(), 2);
    assert_eq!(operations(&["--by", "ops"]), [""; 0]);
    let table = rows(&server.run(&["activity", "--operation", "pause_queue"]).ok());
    assert!(table[0].contains(" pause_queue prices ") && table[0].ends_with(" ok"), "{table:?}");
}

#[test]
fn a_text_is_found_in_all_queues() {
    let server = Server::in_memory();
    server.run(&["add", "prices", "--source", "sku-feed", r#"[{"key":"sku-1"},{"key":"other"}]"#]).ok();
    server.run(&["queue", "create", "sku"]).ok();
    server.run(&["pop", "prices", "--worker", "sku-worker", "--lease", "1h", "--wait", "1s"]).ok();
    let table = rows(&server.run(&["find", "sku"]).ok());
    let found = ["queue sku", "key sku-1 prices leased", "source sku-feed prices 2 keys"];
    assert_eq!(table[..3], found.map(str::to_owned), "{table:?}");
    assert_eq!(table[3], "worker sku-worker prices 1 lease");
    assert_eq!(server.run(&["find", "sku", "-o", "name"]).ok(), "sku\nsku-1\nsku-feed\nsku-worker\n");
    assert_eq!(server.json(&["find", "oth"])["keys"][0]["key"], "other");
    assert_eq!(server.run(&["find", "nowhere"]).ok(), "");
}
