//! A receiver on a port of this machine. Each request waits until the test answers it.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::{spawn, within};

/// Maximum number of requests that wait for the test.
const REQUESTS: usize = 64;

/// A receiver.
pub(crate) struct Receiver {
    address: SocketAddr,
    hooks: mpsc::Receiver<Hook>,
    accepting: AbortHandle,
}

/// A request without an answer. Dropping it closes its connection.
pub(crate) struct Hook {
    pub(crate) target: String,
    /// The headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The other end of the connection.
    pub(crate) peer: SocketAddr,
    stream: TcpStream,
    requests: mpsc::Sender<Self>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, hooks) = mpsc::channel(REQUESTS);
        let accepting = spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                spawn(receive(stream, peer, sender.clone()));
            }
        });
        Self { address, hooks, accepting: accepting.abort_handle() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Hook {
        within(self.hooks.recv()).await.expect("the receiver runs")
    }

    /// Whether no request waits.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.hooks.is_empty()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn receive(stream: TcpStream, peer: SocketAddr, requests: mpsc::Sender<Hook>) {
    if let Some(hook) = read(stream, peer, requests.clone()).await {
        let _ended = requests.send(hook).await;
    }
}

/// Reads one request of a connection.
async fn read(mut stream: TcpStream, peer: SocketAddr, requests: mpsc::Sender<Hook>) -> Option<Hook> {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
    };
    let text = String::from_utf8(bytes[..head].to_vec()).expect("a head is text");
    let mut lines = text.split("\r\n");
    let target = lines.next().expect("a request line").to_owned();
    let headers: Vec<_> = lines
        .map(|line| line.split_once(": ").expect("a header"))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, length)| length.parse().expect("a length"));
    let mut body = bytes.split_off(head + 4);
    while body.len() < length {
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        body.extend_from_slice(&piece[..read]);
    }
    Some(Hook { target, headers, body, peer, stream, requests })
}

impl Hook {
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(other, _)| other == name);
        &found.unwrap_or_else(|| panic!("{name} is not in {:?}", self.headers)).1
    }

    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.header(name).parse().expect("a number")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// Answers, and closes the connection.
    pub(crate) async fn answer(self, status: u16, body: &str) {
        self.answer_with(status, "", body).await;
    }

    /// The same with more headers.
    pub(crate) async fn answer_with(self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
        self.bytes(format!("{head}{body}").as_bytes()).await;
    }

    /// Answers, and reads the next request of the connection.
    pub(crate) async fn answer_and_stay(mut self, status: u16, body: &str) {
        let length = body.len();
        self.bytes_more(format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes())
            .await;
        spawn(receive(self.stream, self.peer, self.requests));
    }

    /// Sends any bytes, and closes the connection.
    pub(crate) async fn bytes(mut self, bytes: &[u8]) {
        self.bytes_more(bytes).await;
    }

    /// Sends any bytes.
    pub(crate) async fn bytes_more(&mut self, bytes: &[u8]) {
        within(self.stream.write_all(bytes)).await.expect("the sender reads");
    }

    /// Answers 200 with a body of this length, as far as the sender takes it. Returns how much it has taken.
    pub(crate) async fn flood(mut self, bytes: usize) -> usize {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
        self.bytes_more(head.as_bytes()).await;
        let piece = vec![b'x'; 16 << 10];
        let mut taken = 0;
        while taken < bytes && within(self.stream.write_all(&piece)).await.is_ok() {
            taken += piece.len();
        }
        taken
    }
}
