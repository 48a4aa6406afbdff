//! The streams of an HTTP/2 connection: when the connection is idle, and which clients lose it.
//!
//! hyper and h2 limit the number of streams, the size of headers, the frames without data, and the streams that are reset before they
//! are accepted. They do not limit how slowly a client reads one of its replies, which its flow-control window may stop
//! for ever, and how many accepted requests it resets.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Buf, Bytes};
use deltaq_runtime::lifecycle::Shutdown;
use http_body::{Body as _, Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::exchange::{Exchange, Exchanges};
use crate::http::gate::body_rate::{BodyRate, BodyRateLimit};
use crate::http::gate::in_flight::UntilSent;
use crate::http::timeouts::Timeouts;

/// Maximum number of streams that a client may have open at a time.
pub(super) const STREAMS_MAX: u32 = 100;
/// Maximum number of requests of a connection that their client resets soon after their beginning, in each period. A client may reset all of its streams,
/// such as when a page is left, and open and reset them once more.
const RESETS_MAX: u32 = 2 * STREAMS_MAX;
const RESETS_PERIOD: Duration = Duration::from_secs(1);

/// Runs the streams of a connection on its thread.
#[derive(Clone, Debug)]
pub(super) struct StreamExecutor {
    pub(super) shutdown: Shutdown,
    pub(super) runtime: Handle,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        // The stream ends with its connection.
        self.shutdown.spawn_on(&self.runtime, "stream", stream);
    }
}

/// The streams of one connection. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Streams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    timeouts: Timeouts,
    exchanges: Exchanges,
    min_rate: BodyRateLimit,
    /// Number of requests without a response.
    running: AtomicUsize,
    /// When the current period of resets began, in microseconds of the monotonic clock, and the number of its resets.
    resets: Mutex<(u64, u32)>,
    /// The streams of which hyper has taken a piece of a reply.
    sending: Mutex<Vec<Weak<Stream>>>,
    /// Cancelled when the client loses the connection.
    lost: CancellationToken,
}

/// One request, until the last byte of its reply is sent or the stream is reset.
#[derive(Debug)]
struct Stream {
    streams: Streams,
    begun_us: u64,
    unsent: Mutex<Unsent>,
    _exchange: Exchange,
}

/// The part of a reply that waits for the client.
#[derive(Debug)]
struct Unsent {
    bytes: usize,
    /// When the client has accepted bytes for the last time, or when there were none, in microseconds of the monotonic clock.
    since_us: u64,
    rate: BodyRate,
    is_listed: bool,
    /// What the reply holds until it is sent.
    held: Option<UntilSent>,
}

impl Streams {
    pub(super) fn new(timeouts: Timeouts, exchanges: Exchanges, min_rate: BodyRateLimit) -> Self {
        Self(Arc::new(Shared {
            timeouts,
            exchanges,
            min_rate,
            running: AtomicUsize::new(0),
            resets: Mutex::default(),
            sending: Mutex::default(),
            lost: CancellationToken::new(),
        }))
    }

    /// Answers a request.
    pub(super) async fn answer(
        self,
        answer: impl Future<Output = Response>,
    ) -> Result<Response<StreamBody>, Infallible> {
        let running = self.begin();
        Ok(running.end(answer.await))
    }

    fn begin(&self) -> Running {
        let shared = &self.0;
        shared.running.fetch_add(1, Ordering::Relaxed);
        shared.timeouts.request();
        let begun_us = shared.timeouts.clock().monotonic_us();
        let unsent = Unsent {
            bytes: 0,
            since_us: begun_us,
            rate: BodyRate::new(shared.min_rate),
            is_listed: false,
            held: None,
        };
        let stream = Stream {
            streams: self.clone(),
            begun_us,
            unsent: Mutex::new(unsent),
            _exchange: shared.exchanges.begin(),
        };
        Running { stream: Arc::new(stream), is_answered: false }
    }

