//! Tables of PostgreSQL whose changes are read from the log of the database.
//!
//! | rule | test |
//! |---|---|
//! | the publication has one named table whose identity was checked, and breaks no writer | `rules::a_publication_breaks_no_writer`, `rules::partitions_have_rows_identities_and_a_log` |
//! | a publication that somebody changes is refused | `rules::a_publication_that_somebody_changes_is_noticed` |
//! | a key that deletions lack is refused; `FULL` allows any key | `rules::a_key_that_deletions_lack_is_refused` |
//! | the slot waits for writers only so long; a set-up that fails drops what it has made | `rules::a_set_up_that_fails_leaves_nothing` |
//! | the log names the slot, what it keeps back and the command that ends it, which works | `a_single_copy_makes_no_slot_and_a_slot_is_dropped_on_request` |
//! | a warning, the problem of the source, metrics and an alert at half of the limit; a lost slot leads to a list | `rules::a_slot_that_keeps_back_too_much_is_reported_and_a_lost_one_leads_to_a_list`, `prometheus::staged_faults` |
//! | the slot is watched while the queue takes nothing | `rules::a_slot_is_watched_while_the_queue_takes_nothing` |
//! | the slot stays behind what the queue has stored | `writers::the_slot_stays_behind_what_the_queue_has_not_stored` |
//! | the slot of a quiet table moves in a busy database | `rules::an_idle_table_does_not_fill_the_disk` |
//! | another server or timeline, or an older state, leads to a list with deletions | `restarts::a_promoted_standby_leads_to_a_list_with_deletions`, `place::an_older_state_of_the_database_leads_to_a_list`, and a unit test of the place |
//! | a slot that is gone or was moved leads to one list, which says why | `place::a_slot_that_was_dropped_or_moved_leads_to_a_list_with_deletions` |
//! | a restart of the database needs no list | `place::a_restart_of_the_database_needs_no_list` |
//! | what a copy has seen is on the disk | `place::what_a_copy_has_seen_survives_a_crash_of_the_database` |
//! | a clean restart of the reflector needs none, anything else does | `restarts` |
//! | a slot follows a failover from version 17 on | a unit test of the statement |
//! | a large value that has not changed: old row, transaction, queue, table | `shapes::large_values_that_did_not_change_are_kept` |
//! | nulls of an old row that is not whole mean nothing; another key is a deletion and an addition | `changes_are_sent_as_they_are_committed` |
//! | `TRUNCATE` is a list under the limits of deletions | `shapes::a_truncate_is_a_list_under_the_limit_of_deletions` |
//! | partitions are one table; `ATTACH` and `DETACH` lead to a list | `shapes::partitions_are_one_table` |
//! | a copy and the stream have the same text for each type | `shapes::a_copy_and_the_stream_have_the_same_text` |
//! | other columns and rewrites lead to a list | `shapes::other_columns_lead_to_a_list` |
//! | what the database can't convert leads to a list; a large value of the key is no other key | `shapes::a_large_key_stays_and_a_value_that_the_database_refuses_leads_to_a_list` |
//! | a copy and the stream join without a gap or a repeat | `writers::a_copy_and_the_stream_join_without_a_gap_while_others_write`, `writers::what_a_copy_has_seen_is_not_repeated`, `place::a_commit_that_others_do_not_see_yet_is_in_no_gap` |
//! | no change is lost or repeated by kills, or if a look is cut off | `history` |
//! | a large transaction takes time, but no failure and little memory | `history` |
//! | nothing is lost by kills of the reflector, the database and the queue | `writers::a_large_table_is_complete_after_kills_of_the_reflector_and_the_database`, `writers::a_queue_that_is_killed_has_everything_in_the_end` |

mod history;
mod place;
mod restarts;
mod rules;
mod shapes;
mod writers;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::{Reflecting, counts, drain};
use crate::harness::waiting::until;
use crate::system::cli::Server;
use crate::system::postgres::cluster::Cluster;
use crate::system::postgres::pgbouncer::Pooler;

