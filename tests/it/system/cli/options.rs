//! Options of commands, each with its effect.

use serde_json::{Value, json};

use super::{Run, Server, deltaq, finished};

/// The names in a list.
fn names(server: &Server, line: &[&str]) -> Vec<String> {
    let line = [line, &["-o", "name"]].concat();
    server.run(&line).ok().lines().map(str::to_owned).collect()
}

#[test]
fn lists_are_filtered_and_limited() {
    let server = Server::durable();
    for queue in ["erp-a", "erp-b", "shop"] {
        server.run(&["queue", "create", queue]).ok();
    }
    assert_eq!(names(&server, &["queues", "--prefix", "erp-"]), ["erp-a", "erp-b"]);
    assert_eq!(names(&server, &["queues", "--limit", "1"]), ["erp-a"]);
    assert_eq!(names(&server, &["queue", "list", "--prefix", "erp-", "--limit", "1"]), ["erp-a"]);

    let objects = r#"[{"key":"a1"},{"key":"a2"},{"key":"b1"}]"#;
    server.run(&["add", "shop", "--source", "erp", objects]).ok();
    server.run(&["update", "shop", "--source", "web", r#"{"key":"b2"}"#]).ok();
    server.run(&["update", "shop", "--delay", "1h", r#"{"key":"late"}"#]).ok();
    let popped =
        server.json(&["pop", "shop", "--max", "2", "--lease", "90s", "--worker", "me", "--wait", "1s"]);
    assert_eq!(popped.as_array().map(Vec::len), Some(2));
    assert!(popped[0]["lease"]["expires_in_ms"].as_u64() > Some(80_000), "{popped}");
    assert_eq!(names(&server, &["items", "shop", "--worker", "me"]), ["a1", "a2"]);
    let workers = server.run(&["workers", "shop", "--limit", "1"]).ok();
    assert!(
        workers.lines().nth(1).is_some_and(|line| line.starts_with("me") && line.contains(" 2 ")),
        "{workers}"
    );
    assert_eq!(names(&server, &["groups", "shop", "--sort", "leased"]), [""; 0]);
    assert_eq!(names(&server, &["items", "shop", "--state", "delayed"]), ["late"]);
    let leases = names(&server, &["pop", "shop", "--max", "5", "--id", "once"]);
    assert_eq!(names(&server, &["pop", "shop", "--max", "5", "--id", "once"]), leases);
    let line = [&["ack", "shop"], leases.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat();
    server.run(&line).ok();
    for (number, error) in [(0, "no"), (1, "never")] {
        let lease = popped[number]["lease"]["id"].as_str().expect("an id");
        server.run(&["reject", "shop", lease, "--error", error]).ok();
    }
    assert_eq!(names(&server, &["known", "shop", "--source", "web"]), ["b2"]);
    assert_eq!(names(&server, &["known", "shop", "--prefix", "b", "--limit", "1"]), ["b1"]);
    assert_eq!(names(&server, &["known", "shop", "--shard", "0/1"]), ["b1", "b2"]);
    assert_eq!(names(&server, &["latest", "shop", "--source", "web"]), ["b2"]);
    assert_eq!(names(&server, &["latest", "shop", "--prefix", "a", "--limit", "1"]), ["a1"]);
    let shards = ["0/2", "1/2"].map(|shard| names(&server, &["latest", "shop", "--shard", shard]));
    assert_eq!(shards.concat().len(), 5, "{shards:?}");
    assert_eq!(server.json(&["latest", "shop", "b2"])["source"], "web");
    server.run(&["latest", "shop", "absent"]).failed(3);
    let explained = server.run(&["explain", "shop", "late"]).ok();
    assert!(explained.starts_with("Key \"late\": it is delayed until 2"), "{explained}");
    assert_eq!(names(&server, &["parked", "shop", "--limit", "1"]).len(), 1);
    assert_eq!(names(&server, &["history", "shop", "a1", "--limit", "2"]).len(), 2);
    assert_eq!(server.run(&["redrive", "shop", "--all"]).ok(), "2 parked keys made ready\n");
    let deleted = server.run(&["delete", "shop", "--source", "erp", "--key", "b2"]).ok();
    assert!(deleted.starts_with("queued 1 "), "{deleted}");
    server.run(&["synced", "shop", "--wait", "1s"]).ok();
    let late = server.run(&["synced", "shop", "--resource-version", "now", "--wait", "10ms"]).failed(3);
    assert!(late.contains("unacknowledged changes up to version"), "{late}");
    let first = server.run(&["synced", "shop", "--resource-version", "0"]).ok();
    assert_eq!(first, "acknowledged up to version 0\n");
    for view in ["latest", "known"] {
        let version =
            server.json(&["queue", "get", "shop"])["status"]["resource_version"].as_u64().expect("a version");
        server.run(&[view, "shop", "b1", "--min-resource-version", &version.to_string()]).ok();
        let ahead =
            server.run(&[view, "shop", "b1", "--min-resource-version", &(version + 9).to_string()]).failed(1);
        assert!(ahead.contains("ahead of the queue"), "{ahead}");
    }
    let sources = server.run(&["sources", "shop", "--limit", "1"]).ok();
    assert!(sources.lines().nth(1).is_some_and(|line| line.starts_with("erp")), "{sources}");
    let half = ["replace", "shop", "--source", "erp", "--max-delete-percent", "50", r#"[{"key":"a1"}]"#];
    assert!(server.run(&half).failed(1).contains("max_delete_percent"));
}

#[test]
fn a_sequence_number_is_applied_once() {
    let server = Server::in_memory();
    let number = |command: &[&str], number: &str| {
        let line = [command, &["--source", "erp", "--sequence", number]].concat();
        server.run(&line).ok()
    };
    assert!(number(&["add", "prices", "--key", "a", "{}"], "1").starts_with("queued 1 "));
    let repeated = number(&["add", "prices", "--key", "a", "{}"], "1");
    assert_eq!(repeated, "the sequence number had been applied; nothing was changed\n");
    number(&["update", "prices", "--key", "a", "{}"], "2");
    number(&["delete", "prices", "--key", "a"], "3");
    number(&["deltas", "prices", r#"{"type":"Added","object":{"key":"b"}}"#], "4");
    let list = ["replace", "prices", r#"[{"key":"b"}]"#];
    number(&list, "5");
    let repeated =
        server.run(&[&list[..], &["--source", "erp", "--sequence", "5", "-o", "json"]].concat()).ok();
    assert!(repeated.contains("\"duplicate\":true"), "{repeated}");
    assert_eq!(server.json(&["sources", "prices"])[0]["sequence"], 5);
    let several = ["add", "prices", "--source", "erp", "--sequence", "6", "--key", "c", "--key", "d"];
    assert!(server.run(&several).failed(2).contains("the number of one call"));
}

#[test]
fn a_change_may_expect_an_object() {
    let server = Server::in_memory();
    let version = || server.json(&["latest", "prices", "a"])["resource_version"].to_string();
    server.run(&["add", "prices", "--if-absent", "--delay", "1h", r#"{"key":"a","v":1}"#]).ok();
    assert_eq!(server.count("prices", "delayed"), 1);
    let first = version();
    server.run(&["update", "prices", "--if-version", &first, "--key", "a", r#"{"v":2}"#]).ok();
    let second = version();
    let object = r#"{"key":"a","v":3}"#;
    for line in [
        &["add", "prices", "--if-absent", object][..],
        &["update", "prices", "--if-absent", object],
        &["add", "prices", "--if-version", &first, object],
        &["update", "prices", "--if-version", &first, object],
        &["delete", "prices", "--if-version", &first, "--key", "a"],
        &["delete", "prices", "--if-absent", object],
    ] {
        let message = server.run(line).failed(1);
        assert!(
            message.contains("precondition-failed") && message.contains("deltaq latest QUEUE KEY"),
            "{message}"
        );
        assert_eq!(version(), second, "{line:?}");
    }
    let numbered = ["--source", "erp", "--sequence", "1"];
    let delete = [&["delete", "prices", "--if-version", &second, "--key", "a"][..], &numbered].concat();
    server.run(&delete).ok();
    assert_eq!(server.json(&["sources", "prices"])[0]["sequence"], 1);
    assert!(server.run(&delete).ok().contains("had been applied"), "its number has been applied");
    for line in [
        &["add", "prices", "--if-absent", "[{}]"][..],
        &["add", "prices", "--if-absent", "{}{}"],
        &["delete", "prices", "--if-version", "7", "--key", "a", "--key", "b"],
    ] {
        assert!(server.run(line).failed(2).contains("take a single object"), "{line:?}");
    }
}

#[test]
fn delays_and_backoff_are_passed_on() {
    let server = Server::in_memory();
    let config = r#"{"mode":"keys","rate_limiter":{"item_exponential":{"base":"1h","max":"1h"}}}"#;
    server.run(&["queue", "create", "jobs"]).ok();
    server.run(&["queue", "configure", "jobs", "--from", config]).ok();
    server.run(&["add", "jobs", "--rate-limited", "--key", "limited"]).ok();
    assert_eq!(server.count("jobs", "delayed"), 1);
    server.run(&["add", "jobs", "--key", "done", "--key", "failed"]).ok();
    for command in ["done", "nack"] {
        let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
        let line: &[&str] = match command {
            "done" => &["done", "jobs", lease.trim(), "--delay", "5m"],
            _ => &["nack", "jobs", lease.trim(), "--delay", "2h", "--floor"],
        };
        server.run(line).ok();
    }
    server.run(&["add", "jobs", "--key", "failed"]).ok();
    assert_eq!(server.count("jobs", "delayed"), 3, "no add ends the wait of a nack with a floor");
    assert_eq!(server.json(&["items", "jobs", "failed"])["failures"], 1);

    server.run(&["add", "prices", r#"{"key":"a"}"#]).ok();
    server.run(&["work", "prices", "--until-empty", "--", "true"]).ok();
    server.run(&["update", "prices", r#"{"key":"a","n":1}"#]).ok();
    let script = r#"test "$DELTAQ_WORKER" = me && grep -q '"known":{'"#;
    let line =
        ["work", "prices", "--until-empty", "--worker", "me", "--with-known", "--", "sh", "-c", script];
    let run = server.run(&line);
    assert!(run.stderr.contains("deliveries: 1 acknowledged, 0 failed"), "{run:?}");
    server.run(&["update", "prices", r#"{"key":"a","n":2}"#]).ok();
    let script = r#"grep -q '"diff":\[{"op":"replace","path":"/n","value":2,"old":1}\]'"#;
    let run = server.run(&["work", "prices", "--until-empty", "--with-diff", "--", "sh", "-c", script]);
    assert!(run.stderr.contains("deliveries: 1 acknowledged, 0 failed"), "{run:?}");
}

#[test]
fn a_group_is_paused_and_popped() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "q"]).ok();
    server.run(&["queue", "configure", "q", "--from", r#"{"groups":{"by":"/tenant"}}"#]).ok();
    for (key, tenant) in [("a", "acme"), ("b", "beta")] {
        server.run(&["add", "q", &format!(r#"{{"key":"{key}","tenant":"{tenant}"}}"#)]).ok();
    }
    server.run(&["queue", "pause", "q", "--group", "acme"]).ok();
    assert!(!server.run(&["pop", "q", "--group", "acme"]).stdout.contains("acme"));
    server.run(&["queue", "resume", "q", "--group", "acme"]).ok();
    let popped = server.run(&["pop", "q", "--group", "acme"]);
    assert!(popped.stdout.contains("acme"), "{popped:?}");
    let refused = server.run(&["push", "test", "q"]);
    assert!(refused.stderr.contains("the queue does not push"), "{refused:?}");
}

/// Runs a tool without a server.
fn tool(folder: &std::path::Path, line: &[&str]) -> Run {
    let mut command = deltaq(line);
    command.current_dir(folder);
    finished(command, "")
}

#[test]
fn a_floor_holds_although_the_object_changes() {
    let server = Server::durable();
    for (floor, state) in [(&[][..], "ready"), (&["--floor"][..], "delayed")] {
        server.run(&["add", "jobs", r#"{"key":"a"}"#]).ok();
        let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
        server.run(&[&["nack", "jobs", lease.trim(), "--delay", "2h"], floor].concat()).ok();
        server.run(&["update", "jobs", r#"{"key":"a","try":2}"#]).ok();
        assert_eq!(names(&server, &["items", "jobs", "--state", state]), ["a"]);
    }
}

#[test]
fn a_hold_stops_a_queue_until_it_is_resumed() {
    let server = Server::durable();
    for settle in ["release", "ack"] {
        server.run(&["add", "jobs", r#"{"key":"a"}"#]).ok();
        server.run(&["add", "jobs", r#"{"key":"b"}"#]).ok();
        let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
        server.run(&[settle, "jobs", lease.trim(), "--hold", "2h"]).ok();
        let error = server.run(&["pop", "jobs"]).failed(3);
        assert!(error.contains("a worker has asked to wait until 20"), "{error}");
        assert!(server.run(&["queues"]).ok().contains("held"));
        server.run(&["queue", "resume", "jobs"]).ok();
        let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
        server.run(&["ack", "jobs", lease.trim()]).ok();
    }
}

#[test]
fn a_hold_may_concern_a_group_or_a_key_only() {
    let server = Server::durable();
    server.run(&["queue", "create", "mails", "groups.by=/t"]).ok();
    server
        .run(&[
            "add",
            "mails",
            r#"[{"key":"a1","t":"a"},{"key":"a2","t":"a"},{"key":"b1","t":"b"},{"key":"b2","t":"b"}]"#,
        ])
        .ok();
    let lease = server.run(&["pop", "mails", "-o", "name"]).ok();
    server.run(&["ack", "mails", lease.trim(), "--hold", "2h", "--hold-scope", "group"]).ok();
    let lease = server.run(&["pop", "mails", "-o", "name"]).ok();
    server.run(&["release", "mails", lease.trim(), "--hold", "2h", "--hold-scope", "key"]).ok();
    assert_eq!(server.json(&["pop", "mails"])[0]["key"], "b2");
    server.run(&["pop", "mails"]).failed(3);
    server.run(&["work", "mails", "--until-empty", "--group", "a", "--", "true"]).ok();
    assert_eq!(server.count("mails", "ready"), 1, "the group is held");
    server.run(&["queue", "resume", "mails", "--group", "a"]).ok();
    let run = server.run(&["work", "mails", "--until-empty", "--group", "a", "--", "true"]);
    assert!(run.stderr.contains("deliveries: 1 acknowledged"), "{run:?}");
}

#[test]
fn an_extension_waits_for_a_newer_change() {
    let server = Server::durable();
    server.run(&["add", "jobs", r#"{"key":"a"}"#]).ok();
    let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
    let extended = server.json(&["extend", "jobs", lease.trim(), "--until-changed", "50ms"]);
    assert_eq!(extended[0]["pending_deltas"], 0);
    server.run(&["update", "jobs", r#"{"key":"a","n":1}"#]).ok();
    let extended = server.json(&["extend", "jobs", lease.trim(), "--until-changed", "30s"]);
    assert_eq!(extended[0]["pending_deltas"], 1);
}

#[test]
fn a_lease_is_acknowledged_in_parts() {
    let server = Server::durable();
    server.run(&["add", "jobs", r#"{"key":"a"}"#]).ok();
    for number in ["1", "2"] {
        server.run(&["update", "jobs", &format!(r#"{{"key":"a","try":{number}}}"#)]).ok();
    }
    let popped = server.json(&["pop", "jobs"]);
    let item = &popped[0];
    let lease = item["lease"]["id"].as_str().expect("a lease");
    let version = |delta: usize| item["deltas"][delta]["resource_version"].to_string();
    let (first, second) = (version(0), version(1));
    server.run(&["ack", "jobs", lease, "--through", &first, "--keep"]).ok();
    let again = server.run(&["ack", "jobs", lease, "--through", &first, "--keep"]).ok();
    assert!(again.contains("repeated"), "{again}");
    let error = server.run(&["release", "jobs", lease, "--through", "9007199254740991"]).failed(1);
    assert!(error.contains("resource_version of a delta that the lease has"), "{error}");
    server.run(&["nack", "jobs", lease, "--through", &second, "--delay", "2h"]).ok();
    let history = server.json(&["history", "jobs", "a"]);
    let progressed =
        history.as_array().expect("a list").iter().filter(|event| event["event"] == "progressed");
    let through: Vec<String> = progressed.map(|event| event["through"].to_string()).collect();
    assert_eq!(through, [second, first]);
    let item = server.json(&["items", "jobs", "a"]);
    assert_eq!((&item["failures"], item["deltas"].as_array().map(Vec::len)), (&json!(1), Some(1)), "{item}");
}

#[test]
fn objects_that_are_not_valid_are_left_out_and_named() {
    let server = Server::durable();
    let list = r#"[{"key":"a"},{"key":"b"},{"price":1}]"#;
    server.run(&["replace", "prices", "--source", "erp", list]).failed(1);
    let run = server.run(&["replace", "prices", "--source", "erp", "--skip-invalid", list]);
    assert!(run.stderr.contains("left out: an object without a readable key"), "{run:?}");
    assert_eq!(names(&server, &["items", "prices"]), ["a", "b"]);
    let deltas = r#"[{"type":"Deleted","key":"a"},{"type":"Added","object":{"price":1}}]"#;
    server.run(&["deltas", "prices", deltas]).failed(1);
    let run = server.run(&["deltas", "prices", "--skip-invalid", deltas]);
    assert!(run.stderr.contains("left out: an object without a readable key"), "{run:?}");
}

#[test]
fn tools_print_and_write_what_they_are_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = |line: &[&str]| tool(folder.path(), line);
    for shell in ["bash", "zsh", "fish"] {
        assert!(tool(&["completion", shell]).ok().contains("redrive"), "{shell}");
    }
    assert!(tool(&["man"]).ok().contains(".TH"));
    tool(&["man", "--dir", "pages"]).ok();
    assert!(folder.path().join("pages/deltaq-work.1").exists());

    std::fs::write(folder.path().join("deltaq.toml"), "[log]\nlevel = \"warn\"\n").expect("a file");
    let flags = [
        &["--config", "deltaq.toml", "--listen", ":8080", "--metrics-listen", "", "--insecure"][..],
        &["--log-format", "human", "--log-level", "debug"],
    ]
    .concat();
    let shown = tool(&[&["config", "show", "--in-memory"], flags.as_slice()].concat()).ok();
    for line in [
        "storage.in_memory = true",
        "access.insecure = true",
        "log.level = \"debug\"",
        "log.format = \"human\"",
    ] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
    let shown = tool(&["config", "show", "--data-dir", "here"]).ok();
    assert!(shown.contains("storage.data_dir = \"here\""), "{shown}");
    tool(&[&["config", "check", "--in-memory"], flags.as_slice()].concat()).ok();
    tool(&["config", "check", "--data-dir", "here"]).ok();
    let shown = tool(&["config", "show", "--store", "postgres://deltaq@db/deltaq"]).ok();
    assert!(shown.contains("postgres://deltaq@db/deltaq"), "{shown}");
    tool(&["config", "check", "--store", "postgres://deltaq@db/deltaq"]).ok();
    let node = ["--store", "postgres://deltaq@db/deltaq", "--node-name", "a", "--advertise", "http://a:7070"];
    let failed = tool(&[&["config", "check"], node.as_slice()].concat()).failed(1);
    assert!(failed.contains("cluster.secret_file is required with it"), "{failed}");

    let grants = ["--verbs", "read", "--queues", "*", "--file", "tokens.toml"];
    let first = tool(&[&["token", "reader"], grants.as_slice()].concat()).ok();
    assert_ne!(tool(&["token", "rotate", "reader", "--file", "tokens.toml"]).ok(), first);
    tool(&["token", "rotate", "reader", "--keep-old", "1d", "--file", "tokens.toml"]).ok();
    let listed = tool(&["token", "list", "--file", "tokens.toml"]).ok();
    assert!(listed.contains("the replaced token until "), "{listed}");
    let listed = tool(&["token", "list", "--file", "tokens.toml"]).ok();
    assert!(listed.starts_with("reader  read on *"), "{listed}");
    tool(&["token", "revoke", "reader", "--file", "tokens.toml"]).ok();
    assert_eq!(tool(&["token", "list", "--file", "tokens.toml"]).ok(), "\n");
}

#[test]
fn a_reader_that_has_left_is_no_failure() {
    for line in [&["config", "show"][..], &["man"], &["completion", "bash"], &["help"]] {
        let (reader, stdout) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = deltaq(line).stdout(stdout).output().expect("the binary runs");
        assert!(ended.status.success() && ended.stderr.is_empty(), "{line:?}: {ended:?}");
    }
}

#[test]
fn bench_measures_what_its_options_say() {
    let server = Server::in_memory();
    let url = server.address.to_string();
    let measure = |line: &[&str]| -> Value {
        let load = ["--url", &url, "--json", "--warm-up", "10ms", "--duration", "100ms"];
        let run = server.run(&[&["bench"], line, load.as_slice()].concat());
        serde_json::from_str(&run.ok()).expect("JSON")
    };
    let line = ["add", "--connections", "2", "--batch", "5", "--object-bytes", "100", "--keys", "50"];
    let report = measure(&[line.as_slice(), &["--queue", "load", "--rest", "1ms"]].concat());
    assert_eq!(
        (&report["batch"], &report["object_bytes"], &report["keys"]),
        (&json!(5), &json!(100), &json!(50))
    );
    assert!(server.count("load", "ready") <= 50, "the queue is kept, and has no other keys");
    let report = measure(&["add-pop", "--queues", "3", "--connections", "3"]);
    assert_eq!(report["objects_by_queue"].as_object().map(serde_json::Map::len), Some(3));
    assert_eq!(names(&server, &["queues"]), ["load"], "the other queues are deleted again");
}
