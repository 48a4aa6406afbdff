//! `deltaq apply`: the plan, the second time, races, followers, failures, and the file that `queue settings` writes.

mod numbers;
mod prune;
mod races;
mod schema;
mod sources;
mod yaml;

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Server;

const FILE: &str = "
queues:
  # A follower before the queue that it follows.
  prices--shop:
    mode: latest
    follow: {queue: prices}
  prices:
    mode: latest
    lease: 60s
    retention: {age: 7d}
  no:
    mode: keys
";

/// Writes a file into the folder of the server.
fn file(server: &Server, name: &str, text: &str) -> String {
    let path = server.folder.path().join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a path").to_owned()
}

fn settings(server: &Server, queue: &str) -> Value {
    server.json(&["queue", "settings", queue])
}

#[test]
fn a_file_is_applied_once() {
    let server = Server::in_memory();
    let path = file(&server, "queues.yaml", FILE);
    let planned = server.run(&["apply", "--file", &path, "--dry-run"]);
    assert!(planned.failed(7).contains("3 queues would change"));
    assert_eq!(server.run(&["queues", "-o", "name"]).ok(), "", "a dry run changes nothing");

    let applied = server.run(&["apply", "--file", &path]).ok();
    let expected = "+ prices\n    mode: \"latest\"\n    lease: \"60s\"\n    retention: {\"age\":\"7d\"}\n\
                    + no\n    mode: \"keys\"\n\
                    + prices--shop\n    mode: \"latest\"\n    follow: {\"queue\":\"prices\"}\n3 new, 0 changed, 0 as before\n";
    assert_eq!(applied, expected);
    assert_eq!(settings(&server, "prices--shop")["follow"]["queue"], "prices");
    let again = server.run(&["apply", "--file", &path, "--dry-run"]).ok();
    assert!(again.ends_with("0 new, 0 changed, 3 as before\n"), "{again}");

    // Another spelling of a duration and another order of the members are no change; a setting that is left out gets its default.
    let changed = FILE
        .replace("60s", "1m")
        .replace("    retention: {age: 7d}\n", "")
        .replace("mode: keys", "{mode: keys, max_failures: 3}");
    let changed =
        changed.replace("  no:\n    {mode", "  no: {mode").replace("    follow: {queue: prices}\n", "");
    let path = file(&server, "queues.yaml", &changed);
    let plan = server.run(&["apply", "--file", &path, "--dry-run"]);
    let document: Value = {
        let run = server.run(&["apply", "--file", &path, "--dry-run", "-o", "json"]);
        serde_json::from_str(&run.stdout).expect("JSON")
    };
    assert_eq!(
        document["queues"][1],
        json!({"name": "prices", "action": "change", "changes": [{"setting": "retention.age", "before": "7d", "after": null, "left_out": true}]})
    );
    assert_eq!(document["queues"][0]["changes"][0]["setting"], "follow");
    assert!(plan.stdout.contains("~ no\n    max_failures: 20 -> 3\n"), "{plan:?}");
    plan.failed(7);
    server.run(&["apply", "--file", &path]).ok();
    assert_eq!(settings(&server, "prices--shop")["follow"], Value::Null);
    assert_eq!(settings(&server, "prices")["retention"]["age"], Value::Null);
    assert_eq!(settings(&server, "no")["max_failures"], 3);
    server.run(&["apply", "--file", &path, "--dry-run"]).ok();
}

#[test]
fn the_settings_of_a_server_are_a_file() {
    let (server, other) = (Server::in_memory(), Server::in_memory());
    let toml = "[queues.prices]\nmode = \"latest\"\nindexes = {by_city = \"/city\"}\nschema = {minimum = 1}\n[queues.\"1e5\"]\n";
    server.run(&["apply", "--file", &file(&server, "queues.toml", toml)]).ok();
    let all = server.run(&["queue", "settings"]).ok();
    let path = file(&server, "all.json", &all);
    let copied = other.run(&["apply", "--file", &path]).ok();
    assert!(copied.ends_with("2 new, 0 changed, 0 as before\n"), "{copied}");
    for queue in ["prices", "1e5"] {
        assert_eq!(settings(&server, queue), settings(&other, queue));
    }
    // An index and a schema that the file no longer has are removed.
    let path = file(&other, "less.yaml", "queues:\n  prices: {mode: latest}\n");
    let less = other.run(&["apply", "--file", &path]).ok();
    assert!(less.contains("    indexes.by_city: \"/city\" -> null (left out: the default)\n"), "{less}");
    assert_eq!(
        (&settings(&other, "prices")["indexes"], &settings(&other, "prices")["schema"]),
        (&json!({}), &Value::Null)
    );
    let text = other.run_with(&["apply", "--file", "-"], "queues: {prices: {mode: latest, lease: 2m}}").ok();
    assert!(text.contains("~ prices\n    lease: \"30s\" -> \"2m\"\n"), "{text}");
}

