//! Where the stream continues, and when it can't.

use rustix::process::Signal;
use serde_json::json;

use super::{LISTED, Replica, times};
use crate::harness::waiting::until;

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
fn a_commit_that_others_do_not_see_yet_is_in_no_gap() {
    let replica = Replica::new("t", TABLE);
    let mut reflecting = replica.start(&[]);
    let synchronous = |setting: &str| {
        replica.cluster.sql(&format!("ALTER SYSTEM {setting}"));
        replica.cluster.sql("SELECT pg_reload_conf()");
    };
    let confirmed = || replica.cluster.sql("SELECT confirmed_flush_lsn FROM pg_replication_slots");
    synchronous("SET synchronous_standby_names = 'nobody'");
    // It is in the log, and waits for a standby: the stream has it, and a copy does not.
    let mut waiting =
        replica.cluster.psql("deltaq", "UPDATE t SET v = 2 WHERE id = 1").spawn().expect("psql runs");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(1))]);
    assert_eq!(replica.cluster.sql("SELECT v FROM t WHERE id = 1"), "1");
    let before = confirmed();
    reflecting.until_metric("deltaq_reflect_last_success_timestamp_seconds", "", {
        reflecting.metric("deltaq_reflect_last_success_timestamp_seconds", "") + 2.0
    });
    assert_eq!(confirmed(), before);
    reflecting.process.kill();
    let reflecting = replica.start(&[]);
    replica.until_values("v", &[("1", json!(2)), ("2", json!(1))]);
    synchronous("RESET synchronous_standby_names");
    assert!(waiting.wait().expect("psql ends").success());
    replica.sql("UPDATE t SET v = 9 WHERE id = 2");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(9))]);
    reflecting.stop();
}
