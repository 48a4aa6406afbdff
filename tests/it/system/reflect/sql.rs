//! Queries of SQLite and PostgreSQL.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::{Value, json};

use super::{Reflecting, by_key, counts, drain, known};
use crate::harness::process::Run;
use crate::harness::waiting::until;
use crate::system::cli::Server;
use crate::system::postgres::cluster::Cluster;
use crate::system::postgres::pgbouncer::Pooler;

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
    for value in ["'hidden-value'::int", "'hidden-value'::timestamp", "'hidden-value'::json"] {
        let refused = once(&format!("SELECT {value} AS key")).failed(1);
        assert!(refused.contains("the query has failed") && !refused.contains("hidden"), "{refused}");
    }
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

/// Sends the rows of a query of a database once.
fn once(server: &Server, queue: &str, database: &str, query: &str, options: &[&str]) -> Run {
    let line = ["reflect", queue, "--source", "s", "--sql", database, "--query", query, "--once"];
    server.run(&[&line, options].concat())
}

#[test]
fn columns_may_have_any_name_but_no_two_the_same() {
    let server = Server::in_memory();
    let cluster = Cluster::start();
    cluster.sql(
        "CREATE TYPE pair AS (key text, x int);
         CREATE TABLE colours (key text, r int, \"R\" int, \"r.*\" text, row text, since int);
         INSERT INTO colours VALUES ('red', 255, 1, 'x', 'y', 3);
         CREATE TABLE pairs (key text, r pair); INSERT INTO pairs VALUES ('a', ROW('OTHER', 1));
         GRANT SELECT ON colours, pairs TO deltaq",
    );
    let database = cluster.url();
    for since in [&[][..], &["--since", "since"], &["--since", "r"], &["--since", "R"]] {
        once(&server, "colours", &database, "SELECT * FROM colours", since).ok();
    }
    once(&server, "pairs", &database, "SELECT * FROM pairs", &[]).ok();
    once(&server, "pairs", &database, "SELECT * FROM pairs AS r", &["--since", "key"]).ok();
    drain(&server, "colours");
    drain(&server, "pairs");
    let red = json!({ "key": "red", "r": 255, "R": 1, "r.*": "x", "row": "y", "since": 3 });
    assert_eq!(known(&server, "colours"), [("red".to_owned(), red)].into());
    let pair = json!({ "key": "a", "r": { "key": "OTHER", "x": 1 } });
    assert_eq!(known(&server, "pairs"), [("a".to_owned(), pair)].into());

    let path = server.folder.path().join("shop.db").display().to_string();
    sqlite(
        &path,
        "CREATE TABLE colours (key TEXT, r INTEGER, Version INTEGER); INSERT INTO colours VALUES ('red', 255, 3)",
    );
    let lite = format!("sqlite:{path}");
    once(&server, "lite", &lite, "SELECT *, 1 AS R2 FROM colours", &["--since", "version"]).ok();
    once(&server, "lite", &lite, "SELECT key, r, 'x' AS \"R\" FROM colours", &[]).ok();
    for (database, since) in [(&database, &[][..]), (&lite, &[]), (&lite, &["--since", "n"])] {
        let query = "SELECT 'a' AS key, 1 AS n, 'b' AS key";
        let failed = once(&server, "twins", database, query, since).failed(1);
        assert!(
            failed.contains("there are two columns \"key\"; give one of them another name with AS"),
            "{failed}"
        );
    }
    // With since, SQLite does not tell them apart.
    let failed =
        once(&server, "twins", &lite, "SELECT 'a' AS key, 'b' AS KEY, 1 AS n", &["--since", "n"]).failed(1);
    assert!(failed.contains("there are two columns \"KEY\""), "{failed}");
    // An empty table tells as well.
    let failed =
        once(&server, "twins", &lite, "SELECT * FROM colours WHERE false", &["--since", "changed"]).failed(1);
    assert!(failed.contains("it has no column \"changed\" (since)"), "{failed}");
}

#[test]
fn a_row_that_is_not_text_or_not_finite_does_not_hide_the_others() {
    let server = Server::in_memory();
    let cluster = Cluster::start();
    let path = server.folder.path().join("shop.db").display().to_string();
    let rows = (0..30).map(|at| format!("('k{at:02}', 1)")).collect::<Vec<_>>().join(", ");
    sqlite(
        &path,
        &format!(
            "PRAGMA encoding = 'UTF-16'; CREATE TABLE t (key, v); INSERT INTO t VALUES ('ü', 'ß'), {rows}"
        ),
    );
    let local = format!("sqlite:{path}");
    let query = "SELECT * FROM t";
    let values = |queue: &str| {
        let lines = server.run(&["latest", queue, "-o", "ndjson"]).ok();
        let row = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["object"].clone();
        by_key(&lines.lines().map(row).collect::<Vec<_>>())
    };
    once(&server, "utf16", &local, query, &[]).ok();
    assert_eq!(values("utf16")["ü"]["v"], "ß");

    let eight = server.folder.path().join("eight.db").display().to_string();
    let local = format!("sqlite:{eight}");
    sqlite(&eight, &format!("CREATE TABLE t (key, v); INSERT INTO t VALUES {rows}"));
    once(&server, "lite", &local, query, &[]).ok();
    sqlite(
        &eight,
        "UPDATE t SET v = CAST(x'ff41' AS TEXT) WHERE key = 'k01'; UPDATE t SET v = CAST(x'e9' AS TEXT) WHERE key = 'k02';
         UPDATE t SET v = 9e999 WHERE key = 'k03'; UPDATE t SET v = -9e999 WHERE key = 'k04'; UPDATE t SET v = x'ff' WHERE key = 'k05';
         UPDATE t SET v = 2 WHERE key = 'k06'; DELETE FROM t WHERE key = 'k07'",
    );
    let run = once(&server, "lite", &local, query, &[]);
    assert!(run.stdout.contains("4 replaced, 1 deleted"), "{run:?}");
    assert!(run.stderr.contains("k01") && run.stderr.contains("k02"), "{run:?}");
    let now = values("lite");
    let value = |key: &str| now[key]["v"].clone();
    assert_eq!((value("k01"), value("k02"), value("k06")), (json!(1), json!(1), json!(2)));
    assert_eq!(
        (value("k03"), value("k04"), value("k05")),
        (json!("Infinity"), json!("-Infinity"), json!("\\xff"))
    );
    // More than a tenth is a failure of the source, and a key that is not UTF-8 stops deletions.
    sqlite(&eight, "UPDATE t SET v = CAST(x'ff' AS TEXT) WHERE key < 'k04'");
    once(&server, "lite", &local, query, &[]).failed(1);
    sqlite(
        &eight,
        "UPDATE t SET v = 1 WHERE key < 'k04'; UPDATE t SET key = CAST(x'ff' AS TEXT) WHERE key = 'k08'",
    );
    let run = once(&server, "lite", &local, query, &[]);
    assert!(run.stdout.contains("0 deleted") && run.stderr.contains("can't be read"), "{run:?}");

    // A database whose encoding is not checked.
    cluster.sql("CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
    let database = cluster.url_of("bytes");
    let bytes = "SELECT 'k'||g AS key, CASE g WHEN 3 THEN convert_from(decode('636166e9', 'hex'), 'SQL_ASCII') ELSE 'v' END AS v,
                 CASE g WHEN 4 THEN 'NaN' WHEN 5 THEN '-Infinity' ELSE '1' END::float8 AS n,
                 CASE g WHEN 6 THEN 'infinity' WHEN 7 THEN '0044-03-15 BC' ELSE 'now' END::timestamp AS at FROM generate_series(1, 12) AS g";
    let run = once(&server, "bytes", &database, bytes, &[]);
    assert!(run.stdout.contains("12 objects, 11 replaced") && run.stderr.contains("k3"), "{run:?}");
    let now = values("bytes");
    assert_eq!(
        (&now["k4"]["n"], &now["k5"]["n"], &now["k6"]["at"]),
        (&json!("NaN"), &json!("-Infinity"), &json!("infinity"))
    );
}

#[test]
fn a_value_ahead_of_the_clock_hides_no_change() {
    let server = Server::in_memory();
    let cluster = Cluster::start();
    let path = server.folder.path().join("shop.db").display().to_string();
    sqlite(
        &path,
        "CREATE TABLE text (key TEXT, n INTEGER, at TEXT); CREATE TABLE number (key TEXT, n INTEGER, at INTEGER);
         CREATE TABLE nanoseconds (key TEXT, n INTEGER, at INTEGER)",
    );
    for (name, kind) in
        [("zone", "timestamptz"), ("plain", "timestamp"), ("epoch", "bigint"), ("day", "date")]
    {
        cluster.sql(&format!(
            "CREATE TABLE {name} (key text, n int, at {kind}); GRANT SELECT ON {name} TO deltaq"
        ));
    }
    let (database, local) = (cluster.url(), format!("sqlite:{path}"));
    let epoch = |shift: &str| format!("extract(epoch FROM now() + interval '{shift}')::bigint");
    let unix = |shift: &str| format!("unixepoch('now', '{shift}')");
    let nanoseconds = |shift: &str| format!("{} * 1000000000", unix(shift));
    // The past, the present, and a time ahead of both.
    let tables = [
        ("zone", &database, ["now() - interval '1 day'", "now()", "'2199-01-01'"].map(str::to_owned)),
        (
            "plain",
            &database,
            ["now() - interval '1 day'", "now() - interval '1 s'", "'infinity'"].map(str::to_owned),
        ),
        ("epoch", &database, [epoch("-1 day"), epoch("0"), epoch("2 days")]),
        ("day", &database, ["now() - interval '1 day'", "now()", "'2199-01-01'"].map(str::to_owned)),
        (
            "text",
            &local,
            ["datetime('now', '-1 day')", "datetime('now')", "'2199-01-01T00:00:00Z'"].map(str::to_owned),
        ),
        ("number", &local, [unix("-1 day"), unix("0 days"), unix("+2 days")]),
        ("nanoseconds", &local, [nanoseconds("-1 day"), nanoseconds("0 days"), i64::MAX.to_string()]),
    ];
    let run = |database: &str, sql: &str| {
        if database == local { sqlite(&path, sql) } else { drop(cluster.sql(sql)) }
    };
    for (table, database, [past, now, ahead]) in tables {
        run(database, &format!("INSERT INTO {table} VALUES ('a', 1, {past}), ('b', 1, {ahead})"));
        let query = format!("SELECT * FROM {table}");
        let line = [
            table,
            "--source",
            "s",
            "--sql",
            database,
            "--query",
            &query,
            "--since",
            "at",
            "--interval",
            "30ms",
        ];
        let reflecting = Reflecting::start(&server, &line);
        until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
        run(database, &format!("UPDATE {table} SET n = 2, at = {now} WHERE key = 'a'"));
        reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 1.0);
        // The row that is ahead is sent as often as it changes, and not at each look.
        run(database, &format!("UPDATE {table} SET n = 3 WHERE key = 'b'"));
        reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 2.0);
        run(database, &format!("UPDATE {table} SET n = 4 WHERE key = 'b'"));
        reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 3.0);
        let log = reflecting.stop();
        assert!(!log.contains("have missed"), "{table}: {log}");
        assert_eq!(drain(&server, table), counts(&[("Replaced", 2), ("Updated", 3)]), "{table}");
    }
}

