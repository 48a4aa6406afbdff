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

/// Statements of one session that write for about eight seconds, with a pause in which a transaction is open now and then.
const WRITE: &str = "DO $$ DECLARE k int; BEGIN
    FOR i IN 1..1500 LOOP
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
fn session(cluster: &Cluster, statements: &str) -> Child {
    let arguments: Vec<_> = cluster.psql("deltaq", "").get_args().map(ToOwned::to_owned).collect();
    let mut command = std::process::Command::new(cluster.psql("deltaq", "").get_program());
    command.args(arguments.iter().take(arguments.len() - 2)).stdin(Stdio::piped()).stdout(Stdio::null());
    // Two writers may wait for each other.
    command.args(["-v", "ON_ERROR_STOP=0"]).stderr(Stdio::null());
    let mut child = command.spawn().expect("psql runs");
    writeln!(child.stdin.take().expect("a pipe"), "{statements}").expect("psql reads");
    child
}

fn rows(replica: &Replica) -> BTreeMap<String, Value> {
    let rows = replica.cluster.sql("SELECT id, row_to_json(t) FROM t");
    let row = |line: &str| {
        let (key, row) = line.split_once('|').expect("two columns");
        (key.to_owned(), serde_json::from_str(row).expect("JSON"))
    };
    rows.lines().map(row).collect()
}

#[test]
fn a_copy_and_the_stream_join_without_a_gap_while_others_write() {
    let replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, v text)");
    let mut writers: Vec<Child> = (0..3).map(|_| writer(&replica.cluster)).collect();
    let more = ["--max-delete-percent", "100", "--allow-empty", "--relist", "700ms"];
    while writers.iter_mut().any(|writer| writer.try_wait().expect("a child process").is_none()) {
        let mut reflecting = replica.start(&more);
        reflecting.until_lists(2);
        reflecting.process.kill();
    }
    let reflecting = replica.start(&["--max-delete-percent", "100"]);
    until("the queue has the rows of the table", || rows(&replica) == replica.latest());
    reflecting.stop();
}

#[test]
fn a_queue_that_is_killed_has_everything_in_the_end() {
    let mut replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, v text)");
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
      UPDATE t SET v = md5(random()::text) WHERE id BETWEEN k AND k + 200;
      DELETE FROM t WHERE id BETWEEN k + 300 AND k + 310;
      INSERT INTO t SELECT g, 'new' FROM generate_series(k + 300, k + 305) g ON CONFLICT DO NOTHING;
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
        reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", sent + 2_000.0);
        if round % 2 == 0 {
            replica.cluster.end(Signal::KILL);
            let _broken = writer.wait();
            replica.cluster.restart();
            writer = session(&replica.cluster, CHURN);
            reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 1.0);
            let sent = reflecting.metric("deltaq_reflect_changes_total", "type=\"change\"");
            reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", sent + 2_000.0);
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
    replica.server.kill();
    let before = replica.cluster.sql("SELECT pg_current_wal_lsn()");
    replica.sql("UPDATE t SET v = 3");
    until("the queue is given up", || {
        reflecting.metric("deltaq_reflect_failures_total", "side=\"queue\"") > 0.0
    });
    let behind = format!("SELECT confirmed_flush_lsn <= '{before}' FROM pg_replication_slots");
    assert_eq!(replica.cluster.sql(&behind), "t");
    replica.server.start();
    replica.until_values("v", &[("1", json!(3))]);
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
