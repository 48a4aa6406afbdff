//! Prometheus and promtool as processes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::files;
use crate::harness::blocking::{Connection, Message};
use crate::harness::waiting::until;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of attempts of a query that may need a little more load.
pub(super) const ATTEMPTS: usize = 30;

/// The value of a series.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) labels: Value,
    pub(super) value: f64,
}

/// Fails unless both programs are installed.
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

/// Waits between two attempts.
pub(super) fn pause() {
    std::thread::sleep(PAUSE);
}

/// Runs promtool, which must succeed, and returns its output.
pub(super) fn promtool(arguments: &[&str], input: &str) -> String {
    let (success, output) = try_promtool(arguments, input);
    assert!(success, "promtool {arguments:?}: {output}");
    output
}

/// Runs promtool. Returns whether it succeeds, and its output.
pub(super) fn try_promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("promtool runs");
    let mut stdin = process.stdin.take().expect("a pipe");
    let input = input.to_owned();
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = process.wait_with_output().expect("promtool ends");
    // promtool may end without reading its input.
    let _written = writing.join().expect("the input is written");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// A Prometheus that runs until it is dropped.
pub(super) struct Monitor {
    process: Child,
    log: Option<JoinHandle<String>>,
    address: SocketAddr,
    folder: PathBuf,
}

impl Monitor {
    /// Scrapes these servers with a token, and these reflectors, with the rules of the project, sixty times as fast.
    pub(super) fn start(
        servers: &[(&str, SocketAddr)],
        token: &str,
        reflectors: &[(&str, SocketAddr)],
    ) -> Self {
        require();
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("prometheus-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("deltaq.rules.yml"), files::fast_rules()).expect("a file");
        let configuration = files::configuration(servers, token, reflectors);
        fs::write(folder.join("prometheus.yml"), configuration).expect("a file");
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
        let mut output = String::new();
        let address = loop {
            let begin = output.len();
            let read = log.read_line(&mut output).expect("a line of the log");
            assert!(read > 0, "Prometheus ended before it listened:\n{output}");
            let line = &output[begin..];
            if line.contains("Listening on") {
                let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
                break address.and_then(|address| address.parse().ok()).expect("an address");
            }
        };
        let log = std::thread::spawn(move || {
            let _ended = log.read_to_string(&mut output);
            output
        });
        let monitor = Self { process, log: Some(log), address, folder };
        until("Prometheus", || monitor.get("/-/ready").0 == 200);
        monitor
    }

    /// The present value of an expression, which must be valid.
    pub(super) fn query(&self, expr: &str) -> Vec<Sample> {
        let expr = utf8_percent_encode(expr, NON_ALPHANUMERIC);
        let (status, reply) = self.get(&format!("/api/v1/query?query={expr}"));
        assert_eq!((status, super::text(&reply, "status")), (200, "success"), "{reply}");
        let data = &reply["data"];
        assert_eq!(data["resultType"], "vector", "{reply}");
        let samples = data["result"].as_array().expect("a list").iter().map(|sample| {
            let value = sample["value"][1].as_str().and_then(|value| value.parse().ok()).expect("a number");
            Sample { labels: sample["metric"].clone(), value }
        });
        samples.collect()
    }

    /// The single value of an expression; 0 without a value.
    pub(super) fn number(&self, expr: &str) -> f64 {
        self.query(expr).first().map_or(0.0, |sample| sample.value)
    }

    /// The alert rules that Prometheus has loaded.
    pub(super) fn rules(&self) -> Vec<Value> {
        let (_, mut reply) = self.get("/api/v1/rules");
        let groups = reply["data"]["groups"].as_array_mut().expect("groups");
        groups.iter_mut().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let mut connection = Connection::open(self.address).expect("Prometheus listens");
        let reply = connection.call(&Message::get(path.to_owned())).expect("a reply");
        (reply.status().expect("a status"), serde_json::from_slice(&reply.body).unwrap_or_default())
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