#[test]
fn a_list_tells_what_the_looks_have_missed() {
    let server = Server::in_memory();
    let path = server.folder.path().join("shop.db").display().to_string();
    sqlite(
        &path,
        "CREATE TABLE prices (key TEXT, n INTEGER, version INTEGER);
         INSERT INTO prices VALUES ('a', 1, 1), ('b', 1, 2), ('c', 1, 999999), ('d', 1, NULL)",
    );
    let database = format!("sqlite:{path}");
    let line =
        ["q", "--source", "s", "--sql", &database, "--query", "SELECT * FROM prices", "--since", "version"];
    let reflecting =
        Reflecting::start(&server, &[&line[..], &["--interval", "20ms", "--relist", "1s"]].concat());
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    // Rows without a value are for the list.
    sqlite(&path, "UPDATE prices SET n = 2 WHERE key = 'd'");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"replaced\"", 5.0);
    reflecting.until_lists(1);
    assert!(!reflecting.log().contains("have missed"), "{}", reflecting.log());
    sqlite(&path, "UPDATE prices SET n = 2, version = 3 WHERE key = 'a'");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"replaced\"", 6.0);
    until("the list tells it", || reflecting.log().contains("the looks between two lists have missed"));
    let log = reflecting.stop();
    assert!(log.contains("\"rows\":1"), "{log}");
}

