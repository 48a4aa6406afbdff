//! A whole server in this process, and a small HTTP client with full control over the connection.
//!
//! Tests disconnect in the middle of a reply, send requests without reading replies, and write bytes that no HTTP library
//! would write. Tests with threads use the client of `blocking`.

pub(crate) mod blocking;
pub(crate) mod http2;
pub(crate) mod preload;
pub(crate) mod private_file;
pub(crate) mod process;
pub(crate) mod receiver;
pub(crate) mod server;
pub(crate) mod waiting;
pub(crate) mod wall_clock;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use deltaq::config::Settings;
use deltaq::server::{Error, Reloadable, Server};
use deltaq_runtime::lifecycle::Shutdown;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use self::waiting::PATIENCE;

/// The time between the stages of a shutdown: tests end each stage with a signal.
const NEVER: Duration = Duration::from_hours(1);
/// How an advice begins, which belongs into the hint of a problem.
const ADVICE: [&str; 10] = [
    "did you mean",
    "; repeat",
    "; send",
    "; use ",
    "; give ",
    "; add ",
    "; leave ",
    "; see ",
    "; create ",
    "; detach ",
];

/// A server in this process. Dropping it stops the server.
pub(crate) struct Service {
    /// The address of the API.
    pub(crate) api: SocketAddr,
    /// The address of the metrics.
    pub(crate) metrics: SocketAddr,
    /// The address of the API over HTTP/2.
    pub(crate) http2: Option<SocketAddr>,
    /// Stops it.
    pub(crate) shutdown: Shutdown,
    /// The files that SIGHUP reads again.
    pub(crate) reloadable: Reloadable,
    running: JoinHandle<()>,
}

impl Service {
    /// A server with the default settings on free ports, without a journal.
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// A server with the default settings as `edit` changes them.
    pub(crate) async fn with(edit: impl FnOnce(&mut Settings)) -> Self {
        let shutdown = Shutdown::manual(NEVER);
        Self::try_with(edit, shutdown).await.expect("the server starts")
    }

    /// Like [`with`](Self::with), with a shutdown that may have begun already.
    pub(crate) async fn try_with(
        edit: impl FnOnce(&mut Settings),
        shutdown: Shutdown,
    ) -> Result<Self, Error> {
        let mut settings = Settings::default();
        settings.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        settings.server.metrics_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        settings.storage.in_memory = true;
        edit(&mut settings);
        let server = Server::start(&settings, shutdown.clone()).await?;
        let (api, metrics, http2) = (server.api, server.metrics, server.http2);
        let reloadable = server.reloadable().clone();
        let running = spawn(async { server.run().await.expect("the server ends cleanly") });
        Ok(Self { api, metrics, http2, shutdown, reloadable, running })
    }

    /// A connection.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.api).await
    }

    /// A connection whose receive buffer is this small.
    pub(crate) async fn client_that_buffers(&self, bytes: u32) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(bytes).expect("a socket option");
        Client::over(within(socket.connect(self.api)).await.expect("the server accepts"))
    }

    /// A connection with a call in progress: an add whose body, `{"key":1}`, the server waits for.
    pub(crate) async fn busy_client(&self) -> Client {
        let mut client = self.client().await;
        let head = "POST /v1/queues/busy/add HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                    expect: 100-continue\r\ncontent-length: 9\r\n\r\n";
        client.send_bytes(head.as_bytes()).await;
        assert_eq!(client.head().await.expect("a head").0, 100);
        client
    }

    /// Makes a request on a new connection. `body` is JSON; `Null` means no body.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.client().await.call(method, path, body).await
    }

    /// Sends a request with more headers over a new connection; null stands for no body.
    pub(crate) async fn call_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Reply {
        self.client().await.call_with(method, path, headers, body).await
    }

    /// Makes a POST with a JSON body.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call("POST", path, body).await
    }

    /// Makes a GET.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &Value::Null).await
    }

    /// Sends a request on a new connection; the caller reads the reply later.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Client {
        let mut client = self.client().await;
        client.send(method, path, body).await;
        client
    }

    /// Waits until the server has stopped by itself.
    pub(crate) async fn stopped(mut self) {
        within(&mut self.running).await.expect("the server ends without a panic");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shutdown.signal();
        self.shutdown.signal();
    }
}

