//! Several files that are applied at once: each queue has the thresholds of one, and a loser names what it did not apply.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::sources::thresholds;
use super::{Server, file, settings};
use crate::harness::process::Run;

const SOURCES: usize = 6;

/// Passes the calls of a command to a server. Before the call with this beginning is passed for the n-th time, it does something.
struct Interrupted<'a, F> {
    server: SocketAddr,
    call: &'a str,
    nth: usize,
    seen: AtomicUsize,
    act: Mutex<Option<F>>,
    has_ended: AtomicBool,
}

impl<F: FnOnce() + Send> Interrupted<'_, F> {
    fn run(self, command: impl FnOnce(SocketAddr) -> Run) -> Run {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let this = &self;
        let run = std::thread::scope(|scope| {
            scope.spawn(move || {
                for caller in listener.incoming() {
                    if this.has_ended.load(Ordering::SeqCst) {
                        break;
                    }
                    let caller = caller.expect("a connection");
                    let server = TcpStream::connect(this.server).expect("a connection");
                    let (from, to) = (server.try_clone(), caller.try_clone());
                    let (mut from, mut to) = (from.expect("a clone"), to.expect("a clone"));
                    scope.spawn(move || std::io::copy(&mut from, &mut to).is_ok());
                    scope.spawn(move || this.pass(caller, server));
                }
            });
            let run = command(address);
            this.has_ended.store(true, Ordering::SeqCst);
            drop(TcpStream::connect(address));
            run
        });
        assert!(self.act.lock().is_none(), "{} was not called {} times: {run:?}", self.call, self.nth);
        run
    }

    fn pass(&self, mut caller: TcpStream, mut server: TcpStream) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(bytes @ 1..) = caller.read(&mut buffer) {
            let text = buffer.get(..bytes).expect("what was read");
            let is_counted = text.starts_with(self.call.as_bytes());
            if is_counted && self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.nth {
                let act = self.act.lock().take();
                act.expect("the only time")();
            }
            if server.write_all(text).is_err() {
                break;
            }
        }
        let _closed = server.shutdown(Shutdown::Write);
    }
}

/// Applies the first file, and the second one before the n-th call with this beginning of the first one. Returns the run of the first.
fn interrupted(server: &Server, call: &str, nth: usize, files: [&str; 2]) -> Run {
    let files = [file(server, "first.yaml", files[0]), file(server, "second.yaml", files[1])];
    let act = || drop(server.run(&["apply", "--file", &files[1]]).ok());
    let interrupted = Interrupted {
        server: server.address,
        call,
        nth,
        seen: AtomicUsize::new(0),
        act: Mutex::new(Some(act)),
        has_ended: AtomicBool::new(false),
    };
    interrupted.run(|address| server.run(&["apply", "--file", &files[0], "--url", &address.to_string()]))
}

#[test]
fn thresholds_are_set_at_once_and_not_mixed_with_those_of_another_file() {
    const FIRST: &str = "queues: {prices: {sources: {s1: {stale_after: 1m}, s2: {stale_after: 1m}}}}";
    let second = FIRST.replace("1m", "2m");
    let server = Server::in_memory();
    server.run(&["queue", "create", "prices"]).ok();
    // The second file begins and ends between the plan of the first one and its only change.
    interrupted(&server, "PATCH /v1/queues/prices/sources ", 1, [FIRST, &second]).ok();
    assert_eq!(thresholds(&server, "prices"), json!({"s1": "1m", "s2": "1m"}));
}

