//! `deltaq check`, `backup`, `export` and `import`: the binary on real files, and the SQL of the documentation
//! on the same files.

mod damage;
mod documents;
mod live;
mod refusals;
mod round_trip;
mod sharing;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use crate::harness::blocking::{Connection, Message};
use crate::harness::process::{Run, deltaq, finished};
use crate::harness::server::{End, Spawned, Store};

/// A folder that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("offline-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A store that a server created and closed.
    fn store(&self, name: &str) -> PathBuf {
        let folder = self.path(name);
        Server::start(&folder).stop();
        folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A command with words and paths.
fn command(words: &str, paths: &[&Path]) -> Command {
    let mut command = deltaq(&words.split_whitespace().collect::<Vec<_>>());
    command.args(paths);
    command
}

/// Runs `deltaq` with words, paths and standard input.
fn run_with(words: &str, paths: &[&Path], input: &str) -> Run {
    finished(command(words, paths), input)
}

fn run(words: &str, paths: &[&Path]) -> Run {
    run_with(words, paths, "")
}

fn check(folder: &Path) -> Run {
    run("check --data-dir", &[folder])
}

/// A server on a store.
struct Server(Spawned);

impl Server {
    fn start(folder: &Path) -> Self {
        Self(Spawned::start(&Store::Borrowed(folder.to_owned())))
    }

    fn pid(&self) -> u32 {
        self.0.process.child.id()
    }

    /// Sends a request on its own connection. Returns status and body.
    fn call(&self, method: &'static str, path: &str, body: &str) -> (u16, String) {
        call(self.0.api, method, path, body)
    }

    /// A call on a queue that must succeed.
    #[track_caller]
    fn post(&self, path: &str, body: &str) -> Value {
        let (status, answer) = self.call("POST", &format!("/v1/queues/{path}"), body);
        assert!(status < 300, "{path}: {answer}");
        serde_json::from_str(&answer).unwrap_or_default()
    }

    /// Pops and acknowledges all waiting keys.
    fn work(&self, queue: &str) {
        loop {
            let popped = self.post(&format!("{queue}/pop?max=1000"), "{}");
            let items = popped["items"].as_array().expect("items");
            if items.is_empty() {
                return;
            }
            let leases: Vec<&Value> = items.iter().map(|item| &item["lease"]["id"]).collect();
            self.post(&format!("{queue}/ack"), &serde_json::json!({ "lease_ids": leases }).to_string());
        }
    }

    /// Stops the server cleanly.
    fn stop(self) {
        self.0.stop();
    }

    /// Kills the server.
    fn kill(self) {
        self.0.end(End::Kill);
    }
}

/// Makes a request on a connection of its own. Returns status and body.
fn call(api: SocketAddr, method: &'static str, path: &str, body: &str) -> (u16, String) {
    let content_type = body.starts_with("{\"key\"").then_some("application/x-ndjson");
    let message = Message { method, path: path.to_owned(), content_type, body: body.to_owned() };
    let reply = Connection::open(api).and_then(|mut connection| connection.call(&message));
    let reply = reply.expect("a reply");
    (reply.status().expect("a status"), String::from_utf8(reply.body).expect("text"))
}

/// A store with every kind of row, after a kill.
fn full_store(scratch: &Scratch, name: &str) -> PathBuf {
    let folder = scratch.path(name);
    let server = Server::start(&folder);
    server.post("prices/add?source=erp", r#"[{"key":"sku-1","price":10},{"key":"sku-2","price":7}]"#);
    server.work("prices");
    server.post("prices/update", r#"{"key":"sku-1","price":12}"#);
    server.post("prices/add", r#"{"key":"gone","price":1}"#);
    server.post("prices/purge", "");
    server.post("prices/update", r#"{"key":"sku-2","price":8}"#);
    server.post("stock/add", r#"{"key":"sku-1","left":3}"#);
    server.post("old/add", r#"{"key":"x"}"#);
    assert_eq!(server.call("DELETE", "/v1/queues/old", "").0, 204);
    server.stop();
    // Some rows must be behind the checkpoint.
    let server = Server::start(&folder);
    server.post("prices/add", r#"{"key":"sku-3","price":5}"#);
    server.post("prices/add", r#"{"key":"sku-4","price":5}"#);
    server.kill();
    folder
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("a folder");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

async fn open(folder: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(folder.join("deltaq.db"));
    SqliteConnection::connect_with(&options).await.expect("a database")
}

/// Changes the database directly.
async fn change(folder: &Path, text: &str) {
    let mut connection = open(folder).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(&mut connection).await.expect(text);
    connection.close().await.expect("a database");
}