/// A connection to the server. Dropping it closes it.
pub(crate) struct Client {
    stream: Box<dyn Duplex>,
    /// Bytes received ahead of the current reply.
    ahead: Vec<u8>,
}

/// A connection: plain TCP or TLS.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// A reply.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The status.
    pub(crate) status: u16,
    /// The headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body as text.
    pub(crate) text: String,
    /// The body as JSON; `Null` if it is not JSON.
    pub(crate) body: Value,
}

/// The connection ended in the middle of a reply.
#[derive(Debug)]
pub(crate) struct Truncated;

impl Client {
    /// Connects.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = within(TcpStream::connect(address)).await.expect("the server accepts");
        stream.set_nodelay(true).expect("a socket option");
        Self::over(stream)
    }

    /// A client on an open connection.
    pub(crate) fn over(stream: impl Duplex + 'static) -> Self {
        Self { stream: Box::new(stream), ahead: Vec::new() }
    }

    /// Makes a request with a token.
    pub(crate) async fn call_as(&mut self, token: &str, method: &str, path: &str, body: &Value) -> Reply {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.send_text(method, path, &[("authorization", &format!("Bearer {token}"))], &text).await;
        self.reply().await
    }

    /// Makes a request. `body` is JSON; `Null` means no body.
    pub(crate) async fn call(&mut self, method: &str, path: &str, body: &Value) -> Reply {
        self.send(method, path, body).await;
        self.reply().await
    }

    /// The same with more headers.
    pub(crate) async fn call_with(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Reply {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.send_text(method, path, headers, &text).await;
        self.reply().await
    }

    /// Sends a request; [`reply`](Self::reply) reads the reply.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.send_text(method, path, &[], &text).await;
    }

    /// Sends a request with more headers.
    pub(crate) async fn send_text(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        if !body.is_empty() || method == "POST" || method == "PUT" {
            let _ = write!(text, "content-length: {}\r\n", body.len());
        }
        text.push_str("\r\n");
        text.push_str(body);
        self.send_bytes(text.as_bytes()).await;
    }

    /// Sends any bytes.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        within(self.stream.write_all(bytes)).await.expect("the server reads");
    }

    /// Sends any bytes. Returns whether the connection was open.
    pub(crate) async fn try_send_bytes(&mut self, bytes: &[u8]) -> bool {
        within(self.stream.write_all(bytes)).await.is_ok()
    }

    /// Closes the sending side; replies can still be read.
    pub(crate) async fn end_sending(&mut self) {
        within(self.stream.shutdown()).await.expect("the connection is open");
    }

    /// Reads the next reply.
    pub(crate) async fn reply(&mut self) -> Reply {
        self.try_reply().await.expect("a complete reply")
    }

    /// Reads the next reply, which may end early.
    pub(crate) async fn try_reply(&mut self) -> Result<Reply, Truncated> {
        let (status, headers) = self.head().await?;
        let body = self.body(status, &headers).await?;
        let text = String::from_utf8(body).expect("answers are UTF-8");
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Reply { status, headers, text, body })
    }

    /// Reads the body of the next reply, which need not be text.
    pub(crate) async fn reply_bytes(&mut self) -> Vec<u8> {
        let (status, headers) = self.head().await.expect("a head");
        self.body(status, &headers).await.expect("a whole body")
    }

    /// Reads the body of the reply whose head was read.
    pub(crate) async fn body(
        &mut self,
        status: u16,
        headers: &[(String, String)],
    ) -> Result<Vec<u8>, Truncated> {
        let header =
            |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        Ok(if status == 204 || status == 304 {
            Vec::new()
        } else if header("transfer-encoding").is_some() {
            self.chunks().await?
        } else if let Some(length) = header("content-length") {
            self.take(length.parse().expect("a length")).await?
        } else {
            self.rest().await
        })
    }

    /// Reads the head of the next reply and as little of its body as possible.
    pub(crate) async fn head(&mut self) -> Result<(u16, Vec<(String, String)>), Truncated> {
        let status = self.line().await?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok((status.expect("a status line"), headers));
            }
            let (name, value) = line.split_once(':').expect("a header");
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// Whether no unread bytes have arrived.
    pub(crate) async fn is_silent(&mut self) -> bool {
        tokio::select! {
            biased;
            _come_or_ended = self.more() => false,
            () = std::future::ready(()) => true,
        }
    }

    /// Reads `bytes` in pieces of at most `piece_bytes`, and lets the server run between them.
    pub(crate) async fn read_slowly(&mut self, bytes: usize, piece_bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let mut piece = vec![0; left.min(piece_bytes)];
            let read = within(self.stream.read(&mut piece)).await.expect("the connection is open");
            assert!(read > 0, "the server closed the connection in the middle of a reply");
            self.ahead.extend_from_slice(&piece[..read]);
            left -= read;
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the server closes the connection, ignoring all bytes before that.
    pub(crate) async fn closed(&mut self) {
        let _rest = self.rest().await;
    }

    /// Reads the next chunk of the reply whose head was read; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Truncated> {
        let size = self.line().await?;
        let size = usize::from_str_radix(&size, 16).expect("the size of a chunk");
        let chunk = self.take(size).await?;
        self.line().await?;
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, Truncated> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend(chunk);
        }
        Ok(body)
    }

    async fn rest(&mut self) -> Vec<u8> {
        while self.more().await.is_ok() {}
        std::mem::take(&mut self.ahead)
    }

    async fn line(&mut self) -> Result<String, Truncated> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.take(end + 2).await?;
                let line = line.get(..end).unwrap_or_default().to_vec();
                return Ok(String::from_utf8(line).expect("heads are text"));
            }
            self.more().await?;
        }
    }

    async fn take(&mut self, count: usize) -> Result<Vec<u8>, Truncated> {
        while self.ahead.len() < count {
            self.more().await?;
        }
        let rest = self.ahead.split_off(count);
        Ok(std::mem::replace(&mut self.ahead, rest))
    }

    async fn more(&mut self) -> Result<(), Truncated> {
        let read = within(self.stream.read_buf(&mut self.ahead)).await;
        if matches!(read, Ok(0) | Err(_)) { Err(Truncated) } else { Ok(()) }
    }
}

