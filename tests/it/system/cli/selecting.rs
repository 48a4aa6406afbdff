//! `promote`, `redrive` and `discard` select keys by what they have in common, and count them first.

use super::Server;

fn object(key: &str) -> String {
    format!(r#"{{"key":"{key}"}}"#)
}

#[test]
fn keys_are_counted_first_and_then_changed_as_they_were_counted() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "jobs", "mode=latest", "max_failures=1"]).ok();
    for key in ["eu-1", "eu-2", "us-1"] {
        server.run(&["add", "jobs", &object(key), "--source", "erp"]).ok();
        let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
        server.run(&["reject", "jobs", lease.trim(), "--error", "bad"]).ok();
    }
    let counted = server.run(&["redrive", "jobs", "--all", "--dry-run"]).ok();
    assert!(counted.starts_with("3 parked keys would be made ready; --until "), "{counted}");
    let until = counted.split_whitespace().nth(8).expect("a version");
    let filter = ["redrive", "jobs", "--prefix", "eu-", "--source", "erp"];
    let aged = server.run(&[&filter[..], &["--older-than", "0s", "--dry-run"]].concat()).ok();
    let before = aged.split_whitespace().nth(10).expect("an instant");
    assert!(aged.contains(&format!("--until {until} --older-than-at {before} leaves out")), "{aged}");
    let line = [&filter[..], &["--older-than-at", before, "--until", until]].concat();
    assert_eq!(server.run(&line).ok(), "2 parked keys made ready\n");
    let none = server.run(&["redrive", "jobs", "--group", "acme", "--error", "bad"]).failed(3);
    assert!(none.contains("no parked key has the error \"bad\" and the group \"acme\""), "{none}");
}

#[test]
fn a_discard_of_a_filter_asks_first_and_its_count_does_not() {
    let server = Server::in_memory();
    server.run(&["add", "jobs", &object("eu-1"), "--source", "erp"]).ok();
    let lease = server.run(&["pop", "jobs", "-o", "name"]).ok();
    server.run(&["reject", "jobs", lease.trim(), "--error", "bad"]).ok();
    let counted = server.run(&["discard", "jobs", "--prefix", "eu-", "--dry-run"]).ok();
    let until = counted.split_whitespace().nth(7).expect("a version");
    let filter =
        ["--source", "erp", "--group", "", "--older-than-at", "2126-01-01T00:00:00Z", "--until", until];
    let young = server.run(&["discard", "jobs", "--older-than", "1h", "--dry-run"]).failed(3);
    assert!(young.contains("no parked key has a change older than 1h"), "{young}");
    let refused = server.run(&[&["discard", "jobs"][..], &filter].concat()).failed(2);
    assert!(refused.contains("drop all parked keys with the source \"erp\""), "{refused}");
    assert_eq!(
        server.run(&[&["discard", "jobs", "--yes"][..], &filter].concat()).ok(),
        "1 parked key dropped\n"
    );
}

#[test]
fn delayed_keys_are_promoted_by_what_they_have_in_common() {
    let server = Server::in_memory();
    for key in ["eu-1", "us-1"] {
        server.run(&["add", "later", &object(key), "--source", "erp", "--delay", "1h"]).ok();
    }
    let counted = server.run(&["promote", "later", "--prefix", "eu-", "--dry-run"]).ok();
    assert!(counted.starts_with("1 delayed key would be made ready; --until "), "{counted}");
    let until = counted.split_whitespace().nth(8).expect("a version");
    server.run(&["promote", "later", "--older-than", "1h", "--dry-run"]).failed(3);
    let filter = ["--source", "erp", "--group", "", "--older-than-at", "2126-01-01T00:00:00Z"];
    let line = [&["promote", "later", "--until", until][..], &filter].concat();
    assert_eq!(server.run(&line).ok(), "2 delayed keys made ready\n");
}
