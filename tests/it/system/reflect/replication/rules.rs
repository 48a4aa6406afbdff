//! What the set-up must not do to the database, and what the slot must not keep.

use std::io::Write as _;
use std::process::{Child, Stdio};

use serde_json::json;

use super::super::Reflecting;
use super::{LISTED, Replica, times};
use crate::harness::waiting::until;

/// A session that is in a transaction.
struct Writer(Child);

impl Writer {
    fn begin(replica: &Replica, statement: &str) -> Self {
        let mut command = replica.cluster.psql("deltaq", "");
        // The last argument is a statement; without it, statements are read from stdin.
        let mut plain = std::process::Command::new(command.get_program());
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        plain.args(arguments.iter().take(arguments.len() - 2));
        command = plain;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql runs");
        let input = child.stdin.as_mut().expect("a pipe");
        writeln!(input, "BEGIN; {statement};").expect("psql reads");
        until("the transaction writes", || {
            replica.cluster.sql("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'")
                == "1"
        });
        Self(child)
    }

    fn commit(mut self) {
        writeln!(self.0.stdin.take().expect("a pipe"), "COMMIT;").expect("psql reads");
        assert!(self.0.wait().expect("psql ends").success());
    }
}

#[test]
fn a_publication_breaks_no_writer() {
    let replica = Replica::new("t", "CREATE TABLE t (id int, v int); INSERT INTO t VALUES (1, 1), (2, 1)");
    let reflecting = replica.start_unready(&["--create", "key=/id"]);
    until("the table is refused", || times(&reflecting, "has no replica identity") > 0);
    assert_eq!(replica.made(), "0|0");
    // A key whose check can be deferred identifies no row.
    replica.sql("ALTER TABLE t ADD PRIMARY KEY (id) DEFERRABLE");
    let refused = times(&reflecting, "has no replica identity");
    until("the key is refused", || times(&reflecting, "has no replica identity") > refused + 1);
    assert_eq!(replica.made(), "0|0");
    replica.sql("UPDATE t SET v = 2; ALTER TABLE t DROP CONSTRAINT t_pkey");
    replica.sql("ALTER TABLE t ALTER id SET NOT NULL; CREATE UNIQUE INDEX i ON t (id); ALTER TABLE t REPLICA IDENTITY USING INDEX i");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(2))]);
    assert_eq!(replica.cluster.sql("SELECT puballtables FROM pg_publication"), "f");
    replica.sql("DELETE FROM t WHERE id = 1");
    replica.until_keys(1);
    // The identity goes while the table is published.
    replica.sql("ALTER TABLE t REPLICA IDENTITY DEFAULT");
    until("the publication is dropped", || replica.made() == "0|0");
    until("it is not in step", || reflecting.metric("deltaq_reflect_up", "") < 1.0);
    replica.sql("UPDATE t SET v = 3");
    replica.sql("ALTER TABLE t REPLICA IDENTITY FULL");
    replica.until_values("v", &[("2", json!(3))]);
    reflecting.stop();
}

#[test]
fn a_set_up_that_fails_leaves_nothing() {
    let replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY)");
    let writer = Writer::begin(&replica, "INSERT INTO t VALUES (1)");
    let reflecting = replica.start_unready(&["--timeout", "1s"]);
    until("the slot can't be made", || times(&reflecting, "can't make the slot") > 0);
    until("the publication is dropped", || replica.made() == "0|0");
    writer.commit();
    replica.until_keys(1);
    assert_eq!(replica.made(), "1|1");
    reflecting.stop();

    // What somebody else has made is not touched.
    replica.cluster.sql("SELECT pg_create_logical_replication_slot('mine', 'pgoutput')");
    let slot = || {
        replica
            .cluster
            .sql("SELECT confirmed_flush_lsn, xmin FROM pg_replication_slots WHERE slot_name = 'mine'")
    };
    let before = slot();
    replica.sql("INSERT INTO t VALUES (2)");
    let reflecting = replica.start_unready(&["--slot", "mine"]);
    until("it is refused", || times(&reflecting, "may be that of another program") > 0);
    assert_eq!((slot(), replica.made().as_str()), (before, "2|1"));
    reflecting.stop();
    replica.cluster.sql("SELECT pg_drop_replication_slot('mine')");
    replica.cluster.sql("CREATE PUBLICATION mine FOR ALL TABLES");
    let reflecting = replica.start_unready(&["--slot", "mine"]);
    until("it is refused", || times(&reflecting, "the publication mine exists") > 0);
    assert_eq!(replica.made(), "1|2");
    reflecting.stop();
}

