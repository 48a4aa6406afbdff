//! Where the stream continues, and when it can't.

use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use super::{LISTED, Replica, times};
use crate::harness::waiting::until;
use crate::system::postgres::cluster::run;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 1)";

#[test]
fn a_slot_that_was_dropped_or_moved_leads_to_a_list_with_deletions() {
    let replica = Replica::new("t", TABLE);
    let reflecting = replica.start(&[]);
    let slot = replica.slot();
    let during = |statement: &str| {
        // A look of the reflector holds the slot for a moment.
        until("the slot is free", || {
            replica.cluster.psql("deltaq", statement).output().expect("psql runs").status.success()
        });
    };
    reflecting.process.freeze();
    replica.sql("DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (3, 1)");
    during(&format!("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())"));
    reflecting.process.signal("CONT");
    until("it says why", || times(&reflecting, "by another process") > 0);
    replica.until_values("v", &[("2", json!(1)), ("3", json!(1))]);
    until("it is a list", || times(&reflecting, LISTED) == 2);

    reflecting.process.freeze();
    replica.sql("DELETE FROM t WHERE id = 2");
    during(&format!("SELECT pg_drop_replication_slot('{slot}')"));
    reflecting.process.signal("CONT");
    until("it says why", || times(&reflecting, "the slot is gone") > 0);
    replica.until_values("v", &[("3", json!(1))]);
    until("it is a list", || times(&reflecting, LISTED) == 3);
    assert_eq!(replica.made(), "1|1");
    replica.sql("UPDATE t SET v = 7");
    replica.until_values("v", &[("3", json!(7))]);
    assert_eq!(times(&reflecting, LISTED), 3);
    reflecting.stop();
}

#[test]
fn a_restart_of_the_database_needs_no_list() {
    let mut replica = Replica::new("t", TABLE);
    let reflecting = replica.start(&[]);
    replica.cluster.end(Signal::KILL);
    reflecting.until_metric("deltaq_reflect_failures_total", "side=\"source\"", 1.0);
    assert_eq!(reflecting.get("/readyz").0, 503);
    replica.cluster.restart();
    replica.sql("UPDATE t SET v = 2 WHERE id = 1");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(1))]);
    until("it is in step", || reflecting.get("/readyz").0 == 200);
    assert_eq!(times(&reflecting, LISTED), 1);
    reflecting.stop();
}

#[test]
fn what_a_copy_has_seen_survives_a_crash_of_the_database() {
    let mut replica = Replica::new("t", TABLE);
    replica.cluster.sql("ALTER SYSTEM SET wal_writer_delay = '10s'");
    replica.cluster.sql("SELECT pg_reload_conf()");
    let mut reflecting = replica.start(&[]);
    reflecting.process.kill();
    // A copy sees it before it is on the disk. A crash would take it back, and give its number to the next transaction.
    replica.sql("SET synchronous_commit = off; UPDATE t SET v = 2 WHERE id = 1");
    let reflecting = replica.start(&[]);
    replica.until_values("v", &[("1", json!(2)), ("2", json!(1))]);
    replica.cluster.end(Signal::KILL);
    replica.cluster.restart();
    replica.sql("UPDATE t SET v = 3 WHERE id = 2");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(3))]);
    assert_eq!(replica.cluster.sql("SELECT v FROM t ORDER BY id"), "2\n3");
    assert_eq!(times(&reflecting, LISTED), 1);
    reflecting.stop();
}

#[test]
fn an_older_state_of_the_database_leads_to_a_list() {
    let mut replica = Replica::new("t", &format!("CREATE TABLE noise (t text); {TABLE}"));
    let reflecting = replica.start(&["--max-delete-percent", "100"]);
    let data = replica.cluster.folder().join("data");
    let copy = data.with_extension("copy");
    replica.cluster.end(Signal::INT);
    run(Command::new("cp").arg("-a").arg(&data).arg(&copy));
    replica.cluster.restart();
    replica.sql("UPDATE t SET v = 2 WHERE id = 1; INSERT INTO t VALUES (3, 1)");
    replica.sql("INSERT INTO noise SELECT md5(g::text) FROM generate_series(1, 5000) g");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(1)), ("3", json!(1))]);
    until("the queue has everything", || reflecting.metric("deltaq_reflect_lag_bytes", "") < 1.0);
    replica.cluster.end(Signal::KILL);
    std::fs::remove_dir_all(&data).expect("a folder");
    std::fs::rename(&copy, &data).expect("a folder");
    replica.cluster.restart();
    // The log has had another transaction at this place.
    replica.sql("UPDATE t SET v = 3 WHERE id = 2");
    replica.until_values("v", &[("1", json!(1)), ("2", json!(3))]);
    assert!(times(&reflecting, "an older state of the server was restored") > 0, "{}", reflecting.log());
    reflecting.stop();
}

#[test]
fn a_commit_that_others_do_not_see_yet_is_in_no_gap() {
    let replica = Replica::new("t", TABLE);
    let mut reflecting = replica.start(&[]);
    let synchronous = |setting: &str| {
        replica.cluster.sql(&format!("ALTER SYSTEM {setting}"));
        replica.cluster.sql("SELECT pg_reload_conf()");
    };
    synchronous("SET synchronous_standby_names = 'nobody'");
    let before = replica.cluster.sql("SELECT pg_current_wal_lsn()");
    // It is in the log, and waits for a standby: the stream has it, and a copy does not.
    let mut waiting =
        replica.cluster.psql("deltaq", "UPDATE t SET v = 2 WHERE id = 1").spawn().expect("psql runs");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(1))]);
    assert_eq!(replica.cluster.sql("SELECT v FROM t WHERE id = 1"), "1");
    reflecting.until_metric("deltaq_reflect_last_success_timestamp_seconds", "", {
        reflecting.metric("deltaq_reflect_last_success_timestamp_seconds", "") + 2.0
    });
    let is_behind = format!("SELECT confirmed_flush_lsn <= '{before}' FROM pg_replication_slots");
    assert_eq!(replica.cluster.sql(&is_behind), "t");
    reflecting.process.kill();
    let reflecting = replica.start(&[]);
    replica.until_values("v", &[("1", json!(2)), ("2", json!(1))]);
    synchronous("RESET synchronous_standby_names");
    assert!(waiting.wait().expect("psql ends").success());
    replica.sql("UPDATE t SET v = 9 WHERE id = 2");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(9))]);
    reflecting.stop();
}
