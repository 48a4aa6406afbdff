//! Two nodes in this process, of which each owns one of two partitions, and a fake node that a test plays by hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use deltaq::access::{Access, Tokens};
use deltaq::audit::Audit;
use deltaq::config::access::TokenEntry;
use deltaq::config::{SecretFile, Settings};
use deltaq::http::connection::threads::Threads;
use deltaq::http::connection::{ConnectionLimits, ListenerContext, Protocol, TrustedProxies, serve};
use deltaq::http::{Api, AppState, Gate, HttpLimits, Node, Parts, RequestMetrics, Seats, StoreInfo};
use deltaq::push::{Connector, Policy};
use deltaq::secrets::{Secrets, Use};
use deltaq::spans::Spans;
use deltaq_engine::config::Config;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Name, Owner, Partitions, Peer, Registry, WatchLimits};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::harness::private_file::private_file;
use crate::harness::{Client, Reply, within};

/// The secret of the nodes.
pub(super) const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// The secret of the hooks of all queues. Its name is `hook`.
pub(super) const HOOK_SECRET: &str = "0123456789abcdef-of-a-hook";
/// The partitions: node `a` owns the first, node `b` the second.
const PARTITIONS: usize = 2;

/// A node with its listener.
pub(super) struct TestNode {
    pub(super) api: SocketAddr,
    pub(super) http2: SocketAddr,
    pub(super) partitions: Arc<Partitions>,
    pub(super) registry: Arc<Registry>,
    pub(super) gate: Arc<Gate>,
    shutdown: Shutdown,
    closing: CancellationToken,
}

/// Two nodes.
pub(super) struct Cluster {
    pub(super) a: TestNode,
    pub(super) b: TestNode,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        Self::with_tokens(&[], &[]).await
    }

    /// Two nodes on this clock.
    pub(super) async fn at(clock: &Clock) -> Self {
        Self::with_tokens_at(clock, &[], &[]).await
    }

    /// Two nodes with these tokens.
    pub(super) async fn with_tokens(of_a: &[TokenEntry], of_b: &[TokenEntry]) -> Self {
        Self::with_tokens_at(&Clock::system(), of_a, of_b).await
    }

    /// Two nodes on this clock with these tokens.
    pub(super) async fn with_tokens_at(clock: &Clock, of_a: &[TokenEntry], of_b: &[TokenEntry]) -> Self {
        let a = TestNode::start_at(clock, "a", of_a, |_| {}).await;
        let b = TestNode::start_at(clock, "b", of_b, |_| {}).await;
        let cluster = Self { a, b };
        cluster.a.owns(0);
        cluster.b.owns(1);
        cluster.a.sees(1, &cluster.b.peer("b"));
        cluster.b.sees(0, &cluster.a.peer("a"));
        cluster
    }
}

impl TestNode {
    pub(super) async fn start(name: &str, tokens: &[TokenEntry], edit: impl FnOnce(&mut HttpLimits)) -> Self {
        Self::start_at(&Clock::system(), name, tokens, edit).await
    }

