//! The commands that call a server, as processes against a server of the real binary.

mod commands;
mod coverage;
mod mistakes;
mod options;
mod secure;
mod terminal;
mod work;

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::waiting::until;

/// A server on an address that stays the same when the server is started again.
pub(crate) struct Server {
    child: Option<Child>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    is_durable: bool,
    variables: Vec<(String, PathBuf)>,
}

impl Server {
    /// Starts a server without a journal.
    pub(crate) fn in_memory() -> Self {
        Self::new(false, &[])
    }

    /// Starts a server with a store.
    pub(crate) fn durable() -> Self {
        Self::new(true, &[])
    }

    /// Starts a server without a journal and with these variables.
    pub(crate) fn with_settings(variables: &[(&str, &Path)]) -> Self {
        Self::new(false, variables)
    }

    fn new(is_durable: bool, variables: &[(&str, &Path)]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let folder = tempfile::tempdir().expect("a folder");
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.to_path_buf())).collect();
        let mut server = Self { child: None, folder, address, is_durable, variables };
        server.start();
        server
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_deltaq"));
        command.args(["serve", "--metrics-listen", "", "--log-level", "warn", "--listen"]);
        command.arg(self.address.to_string());
        let ready = self.folder.path().join("ready");
        command.arg("--ready-file").arg(&ready);
        if self.is_durable {
            command.arg("--data-dir").arg(self.folder.path().join("data"));
        } else {
            command.arg("--in-memory");
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let _absent = std::fs::remove_file(&ready);
        let child = command.env_remove("RUST_LOG").stdin(Stdio::null()).spawn().expect("the binary runs");
        self.child = Some(child);
        until("the server is ready", || ready.exists());
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("a running server"), name);
    }

    /// Kills the server without a shutdown.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _reaped = child.wait();
        }
    }

    /// A command against this server.
    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_deltaq"));
        command.args(line).env("DELTAQ_URL", self.address.to_string());
        for name in ["DELTAQ_TOKEN", "DELTAQ_TOKEN_FILE", "NO_COLOR", "RUST_LOG"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command.
    pub(crate) fn run(&self, line: &[&str]) -> Run {
        self.run_with(line, "")
    }

    /// Runs a command with this text on stdin.
    fn run_with(&self, line: &[&str], stdin: &str) -> Run {
        finished(self.command(line), stdin)
    }

    /// The document that a command prints.
    pub(crate) fn json(&self, line: &[&str]) -> Value {
        let line = [line, &["-o", "json"]].concat();
        serde_json::from_str(&self.run(&line).ok()).expect("JSON")
    }

    /// A count of a queue's status.
    pub(crate) fn count(&self, queue: &str, name: &str) -> u64 {
        self.json(&["queue", "get", queue])["status"][name].as_u64().expect("a count")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The output of a successful command.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The error output of a command that ended with this code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.stderr
    }
}

/// Runs a command to its end.
pub(crate) fn finished(mut command: Command, stdin: &str) -> Run {
    let mut child = command.stdin(Stdio::piped()).spawn().expect("the binary runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    let text = stdin.to_owned();
    let writer = std::thread::spawn(move || drop(pipe.write_all(text.as_bytes())));
    let output = child.wait_with_output().expect("output");
    writer.join().expect("the writer ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
