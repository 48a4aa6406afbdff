//! The wall clock of a process, which jumps while the process runs. Its monotonic clock stays right.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use deltaq_runtime::clock::wall_us;
use serde_json::{Value, json};

use crate::harness::blocking::{Connection, Message};
use crate::harness::preload;
use crate::harness::server::{Spawned, Store};
use crate::harness::waiting::until;

const DAY_S: i64 = 86_400;

/// The wall clock of the processes that were started with it. It stays where it is when they restart.
#[derive(Debug)]
pub(crate) struct WallClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl WallClock {
    /// A clock that is right, in a file of this name.
    pub(crate) fn new(path: PathBuf) -> Self {
        let library = preload::library("tests/it/chaos/crash/wall_clock.c");
        let file = File::create_new(&path).expect("a new file");
        let clock = Self { library, path, file };
        clock.set(0);
        clock
    }

    /// Gives a process this clock.
    pub(crate) fn give(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("WALL_CLOCK", &self.path);
    }

    /// Sets how many seconds the clock is ahead.
    pub(crate) fn set(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).expect("the file can be written");
    }
}

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
