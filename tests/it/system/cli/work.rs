//! `deltaq work` with commands that succeed, crash, hang, flood and lose their lease; with signals and restarts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::{Server, lines};
use crate::harness::process::Process;
use crate::harness::waiting::until;

/// A running `deltaq work`.
struct Work {
    process: Process,
}

impl Work {
    fn start(server: &Server, options: &[&str], script: &str) -> Self {
        let line = [&["work", "q"], options, &["--", "sh", "-c", script]].concat();
        let process = Process::start(server.command(&line), |command, _| {
            command.env("DIR", server.folder.path()).stdout(Stdio::null());
        });
        Self { process }
    }

    fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits for an end because of failed keys.
    #[track_caller]
    fn fails(&mut self) {
        let status = self.process.ended();
        assert_eq!(status.code(), Some(1), "{}", self.process.log());
        assert!(self.process.log().contains(" keys have failed, such as "), "{}", self.process.log());
    }

    /// Waits for a clean end.
    #[track_caller]
    fn ends(&mut self) {
        let status = self.process.ended();
        assert!(status.success(), "{status}: {}", self.process.log());
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // The commands of a killed worker go on, so the worker stops them first. Two signals of one kind may arrive as one.
        for name in ["CONT", "TERM", "INT"] {
            if self.process.status().is_none() {
                self.signal(name);
            }
        }
        let _ended = self.process.ended();
    }
}

fn add(server: &Server, keys: usize) {
    let mut objects = String::new();
    for number in 0..keys {
        writeln!(objects, "{{\"key\":\"k{number}\"}}").expect("a string grows");
    }
    server.run_with(&["add", "q"], &objects).ok();
}

/// Whether the process with the id in a file runs.
fn runs(pid: &Path) -> bool {
    let pid = std::fs::read_to_string(pid).expect("a process id");
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    // A process that nobody has reaped yet does not run.
    !status.is_empty() && !status.contains(") Z ")
}

#[test]
fn a_worker_waits_no_longer_than_the_server_allows() {
    let server = Server::with_settings(&[("DELTAQ_SERVER__MAX_WAIT", Path::new("2s"))]);
    server.run(&["queue", "create", "q"]).ok();
    let mut work = Work::start(&server, &[], "touch $DIR/worked");
    until("the worker waits", || server.count("q", "waiters") == 1);
    add(&server, 1);
    until("the key is worked on", || server.folder.path().join("worked").exists());
    server.run(&["synced", "q", "--resource-version", "now", "--wait", "1m"]).ok();
    work.signal("TERM");
    work.ends();
}

#[test]
fn the_exit_status_settles_the_key() {
    let server = Server::in_memory();
    let options = r#"{"rate_limiter":{"item_exponential":{"base":"1h","max":"1h"}}}"#;
    server.run(&["queue", "create", "q", "--from", options]).ok();
    for key in ["good", "reject", "temporary", "crash", "read"] {
        server.run(&["add", "q", &format!("{{\"key\":\"{key}\",\"n\":1.50}}")]).ok();
    }
    let script = r#"
        case $DELTAQ_KEY in
            good) test "$DELTAQ_QUEUE $DELTAQ_ATTEMPT $DELTAQ_FAILURES" = "q 1 0" && test -n "$DELTAQ_LEASE$DELTAQ_FENCING_TOKEN" ;;
            reject) echo 'unknown currency' >&2; exit 65 ;;
            temporary) echo 'first line' >&2; echo 'no route' >&2; exit 75 ;;
            crash) kill -9 $$ ;;
            read) grep -q '"object":{"key":"read","n":1.50}' ;;
        esac"#;
    let mut work = Work::start(&server, &["--until-empty"], script);
    work.fails();
    assert_eq!(server.run(&["known", "q", "-o", "name"]).ok(), "good\nread\n");
    let error = |key: &str| {
        let item = server.json(&["items", "q", key]);
        (
            item["state"].as_str().expect("a state").to_owned(),
            item["last_error"].as_str().expect("text").to_owned(),
        )
    };
    assert_eq!(error("reject"), ("parked".to_owned(), "exit status 65: unknown currency".to_owned()));
    assert_eq!(error("temporary"), ("delayed".to_owned(), "exit status 75: first line\nno route".to_owned()));
    assert_eq!(error("crash"), ("delayed".to_owned(), "killed by signal 9".to_owned()));
    let reported = work.process.log();
    for line in [
        "deltaq: reject: rejected at attempt 1, parked: exit status 65: unknown currency",
        "deltaq: temporary: failed at attempt 1, again in ",
        "deltaq: deliveries: 2 acknowledged, 3 failed",
    ] {
        assert!(reported.contains(line), "{line} is not in\n{reported}");
    }
}

