//! The listeners of the API, over HTTP/1.1 and HTTP/2, and of the metrics.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use listenfd::ListenFd;
use metrics::Gauge;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::config::{self, Settings};
use crate::http::connection::threads::Threads;
use crate::http::connection::tls::Tls;
use crate::http::connection::{ConnectionLimits, ListenerContext, Protocol, TrustedProxies, serve};
use crate::http::{Api, AppState, Seats, cors};

/// The bound listeners.
pub(super) struct Listeners {
    pub(super) api: Listening,
    /// `None` if the API serves the metrics or if they are not served.
    pub(super) metrics: Option<Listening>,
    /// `None` if the API is not served over HTTP/2.
    pub(super) http2: Option<Listening>,
}

pub(super) struct Listening {
    listener: TcpListener,
    pub(super) address: SocketAddr,
}

/// Listening sockets that a service manager passes to the process, as systemd does for a socket unit. The first is
/// for the API, the second for the metrics, and the third for HTTP/2. They replace the addresses of `server.listen`,
/// `server.metrics_listen` and `server.http2_listen`.
#[derive(Debug, Default)]
pub struct PassedSockets {
    api: Option<std::net::TcpListener>,
    metrics: Option<std::net::TcpListener>,
    http2: Option<std::net::TcpListener>,
}

impl PassedSockets {
    /// Takes the sockets, and removes their variables from the environment. The process must have no other threads yet.
    ///
    /// # Errors
    /// A passed file is not a listening TCP socket.
    pub fn take() -> io::Result<Self> {
        let mut sockets = ListenFd::from_env();
        let [api, metrics, http2] = [0, 1, 2].map(|number| sockets.take_tcp_listener(number));
        Ok(Self { api: api?, metrics: metrics?, http2: http2? })
    }
}

impl Listeners {
    /// Binds the listeners. This is the first step of a start, so a start that fails because a port is in use changes
    /// nothing.
    pub(super) async fn bind(settings: &Settings, passed: PassedSockets) -> Result<Self, Error> {
        let server = &settings.server;
        let api = Listening::bind("server.listen", server.listen, passed.api).await?;
        let metrics = match server.metrics_listen.filter(|_| settings.metrics.enabled) {
            Some(wanted) => Some(Listening::bind("server.metrics_listen", wanted, passed.metrics).await?),
            None => None,
        };
        let http2 = match server.http2_listen {
            Some(wanted) => Some(Listening::bind("server.http2_listen", wanted, passed.http2).await?),
            None => None,
        };
        Ok(Self { api, metrics, http2 })
    }

    /// Refuses addresses that are not loopback, unless `is_protected`.
    pub(super) fn check(&self, is_protected: bool) -> Result<(), Error> {
        if is_protected {
            return Ok(());
        }
        let all = [
            ("server.listen", Some(&self.api)),
            ("server.metrics_listen", self.metrics.as_ref()),
            ("server.http2_listen", self.http2.as_ref()),
        ];
        let mut bound = all.into_iter().filter_map(|(setting, on)| Some((setting, on?.address)));
        match bound.find(|(_, address)| !address.ip().to_canonical().is_loopback()) {
            Some((setting, address)) => Err(Error::Exposed { setting, address }),
            None => Ok(()),
        }
    }

    /// Second handles of the listeners, for a server that waits for its database.
    pub(super) fn again(&self) -> Result<Self, Error> {
        let metrics = self.metrics.as_ref().map(|metrics| metrics.again("server.metrics_listen"));
        let http2 = self.http2.as_ref().map(|http2| http2.again("server.http2_listen"));
        let api = self.api.again("server.listen")?;
        Ok(Self { api, metrics: metrics.transpose()?, http2: http2.transpose()? })
    }

    pub(super) fn metrics_address(&self) -> SocketAddr {
        self.metrics.as_ref().unwrap_or(&self.api).address
    }
}

impl Listening {
    async fn bind(
        setting: &'static str,
        address: SocketAddr,
        passed: Option<std::net::TcpListener>,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Listen { setting, address, source };
        let listener = match passed {
            None => TcpListener::bind(address).await,
            Some(socket) => socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket)),
        };
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    fn again(&self, setting: &'static str) -> Result<Self, Error> {
        let address = self.address;
        let socket = self.listener.as_fd().try_clone_to_owned().map(std::net::TcpListener::from);
        let listener = socket.and_then(TcpListener::from_std);
        let listener = listener.map_err(|source| Error::Listen { setting, address, source })?;
        Ok(Self { listener, address })
    }
}

/// The parts that the listeners need.
pub(super) struct Serving<'a> {
    pub(super) settings: &'a config::Server,
    pub(super) state: AppState,
    pub(super) threads: Arc<Threads>,
    pub(super) tls: Option<Arc<Tls>>,
    /// Cancelled when the server stops accepting connections.
    pub(super) closing: CancellationToken,
}

impl Serving<'_> {
    /// Serves the API, and the metrics if they have their own listener.
    pub(super) fn start(self, listeners: Listeners) {
        let Self { settings, state, threads, tls, closing } = self;
        let (clock, shutdown) = (state.clock.clone(), state.shutdown.clone());
        let context = ListenerContext { threads, tls, clock, closing, shutdown };
        if let Some(metrics) = listeners.metrics {
            let api = Api::of_metrics(&state);
            listen(
                "metrics listener",
                metrics,
                api,
                limits(settings, &state, Gauge::noop()),
                context.clone(),
            );
        }
        let open = state.request_metrics.connections(settings.max_connections);
        let limits = limits(settings, &state, open);
        let api = Api::new(state);
        if let Some(http2) = listeners.http2 {
            let limits = ConnectionLimits { protocol: Protocol::Http2, ..limits.clone() };
            listen("http2 listener", http2, api.clone(), limits, context.clone());
        }
        listen("api listener", listeners.api, api, limits, context);
    }
}

fn limits(settings: &config::Server, state: &AppState, open: Gauge) -> ConnectionLimits {
    ConnectionLimits {
        protocol: Protocol::Http1,
        header_read_timeout: settings.header_read_timeout.get(),
        idle_timeout: settings.idle_timeout.get(),
        min_reply_rate: state.limits.min_body_rate,
        max_header_bytes: settings.max_header_bytes,
        max_connections: settings.max_connections,
        seats: Seats::new(settings.max_connections),
        request_metrics: state.request_metrics.clone(),
        open,
        proxies: TrustedProxies::new(settings.trusted_proxies.iter().copied(), settings.proxy_protocol),
        cors: cors(&settings.allowed_origins),
    }
}

fn listen(name: &'static str, on: Listening, api: Api, limits: ConnectionLimits, context: ListenerContext) {
    let shutdown = context.shutdown.clone();
    shutdown.spawn(name, serve(on.listener, api, limits, context));
}
