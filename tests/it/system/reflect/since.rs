//! Columns for `--since` whose order is not that of time.

use serde_json::{Value, json};

use super::sql::sqlite;
use super::{Reflecting, counts, drain};
use crate::harness::waiting::until;
use crate::system::cli::Server;
use crate::system::postgres::cluster::Cluster;

/// The value `n` of a key in a queue.
fn n(server: &Server, queue: &str, key: &str) -> Value {
    let lines = server.run(&["latest", queue, "-o", "ndjson"]).ok();
    let mut rows = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    rows.find(|row| row["key"] == key).map_or(Value::Null, |row| row["object"]["n"].clone())
}

#[test]
fn times_in_several_forms_hide_no_change() {
    let server = Server::in_memory();
    let cluster = Cluster::start();
    let path = server.folder.path().join("shop.db").display().to_string();
    let (local, database) = (format!("sqlite:{path}"), cluster.url());
    let run =
        |place: &str, sql: &str| if place == local { sqlite(&path, sql) } else { drop(cluster.sql(sql)) };
    // What the rows have at first, one form, and another form that is smaller although it is later.
    let tables = [
        ("spaces", &local, "2024-02-03 08:00:00", "2024-02-03T08:00:01Z", "2024-02-03 09:00:00"),
        (
            "offsets",
            &local,
            "2024-02-03T08:00:00+00:00",
            "2024-02-03T13:30:01+05:30",
            "2024-02-03T09:00:00+00:00",
        ),
        ("fractions", &local, "2024-02-03T08:00:00Z", "2024-02-03T08:00:01Z", "2024-02-03T08:00:01.5Z"),
        ("none", &local, "2024-02-03 08:00:00", "unknown", "2024-02-03 09:00:00"),
        ("text", &database, "2024-02-03 08:00:00", "2024-02-03T08:00:01Z", "2024-02-03 09:00:00"),
        ("digits", &database, "8", "9", "10"),
    ];
    for (table, place, first, one, other) in tables {
        let kind = if *place == local { "TEXT" } else { "text COLLATE \"C\"" };
        run(place, &format!("CREATE TABLE {table} (key text, n int, at {kind})"));
        if *place == database {
            run(place, &format!("GRANT SELECT ON {table} TO deltaq"));
        }
        run(
            place,
            &format!(
                "INSERT INTO {table} VALUES ('a', 1, '{first}'), ('b', 1, '{first}'), ('c', 1, '{first}')"
            ),
        );
        let query = format!("SELECT * FROM {table}");
        let line = [
            table,
            "--source",
            "s",
            "--sql",
            place,
            "--query",
            &query,
            "--since",
            "at",
            "--interval",
            "30ms",
        ];
        let reflecting = Reflecting::start(&server, &[&line[..], &["--relist", "2s"]].concat());
        until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
        run(place, &format!("UPDATE {table} SET n = 2, at = '{one}' WHERE key = 'a'"));
        until("the change arrives", || n(&server, table, "a") == json!(2));
        run(place, &format!("UPDATE {table} SET n = 2, at = '{other}' WHERE key = 'b'"));
        until("the smaller value arrives", || n(&server, table, "b") == json!(2));
        until("the warning is logged", || {
            let log = reflecting.log();
            log.contains("whose order is not that of time") || log.contains("have missed")
        });
        // After the warning, every look reads all rows.
        until("all rows are read", || reflecting.log().contains("whose order is not that of time"));
        let lists = reflecting.metric("deltaq_reflect_lists_total", "");
        run(place, &format!("UPDATE {table} SET n = 3, at = '{first}' WHERE key = 'c'"));
        reflecting.until_metric("deltaq_reflect_lists_total", "", lists + 1.0);
        reflecting.stop();
        assert_eq!(n(&server, table, "c"), json!(3), "{table}");
        let deltas = drain(&server, table);
        assert_eq!(deltas.values().sum::<usize>(), 6, "{table}: no row is sent twice: {deltas:?}");
    }
}

#[test]
fn numbers_beside_texts_hide_no_change() {
    let server = Server::in_memory();
    let path = server.folder.path().join("shop.db").display().to_string();
    sqlite(
        &path,
        "CREATE TABLE t (key, n, at); INSERT INTO t VALUES ('a', 1, 1706947200), ('b', 1, 1706947200), ('c', 1, 1706947200)",
    );
    let database = format!("sqlite:{path}");
    let line = ["q", "--source", "s", "--sql", &database, "--query", "SELECT * FROM t", "--since", "at"];
    let reflecting =
        Reflecting::start(&server, &[&line[..], &["--interval", "30ms", "--relist", "1h"]].concat());
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    // The text is behind all numbers.
    sqlite(&path, "UPDATE t SET n = 2, at = '' WHERE key = 'a'");
    until("the change arrives", || n(&server, "q", "a") == json!(2));
    until("all rows are read", || reflecting.log().contains("whose order is not that of time"));
    for round in 3..6 {
        sqlite(&path, &format!("UPDATE t SET n = {round}, at = at + 1 WHERE key = 'b'"));
        until("the change arrives", || n(&server, "q", "b") == json!(round));
    }
    let log = reflecting.stop();
    assert!(!log.contains("have missed"), "{log}");
    assert_eq!(drain(&server, "q"), counts(&[("Replaced", 3), ("Updated", 4)]));
}
