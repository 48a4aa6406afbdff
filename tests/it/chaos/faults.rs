//! Disks that fail, fill up, become read-only or disappear under a server, and a process that ends at any of its
//! writes. Nothing acknowledged is lost, callers get clear problems, and the server recovers by itself.
//!
//! The faults come from outside the binary: a preloaded library (`shim.c`), and a small file system in a
//! namespace of its own.

mod disk;
mod stalled;
mod steps;
mod volume;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::blocking::{Connection, Message};
use crate::harness::preload;
use crate::harness::server::{Spawned, Store};

/// The path of the queue of these tests.
const QUEUE: &str = "/v1/queues/q";
/// How often a request is repeated until a server has recovered; it tries at least every 2 s.
const REPEATS: usize = 30;
/// The wait that a problem asks for.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The faults of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// `fail`, `short`, `kill_before` or `kill_after`.
    pub(crate) kind: &'static str,
    /// `write`, `sync` or `any`.
    pub(crate) calls: &'static str,
    /// The first call that fails, from 1.
    pub(crate) from: u64,
    /// How many calls fail.
    pub(crate) count: u64,
    /// The error of `fail`.
    pub(crate) errno: i32,
}

impl Plan {
    /// Applies the plan to a process; with a `switch`, while that file exists.
    pub(crate) fn set(&self, command: &mut Command, folder: &Path, switch: Option<&Path>) {
        command
            .env("LD_PRELOAD", preload::library("tests/it/chaos/faults/shim.c"))
            .env("FAULTS_FOLDER", folder);
        command.env("FAULTS_KIND", self.kind).env("FAULTS_CALLS", self.calls);
        command.env("FAULTS_FROM", self.from.to_string()).env("FAULTS_COUNT", self.count.to_string());
        command.env("FAULTS_ERRNO", self.errno.to_string());
        if let Some(switch) = switch {
            command.env("FAULTS_SWITCH", switch);
        }
    }
}

/// A folder for a store, and the path of a file beside it.
pub(crate) fn place(test: &str) -> (Store, PathBuf, PathBuf) {
    let store = Store::folder(&format!("faults-{test}"));
    let folder = store.path().to_owned();
    let switch = folder.with_extension("switch");
    (store, folder, switch)
}

/// Sends one request on its own connection. Returns status and body.
fn call(server: &Spawned, message: &Message) -> std::io::Result<(u16, Value)> {
    let answer = Connection::open(server.api)?.call(message)?;
    let body = serde_json::from_slice(&answer.body).unwrap_or_default();
    Ok((answer.status().unwrap_or_default(), body))
}

fn add(key: &str) -> Message {
    Message::post(format!("{QUEUE}/add"), &json!({"key": key, "text": "x".repeat(100)}))
}

/// Adds a key once. Returns whether it was acknowledged; every other reply must be a clear problem.
fn try_add(server: &Spawned, key: &str) -> bool {
    let (status, body) = call(server, &add(key)).expect("an answer");
    match status {
        200 => true,
        503 | 507 => {
            let expected = if status == 507 { "disk-full" } else { "journal-unavailable" };
            assert_eq!((&body["code"], &body["retryable"]), (&json!(expected), &json!(true)), "{body}");
            assert_eq!(body["retry_after_ms"], json!(1_000), "{body}");
            false
        }
        other => panic!("{other} {body}"),
    }
}

/// Adds a key until it is acknowledged, with the requested waits.
fn add_in_the_end(server: &Spawned, key: &str) {
    for _ in 0..REPEATS {
        if try_add(server, key) {
            return;
        }
        std::thread::sleep(RETRY_AFTER);
    }
    panic!("it does not heal:\n{}", server.last_words());
}

/// All waiting keys.
fn keys(server: &Spawned) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut next = String::new();
    loop {
        let page = Message::get(format!("{QUEUE}/items?limit=5000{next}"));
        let (status, page) = call(server, &page).expect("an answer");
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().expect("items");
        keys.extend(items.iter().filter_map(|item| item["key"].as_str()).map(str::to_owned));
        let Some(token) = page["continue"].as_str() else { return keys };
        next = format!("&continue={token}");
    }
}

/// Checks that no key of `acknowledged` is lost.
fn expect_all(server: &Spawned, acknowledged: &BTreeSet<String>, when: &str) {
    let found = keys(server);
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "{when}: lost {lost:?}\n{}", server.last_words());
}
