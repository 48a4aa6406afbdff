//! The body of an answer to a pop. Keys that could not be written to the caller go back to the queue
//! as if they had not been handed out.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::service::Delivered;

/// How much of the answer is given to the connection at once. The connection takes the next piece
/// only when it has written most of the one before, so a caller that is gone is noticed.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// What a connection has taken over but not written yet. Each connection has one; what is in it when
/// the connection ends goes back to its queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox(Arc<Mutex<Vec<Delivered>>>);

impl Outbox {
    /// All that the connection had taken over is written.
    pub(super) fn written(&self) {
        let mut written = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        written.iter_mut().for_each(Delivered::confirm);
    }

    fn take_over(&self, delivered: Delivered) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(delivered);
    }
}

/// An answer that holds on to its leases until all of it has been taken; then the connection does,
/// until all of it is written.
pub(super) struct DeliveryBody {
    rest: Bytes,
    delivered: Delivered,
    /// None where no connection of ours carries the answer: then taken counts as written.
    outbox: Option<Outbox>,
}

impl DeliveryBody {
    pub(super) fn new(text: String, delivered: Delivered, outbox: Option<Outbox>) -> Self {
        Self { rest: text.into(), delivered, outbox }
    }
}

impl Body for DeliveryBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let piece = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(piece);
        if self.rest.is_empty() {
            let mut delivered = std::mem::take(&mut self.delivered);
            match &self.outbox {
                Some(outbox) => outbox.take_over(delivered),
                None => delivered.confirm(),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
