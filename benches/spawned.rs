//! A server in a process of its own, its resource usage from `/proc`, and requests over plain sockets.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

/// Timeout of a reply, far longer than any reply takes.
const REPLY_TIMEOUT: Duration = Duration::from_mins(2);
/// Interval of the checks whether a server is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A server that runs until it is dropped.
pub(crate) struct Spawned {
    pub(crate) process: Child,
    /// The folder of the log and of the ready file.
    folder: PathBuf,
    /// The address that the server listens on.
    pub(crate) address: String,
}

impl Spawned {
    /// Starts a server on a free port. `storage` is `--in-memory`, or `--data-dir` and a folder; all other settings have
    /// their defaults. The log goes to a file.
    pub(crate) fn start(storage: &[&str]) -> Self {
        Self::start_with(|command| {
            command.args(storage);
        })
    }

    /// Starts a server with the arguments and environment that `adapt` adds to the command.
    pub(crate) fn start_with(adapt: impl FnOnce(&mut Command)) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("server-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let (ready, log) = (folder.join("ready"), File::create(folder.join("log")).expect("a file"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_deltaq"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--log-format", "json"]);
        adapt(command.arg("--ready-file").arg(&ready).stderr(log));
        let process = command.spawn().expect("the binary runs");
        let mut server = Self { process, folder, address: String::new() };
        while server.address.is_empty() {
            let ended = server.process.try_wait().expect("a child");
            assert!(ended.is_none(), "the server ended: {}", server.log());
            let text = std::fs::read_to_string(&ready).unwrap_or_default();
            let addresses: Value = serde_json::from_str(&text).unwrap_or_default();
            addresses.get("api").and_then(Value::as_str).unwrap_or_default().clone_into(&mut server.address);
            std::thread::sleep(POLL_INTERVAL);
        }
        server
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// A line of `/proc/PID/status`, in bytes: `VmRSS:` is the resident memory, `VmHWM:` its peak.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the status has this line");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }

    /// A file of `/proc/PID`.
    pub(crate) fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.process.id())).expect("Linux has /proc")
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.address)
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}

/// A persistent connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) host: String,
    /// Additional header lines of each request, each with its CRLF.
    pub(crate) headers: String,
}

impl Connection {
    fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a socket");
        Self { stream, host: address.to_owned(), headers: String::new() }
    }

    /// Sends a request with a JSON body and does not wait for the reply.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) {
        let (host, headers, bytes) = (&self.host, &self.headers, body.len());
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}");
        let _ = write!(text, "content-type: application/json\r\ncontent-length: {bytes}\r\n\r\n{body}");
        self.stream.write_all(text.as_bytes()).expect("the request is sent");
    }

    /// Reads a reply, which must be a 200 or 201 with a JSON document.
    pub(crate) fn reply(&mut self) -> Value {
        serde_json::from_slice(&self.body()).expect("JSON")
    }

    /// Reads a reply, which must be a 200 or 201, and returns its body.
    pub(crate) fn body(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        let (head, length) = loop {
            let read = self.stream.read(&mut buffer).expect("a reply");
            assert!(read > 0, "the connection ended: {}", String::from_utf8_lossy(&text));
            text.extend(buffer.iter().take(read));
            if let Some(found) = body_of(&text) {
                break found;
            }
        };
        let missing = (head + length).saturating_sub(text.len());
        let mut rest = vec![0; missing];
        self.stream.read_exact(&mut rest).expect("the rest of the reply");
        text.extend(rest);
        let (head, body) = text.split_at(head);
        let head = String::from_utf8_lossy(head);
        assert!(
            ["HTTP/1.1 200 ", "HTTP/1.1 201 "].iter().any(|status| head.starts_with(status)),
            "{head}{}",
            String::from_utf8_lossy(body)
        );
        body.to_vec()
    }

    /// Sends a request and reads the reply.
    pub(crate) fn call(&mut self, method: &str, path: &str, body: &str) -> Value {
        self.send(method, path, body);
        self.reply()
    }
}

/// The start and the length of the body, once the head is complete.
fn body_of(text: &[u8]) -> Option<(usize, usize)> {
    let head = text.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let fields = String::from_utf8_lossy(text.get(..head)?).to_ascii_lowercase();
    let length = fields.lines().find_map(|line| line.strip_prefix("content-length:"));
    Some((head, length.expect("a length").trim().parse().expect("a number")))
}

/// The percentile `share` (0 to 1) of sorted durations, in milliseconds.
pub(crate) fn percentile_ms(sorted: &[u64], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a short list"
    )]
    let index = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
    millis(sorted.get(index).copied().unwrap_or_default())
}

/// Microseconds as milliseconds.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn millis(micros: u64) -> f64 {
    micros as f64 / 1e3
}
