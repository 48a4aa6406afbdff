//! The overload response: a connection beyond `server.max_connections` gets it and is closed.

use std::sync::Arc;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::stream::closing_response;
use crate::http::problem::{Code, Problem};

/// Maximum number of overload responses in progress. Further connections are closed without a response.
const RESPONSES_MAX: usize = 256;
/// Time limit of one overload response.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(1);
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
    /// Whether clients expect TLS. A handshake would cost too much here, so the connection is then closed without a
    /// response.
    is_tls: bool,
    log_limit: LogLimit,
}

impl OverloadResponder {
    pub(super) fn new(max_connections: usize, is_tls: bool, clock: Clock) -> Self {
        let responses = Arc::new(Semaphore::new(RESPONSES_MAX));
        Self { responses, max_connections, is_tls, log_limit: LogLimit::new(clock) }
    }

    /// Writes the overload response in the returned future; `None` if the connection is closed at once.
    pub(super) fn refuse(&mut self, stream: TcpStream) -> Option<impl Future<Output = ()> + Send + use<>> {
        let limit = self.max_connections;
        if let Some(connections) = self.log_limit.count() {
            tracing::warn!(connections, limit, "connections were refused: server.max_connections are open");
        }
        let permit = self.responses.clone().try_acquire_owned().ok().filter(|_| !self.is_tls)?;
        Some(async move {
            let detail = format!("{limit} connections are open (server.max_connections)");
            let problem = Problem::new(Code::TooManyConnections, detail).with("limit", limit);
            let response = closing_response(&problem);
            let _sent = tokio::time::timeout(RESPONSE_TIME_MAX, send_and_close(stream, &response)).await;
            drop(permit);
        })
    }
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