    /// Counts a stream that its client has reset.
    fn reset(&self, begun_us: u64) {
        let clock = self.0.timeouts.clock();
        if clock.since(begun_us) >= RESETS_PERIOD {
            return;
        }
        let mut resets = self.0.resets.lock();
        let (since_us, count) = &mut *resets;
        if clock.since(*since_us) >= RESETS_PERIOD {
            (*since_us, *count) = (clock.monotonic_us(), 0);
        }
        *count += 1;
        if *count > RESETS_MAX {
            tracing::debug!("a client resets too many streams");
            self.0.lost.cancel();
        }
    }

    /// Completes when the client does not read one of its replies, or resets too many streams.
    pub(super) async fn lost(&self) {
        let watch = async {
            loop {
                let limit = self.0.timeouts.reading_limit();
                tokio::time::sleep(limit / 2).await;
                if self.has_stalled(limit) {
                    return tracing::debug!("a client does not read a reply");
                }
            }
        };
        tokio::select! {
            () = self.0.lost.cancelled() => {}
            () = watch => {}
        }
    }

    fn has_stalled(&self, limit: Duration) -> bool {
        let clock = self.0.timeouts.clock();
        let mut has_stalled = false;
        self.0.sending.lock().retain(|stream| {
            let Some(stream) = stream.upgrade() else { return false };
            let unsent = stream.unsent.lock();
            has_stalled |= unsent.bytes > 0 && clock.since(unsent.since_us) >= limit;
            true
        });
        has_stalled
    }
}

/// A request without a response.
struct Running {
    stream: Arc<Stream>,
    is_answered: bool,
}

impl Running {
    fn end(mut self, mut response: Response) -> Response<StreamBody> {
        self.is_answered = true;
        self.stream.unsent.lock().held = response.extensions_mut().remove::<UntilSent>();
        let stream = self.stream.clone();
        response.map(|body| StreamBody { body, stream, has_ended: false })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Stream { streams, begun_us, .. } = &*self.stream;
        if streams.0.running.fetch_sub(1, Ordering::Relaxed) == 1 {
            streams.0.timeouts.answered();
        }
        if !self.is_answered {
            streams.reset(*begun_us);
        }
    }
}

impl Stream {
    /// Records a piece that hyper has taken.
    fn take(self: &Arc<Self>, bytes: usize) {
        let mut unsent = self.unsent.lock();
        if unsent.bytes == 0 {
            unsent.since_us = self.streams.0.timeouts.clock().monotonic_us();
        }
        unsent.bytes += bytes;
        let is_listed = std::mem::replace(&mut unsent.is_listed, true);
        drop(unsent);
        if !is_listed {
            let mut sending = self.streams.0.sending.lock();
            // The list stays about as long as there are streams, without a pass over it for each of them.
            if sending.len() >= 2 * STREAMS_MAX as usize {
                sending.retain(|stream| stream.strong_count() > 0);
            }
            sending.push(Arc::downgrade(self));
        }
    }

    /// Records bytes that the flow control of the client has let pass.
    fn sent(&self, bytes: usize) {
        let shared = &self.streams.0;
        let now_us = shared.timeouts.clock().monotonic_us();
        let mut unsent = self.unsent.lock();
        let waited = Duration::from_micros(now_us.saturating_sub(unsent.since_us));
        unsent.bytes = unsent.bytes.saturating_sub(bytes);
        unsent.since_us = now_us;
        if unsent.rate.passed(waited, bytes).is_err() {
            tracing::debug!("a client reads a reply too slowly");
            shared.lost.cancel();
        }
        if unsent.bytes == 0 {
            unsent.rate = BodyRate::new(shared.min_rate);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The reply is sent, or nobody waits for it.
        drop(self.unsent.get_mut().held.take());
    }
}

/// The body of a reply. Its pieces know when they are sent.
pub(super) struct StreamBody {
    body: Body,
    stream: Arc<Stream>,
    has_ended: bool,
}

impl http_body::Body for StreamBody {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        self.has_ended |= !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|bytes| {
                    self.stream.take(bytes.len());
                    Piece { bytes, stream: self.stream.clone() }
                })
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        if !self.has_ended && !self.body.is_end_stream() {
            self.stream.streams.reset(self.stream.begun_us);
        }
    }
}

