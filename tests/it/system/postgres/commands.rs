//! `deltaq check`, `export`, `import` and `backup` with a store in PostgreSQL.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use crate::chaos::crash::database::Database;
use crate::harness::blocking::Message;
use crate::harness::process::{deltaq, finished};
use crate::harness::server::{End, Spawned, Store};
use crate::harness::waiting::PATIENCE;

/// The time for a clean stop.
pub(super) const STOP: End = End::Stop { patience: PATIENCE };

/// Runs a command with a text on stdin. Returns its exit code, stdout and stderr.
pub(super) fn run(line: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let run = finished(deltaq(line), stdin);
    (run.code, run.stdout, run.stderr)
}

#[track_caller]
pub(super) fn printed(line: &[&str]) -> String {
    finished(deltaq(line), "").printed()
}

#[track_caller]
pub(super) fn failed(line: &[&str]) -> String {
    finished(deltaq(line), "").refused()
}

pub(super) fn call(server: &Spawned, method: &'static str, path: &str, body: &Value) -> Value {
    let message = Message { method, ..Message::post(path.to_owned(), body) };
    let message = if method == "GET" { Message::get(path.to_owned()) } else { message };
    let (status, text) = server.call(&message);
    assert!(status < 300, "{method} {path}: {text}\n{}", server.last_words());
    serde_json::from_str(&text).unwrap_or_default()
}

/// Makes known, waiting, leased and parked keys in queues with settings, and a deleted queue.
pub(super) fn fill(server: &Spawned) {
    let settings = json!({"max_failures": 1, "retention": {"bytes": 1_000_000}});
    call(server, "PUT", "/v1/queues/prices", &settings);
    for n in 0..40 {
        call(server, "POST", "/v1/queues/prices/add", &json!({"key": format!("ключ {n} '\"%_"), "n": n}));
    }
    for (path, count) in [("ack", 20), ("nack", 5)] {
        let popped = call(server, "POST", &format!("/v1/queues/prices/pop?max={count}"), &json!({}));
        let items = popped["items"].as_array().expect("items");
        let leases: Vec<&Value> = items.iter().map(|item| &item["lease"]["id"]).collect();
        call(server, "POST", &format!("/v1/queues/prices/{path}"), &json!({"lease_ids": leases}));
    }
    call(server, "POST", "/v1/queues/prices/pop?max=3&lease_duration=1h", &json!({}));
    call(server, "POST", "/v1/queues/other/add", &json!({"key": "a"}));
    call(server, "POST", "/v1/queues/gone/add", &json!({"key": "a"}));
    call(server, "DELETE", "/v1/queues/gone", &Value::Null);
}

/// Everything of the queues that a copy keeps, without the instants of leases, which a start renews.
pub(super) fn contents(server: &Spawned) -> BTreeMap<String, Value> {
    let mut contents = BTreeMap::new();
    for queue in ["prices", "other"] {
        let document = call(server, "GET", &format!("/v1/queues/{queue}"), &Value::Null);
        let counts =
            ["ready", "delayed", "leased", "parked", "known"].map(|name| document["status"][name].clone());
        contents.insert(format!("{queue} counts"), json!(counts));
        for name in ["settings", "created_at", "incarnation"] {
            contents.insert(format!("{queue} {name}"), document[name].clone());
        }
        for list in ["known?limit=1000", "items?limit=1000"] {
            let mut page = call(server, "GET", &format!("/v1/queues/{queue}/{list}"), &Value::Null);
            for item in page["items"].as_array_mut().expect("items") {
                let lease = item["lease"]["id"].take();
                item.as_object_mut()
                    .expect("an object")
                    .retain(|name, _| ["key", "object", "deltas", "source"].contains(&name.as_str()));
                item["lease_id"] = lease;
            }
            contents.insert(format!("{queue} {list}"), page["items"].take());
        }
    }
    contents
}