/// A table that is replicated to a queue of the same name.
struct Replica {
    server: Server,
    cluster: Cluster,
    table: &'static str,
}

impl Replica {
    /// A new server of each kind, and the table that these statements make.
    fn new(table: &'static str, statements: &str) -> Self {
        let (server, cluster) = (Server::in_memory(), Cluster::logical());
        let replica = Self { server, cluster, table };
        replica.sql(statements);
        replica
    }

    /// Runs statements as the owner of the table.
    fn sql(&self, statements: &str) -> String {
        self.cluster.sql(&format!("SET ROLE deltaq; {statements}"))
    }

    fn line<'l>(&'l self, database: &'l str, more: &[&'l str]) -> Vec<&'l str> {
        [&[self.table, "--source", "s", "--replicate", database, "--table", self.table], more].concat()
    }

    /// Starts to replicate, and waits for the first copy.
    #[track_caller]
    fn start(&self, more: &[&str]) -> Reflecting {
        let reflecting = self.start_unready(more);
        until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
        reflecting
    }

    fn start_unready(&self, more: &[&str]) -> Reflecting {
        Reflecting::start(&self.server, &self.line(&self.cluster.url(), more))
    }

    /// The newest objects of the queue by key; none if there is no queue.
    fn latest(&self) -> BTreeMap<String, Value> {
        let rows = self.server.run(&["latest", self.table, "-o", "ndjson"]).stdout;
        let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("JSON"));
        rows.map(|row| (row["key"].as_str().expect("a key").to_owned(), row["object"].clone())).collect()
    }

    /// Waits until the queue has these values of a member by key.
    #[track_caller]
    fn until_values(&self, member: &str, values: &[(&str, Value)]) {
        let expected: BTreeMap<String, Value> =
            values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        until(&format!("{member} is {expected:?}"), || {
            let latest = self.latest();
            latest.iter().map(|(key, object)| (key.clone(), object[member].clone())).eq(expected.clone())
        });
    }

    /// Waits until the queue has this number of keys.
    #[track_caller]
    fn until_keys(&self, count: usize) {
        until(&format!("{count} keys"), || self.latest().len() == count);
    }

    /// The number of slots and publications of the database.
    fn made(&self) -> String {
        self.cluster
            .sql("SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_publication)")
    }

    /// The name of the only slot.
    fn slot(&self) -> String {
        self.cluster.sql("SELECT slot_name FROM pg_replication_slots")
    }
}

/// How often the log has a text.
fn times(reflecting: &Reflecting, text: &str) -> usize {
    reflecting.log().matches(text).count()
}

/// The text of the log after each accepted list.
const LISTED: &str = "a list was accepted";