/// A piece of a reply, until it is sent.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    stream: Arc<Stream>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
        self.stream.sent(bytes);
    }
}

#[cfg(test)]
mod tests {
    use deltaq_runtime::clock::{Clock, ManualClock};

    use super::*;

    const LIMIT: BodyRateLimit = BodyRateLimit { bytes_per_second: 256, grace: Duration::from_secs(10) };

    fn streams() -> (Streams, ManualClock) {
        let (clock, hand) = Clock::manual(0);
        let timeouts = Timeouts::new(clock, Duration::from_secs(10), Duration::from_mins(2));
        (Streams::new(timeouts, Exchanges::default(), LIMIT), hand)
    }

    fn is_lost(streams: &Streams) -> bool {
        streams.0.lost.is_cancelled()
    }

    #[test]
    fn a_client_may_reset_streams_but_not_many_at_once() {
        let (streams, hand) = streams();
        for _ in 0..3 {
            for _ in 0..RESETS_MAX {
                drop(streams.begin());
            }
            assert!(!is_lost(&streams));
            hand.advance(RESETS_PERIOD);
        }
        for _ in 0..RESETS_MAX {
            let old = streams.begin();
            hand.advance(RESETS_PERIOD);
            drop(old);
        }
        assert!(!is_lost(&streams), "streams that have lasted");
        for _ in 0..=RESETS_MAX {
            assert!(!is_lost(&streams));
            let response = Response::new(Body::from("unread"));
            drop(streams.begin().end(response));
        }
        assert!(is_lost(&streams));
    }

    #[test]
    fn a_reply_that_was_read_is_no_reset() {
        let (streams, _) = streams();
        for _ in 0..=RESETS_MAX {
            drop(streams.begin().end(Response::new(Body::empty())));
        }
        assert!(!is_lost(&streams));
    }

    fn piece(stream: &Arc<Stream>, bytes: usize) -> Piece {
        stream.take(bytes);
        Piece { bytes: vec![0; bytes].into(), stream: stream.clone() }
    }

    #[test]
    fn a_reply_must_be_read_at_the_minimum_rate() {
        let (streams, hand) = streams();
        let response = streams.begin().end(Response::new(Body::from("x")));
        let mut piece = piece(&response.body().stream, 20_000);
        for _ in 0..9 {
            hand.advance(Duration::from_secs(1));
            piece.advance(1);
        }
        assert!(!is_lost(&streams), "within the grace period");
        hand.advance(Duration::from_secs(1));
        piece.advance(1);
        assert!(is_lost(&streams));
    }

    #[test]
    fn a_reply_that_is_not_read_at_all_is_noticed() {
        let (streams, hand) = streams();
        let limit = streams.0.timeouts.reading_limit();
        let response = streams.begin().end(Response::new(Body::from("x")));
        hand.advance(limit);
        assert!(!streams.has_stalled(limit), "nothing was sent yet");
        let mut piece = piece(&response.body().stream, 10);
        hand.advance(limit / 2);
        piece.advance(5);
        hand.advance(limit / 2);
        assert!(!streams.has_stalled(limit));
        hand.advance(limit / 2);
        assert!(streams.has_stalled(limit));
        piece.advance(5);
        assert!(!streams.has_stalled(limit), "the reply is read");
        streams.0.timeouts.close();
        assert!(streams.0.timeouts.reading_limit() < limit, "less while the server stops");
        drop((piece, response));
        assert!(!streams.has_stalled(Duration::ZERO) && streams.0.sending.lock().is_empty());
    }

    #[test]
    fn the_connection_is_idle_when_no_request_runs() {
        let (streams, hand) = streams();
        let (first, second) = (streams.begin(), streams.begin());
        hand.advance(Duration::from_secs(5));
        drop(first);
        assert_eq!(streams.0.timeouts.since_us(), 0, "the second one runs");
        drop(second);
        assert_eq!(streams.0.timeouts.since_us(), 5_000_000);
    }
}
