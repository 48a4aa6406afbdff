//! One call per command: output, input, exit codes.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Server, finished, lines};
use crate::harness::waiting::until;

#[test]
fn a_key_goes_from_add_to_ack() {
    let server = Server::in_memory();
    let added = server.run(&["add", "prices", r#"{"key":"sku-1","price":1.50}"#]).ok();
    let version = server.json(&["latest", "prices", "sku-1"])["resource_version"].clone();
    assert_eq!(added, format!("queued 1 (resource version {version})\n"));
    let table = server.run(&["queues"]).ok();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["QUEUE", "READY", "DELAYED", "LEASED", "PARKED", "KNOWN", "OLDEST", "STATE"]);
    assert_eq!(rows[1][..6], ["prices", "1", "0", "0", "0", "0"]);
    assert_eq!(server.run(&["queues", "-o", "name"]).ok(), "prices\n");

    let popped = server.json(&["pop", "prices", "--worker", "me", "--with-known"]);
    assert_eq!(popped[0]["deltas"][0]["object"], json!({ "key": "sku-1", "price": 1.5 }));
    let lease = popped[0]["lease"]["id"].as_str().expect("an id");
    let item = server.run(&["items", "prices", "sku-1"]).ok();
    assert!(item.contains(&format!("{lease} of worker me")), "{item}");
    let extended = server.json(&["extend", "prices", lease, "--lease", "90s"]);
    assert!(extended[0]["expires_in_ms"].as_u64().expect("milliseconds") > 80_000, "{extended}");
    let acked = server.run_with(&["ack", "prices", "-"], lease).ok();
    assert!(acked.contains("ok"), "{acked}");
    let known = server.run(&["known", "prices", "-o", "ndjson"]).ok();
    assert!(known.contains(r#""object":{"key":"sku-1","price":1.50}"#), "numbers keep every digit: {known}");
    server.run(&["update", "prices", r#"{"key":"sku-1","price":2}"#]).ok();
    let item = server.run(&["items", "prices", "sku-1", "--with-diff"]).ok();
    assert!(item.contains("replace /price 1.50 -> 2"), "{item}");
    let changed = server.json(&["pop", "prices", "--with-diff"]);
    let operation = json!({ "op": "replace", "path": "/price", "value": 2, "old": 1.5 });
    assert_eq!((&changed[0]["diff"], changed[0].get("known")), (&json!([operation]), None));
    let stale = server.run(&["nack", "prices", lease]).failed(6);
    assert!(stale.contains("next:"), "{stale}");
}

#[test]
fn lost_leases_are_printed_alike_for_one_lease_and_many() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "prices", "lease=1m30.5s"]).ok();
    server.run(&["add", "prices", r#"{"key":"a"}"#]).ok();
    let popped = server.json(&["pop", "prices", "--wait", "1.5ms", "--lease", "1h0m5s"]);
    let lease = popped[0]["lease"]["id"].as_str().expect("an id");
    for line in [&["ack", "prices", "x"][..], &["extend", "prices", "x"], &["ack", "prices", "x", lease]] {
        let run = server.run(&[line, &["-o", "json"]].concat());
        assert_eq!(run.code, Some(6), "{run:?}");
        let rows: Value = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!((&rows[0]["lease_id"], &rows[0]["outcome"]), (&json!("x"), &json!("unknown")), "{rows}");
        let lost = format!("1 of {} leases had ended before the call", line.len() - 2);
        assert!(run.stderr.contains(&lost) && run.stderr.contains("next:"), "{run:?}");
    }
    server.run(&["items", "prices", "a"]).failed(3);
}

#[test]
fn exit_codes_tell_the_causes_apart() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "prices", "max_failures=1", "lease=2m"]).ok();
    server.run(&["pop", "prices"]).failed(3);
    server.run(&["queue", "get", "nope"]).failed(3);
    server.run(&["items", "prices", "nope"]).failed(3);
    server.run(&["queue", "configure", "nope", "lease=1m"]).failed(3);
    server.run(&["queue", "get", "NOPE"]).failed(2);
    server.run(&["add", "prices", "sku-1"]).failed(2);
    server.run(&["add", "prices"]).failed(2);
    server.run(&["queue", "delete", "prices"]).failed(2);
    server.run(&["add", "prices", r#"{"no":"key"}"#]).failed(1);
    server.run(&["queue", "configure", "prices", "lease=1"]).failed(1);
    server.run(&["queues", "--url", "127.0.0.1:1"]).failed(4);
    server.run(&["queues", "--url", "ftp://a"]).failed(2);
    server.run(&["add", "prices", r#"{"key":"a"}"#]).ok();
    server.run(&["wait", "prices", "--timeout", "100ms"]).failed(3);
    assert_eq!(server.json(&["queue", "get", "prices"])["settings"]["lease"], "2m");
    server.run(&["queue", "create", "prices", "lease=3m"]).failed(1);
    server.run(&["queue", "configure", "prices", "max_failures=2"]).ok();
    let settings = server.run(&["queue", "settings", "prices"]).ok();
    assert!(settings.contains("\"lease\":\"2m\"") && settings.contains("\"max_failures\":2"), "{settings}");
    server.run(&["queue", "create", "prices", "--replace"]).ok();
    assert_eq!(server.json(&["queue", "get", "prices"])["settings"]["lease"], "30s");
    server.run_with(&["queue", "create", "prices", "--replace", "--from", "-"], &settings).ok();
    assert_eq!(server.run(&["queue", "settings", "prices"]).ok(), settings);
    server.run(&["queue", "create", "search", "follow.queue=prices"]).ok();
    server.run(&["queue", "delete", "prices", "--yes"]).failed(1);
    server.run(&["queue", "delete", "prices", "--yes", "--force"]).ok();
    server.run(&["queue", "delete", "search", "--yes"]).ok();
    assert_eq!(server.run(&["queues", "-o", "json"]).ok(), "[]\n");
}

#[test]
fn long_inputs_are_sent_in_batches_and_errors_name_the_object() {
    let server = Server::in_memory();
    let mut objects = String::new();
    for number in 0..25_000 {
        writeln!(objects, "{{\"key\":\"k{number}\"}}").expect("a string grows");
    }
    let added = server.run_with(&["add", "many", "-o", "json"], &objects).ok();
    let added: serde_json::Value = serde_json::from_str(&added).expect("JSON");
    assert_eq!(added["queued"], 25_000);
    assert_eq!(server.count("many", "ready"), 25_000);
    assert_eq!(server.run(&["items", "many", "-o", "name"]).ok().lines().count(), 25_000);
    assert_eq!(server.run(&["items", "many", "-o", "name", "--limit", "1500"]).ok().lines().count(), 1_500);

    let file = server.folder.path().join("objects.ndjson");
    let wrong = objects.replace("{\"key\":\"k12344\"}", "{}");
    std::fs::write(&file, wrong).expect("a file");
    let path = format!("@{}", file.display());
    let refused = server.run(&["add", "other", &path]).failed(1);
    let done = server.count("other", "ready");
    assert!((8_000..=10_000).contains(&done), "{done}");
    assert!(
        refused.contains(&format!("object 12345 of the input; the first {done} objects are done")),
        "{refused}"
    );

    let batch: String = objects.split_inclusive('\n').take(10_000).collect();
    std::fs::write(&file, batch.replace("{\"key\":\"k9999\"}", "{}")).expect("a file");
    let refused = server.run(&["add", "whole", &path]).failed(1);
    assert!(refused.contains("object 10000 of the input; nothing was changed"), "{refused}");
    server.run(&["queue", "get", "whole"]).failed(3);
}

#[test]
fn a_replace_needs_its_whole_list() {
    let server = Server::in_memory();
    let replaced =
        server.run_with(&["replace", "prices", "--source", "erp"], r#"[{"key":"a"},{"key":"b"}]"#).ok();
    assert!(replaced.starts_with("replaced    2\n"), "{replaced}");
    let cut = server.run_with(&["replace", "prices", "--source", "erp"], r#"[{"key":"a"},"#).failed(1);
    assert!(cut.contains("cut off"), "{cut}");
    server.run_with(&["replace", "prices", "--source", "erp"], "").failed(2);
    server.run_with(&["replace", "prices", "--source", "erp", "--count", "2"], "{\"key\":\"a\"}\n").failed(1);
    let dry = server
        .run_with(
            &["replace", "prices", "--source", "erp", "--dry-run", "-o", "json"],
            "{\"key\":\"a\"}\n{\"$end\":1}\n",
        )
        .ok();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&dry).expect("JSON")["deleted"], 1);
    assert_eq!(server.count("prices", "ready"), 2);
    server
        .run_with(&["replace", "prices", "--source", "erp", "--max-deletes", "0"], "[{\"key\":\"a\"}]")
        .failed(1);
    let known = server.run_with(&["seed", "copy"], "{\"key\":\"x\",\"object\":{\"key\":\"x\"}}\n").ok();
    assert_eq!(known, "1 object made known\n");
}

#[test]
fn an_empty_list_and_a_list_with_a_repeated_key_need_an_option() {
    let server = Server::in_memory();
    let list = r#"[{"key":"a","n":1},{"key":"b"},{"key":"a","n":2}]"#;
    let repeated = server.run(&["replace", "prices", "--source", "erp", list]).failed(1);
    assert!(repeated.contains("\"a\"") && repeated.contains("next: send each key once"), "{repeated}");
    server.run(&["replace", "prices", "--source", "erp", "--keep-last", list]).ok();
    assert_eq!(server.count("prices", "ready"), 2);
    assert_eq!(server.json(&["items", "prices", "a"])["deltas"][0]["object"]["n"], 2);

    let refused = server.run(&["replace", "prices", "--source", "erp", "[]"]).failed(1);
    assert!(refused.contains("2 of 2 keys") && refused.contains("next: "), "{refused}");
    assert!(refused.contains("--allow-empty"), "{refused}");
    let done = server.json(&["replace", "prices", "--source", "erp", "--allow-empty", "[]"]);
    assert_eq!(done["deleted"], 2, "{done}");
}

#[test]
fn a_closed_queue_ends_pops_at_once_or_after_the_leases() {
    let server = Server::in_memory();
    for (queue, wait_for, code) in [("waits", "leases", None), ("ends", "none", Some("queue-closed"))] {
        server.run(&["add", queue, r#"{"key":"a"}"#]).ok();
        server.run(&["pop", queue]).ok();
        server.run(&["queue", "close", queue, "--wait-for", wait_for]).ok();
        let popped = server.run(&["pop", queue]).failed(3);
        match code {
            Some(code) => assert!(popped.contains(code), "{popped}"),
            None => assert!(popped.contains("closed, and keys are delayed or leased"), "{popped}"),
        }
    }
    server.run(&["queue", "create", "paused"]).ok();
    server.run(&["queue", "pause", "paused"]).ok();
    assert!(server.run(&["pop", "paused"]).failed(3).contains("it is paused"));
}

#[test]
fn options_of_the_client_may_stand_before_the_command() {
    let server = Server::in_memory();
    let url = server.address.to_string();
    server.run(&["queue", "create", "prices"]).ok();
    for line in
        [&["--url", &url, "-o", "name", "queues"][..], &["-oname", "queue", "--url", &url, "get", "prices"]]
    {
        let mut command = server.command(line);
        command.env("DELTAQ_URL", "127.0.0.1:1");
        assert_eq!(finished(command, "").ok(), "prices\n", "{line:?}");
    }
}

#[test]
fn tail_goes_on_over_a_restart_of_the_server() {
    let mut server = Server::durable();
    server.run(&["add", "prices", r#"{"key":"a"}"#]).ok();
    let file = std::fs::File::create(server.folder.path().join("tail")).expect("a file");
    let mut tail = server.command(&["tail", "prices", "--interval", "50ms", "-n", "2"]);
    let mut tail = tail.stdout(file).stderr(Stdio::null()).spawn().expect("the binary runs");
    let shown = server.folder.path().join("tail");
    until("the first line is shown", || lines(&shown).len() == 2);
    server.kill();
    std::thread::sleep(Duration::from_millis(300));
    server.start();
    let lease = server.run(&["pop", "prices", "-o", "name"]).ok();
    server.run(&["ack", "prices", lease.trim()]).ok();
    assert!(tail.wait().expect("an end").success());
    assert_eq!(lines(&shown).len(), 3);
    // The first look is not repeated: the address may be wrong.
    server.kill();
    server.run(&["tail", "prices"]).failed(4);
}

#[test]
fn a_series_is_drawn_or_printed() {
    let server = Server::in_memory();
    server.run(&["add", "prices", r#"{"key":"a"}"#]).ok();
    // No minute of the server is over, so it has nothing to draw.
    let drawn = server.run(&["series", "prices"]).ok();
    assert!(drawn.starts_with("prices") && drawn.contains("1m a column"), "{drawn}");
    assert!(drawn.contains("the rate is not known yet: 1 key ready or leased"), "{drawn}");
    let line = ["series", "--since", "24h", "--until", "1h", "--step", "30m", "-o", "json"];
    let sums: Value = serde_json::from_str(&server.run(&line).ok()).expect("JSON");
    assert_eq!(
        (&sums["queue"], &sums["queues"], &sums["step_ms"]),
        (&Value::Null, &json!(1), &json!(1_800_000))
    );
    let points = sums["points"].as_array().expect("points");
    assert!(points.len() >= 46 && points.iter().all(|point| point["minutes"] == 0), "{sums}");
    assert_eq!(server.run(&["series", "prices", "-o", "name"]).ok(), "prices\n");
    server.run(&["series", "stok"]).failed(3);
}

#[test]
fn watch_goes_on_over_a_restart_of_the_server() {
    let mut server = Server::durable();
    server.run(&["add", "prices", "--source", "erp", r#"[{"key":"a"},{"key":"b"}]"#]).ok();
    let shown = server.folder.path().join("watch");
    let file = std::fs::File::create(&shown).expect("a file");
    let mut watch = server.command(&["watch", "prices", "--from", "0", "-n", "4"]);
    let mut watch = watch.stdout(file).stderr(Stdio::null()).spawn().expect("the binary runs");
    until("the first rows are shown", || lines(&shown).len() == 3);
    server.kill();
    server.start();
    server.run(&["update", "prices", r#"{"key":"b","v":2}"#]).ok();
    server.run(&["delete", "prices", "--key", "a"]).ok();
    assert!(watch.wait().expect("an end").success());
    let rows: Vec<Vec<String>> = lines(&shown)
        .iter()
        .map(|line| line.split_whitespace().skip(1).take(2).map(str::to_owned).collect())
        .collect();
    assert_eq!(rows, [["CHANGE", "KEY"], ["Added", "a"], ["Added", "b"], ["Updated", "b"], ["Deleted", "a"]]);
    assert!(lines(&shown)[3].ends_with(r#"{"key":"b","v":2}"#), "{:?}", lines(&shown));
    // The first call is not repeated: the address may be wrong.
    server.kill();
    server.run(&["watch", "prices"]).failed(4);
}

#[test]
fn watch_filters_and_ends_at_a_version_that_is_gone() {
    let server = Server::durable();
    server.run(&["add", "prices", r#"[{"key":"a"},{"key":"b"}]"#]).ok();
    let second = server.json(&["latest", "prices", "b"])["resource_version"].as_u64().expect("a version");
    let lease = server.run(&["pop", "prices", "-o", "name"]).ok();
    server.run(&["ack", "prices", lease.trim()]).ok();
    let known =
        ["watch", "prices", "--view", "known", "--from", "0", "--shard", "0/1", "-n", "1", "-o", "name"];
    assert_eq!(server.run(&known).ok(), "a\n");
    let rows = server
        .run(&[
            "watch",
            "prices",
            "--from",
            &(second - 1).to_string(),
            "--prefix",
            "b",
            "-n",
            "1",
            "-o",
            "ndjson",
        ])
        .ok();
    assert_eq!(
        rows,
        format!(
            "{{\"type\":\"Added\",\"key\":\"b\",\"resource_version\":{second},\"object\":{{\"key\":\"b\"}},\"source\":null}}\n"
        )
    );
    let lost = server.run(&["watch", "prices", "--from", "1000"]).failed(1);
    assert!(lost.contains("never had the version") && lost.contains("--from 0"), "{lost}");
    let ahead = server.run(&["watch", "prices", "--from", &(second + 1000).to_string()]).failed(1);
    assert!(ahead.contains("ahead of the queue") && ahead.contains("--from 0"), "{ahead}");
    server.run(&["watch", "absent"]).failed(3);
    let wrong = server.run(&["watch", "prices", "--from", "yesterday"]).failed(1);
    assert!(wrong.contains("is neither a version nor"), "{wrong}");
    server.run(&["watch", "prices", "--view", "nothing"]).failed(2);
}

#[test]
fn a_single_object_is_no_list_of_a_replace() {
    let server = Server::in_memory();
    let replace = ["replace", "prices", "--source", "erp"];
    let with = |more: &[&'static str]| [&replace[..], more].concat();
    server.run(&with(&[r#"[{"key":"a"},{"key":"b"},{"key":"c"}]"#])).ok();
    let file = server.folder.path().join("object.json");
    std::fs::write(&file, "{\n  \"key\": \"a\"\n}\n").expect("a file");
    let path = file.display().to_string();
    let refused = server.run(&with(&[r#"{"key":"a"}"#])).failed(1);
    assert!(refused.contains("one object and no list") && refused.contains("mass-delete"), "{refused}");
    server.run_with(&replace, "{\"key\":\"a\"}\n").failed(1);
    server.run(&[&replace[..], &[&path]].concat()).failed(1);
    assert_eq!(server.count("prices", "ready"), 3);
    server.run(&with(&[r#"{"key":"a"}"#, "--max-delete-percent", "100", "--dry-run"])).ok();
    // These say that the list has one object.
    server.run_with(&with(&["--dry-run"]), "{\"key\":\"a\"}\n{\"$end\":1}\n").ok();
    server.run_with(&with(&["--dry-run", "--count", "1"]), "{\"key\":\"a\"}\n").ok();
    server.run_with(&with(&["--dry-run"]), r#"[{"key":"a"}]"#).ok();
    server.run_with(&["replace", "fresh"], "{\"key\":\"a\"}\n").ok();
    server.run_with(&["replace", "fresh"], "{\"$end\":0}\n").failed(1);
}

#[test]
fn an_error_of_a_list_names_the_objects_of_the_input() {
    let server = Server::in_memory();
    let list = "[\n  {\"key\": \"a\"},\n\n  {\n    \"key\": \"b\"\n  },\n  {\"key\": \"a\"}\n]\n";
    let refused = server.run_with(&["replace", "prices"], list).failed(1);
    assert!(refused.contains("objects 1 and 3 have the same key") && !refused.contains("line"), "{refused}");
    let list = list.replace("{\"key\": \"a\"}\n]", "{}]");
    let refused = server.run_with(&["replace", "prices"], &list).failed(1);
    assert!(refused.contains("object 3 of the input; nothing was changed"), "{refused}");
    assert!(!refused.contains("line"), "{refused}");
}

#[test]
fn the_other_commands_reach_their_operations() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "jobs", "mode=keys", "max_failures=1"]).ok();
    server.run(&["add", "jobs", "--key", "a", "--key", "b"]).ok();
    let again = server.run(&["add", "jobs", "--key", "a"]).ok();
    assert!(again.starts_with("queued 0, 1 merged"), "{again}");
    server.run(&["queue", "pause", "jobs"]).ok();
    server.run(&["pop", "jobs"]).failed(3);
    server.run(&["queue", "resume", "jobs"]).ok();
    let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
    server.run(&["nack", "jobs", lease.trim(), "--error", "no \x1b[31mroute"]).ok();
    let parked = server.run(&["parked", "jobs"]).ok();
    assert!(parked.contains("no  [31mroute"), "{parked:?}");
    let errors = server.run(&["parked", "jobs", "--errors"]).ok();
    assert!(errors.contains("1  no  [31mroute") && errors.contains("FIRST KEY"), "{errors:?}");
    server.run(&["redrive", "jobs", "nope"]).failed(3);
    assert!(server.run(&["promote", "jobs", "a"]).failed(3).contains("none of the keys is delayed"));
    server.run(&["queue", "create", "later", "mode=keys"]).ok();
    server.run(&["add", "later", "--key", "a", "--key", "b", "--delay", "1h"]).ok();
    assert_eq!(server.run(&["promote", "later", "a"]).ok(), "1 delayed key made ready\n");
    let changed = server.run(&["promote", "later", "--all", "--expected-count", "2"]).failed(1);
    assert!(changed.contains("is 1 now"), "{changed}");
    let line = ["promote", "later", "--all", "--expected-count", "1"];
    assert_eq!(server.run(&line).ok(), "1 delayed key made ready\n");
    let failure = server.run(&["redrive", "jobs", "--error", "no such error"]).failed(3);
    assert!(failure.contains("no parked key has the error \"no such error\""), "{failure}");
    server.run(&["discard", "jobs", "--error", "no \x1b[31mroute"]).failed(2);
    assert_eq!(server.run(&["redrive", "jobs", "a"]).ok(), "1 parked key made ready\n");
    let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
    server.run(&["reject", "jobs", lease.trim(), "--error", "bad"]).ok();
    server.run(&["discard", "jobs", "--all"]).failed(2);
    assert_eq!(server.run(&["discard", "jobs", "--all", "--yes"]).ok(), "1 parked key dropped\n");
    let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
    server.run(&["release", "jobs", lease.trim()]).ok();
    server.run(&["forget", "jobs", "a"]).ok();
    server.run(&["queue", "purge", "jobs", "--yes"]).ok();
    server.run(&["wait", "jobs", "--idle"]).ok();
    server.run(&["queue", "close", "jobs", "--drain", "--wait", "1s"]).ok();
    server.run(&["pop", "jobs"]).failed(3);
    server.run(&["queue", "reopen", "jobs"]).ok();

    let batch = r#"[{"type":"Added","object":{"key":"x"}},{"type":"Updated","object":{"key":"y"}}]"#;
    server.run(&["deltas", "prices", batch]).ok();
    server.run(&["update", "prices", r#"{"price":1}"#, "--key", "x"]).ok();
    server.run(&["delete", "prices", "--key", "y"]).ok();
    server.run(&["resync", "prices"]).ok();
    server.run(&["replace", "fresh", r#"[{"key":"a"}]"#]).ok();
    server.run(&["synced", "fresh"]).failed(3);
    server.run(&["wait", "fresh", "--synced", "--timeout", "100ms"]).failed(3);
    let item = server.json(&["items", "prices", "x"]);
    assert_eq!(item["deltas"].as_array().expect("deltas").len(), 2, "{item}");
    server.run(&["history", "prices", "x"]).ok();
    let status = server.run(&["status"]).ok();
    assert!(status.contains("queues      4\n"), "{status}");
    let tail = server.run(&["tail", "prices", "-n", "1", "-o", "ndjson"]).ok();
    assert!(tail.starts_with("{\"name\":\"prices\""), "{tail}");
}

#[test]
fn changes_have_a_head_start() {
    let server = Server::in_memory();
    let object = |key: &str| json!({"key": key}).to_string();
    for key in ["a", "b", "c"] {
        server.run(&["add", "q", &object(key)]).ok();
    }
    server.run(&["add", "q", &object("d"), "--head-start", "1h"]).ok();
    server.run(&["update", "q", &object("b"), "--head-start", "30m"]).ok();
    server.run(&["delete", "q", &object("a"), "--head-start=-1h"]).ok();
    let ready = server.run(&["items", "q", "--state", "ready", "-o", "name"]).ok();
    assert_eq!(ready.split_whitespace().collect::<Vec<_>>(), ["d", "b", "a", "c"], "the place only improves");
    assert_eq!(server.json(&["explain", "q", "d"])["head_start_ms"], 3_600_000);
}

#[test]
fn changes_are_debounced() {
    let server = Server::in_memory();
    let object = |key: &str| json!({"key": key}).to_string();
    server.run(&["add", "q", &object("a"), "--debounce", "1h", "--max-wait", "2h"]).ok();
    server.run(&["update", "q", &object("b"), "--debounce", "1h", "--max-wait", "1h"]).ok();
    server.run(&["add", "q", &object("c"), "--debounce", "1h"]).ok();
    server.run(&["delete", "q", &object("c"), "--debounce", "3h", "--max-wait", "3h"]).ok();
    let mut ends = Vec::new();
    for key in ["a", "b", "c"] {
        let explained = server.json(&["explain", "q", key]);
        assert_eq!(explained["reason"], "debouncing", "{explained}");
        let instant = |name: &str| explained[name].as_str().expect("an instant").to_owned();
        ends.push((instant("due_at"), instant("latest_at")));
    }
    // Only the first key may wait longer than its quiet time, and the third one waits for its deletion.
    assert!(ends[0].0 < ends[0].1 && ends[1].0 == ends[1].1 && ends[2].0 > ends[1].0, "{ends:?}");
}

#[test]
fn every_key_can_be_read() {
    let server = Server::durable();
    let keys = [
        ".", "..", "...", "a/..", "../q", "a//b", "/", "/a", "a/", "%2e", "%2E%2e", "..%2f", "\\..", "?",
        "+", " ",
    ];
    let objects: Vec<Value> = keys.iter().map(|key| json!({ "object": { "key": key } })).collect();
    server.run_with(&["seed", "q", "-"], &json!(objects).to_string()).ok();
    for key in keys {
        server.run(&["update", "q", &json!({ "key": key, "n": key }).to_string()]).ok();
    }
    for key in keys {
        assert_eq!(server.json(&["known", "q", key])["object"], json!({ "key": key }), "{key:?}");
        assert_eq!(server.json(&["latest", "q", key])["object"], json!({ "key": key, "n": key }), "{key:?}");
        assert_eq!(server.json(&["items", "q", key])["deltas"][0]["object"]["n"], key, "{key:?}");
        assert_eq!(server.json(&["explain", "q", key])["key"], key);
        assert_eq!(server.json(&["history", "q", key])[0]["object"]["n"], key, "{key:?}");
    }
    for call in ["items", "latest", "known"] {
        server.run(&[call, "q", "../.."]).failed(3);
    }
    // The path of these values would be that of the list of indexes.
    for index in ["", ".", ".."] {
        let refused = server.run(&["indexes", "q", index]).failed(2);
        assert!(refused.contains("is no name"), "{refused}");
    }
}

#[test]
fn known_objects_are_found_by_a_field() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "prices", "indexes.by_city=/city"]).ok();
    let objects = r#"[{"object":{"key":"a","city":"Bern"}},{"object":{"key":"b","city":"Berlin"}},{"object":{"key":"c","city":"Bern"}}]"#;
    server.run(&["seed", "prices", objects]).ok();
    let found = server.run(&["known", "prices", "--index", "by_city", "--value", "Bern", "-o", "name"]).ok();
    assert_eq!(found, "a\nc\n");
    server.run(&["known", "prices", "--index", "by_city"]).failed(2);
    server.run(&["known", "prices", "--value", "Bern"]).failed(2);
    let indexes = server.run(&["indexes", "prices"]).ok();
    assert!(indexes.contains("by_city  /city    ready       2     3        0\n"), "{indexes}");
    assert_eq!(server.run(&["indexes", "prices", "--limit", "0", "-o", "name"]).ok(), "");
    let values = server.run(&["indexes", "prices", "by_city"]).ok();
    assert!(values.contains("Berlin     1\nBern       2\n"), "{values}");
    let values =
        server.run(&["indexes", "prices", "by_city", "--prefix", "Ber", "--limit", "1", "-o", "name"]).ok();
    assert_eq!(values, "Berlin\n");
    let unknown = server.run(&["indexes", "prices", "by_town"]).failed(3);
    assert!(unknown.contains("hint: the queue has by_city"), "{unknown}");
}

#[test]
fn a_token_comes_from_a_file_or_the_environment() {
    let server = Server::in_memory();
    let file = server.folder.path().join("token");
    std::fs::write(&file, "dq_secret\n").expect("a file");
    // A server without tokens takes every caller; a token with a line break inside is refused before the call.
    server.run(&["queues", "--token-file", file.to_str().expect("text")]).ok();
    std::fs::write(&file, "dq\nsecret").expect("a file");
    let refused = server.run(&["queues", "--token-file", file.to_str().expect("text")]).failed(1);
    assert!(!refused.contains("secret"), "{refused}");
    let mut command = server.command(&["queues"]);
    let output = command.env("DELTAQ_TOKEN", "a\nb").output().expect("output");
    assert_eq!(output.status.code(), Some(1));
}
