//! Layers of tower-http around the API: CORS for all operations, and compression for the replies of long operations.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tower::{Layer as _, ServiceExt as _};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{Predicate as _, SizeAbove};
use tower_http::cors::CorsLayer;

use crate::http::node;
use crate::http::problem::PassedOn;

/// Minimum size of a compressed reply, in bytes.
const COMPRESSED_BYTES_MIN: u64 = 1_024;
/// How long a browser may cache the reply to a preflight request.
const PREFLIGHT_AGE_MAX: Duration = Duration::from_hours(1);

/// CORS for these origins; `None` without origins, so that `OPTIONS` stays an unknown method.
#[must_use]
pub fn cors(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<_> = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect();
    if origins.is_empty() {
        return None;
    }
    let request_id = HeaderName::from_static("x-request-id");
    let sent = [
        header::ACCEPT,
        header::AUTHORIZATION,
        header::CONTENT_ENCODING,
        header::CONTENT_TYPE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        HeaderName::from_static("last-event-id"),
        HeaderName::from_static("traceparent"),
        request_id.clone(),
    ];
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(sent)
        .expose_headers([
            header::ALLOW,
            header::ETAG,
            header::RETRY_AFTER,
            HeaderName::from_static("deltaq-continue"),
            HeaderName::from_static("deltaq-resource-version"),
            node::OWNER.clone(),
            request_id,
        ])
        .max_age(PREFLIGHT_AGE_MAX);
    Some(layer)
}

/// Compresses a reply for a client that accepts compression. Uses the fastest level, because the thread has other
/// connections to serve.
pub(in crate::http) async fn compressed<F: Future<Output = Response>>(
    request: Request,
    answer: impl Fn(Request) -> F,
) -> Response {
    let answer = tower::service_fn(|request| {
        let response = answer(request);
        async move { Ok::<_, Infallible>(yielding(response.await)) }
    });
    let compression = CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(COMPRESSED_BYTES_MIN).and(is_of_this_server));
    let response = compression.layer(answer).oneshot(request).await;
    response.unwrap_or_else(|never| match never {}).map(Body::new)
}

/// Whether this server has created the reply. Another node has already compressed its reply or decided not to.
fn is_of_this_server(_: StatusCode, _: Version, _: &HeaderMap, extensions: &Extensions) -> bool {
    extensions.get::<PassedOn>().is_none()
}

/// Lets other connections of the thread run between two pieces of a reply, because each piece takes time to compress.
fn yielding(response: Response) -> Response {
    response.map(|body| if body.is_end_stream() { body } else { Body::new(Yielding { body, yields: false }) })
}

struct Yielding {
    body: Body,
    /// Whether the next poll yields.
    yields: bool,
}

impl http_body::Body for Yielding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.yields = !self.body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
