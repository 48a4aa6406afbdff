//! A connection that takes little at a time, so that it shows what is written and what only buffered.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use super::*;
use crate::audit::Audit;
use crate::config::Settings;
use crate::engine::config::Config;
use crate::http::{AppState, Durability, Gate, HttpLimits, Measures, Parts};
use crate::service::metrics::Metrics;
use crate::service::{Limits, Name, Registry};
use crate::spans::Spans;

/// What the connection takes beyond what its peer has read, in bytes.
const PIPE_BYTES: usize = 512;

fn state(shutdown: &Shutdown) -> AppState {
    let clock = Clock::system();
    let limits = Limits { auto_create: true, max_queues: 1, max_waiters: 1 };
    let metrics = Metrics::new(100).expect("metrics");
    let registry = Registry::new(limits, Config::default(), clock.clone(), None, shutdown.clone(), metrics);
    let limits = HttpLimits {
        max_batch: 1,
        max_replace_objects: 1,
        max_reply_bytes: 1 << 20,
        ..HttpLimits::of(&Settings::default())
    };
    AppState::from(Parts {
        measures: Measures::new(registry.metrics()),
        registry: Arc::new(registry),
        limits,
        gate: Arc::new(Gate::open()),
        audit: Audit::default(),
        spans: Spans::default(),
        started_us: clock.wall_us(),
        clock,
        shutdown: shutdown.clone(),
        durability: Durability::Memory,
        serves_metrics: false,
    })
}

fn connected(state: &AppState) -> (DuplexStream, JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let hour = Duration::from_hours(1);
    let bounds = Bounds {
        header_read_timeout: hour,
        idle_timeout: hour,
        max_header_bytes: 1 << 14,
        max_connections: 1,
        measures: state.measures.clone(),
        open: metrics::Gauge::noop(),
    };
    let pace = Pace::new(state.clock.clone(), hour, hour);
    let serving = Serving {
        api: Api::new(state.clone()),
        bounds,
        pace,
        closing: CancellationToken::new(),
        cut: CancellationToken::new(),
    };
    let peer = Peer { address: ([127, 0, 0, 1], 1).into(), has_certificate: false };
    (near, state.shutdown.spawn("connection", serving.run(far, peer)))
}

/// Adds a key of an object that is larger than the pipe and smaller than every buffer, and pops it;
/// reads `read` bytes of the answer, then leaves. Tells whether the key is with the worker.
async fn leased_after(read: usize) -> bool {
    let shutdown = Shutdown::manual(Duration::ZERO);
    let state = state(&shutdown);
    let (mut stream, connection) = connected(&state);
    let object = format!("{{\"key\":\"k\",\"filler\":\"{}\"}}", "x".repeat(20_000));
    let head = |call: &str, length: usize| {
        format!("POST /v1/queues/q/{call} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
    };
    stream.write_all((head("add", object.len()) + &object).as_bytes()).await.expect("written");
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        stream.read_buf(&mut answer).await.expect("an answer");
    }
    stream.write_all(head("pop", 0).as_bytes()).await.expect("written");
    stream.read_exact(&mut vec![0; read]).await.expect("an answer");
    drop(stream);
    connection.await.expect("no panic");
    let handle = state.registry.get(&Name::new("q").expect("a name")).expect("the queue");
    let leased = handle.read(|queue, _| queue.schedule().leased_len()).await.expect("the queue");
    shutdown.signal();
    leased == 1
}

#[tokio::test]
async fn keys_whose_answer_is_only_buffered_go_back_when_the_connection_ends() {
    assert!(!leased_after(1_000).await);
    assert!(leased_after(20_000).await, "all of it was written");
}