    async fn start_at(
        clock: &Clock,
        name: &str,
        tokens: &[TokenEntry],
        edit: impl FnOnce(&mut HttpLimits),
    ) -> Self {
        let clock = clock.clone();
        let shutdown = Shutdown::manual(Duration::from_hours(1));
        let metrics = Metrics::new(100).expect("metrics");
        let limits =
            Limits { auto_create: true, max_queues: 100, max_waiters: 100, watch: WatchLimits::default() };
        let defaults = Arc::new(Config::default());
        let partitions = Arc::new(Partitions::new(PARTITIONS, limits.clone(), defaults, metrics.clone()));
        partitions.trust(u64::MAX);
        let registry =
            Registry::new(limits, Config::default(), clock.clone(), None, shutdown.clone(), metrics.clone());
        let mut limits = HttpLimits::of(&Settings::default());
        // Longer than any test runs.
        limits.max_wait = Duration::from_hours(1);
        edit(&mut limits);
        let tokens = Tokens::new(tokens, &Tokens::default()).expect("valid tokens");
        let gate = Arc::new(Gate { access: Access::new(tokens), ..Gate::open() });
        let state = AppState::from(Parts {
            request_metrics: RequestMetrics::new(&metrics),
            partitions: partitions.clone(),
            limits,
            gate: gate.clone(),
            audit: Audit::default(),
            refused_lines: Arc::default(),
            push: Arc::default(),
            hook_secrets: Arc::new(hook_secrets()),
            connector: Connector::new(&Policy::default()).expect("a connector"),
            spans: Spans::default(),
            started_us: clock.wall_us(),
            clock: clock.clone(),
            shutdown: shutdown.clone(),
            store: StoreInfo::MEMORY,
            node: Some(Arc::new(Node::new(name, SECRET).expect("a node"))),
            serves_metrics: true,
            serves_console: true,
            links: Arc::default(),
            serves_kubernetes: true,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let api = listener.local_addr().expect("an address");
        let of_http2 = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let http2 = of_http2.local_addr().expect("an address");
        let hour = Duration::from_hours(1);
        let limits = ConnectionLimits {
            protocol: Protocol::Http1,
            header_read_timeout: hour,
            idle_timeout: hour,
            min_reply_rate: state.limits.min_body_rate,
            max_header_bytes: 1 << 14,
            max_connections: 1_000,
            seats: Seats::new(1_000),
            request_metrics: state.request_metrics.clone(),
            open: state.request_metrics.connections(1_000),
            proxies: TrustedProxies::default(),
            cors: None,
        };
        let closing = CancellationToken::new();
        let threads = Arc::new(Threads::start().expect("threads"));
        let context = ListenerContext {
            threads,
            tls: None,
            clock,
            closing: closing.clone(),
            shutdown: shutdown.clone(),
        };
        let api_of_http2 = Api::new(state.clone());
        let limits_of_http2 = ConnectionLimits { protocol: Protocol::Http2, ..limits.clone() };
        shutdown.spawn("listener", serve(of_http2, api_of_http2, limits_of_http2, context.clone()));
        shutdown.spawn("listener", serve(listener, Api::new(state), limits, context));
        Self { api, http2, partitions, registry: Arc::new(registry), gate, shutdown, closing }
    }

    /// This node as the others see it.
    pub(super) fn peer(&self, name: &str) -> Arc<Peer> {
        Arc::new(Peer { name: name.to_owned(), url: format!("http://{}", self.api) })
    }

    /// Makes this node the owner of a partition.
    pub(super) fn owns(&self, partition: usize) {
        self.partitions.set_owner(partition, Owner::This(self.registry.clone()));
    }

    /// Makes this node see another one as the owner of a partition.
    pub(super) fn sees(&self, partition: usize, peer: &Arc<Peer>) {
        self.partitions.set_owner(partition, Owner::Other(peer.clone()));
    }

    /// Begins the shutdown of this node.
    pub(super) fn drain(&self) {
        self.shutdown.signal();
    }

    pub(super) async fn client(&self) -> Client {
        Client::connect(self.api).await
    }

    /// A connection whose receive buffer is this small.
    pub(super) async fn client_that_buffers(&self, bytes: u32) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(bytes).expect("a socket option");
        Client::over(within(socket.connect(self.api)).await.expect("the server accepts"))
    }

    pub(super) async fn call(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.client().await.call(method, path, body).await
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &Value::Null).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call("POST", path, body).await
    }

    /// A call with headers and no body.
    pub(super) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let mut client = self.client().await;
        client.send_text("GET", path, headers, "").await;
        client.reply().await
    }

    /// Waits until the document of the queue satisfies `is_so`.
    pub(super) async fn until(&self, queue: &str, is_so: impl Fn(&Value) -> bool) {
        let name = Name::new(queue).expect("a name");
        let satisfied = async {
            while !is_so(&self.get(&format!("/v1/queues/{name}/status")).await.body) {
                tokio::task::yield_now().await;
            }
        };
        within(satisfied).await;
    }

    /// The value of a line of the metrics.
    pub(super) async fn metric(&self, series: &str) -> u64 {
        let page = self.get("/metrics").await.text;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(series))
            .unwrap_or_else(|| panic!("{series}: {page}"));
        line.trim().parse().expect("a number")
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.closing.cancel();
        self.shutdown.signal();
        self.shutdown.signal();
    }
}

fn hook_secrets() -> Secrets {
    let folder = tempfile::tempdir().expect("a folder");
    let file = private_file(folder.path(), "hook", HOOK_SECRET);
    let secret = SecretFile { file, queues: vec!["*".to_owned()], headers: false };
    Secrets::read(Use::Hooks, &[("hook".to_owned(), secret)].into()).expect("a secret")
}

/// A queue of this partition.
pub(super) fn queue_of(node: &TestNode, partition: usize, number: usize) -> String {
    let names = (0..).map(|n| format!("queue-{n}"));
    let mut found = names.filter(|name| node.partitions.of(&Name::new(name).expect("a name")) == partition);
    found.nth(number).expect("names without end")
}

/// An owner that a test plays by hand.
pub(super) struct FakeOwner {
    listener: TcpListener,
    pub(super) peer: Arc<Peer>,
}

impl FakeOwner {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        Self { listener, peer: Arc::new(Peer { name: "fake".to_owned(), url }) }
    }

    /// The next connection, and the head of its first request.
    pub(super) async fn accept(&self) -> (TcpStream, String) {
        let (mut stream, _) = within(self.listener.accept()).await.expect("a connection");
        let head = head(&mut stream).await;
        (stream, head)
    }
}

/// The head of the next request on a connection.
pub(super) async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = within(stream.read_u8()).await.expect("a head");
        head.push(byte);
    }
    String::from_utf8(head).expect("text")
}

/// Writes all of `text`.
pub(super) async fn write(stream: &mut TcpStream, text: &str) {
    within(stream.write_all(text.as_bytes())).await.expect("the node reads");
}
