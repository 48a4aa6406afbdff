//! The body of a reply to a pop. If the reply can't be written, its keys return to their queue as if they had never
//! been delivered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use deltaq_service::Delivered;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::http::gate::in_flight::{PIECE_BYTES, ReplyBytes};
use crate::http::node::forwarded_leases::ForwardedLeases;

/// The pops of one connection whose replies hyper has buffered but not written. Leases that remain when the
/// connection ends return to their queue.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Outbox(Arc<Mutex<Vec<Leases>>>);

impl Outbox {
    /// Records that hyper has written everything in its buffer.
    pub(in crate::http) fn written(&self) {
        let mut written = std::mem::take(&mut *self.0.lock());
        written.iter_mut().for_each(Leases::confirm);
    }

    /// Whether a buffered reply has leases that are undone unless the reply is written.
    pub(in crate::http) fn holds_leases(&self) -> bool {
        self.0.lock().iter().any(Leases::holds_leases)
    }

    fn take_over(&self, leases: Leases) {
        self.0.lock().push(leases);
    }
}

/// The leases of a reply to a pop. If they are dropped without being confirmed, they return to their queue.
#[derive(Debug)]
pub(in crate::http) enum Leases {
    /// Leases of a queue of this server.
    Own(Delivered),
    /// Leases of a queue of another node.
    Forwarded(ForwardedLeases),
}

impl Leases {
    fn holds_leases(&self) -> bool {
        match self {
            Self::Own(delivered) => delivered.holds_leases(),
            Self::Forwarded(leases) => leases.holds_leases(),
        }
    }

    fn confirm(&mut self) {
        match self {
            Self::Own(delivered) => delivered.confirm(),
            Self::Forwarded(leases) => leases.confirm(),
        }
    }
}

/// A reply that holds its leases until hyper has taken the last piece. After that, the outbox holds the leases until
/// the last piece is written.
pub(in crate::http) struct DeliveryBody {
    rest: Bytes,
    /// `None` once the last piece is taken.
    leases: Option<Leases>,
    /// `None` without a connection, in tests of the router. In that case, a reply counts as written when it is taken.
    outbox: Option<Outbox>,
    /// Counts the bytes of the reply until the body is dropped.
    _bytes: Option<ReplyBytes>,
}

impl DeliveryBody {
    pub(in crate::http) fn new(
        text: impl Into<Bytes>,
        leases: Leases,
        outbox: Option<Outbox>,
        bytes: Option<ReplyBytes>,
    ) -> Self {
        Self { rest: text.into(), leases: Some(leases), outbox, _bytes: bytes }
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
        if self.rest.is_empty()
            && let Some(mut leases) = self.leases.take()
        {
            match &self.outbox {
                Some(outbox) => outbox.take_over(leases),
                None => leases.confirm(),
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
