//! The commands that call a server, as processes against a server of the real binary.

mod apply;
mod commands;
mod coverage;
mod everywhere;
mod hooks;
mod mistakes;
mod options;
mod secure;
mod selecting;
mod terminal;
mod work;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::process::{Run, deltaq, finished};
use crate::harness::server::{Spawned, Store};

/// A server on an address that stays the same when the server is started again.
pub(crate) struct Server {
    running: Option<Spawned>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    store: Store,
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
        let folder = tempfile::tempdir().expect("a folder");
        let store = if is_durable { Store::Borrowed(folder.path().join("data")) } else { Store::Memory };
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.to_path_buf())).collect();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { running: None, folder, address: any, store, variables };
        server.start();
        server
    }

    pub(crate) fn start(&mut self) {
        let running = Spawned::start_at(&self.store, self.address, |command| {
            command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        });
        self.address = running.api;
        self.running = Some(running);
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, name: &str) {
        self.running.as_ref().expect("a running server").signal(name);
    }

    /// Stops the server until SIGCONT. It replies to nothing after this has returned.
    pub(crate) fn freeze(&self) {
        self.running.as_ref().expect("a running server").freeze();
    }

    /// Kills the server without a shutdown.
    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    /// A command against this server.
    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = deltaq(line);
        command.env("DELTAQ_URL", self.address.to_string());
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

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
