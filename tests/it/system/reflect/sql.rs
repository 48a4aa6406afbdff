//! Queries of SQLite and PostgreSQL.

use std::process::Command;

use serde_json::json;

use super::{Reflecting, counts, drain, known};
use crate::harness::waiting::until;
use crate::system::cli::Server;
use crate::system::postgres::cluster::Cluster;

/// Runs statements in a file of SQLite.
pub(super) fn sqlite(path: &str, statements: &str) {
    let script = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], timeout=60)\nc.executescript(sys.argv[2])\nc.commit()";
    let status = Command::new("python3").args(["-c", script, path, statements]).status();
    assert!(status.expect("python3 runs").success(), "{statements}");
}

#[test]
fn rows_of_sqlite_are_objects() {
    let server = Server::in_memory();
    let path = server.folder.path().join("shop.db").display().to_string();
    sqlite(
        &path,
        "PRAGMA journal_mode = wal; CREATE TABLE prices (key TEXT, price REAL, count INTEGER, note TEXT, picture BLOB);
         INSERT INTO prices VALUES ('a', 0.1, 9007199254740993, 'it''s', x'00ff'), ('b', 2.0, -1, NULL, NULL)",
    );
    let database = format!("sqlite:{path}");
    let once = |query: &str| {
        server.run(&["reflect", "q", "--source", "s", "--sql", &database, "--query", query, "--once"])
    };
    assert_eq!(
        once("SELECT * FROM prices -- all").ok(),
        "s: 2 objects, 2 replaced, 0 deleted, 0 unchanged\n"
    );
    assert_eq!(once("SELECT * FROM prices;").ok(), "s: 2 objects, 0 replaced, 0 deleted, 2 unchanged\n");
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", 2)]));
    let rows = known(&server, "q");
    assert_eq!(
        rows["a"],
        json!({ "key": "a", "price": 0.1, "count": 9_007_199_254_740_993_u64, "note": "it's", "picture": "\\x00ff" })
    );
    assert_eq!(rows["b"], json!({ "key": "b", "price": 2.0, "count": -1, "note": null, "picture": null }));
    for (query, expected) in [
        ("SELECT * FROM absent", "no such table: absent"),
        ("SELECT 1 AS key, 2 AS key", "there are two columns \"key\""),
        ("DELETE FROM prices RETURNING *", "readonly"),
    ] {
        let failed = once(query).failed(1);
        assert!(failed.contains(expected), "{query}: {failed}");
    }
    let missing = server.run(&[
        "reflect",
        "q",
        "--source",
        "s",
        "--sql",
        "sqlite:missing.db",
        "--query",
        "SELECT 1",
        "--once",
    ]);
    assert!(missing.failed(1).contains("can't open missing.db"));
    assert_eq!(drain(&server, "q"), counts(&[]));
}

#[test]
fn changed_rows_of_sqlite_are_sent_between_lists() {
    let server = Server::in_memory();
    let path = server.folder.path().join("shop.db").display().to_string();
    sqlite(
        &path,
        "PRAGMA journal_mode = wal; CREATE TABLE prices (key TEXT PRIMARY KEY, price INTEGER, version INTEGER);
         INSERT INTO prices VALUES ('a', 1, 1), ('b', 1, 2), ('c', 1, 2)",
    );
    let database = format!("sqlite:{path}");
    let line = |since: &'static str| {
        [
            "q",
            "--source",
            "s",
            "--sql",
            &database,
            "--query",
            "SELECT * FROM prices",
            "--since",
            since,
            "--interval",
            "30ms",
            "--relist",
            "3s",
        ]
        .map(str::to_owned)
    };
    let wrong = line("changed");
    let mut wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
    wrong.insert(0, "reflect");
    wrong.push("--once");
    assert!(server.run(&wrong).failed(1).contains("it has no column \"changed\" (since)"));
    let line = line("version");
    let reflecting = Reflecting::start(&server, &line.each_ref().map(String::as_str));
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    // A row with the last value is new, and those that had it before are not sent again.
    sqlite(&path, "INSERT INTO prices VALUES ('d', 1, 2)");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 1.0);
    sqlite(&path, "UPDATE prices SET price = 2, version = 3 WHERE key = 'a'");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 2.0);
    // Only a list shows that a row is gone.
    sqlite(&path, "DELETE FROM prices WHERE key = 'b'");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"deleted\"", 1.0);
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", 3), ("Updated", 2), ("Deleted", 1)]));
    let rows = known(&server, "q");
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["a", "c", "d"]);
    assert_eq!(rows["a"]["price"], 2);
    reflecting.stop();
}

