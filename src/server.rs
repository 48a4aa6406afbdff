//! The process: settings in, a running server out.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::Settings;
use crate::http::server::{Bounds, serve};
use crate::http::wire::config::to_engine;
use crate::http::{AppState, HttpLimits, metrics_router, router};
use crate::lifecycle::Shutdown;
use crate::service::metrics::Metrics;
use crate::service::{Limits, Registry};

/// How often the buffers of the histograms are emptied.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);
/// How often a draining server looks whether all leases are settled.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address can't be listened on.
    #[error("can't listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The metrics can't be set up.
    #[error("can't set up the metrics")]
    Metrics {
        /// Why.
        source: metrics_exporter_prometheus::BuildError,
    },
    /// The defaults of queues are refused.
    #[error("the settings in queue_defaults are refused: {0}")]
    Defaults(String),
    /// The ready file can't be written.
    #[error("can't write {}", path.display())]
    ReadyFile {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    /// Where the API listens.
    pub api: SocketAddr,
    /// Where `/metrics` is served: the API's address unless it has one of its own.
    pub metrics: SocketAddr,
    /// All queues.
    pub registry: Arc<Registry>,
    shutdown: Shutdown,
    closing: CancellationToken,
}

impl Server {
    /// Listens, and serves until the shutdown's first stage.
    ///
    /// # Errors
    /// [`Error`] names the setting that can't be followed.
    pub async fn start(settings: &Settings, shutdown: Shutdown) -> Result<Self, Error> {
        let clock = Clock::system();
        let defaults = to_engine(&settings.queue_defaults);
        let defaults = defaults.map_err(|problem| Error::Defaults(problem.detail().to_owned()))?;
        let metrics = Metrics::new().map_err(|source| Error::Metrics { source })?;
        let limits = Limits {
            auto_create: settings.queues.auto_create,
            max_queues: settings.queues.max_queues,
            max_waiters: settings.queues.max_waiters,
        };
        let registry =
            Arc::new(Registry::new(limits, defaults, clock.clone(), None, shutdown.clone(), metrics.clone()));
        let api = listen(settings.server.listen).await?;
        let api_address = address(&api, settings.server.listen)?;
        let state = AppState {
            registry: registry.clone(),
            limits: Arc::new(http_limits(settings)),
            started_us: clock.now_us(),
            clock: clock.clone(),
            shutdown: shutdown.clone(),
            serves_metrics: settings.server.metrics_listen.is_none(),
        };
        let closing = CancellationToken::new();
        let bounds = Bounds {
            header_read_timeout: settings.server.header_read_timeout.get(),
            idle_timeout: settings.server.idle_timeout.get(),
            max_header_bytes: settings.server.max_header_bytes,
            max_connections: settings.server.max_connections,
        };
        let mut metrics_address = api_address;
        if let Some(wanted) = settings.server.metrics_listen {
            let listener = listen(wanted).await?;
            metrics_address = address(&listener, wanted)?;
            let serving = serve(
                listener,
                metrics_router(state.clone()),
                bounds.clone(),
                clock.clone(),
                closing.clone(),
                shutdown.clone(),
            );
            shutdown.spawn("metrics listener", serving);
        }
        let serving = serve(api, router(state), bounds, clock, closing.clone(), shutdown.clone());
        shutdown.spawn("api listener", serving);
        shutdown.spawn("metrics upkeep", upkeep(metrics, shutdown.clone()));
        tracing::info!(api = %api_address, metrics = %metrics_address, "listening");
        Ok(Self { api: api_address, metrics: metrics_address, registry, shutdown, closing })
    }

    /// Writes the addresses as JSON, whole or not at all.
    ///
    /// # Errors
    /// [`Error::ReadyFile`].
    pub fn write_ready_file(&self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::ReadyFile { path: path.to_owned(), source };
        let text = serde_json::json!({ "api": self.api, "metrics": self.metrics }).to_string();
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        std::fs::write(&draft, text + "\n").map_err(failed)?;
        std::fs::rename(&draft, path).map_err(failed)
    }

    /// Serves until told to stop: drains while workers settle what they hold, then ends connections.
    pub async fn run(self) {
        self.shutdown.draining().cancelled().await;
        while self.registry.leased() > 0 && !self.shutdown.cut().is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(DRAIN_LOOK) => {}
                () = self.shutdown.cut().cancelled() => {}
            }
        }
        self.closing.cancel();
        self.shutdown.join().await;
        tracing::info!("stopped");
    }
}

fn http_limits(settings: &Settings) -> HttpLimits {
    HttpLimits {
        allowed_hosts: settings.server.allowed_hosts.clone(),
        body_read_timeout: settings.server.body_read_timeout.get(),
        max_body_bytes: settings.server.max_body_bytes,
        max_header_bytes: settings.server.max_header_bytes,
        max_wait: settings.server.max_wait.get(),
        max_batch: settings.queues.max_batch,
        max_replace_objects: settings.queues.max_replace_objects,
        max_reply_bytes: settings.queues.max_reply_bytes,
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

fn address(listener: &TcpListener, wanted: SocketAddr) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(|source| Error::Listen { address: wanted, source })
}

async fn upkeep(metrics: Metrics, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(UPKEEP_PERIOD) => metrics.run_upkeep(),
            () = shutdown.draining().cancelled() => return,
        }
    }
}
