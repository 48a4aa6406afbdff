//! Debounce windows of a server that is killed.

use std::time::Duration;

use deltaq_types::Timestamp;
use serde_json::{Value, json};

use crate::harness::blocking::Message;
use crate::harness::server::{End, Spawned, Store};

/// The wall clock of a new process may differ from that of the old one by this much.
const CLOCKS_DIFFER_US: u64 = 60_000_000;

/// Times have whole milliseconds.
const PRECISION_US: u64 = 2_000;

/// Adds key `a` with a debounce.
fn add(server: &Spawned, version: u32, debounce: &str) {
    let path = format!("/v1/queues/q/add?{debounce}");
    let (status, body) = server.call(&Message::post(path, &json!({"key": "a", "v": version})));
    assert_eq!(status, 200, "{body}");
}

/// When key `a` is due, and when it is due at the latest.
fn window(server: &Spawned) -> [u64; 2] {
    let (_, body) = server.call(&Message::get("/v1/queues/q/explain/a".to_owned()));
    let found: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(found["reason"], "debouncing", "{found}");
    ["due_at", "latest_at"].map(|name| {
        let time: Timestamp = serde_json::from_value(found[name].clone()).expect("a time");
        time.as_micros()
    })
}

#[test]
fn a_kill_keeps_both_times_of_a_window() {
    let store = Store::folder("window");
    let server = Spawned::start(&store);
    add(&server, 1, "debounce=1h&max_wait=61m");
    let [due, latest] = window(&server);
    server.end(End::Kill);

    let server = Spawned::start(&store);
    let restored = window(&server);
    assert!(restored[0].abs_diff(due) < CLOCKS_DIFFER_US && restored[1].abs_diff(latest) < CLOCKS_DIFFER_US);
    assert!((restored[1] - restored[0]).abs_diff(latest - due) < PRECISION_US);
    // A further change with a longer quiet time is bounded by the first one.
    add(&server, 2, "debounce=10h");
    let [due, latest] = window(&server);
    assert_eq!(due, latest);
    assert!(latest.abs_diff(restored[1]) < CLOCKS_DIFFER_US);
    server.stop();
}

#[test]
fn a_window_that_ends_while_its_server_is_down_is_over_at_once() {
    let store = Store::folder("past-window");
    let server = Spawned::start(&store);
    let wait = Duration::from_secs(1);
    add(&server, 1, "debounce=1s");
    server.end(End::Kill);
    std::thread::sleep(wait);

    let server = Spawned::start(&store);
    let (status, body) = server.call(&Message::post("/v1/queues/q/pop".to_owned(), &json!({})));
    let popped: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, popped["items"][0]["key"].as_str()), (200, Some("a")), "{popped}");
    server.stop();
}