#[test]
fn rows_of_postgresql_keep_their_numbers_and_a_lost_server_deletes_nothing() {
    let server = Server::in_memory();
    let mut cluster = Cluster::start();
    cluster.sql(
        "CREATE TABLE prices (key text, price numeric, tags jsonb, at timestamptz);
         INSERT INTO prices VALUES ('a', 12345678901234567890.123456789012345678, '{\"n\": 1.10}', '2026-01-02T03:04:05.678901Z'), ('b', 1, NULL, NULL);
         GRANT SELECT ON prices TO deltaq",
    );
    let database = cluster.url();
    let line = [
        "q",
        "--source",
        "s",
        "--sql",
        &database,
        "--query",
        "SELECT * FROM prices",
        "--since",
        "at",
        "--interval",
        "30ms",
        "--relist",
        "3s",
    ];
    let reflecting = Reflecting::start(&server, &line);
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    let text = server.run(&["items", "q", "-o", "ndjson"]).ok();
    assert!(
        text.contains(
            "\"price\":12345678901234567890.123456789012345678,\"tags\":{\"n\": 1.10},\"at\":\"2026-01-02T"
        ),
        "{text}"
    );
    cluster.sql("INSERT INTO prices VALUES ('c', 3, NULL, now())");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 1.0);
    cluster.end(rustix::process::Signal::KILL);
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 1.0);
    cluster.restart();
    cluster.sql("DELETE FROM prices WHERE key = 'b'");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"deleted\"", 1.0);
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", 2), ("Updated", 1), ("Deleted", 1)]));
    assert_eq!(known(&server, "q").into_keys().collect::<Vec<_>>(), ["a", "c"]);
    reflecting.stop();
    let once = |query: &str| {
        server.run(&["reflect", "q", "--source", "s", "--sql", &database, "--query", query, "--once"])
    };
    let refused = once("SELECT 1; DROP TABLE prices").failed(1);
    assert!(refused.contains("the query has failed"), "{refused}");
    let refused = once("SELECT nextval('nothing')").failed(1);
    assert!(refused.contains("does not exist"), "{refused}");
    let secret = [
        "reflect",
        "q",
        "--source",
        "s",
        "--sql",
        "postgres://a:hunter2@h/d",
        "--query",
        "SELECT 1",
        "--once",
    ];
    let refused = server.run(&secret).failed(2);
    assert!(refused.contains("PGPASSWORD") && !refused.contains("hunter2"), "{refused}");
}

#[test]
fn rows_without_a_value_are_for_the_list() {
    let server = Server::in_memory();
    let path = server.folder.path().join("shop.db").display().to_string();
    sqlite(
        &path,
        "CREATE TABLE prices (key TEXT, version INTEGER); INSERT INTO prices VALUES ('a', NULL), ('b', NULL)",
    );
    let database = format!("sqlite:{path}");
    let line =
        ["q", "--source", "s", "--sql", &database, "--query", "SELECT * FROM prices", "--since", "version"];
    let reflecting = Reflecting::start(&server, &[&line[..], &["--interval", "20ms"]].concat());
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    let time = || reflecting.metric("deltaq_reflect_last_success_timestamp_seconds", "");
    let before = time();
    until("the rows are read again", || time() > before + 0.2);
    sqlite(&path, "INSERT INTO prices VALUES ('c', 1)");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 1.0);
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", 2), ("Updated", 1)]));
    reflecting.stop();
}

#[test]
fn a_query_ends_with_its_time() {
    let server = Server::in_memory();
    let path = server.folder.path().join("shop.db").display().to_string();
    sqlite(&path, "CREATE TABLE prices (key TEXT)");
    let endless =
        "WITH RECURSIVE n(key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM n) SELECT max(key) AS key FROM n";
    let database = format!("sqlite:{path}");
    let line = ["q", "--source", "s", "--sql", &database, "--query", endless, "--timeout", "100ms"];
    let reflecting = Reflecting::start(&server, &line);
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 2.0);
    assert!(reflecting.log().contains("the query has not ended within 100ms (timeout)"));
    let is_of_query = |task: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.starts_with("sqlx")
    };
    until("no thread runs the query", || {
        let tasks =
            std::fs::read_dir(format!("/proc/{}/task", reflecting.process.child.id())).expect("a process");
        !tasks.flatten().any(|task| is_of_query(&task))
    });
    reflecting.stop();

    let cluster = Cluster::start();
    let database = cluster.url();
    let query = "SELECT pg_sleep(600)::text AS key";
    let line =
        ["reflect", "q", "--source", "s", "--sql", &database, "--query", query, "--timeout", "1s", "--once"];
    assert!(server.run(&line).failed(1).contains("the query has not ended within 1s (timeout)"));
    let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND application_name = 'deltaq-reflect'";
    until("the server runs the query no more", || cluster.sql(running) == "0");
}
