//! The HTTP listener of the process, for `/metrics`, `/livez` and `/readyz`. It is not the API of a queue, and it
//! reveals no secrets.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deltaq_runtime::lifecycle::Shutdown;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::metrics::Metrics;

/// Maximum number of connections: a few scrapers and health checks.
const CONNECTIONS_MAX: usize = 64;
/// Timeout for the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// The wait after a connection could not be accepted because file descriptors or memory are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The content that the listener serves.
#[derive(Debug, Clone)]
pub struct Page {
    metrics: Metrics,
}

impl Page {
    pub(super) const fn new(metrics: Metrics) -> Self {
        Self { metrics }
    }

    /// Binds the address and serves requests until the shutdown begins. Returns the bound address.
    ///
    /// # Errors
    /// The address can't be bound.
    pub async fn listen(self, address: SocketAddr, shutdown: &Shutdown) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?;
        let _task = shutdown.spawn("metrics listener", self.accept(listener, shutdown.clone()));
        Ok(bound)
    }

    async fn accept(self, listener: TcpListener, shutdown: Shutdown) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let accepted = async {
                let permit = Arc::clone(&permits).acquire_owned().await;
                (permit, listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = shutdown.draining().cancelled() => return,
                accepted = accepted => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (page, draining) = (self.clone(), shutdown.draining().clone());
            let _task = shutdown.spawn("metrics connection", async move {
                let service = service_fn(move |request| {
                    let reply = page.reply(&request);
                    async move { Ok::<_, Infallible>(reply) }
                });
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
                tokio::select! {
                    // A client that disconnects is not a failure of this process.
                    _ended = http.serve_connection(TokioIo::new(stream), service) => {}
                    () = draining.cancelled() => {}
                }
                drop(permit);
            });
        }
    }

    fn reply(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n".to_owned());
        }
        match request.uri().path() {
            "/metrics" => text(StatusCode::OK, self.metrics.page()),
            "/livez" => text(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => self.readiness(),
            _ => text(StatusCode::NOT_FOUND, "there are /metrics, /livez and /readyz\n".to_owned()),
        }
    }
}

impl Page {
    /// Which sources are not in step.
    fn readiness(&self) -> Response<Full<Bytes>> {
        let mut problems = String::new();
        for (problem, sources) in [
            ("no list was accepted yet", self.metrics.unready()),
            ("the last attempt has failed", self.metrics.not_in_step()),
        ] {
            if !sources.is_empty() {
                let _infallible = writeln!(problems, "{problem}: {}", sources.join(", "));
            }
        }
        if problems.is_empty() {
            return text(StatusCode::OK, "ok\n".to_owned());
        }
        text(StatusCode::SERVICE_UNAVAILABLE, problems)
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
