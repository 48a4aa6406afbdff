//! The servers that Prometheus scrapes: a healthy one with all kinds of load, and one for each fault. One of them is a reflector.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use serde_json::{Value, json};

use super::replica::Replica;
use super::tools::pause;
use super::work::{self, Caller};
use crate::access::tls::Authority;
use crate::chaos::faults::{self, Plan};
use crate::harness::process::{deltaq, finished};
use crate::harness::server::{Spawned, Store};

/// The server without a fault.
pub(super) const HEALTHY: &str = "healthy";
/// The server whose certificate has expired, and whose token will tomorrow.
pub(super) const EXPIRING: &str = "expiring";
/// The reflector of a table.
pub(super) const REPLICA: &str = "replica";
/// The queue of the faulty servers.
const QUEUE: &str = "/v1/queues/q";
/// The error of a failing disk.
const EIO: i32 = 5;
/// More calls than a test makes.
const ALL: u64 = 1_000_000_000;

/// The bytes that the queues of the crowded server may hold.
const HELD_BYTES: usize = 1 << 20;
/// The failures of a key.
const FAILURES: u32 = 12;

/// Notes a backup of this age in a data directory, as `deltaq backup` does.
fn note_backup(store: &Store, age: Duration) {
    let at_us = Clock::system().wall_us() - u64::try_from(age.as_micros()).expect("a short time");
    let at = deltaq_types::Timestamp::from_micros(at_us);
    fs::write(store.path().join("last-backup"), format!("{at}\n")).expect("a file");
}

/// A server with an expired certificate and a token, which expires tomorrow.
fn expiring(authority: &Authority) -> (Spawned, String) {
    let pair = authority.issue_expired("server");
    let tokens = pair.cert.with_file_name("tokens.toml");
    let at = deltaq_types::Timestamp::from_micros(Clock::system().wall_us() + 86_400_000_000);
    let mut command = deltaq(&["token", "monitor", "--verbs", "read", "--queues", "*"]);
    command.args(["--expires", &at.to_string()]).arg("--file").arg(&tokens);
    let token = finished(command, "").ok().trim().to_owned();
    let server = Spawned::start_uncalled(&Store::Memory, |command| {
        command.env("DELTAQ_SERVER__TLS_CERT", &pair.cert).env("DELTAQ_SERVER__TLS_KEY", &pair.key);
        command.env("DELTAQ_ACCESS__TOKENS_FILE", &tokens);
    });
    (server, token)
}

pub(super) struct Scene {
    working: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    servers: Vec<(&'static str, Spawned)>,
    pub(super) replica: Replica,
    /// The token of [`EXPIRING`].
    pub(super) token: String,
    /// While this file exists, the disk fails.
    switch: PathBuf,
    _stores: [Store; 3],
    _authority: Authority,
}

impl Scene {
    pub(super) fn start() -> Self {
        super::tools::require();
        let store = Store::folder("prometheus-healthy");
        let (failing, folder, switch) = faults::place("prometheus-stalled");
        let plan = Plan { kind: "fail", calls: "sync", from: 1, count: ALL, errno: EIO };
        let stalled = Spawned::start_with(&failing, |command| plan.set(command, &folder, Some(&switch)));
        let capped = Spawned::start_with(&Store::Memory, |command| {
            command.env("DELTAQ_SERVER__MAX_CONNECTIONS", "4");
        });
        let secret = tempfile::NamedTempFile::new().expect("a file");
        fs::write(secret.path(), work::HOOK_SECRET).expect("room in the file");
        let healthy = Spawned::start_with(&store, |command| {
            command.env("DELTAQ_HOOKS__SECRETS__GITLAB__FILE", secret.path());
            command.env("DELTAQ_HOOKS__SECRETS__GITLAB__QUEUES", "[\"hooked\"]");
            command.env("DELTAQ_PUSH__ALLOW", "http://127.0.0.1:*");
            command.env("DELTAQ_PUSH__ALLOW_NETWORKS", "127.0.0.1");
        });
        let crowded = Spawned::start_with(&Store::Memory, |command| {
            command.env("DELTAQ_QUEUES__MAX_HELD_BYTES", HELD_BYTES.to_string());
        });
        let backed_up = Store::folder("prometheus-backup");
        let old_backup = Spawned::start(&backed_up);
        for (store, age) in [(&store, Duration::ZERO), (&backed_up, Duration::from_hours(48))] {
            note_backup(store, age);
        }
        let authority = Authority::new();
        let (expiring, token) = expiring(&authority);
        let servers = vec![
            (HEALTHY, healthy),
            ("stuck", Spawned::start(&Store::Memory)),
            ("backlog", Spawned::start(&Store::Memory)),
            ("stalled", stalled),
            ("parked", Spawned::start(&Store::Memory)),
            ("capped", capped),
            ("silent", Spawned::start(&Store::Memory)),
            ("failing-reflector", Spawned::start(&Store::Memory)),
            ("dead-reflector", Spawned::start(&Store::Memory)),
            ("failing-key", Spawned::start(&Store::Memory)),
            ("crowded", crowded),
            ("old-backup", old_backup),
            (EXPIRING, expiring),
        ];
        let (working, stop, stores) = (Vec::new(), Arc::default(), [store, failing, backed_up]);
        let replica = Replica::start();
        let scene =
            Self { working, stop, servers, replica, token, switch, _stores: stores, _authority: authority };
        scene.cause_faults();
        scene
    }

