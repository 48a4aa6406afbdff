//! A proxy that serves a server below a path, and refuses some requests on its own, as proxies, limits and nodes do. It may also cut
//! replies, and hold back what a watch sends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::json;

/// What the client gets instead of the server's reply.
#[derive(Clone)]
enum Answer {
    /// This reply.
    Reply(String),
    /// The reply of the server without its end.
    Cut,
}

/// Requests that get another reply than that of the server.
struct Refusal {
    /// A part of the first line of the requests.
    request: String,
    answer: Answer,
    /// How many more requests are refused.
    times: usize,
}

#[derive(Default)]
struct State {
    refusals: Mutex<Vec<Refusal>>,
    watches: AtomicUsize,
    /// Whether watches are silent.
    is_silent: AtomicBool,
    /// The first lines of all requests.
    requests: Mutex<Vec<String>>,
}

/// The bytes that a cut reply lacks.
const CUT: usize = 20;

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    /// Starts a proxy that serves the server below a path: "" or "/tools".
    pub(super) fn start(server: SocketAddr, path: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::<State>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || {
                    // A connection that the browser gives up is no failure.
                    let _broken = pass_on(&client, server, path, &state);
                    let _closed = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, state }
    }

    /// Refuses the next requests whose first line has this text with a problem of the API.
    pub(super) fn refuse(&self, request: &str, status: u16, code: &str, times: usize) {
        let problem = json!({
            "type": format!("/problems/{code}"), "title": format!("Refused as {code}"), "status": status,
            "detail": format!("the proxy says {code}"), "code": code, "retryable": status >= 429, "request_id": "1",
        });
        self.answer(request, status, "application/problem+json", &problem.to_string(), times);
    }

    /// Answers the next requests whose first line has this text.
    pub(super) fn answer(&self, request: &str, status: u16, kind: &str, body: &str, times: usize) {
        let length = body.len();
        let reply = format!(
            "HTTP/1.1 {status} Refused\r\ncontent-type: {kind}\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.state.refusals.lock().push(Refusal {
            request: request.to_owned(),
            answer: Answer::Reply(reply),
            times,
        });
    }

    /// Cuts the replies to the next requests whose first line has this text.
    pub(super) fn cut(&self, request: &str, times: usize) {
        self.state.refusals.lock().push(Refusal { request: request.to_owned(), answer: Answer::Cut, times });
    }

    /// Holds back what watches send, or no longer.
    pub(super) fn silence(&self, is_silent: bool) {
        self.state.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// How many requests so far had this text in their first line.
    pub(super) fn requests(&self, text: &str) -> usize {
        self.state.requests.lock().iter().filter(|line| line.contains(text)).count()
    }

    /// Passes on all requests again. Returns how many of the last refusals were not used.
    pub(super) fn pass_all(&self) -> usize {
        self.state.refusals.lock().drain(..).fold(0, |sum, refusal| sum.saturating_add(refusal.times))
    }

    /// The watches that the proxy passes on now.
    pub(super) fn watches(&self) -> usize {
        self.state.watches.load(Ordering::SeqCst)
    }
}

impl State {
    fn refusal(&self, line: &str) -> Option<Answer> {
        self.requests.lock().push(line.to_owned());
        let mut refusals = self.refusals.lock();
        let refusal = refusals.iter_mut().find(|one| one.times > 0 && line.contains(&one.request))?;
        refusal.times -= 1;
        Some(refusal.answer.clone())
    }
}

/// Passes on one request without the path, and its reply.
fn pass_on(mut client: &TcpStream, server: SocketAddr, path: &str, state: &State) -> std::io::Result<()> {
    let mut reader = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let line = head.lines().next().unwrap_or_default();
    let refusal = state.refusal(line);
    if let Some(Answer::Reply(reply)) = &refusal {
        return client.write_all(reply.as_bytes());
    }
    let is_watch = line.contains("/watch?");
    let head = head.replacen(&format!(" {path}/"), " /", 1).replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let mut upstream = TcpStream::connect(server)?;
    upstream.write_all(head.as_bytes())?;
    upstream.write_all(&body)?;
    if refusal.is_some() {
        let mut reply = Vec::new();
        upstream.read_to_end(&mut reply)?;
        return client.write_all(&reply[..reply.len() - CUT]);
    }
    if !is_watch {
        return std::io::copy(&mut upstream, &mut client).map(|_| ());
    }
    state.watches.fetch_add(1, Ordering::SeqCst);
    let copied = copy_watch(upstream, client, state);
    state.watches.fetch_sub(1, Ordering::SeqCst);
    copied
}

fn copy_watch(mut upstream: TcpStream, mut client: &TcpStream, state: &State) -> std::io::Result<()> {
    let mut part = vec![0; 1 << 16];
    loop {
        let length = upstream.read(&mut part)?;
        if length == 0 {
            return Ok(());
        }
        if !state.is_silent.load(Ordering::SeqCst) {
            client.write_all(&part[..length])?;
        }
    }
}
