//! Connections: accepting them, bounding them, ending them.

mod courtesy;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use self::courtesy::Courteous;
use crate::lifecycle::Shutdown;

/// Most header fields of a request.
const HEADERS_MAX: usize = 256;
/// Smallest buffer of a connection, in bytes: bodies are read in pieces of up to this size.
const BUFFER_BYTES_MIN: usize = 256 << 10;
/// How long accepting pauses after it failed, as it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds of a listener.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Longest time that the head of a request may take, or a connection may be idle.
    pub header_read_timeout: Duration,
    /// Largest head of a request, in bytes.
    pub max_header_bytes: usize,
    /// Most connections at once; more wait to be accepted.
    pub max_connections: usize,
}

/// Serves `router` on `listener` until `closing`; then the requests that run are finished, unless the
/// shutdown cuts them.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    closing: CancellationToken,
    shutdown: Shutdown,
) {
    let places = Arc::new(Semaphore::new(bounds.max_connections));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closing.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(stream, router.clone(), bounds.clone(), closing.clone());
                let cut = shutdown.cut().clone();
                shutdown.spawn("connection", async move {
                    tokio::select! {
                        () = connection => {}
                        () = cut.cancelled() => {}
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router, bounds: Bounds, closing: CancellationToken) {
    // Answers are small and are waited for; they must not wait for more to send.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            Ok::<_, Infallible>(
                router.oneshot(request.map(Body::new)).await.unwrap_or_else(|never| match never {}),
            )
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(bounds.header_read_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(bounds.max_header_bytes.saturating_mul(2).max(BUFFER_BYTES_MIN));
    let connection = http.serve_connection(TokioIo::new(Courteous::new(stream)), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
