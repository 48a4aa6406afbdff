//! `deltaq export | deltaq import` of a whole store, between a data directory and PostgreSQL.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::commands::{STOP, call, contents, failed, fill, printed, run};
use crate::chaos::crash::database::Database;
use crate::harness::blocking::{Connection, Message};
use crate::harness::process::deltaq;
use crate::harness::server::{Spawned, Store};
use crate::harness::waiting::until;

/// More keys than one commit of an import has.
const MANY: usize = 3_000;
/// Bytes of each of their objects.
const PAD: usize = 2_000;

fn path(folder: &Store) -> &str {
    let path = folder.path();
    path.to_str().expect("text")
}

/// A store with many known objects.
fn many_known(test: &str) -> Store {
    let folder = Store::folder(test);
    let pad = "x".repeat(PAD);
    let object = |n| format!("{{\"object\":{{\"key\":\"k{n}\",\"pad\":\"{pad}\"}}}}");
    let objects: Vec<String> = (0..MANY).map(object).collect();
    let objects = objects.join("\n");
    let (code, _, error) = run(&["import", "--queue", "q", "--data-dir", path(&folder)], &objects);
    assert_eq!(code, Some(0), "{error}");
    folder
}

/// The text of a whole store with many known objects, and one waiting key.
fn many(test: &str) -> String {
    let folder = many_known(test);
    let server = Spawned::start(&folder);
    call(&server, "POST", "/v1/queues/q/add", &json!({"key": "waiting"}));
    server.end(STOP);
    printed(&["export", "--data-dir", path(&folder)])
}

#[test]
fn a_whole_store_moves_to_postgres_and_back() {
    let folder = Store::folder("moved");
    let server = Spawned::start(&folder);
    fill(&server);
    let before = contents(&server);
    assert_eq!(before["prices counts"], json!([12, 0, 3, 5, 20]));
    let export = ["export", "--data-dir", path(&folder)];
    assert!(failed(&export).contains("only one server can use a store"));
    server.end(STOP);

    let text = printed(&export);
    let database = Database::volatile();
    let url = database.url();
    let import = ["import", "--store", &url];
    let (code, said, error) = run(&import, &text);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(said.starts_with("imported 2 queues, 2 runs of checkpoints, "), "{said}");
    assert!(printed(&["check", "--store", &url]).starts_with("no damage: 2 queues with 41 keys"));
    let (code, _, error) = run(&import, &text);
    assert!(code == Some(1) && error.contains("has queues"), "{error}");
    let store = Store::Url(url.clone());
    let server = Spawned::start(&store);
    assert!(failed(&["export", "--store", &url]).contains("is not closed"));
    assert_eq!(contents(&server), before);
    let history = call(&server, "GET", "/v1/queues/other/history?key=a", &Value::Null);
    assert_eq!(history["items"].as_array().map(Vec::len), Some(1), "{history}");
    // A lease from before is still valid, and its token is the same.
    let leased = call(&server, "GET", "/v1/queues/prices/items?state=leased", &Value::Null);
    let lease = &leased["items"][0]["lease"]["id"];
    let settled = call(&server, "POST", "/v1/queues/prices/ack", &json!({"lease_ids": [lease]}));
    assert_eq!(settled["settled"][0]["result"], "ok", "{settled}");
    call(&server, "POST", "/v1/queues/gone/add", &json!({"key": "a"}));
    server.end(STOP);

    // And back, by a file.
    let back = Store::folder("moved-back");
    let file = Path::new(path(&folder)).join("whole.ndjson");
    let file = file.to_str().expect("text");
    let said = printed(&["export", "--store", &url, "--to", file]);
    assert!(said.starts_with("3 queues, 4 runs of checkpoints, "), "{said}");
    assert!(failed(&["export", "--store", &url, "--to", file]).contains("exists already"));
    printed(&["import", "--data-dir", path(&back), "--from", file]);
    assert!(printed(&["check", "--data-dir", path(&back)]).starts_with("no damage: 3 queues with 42 keys"));
    let server = Spawned::start(&back);
    assert_eq!(contents(&server)["prices counts"], json!([12, 0, 2, 5, 21]));
    server.end(STOP);
}

/// An object that the store has once for a queue and its followers.
fn large() -> Value {
    json!({"key": "large", "pad": "large".repeat(10_000)})
}

