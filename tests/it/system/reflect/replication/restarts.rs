//! What follows a restart of the reflector: after a clean stop the stream goes on, after anything else the table is copied.

use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use super::super::{Reflecting, counts, drain};
use super::{LISTED, Replica, times};
use crate::harness::waiting::until;
use crate::system::cli::Server;
use crate::system::postgres::cluster::Cluster;

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 1)";
/// The text of the log if the stream goes on after a restart.
pub(super) const RESUMED: &str = "go on where the last process has stopped";

/// Starts again, and waits until the queue is in step. Returns whether it went on without a list.
#[track_caller]
fn goes_on(replica: &Replica) -> (Reflecting, bool) {
    let reflecting = replica.start(&[]);
    until("it lists or goes on", || times(&reflecting, RESUMED) + times(&reflecting, LISTED) > 0);
    let resumed = times(&reflecting, RESUMED) > 0;
    assert!(!resumed || times(&reflecting, LISTED) == 0, "{}", reflecting.log());
    (reflecting, resumed)
}

#[test]
fn a_clean_restart_goes_on_without_a_list() {
    // A type outside of pg_catalog.
    let mut replica = Replica::new(
        "t",
        &format!("CREATE TYPE e AS ENUM ('a'); {TABLE}; ALTER TABLE t ADD e e DEFAULT 'a'"),
    );
    replica.server = Server::durable();
    let reflecting = replica.start(&[]);
    replica.sql("UPDATE t SET v = 2 WHERE id = 1");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(1))]);
    reflecting.stop();
    assert_eq!(drain(&replica.server, "t"), counts(&[("Replaced", 2), ("Updated", 1)]));
    // A list would repair this; a stream does not look.
    replica.server.run(&["delete", "t", "--key", "2"]).ok();
    assert_eq!(drain(&replica.server, "t"), counts(&[("Deleted", 1)]));

    // What happens in between is neither lost nor sent twice.
    replica.sql("INSERT INTO t VALUES (3, 1); UPDATE t SET v = 3 WHERE id = 1");
    replica.sql("DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (4, 1)");
    let (reflecting, resumed) = goes_on(&replica);
    assert!(resumed, "{}", reflecting.log());
    replica.until_values("v", &[("1", json!(3)), ("4", json!(1))]);
    reflecting.stop();
    // Restarts of the database and of the queue do not matter.
    replica.cluster.end(Signal::INT);
    replica.cluster.restart();
    replica.server.kill();
    replica.server.start();
    let (reflecting, resumed) = goes_on(&replica);
    assert!(resumed, "{}", reflecting.log());
    replica.sql("UPDATE t SET v = 5 WHERE id = 4");
    replica.until_values("v", &[("1", json!(3)), ("4", json!(5))]);
    reflecting.until_metric("deltaq_reflect_up", "", 1.0);
    // A change that was not read before the stop.
    let mut reflecting = reflecting;
    reflecting.process.freeze();
    replica.sql("UPDATE t SET v = 6 WHERE id = 4");
    reflecting.process.signal("TERM");
    reflecting.process.signal("CONT");
    assert!(reflecting.process.ended().success());
    let (reflecting, resumed) = goes_on(&replica);
    assert!(resumed, "{}", reflecting.log());
    replica.until_values("v", &[("1", json!(3)), ("4", json!(6))]);
    reflecting.stop();
    // A list follows when it is due.
    let reflecting = replica.start(&["--relist", "10ms"]);
    assert_eq!(times(&reflecting, RESUMED), 1);
    replica.until_values("v", &[("1", json!(3)), ("2", json!(1)), ("4", json!(6))]);
    reflecting.stop();
}

#[test]
fn a_restart_after_anything_else_begins_with_a_list() {
    let replica = Replica::new("t", TABLE);
    let mut reflecting = replica.start(&[]);
    let slot = replica.slot();
    reflecting.process.kill();
    let lists = |what: &str| {
        let (reflecting, resumed) = goes_on(&replica);
        assert!(!resumed, "{what}: {}", reflecting.log());
        reflecting.stop();
    };
    lists("a kill");
    replica.server.run(&["add", "t", "--source", "s", "--sequence", "1000000", r#"{"id":9,"v":9}"#]).ok();
    lists("another call of the source");
    replica.until_values("v", &[("1", json!(1)), ("2", json!(1))]);
    replica.server.run(&["queue", "delete", "t", "--yes"]).ok();
    lists("another queue");
    replica.sql("UPDATE t SET v = 2");
    replica.cluster.sql(&format!("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())"));
    lists("a moved slot");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(2))]);
    replica.cluster.sql(&format!("SELECT pg_drop_replication_slot('{slot}')"));
    lists("a dropped slot");
    replica.sql("ALTER TABLE t ADD n int DEFAULT 7");
    lists("other columns");
    replica.until_values("n", &[("1", json!(7)), ("2", json!(7))]);
    replica.cluster.sql(&format!("ALTER PUBLICATION {slot} SET (publish = 'insert')"));
    let reflecting = replica.start_unready(&[]);
    until("the publication is refused", || times(&reflecting, "and is not one of exactly the table") > 0);
    assert_eq!(times(&reflecting, RESUMED), 0);
    reflecting.stop();
}

/// Lets a link name another folder.
fn point(link: &Path, to: &Cluster) {
    let _missing = std::fs::remove_file(link);
    symlink(to.folder(), link).expect("a link");
}

#[test]
fn a_promoted_standby_leads_to_a_list_with_deletions() {
    let mut replica = Replica::new("t", TABLE);
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("current");
    point(&link, &replica.cluster);
    let url = format!("postgres://deltaq@localhost/deltaq?host={}", link.display());
    let mut standby = Cluster::logical();
    standby.end(Signal::INT);
    standby.follow(&replica.cluster);
    let reflecting =
        Reflecting::start(&replica.server, &replica.line(&url, &["--max-delete-percent", "100"]));
    replica.until_keys(2);
    standby.lag_behind(&replica.cluster);
    // The standby will not have this.
    replica.sql("INSERT INTO t VALUES (3, 1); DELETE FROM t WHERE id = 1");
    replica.until_values("v", &[("2", json!(1)), ("3", json!(1))]);
    replica.cluster.end(Signal::KILL);
    standby.promote();
    point(&link, &standby);
    replica.cluster = standby;
    replica.until_values("v", &[("1", json!(1)), ("2", json!(1))]);
    until("it is a list", || times(&reflecting, LISTED) == 2);
    assert!(times(&reflecting, "the server has changed from timeline") > 0, "{}", reflecting.log());
    replica.sql("UPDATE t SET v = 7");
    replica.until_values("v", &[("1", json!(7)), ("2", json!(7))]);
    assert_eq!(times(&reflecting, LISTED), 2);
    reflecting.stop();
}
