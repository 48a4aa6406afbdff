//! Watches and conditional changes through a proxy that buffers and compresses replies: Debian's nginx with `proxy_buffering on`, and curl as the client.
//!
//! nginx speaks HTTP/1.0 to the server by default. It then passes nothing on before its buffer is full, unless the reply
//! has `X-Accel-Buffering: no`. Over HTTP/1.1 it passes on each chunk.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::waiting::until;
use crate::system::cli::Server;

/// Far longer than a row takes that is not held back.
const PATIENCE: Duration = Duration::from_mins(1);

/// The program of Debian's package, which is not in the PATH of users.
const NGINX: &str = "/usr/sbin/nginx";

/// A proxy of a server, run by the user of the test.
struct Proxy {
    child: Child,
    address: SocketAddr,
}

impl Proxy {
    fn start(server: &Server) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let folder = server.folder.path().join("nginx");
        std::fs::create_dir(&folder).expect("a folder");
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {}/{name};\n", folder.display()))
            .concat();
        let config = format!(
            "daemon off;
             master_process off;
             pid {folder}/pid;
             error_log {folder}/error.log;
             events {{ worker_connections 64; }}
             http {{
                 access_log off;
                 gzip on;
                 gzip_types application/json;
                 gzip_min_length 1;
                 {temporary}
                 server {{
                     listen {address};
                     location / {{
                         proxy_pass http://{api};
                         proxy_buffering on;
                     }}
                 }}
             }}",
            folder = folder.display(),
            api = server.address,
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, config).expect("a file");
        let mut command = Command::new(NGINX);
        command.arg("-p").arg(&folder).arg("-c").arg(&file).arg("-e").arg(folder.join("error.log"));
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let proxy = Self { child: child.expect("nginx is installed; .ci/run installs it"), address };
        until("nginx accepts connections", || TcpStream::connect(address).is_ok());
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A running `curl -N`.
struct Curl {
    child: Child,
    lines: Receiver<String>,
}

impl Curl {
    fn get(proxy: &Proxy, path: &str, accept: &str) -> Self {
        let mut command = Command::new("curl");
        command.args(["-sSN", "--max-time", "120", "-H", &format!("accept: {accept}")]);
        command.arg(format!("http://{}/v1/queues/prices/{path}", proxy.address));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("curl is installed");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = sync_channel(1_000);
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// The next line that is not blank.
    #[track_caller]
    fn line(&self) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the proxy passes each row on at once");
            if !line.is_empty() {
                return line;
            }
        }
    }

    #[track_caller]
    fn row(&self) -> Value {
        let line = self.line();
        serde_json::from_str(line.strip_prefix("data: ").unwrap_or(&line)).expect("a row")
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn a_proxy_that_buffers_passes_each_row_of_a_stream_on_at_once() {
    let server = Server::in_memory();
    let proxy = Proxy::start(&server);
    server.run(&["add", "prices", "--key", "a", "{}"]).ok();
    let path = "watch?resource_version=0&bookmark=1m";
    let rows = Curl::get(&proxy, path, "application/x-ndjson");
    let events = Curl::get(&proxy, path, "text/event-stream");
    assert_eq!(rows.row()["key"], "a");
    assert_eq!(rows.row()["initial_events_end"], true);
    assert_eq!(events.line(), "retry: 1000");
    let event = || {
        let (id, kind, row) = (events.line(), events.line(), events.row());
        assert!(id.starts_with("id: "), "{id}");
        (kind, row["key"].as_str().map(str::to_owned))
    };
    assert_eq!(event(), ("event: Added".to_owned(), Some("a".to_owned())));
    assert_eq!(event(), ("event: Bookmark".to_owned(), None));
    for key in ["b", "c", "d"] {
        server.run(&["add", "prices", "--key", key, "{}"]).ok();
        assert_eq!(rows.row()["key"], key);
        assert_eq!(event(), ("event: Added".to_owned(), Some(key.to_owned())));
    }
}

#[test]
fn a_long_poll_works_through_a_proxy_that_buffers() {
    let server = Server::durable();
    let proxy = Proxy::start(&server);
    // Version 0 would begin with all keys.
    server.run(&["add", "prices", "--key", "first", "{}"]).ok();
    let mut version = server.count("prices", "resource_version");
    for key in ["a", "b"] {
        let path = format!("watch?resource_version={version}&wait=55s");
        let poll = Curl::get(&proxy, &path, "application/json");
        server.run(&["add", "prices", "--key", key, "{}"]).ok();
        let page: Value = serde_json::from_str(&poll.line()).expect("a page");
        assert_eq!(
            (&page["items"][0]["key"], page["items"].as_array().map(Vec::len)),
            (&key.into(), Some(1))
        );
        version = page["resource_version"].as_u64().expect("a version");
    }
}

/// nginx marks the tag of a reply that it compresses as weak.
#[test]
fn the_tag_of_a_compressed_object_is_accepted() {
    let server = Server::in_memory();
    let proxy = Proxy::start(&server);
    server.json(&["update", "prices", r#"{"key":"a","price":1}"#]);
    let curl = |path: &str, more: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--compressed", "-D", "-"]).args(more);
        let output = command.arg(format!("http://{}/v1/queues/prices/{path}", proxy.address)).output();
        String::from_utf8(output.expect("curl is installed").stdout).expect("text")
    };
    let reply = curl("latest/a", &[]);
    assert!(reply.to_ascii_lowercase().contains("content-encoding: gzip"), "{reply}");
    let headers = reply.lines().filter_map(|line| line.split_once(": "));
    let tags: Vec<&str> =
        headers.filter(|(name, _)| name.eq_ignore_ascii_case("etag")).map(|(_, tag)| tag).collect();
    let [tag] = tags[..] else { panic!("one tag: {reply}") };
    assert!(tag.starts_with("W/"), "{tag}");
    let condition = format!("if-match: {tag}");
    let change = ["-H", condition.as_str(), "--json", r#"{"key":"a","price":2}"#];
    assert!(curl("update", &change).starts_with("HTTP/1.1 200"));
    assert!(curl("update", &change).starts_with("HTTP/1.1 412"));
}