/// Moves from one server with a data directory to nodes.
#[test]
fn a_whole_store_moves_to_several_nodes() {
    let folder = Store::folder("moved-to-nodes");
    let server = Spawned::start(&folder);
    fill(&server);
    for number in 0..20 {
        call(&server, "POST", &format!("/v1/queues/more-{number}/add"), &json!({"key": "a", "n": number}));
    }
    call(&server, "PUT", "/v1/queues/prices--search", &json!({"follow": {"queue": "prices"}}));
    // Large objects of followers, in each partition.
    for number in 0..20 {
        let (queue, follower) =
            (format!("/v1/queues/more-{number}"), format!("/v1/queues/more-{number}--copy"));
        call(&server, "PUT", &follower, &json!({"follow": {"queue": format!("more-{number}")}}));
        call(&server, "POST", &format!("{queue}/add"), &large());
        until("the follower has the large object", || {
            call(&server, "GET", &follower, &Value::Null)["status"]["ready"] == 2
        });
    }
    let before = contents(&server);
    server.end(STOP);
    let text = printed(&["export", "--data-dir", path(&folder)]);
    assert_eq!(text.matches(large()["pad"].as_str().expect("text")).count(), 1, "it is there once");

    let nodes = super::nodes::Nodes::with_partitions(3);
    let url = nodes.cluster.url();
    let target = path(&folder).to_owned() + "/other";
    for wrong in [&["--data-dir", &target][..], &["--store", &url, "--queue", "q"]] {
        let (code, _, error) = run(&[&["import", "--partitions", "3"], wrong].concat(), &text);
        assert!(code == Some(1) && error.contains("--partitions is only for a whole store"), "{error}");
    }
    let import = ["import", "--store", &url, "--partitions", "3"];
    let (code, said, error) = run(&import, &text);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(said.starts_with("imported 43 queues, "), "{said}");
    let (code, _, error) = run(&import, &text);
    assert!(code == Some(1) && error.contains("has queues"), "{error}");
    let used = nodes.cluster.sql("SELECT count(DISTINCT partition) FROM deltaq.queues");
    assert_eq!(used, "3", "the queues are in all partitions");
    assert!(printed(&["check", "--store", &url]).starts_with("no damage: 43 queues with "));

    let (a, b) = (nodes.start("a"), nodes.start("b"));
    nodes.until_owners(&[("a", 1), ("b", 2)]);
    for node in [&a, &b] {
        // A partition has its owner a moment before its queues are loaded.
        for queue in
            ["prices", "other"].map(str::to_owned).into_iter().chain((0..20).map(|n| format!("more-{n}")))
        {
            until("a node answers for a queue", || {
                let message = Message::get(format!("/v1/queues/{queue}"));
                let reply = Connection::open(node.api).and_then(|mut own| own.call(&message));
                reply.expect("a reply").status() == Some(200)
            });
        }
        assert_eq!(contents(node), before);
        for number in 0..20 {
            let items = call(node, "GET", &format!("/v1/queues/more-{number}/items"), &Value::Null);
            assert_eq!(items["items"][0]["deltas"][0]["object"]["n"], number, "{items}");
            let items = call(node, "GET", &format!("/v1/queues/more-{number}--copy/items"), &Value::Null);
            assert!(items.to_string().contains(&large().to_string()), "{items}");
        }
    }
    // Numbers go on, and followers follow.
    let leased = call(&a, "GET", "/v1/queues/prices/items?state=leased", &Value::Null);
    let settled =
        call(&a, "POST", "/v1/queues/prices/ack", &json!({"lease_ids": [leased["items"][0]["lease"]["id"]]}));
    assert_eq!(settled["settled"][0]["result"], "ok", "{settled}");
    call(&b, "POST", "/v1/queues/prices/add", &json!({"key": "after the move"}));
    until("the follower has the new key", || {
        let found = call(&a, "GET", "/v1/queues/prices--search/items?limit=1000", &Value::Null);
        found.to_string().contains("after the move")
    });
}

/// The rows that are in a database, without the numbers of the store.
fn rows(database: &Database) -> String {
    let tables = ["queues", "runs", "journal"];
    let counts = tables.map(|table| format!("(SELECT count(*) FROM deltaq.{table})")).join(" + ");
    database.cluster.lock().sql(&format!("SELECT {counts}"))
}

/// Waits until an import has written rows.
fn until_written(database: &Database) {
    until("a row is written", || {
        database.cluster.lock().sql("SELECT to_regclass('deltaq.runs') IS NOT NULL") == "t"
            && rows(database) != "0"
    });
}