impl Reply {
    /// A header's value; `name` in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Asserts a 2xx and returns the body.
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text);
        self.body
    }

    /// Asserts a complete problem document with this code and returns the body.
    pub(crate) fn problem(self, code: &str) -> Value {
        let Self { status, text, body, .. } = &self;
        assert_eq!(body["code"], code, "{status} {text}");
        assert_eq!(body["status"], *status, "{text}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{text}");
        assert_eq!(self.header("x-request-id"), body["request_id"].as_str(), "{text}");
        assert!(
            body["type"].as_str().is_some_and(|url| url.ends_with(&format!("/problems/{code}"))),
            "{text}"
        );
        assert!(body["title"].is_string(), "{text}");
        let detail = body["detail"].as_str().expect("a detail");
        assert!(!ADVICE.iter().any(|words| detail.contains(words)), "the advice is a hint: {text}");
        let retries = matches!(status, 429 | 503 | 504 | 507) && body["retryable"] == true;
        assert_eq!(self.header("retry-after").is_some(), retries, "{status} {text}");
        self.body
    }
}

/// The detail and the hint of a problem.
pub(crate) fn said(problem: &Value) -> String {
    ["detail", "hint"].map(|name| problem[name].as_str().unwrap_or_default()).join("; ")
}

/// Awaits `future` with a timeout.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the future completes in time")
}

/// Waits until a condition holds in this process.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    within(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Spawns a task that ends with the test's runtime.
#[expect(clippy::disallowed_methods, reason = "the server's shutdown must not wait for a task of the test")]
pub(crate) fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(task)
}

#[tokio::test]
async fn replies_are_read_completely() {
    let service = Service::start().await;
    let mut client = service.client().await;
    for _ in 0..2 {
        let info = client.call("GET", "/v1/info", &Value::Null).await;
        assert!(info.header("x-request-id").is_some());
        assert!(info.ok()["version"].is_string());
    }
    client.call("GET", "/nowhere", &Value::Null).await.problem("not-found");
    assert_eq!(service.get("/v1/queues/absent").await.problem("queue-not-found")["status"], 404);
    assert_eq!(
        Client::connect(service.metrics).await.call("GET", "/metrics", &Value::Null).await.status,
        200
    );
    service.shutdown.signal();
    client.closed().await;
    service.stopped().await;
}
