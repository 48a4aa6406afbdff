//! Connections: accepting them, bounding them, ending them.

mod courtesy;
mod pace;
#[cfg(test)]
mod tests;
pub mod threads;
pub mod tls;
mod turned_away;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use metrics::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::courtesy::Courteous;
use self::pace::Pace;
use self::threads::{Thread, Threads};
use self::tls::Tls;
use self::turned_away::Doorkeeper;
use super::delivery::Outbox;
use super::measures::Measures;
use super::router::Api;
use super::visit::{Connection, Peer};
use super::wakes::Sleeper;
use crate::clock::Clock;
use crate::lifecycle::Shutdown;

/// Smallest buffer of a connection, in bytes: bodies are read in pieces of up to this size, and a head that is not
/// complete, of whose caller nothing is known yet, takes no more.
const BUFFER_BYTES_MIN: usize = 64 << 10;
/// How long accepting pauses after it failed, as it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds of a listener.
#[derive(Clone)]
pub struct Bounds {
    /// Longest time that the head of a request may take.
    pub header_read_timeout: Duration,
    /// Longest time that a connection may be without a request.
    pub idle_timeout: Duration,
    /// Largest head of a request, in bytes.
    pub max_header_bytes: usize,
    /// Most connections at once; more are turned away.
    pub max_connections: usize,
    /// Counts those that are.
    pub measures: Measures,
    /// How many are open.
    pub open: Gauge,
}

/// What all listeners share.
#[derive(Clone)]
pub struct Surroundings {
    /// Where connections are served.
    pub threads: Arc<Threads>,
    /// None if they come as they are.
    pub tls: Option<Arc<Tls>>,
    /// The present time.
    pub clock: Clock,
    /// Cancelled when no more connections are to be taken.
    pub closing: CancellationToken,
    /// Cuts the requests that still run.
    pub shutdown: Shutdown,
}

/// The place of a connection among those that may be open.
struct Place {
    _permit: OwnedSemaphorePermit,
    _thread: Thread,
    open: Gauge,
}

impl Place {
    fn take(permit: OwnedSemaphorePermit, thread: Thread, open: Gauge) -> Self {
        open.increment(1.0);
        Self { _permit: permit, _thread: thread, open }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.decrement(1.0);
    }
}

/// Serves `api` on `listener` until all is closing; then the requests that run are finished, unless the
/// shutdown cuts them.
pub async fn serve(listener: TcpListener, api: Api, bounds: Bounds, around: Surroundings) {
    let closing = around.closing.clone();
    let mut door = Door {
        permits: Arc::new(Semaphore::new(bounds.max_connections)),
        doorkeeper: Doorkeeper::new(bounds.max_connections, around.tls.is_some(), around.clock.clone()),
        api,
        bounds,
        around,
    };
    loop {
        let came = tokio::select! {
            accepted = listener.accept() => accepted.and_then(|(stream, address)| door.let_in(stream, address)),
            () = closing.cancelled() => return,
        };
        if let Err(error) = came {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Where connections come in.
struct Door {
    permits: Arc<Semaphore>,
    doorkeeper: Doorkeeper,
    api: Api,
    bounds: Bounds,
    around: Surroundings,
}

impl Door {
    /// Has a connection served, or turned away if there are too many.
    fn let_in(&mut self, stream: TcpStream, address: SocketAddr) -> io::Result<()> {
        let Surroundings { threads, tls, clock, closing, shutdown } = &self.around;
        // Answers are small and are waited for; they must not wait for more to send.
        let _ = stream.set_nodelay(true);
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            self.bounds.measures.turned_away();
            if let Some(telling) = self.doorkeeper.turn_away(stream) {
                shutdown.spawn("connection past the cap", telling);
            }
            return Ok(());
        };
        let thread = threads.least_busy().clone();
        let runtime = thread.runtime.clone();
        let stream = thread.take_over(stream)?;
        let (api, bounds, clock) = (self.api.clone(), self.bounds.clone(), clock.clone());
        let (closing, cut) = (closing.clone(), shutdown.cut().clone());
        let acceptor = tls.as_ref().map(|tls| tls.acceptor());
        let place = Place::take(permit, thread, self.bounds.open.clone());
        shutdown.spawn_on(&runtime, "connection", async move {
            // Made by the thread that uses it, and so in memory that no other thread writes next to.
            let serving = Serving {
                api: api.for_connection(),
                pace: Pace::new(clock, bounds.header_read_timeout, bounds.idle_timeout),
                closing: closing.child_token(),
                bounds,
                cut,
            };
            match acceptor {
                None => serving.run(stream, Peer { address, has_certificate: false }).await,
                Some(acceptor) => serving.run_tls(acceptor, stream, address).await,
            }
            drop(place);
        });
        Ok(())
    }
}

/// What a connection needs of the server.
struct Serving {
    api: Api,
    bounds: Bounds,
    pace: Pace,
    /// A token of its own: it is looked at whenever the connection has something to do, and all connections would take
    /// the lock of one that they share.
    closing: CancellationToken,
    /// Cancelled after `closing`.
    cut: CancellationToken,
}

/// What the requests of a connection need. Each counts on this alone, not on its parts: a count that all connections
/// share, as the router's is, goes back and forth between the processors.
struct Line {
    api: Api,
    connection: Connection,
    pace: Pace,
}

impl Serving {
    async fn run_tls(self, acceptor: TlsAcceptor, stream: TcpStream, address: SocketAddr) {
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.bounds.header_read_timeout, acceptor.accept(stream)) => shaken,
            () = self.cut.cancelled() => return,
        };
        match shaken {
            Ok(Ok(stream)) => {
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                self.run(stream, Peer { address, has_certificate }).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, %address, "a connection made no TLS"),
            Err(_) => tracing::debug!(%address, "a connection was too slow to make TLS"),
        }
    }

    async fn run<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S, peer: Peer) {
        let Self { api, bounds, pace, closing, cut } = self;
        let outbox = Outbox::default();
        let stream = Courteous::new(stream, pace.clone(), outbox.clone());
        let line = Arc::new(Line { api, connection: Connection { peer, outbox }, pace: pace.clone() });
        let service = service_fn(move |request: Request<Incoming>| {
            let line = line.clone();
            line.pace.request();
            async move {
                let answer = line.api.answer(request.map(Body::new), &line.connection).await;
                line.pace.answered();
                Ok::<_, Infallible>(answer)
            }
        });
        // With `max_headers` hyper would take and fill two buffers of 8 KiB for each request: its default of 100 has
        // them on the stack.
        let mut http = http1::Builder::new();
        http.header_read_timeout(None)
            .max_buf_size(bounds.max_header_bytes.saturating_mul(2).max(BUFFER_BYTES_MIN));
        let mut connection = Sleeper::new(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            biased;
            ended = &mut connection => ended,
            () = pace.too_slow() => return tracing::debug!("a connection was too slow"),
            () = closing.cancelled() => {
                connection.inner().graceful_shutdown();
                tokio::select! {
                    biased;
                    ended = connection => ended,
                    // As one is that has sent half a head.
                    () = pace.too_slow() => return,
                    () = cut.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}
