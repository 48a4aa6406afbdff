//! Writes and syncs that fail for some time.

use std::collections::BTreeSet;
use std::fs;

use super::{Plan, add_in_the_end, call, expect_all, place, try_add};
use crate::harness::blocking::Message;
use crate::harness::server::{End, Spawned};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// More calls than any test makes.
const ALL: u64 = 1_000_000;

/// Adds keys before, during and after a fault, and checks the keys then and after a kill.
fn suffer(test: &str, plan: Plan, expected: Option<u16>) {
    let (store, folder, switch) = place(test);
    let server = Spawned::start_with(&store, |command| plan.set(command, &folder, Some(&switch)));
    let mut acknowledged = BTreeSet::new();
    let mut add = |key: &str| {
        let done = try_add(&server, key);
        acknowledged.extend(done.then(|| key.to_owned()));
        done
    };
    assert!(add("before"));
    fs::write(&switch, "").expect("a file");
    let during: Vec<bool> = (0..5).map(|number| add(&format!("during-{number}"))).collect();
    if let Some(status) = expected {
        assert!(!during[0], "nothing was noticed");
        let (found, _) = call(&server, &Message::get("/readyz".to_owned())).expect("an answer");
        assert!(found == status || plan.count < ALL, "/readyz answers {found}");
    }
    fs::remove_file(&switch).expect("the file is there");
    add_in_the_end(&server, "after");
    acknowledged.insert("after".to_owned());
    expect_all(&server, &acknowledged, "after it healed");
    server.end(End::Kill);
    let server = Spawned::start(&store);
    expect_all(&server, &acknowledged, "after a restart");
}

#[test]
fn a_sync_that_fails_once() {
    suffer("sync-once", Plan { kind: "fail", calls: "sync", from: 1, count: 1, errno: EIO }, Some(503));
}

#[test]
fn syncs_that_fail_for_long() {
    suffer("sync-long", Plan { kind: "fail", calls: "sync", from: 1, count: ALL, errno: EIO }, Some(503));
}

#[test]
fn a_write_that_fails_once() {
    suffer("write-once", Plan { kind: "fail", calls: "write", from: 1, count: 1, errno: EIO }, Some(503));
}

#[test]
fn each_of_the_writes_of_a_commit_fails() {
    for from in 1..=8 {
        let plan = Plan { kind: "fail", calls: "write", from, count: 3, errno: EIO };
        suffer(&format!("write-{from}"), plan, None);
    }
}

#[test]
fn no_room_for_long() {
    suffer("full", Plan { kind: "fail", calls: "write", from: 1, count: ALL, errno: ENOSPC }, Some(507));
}

#[test]
fn writes_that_come_short() {
    suffer("short", Plan { kind: "short", calls: "write", from: 1, count: ALL, errno: 0 }, None);
}

#[test]
fn a_store_that_is_taken_away_is_noticed_and_taken_up_again_when_it_is_back() {
    let (store, folder, _) = place("away");
    let server = Spawned::start(&store);
    assert!(try_add(&server, "before"));
    let away = folder.with_extension("away");
    fs::create_dir_all(&away).expect("a folder");
    let files = ["deltaq.db", "deltaq.db-wal", "deltaq.db-shm"];
    for file in files {
        fs::rename(folder.join(file), away.join(file)).expect("the file is there");
    }
    assert!(!try_add(&server, "during"), "it wrote to a file that nobody can find");
    for file in files {
        fs::rename(away.join(file), folder.join(file)).expect("the file is there");
    }
    add_in_the_end(&server, "after");
    let acknowledged = BTreeSet::from(["before", "after"].map(str::to_owned));
    expect_all(&server, &acknowledged, "after it was back");
    let log = server.end(End::Kill);
    assert!(log.contains("deltaq.db") && log.contains("was removed while the server runs"), "{log}");
    let server = Spawned::start(&store);
    expect_all(&server, &acknowledged, "after a restart");
    fs::remove_dir_all(away).expect("the folder is there");
}
