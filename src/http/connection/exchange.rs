//! Distinguishes the bytes of our responses from those that hyper writes on its own.
//!
//! hyper answers a request that it can't parse with a bare status line that no handler or layer sees. It reads a
//! request only after the previous response. So if a byte is written while no response is unfinished, it belongs to
//! such an automatic response. A response is unfinished from the moment its request reaches the service until hyper
//! has dropped its body and flushed the stream. The bytes themselves are never inspected, because callers can
//! influence them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// Counts the requests of one connection. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchanges(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Number of requests that reached the service.
    begun: AtomicU64,
    /// Number of requests whose response body was dropped. hyper holds the rest of such a response in its buffer.
    produced: AtomicU64,
    /// Number of requests whose response has been written. Invariant: `flushed <= begun`.
    flushed: AtomicU64,
    /// Whether the last request has a body that nobody reads.
    has_unread: AtomicBool,
}

/// One request, until its response body is dropped.
#[derive(Debug)]
pub(super) struct Exchange(Exchanges);

impl Exchanges {
    /// Records that a request has reached the service.
    pub(super) fn begin(&self) -> Exchange {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        Exchange(self.clone())
    }

    /// Records that hyper has written everything in its buffer.
    pub(super) fn flushed(&self) {
        let begun = self.0.begun.load(Ordering::Relaxed);
        if self.0.produced.load(Ordering::Relaxed) == begun {
            self.0.flushed.store(begun, Ordering::Relaxed);
        }
    }

    /// Records that the connection ends after the current response although the client may still be sending.
    pub(super) fn leave_unread(&self) {
        self.0.has_unread.store(true, Ordering::Relaxed);
    }

    /// Whether part of a request was left unread.
    pub(super) fn have_unread(&self) -> bool {
        self.0.has_unread.load(Ordering::Relaxed)
    }

    /// Whether every request has its complete response. If so, anything that hyper writes is an automatic response.
    pub(super) fn are_finished(&self) -> bool {
        self.0.flushed.load(Ordering::Relaxed) == self.0.begun.load(Ordering::Relaxed)
    }
}

impl Exchange {
    /// The body of the response. The exchange ends when hyper drops it.
    pub(super) fn body(self, body: Body) -> ExchangeBody {
        ExchangeBody { body, _exchange: self }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.0.produced.fetch_add(1, Ordering::Relaxed);
    }
}

/// A response body that keeps its exchange open.
#[derive(Debug)]
pub(super) struct ExchangeBody {
    body: Body,
    _exchange: Exchange,
}

impl http_body::Body for ExchangeBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_is_finished_when_its_response_is_flushed() {
        let exchanges = Exchanges::default();
        assert!(exchanges.are_finished());
        let exchange = exchanges.begin();
        exchanges.flushed();
        assert!(!exchanges.are_finished(), "the body is still to come");
        drop(exchange.body(Body::empty()));
        assert!(!exchanges.are_finished(), "the response is only buffered");
        exchanges.flushed();
        assert!(exchanges.are_finished());
    }

    #[test]
    fn a_pipelined_request_keeps_the_connection_in_an_exchange() {
        let exchanges = Exchanges::default();
        let first = exchanges.begin();
        let second = exchanges.begin();
        drop(first);
        exchanges.flushed();
        assert!(!exchanges.are_finished(), "the second request has no response yet");
        drop(second);
        exchanges.flushed();
        assert!(exchanges.are_finished());
    }
}
