//! A wall clock that jumps while a server runs.

use deltaq_runtime::clock::wall_us;
use serde_json::{Value, json};

use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{Spawned, Store};
use crate::harness::waiting::until;
use crate::harness::wall_clock::WallClock;

const DAY_S: i64 = 86_400;

#[test]
fn a_jump_moves_the_wall_clock_of_a_server_and_not_its_timers() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = WallClock::new(folder.path().join("clock"));
    clock.set(-2 * DAY_S);
    let server = Spawned::start_with(&Store::Memory, |command| clock.give(command));
    let mut connection = Connection::open(server.api).expect("a connection");
    let add = Message::post("/v1/queues/q/add?delay=1h".to_owned(), &json!({"key": "a"}));
    let reply = connection.call(&add).expect("a reply");
    assert!(reply.status() == Some(200) && reply.head.contains(weekday(-2)), "{reply:?}");
    clock.set(2 * DAY_S);
    // The server reads the clock once a second for this header.
    until("the server sees the jump", || {
        let reply = connection.call(&Message::get("/v1/queues/q".to_owned())).expect("a reply");
        let queue: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!((&queue["status"]["ready"], &queue["status"]["delayed"]), (&json!(0), &json!(1)));
        reply.head.contains(weekday(2))
    });
}

/// The beginning of the date header, with the day of the week in so many days.
fn weekday(days: i64) -> &'static str {
    let today = i64::try_from(wall_us() / 86_400_000_000).expect("a few days");
    // The epoch began on a Thursday.
    let names = ["date: Thu", "date: Fri", "date: Sat", "date: Sun", "date: Mon", "date: Tue", "date: Wed"];
    names[usize::try_from((today + days).rem_euclid(7)).expect("a day of the week")]
}