#[test]
fn other_settings_of_a_later_file_are_noticed() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "prices"]).ok();
    let text = |lease: &str| {
        format!("queues: {{prices: {{lease: {lease}, sources: {{s1: {{stale_after: {lease}}}}}}}}}")
    };
    // The second file begins after the first one has changed the settings, and before it has set the threshold.
    let call = "PATCH /v1/queues/prices/sources ";
    let refused = interrupted(&server, call, 1, [&text("1m"), &text("2m")]).failed(1);
    assert!(refused.contains(r#"not applied: sources.s1.stale_after "1m""#), "{refused}");
    assert_eq!(settings(&server, "prices")["lease"], "2m");
    assert_eq!(thresholds(&server, "prices"), json!({"s1": "2m"}));
}

#[test]
fn a_threshold_that_another_file_changes_during_the_call_is_set_too() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "prices"]).ok();
    let first = "queues: {prices: {lease: 2m, sources: {s1: {stale_after: 2m}}}}";
    let second = first.replace("2m", "1m");
    let before = file(&server, "before.yaml", &first.replace("lease: 2m", "lease: 1m"));
    server.run(&["apply", "--file", &before]).ok();
    // The plan of the first file changes the lease only. The second file then changes the threshold.
    interrupted(&server, "PATCH /v1/queues/prices ", 1, [first, &second]).ok();
    assert_eq!(settings(&server, "prices")["lease"], "2m");
    assert_eq!(thresholds(&server, "prices"), json!({"s1": "2m"}));
}

/// Applies three files at once to the same queues, each with its own thresholds and, if `with_settings`, its own lease. Returns the names of queues
/// that are not as one of the files says, and what the failed runs have printed.
fn apply_three(server: &Server, with_settings: bool) -> (Vec<String>, Vec<String>) {
    const QUEUES: usize = 20;
    let leases = ["1m", "2m", "3m"];
    let path = |lease: &str| {
        let mut text = "queues:\n".to_owned();
        for queue in 0..QUEUES {
            let settings = if with_settings { format!("lease: {lease}, ") } else { String::new() };
            let source = |source: usize| format!("s{source}: {{stale_after: {lease}}}");
            let sources = (0..SOURCES).map(source).collect::<Vec<_>>().join(", ");
            writeln!(text, "  q{queue}: {{{settings}sources: {{{sources}}}}}").expect("a string grows");
        }
        file(server, &format!("{lease}.yaml"), &text)
    };
    let files = leases.map(path);
    let failures = std::thread::scope(|scope| {
        let apply = |file| server.run(&["apply", "--file", file]);
        let runs: Vec<_> = files.iter().map(|file| scope.spawn(move || apply(file))).collect();
        let runs = runs.into_iter().map(|run| run.join().expect("no panic"));
        runs.filter(|run| run.code != Some(0)).map(|run| run.failed(1)).collect()
    });
    let made: Value = serde_json::from_str(&server.run(&["queue", "settings"]).ok()).expect("JSON");
    let queues = made["queues"].as_object().expect("an object").iter();
    let mixed = queues.filter(|(_, made)| !leases.iter().any(|lease| is_of(made, lease, with_settings)));
    (mixed.map(|(name, made)| format!("{name}: {} {}", made["lease"], made["sources"])).collect(), failures)
}

/// Whether a queue has the thresholds, and the lease, of a file.
fn is_of(made: &Value, lease: &str, with_settings: bool) -> bool {
    let sources = made["sources"].as_object().map_or(Vec::new(), |sources| sources.values().collect());
    let has_settings = !with_settings || made["lease"] == lease;
    has_settings && sources.len() == SOURCES && sources.iter().all(|source| source["stale_after"] == lease)
}

#[test]
fn of_three_files_at_once_each_queue_has_the_thresholds_of_one() {
    for with_settings in [false, true] {
        for _ in 0..3 {
            let server = Server::in_memory();
            // First for new queues, and then for those that exist.
            for _ in 0..2 {
                let (mixed, failures) = apply_three(&server, with_settings);
                assert!(mixed.is_empty(), "{mixed:?}: {failures:?}");
                for failure in failures {
                    assert!(failure.contains("precondition-failed"), "{failure}");
                    assert!(failure.contains("was not applied to queue q"), "{failure}");
                }
            }
        }
    }
}