#[test]
fn partitions_have_rows_identities_and_a_log() {
    let replica = Replica::new(
        "t",
        "CREATE TABLE t (id int, v int) PARTITION BY RANGE (id); CREATE TABLE t1 (id int PRIMARY KEY, v int);
         ALTER TABLE t ATTACH PARTITION t1 FOR VALUES FROM (0) TO (10); INSERT INTO t VALUES (1, 1)",
    );
    let reflecting = replica.start(&[]);
    replica.sql("ALTER TABLE t1 DROP CONSTRAINT t1_pkey");
    until("the publication is dropped", || replica.made() == "0|0");
    replica.sql("UPDATE t SET v = 2; ALTER TABLE t1 ADD PRIMARY KEY (id)");
    replica.until_values("v", &[("1", json!(2))]);
    replica.sql("CREATE UNLOGGED TABLE t2 (id int PRIMARY KEY, v int); ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20)");
    until("the partition is refused", || times(&reflecting, "t2 is an unlogged") > 0);
    reflecting.stop();
}

#[test]
fn a_publication_that_somebody_changes_is_noticed() {
    let replica = Replica::new(
        "t",
        "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE other (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)",
    );
    let reflecting = replica.start(&[]);
    let publication = replica.slot();
    let alter = |how: &str| replica.sql(&format!("ALTER PUBLICATION {publication} {how}"));
    for (value, (change, repair)) in (1..).zip([
        ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete, truncate')"),
        ("SET TABLE ONLY t WHERE (id > 5)", "SET TABLE ONLY t"),
        ("ADD TABLE other", "DROP TABLE other"),
    ]) {
        let refused = times(&reflecting, "is not one of exactly the table");
        alter(change);
        replica.sql(&format!("INSERT INTO other VALUES ({value}); UPDATE t SET v = {value}"));
        until("it is refused", || times(&reflecting, "is not one of exactly the table") > refused);
        until("it is not in step", || reflecting.metric("deltaq_reflect_up", "") < 1.0);
        alter(repair);
        replica.until_values("v", &[("1", json!(value))]);
    }
    reflecting.stop();
}

#[test]
fn a_role_that_owns_nothing_reads_a_publication_of_the_owner() {
    let replica = Replica::new(
        "t",
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1); GRANT SELECT ON t TO public",
    );
    replica.cluster.sql("CREATE ROLE reader LOGIN REPLICATION");
    let database = replica.cluster.url().replace("deltaq@", "reader@");
    let mut reflecting = Reflecting::start(&replica.server, &replica.line(&database, &["--slot", "shop"]));
    until("it is refused", || times(&reflecting, "can't make the publication shop") > 0);
    replica.sql("CREATE PUBLICATION shop FOR TABLE t");
    until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
    // The slot has a change from the time between two publications, which can't be read.
    reflecting.process.freeze();
    replica.sql("DROP PUBLICATION shop; UPDATE t SET v = 2");
    replica.sql("CREATE PUBLICATION shop FOR TABLE t; UPDATE t SET v = 3");
    reflecting.process.signal("CONT");
    until("a new slot is made", || times(&reflecting, "so a new one is made") > 0);
    // The first, one for the other publication, one after a failure, and one with the new slot.
    until("the stream goes on", || times(&reflecting, LISTED) == 4);
    replica.sql("UPDATE t SET v = 4");
    replica.until_values("v", &[("1", json!(4))]);
    assert_eq!(times(&reflecting, LISTED), 4);
    reflecting.process.kill();
}

