//! What is left of a body when its request has been answered.
//!
//! A refusal often comes before the body was read. A connection with the rest of a body in it can't
//! take another request, and closing it makes the caller's system throw away the answer. So a rest that is
//! small and comes quickly is read and dropped, and else the caller is told that the connection ends.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body::{Body as _, Frame, SizeHint};

use super::wakes::taking;

/// Most bytes that are read for nothing.
const BYTES_MAX: usize = 1 << 20;
/// Longest time that is waited for them.
const TIME_MAX: Duration = Duration::from_secs(1);

/// What is left of a body.
pub(super) struct Leftover {
    rest: Rest,
    /// A caller that waits for leave to send the body is not given it for nothing.
    waits: bool,
}

/// Where a body goes that was not read to its end.
type Rest = Arc<Mutex<Option<Body>>>;

impl Leftover {
    /// The whole body of a request that no handler sees. `waits` is whether its caller waits for leave to send it.
    pub(super) fn whole(request: Request, waits: bool) -> Self {
        Self { rest: Arc::new(Mutex::new(Some(request.into_body()))), waits }
    }

    /// What a handler will leave of a body that is lent to it.
    pub(super) fn lend(request: Request, waits: bool) -> (Request, Self) {
        let leftover = Self { rest: Rest::default(), waits };
        let rest = leftover.rest.clone();
        (
            request.map(|body| if body.is_end_stream() { body } else { Body::new(Lent { body, rest }) }),
            leftover,
        )
    }

    /// Leaves nothing behind, or closes the connection.
    pub(super) async fn clear(self, response: Response) -> Response {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(body) = rest.filter(|body| !body.is_end_stream()) else { return response };
        if !self.waits && is_drained(body).await {
            return response;
        }
        let close = (header::CONNECTION, HeaderValue::from_static("close"));
        ([close], response).into_response()
    }
}

async fn is_drained(body: Body) -> bool {
    let mut pieces = body.into_data_stream();
    let drain = async {
        let mut bytes = 0;
        while let Some(piece) = pieces.next().await {
            bytes += piece.map_or(BYTES_MAX, |piece| piece.len());
            if bytes >= BYTES_MAX {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(TIME_MAX, drain).await.unwrap_or(false)
}

/// A body that comes back when it is dropped before its end.
struct Lent {
    body: Body,
    rest: Rest,
}

impl http_body::Body for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        taking(|| {
            let frame = Pin::new(&mut self.body).poll_frame(cx);
            let was_last = frame.is_ready() && self.body.is_end_stream();
            (frame, was_last)
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            let body = std::mem::take(&mut self.body);
            *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}
