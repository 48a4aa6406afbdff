//! The process: settings in, a running server out.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::{self, Settings, Storage};
use crate::http::server::{Bounds, serve};
use crate::http::wire::config::to_engine;
use crate::http::{AppState, Durability, HttpLimits, metrics_router, router};
use crate::journal::recovery::{self, Contents};
use crate::journal::sqlite::{self, Sqlite};
use crate::journal::store::{self, Reader};
use crate::journal::writer;
use crate::journal::{Journal, Pace};
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
    /// The folder of the journal can't be used.
    #[error("can't use the data directory {}", folder.display())]
    Store {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: store::Error,
    },
    /// The queues can't be loaded.
    #[error("can't load the queues of {}", folder.display())]
    Recovery {
        /// The folder.
        folder: PathBuf,
        /// Which row is wrong, and how.
        source: recovery::Error,
    },
    /// The shutdown began before all queues were loaded.
    #[error("told to stop before all queues were loaded")]
    Stopped,
    /// The ready file can't be written.
    #[error("can't write {}", path.display())]
    ReadyFile {
        /// The file.
        path: PathBuf,
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
    /// The journal's writer.
    writing: Option<JoinHandle<()>>,
    shutdown: Shutdown,
    closing: CancellationToken,
}

impl Server {
    /// Listens, loads the queues, and serves until the shutdown's first stage. While the queues are
    /// loaded, `/readyz` says how far that is.
    ///
    /// # Errors
    /// [`Error`] names the setting that can't be followed.
    pub async fn start(settings: &Settings, shutdown: Shutdown) -> Result<Self, Error> {
        let clock = Clock::system();
        let defaults = to_engine(&settings.queue_defaults);
        let defaults = defaults.map_err(|problem| Error::Defaults(problem.detail().to_owned()))?;
        let metrics =
            Metrics::new(settings.metrics.max_queues).map_err(|source| Error::Metrics { source })?;
        let listeners = Listeners::bind(&settings.server).await?;
        let unless_stopped = shutdown.draining().clone();
        let opened = unless_stopped.run_until_cancelled(open_journal(settings, &clock, &metrics, &shutdown));
        let opened = opened.await.ok_or(Error::Stopped)??;
        let registry = Arc::new(Registry::new(
            limits(settings),
            defaults,
            clock.clone(),
            opened.journal,
            shutdown.clone(),
            metrics.clone(),
        ));
        let closing = CancellationToken::new();
        let (api, metrics_address) = (listeners.api.address, listeners.metrics_address());
        serve_all(listeners, settings, &registry, &clock, &closing, &shutdown);
        shutdown.spawn("metrics upkeep", upkeep(metrics, shutdown.clone()));
        let recovering = registry.recover(opened.contents, opened.unclean);
        let recovered = unless_stopped.run_until_cancelled(recovering).await;
        let folder = settings.storage.data_dir.clone();
        let recovered = recovered.map(|done| done.map_err(|source| Error::Recovery { folder, source }));
        if let Err(error) = recovered.unwrap_or(Err(Error::Stopped)) {
            closing.cancel();
            if let Some(writing) = opened.writing {
                writer::abandon(writing).await;
            }
            return Err(error);
        }
        shutdown.spawn("journal follower", registry.clone().follow());
        tracing::info!(%api, metrics = %metrics_address, "listening");
        Ok(Self { api, metrics: metrics_address, registry, writing: opened.writing, shutdown, closing })
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

    /// Serves until told to stop: drains, ends connections, and lets the journal write what it has.
    /// Leases in memory only would end with the process, so workers get the time to settle them.
    pub async fn run(self) {
        self.shutdown.draining().cancelled().await;
        let keeps_leases = self.registry.journal().is_some();
        while !keeps_leases && self.registry.leased() > 0 && !self.shutdown.cut().is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(DRAIN_LOOK) => {}
                () = self.shutdown.cut().cancelled() => {}
            }
        }
        self.closing.cancel();
        self.shutdown.join().await;
        if let Some(journal) = self.registry.journal() {
            journal.close(self.registry.handled());
        }
        if let Some(writing) = self.writing {
            let ended = writing.await;
            if let Err(error) = ended {
                tracing::error!(%error, "the journal's writer did not end in good order");
            }
        }
        tracing::info!("stopped");
    }
}

