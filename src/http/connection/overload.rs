//! The overload response: a connection beyond `server.max_connections` gets it and is closed.
//!
//! An `EventSource` never connects again after a status other than 200, so the head of the request is read before the response.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use deltaq_runtime::clock::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::stream::{closing_events, closing_response};
use crate::http::problem::{Code, Problem};
use crate::http::request::watch_form::WatchForm;

/// Maximum number of overload responses in progress. Further connections are closed without a response.
const RESPONSES_MAX: usize = 256;
/// Timeout of one overload response.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(1);
/// Timeout for the head of a request, and the maximum number of its bytes that are read.
const HEAD_TIME_MAX: Duration = Duration::from_millis(250);
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Minimum time between two lines that [`LogLimit`] allows.
const LOG_PERIOD: Duration = Duration::from_mins(1);

/// Rate-limits equal log lines to one per minute.
#[derive(Debug)]
pub(super) struct LogLimit {
    clock: Clock,
    logged_us: Option<u64>,
    /// Occurrences since the last line.
    held_back: u64,
}

impl LogLimit {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, logged_us: None, held_back: 0 }
    }

    /// Counts an occurrence. Returns the number of occurrences since the last line if a new line is due.
    pub(super) fn count(&mut self) -> Option<u64> {
        self.held_back += 1;
        if self.logged_us.is_some_and(|logged_us| self.clock.since(logged_us) < LOG_PERIOD) {
            return None;
        }
        self.logged_us = Some(self.clock.monotonic_us());
        Some(std::mem::take(&mut self.held_back))
    }
}

/// Refuses connections.
#[derive(Debug)]
pub(super) struct OverloadResponder {
    responses: Arc<Semaphore>,
    max_connections: usize,
    /// Whether clients expect TLS or HTTP/2. A handshake would cost too much here, so the connection is then closed without a
    /// response.
    is_silent: bool,
    log_limit: LogLimit,
}

impl OverloadResponder {
    pub(super) fn new(max_connections: usize, is_silent: bool, clock: Clock) -> Self {
        let responses = Arc::new(Semaphore::new(RESPONSES_MAX));
        Self { responses, max_connections, is_silent, log_limit: LogLimit::new(clock) }
    }

    /// Writes the overload response in the returned future; `None` if the connection is closed at once.
    pub(super) fn refuse(&mut self, stream: TcpStream) -> Option<impl Future<Output = ()> + Send + use<>> {
        let limit = self.max_connections;
        if let Some(connections) = self.log_limit.count() {
            tracing::warn!(connections, limit, "connections were refused: server.max_connections are open");
        }
        let permit = self.responses.clone().try_acquire_owned().ok().filter(|_| !self.is_silent)?;
        Some(async move {
            let detail = format!("{limit} connections are open (server.max_connections)");
            let problem = Problem::new(Code::TooManyConnections, detail).with("limit", limit);
            let _sent = tokio::time::timeout(RESPONSE_TIME_MAX, refuse(stream, &problem)).await;
            drop(permit);
        })
    }
}

async fn refuse(mut stream: TcpStream, problem: &Problem) -> std::io::Result<()> {
    let mut head = Vec::new();
    // A client whose head does not arrive in time is treated like one that does not ask for server-sent events.
    let _late = tokio::time::timeout(HEAD_TIME_MAX, read_head(&mut stream, &mut head)).await;
    let response = if is_event_source(&head) { closing_events(problem) } else { closing_response(problem) };
    send_and_close(stream, &response).await
}

async fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> std::io::Result<()> {
    let is_complete = |head: &[u8]| head.windows(4).any(|end| end == b"\r\n\r\n");
    while !is_complete(head) && head.len() < HEAD_BYTES_MAX && stream.read_buf(head).await? > 0 {}
    Ok(())
}

/// Whether the head of a request asks for a watch as server-sent events.
fn is_event_source(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.strip_prefix("GET ")?.split(['?', ' ']).next());
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value.trim()).ok()?))
    };
    let headers: HeaderMap = lines.filter_map(header).collect();
    path.is_some_and(|path| path.ends_with("/watch"))
        && WatchForm::of(&headers).is_ok_and(|form| form == WatchForm::Events)
}

/// Sends a response and reads until the peer closes the connection. If the socket were closed with unread bytes, the
/// connection would be reset and the peer would lose the response.
pub(super) async fn send_and_close(mut stream: TcpStream, response: &[u8]) -> std::io::Result<()> {
    stream.write_all(response).await?;
    stream.shutdown().await?;
    let mut unread = [0; 4_096];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_source_is_told_by_its_head() {
        let head =
            |path: &str, accept: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
        for (head, is_one) in [
            (head("/v1/queues/a/watch?resource_version=0", "text/event-stream"), true),
            (head("/v1/queues/a/watch", "application/json;q=0.5, text/event-stream"), true),
            (head("/v1/queues/a/watch", "application/x-ndjson"), false),
            (head("/v1/queues/a/items?x=/watch", "text/event-stream"), false),
            (head("/v1/queues/a/watch", "text/html"), false),
            ("POST /v1/queues/a/watch HTTP/1.1\r\naccept: text/event-stream\r\n\r\n".to_owned(), false),
            ("GET /v1/queues/a/watch HTTP/1.1\r\n\r\n".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_event_source(head.as_bytes()), is_one, "{head}");
        }
    }

    #[test]
    fn the_log_gets_one_line_a_minute() {
        let (clock, hand) = Clock::manual(0);
        let mut limit = LogLimit::new(clock);
        let counted: Vec<_> = (0..20).map(|_| limit.count()).collect();
        assert_eq!(counted.iter().flatten().count(), 1);
        hand.advance(LOG_PERIOD);
        assert_eq!(limit.count(), Some(20));
        assert_eq!(limit.count(), None);
    }
}
