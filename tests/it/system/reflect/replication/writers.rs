//! Copies while others write, and processes that are killed: nothing is lost, and the end is the same.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::super::{counts, drain};
use super::{LISTED, Replica, times};
use crate::harness::waiting::until;
use crate::system::cli::Server;
use crate::system::postgres::cluster::Cluster;

/// Statements of one session that write for about eight seconds, or until the table `stop` has a row, with a pause in which a transaction is open
/// now and then.
const WRITE: &str = "DO $$ DECLARE k int; BEGIN
    FOR i IN 1..1500 LOOP
      EXIT WHEN EXISTS (SELECT FROM stop);
      k := (random() * 150)::int;
      INSERT INTO t VALUES (k, random()::text) ON CONFLICT (id) DO UPDATE SET v = excluded.v;
      DELETE FROM t WHERE id = (random() * 150)::int;
      IF i % 50 = 0 THEN PERFORM pg_sleep(0.05); END IF;
      IF i % 97 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
      PERFORM pg_sleep(0.003);
    END LOOP; END $$;";

/// A session that writes.
fn writer(cluster: &Cluster) -> Child {
    session(cluster, WRITE)
}

/// A session that runs these statements.
pub(super) fn session(cluster: &Cluster, statements: &str) -> Child {
    let arguments: Vec<_> = cluster.psql("deltaq", "").get_args().map(ToOwned::to_owned).collect();
    let mut command = std::process::Command::new(cluster.psql("deltaq", "").get_program());
    command.args(arguments.iter().take(arguments.len() - 2)).stdin(Stdio::piped()).stdout(Stdio::null());
    // Two writers may wait for each other.
    command.args(["-v", "ON_ERROR_STOP=0"]).stderr(Stdio::null());
    let mut child = command.spawn().expect("psql runs");
    writeln!(child.stdin.take().expect("a pipe"), "{statements}").expect("psql reads");
    child
}

pub(super) fn rows(replica: &Replica) -> BTreeMap<String, Value> {
    let rows = replica.cluster.sql("SELECT id, row_to_json(t) FROM t");
    let row = |line: &str| {
        let (key, row) = line.split_once('|').expect("two columns");
        (key.to_owned(), serde_json::from_str(row).expect("JSON"))
    };
    rows.lines().map(row).collect()
}

#[test]
fn a_copy_and_the_stream_join_without_a_gap_while_others_write() {
    let replica =
        Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE stop (is_set bool)");
    let endless = WRITE.replace("1..1500", "1..100000000");
    for _ in 0..4 {
        let mut writers: Vec<Child> = (0..3).map(|_| session(&replica.cluster, &endless)).collect();
        until("rows are written", || replica.cluster.sql("SELECT count(*) > 20 FROM t") == "t");
        let mut reflecting = replica.start(&["--max-delete-percent", "100"]);
        reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 50.0);
        replica.sql("INSERT INTO stop VALUES (true)");
        for writer in &mut writers {
            writer.wait().expect("psql ends");
        }
        // Nothing but the copy and the stream has brought this about.
        until("the queue has the rows of the table", || rows(&replica) == replica.latest());
        assert_eq!(times(&reflecting, LISTED), 1);
        reflecting.process.kill();
        replica.sql("TRUNCATE stop; DELETE FROM t WHERE id % 3 = 0");
    }
}

#[test]
fn a_queue_that_is_killed_has_everything_in_the_end() {
    let table = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE stop (is_set bool)";
    let mut replica = Replica::new("t", table);
    replica.server = Server::durable();
    let reflecting = replica.start(&["--max-delete-percent", "100", "--allow-empty"]);
    let mut writers: Vec<Child> = (0..2).map(|_| writer(&replica.cluster)).collect();
    while writers.iter_mut().any(|writer| writer.try_wait().expect("a child process").is_none()) {
        let changes = reflecting.metric("deltaq_reflect_changes_total", "");
        until("changes arrive", || {
            reflecting.metric("deltaq_reflect_changes_total", "") > changes
                || writers.iter_mut().all(|writer| writer.try_wait().expect("a child process").is_some())
        });
        replica.server.kill();
        replica.server.start();
    }
    until("the queue has the rows of the table", || rows(&replica) == replica.latest());
    reflecting.stop();
}

