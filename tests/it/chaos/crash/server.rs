//! The real binary in a process of its own, which tests kill.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::database::Database;
use crate::harness::blocking::{Connection, Message};

/// Longest time that a server may take until it listens.
const START: Duration = Duration::from_mins(1);
/// Number of calls of `/readyz` before the start has failed.
const CALLS_MAX: usize = 100_000;
/// Lets the system choose a port.
const FREE_PORT: &str = "127.0.0.1:0";
/// Number of log lines that are kept for the message of a failure.
const LINES: usize = 40;

/// The store of a server.
#[derive(Debug)]
pub(crate) enum Store {
    /// None: a kill loses everything.
    Memory,
    /// A folder that is removed at the end, unless the test fails.
    Folder(PathBuf),
    /// A folder that this value does not remove.
    Borrowed(PathBuf),
    /// A database of PostgreSQL.
    Postgres(Arc<Database>),
    /// A database that this value does not remove, by its URL.
    Url(String),
}

impl Store {
    /// An empty folder of this test.
    pub(crate) fn folder(test: &str) -> Self {
        let name = format!("crash-{test}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::set_permissions(&folder, Permissions::from_mode(0o700))
            .expect("the folder belongs to this user");
        Self::Folder(folder)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        match self {
            Self::Folder(folder) if std::thread::panicking() => println!("{} is kept", folder.display()),
            Self::Folder(folder) => {
                let _ = std::fs::remove_dir_all(folder);
            }
            Self::Memory | Self::Borrowed(_) | Self::Postgres(_) | Self::Url(_) => {}
        }
    }
}

/// The way to end a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// With SIGKILL.
    Kill,
    /// With SIGTERM, after which the server writes a last checkpoint; with SIGKILL if that takes longer.
    Stop { patience: Duration },
}

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Spawned {
    process: Child,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    /// Receives the address of the API. Closed at the end of the log, which is the end of the process.
    listening: mpsc::Receiver<SocketAddr>,
    /// The address of the API.
    pub(crate) api: SocketAddr,
}

impl Spawned {
    /// Starts a server and waits until it is ready.
    pub(crate) fn start(store: &Store) -> Self {
        Self::start_with(store, |_| {})
    }

    /// As [`start`](Self::start), with a command that `adapt` changes.
    pub(crate) fn start_with(store: &Store, adapt: impl FnOnce(&mut Command)) -> Self {
        Self::start_as(store, Command::new(env!("CARGO_BIN_EXE_deltaq")), adapt)
    }

    /// As [`start_with`](Self::start_with), with a command that runs the binary.
    pub(crate) fn start_as(store: &Store, command: Command, adapt: impl FnOnce(&mut Command)) -> Self {
        let server = Self::launch(store, command, FREE_PORT, adapt);
        server.unwrap_or_else(|server| panic!("the server does not listen:\n{}", server.last_words()))
    }

    /// As [`start_as`](Self::start_as); `None` if the server ends before it is ready.
    pub(crate) fn try_start(
        store: &Store,
        command: Command,
        adapt: impl FnOnce(&mut Command),
    ) -> Option<Self> {
        Self::launch(store, command, FREE_PORT, adapt).ok()
    }

    /// As [`start`](Self::start), at this address.
    pub(crate) fn start_at(store: &Store, address: SocketAddr) -> Self {
        let command = Command::new(env!("CARGO_BIN_EXE_deltaq"));
        let server = Self::launch(store, command, &address.to_string(), |_| {});
        server.unwrap_or_else(|server| panic!("the server does not listen:\n{}", server.last_words()))
    }

    /// As [`start_with`](Self::start_with), but does not wait until the server is ready.
    pub(crate) fn start_unready(store: &Store, adapt: impl FnOnce(&mut Command)) -> Self {
        let server = Self::listens(store, Command::new(env!("CARGO_BIN_EXE_deltaq")), FREE_PORT, adapt);
        server.unwrap_or_else(|server| panic!("the server does not listen:\n{}", server.last_words()))
    }

    fn launch(
        store: &Store,
        command: Command,
        listen: &str,
        adapt: impl FnOnce(&mut Command),
    ) -> Result<Self, Self> {
        let server = Self::listens(store, command, listen, adapt)?;
        if server.becomes_ready() { Ok(server) } else { Err(server) }
    }

