//! The byte stream of a connection as hyper reads and writes it. It updates the timeouts, confirms the delivery of
//! pops, and replaces hyper's bare error responses with problem documents.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::http::StatusCode;
use bytes::{Buf, Bytes};
use deltaq_runtime::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::exchange::Exchanges;
use super::linger::{Linger, LingerRoom};
use super::transport::Transport;
use crate::http::gate::body_rate::{BodyRate, BodyRateLimit};
use crate::http::problem::{self, Problem};
use crate::http::reply::delivery::Outbox;
use crate::http::timeouts::Timeouts;
use crate::http::wire;

/// The number of polls by which a clean end of the stream is delayed. hyper drops the running request at the end of
/// the stream. So a client that closes its sending side after a request gets a response only if the handler ends
/// first.
const END_DELAY_POLLS: u8 = 2;

/// The stream of one connection.
#[derive(Debug)]
pub(super) struct ConnectionStream<S> {
    stream: S,
    timeouts: Timeouts,
    reading: ReadingRate,
    /// The pops whose replies are in hyper's buffer. hyper flushes the stream when its buffer is empty.
    outbox: Outbox,
    exchanges: Exchanges,
    /// The problem document that replaces an automatic response of hyper, while it is being written.
    replacement: Option<Replacement>,
    end_delayed: u8,
    closing: Closing,
    /// Whether the connection has many requests at a time. hyper then answers nothing by itself that a client could read, and
    /// the bytes that arrive need not be a head.
    is_multiplexed: bool,
}

/// The progress of closing the connection.
#[derive(Debug)]
enum Closing {
    /// The sending side is open.
    Open(LingerRoom),
    /// The sending side has ended, and the peer may still be sending.
    Lingering(Linger),
    /// Nothing is left to do.
    Closed,
}

#[derive(Debug)]
struct Replacement {
    rest: Bytes,
    /// Number of bytes of hyper's response that have been replaced by `rest`.
    replaced: usize,
}

/// How fast the client reads what waits for it.
#[derive(Debug)]
struct ReadingRate {
    rate: BodyRate,
    limit: BodyRateLimit,
    /// Since when the client accepts nothing, in microseconds of the monotonic clock.
    blocked_us: Option<u64>,
}

impl ReadingRate {
    fn new(limit: BodyRateLimit) -> Self {
        Self { rate: BodyRate::new(limit), limit, blocked_us: None }
    }

    /// Fails a write to a client that reads too slowly.
    fn poll(&mut self, written: Poll<io::Result<usize>>, clock: &Clock) -> Poll<io::Result<usize>> {
        match (&written, self.blocked_us) {
            (Poll::Pending, None) => self.blocked_us = Some(clock.monotonic_us()),
            (Poll::Ready(Ok(bytes)), Some(since_us)) => {
                self.blocked_us = None;
                if self.rate.passed(clock.since(since_us), *bytes).is_err() {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the client reads too slowly",
                    )));
                }
            }
            _ => {}
        }
        written
    }

    /// Records that the client has accepted everything.
    fn rest(&mut self) {
        *self = Self::new(self.limit);
    }
}

