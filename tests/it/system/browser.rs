//! An unmodified `EventSource` in a real Chromium, over restarts of the server. Debian's package is `chromium`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use serde_json::Value;

use crate::harness::process::{deltaq, finished};
use crate::harness::waiting::until;
use crate::system::cli::Server;

/// A page that reports every event of its `EventSource`.
const PAGE: &str = r#"<!doctype html>
<meta charset="utf-8">
<script>
const source = new EventSource("/v1/queues/prices/watch?resource_version=0&bookmark=1s");
const events = [];
let sent = 0, isSending = false;
async function report(event) {
    events.push(event);
    if (isSending) return;
    isSending = true;
    while (sent < events.length) {
        const batch = events.slice(sent);
        await fetch("/report", { method: "POST", body: JSON.stringify(batch) });
        sent += batch.length;
    }
    isSending = false;
}
for (const type of ["Added", "Updated", "Deleted", "Bookmark", "Error", "Expired"]) {
    source.addEventListener(type, event => report({ type, row: JSON.parse(event.data) }));
}
source.onerror = () => report({ type: "disconnected", state: source.readyState });
</script>
"#;

/// A web server with the page, behind which the API has the same origin.
struct Site {
    address: SocketAddr,
    /// What the page has reported.
    events: Arc<Mutex<Vec<Value>>>,
    /// Whether requests reach the API. An `EventSource` ends at a reply such as 503, but not at a lost connection.
    is_open: Arc<AtomicBool>,
}

impl Site {
    fn start(api: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (events, is_open) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::new(AtomicBool::new(true)));
        let site = Self { address, events: events.clone(), is_open: is_open.clone() };
        thread::spawn(move || {
            for browser in listener.incoming().flatten() {
                let (events, is_open) = (events.clone(), is_open.clone());
                thread::spawn(move || {
                    // A connection that breaks is a part of the test.
                    let _broken = serve(&browser, api, &events, &is_open);
                    let _closed = browser.shutdown(Shutdown::Both);
                });
            }
        });
        site
    }

    fn events(&self) -> Vec<Value> {
        self.events.lock().clone()
    }

    /// Whether the page has got a row of this key.
    fn has(&self, key: &str) -> bool {
        self.events().iter().any(|event| event["row"]["key"] == key)
    }
}

/// Answers the first request of a connection.
fn serve(
    mut browser: &TcpStream,
    api: SocketAddr,
    events: &Mutex<Vec<Value>>,
    is_open: &AtomicBool,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(browser);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let begin = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
        let line = head[begin..].to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        if line.starts_with("connection:") {
            head.truncate(begin);
        }
        if line == "\r\n" {
            head.truncate(begin);
            break;
        }
    }
    if head.starts_with("GET /v1/") {
        if !is_open.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut server = TcpStream::connect(api)?;
        write!(server, "{head}connection: close\r\n\r\n")?;
        std::io::copy(&mut server, &mut browser)?;
        return Ok(());
    }
    let (status, body) = match head.split(' ').nth(1) {
        Some("/") => ("200 OK", PAGE),
        Some("/report") => {
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let batch: Vec<Value> = serde_json::from_slice(&body).expect("a list of events");
            events.lock().extend(batch);
            ("200 OK", "")
        }
        _ => ("404 Not Found", ""),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {}", body.len());
    write!(browser, "{head}\r\nconnection: close\r\n\r\n{body}")
}

struct Browser(Child);

impl Browser {
    fn open(site: &Site, server: &Server) -> Self {
        let mut command = Command::new("chromium");
        // The sandbox of Chromium does not run as root, as in CI.
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--no-first-run", "--remote-debugging-port=0"]);
        command.arg(format!("--user-data-dir={}", server.folder.path().join("browser").display()));
        command.arg(format!("http://{}/", site.address));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("chromium is installed; .ci/run installs it"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Adds new keys, one call after the other, until a call fails. Returns the keys of the calls that succeeded.
fn add_until_failure(mut command: impl FnMut(&str) -> Command, prefix: &str) -> Vec<String> {
    let mut added = Vec::new();
    loop {
        let key = format!("{prefix}-{}", added.len());
        if finished(command(&key), "").code != Some(0) {
            return added;
        }
        added.push(key);
    }
}

#[test]
fn an_event_source_loses_and_repeats_nothing_over_restarts() {
    let mut server = Server::durable();
    let site = Site::start(server.address);
    server.run(&["add", "prices", "--key", "first", "{}"]).ok();
    let _browser = Browser::open(&site, &server);
    until("the page has the first key", || site.has("first"));
    let mut added = vec!["first".to_owned()];
    for cycle in 0..3 {
        let template = server.address.to_string();
        let prefix = format!("c{cycle}");
        let writer = thread::spawn(move || {
            let add = |key: &str| deltaq(&["add", "prices", "--key", key, "{}", "--url", &template]);
            add_until_failure(add, &prefix)
        });
        until("the page gets changes", || site.has(&format!("c{cycle}-3")));
        site.is_open.store(false, Ordering::SeqCst);
        server.kill();
        added.extend(writer.join().expect("the writer ends"));
        server.start();
        // These changes happen while the page is not connected.
        let away = format!("away-{cycle}");
        server.run(&["add", "prices", "--key", &away, "{}"]).ok();
        added.push(away);
        site.is_open.store(true, Ordering::SeqCst);
        let last = format!("last-{cycle}");
        server.run(&["add", "prices", "--key", &last, "{}"]).ok();
        until("the page has connected again", || site.has(&last));
        added.push(last);
    }

    let events = site.events();
    let rows: Vec<&Value> =
        events.iter().map(|event| &event["row"]).filter(|row| row["key"].is_string()).collect();
    let versions: Vec<u64> =
        rows.iter().map(|row| row["resource_version"].as_u64().expect("a version")).collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "rows are repeated or out of order: {events:?}");
    let got: Vec<&str> = rows.iter().map(|row| row["key"].as_str().expect("a key")).collect();
    for key in &added {
        let count = got.iter().filter(|got| *got == key).count();
        assert_eq!(count, 1, "{key}: {events:?}");
    }
    let all_keys = events.iter().filter(|event| event["row"]["initial_events_end"] == true).count();
    assert_eq!(all_keys, 1, "a reconnect did not continue: {events:?}");
    let states = events.iter().filter(|event| event["type"] == "disconnected");
    let states: Vec<&Value> = states.map(|event| &event["state"]).collect();
    assert!(states.len() >= 3 && states.iter().all(|state| **state == 0), "{events:?}");
    let is_fault = |event: &Value| event["type"] == "Error" || event["type"] == "Expired";
    assert!(!events.iter().any(is_fault), "{events:?}");
}
