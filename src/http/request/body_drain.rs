//! The body drain: the handling of the rest of a request body after the response.
//!
//! A request is often refused before the end of its body. A connection with an unread body can't take another
//! request. If its socket were closed, the unread bytes would reset the connection, and the client would lose the
//! refusal. So if the rest of the body is small and arrives soon, it is read and dropped. Otherwise the response
//! announces that the connection closes, and the connection lingers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Version, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

/// Maximum number of bytes that the drain reads.
const BYTES_MAX: usize = 1 << 20;
/// Maximum time that the drain takes.
const TIME_MAX: Duration = Duration::from_secs(1);

/// The unread rest of one request body.
pub(in crate::http) struct BodyDrain {
    rest: Rest,
    after: After,
}

/// Marks a response after which the connection ends although the client may still be sending.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Unread;

/// The body, once its reader has dropped it before its end.
type Rest = Arc<Mutex<Option<Body>>>;

/// How the connection continues after the response, depending on the head of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The connection continues if the rest can be drained.
    Drain,
    /// The client waits for `100 Continue`, so reading the rest would request a body that is not needed.
    CloseIfUnread,
    /// The server and a proxy may disagree about where the body ends, so nothing after it can be trusted.
    Close,
    /// The rest belongs to a stream of HTTP/2, which ends without the others.
    EndStream,
}

impl After {
    fn of(version: Version, headers: &HeaderMap) -> Self {
        if version == Version::HTTP_2 {
            return Self::EndStream;
        }
        let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
        let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
        if encodings.next().is_some_and(|first| !is_chunked(first) || encodings.next().is_some()) {
            return Self::Close;
        }
        if headers.contains_key(header::EXPECT) { Self::CloseIfUnread } else { Self::Drain }
    }
}

impl BodyDrain {
    /// Takes the whole body of a request that does not reach a handler.
    pub(in crate::http) fn whole(request: Request) -> Self {
        let after = After::of(request.version(), request.headers());
        Self { rest: Arc::new(Mutex::new(Some(request.into_body()))), after }
    }

    /// Lets a handler read the body, and takes the part that the handler does not read.
    pub(in crate::http) fn watch(request: Request) -> (Request, Self) {
        let drain = Self { rest: Rest::default(), after: After::of(request.version(), request.headers()) };
        let rest = drain.rest.clone();
        let watched = request
            .map(|body| if body.is_end_stream() { body } else { Body::new(WatchedBody { body, rest }) });
        (watched, drain)
    }

    /// Reads the rest, or makes the response close the connection.
    pub(in crate::http) async fn finish(self, mut response: Response) -> Response {
        let rest = self.rest.lock().take();
        let rest = rest.filter(|body| !body.is_end_stream());
        let closes = match (self.after, rest) {
            (After::Close, _) | (After::CloseIfUnread, Some(_)) => true,
            (After::Drain | After::CloseIfUnread, None) | (After::EndStream, _) => false,
            (After::Drain, Some(body)) => !is_drained(body).await,
        };
        if closes {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response.extensions_mut().insert(Unread);
        }
        response
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

/// A body that is handed to the drain if it is dropped before its end.
struct WatchedBody {
    body: Body,
    rest: Rest,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            let body = std::mem::take(&mut self.body);
            *self.rest.lock() = Some(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubtful_transfer_encoding_closes_the_connection() {
        let after = |encodings: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for encoding in encodings {
                headers.append(header::TRANSFER_ENCODING, HeaderValue::from_static(encoding));
            }
            After::of(Version::HTTP_11, &headers)
        };
        assert_eq!(after(&[]), After::Drain);
        assert_eq!(after(&["Chunked"]), After::Drain);
        assert_eq!(after(&["gzip, chunked"]), After::Close);
        assert_eq!(after(&["chunked", "chunked"]), After::Close);
        assert_eq!(after(&["identity"]), After::Close);
    }
}
