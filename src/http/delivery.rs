//! The body of an answer to a pop. Keys that could not be written to the caller go back to the queue
//! as if they had not been handed out.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::service::Delivered;

/// How much of the answer is given to the connection at once. The connection takes the next piece
/// only when it has written most of the one before, so a caller that is gone is noticed.
const PIECE_BYTES: usize = 64 << 10;

/// An answer that holds on to its leases until all of it has been taken.
pub(super) struct DeliveryBody {
    rest: Bytes,
    delivered: Delivered,
}

impl DeliveryBody {
    pub(super) fn new(text: Vec<u8>, delivered: Delivered) -> Self {
        Self { rest: text.into(), delivered }
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
            self.delivered.confirm();
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
