//! A source that speaks HTTP/1.1: a handler writes each reply, so that it can also break one off.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// A request that was received.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The path with the query.
    pub(super) target: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The value of a query parameter, which has no characters that need decoding.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query
            .split('&')
            .find_map(|pair| pair.split_once('=').filter(|(known, _)| *known == name))
            .map(|(_, value)| value)
    }
}

/// A connection on which a handler replies. It is closed after the reply.
pub(super) struct Reply(TcpStream);

impl Reply {
    /// A whole reply. Headers are `name: value`.
    pub(super) fn send(&mut self, status: u16, headers: &[&str], body: &str) {
        self.send_cut(status, headers, body, body.len());
    }

    /// A reply that breaks off after some bytes of its body.
    pub(super) fn send_cut(&mut self, status: u16, headers: &[&str], body: &str, at: usize) {
        let mut head =
            format!("HTTP/1.1 {status} Status\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
        for header in headers {
            let _infallible = write!(head, "{header}\r\n");
        }
        self.write(&format!("{head}\r\n{}", &body[..at]));
    }

    /// A reply with a body of any bytes.
    pub(super) fn send_bytes(&mut self, headers: &[&str], body: &[u8]) {
        let headers: String = headers.iter().map(|header| [header, "\r\n"].concat()).collect();
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n");
        self.write(&head);
        let _closed = self.0.write_all(body);
    }

    /// Writes to the connection. False if the client has closed it.
    pub(super) fn write(&mut self, text: &str) -> bool {
        self.0.write_all(text.as_bytes()).and_then(|()| self.0.flush()).is_ok()
    }
}

/// A server for one test. Its threads end with the process of the test.
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Upstream {
    /// A server that calls the handler for each request.
    pub(super) fn start(handler: impl Fn(&Request, &mut Reply) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, handler) = (Arc::clone(&requests), Arc::new(handler));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, seen, handler) =
                    (stream.expect("a connection"), Arc::clone(&seen), Arc::clone(&handler));
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
                    if let Some(request) = read(&mut reader) {
                        seen.lock().push(request.clone());
                        handler(&request, &mut Reply(stream));
                    }
                });
            }
        });
        Self { address, requests }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far.
    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }
}

/// Reads a request without a body; `None` if the client has closed the connection.
fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut lines = reader.lines().map_while(Result::ok);
    let target = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers = lines.take_while(|line| !line.is_empty());
    let headers = headers
        .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())));
    Some(Request { target, headers: headers.collect() })
}