/// A journal that is open, if there is to be one.
#[derive(Default)]
struct Opened {
    journal: Option<Journal>,
    writing: Option<JoinHandle<()>>,
    contents: Contents,
    unclean: bool,
}

async fn open_journal(
    settings: &Settings,
    clock: &Clock,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<Opened, Error> {
    if settings.storage.in_memory {
        return Ok(Opened::default());
    }
    let folder = &settings.storage.data_dir;
    let sync = match settings.storage.sync {
        config::Sync::Full => sqlite::Sync::Full,
        config::Sync::Normal => sqlite::Sync::Normal,
    };
    let opened = Sqlite::open(folder, sync).await;
    let (store, reader, opening) =
        opened.map_err(|source| Error::Store { folder: folder.clone(), source })?;
    let (observer, unclean) = (Arc::new(metrics.of_journal()), !opening.clean);
    let (opened, cut) = ((store, reader as Arc<dyn Reader>, opening), shutdown.cut().clone());
    let opened = writer::open(opened, clock.clone(), observer, cut, Pace::default()).await;
    let (journal, writer, contents) =
        opened.map_err(|source| Error::Recovery { folder: folder.clone(), source })?;
    let writing = Some(shutdown.spawn_last("journal writer", writer.run()));
    Ok(Opened { journal: Some(journal), writing, contents, unclean })
}

/// Where connections come in.
struct Listeners {
    api: Listening,
    /// None if the API serves the metrics.
    metrics: Option<Listening>,
}

struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listeners {
    /// Before anything else is done, so that a start without a free port leaves no trace.
    async fn bind(server: &config::Server) -> Result<Self, Error> {
        let api = Listening::bind(server.listen).await?;
        let metrics = match server.metrics_listen {
            Some(wanted) => Some(Listening::bind(wanted).await?),
            None => None,
        };
        Ok(Self { api, metrics })
    }

    fn metrics_address(&self) -> SocketAddr {
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

/// Serves the API and, on its own listener if it has one, the metrics.
fn serve_all(
    listeners: Listeners,
    settings: &Settings,
    registry: &Arc<Registry>,
    clock: &Clock,
    closing: &CancellationToken,
    shutdown: &Shutdown,
) {
    let server = &settings.server;
    let state = AppState {
        registry: registry.clone(),
        limits: Arc::new(http_limits(settings)),
        started_us: clock.now_us(),
        clock: clock.clone(),
        shutdown: shutdown.clone(),
        durability: durability(settings),
        serves_metrics: listeners.metrics.is_none(),
    };
    let bounds = Bounds {
        header_read_timeout: server.header_read_timeout.get(),
        idle_timeout: server.idle_timeout.get(),
        max_header_bytes: server.max_header_bytes,
        max_connections: server.max_connections,
    };
    let run = |name, listening: Listening, router| {
        let (bounds, clock, closing) = (bounds.clone(), clock.clone(), closing.clone());
        shutdown.spawn(name, serve(listening.listener, router, bounds, clock, closing, shutdown.clone()));
    };
    if let Some(metrics) = listeners.metrics {
        run("metrics listener", metrics, metrics_router(state.clone()));
    }
    run("api listener", listeners.api, router(state));
}

fn durability(settings: &Settings) -> Durability {
    match settings.storage {
        Storage { in_memory: true, .. } => Durability::Memory,
        Storage { sync: config::Sync::Normal, .. } => Durability::Normal,
        Storage { sync: config::Sync::Full, .. } => Durability::Full,
    }
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        auto_create: settings.queues.auto_create,
        max_queues: settings.queues.max_queues,
        max_waiters: settings.queues.max_waiters,
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

async fn upkeep(metrics: Metrics, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(UPKEEP_PERIOD) => metrics.run_upkeep(),
            () = shutdown.draining().cancelled() => return,
        }
    }
}
