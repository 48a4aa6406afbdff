//! Connections: accept, limit, serve and end them.

mod exchange;
mod http2_preface;
mod linger;
mod overload;
mod proxy;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
pub mod threads;
pub mod tls;
mod transport;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use metrics::Gauge;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{Layer as _, ServiceExt as _};
use tower_http::cors::CorsLayer;

use self::exchange::{Exchange, ExchangeBody, Exchanges};
use self::linger::LingerRoom;
use self::overload::{LogLimit, OverloadResponder};
pub use self::proxy::TrustedProxies;

use self::stream::ConnectionStream;
use self::streams::{STREAMS_MAX, StreamExecutor, Streams};
use self::threads::{Thread, Threads};
use self::tls::Tls;
use self::transport::Transport;
use super::gate::body_rate::BodyRateLimit;
use super::gate::origin::URI_BYTES_MAX;
use super::gate::seats::{Occupant, Seat, Seats};
use super::reply::delivery::Outbox;
use super::reply::validation::is_validation;
use super::request::body_drain::Unread;
use super::request::context::{Connection, Peer};
use super::request_metrics::RequestMetrics;
use super::router::Api;
use super::timeouts::Timeouts;

/// Maximum size of a piece of a body, in bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// Number of bytes of a head in addition to its headers and its URI: the method, the version and the line ends.
const HEAD_REST_BYTES: usize = 256;
/// How long accepting pauses after an error, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How much of request bodies a connection over HTTP/2 takes before a handler reads them, in bytes. A stream may use all of it.
const WINDOW_BYTES: u32 = 256 << 10;
/// Number of bytes by which HTTP/2 counts each header as larger than it is (RFC 9113, 6.5.2), for a head with as many headers as HTTP/1.1 takes.
const HEADERS_EXTRA_BYTES: usize = 100 * 32;
/// How often a connection over HTTP/2 is checked by a ping, and how long the client may take to answer.
const PING_PERIOD: Duration = Duration::from_secs(30);
const PING_TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum number of streams that a client has reset before they were accepted, and that the server has reset because of an error of the client.
/// The connection ends above.
const RESETS_BEFORE_ACCEPT_MAX: usize = 50;
const RESETS_BY_ERROR_MAX: usize = 200;
const GAVE_WAY: &str = "a connection gave way to a new one";

/// The version of HTTP that a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, and HTTP/1.0.
    Http1,
    /// HTTP/2, with prior knowledge or, over TLS, by ALPN. It has no pop.
    Http2,
}

/// Limits of a listener.
#[derive(Clone)]
pub struct ConnectionLimits {
    /// The version of HTTP.
    pub protocol: Protocol,
    /// Timeout for the head of a request.
    pub header_read_timeout: Duration,
    /// Timeout for a connection without a request.
    pub idle_timeout: Duration,
    /// Minimum rate at which a client reads a reply that waits for it.
    pub min_reply_rate: BodyRateLimit,
    /// Maximum size of the headers of a request, in bytes.
    pub max_header_bytes: usize,
    /// Maximum number of open connections. A further connection takes the seat of another one, or gets the overload response.
    pub max_connections: usize,
    /// The seats of those connections. Listeners may share them.
    pub seats: Seats,
    /// Metrics of requests and refused connections.
    pub request_metrics: RequestMetrics,
    /// Number of open connections.
    pub open: Gauge,
    /// Proxies that may report the address of a client.
    pub proxies: TrustedProxies,
    /// Web pages of other origins that may call the server.
    pub cors: Option<CorsLayer>,
}

/// The context that all listeners share.
#[derive(Clone)]
pub struct ListenerContext {
    /// The threads that serve connections.
    pub threads: Arc<Threads>,
    /// `None` serves plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// The clock of the process.
    pub clock: Clock,
    /// Cancelled when the server accepts no more connections.
    pub closing: CancellationToken,
    /// The shutdown of the process. Its second stage aborts requests that are still running.
    pub shutdown: Shutdown,
}

/// What an open connection takes.
struct ConnectionPermit {
    _seat: Seat,
    _thread: Thread,
    open: Gauge,
}

