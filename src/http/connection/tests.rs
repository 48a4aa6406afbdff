//! Connections over a small pipe, so that buffered bytes and written bytes differ.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Name, Partitions, Registry, WatchLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use super::*;
use crate::audit::Audit;
use crate::config::Settings;
use crate::http::{AppState, Gate, HttpLimits, Parts, RequestMetrics, StoreInfo};
use crate::push::{Connector, Policy};
use crate::spans::Spans;

/// Number of bytes that the pipe holds in each direction.
const PIPE_BYTES: usize = 512;

fn state(shutdown: &Shutdown) -> AppState {
    let clock = Clock::system();
    let limits = Limits { auto_create: true, max_queues: 1, max_waiters: 1, watch: WatchLimits::default() };
    let metrics = Metrics::new(100).expect("metrics");
    let registry = Registry::new(limits, Config::default(), clock.clone(), None, shutdown.clone(), metrics);
    let limits = HttpLimits {
        max_batch: 1,
        max_replace_objects: 1,
        max_reply_bytes: 1 << 20,
        ..HttpLimits::of(&Settings::default())
    };
    AppState::from(Parts {
        request_metrics: RequestMetrics::new(registry.metrics()),
        partitions: Arc::new(Partitions::single(Arc::new(registry))),
        limits,
        gate: Arc::new(Gate::open()),
        audit: Audit::default(),
        refused_lines: Arc::default(),
        push: Arc::default(),
        hook_secrets: Arc::default(),
        connector: Connector::new(&Policy::default()).expect("a connector"),
        spans: Spans::default(),
        started_us: clock.wall_us(),
        clock,
        shutdown: shutdown.clone(),
        store: StoreInfo::MEMORY,
        node: None,
        serves_metrics: false,
        serves_console: false,
        links: Arc::default(),
        serves_kubernetes: false,
    })
}

fn connected(state: &AppState) -> (DuplexStream, JoinHandle<()>) {
    connected_until(state, CancellationToken::new())
}

fn connected_until(state: &AppState, closing: CancellationToken) -> (DuplexStream, JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let hour = Duration::from_hours(1);
    let seats = Seats::new(1);
    let (seat, _) = seats.admit(closing.clone(), true).expect("a seat");
    let limits = ConnectionLimits {
        protocol: Protocol::Http1,
        header_read_timeout: hour,
        idle_timeout: hour,
        min_reply_rate: state.limits.min_body_rate,
        max_header_bytes: 1 << 14,
        max_connections: 1,
        seats,
        request_metrics: state.request_metrics.clone(),
        open: metrics::Gauge::noop(),
        proxies: TrustedProxies::default(),
        cors: None,
    };
    let timeouts = Timeouts::new(state.clock.clone(), hour, hour);
    let server = ConnectionServer {
        api: Api::new(state.clone()),
        limits,
        timeouts,
        linger_room: LingerRoom::of(1),
        occupant: seat.occupant(),
        closing,
        shutdown: state.shutdown.clone(),
    };
    let address = ([127, 0, 0, 1], 1).into();
    (near, state.shutdown.spawn("connection", server.run(far, address, None)))
}

/// Adds and pops a key whose object is larger than the pipe and smaller than every buffer, reads the reply until `is_enough`,
/// then disconnects. Returns whether the key is leased.
async fn leased_after(is_enough: impl Fn(&[u8]) -> bool) -> bool {
    let shutdown = Shutdown::manual(Duration::ZERO);
    let state = state(&shutdown);
    let (mut stream, connection) = connected(&state);
    let object = format!("{{\"key\":\"k\",\"filler\":\"{}\"}}", "x".repeat(20_000));
    let head = |call: &str, length: usize| {
        format!("POST /v1/queues/q/{call} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
    };
    stream.write_all((head("add", object.len()) + &object).as_bytes()).await.expect("written");
    let mut answer = Vec::new();
    while !answer.ends_with(b"}\n") {
        stream.read_buf(&mut answer).await.expect("an answer");
    }
    stream.write_all(head("pop", 0).as_bytes()).await.expect("written");
    let mut reply = Vec::new();
    while !is_enough(&reply) {
        stream.read_buf(&mut reply).await.expect("a reply");
    }
    drop(stream);
    connection.await.expect("no panic");
    let handle = state.partitions.get(&Name::new("q").expect("a name")).expect("the queue");
    // Any change to the queue first returns the leases that were not delivered.
    handle.set_paused(false).await.expect("the queue");
    let leased = handle.document().await.expect("the queue").status.leased;
    shutdown.signal();
    leased == 1
}

#[tokio::test]
async fn keys_whose_reply_is_only_buffered_return_when_the_connection_ends() {
    assert!(!leased_after(|reply| reply.len() >= 1_000).await);
    let is_whole = |reply: &[u8]| reply.ends_with(b"\"closed\":false,\"paused\":false}\n");
    assert!(leased_after(is_whole).await, "the whole reply was written");
}

#[tokio::test]
async fn half_a_head_takes_little_memory() {
    let shutdown = Shutdown::manual(Duration::ZERO);
    let (stream, connection) = connected(&state(&shutdown));
    let (mut reader, mut writer) = tokio::io::split(stream);
    let head = [b"GET /v1/info HTTP/1.1\r\nhost: localhost\r\nx: ".as_slice(), &vec![b'x'; 200_000]].concat();
    let written = Cell::new(0);
    let write = async {
        while let Some(rest @ [_, ..]) = head.get(written.get()..) {
            written.set(written.get() + writer.write(rest).await.expect("the server reads"));
        }
    };
    let read = async {
        let mut response = Vec::new();
        reader.read_buf(&mut response).await.expect("a response");
        let read_before = written.get();
        reader.read_to_end(&mut response).await.expect("the end");
        (read_before, String::from_utf8(response).expect("text"))
    };
    let ((), (read_before, response)) = tokio::join!(write, read);
    assert!(response.contains("\"code\":\"headers-too-large\""), "{response}");
    assert!(response.contains("x-request-id: unparsed-"), "{response}");
    assert!((16_000..40_000).contains(&read_before), "{read_before} bytes were read before the response");
    drop((reader, writer));
    connection.await.expect("no panic");
    shutdown.signal();
}

#[tokio::test(start_paused = true)]
async fn the_shutdown_ends_a_connection_that_lingers() {
    let shutdown = Shutdown::manual(Duration::ZERO);
    let closing = CancellationToken::new();
    let (mut stream, connection) = connected_until(&state(&shutdown), closing.clone());
    let head = "POST /v1/queues/q/add?x=1 HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("written");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("the end of the response");
    assert!(!connection.is_finished(), "the client may still send its body");
    let before = tokio::time::Instant::now();
    closing.cancel();
    connection.await.expect("no panic");
    assert_eq!(before.elapsed(), Duration::ZERO);
    shutdown.signal();
}
