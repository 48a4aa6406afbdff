//! The cost of observability and access control. The same load runs alternately on a server with metrics, tokens, an audit log and
//! a log line per request, and on a server with none of these.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deltaq::access::digest_text;
use deltaq_runtime::clock::Clock;

use crate::spawned::{Connection, Spawned};

/// Connections, each of which waits for its reply before it continues.
const CONNECTIONS: usize = 32;
/// Number and length of the measurements of each server.
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_secs(3);
const TOKEN: &str = "dq_0000000000000000000000000000000000000000000000000000000000000000";

/// Measures both servers alternately.
pub(crate) fn run() {
    let clock = Clock::system();
    for (name, in_memory) in [("in memory", true), ("with an fsync before each reply", false)] {
        let (full, bare) = (Measured::full(in_memory), Measured::bare(in_memory));
        let mut rates = (Vec::new(), Vec::new());
        // The first round warms the servers up and is not counted.
        for round in 0..=ROUNDS {
            let pair = (full.cycles(&clock), bare.cycles(&clock));
            if round > 0 {
                rates.0.push(pair.0);
                rates.1.push(pair.1);
            }
        }
        let mut ratios: Vec<f64> = rates.0.iter().zip(&rates.1).map(|(on, off)| on / off).collect();
        let (on, off) = (median(&mut rates.0), median(&mut rates.1));
        println!(
            "{name}, {CONNECTIONS} connections: {on:.0} cycles/s with all of these, {off:.0} with none, median ratio of {ROUNDS} rounds {:.3}",
            median(&mut ratios)
        );
        println!("  the log of the first server has {} MiB", full.server.log().len() >> 20);
    }
}

/// A server and the headers of its requests.
struct Measured {
    server: Spawned,
    headers: String,
    folder: PathBuf,
    next: AtomicU64,
}

impl Measured {
    fn full(in_memory: bool) -> Self {
        let tokens = format!(
            "[{{ name = \"bench\", sha256 = \"{}\", grants = [{{ verbs = [\"produce\", \"consume\"], queues = [\"*\"] }}] }}]",
            digest_text(TOKEN)
        );
        let settings = [
            ("DELTAQ_ACCESS__TOKENS", tokens),
            ("DELTAQ_LOG__LEVEL", "info".to_owned()),
            ("DELTAQ_AUDIT__CALLS", "admin".to_owned()),
        ];
        Self::start(in_memory, "full", &settings, format!("authorization: Bearer {TOKEN}\r\n"))
    }

    fn bare(in_memory: bool) -> Self {
        let settings =
            [("DELTAQ_METRICS__ENABLED", "false".to_owned()), ("DELTAQ_LOG__LEVEL", "off".to_owned())];
        Self::start(in_memory, "bare", &settings, String::new())
    }

    fn start(in_memory: bool, name: &str, settings: &[(&str, String)], headers: String) -> Self {
        let folder =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cost-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let server = Spawned::start_with(|command| {
            if in_memory {
                command.arg("--in-memory");
            } else {
                command.arg("--data-dir").arg(folder.join("data"));
            }
            if name == "full" {
                command.env("DELTAQ_AUDIT__FILE", folder.join("audit.jsonl"));
            }
            command.envs(settings.iter().map(|(name, value)| (name, value)));
        });
        Self { server, headers, folder, next: AtomicU64::new(0) }
    }

    /// Cycles per second: an add, and a pop that settles the previous lease.
    fn cycles(&self, clock: &Clock) -> f64 {
        let until_us = clock.monotonic_us() + u64::try_from(ROUND.as_micros()).expect("a short time");
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| {
                    let mut connection = self.server.connect();
                    connection.headers.clone_from(&self.headers);
                    let mut settle = String::new();
                    while clock.monotonic_us() < until_us {
                        self.cycle(&mut connection, &mut settle);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    connection.call("POST", "/v1/queues/bench/settle", &body(&settle));
                });
            }
        });
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let done = done.load(Ordering::Relaxed) as f64;
        done / ROUND.as_secs_f64()
    }

    fn cycle(&self, connection: &mut Connection, lease: &mut String) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let object = format!("{{\"key\":\"{number}\",\"text\":\"{}\"}}", "x".repeat(200));
        connection.call("POST", "/v1/queues/bench/add", &object);
        let popped = connection.call("POST", "/v1/queues/bench/pop?wait=10s", &body(lease));
        let id = popped.pointer("/items/0/lease/id").and_then(serde_json::Value::as_str);
        id.unwrap_or_default().clone_into(lease);
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}

fn body(lease: &str) -> String {
    if lease.is_empty() {
        return "{\"settle\":[]}".to_owned();
    }
    format!("{{\"settle\":[{{\"lease_id\":\"{lease}\",\"as\":\"ack\"}}]}}")
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