#[test]
fn an_incomplete_or_changed_input_leaves_nothing() {
    let text = many("cut");
    let lines: Vec<&str> = text.lines().collect();
    let runs = lines.iter().filter(|line| line.starts_with("{\"run\"")).count();
    assert!(runs > 50, "{runs} runs");
    let folder = Store::folder("cut-target");
    let database = Database::volatile();
    let url = database.url();
    let without_last = lines[..lines.len() - 1].join("\n") + "\n";
    let cut_in_line = text[..text.len() - 1].to_owned();
    let half = text[..text.len() / 2].to_owned();
    let without_key = text.replacen(&format!("{}\n", lines[lines.len() / 2]), "", 1);
    let changed = text.replacen("k1234", "k1235", 1);
    let other_queue = text.replacen("\"queue\":1,", "\"queue\":2,", 1);
    for target in [["--data-dir", path(&folder)], ["--store", &url]] {
        let import = ["import", target[0], target[1]];
        for (input, what) in [
            (&without_last, "the input ends here"),
            (&cut_in_line, "the input ends here"),
            (&half, "the input ends here"),
            (&without_key, "their checksum differs"),
            (&changed, "their checksum differs"),
            (&other_queue, "the store has no queue 2"),
            (&String::new(), "the input ends here"),
            (&"{\"key\":\"a\",\"object\":{}}\n".to_owned(), "this is not a line of a store"),
        ] {
            let (code, _, error) = run(&import, input);
            assert!(code == Some(1) && error.contains(what), "{target:?} {what}: {error}");
            assert!(error.contains("nothing was imported"), "{error}");
            if target[0] == "--store" && !input.is_empty() && what != "this is not a line of a store" {
                assert_eq!(rows(&database), "0", "{what}");
            }
        }
        let (code, said, error) = run(&import, &text);
        assert_eq!(code, Some(0), "{error}");
        assert!(said.starts_with(&format!("imported 1 queues, {runs} runs of checkpoints")), "{said}");
        assert!(printed(&["check", target[0], target[1]]).starts_with("no damage: 1 queues"));
        assert_eq!(printed(&["export", target[0], target[1]]), text);
    }
}

#[test]
fn an_import_that_was_killed_shows_no_queue_and_can_be_repeated() {
    let text = many("killed");
    let database = Database::volatile();
    let url = database.url();
    let start = || {
        let mut import = deltaq(&["import", "--store", &url]);
        let mut import = import.stdin(Stdio::piped()).spawn().expect("the binary runs");
        let mut input = import.stdin.take().expect("a pipe");
        input.write_all(&text.as_bytes()[..text.len() - 100]).expect("a reader");
        until_written(&database);
        import.kill().expect("the import runs");
        import.wait().expect("a child process");
    };
    start();
    // A server that starts now has new queues beside the rows, and not with them.
    let store = Store::Url(url.clone());
    let server = Spawned::start(&store);
    assert_eq!(call(&server, "GET", "/v1/queues", &Value::Null)["items"], json!([]));
    call(&server, "POST", "/v1/queues/q/add", &json!({"key": "new"}));
    let items = call(&server, "GET", "/v1/queues/q/items?state=ready", &Value::Null);
    assert_eq!(items["items"].as_array().map(Vec::len), Some(1), "{items}");
    server.end(STOP);
    assert_eq!(
        printed(&["export", "--queue", "q", "--store", &url]),
        "",
        "known objects of the interrupted import"
    );
    database.cluster.lock().sql("DROP SCHEMA deltaq CASCADE");
    start();
    let (code, _, error) = run(&["import", "--store", &url], &text);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(printed(&["export", "--store", &url]), text);
}

/// A server that starts during the import takes the store over. The import ends without a queue.
#[test]
fn an_import_that_loses_its_store_to_a_server_imports_nothing() {
    let text = many("fenced");
    let database = Database::volatile();
    let url = database.url();
    let mut import = deltaq(&["import", "--store", &url]);
    let mut import = import.stdin(Stdio::piped()).spawn().expect("the binary runs");
    let mut input = import.stdin.take().expect("a pipe");
    let (begin, rest) = text.as_bytes().split_at(text.len() - 100);
    input.write_all(begin).expect("a reader");
    until_written(&database);
    let store = Store::Url(url.clone());
    let server = Spawned::start(&store);
    // The import may have ended already.
    let _written = input.write_all(rest);
    drop(input);
    let mut error = String::new();
    import.stderr.take().expect("a pipe").read_to_string(&mut error).expect("text");
    assert!(!import.wait().expect("a child process").success());
    assert!(error.contains("another process has taken over the store"), "{error}");
    assert_eq!(call(&server, "GET", "/v1/queues", &Value::Null)["items"], json!([]));
    server.end(STOP);
}

#[test]
fn an_output_that_closes_is_an_error() {
    let folder = many_known("closed");
    let mut export = deltaq(&["export", "--data-dir", path(&folder)]).spawn().expect("the binary runs");
    drop(export.stdout.take());
    let output = export.wait_with_output().expect("the binary ends");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the reader closed the output"), "{error}");
}