impl ConnectionPermit {
    fn new(seat: Seat, thread: Thread, open: Gauge) -> Self {
        open.increment(1.0);
        Self { _seat: seat, _thread: thread, open }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.open.decrement(1.0);
    }
}

/// Serves `api` on `listener` until `closing` is cancelled. Then running requests finish, unless the shutdown aborts
/// them.
pub async fn serve(listener: TcpListener, api: Api, limits: ConnectionLimits, context: ListenerContext) {
    let closing = context.closing.clone();
    let mut log_limit = LogLimit::new(context.clock.clone());
    let mut acceptor = Acceptor {
        displaced: LogLimit::new(context.clock.clone()),
        linger_room: LingerRoom::new(),
        overload: OverloadResponder::new(
            limits.max_connections,
            context.tls.is_some() || limits.protocol == Protocol::Http2,
            context.clock.clone(),
        ),
        api,
        limits,
        context,
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.and_then(|(stream, address)| acceptor.accept(stream, address)),
            () = closing.cancelled() => return,
        };
        if let Err(error) = accepted {
            if let Some(errors) = log_limit.count() {
                tracing::warn!(%error, errors, "connections could not be accepted");
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Gives each new connection a seat and a thread, or the overload response.
struct Acceptor {
    /// Counts the connections that have lost their seats.
    displaced: LogLimit,
    linger_room: LingerRoom,
    overload: OverloadResponder,
    api: Api,
    limits: ConnectionLimits,
    context: ListenerContext,
}

impl Acceptor {
    fn accept(&mut self, stream: TcpStream, address: SocketAddr) -> io::Result<()> {
        let ListenerContext { threads, tls, clock, closing, shutdown } = &self.context;
        // Replies are small and callers wait for them, so Nagle's algorithm is disabled.
        let _ = stream.set_nodelay(true);
        let closing = closing.child_token();
        let Some((seat, displaces)) = self.limits.seats.admit(closing.clone(), self.api.is_open()) else {
            self.limits.request_metrics.connection_refused();
            if let Some(response) = self.overload.refuse(stream) {
                shutdown.spawn("overload response", response);
            }
            return Ok(());
        };
        if displaces && let Some(connections) = self.displaced.count() {
            let limit = self.limits.max_connections;
            tracing::warn!(
                connections,
                limit,
                "connections without an authorized call, or idle ones, were closed for new ones: server.max_connections are open"
            );
        }
        let thread = threads.least_busy().clone();
        let runtime = thread.runtime.clone();
        let stream = thread.take_over(stream)?;
        let (api, limits, clock) = (self.api.clone(), self.limits.clone(), clock.clone());
        let (tasks, occupant) = (shutdown.clone(), seat.occupant());
        let linger_room = self.linger_room.clone();
        let tls = tls.as_ref().map(|tls| tls.acceptor(limits.protocol));
        let permit = ConnectionPermit::new(seat, thread, self.limits.open.clone());
        shutdown.spawn_on(&runtime, "connection", async move {
            // Allocated by the thread that uses it, so that no other thread writes to the same cache lines.
            let server = ConnectionServer {
                api: api.for_connection(),
                timeouts: Timeouts::new(clock, limits.header_read_timeout, limits.idle_timeout),
                closing,
                occupant,
                linger_room,
                limits,
                shutdown: tasks,
            };
            server.start(tls, stream, address).await;
            drop(permit);
        });
        Ok(())
    }
}

/// Serves one connection.
struct ConnectionServer {
    api: Api,
    limits: ConnectionLimits,
    timeouts: Timeouts,
    linger_room: LingerRoom,
    /// A child token, because every poll of the connection takes the token's lock, and all connections would contend
    /// for a shared token.
    closing: CancellationToken,
    occupant: Arc<Occupant>,
    /// Its second stage comes after `closing`.
    shutdown: Shutdown,
}

/// The data that the requests of a connection share. One reference count covers all parts, because a count shared by
/// all connections would move between the processors with each request.
struct ConnectionContext {
    api: Api,
    connection: Connection,
    timeouts: Timeouts,
    exchanges: Exchanges,
    proxies: TrustedProxies,
    cors: Option<CorsLayer>,
}

impl ConnectionContext {
    async fn answer_http1(
        self: Arc<Self>,
        request: Request<Incoming>,
        exchange: Exchange,
    ) -> Result<Response<ExchangeBody>, Infallible> {
        let response = self.clone().answer(request.map(Body::new)).await;
        self.timeouts.answered();
        if response.extensions().get::<Unread>().is_some() {
            self.exchanges.leave_unread();
        }
        Ok(response.map(|body| exchange.body(body)))
    }

    async fn answer(self: Arc<Self>, request: Request) -> Response {
        // The layer would take a validation request for a preflight request of a browser.
        let cors = self.cors.clone().filter(|_| !is_validation(&request));
        let Some(cors) = cors else { return self.answer_api(request).await };
        let api = tower::service_fn(move |request| {
            let context = self.clone();
            async move { Ok::<_, Infallible>(context.answer_api(request).await) }
        });
        cors.layer(api).oneshot(request).await.unwrap_or_else(|never| match never {})
    }

    async fn answer_api(&self, request: Request) -> Response {
        match self.proxies.client(self.connection.peer.address, request.headers()) {
            None => self.api.answer(request, &self.connection).await,
            client => {
                let peer = Peer { forwarded_for: client, ..self.connection.peer };
                self.api.answer(request, &Connection { peer, ..self.connection.clone() }).await
            }
        }
    }
}

impl ConnectionServer {
    async fn start(self, tls: Option<TlsAcceptor>, mut stream: TcpStream, mut address: SocketAddr) {
        if self.limits.proxies.sends_header(address) {
            let header =
                tokio::time::timeout(self.limits.header_read_timeout, proxy::read_header(&mut stream));
            let header = tokio::select! {
                header = header => header,
                () = self.occupant.displaced() => return tracing::debug!("{GAVE_WAY}"),
            };
            match header {
                Ok(Ok(client)) => address = client.unwrap_or(address),
                Ok(Err(error)) => return tracing::debug!(%error, %address, "a proxy sent no PROXY header"),
                Err(_) => return tracing::debug!(%address, "the PROXY header of a connection timed out"),
            }
        }
        match tls {
            None if self.limits.protocol == Protocol::Http2 => self.run_plain_http2(stream, address).await,
            None => self.run(stream, address, None).await,
            Some(acceptor) => self.run_tls(acceptor, stream, address).await,
        }
    }

    async fn run_tls(self, acceptor: TlsAcceptor, stream: TcpStream, address: SocketAddr) {
        let handshake = tls::handshake(acceptor, stream);
        let stream = tokio::select! {
            stream = tokio::time::timeout(self.limits.header_read_timeout, handshake) => stream,
            () = self.occupant.displaced() => return tracing::debug!("{GAVE_WAY}"),
            () = self.shutdown.cut().cancelled() => return,
        };
        match stream {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let certificate = certificates.first().map(|first| Sha256::digest(first).into());
                self.run(stream, address, certificate).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, %address, "the TLS handshake of a connection failed"),
            Err(_) => tracing::debug!(%address, "the TLS handshake of a connection timed out"),
        }
    }

    /// Serves HTTP/2 to a client that begins with it. Any other client gets a response that says so.
    async fn run_plain_http2(self, stream: TcpStream, address: SocketAddr) {
        let begins = tokio::time::timeout(self.limits.header_read_timeout, http2_preface::begins(&stream));
        let begins = tokio::select! {
            begins = begins => begins,
            () = self.occupant.displaced() => return tracing::debug!("{GAVE_WAY}"),
            () = self.closing.cancelled() => return,
        };
        match begins {
            Ok(Ok(true)) => self.run(stream, address, None).await,
            Ok(Ok(false)) => {
                tracing::debug!(%address, "a connection does not begin with HTTP/2");
                let refusal = http2_preface::refuse(stream);
                let _late = tokio::time::timeout(self.limits.header_read_timeout, refusal).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, %address, "a connection ended early"),
            Err(_) => tracing::debug!(%address, "the beginning of a connection timed out"),
        }
    }

    async fn run<S: Transport>(self, stream: S, address: SocketAddr, certificate: Option<[u8; 32]>) {
        let Self { api, limits, timeouts, linger_room, closing, occupant, shutdown } = self;
        let (outbox, exchanges) = (Outbox::default(), Exchanges::default());
        let (calls, times) = (exchanges.clone(), timeouts.clone());
        occupant.report_idle(move || calls.are_finished().then(|| times.since_us()));
        let timing = (timeouts.clone(), limits.min_reply_rate);
        let is_http2 = limits.protocol == Protocol::Http2;
        let stream =
            ConnectionStream::new(stream, timing, outbox.clone(), exchanges.clone(), linger_room, is_http2);
        let stream = TokioIo::new(stream);
        let peer = Peer { address, forwarded_for: None, certificate };
        let context = Arc::new(ConnectionContext {
            api,
            connection: Connection {
                peer,
                outbox,
                occupant: occupant.clone(),
                is_tls: S::IS_TLS,
                timeouts: timeouts.clone(),
            },
            timeouts: timeouts.clone(),
            exchanges: exchanges.clone(),
            proxies: limits.proxies.clone(),
            cors: limits.cors.clone(),
        });
        let ends = Ends { timeouts: timeouts.clone(), closing, occupant, cut: shutdown.cut().clone() };
        if !is_http2 {
            let service = service_fn(move |request| {
                context.timeouts.request();
                context.clone().answer_http1(request, context.exchanges.begin())
            });
            let connection = http1_builder(&limits).serve_connection(stream, service);
            return ends.drive(connection, || timeouts.stalled()).await;
        }
        let streams = Streams::new(timeouts.clone(), exchanges, limits.min_reply_rate);
        let of_service = streams.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = context.clone().answer(request.map(Body::new));
            of_service.clone().answer(answer)
        });
        let executor = StreamExecutor { shutdown, runtime: Handle::current() };
        let connection = http2_builder(&limits, executor).serve_connection(stream, service);
        let stalled = || async {
            tokio::select! {
                () = timeouts.stalled() => {}
                () = streams.lost() => {}
            }
        };
        // In a box, so that a connection over HTTP/1.1 does not take the memory of this one.
        Box::pin(ends.drive(connection, stalled)).await;
    }
}