    /// Starts the load. Prometheus must have begun to scrape, or it would miss single events.
    pub(super) fn start_load(&mut self) {
        for task in work::TASKS {
            self.run(HEALTHY, task);
        }
        self.run("backlog", |caller, number| {
            caller.ok("POST", &format!("{QUEUE}/add"), &json!({"key": number.to_string()}));
        });
        self.run("stalled", |caller, _| {
            // The alert counts these replies.
            let _refused = caller.call("POST", &format!("{QUEUE}/add"), &json!({"key": "a"}));
            let _unready = caller.call("GET", "/readyz", &Value::Null);
        });
        self.run("capped", Caller::fill);
        self.run("failing-reflector", |caller, _| work::heartbeat(caller, "q", ("erp", true, false)));
    }

    /// Causes a key that a worker keeps, a key that a worker rejects, and a disk that fails after its first commit.
    fn cause_faults(&self) {
        // The consumers of the load may come before its producers.
        Caller::new(self.address(HEALTHY)).ok("PUT", "/v1/queues/bulk", &json!({}));
        let mut leases = ["stuck", "parked"].map(|server| {
            let mut caller = Caller::new(self.address(server));
            caller.ok("POST", &format!("{QUEUE}/add"), &json!({"key": "a"}));
            let popped = caller.ok("POST", &format!("{QUEUE}/pop?lease_duration=1h"), &Value::Null);
            (caller, popped["items"][0]["lease"]["id"].clone())
        });
        let (caller, lease) = &mut leases[1];
        caller.ok(
            "POST",
            &format!("{QUEUE}/reject"),
            &json!({"lease_ids": [lease], "error": "no such currency"}),
        );
        self.neglect_sources();
        self.fail_a_key();
        let mut caller = Caller::new(self.address("stalled"));
        caller.ok("POST", &format!("{QUEUE}/add"), &json!({"key": "a"}));
        fs::write(&self.switch, "").expect("a file");
    }

    /// Leaves a source silent behind its threshold, a reflector without heartbeats, and a server with little room.
    fn neglect_sources(&self) {
        let mut caller = Caller::new(self.address("silent"));
        caller.ok("POST", &format!("{QUEUE}/add?source=erp"), &json!({"key": "a"}));
        caller.ok("PATCH", &format!("{QUEUE}/sources/erp"), &json!({"stale_after": "1s"}));
        caller.ok("POST", &format!("{QUEUE}/pause"), &Value::Null);
        for server in ["dead-reflector", "failing-reflector"] {
            let mut caller = Caller::new(self.address(server));
            caller.ok("PUT", QUEUE, &json!({}));
            work::heartbeat(&mut caller, "q", ("erp", server == "failing-reflector", false));
        }
        let mut caller = Caller::new(self.address("crowded"));
        let text = "x".repeat(HELD_BYTES / 20);
        for key in 0.. {
            let object = json!({"key": key.to_string(), "text": text});
            if caller.call("POST", &format!("{QUEUE}/add"), &object).0 != 200 {
                break;
            }
        }
    }

    /// Lets a key fail more often than the alert allows. Its last wait is longer than the test.
    fn fail_a_key(&self) {
        let mut caller = Caller::new(self.address("failing-key"));
        caller.ok("POST", &format!("{QUEUE}/add"), &json!({"key": "a"}));
        for number in 0..FAILURES {
            let popped = caller.ok("POST", &format!("{QUEUE}/pop?wait=5s"), &Value::Null);
            let delay = if number + 1 == FAILURES { "1h" } else { "0s" };
            let lease = &popped["items"][0]["lease"]["id"];
            caller.ok("POST", &format!("{QUEUE}/nack"), &json!({"lease_ids": [lease], "delay": delay}));
        }
    }

    /// Repeats a task until the end.
    fn run(&mut self, server: &str, task: impl Fn(&mut Caller, usize) + Send + 'static) {
        let (mut caller, stop) = (Caller::new(self.address(server)), self.stop.clone());
        self.working.push(std::thread::spawn(move || {
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                task(&mut caller, number);
                pause();
            }
        }));
    }

    fn address(&self, server: &str) -> SocketAddr {
        let found = self.servers.iter().find(|(name, _)| *name == server);
        found.expect("a server of the scene").1.api
    }

    /// The servers, by their label `instance`.
    pub(super) fn targets(&self) -> Vec<(&'static str, SocketAddr)> {
        self.servers.iter().map(|(name, server)| (*name, server.api)).collect()
    }

    /// The page of a server's metrics.
    pub(super) fn page(&self, server: &str) -> String {
        Caller::new(self.address(server)).text("/metrics")
    }

    /// The last log lines of the servers.
    pub(super) fn last_words(&self) -> String {
        let words = self.servers.iter().map(|(name, server)| [*name, ":\n", &server.last_words()].concat());
        words.collect::<Vec<_>>().join("\n")
    }

    /// Ends the load. A failed task fails the test.
    pub(super) fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.working.drain(..) {
            task.join().expect("all calls succeed");
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.working.drain(..) {
            let _ended = task.join();
        }
        let _ = fs::remove_file(&self.switch);
    }
}
