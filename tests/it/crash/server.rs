//! The real binary in a process of its own, which is killed without a warning.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::wire::{Connection, Message};

/// Longest time that a server may take until it listens.
const START: Duration = Duration::from_mins(1);
/// How many times a server is asked whether it is ready.
const LOOKS: usize = 100_000;
/// How many of the last lines of the log are kept, to be shown when something is wrong.
const LINES: usize = 40;

/// Where a server keeps what it is told.
#[derive(Debug)]
pub(crate) enum Store {
    /// Nowhere: a kill loses all of it.
    Memory,
    /// In this folder, which goes with it unless the test fails.
    Folder(PathBuf),
    /// In this folder, which somebody else looks after.
    Elsewhere(PathBuf),
}

impl Store {
    /// An empty folder of this test.
    pub(crate) fn folder(test: &str) -> Self {
        let name = format!("crash-{test}-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("the folder is ours");
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
            Self::Memory | Self::Elsewhere(_) => {}
        }
    }
}

/// How a server ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// As by a failing machine.
    Kill,
    /// It is told to stop, which lets it write a last checkpoint; it is killed if that takes longer.
    Stop { patience: Duration },
}

/// A server that runs until it is killed, or dropped, which is the same.
#[derive(Debug)]
pub(crate) struct Spawned {
    process: Child,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    /// Tells where it listens; closed when its log has ended, which it does with the process.
    heard: mpsc::Receiver<SocketAddr>,
    /// Where it listens.
    pub(crate) api: SocketAddr,
}

impl Spawned {
    /// Starts a server and waits until it is ready.
    pub(crate) fn start(store: &Store) -> Self {
        Self::start_with(store, |_| {})
    }

    /// The same, with a command that `adapt` has changed.
    pub(crate) fn start_with(store: &Store, adapt: impl FnOnce(&mut Command)) -> Self {
        Self::start_as(store, Command::new(env!("CARGO_BIN_EXE_deltaq")), adapt)
    }

    /// The same, with a command that runs the binary in its own way.
    pub(crate) fn start_as(store: &Store, command: Command, adapt: impl FnOnce(&mut Command)) -> Self {
        let server = Self::launch(store, command, adapt);
        server.unwrap_or_else(|server| panic!("the server does not listen:\n{}", server.last_words()))
    }

    /// The same; none if the server ends before it is ready.
    pub(crate) fn try_start(
        store: &Store,
        command: Command,
        adapt: impl FnOnce(&mut Command),
    ) -> Option<Self> {
        Self::launch(store, command, adapt).ok()
    }

    fn launch(store: &Store, mut command: Command, adapt: impl FnOnce(&mut Command)) -> Result<Self, Self> {
        command.args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--log-format", "json"]);
        match store {
            Store::Memory => command.arg("--in-memory"),
            Store::Folder(folder) | Store::Elsewhere(folder) => command.arg("--data-dir").arg(folder),
        };
        adapt(&mut command);
        let command = command.env_remove("RUST_LOG").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary runs");
        let stderr = process.stderr.take().expect("a pipe");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (listening, heard) = mpsc::sync_channel(1);
        let lines = log.clone();
        let reader = std::thread::spawn(move || follow(stderr, &lines, &listening));
        let api = SocketAddr::from(([127, 0, 0, 1], 0));
        // From here on a panic drops the server, which ends its process.
        let mut server = Self { process, log, reader: Some(reader), heard, api };
        let Ok(api) = server.heard.recv_timeout(START) else {
            let _ = server.process.kill();
            server.reap();
            return Err(server);
        };
        server.api = api;
        if server.is_ready_in_the_end() { Ok(server) } else { Err(server) }
    }

    /// Tells the process to stop and waits for its end; whether something else ended it.
    pub(crate) fn ends_otherwise_than_told(mut self) -> bool {
        let id = self.process.id().to_string();
        let _told = Command::new("kill").args(["-TERM", &id]).status();
        let status = self.process.wait().expect("the process is ours");
        self.reap();
        !status.success()
    }

    /// Ends the process and waits until nothing of it is left. Returns its last words.
    pub(crate) fn end(mut self, end: End) -> String {
        let ended = self.process.try_wait().expect("the process is ours");
        assert!(ended.is_none(), "the server has ended by itself: {ended:?}\n{}", self.last_words());
        if let End::Stop { patience } = end {
            let id = self.process.id().to_string();
            let told = Command::new("kill").args(["-TERM", &id]).status().expect("there is a kill command");
            assert!(told.success(), "the server can't be told to stop");
            // Nothing is said any more; the channel closes when the process ends.
            let _ended = self.heard.recv_timeout(patience);
        }
        let status = self.process.try_wait().expect("the process is ours");
        assert!(status.is_none_or(|status| status.success()), "{status:?}\n{}", self.last_words());
        let _ = self.process.kill();
        self.reap();
        self.last_words()
    }

    /// The last lines of the log.
    pub(crate) fn last_words(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).concat()
    }

    /// Waits until it is ready; whether it lives to be.
    fn is_ready_in_the_end(&self) -> bool {
        let ready = Message::get("/readyz".to_owned());
        for _ in 0..LOOKS {
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

/// Reads the log to its end, so that the server can go on writing it, and tells where it listens.
fn follow(stderr: ChildStderr, lines: &Mutex<Vec<String>>, listening: &mpsc::SyncSender<SocketAddr>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = String::new();
    while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        if said["message"] == "listening"
            && let Some(api) = said["api"].as_str().and_then(|api| api.parse().ok())
        {
            let _ = listening.try_send(api);
        }
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= LINES {
            lines.remove(0);
        }
        lines.push(std::mem::take(&mut line));
    }
}
