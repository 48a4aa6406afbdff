//! Another queue as the source, over restarts of both servers.

use serde_json::json;

use super::{Reflecting, counts, drain, known, needless};
use crate::harness::waiting::until;
use crate::system::cli::Server;

fn add(server: &Server, from: usize, to: usize, price: usize) {
    let objects: Vec<_> =
        (from..to).map(|number| json!({ "sku": number.to_string(), "price": price })).collect();
    server.run(&["update", "from", &serde_json::to_string(&objects).expect("JSON")]).ok();
}

#[track_caller]
fn until_equal(source: &Server, target: &Server) {
    let latest = |server: &Server, queue: &str| {
        let rows = server.run(&["latest", queue, "-o", "ndjson"]).ok();
        let rows = rows
            .lines()
            .map(|row| serde_json::from_str::<serde_json::Value>(row).expect("JSON")["object"].clone());
        rows.collect::<Vec<_>>()
    };
    until("both queues have the same objects", || latest(source, "from") == latest(target, "to"));
}

#[test]
fn a_queue_is_not_its_own_source() {
    let server = Server::in_memory();
    server.run(&["add", "q", "{\"key\":\"a\"}"]).ok();
    let url = server.address.to_string();
    let line = ["reflect", "q", "--source", "s", "--from-queue", "q", "--from-url", &url, "--once"];
    let refused = server.run(&line).failed(1);
    assert!(refused.contains("the queue q can't be its own source"), "{refused}");
    let other = Server::in_memory();
    assert_eq!(other.run(&line).ok(), "s: 1 objects, 1 replaced, 0 deleted, 0 unchanged\n");
}

#[test]
fn a_queue_without_objects_is_no_source() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "keys", "mode=keys"]).ok();
    let url = server.address.to_string();
    let line = ["reflect", "q", "--source", "s", "--from-queue", "keys", "--from-url", &url, "--once"];
    assert!(server.run(&line).failed(1).contains("the queue keys has mode keys, so it has no objects"));
    assert!(!server.run(&["queues", "-o", "ndjson"]).ok().contains("\"q\""), "the queue was created");
}

#[test]
fn deletions_reach_a_queue_with_versions() {
    let server = Server::in_memory();
    let url = server.address.to_string();
    for (number, keys) in ["key=[\"/sku\"]", "key=[\"/shop\",\"/sku\"]"].into_iter().enumerate() {
        let (from, to) = (format!("from-{number}"), format!("to-{number}"));
        server.run(&["queue", "create", &from, keys]).ok();
        let object =
            |sku: &str, version: usize| json!({ "shop": "a/b", "sku": sku, "v": version }).to_string();
        server.run(&["add", &from, &object("1", 5)]).ok();
        server.run(&["add", &from, &object("2", 5)]).ok();
        let line =
            [&to, "--source", "s", "--from-queue", &from, "--from-url", &url, "--create", "version=/v"];
        let reflecting = Reflecting::start(&server, &line);
        let latest = |count: usize| {
            until(&format!("{to} has {count} keys"), || {
                // The reflector creates the queue.
                let latest = server.run(&["latest", &to, "-o", "ndjson"]);
                latest.code == Some(0) && latest.stdout.lines().count() == count
            });
        };
        latest(2);
        server.run(&["delete", &from, &object("1", 5)]).ok();
        latest(1);
        // The queue knows that the key was deleted later.
        server.run(&["add", &from, &object("1", 3)]).ok();
        until("the log says so", || reflecting.log().contains("changes have no effect"));
        server.run(&["add", &from, &object("1", 6)]).ok();
        latest(2);
        reflecting.stop();
    }
}

#[test]
fn a_queue_is_followed_over_restarts_of_both_servers() {
    let (mut source, mut target) = (Server::durable(), Server::durable());
    source.run(&["queue", "create", "from", "key=/sku"]).ok();
    add(&source, 0, 500, 1);
    let url = source.address.to_string();
    let line = ["to", "--source", "s", "--from-queue", "from", "--from-url", &url];
    let reflecting = Reflecting::start(&target, &line);
    until_equal(&source, &target);
    add(&source, 0, 3, 2);
    source.run(&["delete", "from", "{\"sku\":\"7\"}"]).ok();
    until_equal(&source, &target);
    source.kill();
    source.start();
    add(&source, 3, 6, 3);
    until_equal(&source, &target);
    target.kill();
    add(&source, 6, 9, 4);
    target.start();
    until_equal(&source, &target);
    source.kill();
    target.kill();
    target.start();
    source.start();
    add(&source, 500, 510, 5);
    until_equal(&source, &target);
    assert_eq!(needless(&target, "to"), 0);
    drain(&target, "to");
    let objects = known(&target, "to");
    assert_eq!((objects.len(), &objects["8"]["price"]), (510, &json!(4)));
    assert_eq!(objects["7"]["price"], 4, "a deleted key that came back");
    reflecting.stop();

    // What workers of the source have acknowledged, with a prefix and a token file.
    drain(&source, "from");
    let token = target.folder.path().join("token");
    std::fs::write(&token, "any\n").expect("a file");
    let token = token.display().to_string();
    let once = [
        "reflect",
        "known",
        "--source",
        "s",
        "--from-queue",
        "from",
        "--from-url",
        &url,
        "--from-known",
        "--from-prefix",
        "50",
        "--from-token-file",
        &token,
        "--once",
    ];
    assert_eq!(target.run(&once).ok(), "s: 11 objects, 11 replaced, 0 deleted, 0 unchanged\n");
    assert_eq!(drain(&target, "known"), counts(&[("Replaced", 11)]));
}
