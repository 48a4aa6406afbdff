//! Gives a problem document to callers whose request could not even be parsed.
//!
//! hyper answers such a request by itself, before any layer of ours, with a bare status line. Every
//! answer of ours has an `x-request-id`; an error head without one is hyper's and is replaced here.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::http::StatusCode;
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pace::Pace;
use crate::http::delivery::Outbox;
use crate::http::problem::{self, Problem};

/// How many polls later a clean end comes: a request that came together with it, and waits for nothing but those with which its change
/// is made, is answered before.
const HELD_BACK: u8 = 2;

/// A connection that never sends a bare error.
#[derive(Debug)]
pub(super) struct Courteous<S> {
    stream: S,
    pace: Pace,
    /// What is sent instead of a bare head, and the length of that head.
    instead: Option<(Bytes, usize)>,
    /// Is told when all is written: hyper flushes when nothing is left in its own buffer.
    outbox: Outbox,
    /// How often it was not told yet that the caller has ended its side.
    held_back: u8,
}

impl<S> Courteous<S> {
    pub(super) fn new(stream: S, pace: Pace, outbox: Outbox) -> Self {
        Self { stream, pace, instead: None, outbox, held_back: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Courteous<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.pace.received();
        } else if matches!(read, Poll::Ready(Ok(()))) && self.held_back < HELD_BACK {
            // With the end hyper drops the request in hand.
            self.held_back += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Courteous<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.instead.is_none() {
            this.instead = replacement(buf).map(|text| (text, buf.len()));
        }
        let Some((text, replaced)) = &mut this.instead else {
            // A caller that takes nothing does not win time by being offered more.
            let written = ready!(Pin::new(&mut this.stream).poll_write(cx, buf))?;
            this.pace.sent();
            return Poll::Ready(Ok(written));
        };
        while text.has_remaining() {
            let written = ready!(Pin::new(&mut this.stream).poll_write(cx, text))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            text.advance(written);
        }
        let replaced = *replaced;
        this.instead = None;
        Poll::Ready(Ok(replaced))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.outbox.written();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A problem document in place of a bare 4xx head, with its own head; `None` for anything else.
fn replacement(buf: &[u8]) -> Option<Bytes> {
    let rest = buf.strip_prefix(b"HTTP/1.1 ").or_else(|| buf.strip_prefix(b"HTTP/1.0 "))?;
    if rest.first() != Some(&b'4') || !buf.ends_with(b"\r\n\r\n") {
        return None;
    }
    let head = std::str::from_utf8(buf).ok()?;
    let status = StatusCode::from_bytes(rest.get(..3)?).ok()?;
    if head.contains("x-request-id") || !head.contains("content-length: 0") {
        return None;
    }
    tracing::debug!(status = status.as_u16(), "a request could not be parsed");
    Some(answer(&problem::of_status(status)))
}

/// A whole answer to a request that no layer of ours has seen, after which the connection ends.
pub(super) fn answer(problem: &Problem) -> Bytes {
    let request_id = format!("unparsed-{:016x}", fastrand::u64(..));
    let (body, status) = (problem.document(&request_id), problem.code().status());
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let retry_after = problem.retry_after_seconds().map(|wait| format!("retry-after: {wait}\r\n"));
    let text = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n\
         x-request-id: {request_id}\r\n{}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        reason.unwrap_or_default(),
        retry_after.unwrap_or_default(),
        body.len()
    );
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_errors_are_replaced() {
        let bare =
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let text = replacement(bare).expect("replaced");
        let text = std::str::from_utf8(&text).expect("text");
        assert!(
            text.starts_with("HTTP/1.1 431 ") && text.contains("\"code\":\"headers-too-large\""),
            "{text}"
        );
        for other in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 404 Not Found\r\nx-request-id: 1\r\ncontent-length: 0\r\n\r\n",
            b"{\"a\":\"HTTP/1.1 400\"}",
        ] {
            assert!(replacement(other).is_none());
        }
    }
}