    fn listens(
        store: &Store,
        mut command: Command,
        listen: &str,
        adapt: impl FnOnce(&mut Command),
    ) -> Result<Self, Self> {
        command.args(["serve", "--listen", listen, "--metrics-listen", "", "--log-format", "json"]);
        match store {
            Store::Memory => command.arg("--in-memory"),
            Store::Folder(folder) | Store::Borrowed(folder) => command.arg("--data-dir").arg(folder),
            Store::Postgres(database) => command.arg("--store").arg(database.url()),
            Store::Url(url) => command.arg("--store").arg(url),
        };
        adapt(&mut command);
        let command = command.env_remove("RUST_LOG").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary runs");
        let stderr = process.stderr.take().expect("a pipe");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (on_listening, listening) = mpsc::sync_channel(1);
        let lines = log.clone();
        let reader = std::thread::spawn(move || follow(stderr, &lines, &on_listening));
        let api = SocketAddr::from(([127, 0, 0, 1], 0));
        // From here on a panic drops the server, which kills its process.
        let mut server = Self { process, log, reader: Some(reader), listening, api };
        let Ok(api) = server.listening.recv_timeout(START) else {
            let _ = server.process.kill();
            server.reap();
            return Err(server);
        };
        server.api = api;
        Ok(server)
    }

    /// Sends SIGTERM and waits for the end of the process. Returns its exit code and the last lines of its log.
    pub(crate) fn stopped(mut self) -> (Option<i32>, String) {
        let id = self.process.id().to_string();
        let _sent = Command::new("kill").args(["-TERM", &id]).status();
        let status = self.process.wait().expect("a child process");
        self.reap();
        (status.code(), self.last_words())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.expect("there is a kill command").success(), "the signal can't be sent");
    }

    /// Waits until the process has ended by itself. Returns its exit code, or `None` if it still runs after `patience`, and the
    /// last lines of its log.
    pub(crate) fn ends_by_itself(mut self, patience: Duration) -> (Option<i32>, String) {
        // The channel closes when the process ends, a moment before its exit code is there.
        let has_ended = self.listening.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected);
        let status = has_ended.then(|| self.process.wait().expect("a child process"));
        let _ = self.process.kill();
        self.reap();
        (status.and_then(|status| status.code()), self.last_words())
    }

    /// Ends the process and waits for its end. Returns the last lines of its log.
    pub(crate) fn end(mut self, end: End) -> String {
        let ended = self.process.try_wait().expect("a child process");
        assert!(ended.is_none(), "the server has ended by itself: {ended:?}\n{}", self.last_words());
        if let End::Stop { patience } = end {
            let id = self.process.id().to_string();
            let sent = Command::new("kill").args(["-TERM", &id]).status().expect("there is a kill command");
            assert!(sent.success(), "the signal can't be sent");
            // The channel closes when the process ends.
            let _ended = self.listening.recv_timeout(patience);
        }
        let status = self.process.try_wait().expect("a child process");
        assert!(status.is_none_or(|status| status.success()), "{status:?}\n{}", self.last_words());
        let _ = self.process.kill();
        self.reap();
        self.last_words()
    }

    /// The last lines of the log.
    pub(crate) fn last_words(&self) -> String {
        self.log.lock().concat()
    }

    /// Waits until the server is ready. Returns false if it ends before.
    pub(crate) fn becomes_ready(&self) -> bool {
        let ready = Message::get("/readyz".to_owned());
        for _ in 0..CALLS_MAX {
            let answer = Connection::open(self.api).and_then(|mut connection| connection.call(&ready));
            match answer.map(|answer| answer.status()) {
                Ok(Some(200)) => return true,
                Ok(Some(503 | 507)) => std::thread::yield_now(),
                Ok(other) => panic!("/readyz answers {other:?}\n{}", self.last_words()),
                Err(_) => return false,
            }
        }
        panic!("the server does not become ready\n{}", self.last_words());
    }

    fn reap(&mut self) {
        let _ = self.process.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.process.kill();
        self.reap();
    }
}

/// Reads the log to its end, so that the server can continue to write it, and sends the address of the API.
fn follow(stderr: ChildStderr, lines: &Mutex<Vec<String>>, listening: &mpsc::SyncSender<SocketAddr>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = String::new();
    while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
        let parsed: Value = serde_json::from_str(&line).unwrap_or_default();
        if parsed["message"] == "listening"
            && let Some(api) = parsed["api"].as_str().and_then(|api| api.parse().ok())
        {
            let _ = listening.try_send(api);
        }
        let mut lines = lines.lock();
        if lines.len() >= LINES {
            lines.remove(0);
        }
        lines.push(std::mem::take(&mut line));
    }
}
