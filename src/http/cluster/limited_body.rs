//! A body that ends with an error when its source may no longer be used, even if the source is silent.

use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The body of a source that may be used until `end`.
pub(super) struct LimitedBody<B> {
    body: B,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    may_pass: Box<dyn Fn() -> bool + Send>,
    has_ended: bool,
    why: &'static str,
}

impl<B> LimitedBody<B> {
    /// A frame passes only while `may_pass` holds, because `end` may notice the end too late. `why` is the text of the error.
    pub(super) fn new(
        body: B,
        end: impl Future<Output = ()> + Send + 'static,
        may_pass: impl Fn() -> bool + Send + 'static,
        why: &'static str,
    ) -> Self {
        Self { body, end: Box::pin(end), may_pass: Box::new(may_pass), has_ended: false, why }
    }
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        // The end comes first, because a frame that arrives later may be wrong.
        if self.end.as_mut().poll(context).is_pending() {
            let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
            if (self.may_pass)() {
                return Poll::Ready(
                    frame.map(|frame| frame.map_err(|error| io::Error::other(error.to_string()))),
                );
            }
        }
        self.has_ended = true;
        Poll::Ready(Some(Err(io::Error::other(self.why))))
    }

    fn is_end_stream(&self) -> bool {
        !self.has_ended && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
