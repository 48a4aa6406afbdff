//! Where connections come in, and who may make them.

use std::net::SocketAddr;
use std::sync::Arc;

use metrics::Gauge;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Error;
use crate::config::{self, Settings};
use crate::http::server::tls::Tls;
use crate::http::server::{Bounds, serve};
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
        let api = Listening::bind(server.listen).await?;
        let metrics = match server.metrics_listen.filter(|_| settings.metrics.enabled) {
            Some(wanted) => Some(Listening::bind(wanted).await?),
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
    async fn bind(address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }
}

/// What all listeners share.
pub(super) struct Serving<'a> {
    pub(super) settings: &'a config::Server,
    pub(super) state: AppState,
    pub(super) tls: Option<Arc<Tls>>,
    /// Cancelled when no more connections are to be taken.
    pub(super) closing: CancellationToken,
}

impl Serving<'_> {
    /// Serves the API and, on its own listener if it has one, the metrics.
    pub(super) fn start(&self, listeners: Listeners) {
        if let Some(metrics) = listeners.metrics {
            let api = Api::of_metrics(self.state.clone());
            self.listen("metrics listener", metrics, api, Gauge::noop());
        }
        let open = self.state.measures.connections(self.settings.max_connections);
        self.listen("api listener", listeners.api, Api::new(self.state.clone()), open);
    }

    fn listen(&self, name: &'static str, listening: Listening, api: Api, open: Gauge) {
        let bounds = Bounds {
            header_read_timeout: self.settings.header_read_timeout.get(),
            idle_timeout: self.settings.idle_timeout.get(),
            max_header_bytes: self.settings.max_header_bytes,
            max_connections: self.settings.max_connections,
            turned_away: self.state.measures.turned_away(),
            open,
        };
        let (state, tls, closing) = (&self.state, self.tls.clone(), self.closing.clone());
        let (clock, shutdown) = (state.clock.clone(), state.shutdown.clone());
        shutdown.spawn(name, serve(listening.listener, api, tls, bounds, clock, closing, shutdown.clone()));
    }
}
