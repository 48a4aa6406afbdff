//! Writes of former owners, as the database shows them. The calls of clients can't show them all: the primary key of the journal refuses most
//! of these writes, and a change that nobody was promised may be there or not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::cycles::Report;
use super::judge::{Fault, Rule};
use crate::system::postgres::cluster::Cluster;

/// The rows that were committed after a row of a later epoch of their partition. To begin an epoch waits for the writes of the epoch before.
const LATE: &str = "SELECT partition, queue_id, first_rv, epoch, newer FROM (\
         SELECT *, max(epoch) OVER (PARTITION BY partition ORDER BY pg_xact_commit_timestamp(xmin), epoch) AS newer \
         FROM deltaq.journal\
     ) AS rows WHERE epoch < newer ORDER BY 1, 2, 3";
/// What PostgreSQL logs when the primary key refuses a row.
const REFUSED: &str = "duplicate key value violates unique constraint \"journal_pkey\"";

/// Adds a fault for each late write that is there, and for each that only the primary key has refused.
pub(super) fn find(cluster: &Cluster, report: &mut Report) {
    let rows = cluster.sql(LATE);
    let rows = rows.lines().map(|row| format!("partition|queue|number|epoch|later epoch: {row}"));
    let log = cluster.log();
    let refused = log.lines().filter(|line| line.contains(REFUSED)).map(str::to_owned);
    let found = rows.chain(refused).map(|text| Fault { rule: Rule::LateWrite, text });
    report.faults.extend(found);
}

#[test]
fn late_rows_and_refused_rows_are_found() {
    let cluster = Cluster::start();
    let found = || {
        let mut report = Report::default();
        find(&cluster, &mut report);
        report.faults.iter().filter(|fault| fault.rule == Rule::LateWrite).count()
    };
    cluster.sql(
        "CREATE SCHEMA deltaq; CREATE TABLE deltaq.journal (\
             partition smallint, queue_id bigint, prev_rv bigint, first_rv bigint, epoch bigint, \
             PRIMARY KEY (partition, queue_id, prev_rv))",
    );
    let insert = |row: &str| cluster.sql(&format!("INSERT INTO deltaq.journal VALUES ({row})"));
    insert("1, 7, 0, 1, 2");
    insert("1, 7, 1, 2, 3");
    insert("2, 8, 0, 1, 1");
    assert_eq!(found(), 0, "each partition has its own epochs");
    insert("1, 9, 0, 1, 2");
    assert_eq!(found(), 1, "{}", cluster.sql(LATE));
    catch_unwind(AssertUnwindSafe(|| insert("1, 7, 1, 2, 2"))).expect_err("the primary key refuses it");
    assert_eq!(found(), 2, "{}", cluster.log());
}
