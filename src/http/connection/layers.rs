//! The layers around the API on every connection: CORS, security headers, and compression of replies.
//!
//! A reply to a pop is never compressed: its leases count as delivered when its last byte is written, and a compressor
//! would take the last byte long before.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{Predicate, SizeAbove};
use tower_http::cors::CorsLayer;
use tower_http::set_header::SetResponseHeaderLayer;

/// Smallest reply that is compressed, in bytes.
const COMPRESSED_BYTES_MIN: u64 = 1_024;
/// How long a browser may remember the reply to a preflight request.
const PREFLIGHT_AGE_MAX: Duration = Duration::from_hours(1);

/// Marks a response that is never compressed.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct NeverCompressed;

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
        header::IF_NONE_MATCH,
        HeaderName::from_static("traceparent"),
        request_id.clone(),
    ];
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(sent)
        .expose_headers([header::ALLOW, header::ETAG, header::RETRY_AFTER, request_id])
        .max_age(PREFLIGHT_AGE_MAX);
    Some(layer)
}

/// Keeps a browser from guessing the type of a reply.
pub(super) fn no_sniffing() -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
}

/// Compresses replies for clients that accept it. The fastest level: the thread has other connections to serve.
pub(super) fn compression() -> CompressionLayer<impl Predicate + Send + Sync + 'static> {
    let is_allowed = |_: StatusCode, _: Version, _: &HeaderMap, extensions: &Extensions| {
        extensions.get::<NeverCompressed>().is_none()
    };
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(COMPRESSED_BYTES_MIN).and(is_allowed))
}

/// Lets other connections of the thread run between two pieces of a reply, of which each takes time to compress.
pub(super) fn yielding(response: Response) -> Response {
    if response.extensions().get::<NeverCompressed>().is_some() {
        return response;
    }
    response.map(|body| if body.is_end_stream() { body } else { Body::new(Yielding { body, yields: false }) })
}

struct Yielding {
    body: Body,
    /// The next poll yields.
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