#[test]
fn changes_are_sent_as_they_are_committed() {
    let replica = Replica::new(
        "prices",
        "CREATE TABLE prices (shop int, sku text, price numeric, PRIMARY KEY (shop, sku));
         INSERT INTO prices VALUES (1, 'a', 1.10), (1, 'b/c', 2), (2, 'a', 3)",
    );
    let reflecting = replica.start(&[]);
    assert_eq!(replica.latest().into_keys().collect::<Vec<_>>(), ["1/a", "1/b%2Fc", "2/a"]);
    assert_eq!(drain(&replica.server, "prices"), counts(&[("Replaced", 3)]));
    // One transaction after the other, and rows in the order of their changes.
    replica.sql("UPDATE prices SET price = 5 WHERE shop = 2; INSERT INTO prices VALUES (3, 'x', 1)");
    replica.sql("DELETE FROM prices WHERE sku = 'b/c'");
    replica.until_values("price", &[("1/a", json!(1.1)), ("2/a", json!(5)), ("3/x", json!(1))]);
    assert_eq!(drain(&replica.server, "prices"), counts(&[("Updated", 2), ("Deleted", 1)]));
    // Another key is a deletion and an addition. What was rolled back, or has changed nothing, is not sent.
    replica.sql("UPDATE prices SET sku = 'y' WHERE shop = 3; UPDATE prices SET price = price");
    replica.sql("BEGIN; DELETE FROM prices; ROLLBACK");
    replica.sql("UPDATE prices SET price = 9 WHERE shop = 1");
    replica.until_values("price", &[("1/a", json!(9)), ("2/a", json!(5)), ("3/y", json!(1))]);
    // The log has only the key of the old row. The deletion has what the queue knew, and no nulls.
    let items = replica.server.run(&["items", "prices", "-o", "ndjson"]).ok();
    let items = items.lines().map(|item| serde_json::from_str::<Value>(item).expect("JSON"));
    let gone = items.into_iter().find(|item| item["key"] == "3/x").expect("the deletion waits");
    assert_eq!(gone["deltas"][0]["type"], "Deleted", "{gone}");
    assert_eq!(gone["deltas"][0]["object"], json!({"shop": 3, "sku": "x", "price": 1}), "{gone}");
    assert_eq!(drain(&replica.server, "prices"), counts(&[("Updated", 2), ("Deleted", 1)]));
    reflecting.until_metric("deltaq_reflect_changes_total", "type=\"change\"", 6.0);
    until("the queue has everything", || reflecting.metric("deltaq_reflect_lag_bytes", "") < 1.0);
    assert_eq!(times(&reflecting, LISTED), 1);
    reflecting.stop();
}

#[test]
fn a_table_is_replicated_through_a_pooler() {
    let replica =
        Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    let pooler = Pooler::in_mode(&replica.cluster, "transaction");
    let reflecting = Reflecting::start(&replica.server, &replica.line(&pooler.url(), &[]));
    replica.until_values("v", &[("1", json!(1))]);
    replica.sql("UPDATE t SET v = 2; INSERT INTO t VALUES (2, 2)");
    replica.until_values("v", &[("1", json!(2)), ("2", json!(2))]);
    assert_eq!(times(&reflecting, LISTED), 1);
    reflecting.stop();
}

#[test]
fn a_single_copy_makes_no_slot_and_a_slot_is_dropped_on_request() {
    let replica = Replica::new("t", "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)");
    let database = replica.cluster.url();
    let run = |more: &[&str]| {
        replica.server.run(&[&["reflect"], replica.line(&database, more).as_slice()].concat())
    };
    assert_eq!(run(&["--once"]).ok(), "s: 2 objects, 2 replaced, 0 deleted, 0 unchanged\n");
    assert_eq!(replica.made(), "0|0");
    let reflecting = replica.start(&["--slot", "shop_1"]);
    until("the log names the slot", || times(&reflecting, "\"slot\":\"shop_1\"") > 0);
    let lines = reflecting.log();
    let mut lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.find(|line| line["slot"] == "shop_1").expect("a line of the slot");
    assert!(line["kept_bytes"].is_u64(), "{line}");
    let command = line["message"].as_str().and_then(|text| text.split_once("this command ends it: "));
    let (_, command) = command.expect("the line has the command");
    assert_eq!(replica.made(), "1|1");
    reflecting.stop();
    // The slot stays, for the next start.
    assert_eq!(replica.made(), "1|1");
    let mut shell = std::process::Command::new("/bin/sh");
    let folder = Path::new(env!("CARGO_BIN_EXE_deltaq")).parent().expect("a folder");
    let dropped = shell.args(["-c", command]).env("PATH", folder).output().expect("the shell runs");
    assert_eq!(String::from_utf8_lossy(&dropped.stdout), "s: dropped the slot shop_1\n", "{command}");
    assert_eq!(replica.made(), "0|0");
    assert_eq!(run(&["--drop-slot", "--slot", "shop_1"]).ok(), "s: there is no slot shop_1\n");
}