#[test]
fn a_wrong_file_changes_nothing_and_is_named() {
    let server = Server::in_memory();
    for (name, text, parts) in [
        ("empty.yaml", "", &["empty.yaml", "unexpected end of input"][..]),
        ("none.yaml", "queues: {}", &["it names no queue"]),
        ("twice.yaml", "queues:\n  a: {}\n  b: {}\n  a: {}\n", &["twice.yaml", "4"]),
        ("other.json", r#"{"queues":{"a":{}},"sources":{}}"#, &["other.json", "sources"]),
        ("name.yaml", "queues: {'a b': {}}", &["queue \"a b\""]),
        ("list.yaml", "queues: [a]", &["queues has no settings"]),
        ("value.yaml", "queues: {good: {}, bad: {lease: -1s}}", &["queue bad", "lease"]),
        ("member.yaml", "queues: {good: {}, bad: {leese: 1s}}", &["queue bad", "did you mean \"lease\""]),
        (
            "follow.yaml",
            "queues: {bad: {mode: latest, follow: {queue: nothing}}}",
            &[
                "queue bad can't follow queue nothing, which does not exist, and the file does not name it; nothing was changed",
            ],
        ),
        (
            "objects.yaml",
            "queues: {good: {mode: keys}, bad: {mode: latest, follow: {queue: good}}}",
            &["queue bad can't follow queue good, which keeps no objects"],
        ),
        (
            "circle.yaml",
            "queues: {good: {}, a: {mode: latest, follow: {queue: b}}, b: {mode: latest, follow: {queue: a}}}",
            &["queue a would follow itself: a follows b follows a; nothing was changed"],
        ),
        (
            "threshold.yaml",
            "queues: {good: {}, bad: {sources: {erp: {stale_after: 0s}}}}",
            &["queue bad: sources.erp: ", "from 1s to 366d"],
        ),
    ] {
        let path = file(&server, name, text);
        let refused = server.run(&["apply", "--file", &path]).failed(1);
        assert_eq!(server.run(&["apply", "--dry-run", "--file", &path]).failed(1), refused);
        for part in parts {
            assert!(refused.contains(part), "{name}: {refused}");
        }
    }
    assert!(server.run(&["apply", "--file", "/nonexistent"]).failed(1).contains("can't read /nonexistent"));
    assert_eq!(server.run(&["queues", "-o", "name"]).ok(), "");
}

#[test]
fn a_failure_ends_the_changes_and_a_repeat_finishes_them() {
    let server = Server::in_memory();
    server.run(&["add", "jobs", r#"{"key":"a"}"#]).ok();
    let path = file(&server, "queues.yaml", "queues: {jobs: {mode: keys}}");
    let refused = server.run(&["apply", "--file", &path]).failed(1);
    assert!(refused.contains("queue jobs") && refused.contains("immutable-config"), "{refused}");

    let resource =
        "key: [/metadata/name], kubernetes: {group: shop.example, version: v1, kind: Price, plural: prices}";
    let other = file(&server, "other.yaml", &format!("queues: {{other: {{mode: latest, {resource}}}}}"));
    server.run(&["apply", "--file", &other]).ok();
    let text = format!(
        "queues: {{jobs: {{}}, broken: {{mode: latest, {resource}}}, late: {{mode: latest, follow: {{queue: broken}}}}}}"
    );
    let refused = server.run(&["apply", "--file", &file(&server, "queues.yaml", &text)]).failed(1);
    assert!(refused.contains("queue broken, and 1 queue after it (late)"), "{refused}");
    server.run(&["queue", "delete", "other", "--yes"]).ok();
    let applied = server.run(&["apply", "--file", &path]).ok();
    assert!(applied.ends_with("2 new, 0 changed, 1 as before\n"), "{applied}");
}

#[test]
fn of_three_files_at_once_each_queue_has_the_settings_of_one() {
    const QUEUES: usize = 40;
    let server = Server::in_memory();
    let files: Vec<String> = ["1m", "2m", "3m"]
        .iter()
        .enumerate()
        .map(|(number, lease)| {
            let mut text = "queues:\n".to_owned();
            for queue in 0..QUEUES {
                let max = number + 1;
                writeln!(text, "  q{queue}: {{mode: keys, lease: {lease}, max_failures: {max}}}")
                    .expect("a string grows");
            }
            file(&server, &format!("{lease}.yaml"), &text)
        })
        .collect();
    std::thread::scope(|scope| {
        let apply = |file| server.run(&["apply", "--file", file]);
        let runs: Vec<_> = files.iter().map(|file| scope.spawn(move || apply(file))).collect();
        for run in runs {
            let run = run.join().expect("no panic");
            if run.code != Some(0) {
                let refused = run.failed(1);
                assert!(refused.contains("precondition-failed"), "{refused}");
                assert!(refused.contains("was not applied to queue q"), "{refused}");
                assert!(!refused.contains("--replace"), "{refused}");
            }
        }
    });
    let made: Value = serde_json::from_str(&server.run(&["queue", "settings"]).ok()).expect("JSON");
    for (name, made) in made["queues"].as_object().expect("an object") {
        let pair = (made["lease"].as_str().expect("text"), made["max_failures"].as_u64().expect("a number"));
        assert!([("1m", 1), ("2m", 2), ("3m", 3)].contains(&pair), "{name}: {pair:?}");
    }
    server.run(&["apply", "--file", &files[0]]).ok();
    let again = server.run(&["apply", "--file", &files[0], "--dry-run"]).ok();
    assert!(again.ends_with("0 new, 0 changed, 40 as before\n"), "{again}");
}

#[test]
fn a_thousand_queues_are_applied_once() {
    const QUEUES: usize = 1_000;
    let server = Server::in_memory();
    let mut text = "owner: shop\nqueues:\n".to_owned();
    for queue in 0..QUEUES {
        writeln!(text, "  q{queue}: {{mode: latest, lease: 1m, indexes: {{by_city: /city}}}}")
            .expect("a string grows");
    }
    let path = file(&server, "queues.yaml", &text);
    let applied = server.run(&["apply", "--file", &path]).ok();
    assert!(applied.ends_with("1000 new, 0 changed, 0 as before\n"), "{applied}");
    let again = server.run(&["apply", "--file", &path, "--prune"]).ok();
    assert!(again.ends_with("0 new, 0 changed, 1000 as before\n"), "{again}");
}

#[test]
fn the_settings_that_a_server_exports_change_nothing() {
    let server = Server::in_memory();
    let text = "owner: shop
queues:
  erp: {mode: latest, key: [/sku], version: /at, indexes: {by_city: /city}, ignore: [/at], schema: {minimum: 4.90}}
  erp--shop: {mode: latest, key: [/sku], follow: {queue: erp, prefix: 72044e0}, rate: {per_second: 4.90, burst: 3}}
  jobs: {mode: keys, lease: 3600s, groups: {by: {key_prefix: /}, overrides: {'no': {weight: 3}}}}
  # With what is a number without quotes.
  72044e0: {max_failures: 7}
";
    let text = text.replace("prefix: 72044e0", "prefix: '72044e0'");
    server.run(&["apply", "--file", &file(&server, "queues.yaml", &text)]).ok();
    server.run(&["queue", "create", "byhand"]).ok();
    let exported = server.run(&["export", "--settings"]).ok();
    assert!(exported.starts_with("{\n") && exported.contains("\"72044e0\": {"), "{exported}");
    assert_eq!(exported, server.run(&["queue", "settings"]).ok());
    let path = file(&server, "exported.json", &exported);
    let kept = server.run(&["apply", "--file", &path, "--dry-run"]).ok();
    assert!(kept.ends_with("0 new, 0 changed, 5 as before\n"), "{kept}");
    let other = text
        .replace("3600s", "60m")
        .replace("4.90", "4.9")
        .replace("mode: latest, key: [/sku]", "key: /sku, mode: latest");
    let kept = server.run(&["apply", "--file", &file(&server, "queues.yaml", &other), "--dry-run"]).ok();
    assert!(kept.ends_with("0 new, 0 changed, 4 as before\n"), "{kept}");

    // Another server gets the same queues with the same owners.
    let copy = Server::in_memory();
    copy.run(&["apply", "--file", &path]).ok();
    assert_eq!(copy.run(&["export", "--settings"]).ok(), exported);
    let refused = server.run(&["export", "--settings", "--data-dir", "/tmp"]).failed(2);
    assert!(refused.contains("--settings asks a running server"), "{refused}");
}

#[test]
fn another_spelling_of_a_schema_is_no_change() {
    let server = Server::in_memory();
    let schema = r#"{"schema":{"type":"object","required":["n"],"minimum":0.10}}"#;
    server.run(&["queue", "create", "q", "--from", schema]).ok();
    let text = "queues:\n  q:\n    lease: 2m\n    schema: {minimum: 0.1, required: [n], type: object}\n";
    let applied = server.run(&["apply", "--file", &file(&server, "queues.yaml", text)]).ok();
    assert!(applied.starts_with("~ q\n    lease: \"30s\" -> \"2m\"\n"), "{applied}");
}

#[test]
fn followers_leave_a_queue_before_it_can_no_longer_be_followed() {
    let server = Server::in_memory();
    let text = "queues: {a: {mode: latest}, b: {mode: latest, follow: {queue: a}}, d: {mode: latest, follow: {queue: b}}}";
    server.run(&["apply", "--file", &file(&server, "queues.yaml", text)]).ok();
    let text = "queues: {a: {mode: keys}, b: {mode: keys}, c: {mode: latest}, d: {mode: latest, follow: {queue: c}}}";
    let moved = server.run(&["apply", "--file", &file(&server, "queues.yaml", text)]).ok();
    assert!(moved.ends_with("1 new, 3 changed, 0 as before\n"), "{moved}");
    assert_eq!(settings(&server, "d")["follow"]["queue"], "c");
}
