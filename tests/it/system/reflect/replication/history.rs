//! What the queue has had of each key: every change once and in order, whatever is cut off or killed, and however large it is.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::super::Reflecting;
use super::restarts::RESUMED;
use super::writers::{rows, session};
use super::{LISTED, Replica, times};
use crate::harness::waiting::until;
use crate::system::cli::Server;

/// Checks that the stream has sent each number of a row once and in order, beginning with 0. A list may leave out numbers, and goes only forward.
/// Returns how many changes the stream has sent.
#[track_caller]
fn history(replica: &Replica) -> usize {
    let items = replica.server.run(&["items", replica.table, "-o", "ndjson"]).ok();
    let mut changes = 0;
    for item in items.lines().map(|item| serde_json::from_str::<Value>(item).expect("JSON")) {
        let mut last = -1;
        for delta in item["deltas"].as_array().expect("deltas") {
            let number = delta["object"]["v"].as_i64().expect("a number");
            if delta["type"] == "Replaced" {
                assert!(number > last, "a list goes back: {item}");
            } else {
                changes += 1;
                assert_eq!(number, last + 1, "a change was lost or repeated: {item}");
            }
            last = number;
        }
    }
    changes
}

fn changes(reflecting: &Reflecting) -> f64 {
    reflecting.metric("deltaq_reflect_changes_total", "type=\"change\"")
}

/// Waits for this many more changes, as long as some arrive.
#[track_caller]
fn until_changes(reflecting: &Reflecting, more: u32) {
    let mut last = changes(reflecting);
    let target = last + f64::from(more);
    while last < target {
        until("changes arrive", || changes(reflecting) > last);
        last = changes(reflecting);
    }
}

/// The sessions that look into the log now.
const LOOKS: &str =
    "FROM pg_stat_activity WHERE query LIKE 'SELECT data FROM pg_logical_slot_peek%' AND state <> 'idle'";

#[test]
fn a_look_that_is_cut_off_repeats_nothing() {
    let replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, v int, pad text)");
    let mut reflecting = replica.start(&[]);
    // One transaction, which is more than the connection holds while nobody reads it. The queue stops in the middle of it.
    let begin = |reflecting: &Reflecting, from: u32| {
        let (first, last, end) = (format!("id BETWEEN {from} AND {from} + 99"), from + 100, from + 1_599);
        let before = changes(reflecting);
        reflecting.process.freeze();
        replica.sql(&format!(
            "BEGIN; INSERT INTO t SELECT g, 0 FROM generate_series({from}, {from} + 99) g; UPDATE t SET v = 1 WHERE {first}; UPDATE t SET v = 2 WHERE {first};
             INSERT INTO t SELECT g, 0, repeat('x', 1500) FROM generate_series({last}, {end}) g; UPDATE t SET v = 3 WHERE {first}; COMMIT;
             INSERT INTO t VALUES ({from} + 9000, 0)"
        ));
        reflecting.process.signal("CONT");
        reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", before + 500.0);
        replica.server.freeze();
    };
    let end = |from: u32| {
        let key = (from + 9_000).to_string();
        until("the last change arrives", || replica.server.run(&["latest", "t", &key]).code == Some(0));
        history(&replica)
    };
    begin(&reflecting, 0);
    assert_eq!(replica.cluster.sql(&format!("SELECT pg_terminate_backend(pid) {LOOKS}")), "t");
    replica.server.signal("CONT");
    assert_eq!(end(0), 1_901);
    assert!(reflecting.metric("deltaq_reflect_failures_total", "side=\"source\"") > 0.0);
    assert_eq!(times(&reflecting, LISTED), 1);

    begin(&reflecting, 10_000);
    reflecting.process.signal("TERM");
    until("the look is cut off", || replica.cluster.sql(&format!("SELECT count(*) {LOOKS}")) == "0");
    replica.server.signal("CONT");
    assert!(reflecting.process.ended().success());
    let reflecting = replica.start(&[]);
    assert_eq!(end(10_000), 2 * 1_901);
    assert_eq!((times(&reflecting, RESUMED), times(&reflecting, LISTED)), (1, 0), "{}", reflecting.log());
    reflecting.stop();
}

/// A session that raises the numbers of rows until the table `stop` has a row.
const RAISE: &str = "DO $$ DECLARE k int; BEGIN
    WHILE NOT EXISTS (SELECT FROM stop) LOOP
      k := (random() * 280)::int;
      UPDATE t SET v = v + 1 WHERE id BETWEEN k AND k + 20;
      -- Often, a copy does not see what commits before it ends.
      PERFORM pg_sleep(0.02);
      COMMIT;
    END LOOP; END $$;";

/// How many changes are read at least between kills, of which there are six. The long form has 100,000 changes.
#[expect(clippy::disallowed_methods, reason = "the knobs of a test are no settings of the service")]
fn changes_between_kills() -> u32 {
    std::env::var("DELTAQ_REPLICATION_CHANGES").ok().and_then(|text| text.parse().ok()).unwrap_or(600) / 6
}

#[test]
fn each_change_is_sent_once_over_kills() {
    let mut replica = Replica::new(
        "t",
        "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE stop (is_set bool); INSERT INTO t SELECT g, 0 FROM generate_series(1, 300) g",
    );
    replica.server = Server::durable();
    let mut reflecting = replica.start(&[]);
    let mut writer = session(&replica.cluster, RAISE);
    let more = changes_between_kills();
    for _ in 0..2 {
        until_changes(&reflecting, more);
        reflecting.process.kill();
        reflecting = replica.start(&[]);
        until_changes(&reflecting, more);
        replica.server.kill();
        replica.server.start();
        until_changes(&reflecting, more);
        replica.cluster.end(Signal::KILL);
        let _broken = writer.wait();
        let lists = times(&reflecting, LISTED);
        replica.cluster.restart();
        writer = session(&replica.cluster, RAISE);
        until_changes(&reflecting, 1);
        assert_eq!(times(&reflecting, LISTED), lists, "a restart of the database needs no list");
    }
    replica.sql("INSERT INTO stop VALUES (true)");
    assert!(writer.wait().expect("psql ends").success());
    until("the queue has the rows of the table", || rows(&replica) == replica.latest());
    let sent = history(&replica);
    assert!(sent >= usize::try_from(6 * more).expect("a number"), "{sent}");
    reflecting.stop();
}

#[test]
fn a_transaction_that_takes_long_to_decode_arrives() {
    let replica = Replica::new(
        "t",
        "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE noise (n int); INSERT INTO t VALUES (1, 1)",
    );
    replica.start(&[]).stop();
    // Longer than any other step takes.
    let reflecting = replica.start(&["--timeout", "100ms"]);
    replica.sql(
        "BEGIN; UPDATE t SET v = 2; INSERT INTO noise SELECT generate_series(1, 250000); COMMIT; UPDATE t SET v = 3",
    );
    replica.until_values("v", &[("1", json!(3))]);
    reflecting.stop();
}

#[test]
fn a_transaction_of_large_rows_takes_little_memory() {
    let replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, v int, pad text)");
    let reflecting = replica.start(&[]);
    replica.sql("INSERT INTO t SELECT g, 0, repeat('x', 900000) FROM generate_series(1, 24) g");
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 24.0);
    let status = fs::read_to_string(format!("/proc/{}/status", reflecting.process.child.id()));
    let status = status.expect("the process runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let peak_kib: u64 = peak.expect("a line").parse().expect("a number");
    println!("the peak is {} MiB", peak_kib >> 10);
    assert!(peak_kib < 160 << 10, "{peak_kib} KiB");
    reflecting.stop();
}
