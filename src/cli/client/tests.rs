//! The commands against the table of operations.

use std::collections::BTreeSet;

use super::*;
use crate::http;

/// Operations that no command calls, each with the reason.
const NOT_CALLED: &[(&str, &str)] = &[
    ("livez", "`deltaq health` asks /readyz, which includes it"),
    ("readyz", "`deltaq health` calls it without the client, so that it works with any certificate"),
    ("receive_hook", "vendors send deliveries"),
    ("get_openapi", "a document for programs that generate clients"),
    ("report_source", "`deltaq reflect` and other readers of sources report"),
    ("seen_source", "`deltaq reflect` and other readers of sources report"),
    (
        "patch_source",
        "`deltaq apply` sets thresholds with patch_sources; a number is set where it is counted",
    ),
    ("report_reflector", "`deltaq reflect` and other readers of sources report"),
    ("get_problem", "the same text is printed below each failure"),
    ("get_status", "`deltaq queue get` shows the same counts with the settings"),
    ("get_item", "`deltaq items` uses get_item_of, which takes every key"),
    ("get_latest", "`deltaq latest` uses get_object_of, which takes every key"),
    ("get_known", "`deltaq known` uses get_object_of, which takes every key"),
    ("explain_key", "`deltaq explain` uses explain_key_of, which takes every key"),
    ("get_history", "`deltaq history` uses get_history_of, which takes every key"),
];

fn called() -> BTreeSet<&'static str> {
    let sets = [
        queues::Commands::operations().as_slice(),
        produce::Commands::OPERATIONS,
        consume::Commands::OPERATIONS,
        read::Commands::OPERATIONS,
        everywhere::Commands::OPERATIONS,
        waiting::Commands::OPERATIONS,
        status::Commands::OPERATIONS,
        watch::Commands::OPERATIONS,
    ]
    .concat();
    sets.concat().into_iter().collect()
}

#[test]
fn every_operation_has_a_command_or_a_reason() {
    let all: BTreeSet<&str> = http::operation_ids().collect();
    let called = called();
    let excused: BTreeSet<&str> = NOT_CALLED.iter().map(|(id, _)| *id).collect();
    assert_eq!(called.intersection(&excused).collect::<Vec<_>>(), Vec::<&&str>::new(), "called and excused");
    assert_eq!(called.union(&excused).copied().collect::<BTreeSet<_>>(), all);
}
