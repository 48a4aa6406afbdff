//! A proxy between clients and service that forges replies, like a service that replies before its commit. It forges the
//! replies to Adds or to acknowledgements and does not forward these requests, as if a kill had come between the reply and
//! the commit.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::judge::Rule;
use crate::harness::blocking::{Connection, Message, Raw};

/// The requests whose replies are forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyFault {
    Adds,
    Acks,
}

impl ProxyFault {
    /// The rule that a forged reply breaks.
    pub(crate) fn breaks(self) -> Rule {
        match self {
            Self::Adds => Rule::LostWrite,
            Self::Acks => Rule::LostAck,
        }
    }
}

/// The proxy. Dropping it ends all its connections.
#[derive(Debug)]
pub(crate) struct FaultyProxy {
    /// The address for clients.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    forged: Receiver<()>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    fault: ProxyFault,
    /// One in so many suitable requests gets a forged reply; 0 is none.
    one_in: AtomicU64,
    /// The number of suitable requests.
    suitable: AtomicU64,
    /// Notified of the first forged reply.
    on_forged: SyncSender<()>,
    is_over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    /// The newest number that was seen of each queue: a forged number must be plausible.
    newest: Mutex<HashMap<String, u64>>,
}

impl FaultyProxy {
    /// Starts a proxy for the service at `upstream`. It forges nothing until [`forge`](Self::forge).
    pub(crate) fn start(upstream: SocketAddr, fault: ProxyFault) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (on_forged, forged) = sync_channel(1);
        let shared = Arc::new(Shared {
            upstream,
            fault,
            one_in: AtomicU64::new(0),
            suitable: AtomicU64::new(0),
            on_forged,
            is_over: AtomicBool::new(false),
            streams: Mutex::default(),
            newest: Mutex::default(),
        });
        let accepting = shared.clone();
        let threads = vec![std::thread::spawn(move || accept(&listener, &accepting))];
        Self { address, shared, forged, threads }
    }

    /// From now on, one in so many replies is forged.
    pub(crate) fn forge(&self, one_in: u64) {
        self.shared.one_in.store(one_in, Ordering::SeqCst);
    }

    /// Waits for a forged reply, at most `patience`.
    pub(crate) fn wait_for_forgery(&self, patience: Duration) {
        let _forged = self.forged.recv_timeout(patience);
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // The connection wakes the accepting thread, which ends the other threads.
        let _ = TcpStream::connect(self.address);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for stream in listener.incoming().filter_map(Result::ok) {
        if shared.is_over.load(Ordering::SeqCst) {
            break;
        }
        let carrying = shared.clone();
        threads.push(std::thread::spawn(move || {
            // An error ends one of the two connections, and so the other one.
            let _ended = carrying.carry(stream);
        }));
    }
    for stream in shared.streams.lock().iter() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

impl Shared {
    fn carry(&self, stream: TcpStream) -> std::io::Result<()> {
        self.streams.lock().push(stream.try_clone()?);
        let mut client = Connection::over(stream)?;
        let server = Connection::open(self.upstream);
        let ended = server.and_then(|mut server| self.exchange(&mut client, &mut server));
        // The list has a clone of the stream, so dropping the connection does not close it.
        client.end();
        ended
    }

    fn exchange(&self, client: &mut Connection, server: &mut Connection) -> std::io::Result<()> {
        loop {
            let request = client.receive()?;
            let answer = if let Some(forged) = self.forged(&request) {
                forged
            } else {
                let answer = server.call(&message(&request))?;
                self.note(&request, &answer);
                answer
            };
            client.send(&rendered(&answer))?;
        }
    }

    /// A forged reply, if this request gets one.
    fn forged(&self, request: &Raw) -> Option<Raw> {
        let (queue, verb) = parts(request)?;
        let body = match (self.fault, verb) {
            (ProxyFault::Adds, "add" | "update") => {
                let mut newest = self.newest.lock();
                let newest = newest.get_mut(queue)?;
                self.is_due().then(|| {
                    *newest += 1;
                    json!({ "resource_version": *newest, "queued": 1, "ignored": 0 })
                })
            }
            (ProxyFault::Acks, "ack") => {
                let body: Value = serde_json::from_slice(&request.body).ok()?;
                let ok = |lease: &Value| json!({ "lease_id": lease, "as": "ack", "result": "ok", "outcome": null });
                let settled: Vec<Value> = body["lease_ids"].as_array()?.iter().map(ok).collect();
                self.is_due().then(|| json!({ "settled": settled }))
            }
            _ => None,
        }?;
        let _notified_already = self.on_forged.try_send(());
        Some(Raw {
            first: "HTTP/1.1 200 OK\r\n".to_owned(),
            head: String::new(),
            body: body.to_string().into(),
        })
    }

    fn is_due(&self) -> bool {
        let one_in = self.one_in.load(Ordering::SeqCst);
        one_in > 0 && (self.suitable.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(one_in)
    }

    fn note(&self, request: &Raw, answer: &Raw) {
        let Some((queue, _)) = parts(request) else { return };
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let tokens = body["items"].as_array().into_iter().flatten().map(|item| &item["lease"]["token"]);
        let seen = tokens.chain([&body["resource_version"]]).filter_map(Value::as_u64).max();
        let mut newest = self.newest.lock();
        let newest = newest.entry(queue.to_owned()).or_default();
        *newest = seen.unwrap_or_default().max(*newest);
    }
}

/// The queue and the operation of a request.
fn parts(request: &Raw) -> Option<(&str, &str)> {
    let path = request.target().1.split('?').next()?.strip_prefix("/v1/queues/")?;
    path.split_once('/')
}

fn message(request: &Raw) -> Message {
    let (method, path) = request.target();
    let is_lines = request.head.contains("application/x-ndjson");
    Message {
        method: if method == "GET" { "GET" } else { "POST" },
        path: path.to_owned(),
        content_type: is_lines.then_some("application/x-ndjson"),
        body: String::from_utf8_lossy(&request.body).into_owned(),
    }
}

fn rendered(answer: &Raw) -> Vec<u8> {
    let mut bytes = format!("{}content-length: {}\r\n\r\n", answer.first, answer.body.len()).into_bytes();
    bytes.extend(&answer.body);
    bytes
}