impl<S> ConnectionStream<S> {
    pub(super) fn new(
        stream: S,
        (timeouts, min_rate): (Timeouts, BodyRateLimit),
        outbox: Outbox,
        exchanges: Exchanges,
        room: LingerRoom,
        is_multiplexed: bool,
    ) -> Self {
        let (closing, reading) = (Closing::Open(room), ReadingRate::new(min_rate));
        let (replacement, end_delayed) = (None, 0);
        Self {
            stream,
            timeouts,
            reading,
            outbox,
            exchanges,
            replacement,
            end_delayed,
            closing,
            is_multiplexed,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            if !self.is_multiplexed {
                self.timeouts.received();
            }
        } else if matches!(read, Poll::Ready(Ok(()))) && self.end_delayed < END_DELAY_POLLS {
            self.end_delayed += 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        read
    }
}

impl<S: Transport> AsyncWrite for ConnectionStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.outbox.holds_leases() && this.stream.is_closed_by_peer() {
            // No one reads the reply. The leases in the outbox are undone when the connection ends.
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let is_idle = this.exchanges.are_finished();
        if this.replacement.is_none() && is_idle && !this.is_multiplexed {
            this.replacement = Some(Replacement::of(buffer));
            this.exchanges.leave_unread();
        }
        let Some(Replacement { rest, replaced }) = &mut this.replacement else {
            // Only bytes that the peer accepts reset the timeout.
            let written = Pin::new(&mut this.stream).poll_write(context, buffer);
            let written = ready!(this.reading.poll(written, this.timeouts.clock()))?;
            // A ping of an idle client does not keep its connection open.
            if !is_idle {
                this.timeouts.sent();
            }
            return Poll::Ready(Ok(written));
        };
        while rest.has_remaining() {
            let written = ready!(Pin::new(&mut this.stream).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            rest.advance(written);
        }
        let replaced = *replaced;
        this.replacement = None;
        Poll::Ready(Ok(replaced))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.reading.rest();
            self.outbox.written();
            self.exchanges.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.closing {
                Closing::Open(room) => {
                    ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
                    // A client that reads the last reply before a shutdown may still send updates of its windows.
                    let lingers =
                        this.exchanges.have_unread() || (this.is_multiplexed && this.timeouts.are_closing());
                    let linger = lingers.then(|| room.enter(this.is_multiplexed)).flatten();
                    this.closing = linger.map_or(Closing::Closed, Closing::Lingering);
                }
                Closing::Lingering(linger) => {
                    if this.is_multiplexed || !this.timeouts.are_closing() {
                        ready!(linger.poll(Pin::new(&mut this.stream), context));
                    }
                    this.closing = Closing::Closed;
                }
                Closing::Closed => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl Replacement {
    /// Replaces an automatic response. Only its status is kept.
    fn of(response: &[u8]) -> Self {
        let status = response.get("HTTP/1.1 ".len()..).and_then(|rest| rest.get(..3));
        let status = status.and_then(|status| StatusCode::from_bytes(status).ok());
        let status = status.filter(StatusCode::is_client_error).unwrap_or(StatusCode::BAD_REQUEST);
        tracing::debug!(status = status.as_u16(), "a request could not be parsed");
        Self { rest: closing_response(&problem::of_status(status)), replaced: response.len() }
    }
}

/// A complete response to a request that hyper refused. The connection ends after it. Nothing about the request is
/// known, so its `type` is only a path.
pub(super) fn closing_response(problem: &Problem) -> Bytes {
    let request_id = request_id();
    let body = problem.document("", &request_id).into_bytes();
    closing(
        problem.code().status(),
        "application/problem+json",
        &request_id,
        problem.retry_after_seconds(),
        body,
    )
}

/// The same for an `EventSource`: status 200, and the problem as a server-sent event.
pub(super) fn closing_events(problem: &Problem) -> Bytes {
    let request_id = request_id();
    let body = wire::refused_events(problem, "", &request_id);
    closing(StatusCode::OK.as_u16(), "text/event-stream", &request_id, None, body)
}

fn request_id() -> String {
    format!("unparsed-{:016x}", fastrand::u64(..))
}

fn closing(status: u16, kind: &str, request_id: &str, retry_after: Option<u64>, body: Vec<u8>) -> Bytes {
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let retry_after = retry_after.map(|wait| format!("retry-after: {wait}\r\n"));
    let head = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: {kind}\r\ncache-control: no-store\r\n\
         x-request-id: {request_id}\r\n{}connection: close\r\ncontent-length: {}\r\n\r\n",
        reason.unwrap_or_default(),
        retry_after.unwrap_or_default(),
        body.len()
    );
    [head.into_bytes(), body].concat().into()
}