#[test]
fn a_key_that_deletions_lack_is_refused() {
    let replica =
        Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, sku text); INSERT INTO t VALUES (1, 'a')");
    let reflecting = replica.start_unready(&["--create", "key=/sku"]);
    until("the key is refused", || times(&reflecting, "the key /sku of the queue is not part of") > 0);
    assert_eq!(replica.made(), "0|0");
    replica.sql("ALTER TABLE t REPLICA IDENTITY FULL");
    replica.until_keys(1);
    replica.sql("UPDATE t SET sku = 'b'");
    until("the key changes", || replica.latest().contains_key("b") && !replica.latest().contains_key("a"));
    replica.sql("DELETE FROM t");
    replica.until_keys(0);
    reflecting.stop();
}

#[test]
fn an_idle_table_does_not_fill_the_disk() {
    let replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE noise (t text)");
    let reflecting = replica.start(&[]);
    let confirmed = || replica.cluster.sql("SELECT confirmed_flush_lsn FROM pg_replication_slots");
    let before = confirmed();
    replica.sql("INSERT INTO noise SELECT md5(g::text) FROM generate_series(1, 50000) g");
    let written = replica.cluster.sql("SELECT pg_current_wal_lsn()");
    until("the slot moves", || {
        replica.cluster.sql(&format!("SELECT '{}'::pg_lsn >= '{written}'", confirmed())) == "t"
    });
    assert_ne!(before, confirmed());
    assert_eq!(times(&reflecting, LISTED), 1);
    reflecting.stop();
}

#[test]
fn a_slot_is_watched_while_the_queue_takes_nothing() {
    let mut replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE noise (t text)");
    let reflecting = replica.start(&[]);
    replica.server.kill();
    replica.sql("INSERT INTO t VALUES (1)");
    until("it is not in step", || reflecting.metric("deltaq_reflect_up", "") < 1.0);
    replica.sql("INSERT INTO noise SELECT md5(g::text) FROM generate_series(1, 50000) g");
    reflecting.until_metric("deltaq_reflect_slot_bytes", "", f64::from(2 << 20));
    reflecting.until_metric("deltaq_reflect_lag_bytes", "", f64::from(2 << 20));
    assert!(reflecting.metric("deltaq_reflect_slot_limit_bytes", "") > 1e10);
    replica.server.start();
    until("it is in step", || reflecting.get("/readyz").0 == 200);
    reflecting.stop();
}

#[test]
fn a_slot_that_keeps_back_too_much_is_reported_and_a_lost_one_leads_to_a_list() {
    let replica = Replica::new(
        "t",
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE noise (t text); INSERT INTO t VALUES (1)",
    );
    replica.cluster.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '4MB'");
    replica.cluster.sql("SELECT pg_reload_conf()");
    let reflecting = replica.start(&[]);
    let noise = || replica.sql("INSERT INTO noise SELECT md5(g::text) FROM generate_series(1, 30000) g");
    // The slot can't forget a transaction that has not ended.
    let writer = Writer::begin(&replica, "INSERT INTO t VALUES (2)");
    noise();
    noise();
    until("it is reported", || times(&reflecting, "half of what it may") > 0);
    until("the queue shows it", || {
        let sources = replica.server.json(&["sources", "t"]).to_string();
        sources.contains("keeps back") && sources.contains("deltaq reflect t --source s --replicate")
    });
    assert!(reflecting.metric("deltaq_reflect_slot_bytes", "") > f64::from(2 << 20));
    writer.commit();
    replica.until_keys(2);

    reflecting.process.freeze();
    for _ in 0..6 {
        noise();
        replica.cluster.sql("CHECKPOINT");
    }
    assert_eq!(replica.cluster.sql("SELECT wal_status FROM pg_replication_slots"), "lost");
    replica.sql("DELETE FROM t WHERE id = 1");
    reflecting.process.signal("CONT");
    until("it says why", || times(&reflecting, "max_slot_wal_keep_size") > 0);
    replica.until_keys(1);
    until("it is a list", || times(&reflecting, LISTED) == 2);
    // With a new slot, the stream goes on.
    replica.sql("INSERT INTO t VALUES (3)");
    replica.until_keys(2);
    assert_eq!(times(&reflecting, LISTED), 2);
    assert_ne!(replica.cluster.sql("SELECT wal_status FROM pg_replication_slots"), "lost");
    reflecting.stop();
}