#[test]
fn a_list_that_is_read_twice_has_missed_nothing() {
    let server = Server::in_memory();
    let path = server.folder.path().join("shop.db").display().to_string();
    let rows =
        (0..20).map(|at| format!("('k{at}', 1, {at}), ('n{at}', 1, NULL)")).collect::<Vec<_>>().join(", ");
    sqlite(
        &path,
        &format!(
            "CREATE TABLE prices (key TEXT, n INTEGER, version INTEGER); INSERT INTO prices VALUES {rows}"
        ),
    );
    let database = format!("sqlite:{path}");
    let line =
        ["q", "--source", "s", "--sql", &database, "--query", "SELECT * FROM prices", "--since", "version"];
    let reflecting =
        Reflecting::start(&server, &[&line[..], &["--interval", "20ms", "--relist", "1s"]].concat());
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    // Rows without a value are for the list, which is shorter than the one before.
    sqlite(&path, "UPDATE prices SET n = 2 WHERE version IS NULL; DELETE FROM prices WHERE version > 9");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"deleted\"", 10.0);
    reflecting.until_lists(1);
    let log = reflecting.stop();
    assert!(log.contains("it is read once more") && !log.contains("have missed"), "{log}");
}

#[test]
fn a_query_runs_through_pgbouncer_and_over_ipv6() {
    let server = Server::in_memory();
    let cluster = Cluster::start();
    cluster.sql("CREATE TABLE t (key text, v float8); INSERT INTO t VALUES ('a', 0.1), ('b', 1e-7), ('c', 0.1::float8 + 0.2); GRANT SELECT ON t TO deltaq");
    for mode in ["session", "transaction"] {
        let pooler = Pooler::in_mode(&cluster, mode);
        for _ in 0..3 {
            once(&server, mode, &pooler.url(), "SELECT * FROM t", &["--since", "v"]).ok();
        }
        let text = server.run(&["items", mode, "-o", "ndjson"]).ok();
        assert!(text.contains("\"v\":1e-07") && text.contains("\"v\":0.30000000000000004"), "{mode}: {text}");
    }
    let Some(port) = forward(&cluster) else { return };
    let database = format!("postgres://deltaq@[::1]:{port}/deltaq");
    once(&server, "six", &database, "SELECT * FROM t", &[]).ok();
}

/// Passes the connections to a port of the IPv6 loopback on to the server; `None` on a machine without IPv6.
fn forward(cluster: &Cluster) -> Option<u16> {
    let listener = TcpListener::bind("[::1]:0").ok()?;
    let (port, socket) = (listener.local_addr().expect("an address").port(), cluster.socket());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) =
                (client.expect("a connection"), UnixStream::connect(&socket).expect("a server"));
            let (from, to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
            std::thread::spawn(move || copy(from, to));
            std::thread::spawn(move || copy(server, client));
        }
    });
    Some(port)
}

fn copy(mut from: impl Read, mut to: impl Write) {
    let _broken = std::io::copy(&mut from, &mut to);
}