#[test]
fn a_key_that_succeeds_at_last_has_not_failed() {
    let server = Server::in_memory();
    add(&server, 3);
    let script = "test $DELTAQ_KEY != k1 || test $DELTAQ_ATTEMPT -gt 2";
    let mut work = Work::start(&server, &[], script);
    server.run(&["synced", "q", "--resource-version", "now", "--wait", "1m"]).ok();
    server.run(&["queue", "close", "q"]).ok();
    work.ends();
    assert_eq!(server.count("q", "known"), 3);
}

#[test]
fn a_flood_of_output_is_bounded_and_an_unread_item_blocks_nothing() {
    let server = Server::in_memory();
    let text = "x".repeat(900_000);
    server.run_with(&["add", "q"], &format!("{{\"key\":\"big\",\"text\":\"{text}\"}}")).ok();
    let script = "yes flood | head -c 20000000 >&2; yes flood | head -c 20000000; printf '\\377\\377the end' >&2; exit 65";
    let mut work = Work::start(&server, &["--until-empty"], script);
    work.fails();
    let item = server.json(&["items", "q", "big"]);
    let error = item["last_error"].as_str().expect("text");
    assert!(error.starts_with("exit status 65: ") && error.ends_with("\u{fffd}\u{fffd}the end"), "{error}");
    assert!((2_000..4_096).contains(&error.len()), "{}", error.len());
}