/// A session that changes rows of a large table until the database ends: large transactions, other keys and deletions.
const CHURN: &str = "DO $$ DECLARE k int; BEGIN
    FOR i IN 1..100000 LOOP
      k := (random() * 99000)::int;
      UPDATE t SET v = md5(random()::text) WHERE id BETWEEN k AND k + 20;
      DELETE FROM t WHERE id BETWEEN k + 300 AND k + 303;
      INSERT INTO t SELECT g, 'new' FROM generate_series(k + 300, k + 302) g ON CONFLICT DO NOTHING;
      UPDATE t SET id = id + 200000 WHERE id = k + 400 AND NOT EXISTS (SELECT FROM t WHERE id = k + 200400);
      COMMIT;
      PERFORM pg_sleep(0.01);
    END LOOP; END $$;";

#[test]
fn a_large_table_is_complete_after_kills_of_the_reflector_and_the_database() {
    let mut replica = Replica::new(
        "t",
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'old' FROM generate_series(1, 100000) g",
    );
    let mut reflecting = replica.start_unready(&[]);
    let mut writer = session(&replica.cluster, CHURN);
    // In the middle of the copy.
    until("rows are sent", || !replica.server.run(&["sources", "t"]).stdout.is_empty());
    reflecting.process.kill();
    for round in 0..4 {
        reflecting = replica.start(&[]);
        let sent = reflecting.metric("deltaq_reflect_changes_total", "type=\"change\"");
        reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", sent + 300.0);
        if round % 2 == 0 {
            replica.cluster.end(Signal::KILL);
            let _broken = writer.wait();
            replica.cluster.restart();
            writer = session(&replica.cluster, CHURN);
            reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 1.0);
            let sent = reflecting.metric("deltaq_reflect_changes_total", "type=\"change\"");
            reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", sent + 300.0);
            assert_eq!(times(&reflecting, LISTED), 1, "a restart of the database needs no list");
        }
        reflecting.process.kill();
    }
    let reflecting = replica.start(&[]);
    replica.cluster.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO %' AND pid <> pg_backend_pid()",
    );
    let _ended = writer.wait();
    until("the queue has the rows of the table", || rows(&replica) == replica.latest());
    reflecting.stop();
}

#[test]
fn the_slot_stays_behind_what_the_queue_has_not_stored() {
    let mut replica =
        Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    replica.server = Server::durable();
    let reflecting = replica.start(&[]);
    replica.sql("UPDATE t SET v = 2");
    replica.until_values("v", &[("1", json!(2))]);
    // An addition is sent at once. An update first asks the queue for the object.
    for (change, values) in [
        ("INSERT INTO t VALUES (2, 1)", [("1", json!(2)), ("2", json!(1))]),
        ("UPDATE t SET v = 3", [("1", json!(3)), ("2", json!(3))]),
    ] {
        replica.server.kill();
        let before = replica.cluster.sql("SELECT pg_current_wal_lsn()");
        let failures = reflecting.metric("deltaq_reflect_failures_total", "");
        replica.sql(change);
        reflecting.until_metric("deltaq_reflect_failures_total", "", failures + 1.0);
        let behind = format!("SELECT confirmed_flush_lsn <= '{before}' FROM pg_replication_slots");
        assert_eq!(replica.cluster.sql(&behind), "t");
        replica.server.start();
        replica.until_values("v", &values);
    }
    reflecting.stop();
}

#[test]
fn a_transaction_of_many_rows_is_sent_in_parts() {
    let replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, v text)");
    let reflecting = replica.start(&[]);
    replica.sql(
        "INSERT INTO t SELECT g, 'a' FROM generate_series(1, 3000) g; UPDATE t SET v = 'b' WHERE id > 100",
    );
    until("the last row has its last value", || {
        replica.latest().get("3000").is_some_and(|row| row["v"] == "b")
    });
    assert_eq!(times(&reflecting, LISTED), 1);
    let latest = replica.latest();
    assert_eq!((latest["100"]["v"].as_str(), latest["3000"]["v"].as_str()), (Some("a"), Some("b")));
    reflecting.stop();
}

#[test]
fn what_a_copy_has_seen_is_not_repeated() {
    let replica =
        Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    let mut reflecting = replica.start(&[]);
    reflecting.process.freeze();
    for value in 2..6 {
        replica.sql(&format!("UPDATE t SET v = {value}"));
    }
    reflecting.process.kill();
    assert_eq!(drain(&replica.server, "t"), counts(&[("Replaced", 1)]));
    let reflecting = replica.start(&[]);
    replica.sql("INSERT INTO t VALUES (2, 0)");
    replica.until_values("v", &[("1", json!(5)), ("2", json!(0))]);
    assert_eq!(drain(&replica.server, "t"), counts(&[("Replaced", 1), ("Updated", 1)]));
    reflecting.stop();
}
