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
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body::{Body as _, Frame, SizeHint};

/// Most bytes that are read for nothing.
const BYTES_MAX: usize = 1 << 20;
/// Longest time that is waited for them.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Leaves nothing of the body behind, or closes the connection.
pub(super) async fn finish(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    // A caller that waits for leave to send the body is not given it for nothing.
    let waits = request.headers().contains_key(header::EXPECT);
    let leftover = Leftover::default();
    let response = next.run(request.map(|body| Body::new(Lent { body, leftover: leftover.clone() }))).await;
    let Some(body) = leftover.take() else { return response };
    if !waits && is_drained(body).await {
        return response;
    }
    let close = (header::CONNECTION, HeaderValue::from_static("close"));
    ([close], response).into_response()
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

/// Where a body goes that was not read to its end.
#[derive(Clone, Default)]
struct Leftover(Arc<Mutex<Option<Body>>>);

impl Leftover {
    fn put(&self, body: Body) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }

    fn take(&self) -> Option<Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A body that comes back when it is dropped before its end.
struct Lent {
    body: Body,
    leftover: Leftover,
}

impl http_body::Body for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
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
            self.leftover.put(std::mem::take(&mut self.body));
        }
    }
}