#[test]
fn known_objects_are_exported_and_imported() {
    let folder = Store::folder("exported");
    let path = folder.path();
    let path = path.to_str().expect("text");
    let server = Spawned::start(&folder);
    fill(&server);
    server.end(STOP);
    let lines = printed(&["export", "--queue", "prices", "--data-dir", path]);
    assert_eq!(lines.lines().count(), 20);

    let database = Database::volatile();
    let url = database.url();
    assert!(failed(&["export", "--queue", "prices", "--store", &url]).contains("contains no deltaq store"));
    assert!(failed(&["check", "--store", &url]).contains("contains no deltaq store"));
    let (code, said, error) = run(&["import", "--queue", "prices", "--store", &url], &lines);
    assert_eq!((code, said.as_str()), (Some(0), "20 objects are in queue prices\n"), "{error}");
    assert_eq!(printed(&["export", "--queue", "prices", "--store", &url]), lines);
    assert!(failed(&["export", "--queue", "nope", "--store", &url]).contains("there is prices"));
    let said = printed(&["check", "--store", &url]);
    assert!(said.starts_with("no damage: 1 queues with 20 keys, "), "{said}");

    // A running server keeps its store, even if it has changed nothing.
    let store = Store::Url(url.clone());
    let server = Spawned::start(&store);
    assert!(failed(&["import", "--queue", "prices", "--store", &url]).contains("is not closed"));
    let said = printed(&["check", "--store", &url]);
    assert!(said.contains("note: the store is not closed") && said.contains("no damage"), "{said}");
    assert_eq!(printed(&["export", "--queue", "prices", "--store", &url]), lines);
    call(&server, "POST", "/v1/queues/prices/add", &json!({"key": "new"}));
    server.end(STOP);
}

#[test]
fn a_backup_is_made_with_pg_dump() {
    let database = Database::volatile();
    let url = database.url();
    let store = Store::Url(url.clone());
    let server = Spawned::start(&store);
    fill(&server);
    let before = contents(&server);
    assert!(
        failed(&["backup", "--store", &url, "--to", "never"])
            .contains("pg_dump --schema=deltaq --format=custom --file=never URL")
    );
    let dump = database.cluster.lock().folder().join("dump");
    let arguments = ["--schema=deltaq", "--format=custom", "--username=deltaq"];
    let place = |command: &mut Command| {
        let cluster = database.cluster.lock();
        cluster::run(command.arg("--host").arg(cluster.folder()));
    };
    place(Command::new("pg_dump").args(arguments).args(["--dbname=deltaq", "--file"]).arg(&dump));
    server.end(End::Kill);
    database.cluster.lock().sql("DROP SCHEMA deltaq CASCADE");
    place(Command::new("pg_restore").args(["--username=deltaq", "--dbname=deltaq"]).arg(&dump));
    let said = printed(&["check", "--store", &url]);
    assert!(said.contains("no damage: 2 queues"), "{said}");
    let server = Spawned::start(&store);
    assert_eq!(contents(&server), before);
}

/// Each kind of damage that PostgreSQL itself does not report.
#[test]
fn damage_is_found_and_named() {
    let database = Database::volatile();
    let url = database.url();
    let server = Spawned::start(&Store::Url(url.clone()));
    fill(&server);
    server.end(STOP);
    for (change, back, found) in [
        (
            "UPDATE deltaq.runs SET number = number + 100 WHERE number = 0 AND queue_id = 1",
            "UPDATE deltaq.runs SET number = number - 100 WHERE number = 100 AND queue_id = 1",
            "table runs, ctid (",
        ),
        (
            "UPDATE deltaq.queues SET state = '\\xff' || state WHERE id = 1",
            "UPDATE deltaq.queues SET state = substr(state, 2) WHERE id = 1",
            "a value can't be read",
        ),
        (
            "UPDATE deltaq.journal SET checksum = checksum + 1 WHERE queue_id = 1 AND prev_rv = 5 + (SELECT min(prev_rv) FROM deltaq.journal WHERE queue_id = 1)",
            "UPDATE deltaq.journal SET checksum = checksum - 1 WHERE queue_id = 1 AND prev_rv = 5 + (SELECT min(prev_rv) FROM deltaq.journal WHERE queue_id = 1)",
            "table journal, ctid (",
        ),
        (
            "DROP INDEX deltaq.queues_by_name",
            "CREATE UNIQUE INDEX queues_by_name ON deltaq.queues (partition, name) WHERE NOT deleted",
            "index queues_by_name is missing",
        ),
        (
            "CREATE TABLE kept AS SELECT * FROM deltaq.journal WHERE queue_id = 1 AND prev_rv = 7 + (SELECT min(prev_rv) FROM deltaq.journal WHERE queue_id = 1); \
             DELETE FROM deltaq.journal WHERE queue_id = 1 AND prev_rv = 7 + (SELECT min(prev_rv) FROM deltaq.journal WHERE queue_id = 1)",
            "INSERT INTO deltaq.journal SELECT * FROM kept",
            "are missing before this row",
        ),
    ] {
        database.cluster.lock().sql(change);
        let (code, said, error) = run(&["check", "--store", &url], "");
        assert_eq!(code, Some(1), "{change}: {said} {error}");
        assert!(
            said.lines().any(|line| line.starts_with("damage") && line.contains(found)),
            "{change}: {said}"
        );
        database.cluster.lock().sql(back);
        let said = printed(&["check", "--store", &url]);
        assert!(said.starts_with("no damage"), "{change}: {said}");
    }
}

