//! Prometheus and promtool as processes, and what they answer.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use deltaq::clock::Clock;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::files;

/// Longest time for something that must come.
const PATIENCE: Duration = Duration::from_secs(50);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// How often a query is repeated that may need a little more work.
pub(super) const LOOKS: usize = 30;

/// A series at an instant.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) labels: Value,
    pub(super) value: f64,
}

/// Fails unless both programs are there.
pub(super) fn require() {
    for program in ["prometheus", "promtool"] {
        let found =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(
            found.is_ok_and(|status| status.success()),
            "{program} is not installed: `apt-get install --no-install-recommends prometheus` (its service \
             need not run), or .ci/run, which installs all that the tests need"
        );
    }
}

/// Waits between two looks.
pub(super) fn pause() {
    std::thread::sleep(LOOK);
}

/// Waits for `reached`.
pub(super) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let clock = Clock::system();
    let begun_us = clock.monotonic_us();
    while !reached() {
        assert!(clock.since(begun_us) < PATIENCE, "{what} does not come");
        pause();
    }
}

/// Runs promtool, which must succeed; what it says.
pub(super) fn promtool(arguments: &[&str], input: &str) -> String {
    let (success, said) = try_promtool(arguments, input);
    assert!(success, "promtool {arguments:?}: {said}");
    said
}

/// Whether promtool succeeds, and what it says.
pub(super) fn try_promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("promtool runs");
    let mut stdin = process.stdin.take().expect("a pipe");
    let input = input.to_owned();
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = process.wait_with_output().expect("promtool ends");
    // It may have ended without reading all.
    let _written = writing.join().expect("the input is written");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// A Prometheus that runs until it is dropped.
pub(super) struct Monitor {
    process: Child,
    log: Option<JoinHandle<String>>,
    address: SocketAddr,
    folder: PathBuf,
}

impl Monitor {
    /// Watches these servers, by the rules of the project, sixty times as fast.
    pub(super) fn start(targets: &[(&str, SocketAddr)]) -> Self {
        require();
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("prometheus-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("deltaq.rules.yml"), files::fast_rules()).expect("a file");
        fs::write(folder.join("prometheus.yml"), files::configuration(targets)).expect("a file");
        let mut process = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("prometheus runs");
        let mut log = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut said = String::new();
        let address = loop {
            let begin = said.len();
            let read = log.read_line(&mut said).expect("a line of the log");
            assert!(read > 0, "Prometheus ended before it listened:\n{said}");
            let line = &said[begin..];
            if line.contains("Listening on") {
                let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
                break address.and_then(|address| address.parse().ok()).expect("an address");
            }
        };
        let log = std::thread::spawn(move || {
            let _ended = log.read_to_string(&mut said);
            said
        });
        let monitor = Self { process, log: Some(log), address, folder };
        until("Prometheus", || monitor.get("/-/ready").0 == 200);
        monitor
    }

    /// What an expression is now. It must be one.
    pub(super) fn query(&self, expr: &str) -> Vec<Sample> {
        let expr = utf8_percent_encode(expr, NON_ALPHANUMERIC);
        let (status, answer) = self.get(&format!("/api/v1/query?query={expr}"));
        assert_eq!((status, super::text(&answer, "status")), (200, "success"), "{answer}");
        let data = &answer["data"];
        assert_eq!(data["resultType"], "vector", "{answer}");
        let samples = data["result"].as_array().expect("a list").iter().map(|sample| {
            let value = sample["value"][1].as_str().and_then(|value| value.parse().ok()).expect("a number");
            Sample { labels: sample["metric"].clone(), value }
        });
        samples.collect()
    }

    /// The one value of an expression; 0 if there is none yet.
    pub(super) fn number(&self, expr: &str) -> f64 {
        self.query(expr).first().map_or(0.0, |sample| sample.value)
    }

    /// The alert rules as Prometheus has taken them.
    pub(super) fn rules(&self) -> Vec<Value> {
        let (_, mut answer) = self.get("/api/v1/rules");
        let groups = answer["data"]["groups"].as_array_mut().expect("groups");
        groups.iter_mut().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
    }

    /// HTTP/1.0, so that the answer comes in one piece.
    fn get(&self, path: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).expect("Prometheus listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").expect("Prometheus reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or_default())
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let log = self.log.take().and_then(|log| log.join().ok()).unwrap_or_default();
        if std::thread::panicking() {
            println!("{} is kept; Prometheus said:\n{log}", self.folder.display());
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