fn http1_builder(limits: &ConnectionLimits) -> http1::Builder {
    // `max_headers` is not set, because hyper would then allocate two buffers of 8 KiB for each request. With the
    // default of 100 headers, they stay on the stack.
    let mut http = http1::Builder::new();
    http.header_read_timeout(None)
        .max_header_size(limits.max_header_bytes.saturating_add(URI_BYTES_MAX + HEAD_REST_BYTES))
        .max_buf_size(limits.max_header_bytes.saturating_mul(2).max(BUFFER_BYTES));
    http
}

fn http2_builder(limits: &ConnectionLimits, executor: StreamExecutor) -> http2::Builder<StreamExecutor> {
    // h2 answers a larger head with a bare 431, ends a connection at four times the size, and derives the number of CONTINUATION
    // frames from it.
    let head_bytes = limits.max_header_bytes + URI_BYTES_MAX + HEAD_REST_BYTES + HEADERS_EXTRA_BYTES;
    let mut http = http2::Builder::new(executor);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(RESETS_BEFORE_ACCEPT_MAX)
        .max_local_error_reset_streams(RESETS_BY_ERROR_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(BUFFER_BYTES)
        .keep_alive_interval(PING_PERIOD)
        .keep_alive_timeout(PING_TIME_MAX);
    http
}

/// What ends a connection.
struct Ends {
    timeouts: Timeouts,
    closing: CancellationToken,
    occupant: Arc<Occupant>,
    cut: CancellationToken,
}

impl Ends {
    /// Runs a connection to its end. `stalled` completes when the client has exceeded a limit.
    async fn drive<C, F>(self, connection: C, stalled: impl Fn() -> F)
    where
        C: GracefulConnection<Error = hyper::Error>,
        F: Future<Output = ()>,
    {
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = &mut connection => ended,
            () = stalled() => return tracing::debug!("a connection stalled"),
            () = self.closing.cancelled() => {
                if self.occupant.must_leave() {
                    return tracing::debug!("{GAVE_WAY}");
                }
                self.timeouts.close();
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    biased;
                    ended = connection => ended,
                    // Neither an incomplete head nor an unread reply may delay the shutdown.
                    () = stalled() => return,
                    () = self.cut.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}