/// A database of several nodes.
#[test]
fn all_partitions_are_checked_and_searched() {
    let database = Database::volatile();
    let url = database.url();
    let store = Store::Url(url.clone());
    let server = Spawned::start(&store);
    fill(&server);
    server.end(STOP);
    let lines = printed(&["export", "--queue", "prices", "--store", &url]);
    let sql = |text: &str| database.cluster.lock().sql(text);
    sql("INSERT INTO deltaq.partitions (partition) VALUES (1), (2)");
    for table in ["queues", "runs", "journal"] {
        sql(&format!("UPDATE deltaq.{table} SET partition = 2"));
    }
    assert!(printed(&["check", "--store", &url]).starts_with("no damage: 2 queues with 41 keys"));
    assert_eq!(printed(&["export", "--queue", "prices", "--store", &url]), lines);
    assert!(failed(&["export", "--store", &url]).contains("shared by several nodes"));
    assert!(failed(&["import", "--queue", "prices", "--store", &url]).contains("several nodes"));
    sql("UPDATE deltaq.runs SET number = number + 100 WHERE number = 0 AND queue_id = 1");
    let (code, said, _) = run(&["check", "--store", &url], "");
    assert!(code == Some(1) && said.contains("table runs, ctid ("), "{said}");
    // A damaged store with one partition is not exported as a whole.
    for table in ["queues", "runs", "journal"] {
        sql(&format!("UPDATE deltaq.{table} SET partition = 0"));
    }
    sql("DELETE FROM deltaq.partitions WHERE partition > 0");
    let (code, said, error) = run(&["export", "--store", &url], "");
    assert!(
        code == Some(1) && said.is_empty() && error.contains("is damaged, so it was not exported"),
        "{said} {error}"
    );
}

#[test]
fn flags_come_before_variables_and_exclude_each_other() {
    let with = |line: &[&str], variables: &[(&str, &str)]| {
        let mut command = deltaq(line);
        command.envs(variables.iter().copied());
        let run = finished(command, "");
        (run.code, run.stderr)
    };
    let folder = ("DELTAQ_STORAGE__DATA_DIR", "/nonexistent/folder");
    let database = ("DELTAQ_STORAGE__STORE", "postgres://deltaq@localhost/variable?host=/nonexistent");
    let url = "postgres://deltaq@localhost/flag?host=/nonexistent";
    for (line, variables, code, part) in [
        (&["check"][..], &[][..], 2, "the store is missing"),
        (&["check", "--data-dir", "x", "--store", url], &[], 2, "exclude each other"),
        (&["check", "--data-dir", "/nonexistent/flag"], &[database], 1, "/nonexistent/flag"),
        (&["check", "--store", url], &[folder], 1, "No such file"),
        (&["check"], &[folder, database], 1, "No such file"),
        (&["check"], &[folder], 1, "/nonexistent/folder"),
        (&["check", "--store", "mysql://deltaq:hunter2@h/q"], &[], 2, "postgres://"),
    ] {
        let (found, said) = with(line, variables);
        assert_eq!(found, Some(code), "{line:?} {variables:?}: {said}");
        assert!(said.contains(part) && !said.contains("hunter2"), "{line:?} {variables:?}: {said}");
    }
}
