//! Pauses, holds, rates and the order of keys of a server that is killed.

use deltaq_types::Timestamp;
use serde_json::{Value, json};

use crate::harness::blocking::Message;
use crate::harness::server::{End, Spawned, Store};

/// The wall clock of a new process may differ from that of the old one by this much.
const CLOCKS_DIFFER_US: u64 = 60_000_000;

const STOPPED: [(&str, &str); 4] = [
    ("paused:1", "group_paused"),
    ("held:2", "group_held"),
    ("slow:2", "group_rate_limited"),
    ("key:1", "key_held"),
];

fn post(server: &Spawned, path: &str, body: &Value) -> Value {
    let (status, body) = server.call(&Message::post(format!("/v1/queues/q/{path}"), body));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// Delivers the first key of a group.
fn lease(server: &Spawned, group: &str) -> Value {
    let popped = post(server, &format!("pop?group={group}&lease_duration=1h"), &json!({}));
    popped["items"][0]["lease"]["id"].clone()
}

/// Releases the first key of a group, with a hold.
fn hold(server: &Spawned, group: &str, scope: &str) {
    let lease = lease(server, group);
    post(server, "release", &json!({"lease_id": lease, "hold": {"scope": scope, "for": "1h"}}));
}

/// When each key that something stops is due, in µs. A pause has no such time.
fn due(server: &Spawned) -> [Option<u64>; 4] {
    STOPPED.map(|(key, reason)| {
        let (_, body) = server.call(&Message::get(format!("/v1/queues/q/explain/{key}")));
        let found: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(found["reason"], reason, "{found}");
        let due: Option<Timestamp> = serde_json::from_value(found["due_at"].clone()).expect("a time");
        due.map(Timestamp::as_micros)
    })
}

#[test]
fn a_kill_keeps_what_stops_keys_and_the_order_of_the_others() {
    let store = Store::folder("limits");
    let server = Spawned::start(&store);
    let slow = json!({"rate": {"per_second": 0.001, "burst": 1}});
    let groups = json!({"groups": {"by": {"key_prefix": ":"}, "overrides": {"slow": slow}}});
    let (status, body) = server.call(&Message::put("/v1/queues/q".to_owned(), &groups));
    assert_eq!(status, 201, "{body}");
    let keys = ["paused:1", "held:1", "held:2", "slow:1", "slow:2", "key:1", "free:1"];
    post(&server, "add", &keys.map(|key| json!({ "key": key })).into());
    post(&server, "add?head_start=10m", &json!({"key": "free:2"}));
    post(&server, "pause", &json!({"group": "paused"}));
    hold(&server, "held", "group");
    hold(&server, "key", "key");
    lease(&server, "slow");
    let before = due(&server);
    assert_eq!(before.map(|due| due.is_some()), [false, true, true, true]);
    server.end(End::Kill);

    let server = Spawned::start(&store);
    for (restored, before) in due(&server).into_iter().zip(before) {
        let difference = restored.unwrap_or_default().abs_diff(before.unwrap_or_default());
        assert!(difference < CLOCKS_DIFFER_US, "{restored:?} was {before:?}");
    }
    let popped = post(&server, "pop?max=9", &json!({}));
    let keys: Vec<&Value> =
        popped["items"].as_array().expect("a list").iter().map(|item| &item["key"]).collect();
    assert_eq!(keys, ["free:2", "free:1"]);
    server.stop();
}