#[test]
fn a_stderr_that_nobody_reads_stops_nothing() {
    let server = Server::in_memory();
    add(&server, 3);
    let script = "head -c 200000 /dev/zero >&2; echo >> $DIR/done; [ $DELTAQ_KEY != k1 ]";
    let mut worker = server.command(&["work", "q", "--", "sh", "-c", script]);
    let worker = worker.env("DIR", server.folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut worker = worker.stderr(Stdio::piped()).spawn().expect("deltaq starts");
    until("all keys were tried", || lines(&server.folder.path().join("done")).len() >= 3);
    let pid = rustix::process::Pid::from_child(&worker);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    until("the worker ends", || worker.try_wait().expect("a child").is_some());
}

#[test]
fn a_long_command_keeps_its_lease() {
    let server = Server::in_memory();
    add(&server, 1);
    let mut work = Work::start(
        &server,
        &["--until-empty", "--lease", "6s"],
        "echo $DELTAQ_ATTEMPT >> $DIR/log; sleep 10",
    );
    work.ends();
    assert_eq!(lines(&server.folder.path().join("log")), ["1"]);
    assert_eq!(server.count("q", "known"), 1);
}

#[test]
fn a_command_whose_lease_was_settled_elsewhere_is_stopped_with_its_children() {
    let server = Server::in_memory();
    add(&server, 1);
    let script = "trap '' TERM; sleep 1000 & echo $! > $DIR/child; echo $$ > $DIR/pid.new; mv $DIR/pid.new $DIR/pid; wait; sleep 1000";
    let work =
        Work::start(&server, &["--lease", "10s", "--kill-after", "200ms", "--concurrency", "2"], script);
    let pid = server.folder.path().join("pid");
    until("the command runs", || pid.exists());
    assert!(runs(&pid));
    let lease = server.json(&["items", "q", "k0"])["lease"]["id"].as_str().expect("a lease").to_owned();
    server.run(&["queue", "pause", "q"]).ok();
    server.run(&["ack", "q", &lease]).ok();
    until("the command is stopped", || !runs(&pid) && !runs(&server.folder.path().join("child")));
    until("the loss is reported", || work.process.log().contains("k0: the lease has ended (acked)"));
    drop(work);
}

#[test]
fn a_command_is_stopped_before_its_lease_can_have_expired_unnoticed() {
    let server = Server::in_memory();
    add(&server, 1);
    let script = "echo $$ > $DIR/pid.new; mv $DIR/pid.new $DIR/pid; sleep 1000";
    let work = Work::start(&server, &["--lease", "2s", "--kill-after", "100ms"], script);
    let pid = server.folder.path().join("pid");
    until("the command runs", || pid.exists());
    server.freeze();
    until("the command is stopped", || !runs(&pid));
    std::fs::remove_file(&pid).expect("a file");
    server.signal("CONT");
    until("the worker goes on", || pid.exists());
    drop(work);
    assert!(!runs(&pid), "a test leaves no command behind");
}

#[test]
fn sigterm_lets_commands_finish() {
    let server = Server::in_memory();
    add(&server, 2);
    let mut work = Work::start(
        &server,
        &["--verbose"],
        "touch $DIR/started; while ! [ -e $DIR/go ]; do sleep 0.05; done",
    );
    until("the command runs", || server.folder.path().join("started").exists());
    work.signal("TERM");
    until("the signal is handled", || work.process.log().contains("no further keys are popped"));
    std::fs::write(server.folder.path().join("go"), "").expect("a file");
    work.ends();
    assert_eq!(
        (server.count("q", "known"), server.count("q", "ready"), server.count("q", "leased")),
        (1, 1, 0)
    );
}

#[test]
fn sigterm_releases_keys_whose_commands_do_not_finish() {
    let server = Server::in_memory();
    add(&server, 1);
    let script = "echo $$ > $DIR/pid.new; mv $DIR/pid.new $DIR/pid; sleep 1000";
    let mut work = Work::start(&server, &["--grace", "100ms", "--concurrency", "3"], script);
    let pid = server.folder.path().join("pid");
    until("the command runs", || pid.exists());
    work.signal("TERM");
    work.ends();
    assert!(!runs(&pid));
    let item = server.json(&["items", "q", "k0"]);
    assert_eq!((&item["state"], &item["failures"]), (&"ready".into(), &0.into()), "{item}");
}

#[test]
fn a_release_without_an_answer_is_not_reported_as_done() {
    let server = Server::in_memory();
    add(&server, 1);
    let script = "echo $$ > $DIR/pid.new; mv $DIR/pid.new $DIR/pid; sleep 1000";
    let mut work = Work::start(&server, &["--grace", "100ms"], script);
    let pid = server.folder.path().join("pid");
    until("the command runs", || pid.exists());
    server.freeze();
    work.signal("TERM");
    work.ends();
    assert!(!runs(&pid));
    let reported = work.process.log();
    assert!(reported.contains("k0: the server has not confirmed its release"), "{reported}");
}

#[test]
fn an_idle_worker_ends_at_once_and_leaves_no_lease() {
    let server = Server::in_memory();
    server.run(&["queue", "create", "q"]).ok();
    let mut work = Work::start(&server, &["--concurrency", "4"], "true");
    until("the worker waits", || server.count("q", "waiters") == 1);
    work.signal("INT");
    work.ends();
    add(&server, 5);
    assert_eq!((server.count("q", "ready"), server.count("q", "leased")), (5, 0));
}

#[test]
fn a_worker_waits_for_its_queue_and_says_so_once() {
    let server = Server::in_memory();
    let mut work = Work::start(&server, &["--concurrency", "4"], "touch $DIR/worked");
    let said = |work: &Work| work.process.log().matches("queue q does not exist yet").count();
    until("the worker has asked", || said(&work) > 0);
    add(&server, 1);
    until("the key is worked on", || server.folder.path().join("worked").exists());
    work.signal("TERM");
    work.ends();
    assert_eq!(said(&work), 1, "{}", work.process.log());
    let missing = server.run(&["work", "missing", "--until-empty", "--", "true"]).failed(3);
    assert!(missing.contains("there is no queue of this name"), "{missing}");
    let missing = server.run(&["pop", "missing", "--wait", "2s"]).failed(3);
    assert!(missing.contains("queue missing does not exist yet"), "{missing}");
}

#[test]
fn a_command_that_can_not_run_ends_the_worker() {
    let server = Server::in_memory();
    add(&server, 1);
    let file = server.folder.path().join("file");
    std::fs::write(&file, "#!/bin/sh\n").expect("a file");
    for (program, why) in [
        ("/nonexistent/command", "there is no such file"),
        ("nonexistent-command", "no folder of PATH has it"),
        (&*file.to_string_lossy(), "it is not executable"),
        (&*server.folder.path().to_string_lossy(), "there is no such file"),
    ] {
        // No key is needed to see the mistake.
        for queue in ["q", "missing"] {
            let refused = server.run(&["work", queue, "--", program]).failed(1);
            assert!(refused.contains(&format!("can't run {program}: {why}")), "{refused}");
        }
    }
    assert_eq!((server.count("q", "ready"), server.count("q", "leased")), (1, 0));
}

#[test]
fn a_breaker_pauses_the_worker_until_a_key_succeeds() {
    let server = Server::in_memory();
    let options = r#"{"rate_limiter":{"item_exponential":{"base":"1h","max":"1h"}}}"#;
    server.run(&["queue", "create", "q", "--from", options]).ok();
    add(&server, 4);
    let mut work = Work::start(&server, &["--until-empty", "--breaker", "2"], r#"test "$DELTAQ_KEY" = k3"#);
    work.fails();
    let reported = work.process.log();
    for line in [
        "deltaq: paused for 1s after 2 failures in a row",
        "deltaq: paused for 2s after 3 failures in a row",
        "deltaq: goes on after a key that has succeeded",
        "deltaq: deliveries: 1 acknowledged, 3 failed",
    ] {
        assert!(reported.contains(line), "{line}: {reported}");
    }
}

#[test]
fn a_command_that_releases_its_key_is_no_surprise() {
    let server = Server::in_memory();
    add(&server, 1);
    let script = format!(
        "test -e $DIR/released && exit; touch $DIR/released; {} release q \"$DELTAQ_LEASE\" > $DIR/reply",
        env!("CARGO_BIN_EXE_deltaq")
    );
    let mut work = Work::start(&server, &["--until-empty", "--verbose"], &script);
    work.ends();
    let reported = work.process.log();
    assert!(reported.contains("deltaq: k0: released while its command ran"), "{reported}");
    assert!(!reported.contains("the lease had ended"), "{reported}");
}

#[test]
fn a_closed_queue_ends_the_worker() {
    let server = Server::in_memory();
    add(&server, 3);
    server.run(&["queue", "close", "q"]).ok();
    let mut work = Work::start(&server, &["--concurrency", "2"], "true");
    work.ends();
    assert_eq!(server.count("q", "known"), 3);
}

#[test]
fn restarts_of_the_server_lose_nothing_and_repeat_nothing() {
    const KEYS: usize = 60;
    let mut server = Server::durable();
    add(&server, KEYS);
    let work = Work::start(&server, &["--concurrency", "4"], "echo $DELTAQ_KEY >> $DIR/log; sleep 0.2");
    let log = server.folder.path().join("log");
    for stop in [5, 20, 35, 50] {
        until("keys are worked off", || lines(&log).len() >= stop);
        server.kill();
        std::thread::sleep(Duration::from_millis(300));
        server.start();
    }
    until("all keys are acknowledged", || server.count("q", "known") == KEYS as u64);
    assert_eq!(
        (server.count("q", "ready"), server.count("q", "leased"), server.count("q", "parked")),
        (0, 0, 0)
    );
    let mut runs = BTreeMap::new();
    for key in lines(&log) {
        *runs.entry(key).or_insert(0) += 1;
    }
    assert_eq!(runs.len(), KEYS, "{}", work.process.log());
    // The leases are far longer than the outages, so no key was delivered twice.
    let repeated: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}: {}", work.process.log());
    drop(work);
}
