//! Queues that are deleted while sources are reflected into them.

use std::collections::BTreeMap;
use std::fs;

use serde_json::json;

use super::upstream::Upstream;
use super::{Reflecting, sql};
use crate::harness::waiting::until;
use crate::system::cli::Server;

/// The number of the newest objects of a queue; 0 if there is no queue.
fn latest(server: &Server, queue: &str) -> usize {
    server.run(&["latest", queue, "-o", "ndjson"]).stdout.lines().count()
}

#[test]
fn a_queue_that_is_deleted_gets_the_whole_list_again() {
    let server = Server::in_memory();
    let source = Server::in_memory();
    let folder = server.folder.path();
    let objects = json!([{ "sku": "a" }, { "sku": "b" }, { "sku": "c" }]);
    source.run(&["queue", "create", "from", "key=/sku"]).ok();
    source.run(&["update", "from", &objects.to_string()]).ok();
    let (list, database) = (folder.join("list.json"), folder.join("shop.db"));
    fs::create_dir(folder.join("files")).expect("a folder");
    fs::write(folder.join("files/all.json"), objects.to_string()).expect("a file");
    fs::write(&list, objects.to_string()).expect("a file");
    let statements = "CREATE TABLE prices (sku TEXT, version INTEGER); INSERT INTO prices VALUES ('a', 1), ('b', 1), ('c', 1)";
    sql::sqlite(&database.display().to_string(), statements);
    let text = objects.to_string();
    let upstream = Upstream::start(move |request, reply| match request.header("if-none-match") {
        Some("\"one\"") => reply.send(304, &[], ""),
        _ => reply.send(200, &["etag: \"one\""], &text),
    });
    let kinds = BTreeMap::from([
        ("rest", format!("list = {:?}", upstream.url("/"))),
        ("command", format!("run = [\"cat\", {list:?}]")),
        ("files", format!("path = {:?}", folder.join("files"))),
        (
            "sql",
            format!(
                "database = \"sqlite:{}\"\nquery = \"SELECT * FROM prices\"\nsince = \"version\"",
                database.display()
            ),
        ),
        ("deltaq", format!("url = {:?}\nqueue = \"from\"", source.address.to_string())),
    ]);
    let sources = kinds.iter().map(|(kind, settings)| {
        let interval = if *kind == "command" { "300ms" } else { "1s" };
        format!("[sources.{kind}]\nqueue = \"{kind}\"\ninterval = \"{interval}\"\ncreate = {{ key = \"/sku\", max_failures = 7 }}\n[sources.{kind}.{kind}]\n{settings}\n")
    });
    let file = folder.join("reflect.toml");
    fs::write(&file, sources.collect::<String>()).expect("a file");
    let reflecting = Reflecting::start(&server, &["--config", &file.display().to_string()]);
    let full = |kind: &str| latest(&server, kind) == 3;
    until("all queues have the lists", || kinds.keys().all(|kind| full(kind)));
    until("the first lists are over", || reflecting.get("/readyz").0 == 200);
    for kind in kinds.keys() {
        server.run(&["queue", "delete", kind, "--yes"]).ok();
    }
    until("all queues have the lists again", || kinds.keys().all(|kind| full(kind)));
    let are_those_of_the_sources = || {
        for kind in kinds.keys() {
            let settings = server.json(&["queue", "get", kind])["settings"].take();
            assert_eq!(
                (&settings["key"], &settings["max_failures"]),
                (&json!(["/sku"]), &json!(7)),
                "{kind}"
            );
        }
    };
    are_those_of_the_sources();

    // A change that is sent before the deletion is noticed does not create the queue with the default settings.
    for round in 0..3 {
        let sku = format!("d{round}");
        for kind in ["sql", "files", "deltaq"] {
            server.run(&["queue", "delete", kind, "--yes"]).ok();
        }
        let row = format!("INSERT INTO prices VALUES ('{sku}', {})", round + 2);
        sql::sqlite(&database.display().to_string(), &row);
        let object = json!({ "sku": sku }).to_string();
        fs::write(folder.join(format!("files/{sku}.json")), &object).expect("a file");
        source.run(&["update", "from", &object]).ok();
        let has_all = |kind: &&str| latest(&server, kind) == 4 + round;
        until("the queues have all objects", || ["sql", "files", "deltaq"].iter().all(has_all));
        are_those_of_the_sources();
    }
    reflecting.stop();
}
