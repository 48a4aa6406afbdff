//! Where connections come in, and who may make them.

use std::net::SocketAddr;
use std::sync::Arc;

use metrics::Gauge;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::config::{self, Settings};
use crate::http::server::threads::Threads;
use crate::http::server::tls::Tls;
use crate::http::server::{Bounds, Surroundings, serve};
use crate::http::{Api, AppState};

/// Where connections come in.
pub(super) struct Listeners {
    pub(super) api: Listening,
    /// None if the API serves the metrics.
    pub(super) metrics: Option<Listening>,
}

pub(super) struct Listening {
    listener: TcpListener,
    pub(super) address: SocketAddr,
}

impl Listeners {
    /// Before anything else is done, so that a start without a free port leaves no trace.
    pub(super) async fn bind(settings: &Settings) -> Result<Self, Error> {
        let server = &settings.server;
        let api = Listening::bind("server.listen", server.listen).await?;
        let metrics = match server.metrics_listen.filter(|_| settings.metrics.enabled) {
            Some(wanted) => Some(Listening::bind("server.metrics_listen", wanted).await?),
            None => None,
        };
        Ok(Self { api, metrics })
    }

    /// Refuses addresses that others than this machine can reach, unless that is fine.
    pub(super) fn check(&self, may_be_reached: bool) -> Result<(), Error> {
        if may_be_reached {
            return Ok(());
        }
        let metrics = self.metrics.as_ref().map(|metrics| ("server.metrics_listen", metrics.address));
        let all = [Some(("server.listen", self.api.address)), metrics];
        match all.into_iter().flatten().find(|(_, address)| !address.ip().to_canonical().is_loopback()) {
            Some((setting, address)) => Err(Error::Exposed { setting, address }),
            None => Ok(()),
        }
    }

    pub(super) fn metrics_address(&self) -> SocketAddr {
        self.metrics.as_ref().unwrap_or(&self.api).address
    }
}

impl Listening {
    async fn bind(setting: &'static str, address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Listen { setting, address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }
}

/// What all listeners share.
pub(super) struct Serving<'a> {
    pub(super) settings: &'a config::Server,
    pub(super) state: AppState,
    pub(super) threads: Threads,
    pub(super) tls: Option<Arc<Tls>>,
    /// Cancelled when no more connections are to be taken.
    pub(super) closing: CancellationToken,
}

impl Serving<'_> {
    /// Serves the API and, on its own listener if it has one, the metrics.
    pub(super) fn start(self, listeners: Listeners) {
        let Self { settings, state, threads, tls, closing } = self;
        let (clock, shutdown) = (state.clock.clone(), state.shutdown.clone());
        let around = Surroundings { threads: Arc::new(threads), tls, clock, closing, shutdown };
        if let Some(metrics) = listeners.metrics {
            let api = Api::of_metrics(state.clone());
            listen("metrics listener", metrics, api, bounds(settings, &state, Gauge::noop()), around.clone());
        }
        let open = state.measures.connections(settings.max_connections);
        let bounds = bounds(settings, &state, open);
        listen("api listener", listeners.api, Api::new(state), bounds, around);
    }
}

fn bounds(settings: &config::Server, state: &AppState, open: Gauge) -> Bounds {
    Bounds {
        header_read_timeout: settings.header_read_timeout.get(),
        idle_timeout: settings.idle_timeout.get(),
        max_header_bytes: settings.max_header_bytes,
        max_connections: settings.max_connections,
        measures: state.measures.clone(),
        open,
    }
}

fn listen(name: &'static str, on: Listening, api: Api, bounds: Bounds, around: Surroundings) {
    let shutdown = around.shutdown.clone();
    shutdown.spawn(name, serve(on.listener, api, bounds, around));
}
