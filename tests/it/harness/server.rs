//! `deltaq serve` in a process of its own.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::blocking::{Connection, Message};
use super::process::{Process, deltaq};
use super::waiting::{found, tried};

/// Lets the system choose a port.
const FREE_PORT: &str = "127.0.0.1:0";
/// Number of log lines in the message of a failure.
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

    /// The path of a folder.
    pub(crate) fn path(&self) -> &Path {
        let (Self::Folder(path) | Self::Borrowed(path)) = self else { unreachable!("the store is a folder") };
        path
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        match self {
            Self::Folder(folder) if std::thread::panicking() => println!("{} is kept", folder.display()),
            Self::Folder(folder) => {
                let _ = std::fs::remove_dir_all(folder);
            }
            Self::Memory | Self::Borrowed(_) | Self::Url(_) => {}
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
    pub(crate) process: Process,
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
        Self::start_as(store, deltaq(&[]), adapt)
    }

    /// As [`start_with`](Self::start_with), with a command that runs the binary.
    pub(crate) fn start_as(store: &Store, command: Command, adapt: impl FnOnce(&mut Command)) -> Self {
        let server = Self::try_start(store, command, FREE_PORT, adapt);
        server.unwrap_or_else(|log| panic!("the server does not listen:\n{log}"))
    }

    /// As [`start_with`](Self::start_with), but makes no call to find out whether the server is ready: it may speak TLS, or be a node without
    /// partitions. A server alone is ready once it says that it listens.
    pub(crate) fn start_uncalled(store: &Store, adapt: impl FnOnce(&mut Command)) -> Self {
        Self::start_at(store, SocketAddr::from(([127, 0, 0, 1], 0)), adapt)
    }

    /// As [`start_uncalled`](Self::start_uncalled), at this address.
    pub(crate) fn start_at(store: &Store, address: SocketAddr, adapt: impl FnOnce(&mut Command)) -> Self {
        let server = Self::listens(store, deltaq(&[]), &address.to_string(), adapt);
        server.unwrap_or_else(|log| panic!("the server does not listen:\n{log}"))
    }

    /// Starts a server and waits until it is ready. An error is the log of a server that has ended before.
    pub(crate) fn try_start(
        store: &Store,
        command: Command,
        listen: &str,
        adapt: impl FnOnce(&mut Command),
    ) -> Result<Self, String> {
        let server = Self::listens(store, command, listen, adapt)?;
        if server.becomes_ready() { Ok(server) } else { Err(server.last_words()) }
    }

    /// As [`start_with`](Self::start_with), at an address that is known before.
    pub(crate) fn start_known(store: &Store, address: SocketAddr, adapt: impl FnOnce(&mut Command)) -> Self {
        let server = Self::try_start(store, deltaq(&[]), &address.to_string(), adapt);
        server.unwrap_or_else(|log| panic!("the server does not listen:\n{log}"))
    }

    /// Starts a server at this address, and does not wait for anything.
    pub(crate) fn begin(store: &Store, address: SocketAddr, adapt: impl FnOnce(&mut Command)) -> Self {
        Self { api: address, ..Self::spawn(store, deltaq(&[]), &address.to_string(), adapt) }
    }

    fn listens(
        store: &Store,
        command: Command,
        listen: &str,
        adapt: impl FnOnce(&mut Command),
    ) -> Result<Self, String> {
        let mut server = Self::spawn(store, command, listen, adapt);
        let ready = server.process.folder().join("ready");
        let has_ended = found(|| {
            let text = std::fs::read_to_string(&ready).unwrap_or_default();
            let addresses: Value = serde_json::from_str(&text).unwrap_or_default();
            if let Some(api) = addresses["api"].as_str() {
                server.api = api.parse().expect("an address");
                return Ok(false);
            }
            server.process.status().map(|_| true).ok_or("the server listens")
        });
        if has_ended { Err(server.last_words()) } else { Ok(server) }
    }

    fn spawn(store: &Store, mut command: Command, listen: &str, adapt: impl FnOnce(&mut Command)) -> Self {
        command.args(["serve", "--listen", listen, "--log-format", "json"]);
        command.env("DELTAQ_SERVER__METRICS_LISTEN", "");
        match store {
            Store::Memory => command.arg("--in-memory"),
            Store::Folder(folder) | Store::Borrowed(folder) => command.arg("--data-dir").arg(folder),
            Store::Url(url) => command.arg("--store").arg(url),
        };
        let process = Process::start(command, |command, folder| {
            command.arg("--ready-file").arg(folder.join("ready"));
            adapt(command);
        });
        Self { process, api: SocketAddr::from(([127, 0, 0, 1], 0)) }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Stops the process until SIGCONT. It replies to nothing after this has returned.
    pub(crate) fn freeze(&self) {
        self.process.freeze();
    }

    /// Waits until the process has ended. Returns its exit code and the last lines of its log.
    #[track_caller]
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let status = self.process.ended();
        (status.code(), self.last_words())
    }

    /// Stops the server, which must end cleanly, and returns its log.
    #[track_caller]
    pub(crate) fn stop(self) -> String {
        self.process.stop()
    }

    /// Ends the process and waits for its end. Returns the last lines of its log.
    pub(crate) fn end(mut self, end: End) -> String {
        let ended = self.process.status();
        assert!(ended.is_none(), "the server has ended by itself: {ended:?}\n{}", self.last_words());
        if let End::Stop { patience } = end {
            self.signal("TERM");
            let _ended = tried(patience, || self.process.status().ok_or(()));
        }
        let status = self.process.status();
        assert!(status.is_none_or(|status| status.success()), "{status:?}\n{}", self.last_words());
        self.process.kill();
        self.last_words()
    }

    /// The last lines of the log.
    pub(crate) fn last_words(&self) -> String {
        let log = self.process.log();
        let lines: Vec<&str> = log.split_inclusive('\n').collect();
        lines[lines.len().saturating_sub(LINES)..].concat()
    }

    /// Waits until the server is ready. Returns false if it ends before.
    pub(crate) fn becomes_ready(&self) -> bool {
        let ready = Message::get("/readyz".to_owned());
        found(|| {
            let answer = Connection::open(self.api).and_then(|mut connection| connection.call(&ready));
            match answer.map(|answer| answer.status()) {
                Ok(Some(200)) => Ok(true),
                Ok(Some(503 | 507)) => Err("the server is ready"),
                Ok(other) => panic!("/readyz answers {other:?}\n{}", self.last_words()),
                Err(_) => Ok(false),
            }
        })
    }

    /// Sends a request on a connection of its own. Returns the status and the body.
    pub(crate) fn call(&self, message: &Message) -> (u16, String) {
        let reply = Connection::open(self.api).and_then(|mut connection| connection.call(message));
        let reply = reply.expect("a reply");
        (reply.status().expect("a status"), String::from_utf8(reply.body).expect("text"))
    }
}
