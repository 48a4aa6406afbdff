//! `deltaq apply --prune`: whose queues are deleted, in which order, and what guards them.

use serde_json::{Value, json};

use super::{Server, file, settings};

/// The names of all queues.
fn queues(server: &Server) -> Vec<String> {
    server.run(&["queues", "-o", "name"]).ok().lines().map(str::to_owned).collect()
}

fn apply(server: &Server, text: &str, options: &[&str]) -> crate::harness::process::Run {
    let path = file(server, "queues.yaml", text);
    server.run(&[&["apply", "--file", &path], options].concat())
}

#[test]
fn only_queues_that_a_file_of_the_owner_has_created_are_deleted() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "byhand"]).ok();
    apply(&server, "owner: other\nqueues: {theirs: {}}", &[]).ok();
    let first = "owner: shop\nqueues:\n  byhand: {lease: 2m}\n  old: {}\n  prices: {}\n";
    let created = apply(&server, first, &[]).ok();
    assert!(created.contains("+ old\n    owner: \"shop\"\n"), "{created}");
    assert_eq!(settings(&server, "byhand")["owner"], Value::Null, "it was there before the file");
    assert_eq!(settings(&server, "theirs")["owner"], "other");
    // A PUT of a program that does not know the owner keeps it, and so does a file without one.
    server.run(&["queue", "create", "old", "--replace", "lease=3m"]).ok();
    let kept = apply(&server, "queues: {old: {lease: 3m}, prices: {}}", &[]).ok();
    assert!(kept.ends_with("0 new, 0 changed, 2 as before\n"), "{kept}");
    server.run(&["add", "old", r#"{"key":"a"}"#]).ok();

    let less = "owner: shop\nqueues: {prices: {}}";
    let planned = apply(&server, less, &["--prune", "--dry-run"]);
    assert!(planned.stdout.contains("- old (1 ready)\n"), "{planned:?}");
    assert!(planned.stdout.ends_with("0 new, 0 changed, 1 as before, 1 deleted\n"), "{planned:?}");
    planned.failed(7);
    let document = apply(&server, less, &["--prune", "--dry-run", "-o", "json"]);
    let document: Value = serde_json::from_str(&document.stdout).expect("JSON");
    assert_eq!(document["queues"][1], json!({"name": "old", "action": "delete", "changes": []}));
    let unconfirmed = apply(&server, less, &["--prune"]).failed(2);
    assert!(unconfirmed.contains("to delete 1 queue: old (1 ready), add --yes"), "{unconfirmed}");
    assert_eq!(queues(&server), ["byhand", "old", "prices", "theirs"], "nothing was deleted");
    apply(&server, less, &[]).ok();
    assert_eq!(queues(&server).len(), 4, "without --prune");
    apply(&server, less, &["--prune", "--yes"]).ok();
    assert_eq!(queues(&server), ["byhand", "prices", "theirs"]);
    apply(&server, less, &["--prune", "--dry-run"]).ok();
}

#[test]
fn a_queue_has_one_owner() {
    let server = Server::in_memory();
    apply(&server, "owner: shop\nqueues: {prices: {}}", &[]).ok();
    let refused = apply(&server, "owner: other\nqueues: {prices: {lease: 2m}}", &[]).failed(1);
    assert!(refused.contains("queue prices: its owner is shop, and that of the file is other"), "{refused}");
    let moved = apply(&server, "owner: other\nqueues: {prices: {owner: other}}", &[]).ok();
    assert!(moved.contains("    owner: \"shop\" -> \"other\"\n"), "{moved}");
    apply(&server, "owner: shop\nqueues: {jobs: {}}", &["--prune", "--yes"]).ok();
    assert_eq!(queues(&server), ["jobs", "prices"], "it is no longer one of shop");
    let released = apply(&server, "owner: other\nqueues: {prices: {owner: null}}", &[]).ok();
    assert!(released.contains("    owner: \"other\" -> null\n"), "{released}");
}

#[test]
fn a_file_that_says_nothing_deletes_nothing() {
    let server = Server::in_memory();
    apply(&server, "owner: 'no'\nqueues: {prices: {}}", &[]).ok();
    assert_eq!(settings(&server, "prices")["owner"], "no");
    for (text, part) in [
        ("", "unexpected end of input"),
        ("owner: no\n", "missing field `queues`"),
        ("owner: no\nqueues: {}\n", "it names no queue"),
        ("owner: no\nqueues:\n", "queues has no settings"),
        ("owner: no\nqueues: {other: {}, other: {}}\n", "line 2"),
        ("owner: no\nqueues: {other: {leese: 1m}}\n", "did you mean"),
        ("queues: {other: {}}\n", "write owner: NAME into it"),
        ("owner: a b\nqueues: {other: {}}\n", "owner \"a b\" breaks the rules"),
    ] {
        let refused = apply(&server, text, &["--prune", "--yes"]).failed(1);
        assert!(refused.contains(part), "{text}: {refused}");
    }
    server.run(&["apply", "--file", "/nonexistent", "--prune", "--yes"]).failed(1);
    assert_eq!(queues(&server), ["prices"]);
}

#[test]
fn more_than_half_of_the_queues_need_a_limit() {
    let server = Server::in_memory();
    let names =
        |count: usize| (0..count).map(|queue| format!("q{queue}: {{}}")).collect::<Vec<_>>().join(", ");
    let text = |count| format!("owner: shop\nqueues: {{{}}}", names(count));
    apply(&server, &text(10), &[]).ok();
    let refused = apply(&server, &text(4), &["--prune", "--yes"]).failed(1);
    assert!(refused.contains("delete 6 queues, more than half of the 10 of its owner"), "{refused}");
    let refused = apply(&server, &text(8), &["--prune", "--yes", "--max-deletes", "1"]).failed(1);
    assert!(refused.contains("delete 2 queues, more than --max-deletes 1"), "{refused}");
    assert_eq!(queues(&server).len(), 10);
    apply(&server, &text(4), &["--prune", "--yes", "--max-deletes", "6"]).ok();
    assert_eq!(queues(&server).len(), 4);
    // A file that was cut is one of fewer queues.
    apply(&server, &text(1), &["--prune", "--yes"]).failed(1);
    apply(&server, &text(2), &["--prune", "--yes"]).ok();
    apply(&server, &text(1), &["--prune", "--yes"]).ok();
    assert_eq!(queues(&server), ["q0"], "one queue may always go");
}

#[test]
fn followers_are_deleted_first_and_strangers_keep_what_they_follow() {
    let server = Server::in_memory();
    let chain = "owner: shop
queues: {a: {mode: latest}, b: {mode: latest, follow: {queue: a}}, c: {mode: latest, follow: {queue: b}}, d: {mode: latest, follow: {queue: b}}}
";
    apply(&server, chain, &[]).ok();
    server.run(&["queue", "create", "byhand", "mode=latest", "follow.queue=c"]).ok();
    let less = "owner: shop\nqueues: {e: {mode: latest}, d: {mode: latest, follow: {queue: e}}}";
    let prune = ["--prune", "--yes", "--max-deletes", "3"];
    let refused = apply(&server, less, &prune).failed(1);
    assert!(refused.contains("queue c can't be deleted, because queue byhand follows it"), "{refused}");
    let text = "owner: shop\nqueues: {c: {mode: latest, follow: {queue: b}}}";
    let refused = apply(&server, text, &prune).failed(1);
    assert!(refused.contains("queue b can't be deleted, because queue c follows it"), "{refused}");
    assert_eq!(queues(&server).len(), 5, "nothing was changed");
    server.run(&["queue", "delete", "byhand", "--yes"]).ok();

    let pruned = apply(&server, less, &prune).ok();
    let order: Vec<&str> = pruned.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(
        order,
        [
            "+ e",
            "- c (no keys)",
            "~ d",
            "- b (no keys)",
            "- a (no keys)",
            "1 new, 1 changed, 0 as before, 3 deleted"
        ]
    );
    assert_eq!(queues(&server), ["d", "e"]);
}

#[test]
fn a_failure_leaves_deletions_undone_and_a_repeat_ends_them() {
    let server = Server::in_memory();
    apply(&server, "owner: shop\nqueues: {old: {mode: latest}, older: {mode: latest}, moved: {mode: latest, follow: {queue: old}}}", &[])
        .ok();
    let resource =
        "key: [/metadata/name], kubernetes: {group: shop.example, version: v1, kind: Price, plural: prices}";
    apply(&server, &format!("queues: {{other: {{mode: latest, {resource}}}}}"), &[]).ok();
    let text = format!("owner: shop\nqueues: {{fine: {{}}, moved: {{mode: latest, {resource}}}}}");
    let prune = ["--prune", "--yes", "--max-deletes", "2"];
    let failed = apply(&server, &text, &prune);
    assert!(failed.stdout.starts_with("+ fine\n"), "what stands: {failed:?}");
    let refused = failed.failed(1);
    assert!(refused.contains("not applied to queue moved"), "{refused}");
    assert!(refused.contains("(old)"), "{refused}");
    assert!(queues(&server).contains(&"old".to_owned()));
    server.run(&["queue", "delete", "other", "--yes"]).ok();
    let repeated = apply(&server, &text, &prune).ok();
    assert!(repeated.ends_with("1 deleted\n"), "{repeated}");
    assert_eq!(queues(&server), ["fine", "moved"]);
}

#[test]
fn an_exported_file_gives_its_owner_to_the_queues_that_it_creates() {
    let (first, second) = (Server::in_memory(), Server::in_memory());
    first.run(&["queue", "create", "jobs", "mode=keys"]).ok();
    first.run(&["queue", "create", "mails", "mode=keys"]).ok();
    let exported = first.run(&["export", "--settings"]).ok();
    assert!(!exported.contains("owner"), "{exported}");
    let mut document: Value = serde_json::from_str(&exported).expect("JSON");
    document["owner"] = "shop".into();
    // Older programs have exported the null.
    document["queues"]["mails"]["owner"] = Value::Null;
    let created = apply(&second, &document.to_string(), &[]).ok();
    assert!(created.ends_with("2 new, 0 changed, 0 as before\n"), "{created}");
    for queue in ["jobs", "mails"] {
        assert_eq!(settings(&second, queue)["owner"], "shop", "{queue}");
    }
    document["queues"].as_object_mut().expect("an object").remove("mails");
    let pruned = apply(&second, &document.to_string(), &["--prune", "--yes"]).ok();
    assert!(pruned.contains("- mails (no keys)\n"), "{pruned}");
    assert_eq!(queues(&second), ["jobs"]);

    // Where the queues exist, the file changes nothing, and owns nothing.
    let path = file(&first, "exported.json", &document.to_string());
    let kept = first.run(&["apply", "--file", &path, "--prune", "--yes"]).ok();
    assert_eq!(kept, "  jobs\n0 new, 0 changed, 1 as before\n");
    assert_eq!(queues(&first), ["jobs", "mails"]);
}
